"""Arrays that are computed twice are computed once: padded images, most of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ganglion.backends.cuda_text import root
from ganglion.backends.cuda_work import Root, is_map
from ganglion.plan.kernel import Buffer, Expr, Kernel, Loop, walk

Change = Callable[[Buffer], Buffer]


def without_copies(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels that compute no temporary array that another one already is."""
    writers: dict[Root, list[int]] = defaultdict(list)
    buffers: dict[Root, Buffer] = {}
    for number, kernel in enumerate(kernels):
        for one in kernel.writes():
            writers[root(one)].append(number)
            buffers[root(one)] = one
    first: dict[Any, Root] = {}
    same: dict[Root, Root] = {}
    gone: set[int] = set()
    for key, numbers in list(writers.items()):
        sign = _sign(kernels, buffers[key], numbers, same)
        if sign is None:
            continue
        known = first.setdefault(sign, key)
        pairs = zip(writers[known], numbers, strict=True)
        if known != key and not any(_changed(kernels, writers, *one) for one in pairs):
            same[key] = known
            gone |= set(numbers)
    kept = [one for number, one in enumerate(kernels) if number not in gone]
    return [renamed(one, same) for one in kept] if same else kept


def _sign(
    kernels: Sequence[Kernel],
    buffer: Buffer,
    numbers: Sequence[int],
    same: dict[Root, Root],
) -> Any:
    """Return what an array is made of; None where that is not plain to see."""
    if buffer.kind != "arena":
        return None
    parts = []
    for number in numbers:
        kernel = kernels[number]
        if not is_map(kernel) or len(kernel.writes()) > 1:
            return None
        assert isinstance(kernel, Loop)
        view = kernel.target
        words = [str(kernel.shape), str(view.strides), str(view.offset)]
        parts.append((*words, written(kernel.expr, same)))
    return (buffer.shape, buffer.dtype, tuple(parts))


def written(expr: Expr, same: dict[Root, Root] | None = None) -> str:
    """Write an expression down; what is shared is written once.

    What is the `same` memory by another name is called alike.
    """
    same = same or {}
    numbers: dict[int, int] = {}
    words = []
    for one in walk(expr):
        numbers[id(one)] = len(numbers)
        words.append(type(one).__name__)
        for field in fields(one):
            words.append(_word(getattr(one, field.name), numbers, same))
    return " ".join(words)


def _word(value: Any, numbers: dict[int, int], same: dict[Root, Root]) -> str:
    if isinstance(value, Expr):
        return f"#{numbers[id(value)]}"
    if isinstance(value, Buffer):
        return str(same.get(root(value), root(value)))
    if isinstance(value, tuple):
        return f"({' '.join(_word(one, numbers, same) for one in value)})"
    if is_dataclass(value):
        parts = (getattr(value, field.name) for field in fields(value))
        return f"[{' '.join(_word(one, numbers, same) for one in parts)}]"
    return repr(value)


def _changed(
    kernels: Sequence[Kernel], writers: dict[Root, list[int]], start: int, last: int
) -> bool:
    """Tell whether what a kernel reads has changed since an equal one before it."""
    read = {root(b) for b in kernels[last].reads()}
    return any(start < n <= last for one in read for n in writers.get(one, []))


def renamed(kernel: Kernel, names: dict[Root, Root]) -> Kernel:
    """Return a kernel with other memory in the place of some."""

    def change(buffer: Buffer) -> Buffer:
        if root(buffer) not in names:
            return buffer
        kind, name = names[root(buffer)]
        return replace(buffer, kind=kind, name=name)

    return rewritten(kernel, change)


def rewritten(kernel: Kernel, change: Change) -> Kernel:
    """Return a kernel with every buffer changed."""
    made: Kernel = _rewritten(kernel, change, {})
    return made


def _rewritten(value: Any, change: Change, made: dict[int, Any]) -> Any:
    if isinstance(value, Buffer):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_rewritten(one, change, made) for one in value)
    if not is_dataclass(value) or isinstance(value, (type, np.dtype)):
        return value
    if id(value) not in made:
        if isinstance(value, Expr):  # long chains would be too deep to recurse into
            for one in walk(value):
                if one is not value and id(one) not in made:
                    made[id(one)] = _remade(one, change, made)
        made[id(value)] = _remade(value, change, made)
    return made[id(value)]


def _remade(value: Any, change: Change, made: dict[int, Any]) -> Any:
    old = {field.name: getattr(value, field.name) for field in fields(value)}
    new = {name: _rewritten(one, change, made) for name, one in old.items()}
    changed = any(new[name] is not one for name, one in old.items())
    return replace(value, **new) if changed else value
