"""The stages of a step on its way to launches, and what a launch is.

A launch is one kernel function of several partitions, side by side. In a partition,
fused kernels run one after the other: one kernel may have many blocks; several small
ones have one block, which only waits for itself between them, or a few blocks with rows
of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from ganglion.compiler.cuda.epilogue import FusedKernel
from ganglion.compiler.cuda.passes.rewrite import read_by, rename_buffers, written_by
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import Contract, Kernel
from ganglion.compiler.plan.plan import Plan

NEXT = "next"  # kind of the other one of two buffers: the one for the next step


@dataclass(frozen=True)
class StepKernels:
    """The kernels of every step, and of what comes before it.

    Those that run `once` make what never changes; `prefetched` ones prepare a step,
    and run beside the one before it.
    """

    plan: Plan
    every: tuple[Kernel, ...]
    once: tuple[Kernel, ...] = ()
    prefetched: tuple[Kernel, ...] = ()

    def map(self, change: Callable[[Kernel], Kernel]) -> StepKernels:
        """Return it with every kernel changed."""
        once, prefetched, every = (
            tuple(map(change, kernels))
            for kernels in (self.once, self.prefetched, self.every)
        )
        return replace(self, once=once, prefetched=prefetched, every=every)

    @property
    def persistent(self) -> set[BufferKey]:
        """Temporary arrays that steps find as they are: made once or prefetched."""
        return written_by(self.once) | self._prefetched_arrays

    @property
    def _prefetched_arrays(self) -> set[BufferKey]:
        return {key for key in written_by(self.prefetched) if key[0] == "arena"}

    @property
    def double_buffered(self) -> frozenset[str]:
        """The names of prefetched arrays that a step reads: there are two of each."""
        read = self._prefetched_arrays & read_by(self.every)
        return frozenset(name for _, name in read)

    @cached_property
    def for_next(self) -> list[Kernel]:
        """The prefetched kernels as they write for the next step."""
        other = {("arena", name): (NEXT, name) for name in self.double_buffered}
        return [rename_buffers(kernel, other) for kernel in self.prefetched]


class Priority(Enum):
    """Who waits for a kernel."""

    CRITICAL = 0  # a product of the same step
    DEFERRED = 1  # nobody in this step: metrics, updates
    PREFETCH = 2  # the next step: it may not disturb the products of this one


@dataclass(eq=False)
class Partition:
    """Fused kernels that run in order, beside other partitions of a launch."""

    fused_kernels: list[FusedKernel]
    small: bool
    launch: int
    rows: int = 0  # over which its kernels may be fused row-wise
    priority: Priority = Priority.CRITICAL
    # Arrays in the shared memory of row-wise blocks, with the elements of a row:
    # nowhere else, or also in global memory; see `stage_rows`.
    private: dict[BufferKey, int] = field(default_factory=dict)
    written_back: dict[BufferKey, int] = field(default_factory=dict)
    derived_from: Partition | None = None  # which it is a part of, see `without`

    @property
    def kernels(self) -> list[Kernel]:
        """All kernels of the partition."""
        return [kernel for fused in self.fused_kernels for kernel in fused.kernels]

    @property
    def row_wise(self) -> bool:
        """Whether several blocks run through it, each with its own rows."""
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
        """Return what is written back of a fused kernel's results."""
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

    def writes(self) -> set[BufferKey]:
        """Return the memory that is written."""
        return {key for fused in self.fused_kernels for key in fused.writes()}


@dataclass(frozen=True)
class Schedule:
    """The launches of a program, before they are text.

    Steps that prepare each other are `first`, any number of `every`, and `last`; others
    are `every` alone. All come after what is launched `once`.
    """

    step: StepKernels
    once: list[Launch]
    first: list[Launch]
    every: list[Launch]
    last: list[Launch] = field(default_factory=list)
    offsets: dict[BufferKey, int] = field(default_factory=dict)  # in the arena
    arena: int = 0  # bytes
    # Memory that is used for nothing else, zero at first.
    workspace: dict[BufferKey, int] = field(default_factory=dict)
    workspace_bytes: int = 0

    @property
    def plan(self) -> Plan:
        """The plan that it was made of."""
        return self.step.plan

    @cached_property
    def double_buffered(self) -> frozenset[str]:
        """The names of arrays that steps prepare for each other."""
        return self.step.double_buffered


def fused_kernels_of(launches: Iterable[Launch]) -> Iterator[tuple[int, FusedKernel]]:
    """Yield every fused kernel with the number of its launch."""
    for number, launch in enumerate(launches):
        for fused in launch.fused_kernels:
            yield number, fused


def without(launches: Sequence[Launch], kernels: Iterable[Kernel]) -> list[Launch]:
    """Return launches without some kernels; others are as they were, to the bit.

    Tilings depend on what runs beside a kernel, and so would the order of sums; but
    where a run ends must not matter for what its last step computes.
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
