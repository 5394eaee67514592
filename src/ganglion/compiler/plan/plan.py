"""Plans: kernels in order, their buffers, the verifier, and memory allocation."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ganglion.compiler.plan.kernels import Buffer, BufferKey, Expr, Kernel, walk
from ganglion.system.records import record


@record(guarded=True)
class Plan:
    """Kernels in order, and the buffers they work on; targets add what they need."""

    name: str
    kernels: tuple[Kernel, ...]
    data: dict[str, Buffer]
    state: dict[str, Buffer]
    results: dict[str, Buffer]

    def temporary_arrays(self) -> dict[Buffer, np.ndarray]:
        """Return flat arrays for all temporary buffers."""
        touched = {b.root for kernel in self.kernels for b in kernel.writes()}
        return {b: np.zeros(b.size, b.dtype) for b in touched if b.kind == "arena"}

    def __str__(self) -> str:
        from ganglion.compiler.plan.printer import show

        return show(self)


# ---- the verifier --------------------------------------------------------------------


class PlanError(Exception):
    """A plan is malformed: a bug in Ganglion, not in the model."""


def verify(plan: Plan) -> Plan:
    """Return the plan if it is well-formed, else raise `PlanError`."""
    written: set[Buffer] = set()
    for number, kernel in enumerate(plan.kernels):
        for root in kernel.memory_read - written:
            if root.kind == "arena":
                text = f"kernel {number} reads {root!r} too early"
                raise PlanError(f"{plan.name}: {text}")
        for root in kernel.memory_written:
            if root.kind in ("data", "constant"):
                raise PlanError(f"{plan.name}: kernel {number} writes {root!r}")
        written |= kernel.memory_written
        if fault := kernel.fault():
            raise PlanError(f"{plan.name}: kernel {number} {fault}")
    return plan


# ---- uses of buffers, and kernels with other buffers ---------------------------------

Change = Callable[[Buffer], Buffer]


class Uses:
    """The numbers of the kernels that read and write each array."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.readers: dict[BufferKey, list[int]] = defaultdict(list)
        self.writers: dict[BufferKey, list[int]] = defaultdict(list)
        for number, kernel in enumerate(kernels):
            self.add(number, kernel)

    def add(self, number: int, kernel: Kernel) -> None:
        """Add the uses of a kernel with this number."""
        for key in {b.key for b in kernel.memory_read}:
            insort(self.readers[key], number)
        for key in {b.key for b in kernel.memory_written}:
            insort(self.writers[key], number)

    def remove(self, number: int, kernel: Kernel) -> None:
        """Remove the uses of a kernel with this number."""
        for key in {b.key for b in kernel.memory_read}:
            self.readers[key].remove(number)
        for key in {b.key for b in kernel.memory_written}:
            self.writers[key].remove(number)


def read_by(kernels: Iterable[Kernel]) -> set[BufferKey]:
    """Return the memory that kernels read."""
    return {b.key for kernel in kernels for b in kernel.reads()}


def written_by(kernels: Iterable[Kernel]) -> set[BufferKey]:
    """Return the memory that kernels write."""
    return {b.key for kernel in kernels for b in kernel.writes()}


def rename_buffers(kernel: Kernel, names: Mapping[BufferKey, BufferKey]) -> Kernel:
    """Return a kernel with some buffers renamed."""
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


def _mapped(value: Any, change: Change, memo: dict[int, Any]) -> Any:
    if isinstance(value, Buffer):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_mapped(item, change, memo) for item in value)
    if not is_dataclass(value) or isinstance(value, (type, np.dtype)):
        return value
    if id(value) not in memo:
        if isinstance(value, Expr):  # may be too deep for recursion
            for expr in walk(value):
                if expr is not value and id(expr) not in memo:
                    memo[id(expr)] = _with_mapped_fields(expr, change, memo)
        memo[id(value)] = _with_mapped_fields(value, change, memo)
    return memo[id(value)]


def _with_mapped_fields(value: Any, change: Change, memo: dict[int, Any]) -> Any:
    old = {field.name: getattr(value, field.name) for field in fields(value)}
    new = {
        name: _mapped(field_value, change, memo) for name, field_value in old.items()
    }
    changed = any(new[name] is not field_value for name, field_value in old.items())
    return replace(value, **new) if changed else value


def expression_key(
    expr: Expr, aliases: Mapping[BufferKey, BufferKey] | None = None
) -> str:
    """Return a canonical text of an expression, linear in the size of its graph.

    Buffers in `aliases` are written as the buffers that they are aliases of.
    """
    aliases = aliases or {}
    numbers: dict[int, int] = {}
    words = []
    for node in walk(expr):
        numbers[id(node)] = len(numbers)
        words.append(type(node).__name__)
        for field in fields(node):
            words.append(_word(getattr(node, field.name), numbers, aliases))
    return " ".join(words)


def _word(
    value: Any, numbers: dict[int, int], aliases: Mapping[BufferKey, BufferKey]
) -> str:
    if isinstance(value, Expr):
        return f"#{numbers[id(value)]}"
    if isinstance(value, Buffer):
        return str(aliases.get(value.key, value.key))
    if isinstance(value, tuple):
        return f"({' '.join(_word(item, numbers, aliases) for item in value)})"
    if is_dataclass(value):
        parts = (getattr(value, field.name) for field in fields(value))
        return f"[{' '.join(_word(part, numbers, aliases) for part in parts)}]"
    return repr(value)


# ---- memory allocation by lifetimes --------------------------------------------------

T = TypeVar("T", bound=Hashable)


def packed(
    lives: Mapping[T, tuple[int, int]], sizes: Mapping[T, int]
) -> tuple[dict[T, int], int]:
    """Return offsets for items with these lifetimes and sizes, and the total size.

    Items whose lifetimes do not overlap may share memory. The largest are placed first.

    >>> packed({"a": (0, 1), "b": (1, 2), "c": (2, 3)}, {"a": 8, "b": 4, "c": 8})
    ({'a': 0, 'c': 0, 'b': 8}, 12)
    """
    offsets: dict[T, int] = {}
    taken = _Taken() if len(lives) < MANY_ARRAYS else _ManyTaken(len(lives))
    for key in sorted(lives, key=lambda key: (-sizes[key], lives[key])):
        offsets[key] = taken.add(lives[key], sizes[key])
    return offsets, taken.end


MANY_ARRAYS = 1000  # from which on NumPy searches faster than Python


class _Taken:
    """Allocated ranges with their lifetimes, sorted by offset."""

    def __init__(self) -> None:
        # Of each range: offset, end, first and last time.
        self._taken: list[tuple[int, int, int, int]] = []
        self.end = 0

    def add(self, life: tuple[int, int], size: int) -> int:
        """Allocate the lowest range that is free throughout; return its offset."""
        begin, end = life
        at = 0
        for start, stop, first, last in self._taken:
            if first <= end and begin <= last:
                if start - at >= size:
                    break
                if stop > at:  # `max` would take as long as all of the rest
                    at = stop
        insort(self._taken, (at, at + size, begin, end))
        self.end = max(self.end, at + size)
        return at


class _ManyTaken(_Taken):
    """The same in NumPy, for networks with thousands of live arrays."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        # Rows: offset, end, first and last time.
        self._rows = np.empty((4, capacity), np.int64)
        self._count = 0

    def add(self, life: tuple[int, int], size: int) -> int:
        starts, ends, first, last = self._rows[:, : self._count]
        overlaps = (first <= life[1]) & (life[0] <= last)
        at = _first_gap(starts[overlaps], ends[overlaps], size)
        where = int(np.searchsorted(starts, at))
        self._rows[:, where + 1 : self._count + 1] = self._rows[:, where : self._count]
        self._rows[:, where] = at, at + size, *life
        self._count += 1
        self.end = max(self.end, at + size)
        return at


def _first_gap(starts: np.ndarray, ends: np.ndarray, size: int) -> int:
    """Return the lowest offset with so much free space; `starts` are sorted."""
    free = np.maximum.accumulate(np.concatenate(([0], ends)))
    fits = np.flatnonzero(starts - free[:-1] >= size)
    return int(free[fits[0]] if len(fits) else free[-1])


def rounded(size: int, unit: int) -> int:
    """Return a size rounded up to a multiple of a unit, at least one unit."""
    return -(-max(size, 1) // unit) * unit
