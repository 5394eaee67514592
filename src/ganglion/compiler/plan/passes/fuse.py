"""Fusion: loops over the same places become one; what only they share is not stored.

A loop may join an earlier one if nothing in between writes what it reads. Where it
reads what the earlier loop stores, at the same place, the value is handed on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ganglion.compiler.plan.kernels import (
    Buffer,
    Expr,
    Kernel,
    Load,
    Loop,
    View,
    mapped,
    walk,
)

MOST = 12  # expressions in one loop: more would not stay in registers
FARTHEST = 60  # kernels to look back over
SMALL = 4096  # places: below, a kernel's start costs more than its work
LARGE = 1 << 16  # places: on a GPU, from here on it costs nothing beside it


def fuse(kernels: Sequence[Kernel], for_gpu: bool = False) -> list[Kernel]:
    """Return the kernels with loops joined where that is safe."""
    made: list[_Known] = []
    for kernel in kernels:
        joining = _Known(kernel)
        place = _host(made, joining, for_gpu)
        if place is None:
            made.append(joining)
        else:
            host = made[place].kernel
            assert isinstance(host, Loop)
            assert isinstance(kernel, Loop)
            made[place] = _Known(_together(host, kernel))
    return _without_unread([one.kernel for one in made])


class _Known:
    """A kernel, and the memory it reads and writes: many later ones ask."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.reads = {one.root for one in kernel.reads()}
        self.writes = {one.root for one in kernel.writes()}


def _host(made: list[_Known], joining: _Known, for_gpu: bool) -> int | None:
    """Return the earlier loop that a kernel gains most by joining, None if none.

    Large loops gain by what both read; small ones by being fewer. On a GPU, a single
    number that both read, such as a learning rate, is no gain for large ones: updates
    of equal layers stay apart, each where a product makes its gradient.
    """
    kernel, reads, writes = joining.kernel, joining.reads, joining.writes
    if not isinstance(kernel, Loop) or not _joins(kernel):
        return None
    places = math.prod(kernel.shape)
    best, most = None, 0 if places > SMALL else -1
    fewest = 2 if for_gpu and places >= LARGE else 1
    for place in range(len(made) - 1, max(-1, len(made) - FARTHEST), -1):
        host, other = made[place].kernel, made[place]
        alike = isinstance(host, Loop) and _alike(host, kernel)
        if alike and _hands_on(other, kernel):
            touched = (other.reads | other.writes) & reads
            gain = sum(one.nbytes for one in touched if one.size >= fewest)
            if gain > most:
                best, most = place, gain
        if not (other.writes.isdisjoint(reads) and other.writes.isdisjoint(writes)):
            break
        if not other.reads.isdisjoint(writes):
            break
    return best


def _joins(loop: Loop) -> bool:
    return not loop.adds and loop.how in ("", "sum")


def _alike(host: Loop, loop: Loop) -> bool:
    return (
        _joins(host)
        and host.shape == loop.shape
        and host.reduced == loop.reduced
        and host.how == loop.how
        and len(host.outputs) + len(loop.outputs) <= MOST
        and _same_order(host.target, loop.target)
    )


def _same_order(a: View, b: View) -> bool:
    """Return whether two views are walked through in the same order."""
    return [s == 1 for s in a.strides] == [s == 1 for s in b.strides]


def _hands_on(known: _Known, loop: Loop) -> bool:
    """Return whether all the loop reads of the host is at the place just computed."""
    host, read_by_host = known.kernel, known.reads
    assert isinstance(host, Loop)
    stored = {v.buffer.root: v for _, v in host.outputs}
    for one in walk(*loop.exprs):
        for buffer in one.reads():
            root = buffer.root
            if root not in stored:
                continue
            if loop.reduced or not isinstance(one, Load):
                return False
            if not _same_place(one.view, stored[root]):
                return False
    # What the host reads must not be overwritten at another place by the loop.
    for _, view in loop.outputs:
        root = view.buffer.root
        if root in stored or (root in read_by_host and root.kind != "state"):
            return False
        if root in read_by_host and not _reads_in_place(host, view):
            return False
    return True


def _reads_in_place(host: Loop, view: View) -> bool:
    root = view.buffer.root
    for one in walk(*host.exprs):
        if isinstance(one, Load):
            is_read = one.view.buffer.root is root
            if is_read and not _same_place(one.view, view):
                return False
        elif root in (b.root for b in one.reads()):
            return False
    return True


def _same_place(a: View, b: View) -> bool:
    return a.strides == b.strides and a.offset == b.offset


def _together(host: Loop, loop: Loop) -> Loop:
    stored = {v.buffer.root: expr for expr, v in host.outputs}
    joined = tuple((_handed(expr, stored), view) for expr, view in loop.outputs)
    return replace(host, outputs=(*host.outputs, *joined))


def _handed(expr: Expr, stored: dict[Buffer, Expr]) -> Expr:
    """Replace loads of what the host stores by the value itself."""

    def value(one: Expr) -> Expr:
        if not isinstance(one, Load):
            return one
        return stored.get(one.view.buffer.root, one)

    return mapped(expr, value)


def _without_unread(kernels: list[Kernel]) -> list[Kernel]:
    """Drop stores into temporary buffers that nobody reads."""
    while True:
        read = Counter(b.root for kernel in kernels for b in kernel.reads())
        made: list[Kernel] = []
        for kernel in kernels:
            if not isinstance(kernel, Loop) or kernel.adds:
                made.append(kernel)
                continue
            kept = [
                (expr, view)
                for expr, view in kernel.outputs
                if view.buffer.kind != "arena" or read[view.buffer.root]
            ]
            if len(kept) == len(kernel.outputs):
                made.append(kernel)
            elif kept:
                made.append(replace(kernel, outputs=tuple(kept)))
        if len(made) == len(kernels) and all(
            a is b for a, b in zip(made, kernels, strict=True)
        ):
            return made
        kernels = made
