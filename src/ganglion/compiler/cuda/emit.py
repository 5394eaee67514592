"""A schedule as CUDA C: functions by name, and the launches of a step in order.

Nothing here knows a driver: the text can be read, checked and compiled anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cuda.allocation import ALIGNMENT
from ganglion.compiler.cuda.column_sums import emit_map_with_column_sums
from ganglion.compiler.cuda.elementwise import (
    emit_map,
    emit_transpose,
    transposed_axes,
)
from ganglion.compiler.cuda.epilogue import FusedKernel
from ganglion.compiler.cuda.function import Function, PartitionText, RowStaging
from ganglion.compiler.cuda.gemm import emit_contract
from ganglion.compiler.cuda.launches import (
    Launch,
    Partition,
    Priority,
    Schedule,
    fused_kernels_of,
)
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.pool_grad import emit_pool_back
from ganglion.compiler.cuda.reduce import emit_reduction
from ganglion.compiler.cuda.row_fusion import (
    rows_per_block,
    staged_rows,
    staged_whole,
)
from ganglion.compiler.cuda.scan_scatter import emit_adds, emit_scan, emit_scatter
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import STEP, Emitted
from ganglion.compiler.cuda.tiling import LaunchContext, Product
from ganglion.compiler.ir.program import Program
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Kernel,
    Loop,
    PoolBack,
    Scan,
    Scatter,
)
from ganglion.compiler.plan.plan import rounded


@dataclass(frozen=True)
class Call:
    """One launch: a function by name, its size, and the memory it is given."""

    function: str
    blocks: int
    shared: int
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True)
class Emission:
    """A schedule as text and calls, as many as it has launches."""

    schedule: Schedule
    functions: dict[str, str]
    once: tuple[Call, ...]
    first: tuple[Call, ...]
    every: tuple[Call, ...]
    last: tuple[Call, ...]
    workspace: dict[BufferKey, int]  # the schedule's, and that of blocks for each other
    workspace_bytes: int
    keeps_cache: bool  # rather than memory for the blocks of two launches at once

    @property
    def calls(self) -> Iterator[Call]:
        """Every launch there is."""
        yield from (*self.once, *self.first, *self.every, *self.last)


def emit_program(program: Program, spec: GpuSpec) -> Emission:
    """Return a program as CUDA C for a GPU."""
    return emit(build(program, spec), spec)


def emit(schedule: Schedule, spec: GpuSpec) -> Emission:
    """Return a schedule as CUDA C."""
    emitter = _Emitter(schedule, spec)
    counting = [emitter.count_step()] if schedule.plan.results else []
    return Emission(
        schedule,
        emitter.functions,
        tuple(map(emitter.call, schedule.once)),
        tuple(map(emitter.call, schedule.first)),
        (*map(emitter.call, schedule.every), *counting),
        (*map(emitter.call, schedule.last), *(counting if schedule.last else [])),
        emitter.workspace,
        emitter.workspace_bytes,
        any(_overlaps(fused.kernel) for _, fused in fused_kernels_of(schedule.every)),
    )


def _overlaps(kernel: Kernel) -> bool:
    """Return whether a kernel reads elements several times: windows of images."""
    return isinstance(kernel, Contract) and Product(kernel).again > TUNING.window_reuse


class _Emitter:
    """Collects functions, and the memory that their blocks share."""

    def __init__(self, schedule: Schedule, spec: GpuSpec) -> None:
        self.spec = spec
        self.functions: dict[str, str] = {}
        self.workspace = dict(schedule.workspace)
        self.workspace_bytes = schedule.workspace_bytes
        self._scratch = 0
        self._calls: dict[int, Call] = {}
        self._contexts: dict[int, LaunchContext] = {}  # of partitions

    def call(self, launch: Launch) -> Call:
        """Return a launch, its function written down if it is new."""
        if id(launch) not in self._calls:
            self._calls[id(launch)] = self._new_call(launch)
        return self._calls[id(launch)]

    def _new_call(self, launch: Launch) -> Call:
        partitions = sorted(self._partitions(launch), key=PartitionText.order)
        function = Function(partitions)
        shared, most = (
            max(partition.shared for partition in partitions),
            self.spec.shared_per_block,
        )
        if any(partition.staging for partition in partitions):
            shared = max(shared, most // TUNING.row_wise_share)
        pair = launch.products > 0 and 2 * (shared + 1024) <= most
        name, text = function.named(pair)
        self.functions.setdefault(name, text)
        blocks = sum(partition.blocks for partition in partitions)
        return Call(name, blocks, shared, self._renamed(function.buffers))

    def _partitions(self, launch: Launch) -> list[PartitionText]:
        """Return the partitions of a launch, tiled such that its blocks run at once."""
        if launch.partitions[0].derived_from is not None:
            return [
                self._partition(partition, self._contexts[id(partition.derived_from)])
                for partition in launch.partitions
            ]
        context = LaunchContext(self.spec, self.spec.half, launch.products == 1)
        if any(
            partition.row_wise and partition.priority is not Priority.PREFETCH
            for partition in launch.partitions
        ):  # all wait for its few blocks
            most = TUNING.prefetch_blocks_beside_rows
            context = replace(context, most_prefetch_blocks=most)
        partitions = [
            self._partition(partition, context) for partition in launch.partitions
        ]
        if sum(partition.blocks for partition in partitions) <= self.spec.processors:
            context = replace(context, room=self.spec.shared_per_block - 1024)
            partitions = [
                self._partition(partition, context) for partition in launch.partitions
            ]
        self._contexts |= {id(partition): context for partition in launch.partitions}
        self._fit_one_wave(launch, partitions, context)
        return partitions

    def _fit_one_wave(
        self, launch: Launch, partitions: list[PartitionText], context: LaunchContext
    ) -> None:
        """Tile products into fewer blocks, if some would have to wait for others."""
        most = 2 * self.spec.processors
        context = replace(context, room=self.spec.half)

        def rank(number: int) -> tuple[bool, int]:
            """Rather what this step needs no more, such as new weights."""
            written = launch.partitions[number].fused_kernels[0].writes()
            needed = any(kind == "arena" for kind, _ in written)
            return needed, -partitions[number].blocks

        for number in sorted(range(len(partitions)), key=rank):
            excess = sum(partition.blocks for partition in partitions) - most
            partition, blocks = launch.partitions[number], partitions[number].blocks
            first = partition.fused_kernels[0].kernel
            if excess <= 0 or not isinstance(first, Contract):
                continue
            fewer = replace(context, most_blocks=max(blocks - excess, 1))
            again = self._partition(partition, fewer)
            if 0.4 * blocks <= again.blocks < blocks:
                partitions[number] = again
                self._contexts[id(partition)] = fewer

    def _renamed(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Give scratch memory names of its own in this program, and space."""
        renamed = []
        for buffer in buffers:
            if buffer.kind == "scratch":
                self._scratch += 1
                buffer = replace(buffer, name=f"scratch{self._scratch}")
                self.workspace[buffer.key] = self.workspace_bytes
                self.workspace_bytes += rounded(buffer.nbytes, ALIGNMENT)
            renamed.append(buffer)
        return tuple(renamed)

    def _partition(self, partition: Partition, context: LaunchContext) -> PartitionText:
        if partition.row_wise:
            return self._row_wise_partition(partition, context)
        bodies = [emit_fused(fused, context) for fused in partition.fused_kernels]
        blocks = bodies[0].blocks if len(bodies) == 1 else 1
        if partition.priority is Priority.PREFETCH:
            blocks = min(blocks, context.most_prefetch_blocks)
        return PartitionText(bodies, blocks, partition.priority)

    def _row_wise_partition(
        self, partition: Partition, context: LaunchContext
    ) -> PartitionText:
        undivided = partition.derived_from or partition
        rows, fused_kernels = (
            rows_per_block(partition.rows, undivided.kernels),
            partition.fused_kernels,
        )
        bodies = [emit_rows(fused, context.spec, rows) for fused in fused_kernels]
        staging = RowStaging(
            rows,
            partition.private,
            [partition.written_back_by(fused) for fused in fused_kernels],
            staged_rows(fused_kernels, partition.rows),
            {buffer.key for buffer in staged_whole(fused_kernels)},
            {key for fused in fused_kernels for key in fused.ready},
        )
        blocks = partition.rows // rows
        text = PartitionText(bodies, blocks, partition.priority, staging)
        if text.shared <= context.room:
            return text
        # What others have computed stays where it is.
        return replace(text, staging=replace(staging, staged={}, staged_whole=()))

    def count_step(self) -> Call:
        """Return the launch that counts steps, for programs with results."""
        self.functions["count_step"] = (
            'extern "C" __global__ void count_step(int* step) {\n'
            "  start_after_others();\n"
            "  if (THREAD == 0) *step += 1;\n}\n"
        )
        return Call("count_step", 1, 0, (STEP,))


def emit_fused(fused: FusedKernel, context: LaunchContext) -> Emitted:
    """Return a kernel and its epilogues as text."""
    kernel = fused.kernel
    if isinstance(kernel, Contract):
        return emit_contract(fused, context)
    if isinstance(kernel, Loop):
        if kernel.adds:
            return emit_adds(kernel)
        if fused.column_sums:
            return emit_map_with_column_sums(fused)
        if axes := transposed_axes(fused):
            return emit_transpose(fused, axes)
        emit_loop = emit_reduction if kernel.reduced else emit_map
        return emit_loop(fused, context.spec)
    if isinstance(kernel, Scan):
        return emit_scan(kernel)
    if isinstance(kernel, Scatter):
        return emit_scatter(kernel)
    if isinstance(kernel, PoolBack):
        return emit_pool_back(fused)
    raise TypeError(f"no CUDA code for a {type(kernel).__name__}")


def emit_rows(fused: FusedKernel, spec: GpuSpec, rows: int) -> Emitted:
    """Return a loop of which a block has some rows as text."""
    assert isinstance(fused.kernel, Loop)
    emit_loop = emit_reduction if fused.kernel.reduced else emit_map
    return emit_loop(fused, spec, rows)


def constants_of(emission: Emission) -> dict[BufferKey, np.ndarray]:
    """Return the arrays that a program brings along."""
    constants = {}
    for call in emission.calls:
        for buffer in call.buffers:
            if buffer.kind == "constant":
                assert buffer.array is not None
                constants[buffer.key] = np.ascontiguousarray(buffer.array)
    return constants
