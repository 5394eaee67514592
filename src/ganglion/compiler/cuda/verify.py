"""The verifier of steps and launches: what is read has been written, and is there.

The order of a step's kernels says what depends on what. Launches run one after the
other, their partitions side by side, and the kernels of a partition in order; so of two
kernels that touch the same array, of which one writes it, the earlier must be in an
earlier launch, or before the other in the same partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ganglion.compiler.cuda.allocation import lifetimes, written_before
from ganglion.compiler.cuda.epilogue import FusedKernel
from ganglion.compiler.cuda.launches import (
    NEXT,
    Launch,
    Partition,
    Schedule,
    StepKernels,
)
from ganglion.compiler.cuda.passes.rewrite import read_by, written_by
from ganglion.compiler.cuda.row_fusion import can_fuse_rows
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import Kernel
from ganglion.compiler.plan.plan import PlanError


class LaunchError(PlanError):
    """Launches that break their own rules: a bug in Ganglion, not in the model."""


TEMPORARY = ("arena", NEXT)  # kinds of arrays that a kernel must have written


def verify_step(step: StepKernels) -> None:
    """Raise `LaunchError` if a kernel reads what none before it has written."""
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
    """Raise `LaunchError` if launches do not keep the order of a step's kernels."""
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
    """Where a kernel is."""

    launch: int
    partition: Partition
    fused: FusedKernel
    order: tuple[int, int]  # in the partition, and among the fused kernel's

    def before(self, other: _Position) -> bool:
        """Return whether it has ended when the other begins, in every block."""
        if self.partition is other.partition:
            return self.order <= other.order
        return self.launch < other.launch

    def keeps(self, key: BufferKey, reader: _Position) -> bool:
        """Return whether a result stays in registers or shared memory of its block."""
        if key in self.fused.unstored:
            return self.fused is not reader.fused
        return key in self.partition.private and self.partition is not reader.partition


class _Launches:
    """The launches of a step, or of what comes before it."""

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
        """Check that kernels run as if one after the other; some arrays are known."""
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
        """Check that nothing is fetched early that the launch before writes."""
        for number, launch in enumerate(self._launches):
            for fused in launch.fused_kernels:
                wrong = fused.ready & before if before is not None else fused.ready
                for _, array in sorted(wrong):
                    raise self._error(
                        number, f"fetches {array!r} early, which is still being written"
                    )
            before = launch.writes()

    def verify_rows(self) -> None:
        """Check that row-wise blocks need only their own rows of each other."""
        for number, launch in enumerate(self._launches):
            for partition in launch.partitions:
                *others, last = partition.kernels
                if partition.row_wise and not can_fuse_rows(others, last):
                    arrays = ", ".join(repr(name) for _, name in partition.private)
                    raise self._error(
                        number, f"has blocks that need rows of others: {arrays}"
                    )


def _order(first: _Position, second: _Position) -> str:
    if first.launch == second.launch:
        return "they run side by side"
    return "they run in the wrong order"


def _verify_memory(schedule: Schedule) -> None:
    """Check that what lives at the same time does not overlap."""
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
    """Walk through an area by offsets: what overlaps must not live together."""
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
