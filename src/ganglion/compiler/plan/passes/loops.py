"""Loop transformations: collapsing axes, and fusing loops over the same points."""

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
# Unit axes are dropped, and adjacent axes that are contiguous in all arrays are merged.


# Moved expressions, by the axes that remain: loops may share expressions.
_Moved = dict[tuple[int, ...], dict[Expr, Expr]]


def collapse_all(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return equivalent kernels with as few axes as possible."""
    moved: _Moved = {}
    return [collapse(kernel, moved) for kernel in kernels]


def collapse(kernel: Kernel, moved: _Moved | None = None) -> Kernel:
    """Return an equivalent kernel with as few axes as possible."""
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
    moved_to = {} if moved is None else moved.setdefault(axes, {})
    return kernel.with_axes(shape, len(groups) - len(outer), targets, move, moved_to)


def _collapse_contract(kernel: Contract) -> Contract:
    axes = kernel.batch, kernel.rows, kernel.inner
    batch, rows, inner = map(_merged, axes)
    if (batch, rows, inner) == axes:
        return kernel
    return replace(kernel, batch=batch, rows=rows, inner=inner)


def _merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Merge adjacent axes that are contiguous in all three arrays."""
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


LONG_ROW = 16  # elements of a row axis that fill vectors as columns


def rows_as_columns(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels in which products of a single column are transposed."""
    return [
        _transposed(k) if isinstance(k, Contract) and _has_one_column(k) else k
        for k in kernels
    ]


def _has_one_column(kernel: Contract) -> bool:
    """Return whether a product has a single column, and rows that are contiguous."""
    row = kernel.rows[-1]
    return (
        all(axis.size == 1 for axis in kernel.columns)
        and kernel.packed is None
        and row.left == row.out == 1
        and row.right == 0
        and row.size >= LONG_ROW
    )


def _transposed(kernel: Contract) -> Contract:
    """Swap the operands; all row axes but the last become batch axes."""

    def swapped(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(axis, left=axis.right, right=axis.left) for axis in axes)

    *before, columns = swapped(kernel.rows)
    return replace(
        kernel,
        batch=(*swapped(kernel.batch), *before),
        rows=swapped(kernel.columns),
        columns=(columns,),
        inner=swapped(kernel.inner),
        left=kernel.right,
        right=kernel.left,
    )


def _groups(kernel: Loop) -> list[list[int]]:
    """Return groups of axes that merge, without unit axes."""
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
        groups.append([len(kernel.shape) - 1])  # a reduction keeps at least an axis
    return groups


def _all_strides(kernel: Loop) -> set[Shape]:
    """Return the distinct strides of all views of a loop."""
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
# A loop can be fused with an earlier one if it can be moved up there: no kernel between
# them writes what it reads. Where it reads an element that the earlier loop stores at
# the same point, the value is forwarded.

LOOK_BACK = 60  # kernels
SMALL_LOOP = 4096  # points: the call of a smaller kernel costs more than its work


def fuse(kernels: Sequence[Kernel], large_loop: float = math.inf) -> list[Kernel]:
    """Return kernels with loops fused where that is safe and pays.

    Sharing a single number, such as a learning rate, does not pay for loops of
    `large_loop` points or more: updates of equal layers remain separate, each behind
    the product that computes its gradient.
    """
    loops = _FusedLoops(large_loop)
    for kernel in kernels:
        loops.add(kernel)
    return _without_unread([entry.kernel for entry in loops.entries])


class _Entry(NamedTuple):
    """A kernel, with cached sets of the memory it reads and writes."""

    kernel: Kernel
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]
    touched: frozenset[Buffer]  # the union of these
    form: tuple[object, ...] | None  # equal for loops that may be fused; None for never

    def joined(self, later: _Entry) -> _Entry:
        """Return the fused loop; it does not read what it forwards."""
        assert isinstance(self.kernel, Loop)
        assert isinstance(later.kernel, Loop)
        reads = self.reads | (later.reads - self.writes)
        writes = self.writes | later.writes
        fused = _fused(self.kernel, later.kernel)
        return _Entry(fused, reads, writes, reads | writes, self.form)


def _form(kernel: Kernel) -> tuple[object, ...] | None:
    """Return what loops must have in common to be fused, None if a kernel cannot be."""
    if not isinstance(kernel, Loop) or kernel.adds or kernel.how not in ("", "sum"):
        return None
    order = tuple(stride == 1 for stride in kernel.target.strides)  # of the axes
    return kernel.shape, kernel.reduced, kernel.how, order


class _FusedLoops:
    """The kernels so far, and the candidates for fusion with a further loop."""

    def __init__(self, large_loop: float) -> None:
        self.entries: list[_Entry] = []
        self._large_loop = large_loop
        # Loops by form, and the last kernels to touch each buffer, so that a kernel is
        # not compared with all kernels before it.
        self._by_form: dict[tuple[object, ...], list[int]] = {}
        self._last_reader: dict[Buffer, int] = {}
        self._last_writer: dict[Buffer, int] = {}

    def add(self, kernel: Kernel) -> None:
        """Fuse a kernel with the loop that gains most by it, or append it."""
        reads, writes = kernel.memory_read, kernel.memory_written
        entry = _Entry(kernel, reads, writes, reads | writes, _form(kernel))
        number = self._best_partner(entry, entry.form) if entry.form else None
        if number is None:
            number = len(self.entries)
            self.entries.append(entry)
            if entry.form is not None:
                self._by_form.setdefault(entry.form, []).append(number)
        else:
            reads -= self.entries[number].writes  # values that are forwarded
            self.entries[number] = self.entries[number].joined(entry)
        for last, memory in ((self._last_reader, reads), (self._last_writer, writes)):
            for buffer in memory:
                if last.get(buffer, -1) < number:
                    last[buffer] = number

    def _best_partner(self, joining: _Entry, form: tuple[object, ...]) -> int | None:
        """Return the earlier loop that it pays most to fuse with, None for none.

        Large loops gain by sharing loads; small ones also by saving a call.
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
        """Return the first kernel that a loop may be moved up to."""
        written, read = self._last_writer.get, self._last_reader.get
        first = max(
            0,
            len(self.entries) - LOOK_BACK + 1,
            *[written(buffer, 0) for buffer in joining.reads],
            *[read(buffer, 0) for buffer in joining.writes],
        )
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
    """Return whether two kernels store disjoint elements of the same buffers."""
    if not isinstance(earlier, Loop):
        return False
    return all(
        a.buffer.root is not b.buffer.root or _apart(a, b, loop.outer)
        for _, a in earlier.outputs
        for _, b in loop.outputs
    )


def _apart(a: View, b: View, shape: tuple[int, ...]) -> bool:
    """Return whether two views are disjoint columns of the same rows, as gates are."""
    if a.strides != b.strides or len(shape) < 2:
        return False
    step, *strides = a.strides
    span = sum(abs(s) * (n - 1) for s, n in zip(strides, shape[1:], strict=True))
    return span < abs(a.offset - b.offset) < step - span


def _can_forward(entry: _Entry, joining: _Entry) -> bool:
    """Return whether a loop reads an earlier loop's results at the same point only."""
    earlier, loop = entry.kernel, joining.kernel
    assert isinstance(earlier, Loop)
    assert isinstance(loop, Loop)
    if len(earlier.outputs) + len(loop.outputs) > MAX_OUTPUTS:
        return False
    for root in entry.writes & joining.reads:
        (view, *others) = _stored(earlier, root)
        if loop.reduced or others or not _reads_in_place(loop, root, view):
            return False
    # The loop must not overwrite what the earlier one reads at another point.
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
    """Return whether a loop reads some memory by loads of the same view only."""
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
    """Replace loads of an earlier loop's results by the expressions stored."""

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
