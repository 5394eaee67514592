"""Where results are: nowhere, in shared memory, in the arena, or in the workspace.

Also what fused kernels need to know of it: which arrays are rounded, and which can be
fetched while the launch before still runs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from ganglion.compiler.cuda.fusion import is_map, is_producer, row_sizes, whole_rows
from ganglion.compiler.cuda.launches import (
    NEXT,
    Schedule,
    fused_kernels_of,
    lifetimes,
    partitions_of,
    without,
    written_before,
)
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import Contract, Kernel, Load, Loop
from ganglion.compiler.plan.plan import packed, rounded

ALIGNMENT = 256  # bytes


def drop_unread_stores(schedule: Schedule) -> Schedule:
    """Do not store what only epilogues of the same fused kernel read."""
    readers: dict[BufferKey, set[int]] = defaultdict(set)
    for _, fused in fused_kernels_of(schedule.every):
        for key in fused.reads():
            readers[key].add(id(fused))
    for _, fused in fused_kernels_of(schedule.every):
        if is_producer(fused.kernel):
            written = {key for key in fused.writes() if key[0] == "arena"}
            fused.unstored |= {k for k in written if not readers[k] - {id(fused)}}
    return replace(schedule)


def stage_rows(schedule: Schedule) -> Schedule:
    """Keep in shared memory what row-wise partitions compute and read again.

    Arrays that no other reads are private, and are never in global memory; others
    are written back, too.
    """
    users: dict[BufferKey, set[int]] = defaultdict(set)
    writers: dict[BufferKey, set[int]] = defaultdict(set)
    partitions = list(partitions_of(schedule.every))
    for partition in partitions:
        for fused in partition.fused_kernels:
            for key in (fused.reads() | fused.writes()) - fused.unstored:
                users[key].add(id(partition))
            for key in fused.writes():
                writers[key].add(id(partition))
    persistent = schedule.step.persistent
    for partition in (partition for partition in partitions if partition.row_wise):
        alone, full = {id(partition)}, whole_rows(partition.kernels)
        for key, size in row_sizes(partition.kernels, partition.rows).items():
            if key[0] != "arena":
                continue
            if users[key] == alone and key not in persistent:
                partition.private[key] = size
            elif key in full and writers[key] == alone and partition.reads_again(key):
                partition.written_back[key] = size
    return replace(schedule)


def round_stores(schedule: Schedule) -> Schedule:
    """Store what only products read, or plain sums, rounded as tensor cores take it."""
    launches = [*schedule.once, *schedule.first, *schedule.every]
    exact: set[BufferKey] = set()
    operands: set[BufferKey] = set()
    for _, fused in fused_kernels_of(launches):
        for kernel in fused.kernels:
            if isinstance(kernel, Contract):
                operands |= {b.key for b in kernel.reads() if b.dtype == np.float32}
                continue
            if not _is_plain_sum(kernel):
                exact |= {b.key for b in kernel.reads() if b.kind == "arena"}
            if not is_map(kernel):
                exact |= {b.key for b in kernel.writes()}
    names = [name for kind, name in operands - exact if kind == "arena"]
    keys = frozenset((kind, name) for name in names for kind in ("arena", NEXT))
    for _, fused in fused_kernels_of(launches):
        fused.rounded = keys
    return replace(schedule)


def _is_plain_sum(kernel: Kernel) -> bool:
    return (
        isinstance(kernel, Loop)
        and kernel.how == "sum"
        and all(isinstance(expr, Load) for expr, _ in kernel.outputs)
    )


def mark_ready(schedule: Schedule) -> Schedule:
    """Set what fused kernels read that the launch before theirs does not write.

    A launch starts when the one before it is under way, so that the one before that has
    ended. Before the first of a program may be any launch of another one.
    """
    before = written_before(schedule)
    for launch in schedule.every:
        for fused in launch.fused_kernels:
            if before is not None:
                fused.ready = frozenset(fused.reads() - before)
        before = launch.writes()
    return replace(schedule)


def end_run(schedule: Schedule) -> Schedule:
    """Make the launches of a run's last step, where steps prepare the next one.

    It makes what no step will read, but does not count for a next one. What would read
    other results of the kernels that count is left out with them.
    """
    if not schedule.first:
        return schedule
    left_out: list[Kernel] = []
    missing: set[BufferKey] = set()
    for kernel in schedule.step.for_next:
        counts = any(buffer.kind == "state" for buffer in kernel.writes())
        if counts or not missing.isdisjoint(b.key for b in kernel.reads()):
            left_out.append(kernel)
            missing |= {b.key for b in kernel.writes() if b.kind in ("arena", NEXT)}
    return replace(schedule, last=without(schedule.every, left_out))


def allocate(schedule: Schedule) -> Schedule:
    """Give temporary arrays memory while they live, and persistent ones forever."""
    workspace: dict[BufferKey, int] = {}
    end = 0
    persistent = schedule.step.persistent
    launches = [*schedule.once, *schedule.first, *schedule.every]
    for _, fused in fused_kernels_of(launches):
        for buffer in fused.buffers():
            key = buffer.key
            if (key in persistent or buffer.kind == NEXT) and key not in workspace:
                workspace[key] = end
                end += rounded(buffer.nbytes, ALIGNMENT)
    lives, sizes = lifetimes(schedule)
    rounded_sizes = {key: rounded(size, ALIGNMENT) for key, size in sizes.items()}
    offsets, arena = packed(lives, rounded_sizes)
    return replace(
        schedule,
        offsets=offsets,
        arena=arena,
        workspace=workspace,
        workspace_bytes=end,
    )
