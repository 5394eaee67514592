"""What a step launches: each launch is one kernel function of several partitions.

In a partition, fused kernels run one after the other. One kernel may have many blocks;
several small ones have one block, which only waits for itself between them, or a few
blocks with rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ganglion.compiler.cuda.epilogue import FusedKernel, Root
from ganglion.compiler.plan.kernels import Kernel


class Priority(Enum):
    """Who waits for a kernel."""

    CRITICAL = 0  # a product of the same step
    DEFERRED = 1  # nobody in this step: metrics, updates
    PREFETCH = 2  # the next step: it may not disturb the products of this one


@dataclass(eq=False)
class Partition:
    """FusedKernel that is done in order."""

    fused_kernels: list[FusedKernel]
    small: bool
    launch: int
    rows: int = 0  # over which its kernels may go on row by row
    priority: Priority = Priority.CRITICAL
    private: dict[Root, int] = field(default_factory=dict)  # see `cuda_keep.stage_rows`
    written_back: dict[Root, int] = field(default_factory=dict)  # likewise
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

    def goes_on(self, made: Root) -> bool:
        """Return whether another fused kernel reads what one of them makes."""
        maker = next(
            i for i, one in enumerate(self.fused_kernels) if made in one.writes()
        )
        return any(made in one.reads() for one in self.fused_kernels[maker + 1 :])

    def written_back_by(self, fused: FusedKernel) -> dict[Root, int]:
        """Return what a fused kernel makes for others, too."""
        made = fused.writes()
        return {one: size for one, size in self.written_back.items() if one in made}

    def index(self, fused: FusedKernel) -> int:
        """Return the position of a fused kernel."""
        return next(i for i, one in enumerate(self.fused_kernels) if one is fused)


@dataclass(eq=False)
class Launch:
    """Partitions that run side by side."""

    partitions: list[Partition] = field(default_factory=list)


def fused_kernels_of(launches: Iterable[Launch]) -> Iterable[tuple[int, FusedKernel]]:
    """Yield every fused kernel with the number of its launch."""
    for number, launch in enumerate(launches):
        for partition in launch.partitions:
            for fused in partition.fused_kernels:
                yield number, fused


def without(launches: Sequence[Launch], kernels: Iterable[Kernel]) -> list[Launch]:
    """Return launches without some kernels; others are as they were, to the bit.

    How work is cut depends on what runs beside it, and so would the order of sums; but
    where a run ends must not matter for what its last step computes.
    """
    gone = {id(one) for one in kernels}
    made = []
    for launch in launches:
        if any(
            id(one) in gone
            for partition in launch.partitions
            for one in partition.kernels
        ):
            partitions = [_partition_without(one, gone) for one in launch.partitions]
            made.append(Launch([one for one in partitions if one.fused_kernels]))
        else:
            made.append(launch)
    return [one for one in made if one.partitions]


def _partition_without(partition: Partition, gone: set[int]) -> Partition:
    left = [one for one in partition.fused_kernels if id(one.kernel) not in gone]
    return replace(
        partition,
        fused_kernels=[_fused_without(one, gone) for one in left],
        derived_from=partition,
    )


def _fused_without(fused: FusedKernel, gone: set[int]) -> FusedKernel:
    epilogues = [one for one in fused.epilogues if id(one) not in gone]
    with_sums = [one for one in fused.column_sums if id(one.kernel) not in gone]
    with_sums = [_fused_without(one, gone) for one in with_sums]
    return replace(fused, epilogues=epilogues, column_sums=with_sums)
