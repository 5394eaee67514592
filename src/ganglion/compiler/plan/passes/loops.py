"""Fewer and tighter loops: axes are collapsed, loops over the same points are fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ganglion.compiler.plan.kernels import (
    MAX_OUTPUTS,
    Axis,
    Buffer,
    Contract,
    Expr,
    Index,
    Indirect,
    Kernel,
    Load,
    Loop,
    Shape,
    View,
    mapped,
)

# ---- collapsing ----------------------------------------------------------------------
# Axes of one element are dropped, neighbours that run through memory as one are merged.


# What has become of expressions, by the axes that were kept: loops may share some.
_Moved = dict[tuple[int, ...], dict[Expr, Expr]]


def collapse_all(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return equal kernels with as few axes as possible."""
    known: _Moved = {}
    return [collapse(kernel, known) for kernel in kernels]


def collapse(kernel: Kernel, known: _Moved | None = None) -> Kernel:
    """Return an equal kernel with as few axes as possible."""
    if isinstance(kernel, Contract):
        return _collapse_contract(kernel)
    if not isinstance(kernel, Loop) or (len(kernel.shape) == 1 != kernel.shape[0]):
        return kernel
    groups = _groups(kernel)
    if len(groups) == len(kernel.shape):
        return kernel
    kept = len(kernel.shape) - kernel.reduced
    outer = [group for group in groups if group[0] < kept]
    axes = tuple([group[-1] for group in groups])

    def move(old: Shape, offset: int) -> tuple[Shape, int]:
        return tuple([old[axis] for axis in axes]) if old else old, offset

    def stored(view: View) -> View:
        strides = tuple([view.strides[axis] for axis in axes[: len(outer)]])
        return View(view.buffer, strides, view.offset)

    targets = [stored(view) for _, view in kernel.outputs]
    shape = tuple([math.prod([kernel.shape[a] for a in group]) for group in groups])
    moved_to = {} if known is None else known.setdefault(axes, {})
    return kernel.with_axes(shape, len(groups) - len(outer), targets, move, moved_to)


def _collapse_contract(kernel: Contract) -> Contract:
    axes = kernel.batch, kernel.rows, kernel.inner
    batch, rows, inner = map(_merged, axes)
    if (batch, rows, inner) == axes:
        return kernel
    return replace(kernel, batch=batch, rows=rows, inner=inner)


def _merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Join neighbouring axes that are one long axis in all three arrays."""
    merged: list[Axis] = []
    for axis in axes:
        last = merged[-1] if merged else None
        if axis.size == 1:
            continue
        if last is not None and all(
            getattr(last, side) == getattr(axis, side) * axis.size
            for side in ("left", "right", "out")
        ):
            merged[-1] = replace(axis, size=axis.size * last.size)
        else:
            merged.append(axis)
    return tuple(merged) or axes[-1:]


LONG_ROW = 16  # elements that are worth being columns


def rows_as_columns(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels; of products of one column the last rows become columns."""
    return [
        _transposed(k) if isinstance(k, Contract) and _has_one_column(k) else k
        for k in kernels
    ]


def _has_one_column(kernel: Contract) -> bool:
    """Return whether there is one column, and rows that lie side by side."""
    row = kernel.rows[-1]
    return (
        all(axis.size == 1 for axis in kernel.columns)
        and kernel.packed is None
        and row.left == row.out == 1
        and row.right == 0
        and row.size >= LONG_ROW
    )


def _transposed(kernel: Contract) -> Contract:
    """Exchange the operands; all rows but the last go to the batch."""

    def turned(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(axis, left=axis.right, right=axis.left) for axis in axes)

    *before, columns = turned(kernel.rows)
    return replace(
        kernel,
        batch=(*turned(kernel.batch), *before),
        rows=turned(kernel.columns),
        columns=(columns,),
        inner=turned(kernel.inner),
        left=kernel.right,
        right=kernel.left,
    )


def _groups(kernel: Loop) -> list[list[int]]:
    """Return the axes to keep, each with the neighbours that merge into it."""
    every = _all_strides(kernel)
    kept = len(kernel.shape) - kernel.reduced
    groups: list[list[int]] = []
    for axis, size in enumerate(kernel.shape):
        first_of_adding = kernel.adds and axis == 0
        if size == 1 and not first_of_adding:
            continue
        joins = (
            groups
            and (groups[-1][0] < kept) == (axis < kept)
            and not (kernel.adds and groups[-1][0] == 0)
            and all(s[groups[-1][-1]] == s[axis] * size for s in every)
        )
        if joins:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if kernel.reduced and not any(group[0] >= kept for group in groups):
        groups.append([len(kernel.shape) - 1])  # a reduction keeps an axis, if of one
    return groups


def _all_strides(kernel: Loop) -> set[Shape]:
    """Return the ways in which a loop goes through memory; most arrays share one."""
    strides = {view.strides + (0,) * kernel.reduced for _, view in kernel.outputs}
    for expr in kernel.leaves:
        if isinstance(expr, Load):
            strides.add(expr.view.strides)
        elif isinstance(expr, Index):
            strides.add(expr.strides)
        elif isinstance(expr, Indirect):
            strides.add(expr.within)
    return strides - {()}


# ---- fusion --------------------------------------------------------------------------
# A loop may join an earlier one if nothing in between writes what it reads. Where it
# reads what the earlier loop stores, at the same point, the value is forwarded.

LOOK_BACK = 60  # kernels
SMALL_LOOP = 4096  # points: below, a kernel's start costs more than its work


def fuse(kernels: Sequence[Kernel], large_loop: float = math.inf) -> list[Kernel]:
    """Return the kernels with loops joined where that is safe.

    A single number that both read, such as a learning rate, is no gain for loops of
    `large_loop` points or more: updates of equal layers stay apart, each where a
    product makes its gradient.
    """
    loops = _FusedLoops(large_loop)
    for kernel in kernels:
        loops.add(kernel)
    return _without_unread([entry.kernel for entry in loops.entries])


class _Entry(NamedTuple):
    """A kernel, and the memory it reads and writes: many later ones ask."""

    kernel: Kernel
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]
    touched: frozenset[Buffer]  # both of these
    form: tuple[object, ...] | None  # that loops share which may join, else None

    def joined(self, later: _Entry) -> _Entry:
        """Return the loop that does both; what it forwards is no longer read."""
        assert isinstance(self.kernel, Loop)
        assert isinstance(later.kernel, Loop)
        reads = self.reads | (later.reads - self.writes)
        writes = self.writes | later.writes
        fused = _fused(self.kernel, later.kernel)
        return _Entry(fused, reads, writes, reads | writes, self.form)


def _form(kernel: Kernel) -> tuple[object, ...] | None:
    """Return what two loops must have in common to be joined, None for no such loop."""
    if not isinstance(kernel, Loop) or kernel.adds or kernel.how not in ("", "sum"):
        return None
    order = tuple(stride == 1 for stride in kernel.target.strides)  # of the walk
    return kernel.shape, kernel.reduced, kernel.how, order


class _FusedLoops:
    """The kernels so far, and which of them a loop may join."""

    def __init__(self, large_loop: float) -> None:
        self.entries: list[_Entry] = []
        self._large_loop = large_loop
        # The numbers of the loops of each form, and the last to touch some memory: so
        # that a kernel need not be compared with all before it.
        self._by_form: dict[tuple[object, ...], list[int]] = {}
        self._last_reader: dict[Buffer, int] = {}
        self._last_writer: dict[Buffer, int] = {}

    def add(self, kernel: Kernel) -> None:
        """Join a kernel to the loop that it gains most by, or put it behind all."""
        reads, writes = kernel.memory_read, kernel.memory_written
        entry = _Entry(kernel, reads, writes, reads | writes, _form(kernel))
        number = self._best_partner(entry, entry.form) if entry.form else None
        if number is None:
            number = len(self.entries)
            self.entries.append(entry)
            if entry.form is not None:
                self._by_form.setdefault(entry.form, []).append(number)
        else:
            reads -= self.entries[number].writes  # those are forwarded
            self.entries[number] = self.entries[number].joined(entry)
        for last, memory in ((self._last_reader, reads), (self._last_writer, writes)):
            for buffer in memory:
                last[buffer] = max(number, last.get(buffer, 0))

    def _best_partner(self, joining: _Entry, form: tuple[object, ...]) -> int | None:
        """Return the earlier loop that one gains most by joining, None if none.

        Large loops gain by what both read; small ones by being fewer.
        """
        assert isinstance(joining.kernel, Loop)
        points = math.prod(joining.kernel.shape)
        best, most = None, 0 if points > SMALL_LOOP else -1
        least_size = 2 if points >= self._large_loop else 1
        first = self._first_candidate(joining)
        for number in reversed(self._by_form.get(form, ())):
            if number < first:
                break
            other = self.entries[number]
            shared = other.touched & joining.reads
            gain = sum([b.nbytes for b in shared if b.size >= least_size])
            if gain > most and _can_forward(other, joining):
                best, most = number, gain
        return best

    def _first_candidate(self, joining: _Entry) -> int:
        """Return the last kernel that a loop may not be moved before, or a bound."""
        first = max(0, len(self.entries) - LOOK_BACK + 1)
        for buffer in joining.reads:
            first = max(first, self._last_writer.get(buffer, 0))
        for buffer in joining.writes:
            first = max(first, self._last_reader.get(buffer, 0))
        if self._last_writer.keys().isdisjoint(joining.writes):
            return first
        assert isinstance(joining.kernel, Loop)
        for number in range(len(self.entries) - 1, first, -1):
            other = self.entries[number]
            if not other.writes.isdisjoint(joining.writes) and not _store_apart(
                other.kernel, joining.kernel
            ):
                return number
        return first


def _store_apart(earlier: Kernel, loop: Loop) -> bool:
    """Return whether what two kernels store of one buffer never meets."""
    if not isinstance(earlier, Loop):
        return False
    return all(
        a.buffer.root is not b.buffer.root or _apart(a, b, loop.outer)
        for _, a in earlier.outputs
        for _, b in loop.outputs
    )


def _apart(a: View, b: View, shape: tuple[int, ...]) -> bool:
    """Return whether two views see other columns of the same rows, as gates do."""
    if a.strides != b.strides or len(shape) < 2:
        return False
    step, *strides = a.strides
    span = sum(abs(s) * (n - 1) for s, n in zip(strides, shape[1:], strict=True))
    return span < abs(a.offset - b.offset) < step - span


def _can_forward(entry: _Entry, joining: _Entry) -> bool:
    """Return whether all that a loop reads of an earlier one is at the same point."""
    earlier, loop = entry.kernel, joining.kernel
    assert isinstance(earlier, Loop)
    assert isinstance(loop, Loop)
    if len(earlier.outputs) + len(loop.outputs) > MAX_OUTPUTS:
        return False
    for root in entry.writes & joining.reads:
        (view, *others) = _stored(earlier, root)
        if loop.reduced or others or not _reads_in_place(loop, root, view):
            return False
    # What the earlier one reads must not be overwritten at another point by the loop.
    for _, view in loop.outputs:
        root = view.buffer.root
        stored = _stored(earlier, root) if root in entry.writes else []
        if any(not _apart(view, other, loop.outer) for other in stored):
            return False
        if root in entry.reads and root.kind != "state":
            return False
        if root in entry.reads and not _reads_in_place(earlier, root, view):
            return False
    return True


def _stored(loop: Loop, root: Buffer) -> list[View]:
    """Return the views by which a loop stores into some memory."""
    return [view for _, view in loop.outputs if view.buffer.root is root]


def _reads_in_place(loop: Loop, root: Buffer, view: View) -> bool:
    """Return whether all that a loop reads of some memory is seen by this view."""
    return all(
        isinstance(expr, Load) and _same_elements(expr.view, view)
        for expr in loop.reading(root)
    )


def _same_elements(a: View, b: View) -> bool:
    return a.strides == b.strides and a.offset == b.offset


def _fused(earlier: Loop, loop: Loop) -> Loop:
    if loop.memory_read.isdisjoint(earlier.memory_written):
        return earlier.with_outputs_of(loop)
    stored = {view.buffer.root: expr for expr, view in earlier.outputs}
    joined = [(_forwarded(expr, stored), view) for expr, view in loop.outputs]
    return earlier.with_outputs_of(loop.with_outputs(tuple(joined)))


def _forwarded(expr: Expr, stored: dict[Buffer, Expr]) -> Expr:
    """Replace loads of what the earlier loop stores by the value itself."""

    def value(node: Expr) -> Expr:
        return (
            stored.get(node.view.buffer.root, node) if isinstance(node, Load) else node
        )

    return mapped(expr, value)


def _without_unread(kernels: list[Kernel]) -> list[Kernel]:
    """Drop stores into temporary buffers that are never read."""
    while True:
        read = frozenset[Buffer]().union(*(kernel.memory_read for kernel in kernels))
        remaining: list[Kernel] = []
        changed = False
        for kernel in kernels:
            if not isinstance(kernel, Loop) or kernel.adds:
                remaining.append(kernel)
                continue
            outputs = tuple(
                (expr, view)
                for expr, view in kernel.outputs
                if view.buffer.kind != "arena" or view.buffer.root in read
            )
            if len(outputs) == len(kernel.outputs):
                remaining.append(kernel)
                continue
            changed = True
            if outputs:
                remaining.append(kernel.with_outputs(outputs))
        if not changed:
            return remaining
        kernels = remaining
