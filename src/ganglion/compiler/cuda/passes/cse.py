"""Arrays that are computed twice are computed once: padded images, most of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ganglion.compiler.cuda.epilogue import Root, is_map
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Buffer, Expr, Kernel, Loop, walk

Change = Callable[[Buffer], Buffer]


Place = tuple[int, int]  # a kernel's number, and which of its results


def eliminate_common_subexpressions(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels that compute no temporary array that another one already is."""
    writers: dict[Root, list[Place]] = defaultdict(list)
    buffers: dict[Root, Buffer] = {}
    for number, kernel in enumerate(kernels):
        for which, one in enumerate(kernel.writes()):
            writers[root(one)].append((number, which))
            buffers[root(one)] = one
    first: dict[Any, Root] = {}
    same: dict[Root, Root] = {}
    gone: set[Place] = set()
    # What is ready first is kept: the others' readers come later.
    for key, places in sorted(writers.items(), key=lambda one: one[1][-1]):
        sign = _sign(kernels, buffers[key], places, same)
        if sign is None:
            continue
        known = first.setdefault(sign, key)
        pairs = zip(writers[known], places, strict=True)
        if known != key and not any(
            _changed(kernels, writers, one, other) for one, other in pairs
        ):
            same[key] = known
            gone |= set(places)
    kept = _without(kernels, gone)
    return [rename_buffers(one, same) for one in kept] if same else kept


def _without(kernels: Sequence[Kernel], gone: set[Place]) -> list[Kernel]:
    """Return kernels without some of their results."""
    made: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if not isinstance(kernel, Loop):
            made.append(kernel)
            continue
        outputs = enumerate(kernel.outputs)
        kept = tuple(one for i, one in outputs if (number, i) not in gone)
        if kept:
            made.append(replace(kernel, outputs=kept))
    return made


def _sign(
    kernels: Sequence[Kernel],
    buffer: Buffer,
    places: Sequence[Place],
    same: dict[Root, Root],
) -> Any:
    """Return what an array is made of; None where that is not plain to see."""
    if buffer.kind != "arena":
        return None
    parts = []
    for number, which in places:
        kernel = kernels[number]
        if not is_map(kernel):
            return None
        assert isinstance(kernel, Loop)
        expr, view = kernel.outputs[which]
        words = [str(kernel.shape), str(view.strides), str(view.offset)]
        parts.append((*words, written(expr, same)))
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
    kernels: Sequence[Kernel],
    writers: dict[Root, list[Place]],
    start: Place,
    last: Place,
) -> bool:
    """Return whether what a kernel reads has changed since an equal one before it."""
    read = {root(b) for b in kernels[last[0]].reads()}
    return any(start[0] < n <= last[0] for one in read for n, _ in writers.get(one, []))


def rename_buffers(kernel: Kernel, names: dict[Root, Root]) -> Kernel:
    """Return a kernel with other memory in the place of some."""
    if not any(root(b) in names for b in (*kernel.reads(), *kernel.writes())):
        return kernel

    def change(buffer: Buffer) -> Buffer:
        if root(buffer) not in names:
            return buffer
        kind, name = names[root(buffer)]
        return replace(buffer, kind=kind, name=name)

    return map_buffers(kernel, change)


def map_buffers(kernel: Kernel, change: Change) -> Kernel:
    """Return a kernel with every buffer changed."""
    made: Kernel = _map_buffers(kernel, change, {})
    return made


def _map_buffers(value: Any, change: Change, made: dict[int, Any]) -> Any:
    if isinstance(value, Buffer):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_map_buffers(one, change, made) for one in value)
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
    new = {name: _map_buffers(one, change, made) for name, one in old.items()}
    changed = any(new[name] is not one for name, one in old.items())
    return replace(value, **new) if changed else value
