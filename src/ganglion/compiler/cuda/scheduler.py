"""Which kernels are launched together, and where their results are stored.

Results are in registers, in shared memory, in the arena or in the workspace. Fused
kernels also record which arrays are rounded, and which can be loaded while the previous
launch still runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ganglion.compiler.cuda.fusion import (
    FusedKernel,
    can_fuse_column_sum,
    can_fuse_epilogue,
    can_fuse_partial_column_sum,
    can_fuse_rows,
    first_row_counts,
    is_producer,
    is_sign_test,
    row_counts,
    row_sizes,
    whole_rows,
)
from ganglion.compiler.cuda.launches import (
    ALIGNMENT,
    NEXT,
    SHARED_ALIGNMENT,
    Launch,
    Partition,
    Priority,
    Schedule,
    StepKernels,
    fused_kernels_of,
    lifetimes,
    partitions_of,
    without,
    written_before,
)
from ganglion.compiler.cuda.one_block import prefetched_batch
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.plan.epilogues import is_flat, is_map
from ganglion.compiler.plan.kernels import BufferKey, Contract, Kernel, Load, Loop
from ganglion.compiler.plan.plan import packed, read_by, rounded, written_by


def is_small(kernel: Kernel) -> bool:
    """Return whether a single block suffices for a kernel."""
    if not isinstance(kernel, Loop) or kernel.adds:
        return False
    return _elements(kernel) <= TUNING.one_block_elements


def _elements(kernel: Kernel) -> int:
    """Return the number of points of a loop, 0 for other kernels."""
    return math.prod(kernel.shape) if isinstance(kernel, Loop) else 0


class _LastUses:
    """The last fused kernels that used each array."""

    def __init__(self) -> None:
        self._writers: dict[BufferKey, list[FusedKernel]] = defaultdict(list)
        self._readers: dict[BufferKey, list[FusedKernel]] = defaultdict(list)

    def needs(self, kernel: Kernel) -> list[FusedKernel]:
        """Return the fused kernels that must precede a kernel."""
        reads = dict.fromkeys(b.key for b in kernel.reads())
        writes = dict.fromkeys(b.key for b in kernel.writes())
        users = [fused for key in reads | writes for fused in self._writers[key]]
        users += [fused for key in writes for fused in self._readers[key]]
        # Sorted, for the same order in every process.
        return list({id(fused): fused for fused in users}.values())

    def note(self, kernel: Kernel, fused: FusedKernel) -> None:
        """Add a kernel; those before it are ordered through it from now on."""
        for key in {b.key for b in kernel.writes()}:
            self._writers[key] = [fused]
            self._readers[key] = []
        for key in {b.key for b in kernel.reads()}:
            self._readers[key].append(fused)


class Scheduler:
    """Assigns kernels to launches, each as early as its dependencies allow.

    With `in_order`, for a resident block, each kernel has a launch of its own.
    """

    def __init__(self, in_order: bool = False) -> None:
        self.launches: list[Launch] = []
        self._in_order = in_order
        self._uses = _LastUses()
        self._partition_of: dict[int, Partition] = {}

    def add(self, kernel: Kernel, priority: Priority) -> None:
        """Add a kernel to a launch."""
        needs = self._uses.needs(kernel)
        scatters = priority is Priority.PREFETCH and self._scatters(kernel, needs)
        fused = None if scatters else self._fuse_epilogue(kernel, needs, priority)
        if fused is None:
            fused = FusedKernel(kernel)
            if self._in_order:
                partition = self._new_partition(fused, True, len(self.launches))
                self._partition_of[id(fused)] = partition
            else:
                self._place_in_launch(fused, needs, priority)
        self._uses.note(kernel, fused)

    def _fuse_epilogue(
        self, kernel: Kernel, needs: list[FusedKernel], priority: Priority
    ) -> FusedKernel | None:
        """Fuse a loop as an epilogue of what it reads, if no dependency prevents it."""
        if not isinstance(kernel, Loop):
            return None
        for producer in sorted(needs, key=self._launch_of, reverse=True):
            others = [need for need in needs if need is not producer]
            if not _reads_from(kernel, producer):
                continue
            if not all(self._before(other, producer) for other in others):
                continue
            taken = is_producer(producer.kernel) and can_fuse_epilogue(producer, kernel)
            if taken and self._fits_rows(kernel, producer):
                producer.epilogues.append(kernel)
                return producer
            if self._in_order:
                continue
            # The last block ends a column sum: only critical kernels may wait for it.
            if priority is Priority.CRITICAL and _fuse_column_sum(kernel, producer):
                return producer
            partial = can_fuse_partial_column_sum(producer, kernel)
            if partial and self._has_all_rows(producer):
                producer.add_column_sum(kernel)
                return producer
        return None

    def _fits_rows(self, epilogue: Kernel, producer: FusedKernel) -> bool:
        """Return whether an epilogue keeps its partition row-wise, if it has to be."""
        partition = self._partition_of[id(producer)]
        counts = common_row_counts(partition, epilogue)
        if partition.row_wise and not counts:
            return False
        partition.row_counts = counts
        return True

    def _has_all_rows(self, producer: FusedKernel) -> bool:
        """Return whether a fused kernel can have blocks without rows; make it so.

        Column sums add up parts that need not be the rows of a block.
        """
        partition = self._partition_of[id(producer)]
        if partition.row_wise:
            return False
        partition.row_counts = frozenset()
        return True

    def _launch_of(self, fused: FusedKernel) -> int:
        return self._partition_of[id(fused)].launch

    def _before(self, fused: FusedKernel, other: FusedKernel) -> bool:
        mine, theirs = self._partition_of[id(fused)], self._partition_of[id(other)]
        if mine is theirs:
            return mine.index(fused) < mine.index(other)
        return mine.launch < theirs.launch

    def _place_in_launch(
        self, fused: FusedKernel, needs: list[FusedKernel], priority: Priority
    ) -> None:
        last = max((self._launch_of(need) for need in needs), default=-1)
        small = is_small(fused.kernel)
        # Prefetched sums must be those of the first step: in a launch of their own.
        row_wise = priority is not Priority.PREFETCH or is_map(fused.kernel)
        needed = (self._partition_of[id(need)] for need in needs)
        latest = {
            id(partition): partition for partition in needed if partition.launch == last
        }
        partitions = list(latest.values())
        length = sum(len(partition.fused_kernels) for partition in partitions)
        follows = (
            small and partitions and all(partition.small for partition in partitions)
        )
        follows = follows and not any(partition.row_wise for partition in partitions)
        # A chain of deferred kernels would only make a launch longer.
        may = priority is Priority.CRITICAL or last + 1 >= len(self.launches)
        may = may and length < TUNING.longest_partition
        counts = frozenset[int]()
        if may and row_wise and len(partitions) == 1:
            counts = common_row_counts(partitions[0], fused.kernel)
        if counts:
            partition = partitions[0]
            partition.fused_kernels.append(fused)
            partition.row_counts = counts
        elif may and follows:
            partition = self._merged(partitions)
            partition.fused_kernels.append(fused)
            partition.row_counts = frozenset()
        else:
            large = _elements(fused.kernel) >= TUNING.own_launch_elements
            waits = large or (priority is not Priority.CRITICAL and not small)
            launch = self._launch_without_products(last + 1) if waits else last + 1
            if launch == len(self.launches) and priority is not Priority.CRITICAL:
                launch = last + 1  # beside others rather than alone
            partition = self._new_partition(fused, small, launch)
            partition.priority = priority
            if row_wise:
                partition.row_counts = first_row_counts(fused.kernel)
        self._partition_of[id(fused)] = partition

    def _scatters(self, kernel: Kernel, needs: list[FusedKernel]) -> bool:
        """Return whether a kernel scatters, and so has a launch."""
        last = max(map(self._launch_of, needs), default=-1)
        return (
            isinstance(kernel, Loop)
            and not all(is_flat(view, kernel.outer) for _, view in kernel.outputs)
            and last + 1 < len(self.launches)
        )

    def _launch_without_products(self, launch: int) -> int:
        """Return the next launch without products.

        Their shared memory would leave few blocks of other kernels at a time.
        """
        while launch < len(self.launches) and self._has_products(launch):
            launch += 1
        return launch

    def _has_products(self, launch: int) -> bool:
        return self.launches[launch].products > 0

    def _merged(self, partitions: list[Partition]) -> Partition:
        first, *others = partitions
        launch = self.launches[first.launch]
        for other in others:
            first.fused_kernels += other.fused_kernels
            launch.partitions.remove(other)
            for fused in other.fused_kernels:
                self._partition_of[id(fused)] = first
        return first

    def _new_partition(self, fused: FusedKernel, small: bool, launch: int) -> Partition:
        while len(self.launches) <= launch:
            self.launches.append(Launch())
        partition = Partition([fused], small, launch)
        self.launches[launch].partitions.append(partition)
        return partition


def common_row_counts(partition: Partition, kernel: Kernel) -> frozenset[int]:
    """Return over how many rows a kernel may join a row-wise partition."""
    kernels = [*partition.kernels, kernel]
    counts = partition.row_counts & row_counts(kernel)
    return frozenset(count for count in counts if can_fuse_rows(kernels, count))


def _reads_from(kernel: Kernel, fused: FusedKernel) -> bool:
    return not read_by([kernel]).isdisjoint(written_by(fused.kernels))


def _fuse_column_sum(kernel: Loop, producer: FusedKernel) -> bool:
    """Fuse a column sum into its producer, or an epilogue into a column sum."""
    if can_fuse_column_sum(producer, kernel):
        producer.add_column_sum(kernel)
        return True
    if is_map(producer.kernel):
        return False  # its sums are partial, and only stored
    reads, writes = read_by([kernel]), written_by([kernel])
    for column_sum in producer.column_sums:
        # Blocks with other columns may still be running.
        still = producer.writes() - column_sum.writes()
        apart = not (reads & still or writes & producer.reads())
        continues = apart and _reads_from(kernel, column_sum)
        if continues and can_fuse_epilogue(column_sum, kernel, TUNING.most_stored):
            column_sum.epilogues.append(kernel)
            return True
    return False


def launches_of(
    kernels: Sequence[Kernel], prefetched: Sequence[Kernel] = ()
) -> list[Launch]:
    """Return the launches of critical and of deferred kernels."""
    scheduler = Scheduler()
    critical, deferred = by_priority(kernels)
    for priority, group in (
        (Priority.CRITICAL, critical),
        (Priority.DEFERRED, deferred),
        (Priority.PREFETCH, prefetched),
    ):
        for kernel in group:
            scheduler.add(kernel, priority)
    return scheduler.launches


def _of_one_block(kernels: Sequence[Kernel]) -> list[Launch]:
    """Return kernels with their epilogues, and independent kernels side by side.

    Scalars are computed right before their use: most are for the next step.
    """
    scheduler = Scheduler(in_order=True)
    for kernel in kernels:
        scheduler.add(kernel, Priority.CRITICAL)
    every = [fused for _, fused in fused_kernels_of(scheduler.launches)]
    uses, needs, numbers = _LastUses(), dict[int, list[int]](), dict[int, int]()
    for fused in every:
        needed = [need for kernel in fused.kernels for need in uses.needs(kernel)]
        needs[id(fused)] = [id(need) for need in needed]
        numbers[id(fused)] = max((numbers[id(n)] + 1 for n in needed), default=0)
        for kernel in fused.kernels:
            uses.note(kernel, fused)
    count = max(numbers.values(), default=-1) + 1
    latest = dict.fromkeys(numbers, count - 1)
    launches = [Launch() for _ in range(count)]
    for fused in reversed(every):
        if all(buffer.size == 1 for k in fused.kernels for buffer in k.writes()):
            numbers[id(fused)] = latest[id(fused)]
        number = numbers[id(fused)]
        for need in needs[id(fused)]:
            latest[need] = min(latest[need], number - 1)
        launches[number].partitions.append(Partition([fused], True, number))
    for launch in launches:  # sums first: all warps reach the barrier at once
        launch.partitions.sort(key=lambda p: not _is_reduction(p.kernels[0]))
    return launches


def _is_reduction(kernel: Kernel) -> bool:
    return isinstance(kernel, Loop) and kernel.reduced > 0


def schedule(step: StepKernels) -> Schedule:
    """Assign the kernels of a step to launches, in order."""
    if step.resident:
        once, every = launches_of(step.once), _of_one_block(step.every)
        return Schedule(step, once, first=[], every=every)
    return Schedule(
        step,
        once=launches_of(step.once),
        first=launches_of((), step.prefetched),
        every=launches_of(step.every, step.for_next),
    )


def by_priority(kernels: Sequence[Kernel]) -> tuple[list[Kernel], list[Kernel]]:
    """Return the critical kernels, on which products depend, and the deferred ones.

    Deferred kernels do not conflict with critical ones that follow them.
    """
    critical: list[Kernel] = []
    deferred: list[Kernel] = []
    read: set[BufferKey] = set()  # by critical kernels that follow
    written: set[BufferKey] = set()
    for kernel in reversed(kernels):
        reads, writes = read_by([kernel]), written_by([kernel])
        waited_for = writes & read or (reads | writes) & written
        if not isinstance(kernel, Contract) and not waited_for:
            deferred.append(kernel)
            continue
        critical.append(kernel)
        read |= reads
        written |= writes
    return critical[::-1], deferred[::-1]


# ---- where results are stored ------------------------------------------------------


def drop_unread_stores(schedule: Schedule) -> Schedule:
    """Drop stores of results that only epilogues of the same fused kernel read."""
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
    """Keep arrays that a row-wise partition computes and reads in shared memory.

    Arrays that no other partition reads are private, and never in global memory; the
    others are also written back.
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
    """Round operands of products, and of plain sums, to TF32 where they are stored."""
    launches = [*schedule.once, *schedule.first, *schedule.every]
    exact: set[BufferKey] = set()
    operands: set[BufferKey] = set()
    for _, fused in fused_kernels_of(launches):
        for kernel in fused.kernels:
            if isinstance(kernel, Contract):
                operands |= {b.key for b in kernel.reads() if b.dtype == np.float32}
                continue
            if not _is_plain_sum(kernel):
                exact |= {key for key in _read_exactly(kernel) if key[0] == "arena"}
            if not is_map(kernel):
                exact |= {b.key for b in kernel.writes()}
    names = [name for kind, name in operands - exact if kind == "arena"]
    keys = frozenset((kind, name) for name in names for kind in ("arena", NEXT))
    for _, fused in fused_kernels_of(launches):
        fused.rounded = keys
    return replace(schedule)


def _read_exactly(kernel: Kernel) -> set[BufferKey]:
    """Return what a kernel reads, except for comparisons with zero."""
    if not isinstance(kernel, Loop):
        return read_by([kernel])
    exact = set(kernel.exprs)
    for expr in kernel.every_expr:
        if not is_sign_test(expr):
            exact |= set(expr.children)
    return {buffer.key for expr in exact for buffer in expr.reads()}


def _is_plain_sum(kernel: Kernel) -> bool:
    return (
        isinstance(kernel, Loop)
        and kernel.how == "sum"
        and all(isinstance(expr, Load) for expr, _ in kernel.outputs)
    )


def mark_ready(schedule: Schedule) -> Schedule:
    """Record which arrays fused kernels read that the previous launch does not write.

    A launch starts while the previous one runs, when the launch before that has ended.
    Before the first launch of a program, any launch of another program may run.
    """
    before = written_before(schedule)
    for launch in schedule.every:
        for fused in launch.fused_kernels:
            if before is not None:
                fused.ready = frozenset(fused.reads() - before)
        before = launch.writes()
    return replace(schedule)


def end_run(schedule: Schedule) -> Schedule:
    """Add the launches of a run's last step, if steps prefetch for the next step.

    They compute prefetched arrays that no step will read, but do not advance cursors.
    Kernels that depend on others that are left out are left out as well.
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
    """Allocate temporary arrays by lifetime, and persistent arrays in the workspace."""
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
    for key in prefetched_batch(schedule) if schedule.step.resident else ():
        lives[key] = (0, len(schedule.every) - 1)
    alignment = SHARED_ALIGNMENT if schedule.step.resident else ALIGNMENT
    rounded_sizes = {key: rounded(size, alignment) for key, size in sizes.items()}
    offsets, arena = packed(lives, rounded_sizes)
    return replace(
        schedule,
        offsets=offsets,
        arena=arena,
        workspace=workspace,
        workspace_bytes=end,
    )
