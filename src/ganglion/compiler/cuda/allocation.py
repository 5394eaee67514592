"""Where what kernels make is kept: nowhere, with a block, or in the arena."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from ganglion.compiler.cuda.epilogue import Root, is_host
from ganglion.compiler.cuda.launches import Launch, works_of
from ganglion.compiler.cuda.row_fusion import row_sizes, whole_rows
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.memory import packed, rounded

ALIGNMENT = 256  # bytes


def drop_unread(launches: list[Launch]) -> None:
    """Do not store what only guests of the same work read."""
    readers: dict[Root, set[int]] = defaultdict(set)
    for _, work in works_of(launches):
        for one in {root(b) for k in work.kernels for b in k.reads()}:
            readers[one].add(id(work))
    for _, work in works_of(launches):
        for kernel in work.kernels:
            for one in {root(b) for b in kernel.writes() if b.kind == "arena"}:
                if not readers[one] - {id(work)} and is_host(work.kernel):
                    work.dropped.add(one)


def keep_rows(launches: list[Launch], kept: Collection[Root]) -> None:
    """Find the arrays that a lane makes and goes on with, row by row: few bytes each.

    Those that nobody else knows are private, and need no place in memory; others are
    shown to all. Of each, the elements of a row are known.
    """
    users: dict[Root, set[int]] = defaultdict(set)
    writers: dict[Root, set[int]] = defaultdict(set)
    lanes = [lane for launch in launches for lane in launch.lanes]
    for lane in lanes:
        for work in lane.works:
            for one in (work.reads() | work.writes()) - work.dropped:
                users[one].add(id(lane))
            for one in work.writes():
                writers[one].add(id(lane))
    for lane in (one for one in lanes if one.by_rows):
        sizes = row_sizes(lane.kernels)
        arena = {one: sizes[one] for one in sizes if one[0] == "arena"}
        whole = whole_rows(lane.kernels)
        for one, size in arena.items():
            if users[one] == {id(lane)} and one not in kept:
                lane.private[one] = size
            elif one in whole and writers[one] == {id(lane)} and lane.goes_on(one):
                lane.shown[one] = size


def place(launches: Sequence[Launch], kept: set[Root]) -> tuple[dict[Root, int], int]:
    """Give each temporary buffer a place for as long as it lives; return the size."""
    lives: dict[Root, tuple[int, int]] = {}
    sizes: dict[Root, int] = {}
    lanes = [lane for launch in launches for lane in launch.lanes]
    nowhere = kept.union(*(lane.private for lane in lanes))
    for number, work in works_of(launches):
        for one in _temporary(work.buffers()):
            if root(one) in nowhere or root(one) in work.dropped:
                continue
            first, _ = lives.get(root(one), (number, number))
            lives[root(one)] = (first, number)
            sizes[root(one)] = rounded(one.nbytes, ALIGNMENT)
    return packed(lives, sizes)


def _temporary(buffers: Iterable[Buffer]) -> Iterable[Buffer]:
    return (one for one in buffers if one.kind == "arena")
