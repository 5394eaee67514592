"""A plan as CUDA C: functions by name, and the launches of a step in order.

Nothing here knows a driver: the text can be read, checked and compiled anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cuda.allocation import ALIGNMENT, place
from ganglion.compiler.cuda.column_sums import emit_map_with_column_sums
from ganglion.compiler.cuda.elementwise import (
    emit_map,
    emit_transpose,
    transposed_axes,
)
from ganglion.compiler.cuda.epilogue import FusedKernel, Root, is_producer
from ganglion.compiler.cuda.function import Function, PartitionText, RowStaging
from ganglion.compiler.cuda.gemm import emit_contract
from ganglion.compiler.cuda.launches import (
    Launch,
    Partition,
    Priority,
    fused_kernels_of,
    without,
)
from ganglion.compiler.cuda.passes.byte_operands import keep_bytes
from ganglion.compiler.cuda.passes.dependencies import (
    mark_ready,
    mark_rounded,
    written_last,
)
from ganglion.compiler.cuda.passes.depthwise import depthwise_as_loops
from ganglion.compiler.cuda.passes.operands import round_operands
from ganglion.compiler.cuda.passes.padding import read_inside_padding
from ganglion.compiler.cuda.passes.prefetch import NEXT, exact_between, split_prefetch
from ganglion.compiler.cuda.passes.simplify import (
    StepKernels,
    simplify,
    split_long_contractions,
)
from ganglion.compiler.cuda.pool_grad import emit_pool_back
from ganglion.compiler.cuda.reduce import emit_reduction
from ganglion.compiler.cuda.row_fusion import (
    as_loop,
    rows_per_block,
    staged_rows,
    staged_whole,
)
from ganglion.compiler.cuda.scan_scatter import emit_adds, emit_scan, emit_scatter
from ganglion.compiler.cuda.scheduler import schedule
from ganglion.compiler.cuda.text import STEP, Emitted, root
from ganglion.compiler.cuda.tiling import (
    PROCESSORS,
    READS_AGAIN,
    LaunchContext,
    Product,
)
from ganglion.compiler.cuda.wgrad_tiling import split_k_of
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Kernel,
    Loop,
    PoolBack,
    Scan,
    Scatter,
)
from ganglion.compiler.plan.memory import rounded
from ganglion.compiler.plan.plan import Plan

# Blocks that go on row by row would gather on processors that happen to be idle: each
# takes so large a part of their memory that they cannot.
SPREAD = 3
MOST_ASIDE = 64  # blocks without priority beside some that go on row by row
TENSOR_CORES = 80  # compute capability from which tf32 and bf16 exist
# Kilobytes of shared memory of a block, by compute capability.
_SHARED = {75: 64, 80: 163, 87: 163, 90: 227, 100: 227, 103: 227}


@dataclass(frozen=True)
class Target:
    """What code is made for: a compute capability and a precision of products."""

    capability: int = 90
    precision: str = "tf32"

    @property
    def shared(self) -> int:
        """The shared memory that a block may have, in bytes."""
        return _SHARED.get(self.capability, 99) * 1024

    @property
    def half(self) -> int:
        """The shared memory of each of two blocks on one processor."""
        return self.shared // 2 - 1024

    @property
    def products(self) -> str:
        """The precision that products really have: exact where tensor cores lack."""
        return self.precision if self.capability >= TENSOR_CORES else "float32"


@dataclass(frozen=True)
class Call:
    """One launch: a function by name, its size, and the memory it is given."""

    function: str
    blocks: int
    shared: int
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True)
class Emission:
    """A plan as text and launches.

    Steps that prepare each other are `first`, any number of `every`, and `last`; others
    are `every` alone. What they hand over is kept twice, see `prefetch`.
    """

    functions: dict[str, str]
    once: tuple[Call, ...]
    first: tuple[Call, ...]
    every: tuple[Call, ...]
    last: tuple[Call, ...]
    double_buffered: frozenset[str]
    offsets: dict[Root, int]  # of temporary memory
    arena: int
    workspace: dict[Root, int]  # of memory that nobody else may use; zero at first
    workspace_bytes: int
    results: dict[str, Buffer]
    keeps_cache: bool  # rather than memory for the blocks of two launches at once

    @property
    def calls(self) -> Iterator[Call]:
        """Every launch there is."""
        yield from (*self.once, *self.first, *self.every, *self.last)


@dataclass(frozen=True)
class Schedule:
    """The launches of a plan, as in an `Emission`, before they are text."""

    once: list[Launch]
    first: list[Launch]
    every: list[Launch]
    last: list[Launch]
    double_buffered: frozenset[str]
    kept: set[Root]  # memory that is not used for anything else


def schedule_of(plan: Plan, target: Target) -> Schedule:
    """Return what is launched when."""
    simple = prepared(plan.kernels, target)
    ahead = split_prefetch(steps_of(simple, target), simple.kept())
    before, ahead = exact_between(simple.once, ahead)
    for_next = ahead.for_next_step()
    once = schedule(before, drops=False)
    first = schedule((), ahead.early, drops=False)
    kept = simple.kept() | ahead.made
    every = schedule(ahead.late, for_next, kept=kept)
    if target.products == "tf32":
        mark_rounded([*once, *first, *every])
    mark_ready(every, written_last(every) | written_last(first) if first else None)
    # The last step makes what no step will read, but does not count for a next one.
    counting = [k for k in for_next if any(b.kind == "state" for b in k.writes())]
    last = without(every, counting) if first else []
    return Schedule(once, first, every, last, ahead.double_buffered, kept)


def emit(plan: Plan, target: Target) -> Emission:
    """Return a plan as CUDA C."""
    made = schedule_of(plan, target)
    offsets, arena = place(made.every, made.kept)
    maker = _Maker(target)
    for _, fused in fused_kernels_of([*made.once, *made.first, *made.every]):
        maker.keep(b for b in fused.buffers() if root(b) in made.kept or b.kind == NEXT)
    counting = [maker.counting()] if plan.results else []
    return Emission(
        maker.functions,
        tuple(map(maker.call, made.once)),
        tuple(map(maker.call, made.first)),
        (*map(maker.call, made.every), *counting),
        (*map(maker.call, made.last), *(counting if made.last else [])),
        made.double_buffered,
        offsets,
        arena,
        maker.workspace,
        maker.workspace_bytes,
        dict(plan.results),
        any(_reads_again(fused.kernel) for _, fused in fused_kernels_of(made.every)),
    )


def _reads_again(kernel: Kernel) -> bool:
    """Return whether a kernel reads elements several times: windows of images."""
    return isinstance(kernel, Contract) and Product(kernel).again > READS_AGAIN


def prepared(kernels: Sequence[Kernel], target: Target) -> StepKernels:
    """Return a plan's kernels, simpler, and their arrays as a target keeps them."""
    simple = simplify(kernels)
    apart = depthwise_as_loops(read_inside_padding(simple.every))
    every = tuple(map(as_loop, apart))
    simple = StepKernels(simple.once, every)
    if target.products == "float32":
        return simple
    if target.products == "tf32":
        simple = StepKernels(simple.once, tuple(keep_bytes(simple.every)))
    return round_operands(simple, target.products == "bf16")


def steps_of(simple: StepKernels, target: Target) -> list[Kernel]:
    """Return the kernels of a step, long contractions cut for a target."""

    def parts(kernel: Contract) -> int:
        if not is_producer(kernel):
            return 1
        return split_k_of(kernel, target.products, target.half)

    return split_long_contractions(simple.every, parts)


class _Maker:
    """Collects functions, and the memory that they own."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: dict[str, str] = {}
        self.workspace: dict[Root, int] = {}
        self.workspace_bytes = 0
        self._scratch = 0
        self._calls: dict[int, Call] = {}
        # How partitions were cut: their shared memory, and what was beside them.
        self._cut: dict[int, tuple[int, LaunchContext]] = {}

    def keep(self, buffers: Iterable[Buffer]) -> None:
        """Give buffers memory of their own."""
        for one in buffers:
            if root(one) not in self.workspace:
                self.workspace[root(one)] = self.workspace_bytes
                self.workspace_bytes += rounded(one.nbytes, ALIGNMENT)

    def call(self, launch: Launch) -> Call:
        """Return a launch, its function written down if it is new."""
        if id(launch) not in self._calls:
            self._calls[id(launch)] = self._new_call(launch)
        return self._calls[id(launch)]

    def _new_call(self, launch: Launch) -> Call:
        partitions = sorted(self._partitions(launch), key=PartitionText.order)
        function = Function(partitions)
        shared = max(one.shared for one in partitions)
        if any(one.staging for one in partitions):
            shared = max(shared, self.target.shared // SPREAD)
        pair = _products(launch) > 0 and 2 * (shared + 1024) <= self.target.shared
        name, text = function.named(pair)
        self.functions.setdefault(name, text)
        blocks = sum(one.blocks for one in partitions)
        return Call(name, blocks, shared, self._renamed(function.buffers))

    def _partitions(self, launch: Launch) -> list[PartitionText]:
        """Return the partitions of a launch, cut such that its blocks run at once."""
        if launch.partitions[0].derived_from is not None:
            return [
                self._partition(one, *self._cut[id(one.derived_from)])
                for one in launch.partitions
            ]
        context = LaunchContext(alone=_products(launch) == 1)
        for one in launch.partitions:
            if one.row_wise and one.priority is not Priority.PREFETCH:
                context = replace(
                    context, aside=MOST_ASIDE
                )  # all wait for its few blocks
        room = self.target.half
        partitions = [self._partition(one, room, context) for one in launch.partitions]
        if sum(one.blocks for one in partitions) <= PROCESSORS:
            room = self.target.shared - 1024
            partitions = [
                self._partition(one, room, context) for one in launch.partitions
            ]
        self._cut |= {id(one): (room, context) for one in launch.partitions}
        if sum(one.blocks for one in partitions) > 2 * PROCESSORS:
            self._cut_in_one_wave(launch, partitions, context)
        return partitions

    def _cut_in_one_wave(
        self, launch: Launch, partitions: list[PartitionText], context: LaunchContext
    ) -> None:
        """Cut products into fewer blocks, if some would have to wait for the others."""

        def rank(number: int) -> tuple[bool, int]:
            """Rather what this step needs no more, such as new weights."""
            written = launch.partitions[number].fused_kernels[0].writes()
            needed = any(kind == "arena" for kind, _ in written)
            return needed, -partitions[number].blocks

        for number in sorted(range(len(partitions)), key=rank):
            excess = sum(one.blocks for one in partitions) - 2 * PROCESSORS
            partition, blocks = launch.partitions[number], partitions[number].blocks
            if excess <= 0 or not isinstance(
                partition.fused_kernels[0].kernel, Contract
            ):
                continue
            fewer = replace(context, most=max(blocks - excess, 1))
            again = self._partition(partition, self.target.half, fewer)
            if 0.4 * blocks <= again.blocks < blocks:
                partitions[number] = again
                self._cut[id(partition)] = self.target.half, fewer

    def _renamed(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Give scratch memory names of its own in this program."""
        made = []
        for one in buffers:
            if one.kind == "scratch":
                self._scratch += 1
                one = replace(one, name=f"scratch{self._scratch}")
                self.keep([one])
            made.append(one)
        return tuple(made)

    def _partition(
        self, partition: Partition, room: int, context: LaunchContext
    ) -> PartitionText:
        how = self.target.products
        if partition.row_wise:
            return self._row_wise_partition(partition, room)
        bodies = [
            emit_fused(one, how, room, context) for one in partition.fused_kernels
        ]
        blocks = bodies[0].blocks if len(bodies) == 1 else 1
        if partition.priority is Priority.PREFETCH:
            blocks = min(blocks, context.aside)
        return PartitionText(bodies, blocks, partition.priority)

    def _row_wise_partition(self, partition: Partition, room: int) -> PartitionText:
        rows = rows_per_block(
            partition.rows, (partition.derived_from or partition).kernels
        )
        bodies = [emit_rows(one, rows) for one in partition.fused_kernels]
        staging = RowStaging(
            rows,
            partition.private,
            [partition.written_back_by(one) for one in partition.fused_kernels],
            staged_rows(partition.fused_kernels, partition.rows),
            {root(one) for one in staged_whole(partition.fused_kernels)},
            {one for fused in partition.fused_kernels for one in fused.ready},
        )
        made = PartitionText(
            bodies, partition.rows // rows, partition.priority, staging
        )
        if made.shared > room:  # what others have made stays where it is
            made = replace(made, staging=replace(staging, staged={}, staged_whole=()))
        return made

    def counting(self) -> Call:
        """Return the launch that counts steps, for programs with results."""
        self.functions["count_step"] = (
            'extern "C" __global__ void count_step(int* step) {\n'
            "  start_after_others();\n"
            "  if (THREAD == 0) *step += 1;\n}\n"
        )
        return Call("count_step", 1, 0, (STEP,))


def _products(launch: Launch) -> int:
    firsts = (partition.fused_kernels[0].kernel for partition in launch.partitions)
    return sum(isinstance(one, Contract) for one in firsts)


def emit_fused(
    fused: FusedKernel, precision: str, room: int, context: LaunchContext
) -> Emitted:
    """Return a kernel and its epilogues as text, within some shared memory."""
    kernel = fused.kernel
    if isinstance(kernel, Contract):
        return emit_contract(fused, precision, room, context)
    if isinstance(kernel, Loop):
        if kernel.adds:
            return emit_adds(kernel)
        if fused.column_sums:
            return emit_map_with_column_sums(fused)
        if axes := transposed_axes(fused):
            return emit_transpose(fused, axes)
        return emit_reduction(fused) if kernel.reduced else emit_map(fused)
    if isinstance(kernel, Scan):
        return emit_scan(kernel)
    if isinstance(kernel, Scatter):
        return emit_scatter(kernel)
    if isinstance(kernel, PoolBack):
        return emit_pool_back(fused)
    raise TypeError(f"no CUDA code for a {type(kernel).__name__}")


def emit_rows(fused: FusedKernel, rows: int) -> Emitted:
    """Return a loop of which a block has some rows as text."""
    assert isinstance(fused.kernel, Loop)
    if fused.kernel.reduced:
        return emit_reduction(fused, rows)
    return emit_map(fused, rows)


def constants_of(emission: Emission) -> dict[Root, np.ndarray]:
    """Return the arrays that a program brings along."""
    found = {}
    for call in emission.calls:
        for one in call.buffers:
            if one.kind == "constant":
                assert one.array is not None
                found[root(one)] = np.ascontiguousarray(one.array)
    return found
