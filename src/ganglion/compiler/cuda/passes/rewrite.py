"""Kernels with other buffers, expressions as keys, and arrays' readers and writers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import Buffer, Expr, Kernel, walk

Change = Callable[[Buffer], Buffer]


class Uses:
    """The numbers of the kernels that read and write each array."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.readers: dict[BufferKey, list[int]] = defaultdict(list)
        self.writers: dict[BufferKey, list[int]] = defaultdict(list)
        for number, kernel in enumerate(kernels):
            for key in {b.key for b in kernel.reads()}:
                self.readers[key].append(number)
            for key in {b.key for b in kernel.writes()}:
                self.writers[key].append(number)


def read_by(kernels: Iterable[Kernel]) -> set[BufferKey]:
    """Return what kernels read."""
    return {b.key for kernel in kernels for b in kernel.reads()}


def written_by(kernels: Iterable[Kernel]) -> set[BufferKey]:
    """Return what kernels write."""
    return {b.key for kernel in kernels for b in kernel.writes()}


def rename_buffers(kernel: Kernel, names: Mapping[BufferKey, BufferKey]) -> Kernel:
    """Return a kernel with other memory in place of some."""
    if not any(b.key in names for b in (*kernel.reads(), *kernel.writes())):
        return kernel

    def change(buffer: Buffer) -> Buffer:
        if buffer.key not in names:
            return buffer
        kind, name = names[buffer.key]
        return replace(buffer, kind=kind, name=name)

    return map_buffers(kernel, change)


def map_buffers(kernel: Kernel, change: Change) -> Kernel:
    """Return a kernel with every buffer changed."""
    result: Kernel = _mapped(kernel, change, {})
    return result


def _mapped(value: Any, change: Change, known: dict[int, Any]) -> Any:
    if isinstance(value, Buffer):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_mapped(item, change, known) for item in value)
    if not is_dataclass(value) or isinstance(value, (type, np.dtype)):
        return value
    if id(value) not in known:
        if isinstance(value, Expr):  # long chains would be too deep to recurse into
            for expr in walk(value):
                if expr is not value and id(expr) not in known:
                    known[id(expr)] = _with_mapped_fields(expr, change, known)
        known[id(value)] = _with_mapped_fields(value, change, known)
    return known[id(value)]


def _with_mapped_fields(value: Any, change: Change, known: dict[int, Any]) -> Any:
    old = {field.name: getattr(value, field.name) for field in fields(value)}
    new = {
        name: _mapped(field_value, change, known) for name, field_value in old.items()
    }
    changed = any(new[name] is not field_value for name, field_value in old.items())
    return replace(value, **new) if changed else value


def expression_key(
    expr: Expr, same: Mapping[BufferKey, BufferKey] | None = None
) -> str:
    """Return a text that equal expressions share; shared parts are written once.

    Arrays that are the `same` by another name are written alike.
    """
    same = same or {}
    numbers: dict[int, int] = {}
    words = []
    for node in walk(expr):
        numbers[id(node)] = len(numbers)
        words.append(type(node).__name__)
        for field in fields(node):
            words.append(_word(getattr(node, field.name), numbers, same))
    return " ".join(words)


def _word(
    value: Any, numbers: dict[int, int], same: Mapping[BufferKey, BufferKey]
) -> str:
    if isinstance(value, Expr):
        return f"#{numbers[id(value)]}"
    if isinstance(value, Buffer):
        return str(same.get(value.key, value.key))
    if isinstance(value, tuple):
        return f"({' '.join(_word(item, numbers, same) for item in value)})"
    if is_dataclass(value):
        parts = (getattr(value, field.name) for field in fields(value))
        return f"[{' '.join(_word(part, numbers, same) for part in parts)}]"
    return repr(value)
