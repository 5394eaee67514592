"""Fewer and tighter loops: axes are collapsed, loops over the same points are fused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ganglion.compiler.plan.kernels import (
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
    rewrite,
    walk,
)

# ---- collapsing ----------------------------------------------------------------------
# Axes of one element are dropped, neighbours that run through memory as one are merged.


def collapse(kernel: Kernel) -> Kernel:
    """Return an equal kernel with as few axes as possible."""
    if isinstance(kernel, Contract):
        return _collapse_contract(kernel)
    if not isinstance(kernel, Loop):
        return kernel
    groups = _groups(kernel)
    kept = len(kernel.shape) - kernel.reduced
    outer = [group for group in groups if group[0] < kept]

    def strides(old: Shape) -> Shape:
        return tuple(old[group[-1]] for group in groups) if old else old

    def stored(view: View) -> View:
        kept_strides = tuple(view.strides[group[-1]] for group in outer)
        return View(view.buffer, kept_strides, view.offset)

    return replace(
        kernel,
        shape=tuple(math.prod(kernel.shape[a] for a in group) for group in groups),
        outputs=tuple((rewrite(e, strides), stored(v)) for e, v in kernel.outputs),
        reduced=len(groups) - len(outer),
    )


def _collapse_contract(kernel: Contract) -> Contract:
    return replace(
        kernel,
        batch=_merged(kernel.batch),
        rows=_merged(kernel.rows),
        inner=_merged(kernel.inner),
    )


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
            and all(s[groups[-1][-1]] == s[axis] * size for s in every if s)
        )
        if joins:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if kernel.reduced and not any(group[0] >= kept for group in groups):
        groups.append([len(kernel.shape) - 1])  # a reduction keeps an axis, if of one
    return groups


def _all_strides(kernel: Loop) -> list[Shape]:
    strides: list[Shape] = []
    for expr in walk(*kernel.exprs):
        if isinstance(expr, Load):
            strides.append(expr.view.strides)
        elif isinstance(expr, Index):
            strides.append(expr.strides)
        elif isinstance(expr, Indirect):
            strides.append(expr.within)
    targets = [view.strides + (0,) * kernel.reduced for _, view in kernel.outputs]
    return [*strides, *targets]


# ---- fusion --------------------------------------------------------------------------
# A loop may join an earlier one if nothing in between writes what it reads. Where it
# reads what the earlier loop stores, at the same point, the value is forwarded.

MAX_OUTPUTS = 12  # of one loop: more would not stay in registers
LOOK_BACK = 60  # kernels
SMALL_LOOP = 4096  # points: below, a kernel's start costs more than its work


def fuse(kernels: Sequence[Kernel], large_loop: float = math.inf) -> list[Kernel]:
    """Return the kernels with loops joined where that is safe.

    A single number that both read, such as a learning rate, is no gain for loops of
    `large_loop` points or more: updates of equal layers stay apart, each where a
    product makes its gradient.
    """
    entries: list[_Entry] = []
    for kernel in kernels:
        entry = _Entry(kernel)
        number = _best_partner(entries, entry, large_loop)
        if number is None:
            entries.append(entry)
        else:
            earlier = entries[number].kernel
            assert isinstance(earlier, Loop)
            assert isinstance(kernel, Loop)
            entries[number] = _Entry(_fused(earlier, kernel))
    return _without_unread([entry.kernel for entry in entries])


class _Entry:
    """A kernel, and the memory it reads and writes: many later ones ask."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.reads = {buffer.root for buffer in kernel.reads()}
        self.writes = {buffer.root for buffer in kernel.writes()}


def _best_partner(
    entries: list[_Entry], joining: _Entry, large_loop: float
) -> int | None:
    """Return the earlier loop that a kernel gains most by joining, None if none.

    Large loops gain by what both read; small ones by being fewer.
    """
    kernel, reads, writes = joining.kernel, joining.reads, joining.writes
    if not isinstance(kernel, Loop) or not _can_join(kernel):
        return None
    points = math.prod(kernel.shape)
    best, most = None, 0 if points > SMALL_LOOP else -1
    least_size = 2 if points >= large_loop else 1
    for number in range(len(entries) - 1, max(-1, len(entries) - LOOK_BACK), -1):
        other = entries[number]
        alike = isinstance(other.kernel, Loop) and _alike(other.kernel, kernel)
        if alike and _can_forward(other, kernel):
            touched = (other.reads | other.writes) & reads
            gain = sum(b.nbytes for b in touched if b.size >= least_size)
            if gain > most:
                best, most = number, gain
        if not (other.writes.isdisjoint(reads) and other.reads.isdisjoint(writes)):
            break
        if not (other.writes.isdisjoint(writes) or _store_apart(other.kernel, kernel)):
            break
    return best


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


def _can_join(loop: Loop) -> bool:
    return not loop.adds and loop.how in ("", "sum")


def _alike(earlier: Loop, loop: Loop) -> bool:
    return (
        _can_join(earlier)
        and earlier.shape == loop.shape
        and earlier.reduced == loop.reduced
        and earlier.how == loop.how
        and len(earlier.outputs) + len(loop.outputs) <= MAX_OUTPUTS
        and _same_order(earlier.target, loop.target)
    )


def _same_order(a: View, b: View) -> bool:
    """Return whether two views are walked through in the same order."""
    return [s == 1 for s in a.strides] == [s == 1 for s in b.strides]


def _can_forward(entry: _Entry, loop: Loop) -> bool:
    """Return whether all the loop reads of an earlier one is at the same point."""
    earlier = entry.kernel
    assert isinstance(earlier, Loop)
    stored: dict[Buffer, list[View]] = {}
    for _, view in earlier.outputs:
        stored.setdefault(view.buffer.root, []).append(view)
    for expr in walk(*loop.exprs):
        for buffer in expr.reads():
            if buffer.root not in stored:
                continue
            if loop.reduced or not isinstance(expr, Load):
                return False
            (view, *others) = stored[buffer.root]
            if others or not _same_elements(expr.view, view):
                return False
    # What the earlier one reads must not be overwritten at another point by the loop.
    for _, view in loop.outputs:
        root = view.buffer.root
        if any(not _apart(view, other, loop.outer) for other in stored.get(root, ())):
            return False
        if root in entry.reads and root.kind != "state":
            return False
        if root in entry.reads and not _reads_in_place(earlier, view):
            return False
    return True


def _reads_in_place(loop: Loop, view: View) -> bool:
    """Return whether all that a loop reads of a buffer is seen by this view."""
    root = view.buffer.root
    return all(
        isinstance(expr, Load) and _same_elements(expr.view, view)
        for expr in walk(*loop.exprs)
        if root in (buffer.root for buffer in expr.reads())
    )


def _same_elements(a: View, b: View) -> bool:
    return a.strides == b.strides and a.offset == b.offset


def _fused(earlier: Loop, loop: Loop) -> Loop:
    stored = {view.buffer.root: expr for expr, view in earlier.outputs}
    joined = tuple((_forwarded(expr, stored), view) for expr, view in loop.outputs)
    return replace(earlier, outputs=(*earlier.outputs, *joined))


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
        read = Counter(b.root for kernel in kernels for b in kernel.reads())
        remaining: list[Kernel] = []
        changed = False
        for kernel in kernels:
            if not isinstance(kernel, Loop) or kernel.adds:
                remaining.append(kernel)
                continue
            outputs = tuple(
                (expr, view)
                for expr, view in kernel.outputs
                if view.buffer.kind != "arena" or read[view.buffer.root]
            )
            if len(outputs) == len(kernel.outputs):
                remaining.append(kernel)
                continue
            changed = True
            if outputs:
                remaining.append(replace(kernel, outputs=outputs))
        if not changed:
            return remaining
        kernels = remaining
