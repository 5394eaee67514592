"""Which kernels are launched together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence

from ganglion.compiler.cuda.allocation import drop_unread_stores, stage_rows
from ganglion.compiler.cuda.elementwise import ONE_BLOCK_ELEMENTS
from ganglion.compiler.cuda.epilogue import (
    MOST_STORED,
    FusedKernel,
    Root,
    can_fuse_column_sum,
    can_fuse_epilogue,
    can_fuse_partial_column_sum,
    is_flat,
    is_map,
    is_producer,
)
from ganglion.compiler.cuda.launches import Launch, Partition, Priority
from ganglion.compiler.cuda.passes.simplify import split_column_sums
from ganglion.compiler.cuda.row_fusion import can_fuse_rows, rows_of
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Contract, Kernel, Loop

LONGEST_PARTITION = 24
LARGE = 1 << 20  # places of a loop that needs a GPU for itself


def is_small(kernel: Kernel) -> bool:
    """Return whether one block is enough for a kernel."""
    if not isinstance(kernel, Loop) or kernel.adds:
        return False
    return _places(kernel) <= ONE_BLOCK_ELEMENTS


def _places(kernel: Loop) -> int:
    return math.prod(kernel.shape)


class _Memory:
    """Who touched what last."""

    def __init__(self) -> None:
        self._writers: dict[Root, list[FusedKernel]] = defaultdict(list)
        self._readers: dict[Root, list[FusedKernel]] = defaultdict(list)

    def needs(self, kernel: Kernel) -> list[FusedKernel]:
        """Return what must be done before a kernel."""
        found: dict[
            int, FusedKernel
        ] = {}  # in an order that is the same in every process
        reads = dict.fromkeys(root(b) for b in kernel.reads())
        writes = dict.fromkeys(root(b) for b in kernel.writes())
        for one in reads | writes:
            found |= {id(w): w for w in self._writers[one]}
        for one in writes:
            found |= {id(w): w for w in self._readers[one]}
        return list(found.values())

    def note(self, kernel: Kernel, fused: FusedKernel) -> None:
        """Remember what a kernel touches; those before it are waited for through it."""
        for one in {root(b) for b in kernel.writes()}:
            self._writers[one] = [fused]
            self._readers[one] = []
        for one in {root(b) for b in kernel.reads()}:
            self._readers[one].append(fused)


class Scheduler:
    """Puts kernels into launches, each as early as what it needs allows."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self._memory = _Memory()
        self._partition_of: dict[int, Partition] = {}

    def add(self, kernel: Kernel, priority: Priority) -> None:
        """Put a kernel into a launch."""
        needs = self._memory.needs(kernel)
        scatters = priority is Priority.PREFETCH and self._scatters(kernel, needs)
        fused = None if scatters else self._fuse_epilogue(kernel, needs, priority)
        if fused is None:
            fused = FusedKernel(kernel)
            self._put(fused, needs, priority)
        self._memory.note(kernel, fused)

    def _fuse_epilogue(
        self, kernel: Kernel, needs: list[FusedKernel], priority: Priority
    ) -> FusedKernel | None:
        """Let a loop be computed along with what it reads, if nothing else holds it."""
        if not isinstance(kernel, Loop):
            return None
        for producer in sorted(needs, key=self._launch_of, reverse=True):
            others = [one for one in needs if one is not producer]
            if not _reads_from(kernel, producer):
                continue
            if not all(self._before(one, producer) for one in others):
                continue
            taken = is_producer(producer.kernel) and can_fuse_epilogue(producer, kernel)
            if taken and self._fits_rows(kernel, producer):
                producer.epilogues.append(kernel)
                return producer
            # The last block to come ends a column sum: only what is critical may wait.
            if priority is Priority.CRITICAL and _fuse_column_sum(kernel, producer):
                return producer
            if can_fuse_partial_column_sum(producer, kernel) and self._has_all_rows(
                producer
            ):
                producer.column_sums.append(
                    FusedKernel(kernel, unstored=producer.unstored)
                )
                return producer
        return None

    def _fits_rows(self, epilogue: Kernel, producer: FusedKernel) -> bool:
        """Return whether an epilogue keeps its partition row-wise, if it must."""
        partition = self._partition_of[id(producer)]
        if partition.rows and not can_fuse_rows(partition.kernels, epilogue):
            if partition.row_wise:
                return False
            partition.rows = 0
        return True

    def _has_all_rows(self, producer: FusedKernel) -> bool:
        """Whether blocks of a fused kernel have no rows of their own; keep it so.

        Parts that are added up need not be those rows.
        """
        partition = self._partition_of[id(producer)]
        if partition.row_wise:
            return False
        partition.rows = 0
        return True

    def _launch_of(self, fused: FusedKernel) -> int:
        return self._partition_of[id(fused)].launch

    def _before(self, one: FusedKernel, other: FusedKernel) -> bool:
        mine, theirs = self._partition_of[id(one)], self._partition_of[id(other)]
        if mine is theirs:
            return mine.index(one) < mine.index(other)
        return mine.launch < theirs.launch

    def _put(
        self, fused: FusedKernel, needs: list[FusedKernel], priority: Priority
    ) -> None:
        last = max((self._launch_of(one) for one in needs), default=-1)
        small = is_small(fused.kernel)
        # Sums for a next step are taken as those for the first, in other company.
        row_wise = priority is not Priority.PREFETCH or is_map(fused.kernel)
        latest = [
            self._partition_of[id(w)] for w in needs if self._launch_of(w) == last
        ]
        partitions = list({id(one): one for one in latest}.values())
        length = sum(len(one.fused_kernels) for one in partitions)
        follows = small and partitions and all(one.small for one in partitions)
        follows = follows and not any(one.row_wise for one in partitions)
        # Without hurry, one after the other would only make a launch longer.
        may = priority is Priority.CRITICAL or last + 1 >= len(self.launches)
        may = may and length < LONGEST_PARTITION
        if may and row_wise and self._goes_on(fused.kernel, partitions):
            partition = partitions[0]
            partition.fused_kernels.append(fused)
        elif may and follows:
            partition = self._merged(partitions)
            partition.fused_kernels.append(fused)
            partition.rows = 0
        else:
            large = isinstance(fused.kernel, Loop) and _places(fused.kernel) >= LARGE
            waits = large or (priority is not Priority.CRITICAL and not small)
            launch = self._quiet(last + 1) if waits else last + 1
            if launch == len(self.launches) and priority is not Priority.CRITICAL:
                launch = last + 1  # rather in bad company than last and alone
            partition = self._new_partition(fused, small, launch)
            partition.priority = priority
            partition.rows = rows_of(fused.kernel) if row_wise else 0
        self._partition_of[id(fused)] = partition

    def _scatters(self, kernel: Kernel, needs: list[FusedKernel]) -> bool:
        """Whether a kernel writes here and there, and has a launch to do it in."""
        last = max(map(self._launch_of, needs), default=-1)
        return (
            isinstance(kernel, Loop)
            and not all(is_flat(view, kernel.outer) for _, view in kernel.outputs)
            and last + 1 < len(self.launches)
        )

    def _goes_on(self, kernel: Kernel, partitions: list[Partition]) -> bool:
        """Return whether a kernel continues its only partition, row-wise."""
        if (
            len(partitions) != 1
            or not partitions[0].rows
            or partitions[0].rows != rows_of(kernel)
        ):
            return False
        return can_fuse_rows(partitions[0].kernels, kernel)

    def _quiet(self, launch: int) -> int:
        """Return the next launch without products.

        Their shared memory would leave others few blocks at a time.
        """
        while launch < len(self.launches) and self._multiplies(launch):
            launch += 1
        return launch

    def _multiplies(self, launch: int) -> bool:
        partitions = self.launches[launch].partitions
        return any(
            isinstance(one.fused_kernels[0].kernel, Contract) for one in partitions
        )

    def _merged(self, partitions: list[Partition]) -> Partition:
        first, *others = partitions
        launch = self.launches[first.launch]
        for one in others:
            first.fused_kernels += one.fused_kernels
            launch.partitions.remove(one)
            for fused in one.fused_kernels:
                self._partition_of[id(fused)] = first
        return first

    def _new_partition(self, fused: FusedKernel, small: bool, launch: int) -> Partition:
        while len(self.launches) <= launch:
            self.launches.append(Launch())
        partition = Partition([fused], small, launch)
        self.launches[launch].partitions.append(partition)
        return partition


def _reads_from(kernel: Kernel, fused: FusedKernel) -> bool:
    made = {root(b) for one in fused.kernels for b in one.writes()}
    return any(root(b) in made for b in kernel.reads())


def _fuse_column_sum(kernel: Loop, producer: FusedKernel) -> bool:
    """Let a producer add up what it computes, or go on with what it added up."""
    if can_fuse_column_sum(producer, kernel):
        producer.column_sums.append(FusedKernel(kernel, unstored=producer.unstored))
        return True
    if is_map(producer.kernel):
        return False  # its sums are of some rows each, and only stored
    reads, writes = (
        {root(b) for b in side} for side in (kernel.reads(), kernel.writes())
    )
    for column_sum in producer.column_sums:
        # Blocks of other columns may still be at work.
        still = producer.writes() - column_sum.writes()
        apart = not (reads & still or writes & producer.reads())
        goes_on = apart and _reads_from(kernel, column_sum)
        if goes_on and can_fuse_epilogue(column_sum, kernel, MOST_STORED):
            column_sum.epilogues.append(kernel)
            return True
    return False


def schedule(
    kernels: Sequence[Kernel],
    aside: Sequence[Kernel] = (),
    drops: bool = True,
    kept: Collection[Root] = (),
) -> list[Launch]:
    """Return the launches of a step, in order; what nobody reads may be dropped.

    Kernels `aside` find their places where they do not disturb. Arrays that are `kept`
    have elements from before the step: zeros around images, for one.
    """
    scheduler = Scheduler()
    now, later = _by_priority(kernels)
    later = split_column_sums(later, kernels)
    for kernel in now:
        scheduler.add(kernel, Priority.CRITICAL)
    for kernel in later:
        scheduler.add(kernel, Priority.DEFERRED)
    for kernel in aside:
        scheduler.add(kernel, Priority.PREFETCH)
    if drops:
        drop_unread_stores(scheduler.launches)
        stage_rows(scheduler.launches, kept)
    return scheduler.launches


def _by_priority(kernels: Sequence[Kernel]) -> tuple[list[Kernel], list[Kernel]]:
    """Tell kernels that products wait for from those that can come after all of them.

    The latter do not touch what the former touch after them.
    """
    now: list[Kernel] = []
    later: list[Kernel] = []
    read: set[Root] = set()  # by those that come after
    written: set[Root] = set()
    for kernel in reversed(kernels):
        reads = {root(b) for b in kernel.reads()}
        writes = {root(b) for b in kernel.writes()}
        if not isinstance(kernel, Contract) and not (
            writes & read or (reads | writes) & written
        ):
            later.append(kernel)
            continue
        now.append(kernel)
        read |= reads
        written |= writes
    return now[::-1], later[::-1]
