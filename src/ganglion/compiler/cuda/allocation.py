"""Where what kernels make is kept: nowhere, with a block, or in the arena."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from ganglion.compiler.cuda.epilogue import Root, is_producer
from ganglion.compiler.cuda.launches import Launch, fused_kernels_of
from ganglion.compiler.cuda.row_fusion import row_sizes, whole_rows
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.memory import packed, rounded

ALIGNMENT = 256  # bytes


def drop_unread_stores(launches: list[Launch]) -> None:
    """Do not store what only epilogues of the same fused kernel read."""
    readers: dict[Root, set[int]] = defaultdict(set)
    for _, fused in fused_kernels_of(launches):
        for one in {root(b) for k in fused.kernels for b in k.reads()}:
            readers[one].add(id(fused))
    for _, fused in fused_kernels_of(launches):
        for kernel in fused.kernels:
            for one in {root(b) for b in kernel.writes() if b.kind == "arena"}:
                if not readers[one] - {id(fused)} and is_producer(fused.kernel):
                    fused.unstored.add(one)


def stage_rows(launches: list[Launch], kept: Collection[Root]) -> None:
    """Keep in shared memory what row-wise partitions compute and read again.

    Arrays that nobody else reads are private, and are never in global memory; others
    are written back, too. Of each, the elements of a row are known.
    """
    users: dict[Root, set[int]] = defaultdict(set)
    writers: dict[Root, set[int]] = defaultdict(set)
    partitions = [partition for launch in launches for partition in launch.partitions]
    for partition in partitions:
        for fused in partition.fused_kernels:
            for one in (fused.reads() | fused.writes()) - fused.unstored:
                users[one].add(id(partition))
            for one in fused.writes():
                writers[one].add(id(partition))
    for partition in (one for one in partitions if one.row_wise):
        sizes = row_sizes(partition.kernels)
        arena = {one: sizes[one] for one in sizes if one[0] == "arena"}
        whole = whole_rows(partition.kernels)
        for one, size in arena.items():
            if users[one] == {id(partition)} and one not in kept:
                partition.private[one] = size
            elif (
                one in whole
                and writers[one] == {id(partition)}
                and partition.goes_on(one)
            ):
                partition.written_back[one] = size


def place(launches: Sequence[Launch], kept: set[Root]) -> tuple[dict[Root, int], int]:
    """Give each temporary buffer a place for as long as it lives; return the size."""
    lives: dict[Root, tuple[int, int]] = {}
    sizes: dict[Root, int] = {}
    partitions = [partition for launch in launches for partition in launch.partitions]
    nowhere = kept.union(*(partition.private for partition in partitions))
    for number, fused in fused_kernels_of(launches):
        for one in _temporary(fused.buffers()):
            if root(one) in nowhere or root(one) in fused.unstored:
                continue
            first, _ = lives.get(root(one), (number, number))
            lives[root(one)] = (first, number)
            sizes[root(one)] = rounded(one.nbytes, ALIGNMENT)
    return packed(lives, sizes)


def _temporary(buffers: Iterable[Buffer]) -> Iterable[Buffer]:
    return (one for one in buffers if one.kind == "arena")
