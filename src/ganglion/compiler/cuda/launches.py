"""The stages of a step on its way to launches, and the verifier of schedules.

A launch is a kernel function of several partitions, which run side by side. The fused
kernels of a partition run one after the other. A partition has a single kernel with
many blocks, or several small kernels with a single block and barriers between them, or
row-wise kernels with a few blocks that each have their own rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import numpy as np

from ganglion.compiler.cuda.fusion import FusedKernel, can_fuse_rows
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.plan.kernels import BufferKey, Contract, Kernel, Loop
from ganglion.compiler.plan.plan import (
    Plan,
    PlanError,
    read_by,
    rename_buffers,
    rounded,
    written_by,
)
from ganglion.compiler.plan.time_loop import TimeLoop

ALIGNMENT, SHARED_ALIGNMENT = 256, 16  # bytes
NEXT = "next"  # the kind of the other of two buffers, which is for the next step


@dataclass(frozen=True)
class StepKernels:
    """The kernels of a step, and those that run before or beside it.

    `once` computes constants before the first step; `prefetched` kernels prepare a
    step, and run beside the step before it. A `resident` step is run by a single block,
    many times in a single launch.
    """

    plan: Plan
    every: tuple[Kernel, ...]
    once: tuple[Kernel, ...] = ()
    prefetched: tuple[Kernel, ...] = ()
    resident: bool = False

    def map(self, change: Callable[[Kernel], Kernel]) -> StepKernels:
        """Return the step with every kernel changed."""
        once, prefetched, every = (
            tuple(map(change, kernels))
            for kernels in (self.once, self.prefetched, self.every)
        )
        return replace(self, once=once, prefetched=prefetched, every=every)

    @property
    def persistent(self) -> set[BufferKey]:
        """Temporary arrays that persist between steps: constants and prefetched."""
        return written_by(self.once) | self._prefetched_arrays

    @property
    def _prefetched_arrays(self) -> set[BufferKey]:
        return {key for key in written_by(self.prefetched) if key[0] == "arena"}

    @property
    def double_buffered(self) -> frozenset[str]:
        """The names of prefetched arrays that a step reads: each has two buffers."""
        read = self._prefetched_arrays & read_by(self.every)
        return frozenset(name for _, name in read)

    @cached_property
    def for_next(self) -> list[Kernel]:
        """The prefetched kernels, writing to the buffers of the next step."""
        other = {("arena", name): (NEXT, name) for name in self.double_buffered}
        return [rename_buffers(kernel, other) for kernel in self.prefetched]


def is_one_blocks(step: StepKernels, spec: GpuSpec) -> bool:
    """Return whether a single block runs a step as fast as several launches would.

    It has all arrays in its shared memory, and leaves the other multiprocessors to
    other models.
    """
    kernels = (*step.once, *step.every)
    if step.plan.results or spec.products != "tf32":
        return False
    if not all(map(_can_be_resident, kernels)):
        return False
    products = sum(_multiplications(k) for k in kernels if isinstance(k, Contract))
    elements = sum(math.prod(k.shape) for k in kernels if isinstance(k, Loop))
    if products > TUNING.resident_products or elements > TUNING.resident_elements:
        return False
    arrays = {b.key: b for k in step.every for b in (*k.reads(), *k.writes())}
    kept = [b.nbytes for b in arrays.values() if b.kind in ("arena", "state")]
    most = spec.shared_per_block - TUNING.resident_scratch
    return sum(rounded(nbytes, ALIGNMENT) for nbytes in kept) <= most


def _can_be_resident(kernel: Kernel) -> bool:
    """Return whether a kernel is a loop, or a product of float32 on tensor cores."""
    if not isinstance(kernel, Contract):
        return isinstance(kernel, Loop) and not kernel.adds
    views = (kernel.left, kernel.right, kernel.out)
    return all(view.buffer.dtype == np.float32 for view in views)


def _multiplications(kernel: Contract) -> int:
    return math.prod(
        axis.size
        for group in (kernel.batch, kernel.rows, kernel.columns, kernel.inner)
        for axis in group
    )


class Priority(Enum):
    """What depends on a kernel."""

    CRITICAL = 0  # a product of the same step
    DEFERRED = 1  # nothing in this step: metrics, updates
    PREFETCH = 2  # the next step: must not delay the products of this step


@dataclass(eq=False)
class Partition:
    """Fused kernels that run in order, beside other partitions of a launch."""

    fused_kernels: list[FusedKernel]
    small: bool
    launch: int
    # All numbers of rows over which its kernels may be fused row-wise.
    row_counts: frozenset[int] = frozenset()
    priority: Priority = Priority.CRITICAL
    # Arrays in the shared memory of row-wise blocks, with the length of a row: only
    # there, or also in global memory; see `stage_rows`.
    private: dict[BufferKey, int] = field(default_factory=dict)
    written_back: dict[BufferKey, int] = field(default_factory=dict)
    derived_from: Partition | None = None  # of which it is a part, see `without`

    @property
    def kernels(self) -> list[Kernel]:
        """All kernels of the partition."""
        return [kernel for fused in self.fused_kernels for kernel in fused.kernels]

    @property
    def origin(self) -> Partition:
        """The partition that it was derived from in the first place."""
        return self.derived_from.origin if self.derived_from else self

    @property
    def rows(self) -> int:
        """Over how many rows its kernels may be fused row-wise, 0 for none."""
        return min(self.row_counts, default=0)

    @property
    def row_wise(self) -> bool:
        """Whether several blocks run all of its kernels, each with its own rows."""
        if self.derived_from is not None:
            return self.derived_from.row_wise
        return self.rows > 0 and len(self.fused_kernels) > 1

    def reads_again(self, key: BufferKey) -> bool:
        """Return whether a later fused kernel reads what an earlier one writes."""
        writers = (
            i for i, fused in enumerate(self.fused_kernels) if key in fused.writes()
        )
        later = self.fused_kernels[next(writers) + 1 :]
        return any(key in fused.reads() for fused in later)

    def written_back_by(self, fused: FusedKernel) -> dict[BufferKey, int]:
        """Return the results of a fused kernel that are written back."""
        writes = fused.writes()
        return {key: size for key, size in self.written_back.items() if key in writes}

    def index(self, fused: FusedKernel) -> int:
        """Return the position of a fused kernel."""
        return next(
            i for i, candidate in enumerate(self.fused_kernels) if candidate is fused
        )


@dataclass(eq=False)
class Launch:
    """Partitions that run side by side."""

    partitions: list[Partition] = field(default_factory=list)

    @property
    def fused_kernels(self) -> Iterator[FusedKernel]:
        """The fused kernels of all partitions."""
        return (
            fused for partition in self.partitions for fused in partition.fused_kernels
        )

    @property
    def products(self) -> int:
        """How many partitions are products."""
        firsts = (partition.fused_kernels[0].kernel for partition in self.partitions)
        return sum(isinstance(kernel, Contract) for kernel in firsts)

    @property
    def time_loops(self) -> int:
        """How many of its kernels are loops over time."""
        return sum(isinstance(fused.kernel, TimeLoop) for fused in self.fused_kernels)

    def writes(self) -> set[BufferKey]:
        """Return the memory that is written."""
        return {key for fused in self.fused_kernels for key in fused.writes()}


@dataclass(frozen=True)
class Schedule:
    """The launches of a program, before they are emitted.

    If steps prefetch for each other, a run is `first`, any number of `every`, and
    `last`; else it is `every` alone. `once` precedes them.
    """

    step: StepKernels
    once: list[Launch]
    first: list[Launch]
    every: list[Launch]
    last: list[Launch] = field(default_factory=list)
    offsets: dict[BufferKey, int] = field(default_factory=dict)  # in the arena
    arena: int = 0  # bytes
    # Memory of a single purpose, initialized to zero.
    workspace: dict[BufferKey, int] = field(default_factory=dict)
    workspace_bytes: int = 0

    @property
    def plan(self) -> Plan:
        """The plan of the program."""
        return self.step.plan

    @cached_property
    def double_buffered(self) -> frozenset[str]:
        """The names of arrays that steps prefetch for each other."""
        return self.step.double_buffered


def fused_kernels_of(launches: Iterable[Launch]) -> Iterator[tuple[int, FusedKernel]]:
    """Yield every fused kernel with the number of its launch."""
    for number, launch in enumerate(launches):
        for fused in launch.fused_kernels:
            yield number, fused


def partitions_of(launches: Sequence[Launch]) -> Iterator[Partition]:
    """Return the partitions of some launches."""
    return (partition for launch in launches for partition in launch.partitions)


def written_before(schedule: Schedule) -> set[BufferKey] | None:
    """Return what may be written right before a step, None if that is unknown."""
    if not schedule.first:
        return None
    written = schedule.every[-1].writes() | schedule.first[-1].writes()
    return {("arena" if kind == NEXT else kind, name) for kind, name in written}


def lifetimes(
    schedule: Schedule,
) -> tuple[dict[BufferKey, tuple[int, int]], dict[BufferKey, int]]:
    """Return the first and last launch of arrays in the arena, and their bytes."""
    lives: dict[BufferKey, tuple[int, int]] = {}
    sizes: dict[BufferKey, int] = {}
    private = (partition.private for partition in partitions_of(schedule.every))
    elsewhere = schedule.step.persistent.union(*private)
    for number, fused in fused_kernels_of(schedule.every):
        for buffer in fused.buffers():
            key = buffer.key
            if key[0] != "arena" or key in elsewhere or key in fused.unstored:
                continue
            first, _ = lives.get(key, (number, number))
            lives[key] = (first, number)
            sizes[key] = buffer.nbytes
    return lives, sizes


def without(launches: Sequence[Launch], kernels: Iterable[Kernel]) -> list[Launch]:
    """Return launches without some kernels, with all others unchanged to the bit.

    Tilings, and with them the order of sums, depend on the other kernels of a launch;
    but the results of a step must not depend on whether a run ends with it.
    """
    gone = {id(kernel) for kernel in kernels}
    changed = []
    for launch in launches:
        kernels = (
            kernel for partition in launch.partitions for kernel in partition.kernels
        )
        if any(id(kernel) in gone for kernel in kernels):
            partitions = [
                _partition_without(partition, gone) for partition in launch.partitions
            ]
            launch = Launch(
                [partition for partition in partitions if partition.fused_kernels]
            )
        if launch.partitions:
            changed.append(launch)
    return changed


def _partition_without(partition: Partition, gone: set[int]) -> Partition:
    left = [
        _fused_without(fused, gone)
        for fused in partition.fused_kernels
        if id(fused.kernel) not in gone
    ]
    return replace(partition, fused_kernels=left, derived_from=partition)


def _fused_without(fused: FusedKernel, gone: set[int]) -> FusedKernel:
    epilogues = [epilogue for epilogue in fused.epilogues if id(epilogue) not in gone]
    column_sums = [
        _fused_without(column_sum, gone)
        for column_sum in fused.column_sums
        if id(column_sum.kernel) not in gone
    ]
    return replace(fused, epilogues=epilogues, column_sums=column_sums)


# ---- the verifier of steps and launches ----------------------------------------------
# Everything that is read has been written, to memory that the reader sees. The order of
# a step's kernels defines their dependencies. Launches run one after the other, their
# partitions side by side, and the kernels of a partition in order. So of two kernels
# in conflict, the earlier must be in an earlier launch, or before the other in the same
# partition.


class LaunchError(PlanError):
    """Launches are malformed: a bug in Ganglion, not in the model."""


TEMPORARY = ("arena", NEXT)  # kinds of arrays that must be written before they are read


def verify_step(step: StepKernels) -> None:
    """Raise `LaunchError` if a kernel reads what no kernel before it has written."""
    written: set[BufferKey] = set()
    for number, kernel in enumerate((*step.once, *step.prefetched, *step.every)):
        for key in read_by([kernel]) - written:
            if key[0] in TEMPORARY:
                raise LaunchError(
                    f"{step.plan.name}: kernel {number} ({kernel.name}) reads "
                    f"{key[1]!r} before it is written"
                )
        written |= written_by([kernel])


def verify_schedule(schedule: Schedule) -> None:
    """Raise `LaunchError` if launches violate the order of a step's kernels."""
    step, name = schedule.step, schedule.plan.name
    constant = written_by(step.once)
    known = constant | written_by(step.prefetched)
    both = (*step.every, *step.for_next)
    _Launches(name, "once", schedule.once).verify(step.once, set())
    _Launches(name, "first", schedule.first).verify(step.prefetched, constant)
    every = _Launches(name, "every", schedule.every)
    every.verify(both, known)
    every.verify_ready(written_before(schedule))
    every.verify_rows()
    if schedule.last:
        last = _Launches(name, "last", schedule.last)
        last.verify([k for k in both if id(k) in last.positions], known)
    missing = {(NEXT, array) for array in step.double_buffered} - written_by(
        step.for_next
    )
    for _, array in missing:
        raise LaunchError(f"{name}: no launch makes {array!r} for the next step")
    if schedule.offsets or schedule.workspace:
        _verify_memory(schedule)


@dataclass(frozen=True)
class _Position:
    """The position of a kernel in launches."""

    launch: int
    partition: Partition
    fused: FusedKernel
    order: tuple[int, int]  # in the partition, and among the fused kernel's

    def before(self, other: _Position) -> bool:
        """Return whether the kernel has ended in every block when another begins."""
        if self.partition is other.partition:
            return self.order <= other.order
        return self.launch < other.launch

    def keeps(self, key: BufferKey, reader: _Position) -> bool:
        """Return whether a result stays in registers or shared memory of its block."""
        if key in self.fused.unstored:
            return self.fused is not reader.fused
        return key in self.partition.private and self.partition is not reader.partition


class _Launches:
    """The launches of a step, or those before it."""

    def __init__(self, name: str, when: str, launches: Sequence[Launch]) -> None:
        self._name, self._when, self._launches = name, when, launches
        self.positions: dict[int, _Position] = {}
        for number, launch in enumerate(launches):
            for partition in launch.partitions:
                for i, fused in enumerate(partition.fused_kernels):
                    for j, kernel in enumerate(fused.kernels):
                        if id(kernel) in self.positions:
                            raise self._error(number, f"runs {kernel.name} again")
                        position = _Position(number, partition, fused, (i, j))
                        self.positions[id(kernel)] = position

    def _error(self, launch: int, what: str) -> LaunchError:
        return LaunchError(f"{self._name}: launch {self._when} {launch} {what}")

    def verify(self, kernels: Iterable[Kernel], known: set[BufferKey]) -> None:
        """Check that dependencies between kernels are kept; some arrays are given."""
        writer: dict[BufferKey, _Position] = {}
        readers: dict[BufferKey, list[_Position]] = defaultdict(list)
        for kernel in kernels:
            here = self.positions.get(id(kernel))
            if here is None:
                raise LaunchError(
                    f"{self._name}: no launch of {self._when} runs {kernel.name}"
                )
            writes = written_by([kernel])
            for key in read_by([kernel]):
                self._verify_read(key, here, writer.get(key), known)
                readers[key].append(here)
            for key in writes:
                self._verify_write(key, here, writer.get(key), readers.pop(key, []))
                writer[key] = here

    def _verify_read(
        self,
        key: BufferKey,
        here: _Position,
        writer: _Position | None,
        known: set[BufferKey],
    ) -> None:
        array = repr(key[1])
        if writer is None:
            if key[0] in TEMPORARY and key not in known:
                raise self._error(here.launch, f"reads {array}, which nobody writes")
        elif not writer.before(here):
            raise self._error(
                here.launch,
                f"reads {array}, which launch {writer.launch} writes: "
                f"{_order(writer, here)}",
            )
        elif writer.keeps(key, here):
            raise self._error(
                here.launch,
                f"reads {array}, which launch {writer.launch} keeps in its blocks",
            )

    def _verify_write(
        self,
        key: BufferKey,
        here: _Position,
        writer: _Position | None,
        readers: Iterable[_Position],
    ) -> None:
        for other in readers:
            if not other.before(here):
                raise self._error(
                    here.launch,
                    f"overwrites {key[1]!r}, which launch {other.launch} still reads: "
                    f"{_order(other, here)}",
                )
        if writer is not None and not writer.before(here):
            raise self._error(
                here.launch,
                f"writes {key[1]!r}, as launch {writer.launch} does: "
                f"{_order(writer, here)}",
            )

    def verify_ready(self, before: set[BufferKey] | None) -> None:
        """Check that no array is loaded early that the previous launch writes."""
        for number, launch in enumerate(self._launches):
            for fused in launch.fused_kernels:
                wrong = fused.ready & before if before is not None else fused.ready
                for _, array in sorted(wrong):
                    raise self._error(
                        number, f"fetches {array!r} early, which is still being written"
                    )
            before = launch.writes()

    def verify_rows(self) -> None:
        """Check that row-wise blocks read their own rows of each other's results."""
        for number, launch in enumerate(self._launches):
            for partition in launch.partitions:
                fits = can_fuse_rows(partition.kernels, partition.rows)
                if partition.row_wise and not fits:
                    arrays = ", ".join(repr(name) for _, name in partition.private)
                    raise self._error(
                        number, f"has blocks that need rows of others: {arrays}"
                    )


def _order(first: _Position, second: _Position) -> str:
    if first.launch == second.launch:
        return "they run side by side"
    return "they run in the wrong order"


def _verify_memory(schedule: Schedule) -> None:
    """Check that arrays which are live at the same time do not overlap."""
    lives, sizes = lifetimes(schedule)
    for key in lives:
        if key not in schedule.offsets:
            raise LaunchError(f"{schedule.plan.name}: {key[1]!r} has no memory")
    _verify_apart(schedule, "arena", schedule.offsets, sizes, lives)
    persistent = {
        buffer.key: buffer.nbytes
        for launch in (*schedule.once, *schedule.first, *schedule.every)
        for fused in launch.fused_kernels
        for buffer in fused.buffers()
        if buffer.key in schedule.workspace
    }
    forever = dict.fromkeys(persistent, (0, len(schedule.every)))
    _verify_apart(schedule, "workspace", schedule.workspace, persistent, forever)


def _verify_apart(
    schedule: Schedule,
    memory: str,
    offsets: Mapping[BufferKey, int],
    sizes: Mapping[BufferKey, int],
    lives: Mapping[BufferKey, tuple[int, int]],
) -> None:
    """Check in order of offsets that overlapping arrays are not live together."""
    end = schedule.arena if memory == "arena" else schedule.workspace_bytes
    open_ones: list[BufferKey] = []
    for key in sorted(lives, key=lambda key: offsets[key]):
        start = offsets[key]
        if start < 0 or start + sizes[key] > end:
            raise LaunchError(
                f"{schedule.plan.name}: {key[1]!r} leaves the {memory} of {end} bytes"
            )
        open_ones = [live for live in open_ones if offsets[live] + sizes[live] > start]
        for other in open_ones:
            first, last = lives[key]
            if first <= lives[other][1] and lives[other][0] <= last:
                raise LaunchError(
                    f"{schedule.plan.name}: {other[1]!r} and {key[1]!r} share memory "
                    f"of the {memory} in launch every {max(first, lives[other][0])}"
                )
        open_ones.append(key)
