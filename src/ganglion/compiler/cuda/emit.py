"""Emit a schedule as CUDA C: functions by name, and the launches of a step in order.

Nothing here depends on a driver: the text can be read, tested and compiled anywhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ganglion.compiler.cuda.column_sums import emit_map_with_column_sums
from ganglion.compiler.cuda.elementwise import (
    emit_map,
    emit_transpose,
    transposed_axes,
)
from ganglion.compiler.cuda.for_models import schedule_of_models
from ganglion.compiler.cuda.fusion import (
    BlockRows,
    FusedKernel,
    largest_part,
    rows_of_block,
    rows_per_block,
    staged_rows,
    staged_whole,
)
from ganglion.compiler.cuda.gemm import emit_contract
from ganglion.compiler.cuda.launches import (
    ALIGNMENT,
    Launch,
    Partition,
    Priority,
    Schedule,
    fused_kernels_of,
)
from ganglion.compiler.cuda.one_block import ResidentMemory, pipelined_kernels
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.pool_grad import emit_pool_back
from ganglion.compiler.cuda.reduce import emit_reduction
from ganglion.compiler.cuda.scan_scatter import emit_adds, emit_scan, emit_scatter
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import STEP, THREADS, Emitted, c_type, fill
from ganglion.compiler.cuda.tiling import LaunchContext, Product
from ganglion.compiler.cuda.time_loop import emit_time_loop
from ganglion.compiler.ir.graph import Program
from ganglion.compiler.plan.kernels import Buffer, BufferKey, Contract, Kernel, Loop
from ganglion.compiler.plan.plan import rounded
from ganglion.compiler.plan.scan_scatter import PoolBack, Scan, Scatter
from ganglion.compiler.plan.time_loop import TimeLoop

# ---- a kernel function: partitions that run side by side, each in its own blocks -----


@dataclass(frozen=True)
class RowStaging:
    """The arrays that blocks of row-wise fused kernels hold in shared memory.

    Mappings give the number of elements in a row; a block holds its own rows only.
    """

    rows: int  # of a block
    private: Mapping[BufferKey, int]  # written and read by this partition alone
    written_back: Sequence[Mapping[BufferKey, int]]  # after each body, for others
    staged: Mapping[BufferKey, int]  # written by others, copied at the start
    staged_whole: Collection[BufferKey]  # likewise, with all of their rows
    ready: Collection[BufferKey]  # staged before the previous launch has ended

    def size(self, buffer: Buffer) -> int:
        """Return how many elements of an array a block holds, 0 for none."""
        key = buffer.key
        if key in self.staged_whole:
            return buffer.size
        row_sizes = (self.private, self.staged, *self.written_back)
        return self.rows * next((sizes[key] for sizes in row_sizes if key in sizes), 0)


@dataclass(frozen=True)
class PartitionText:
    """A partition of a launch: the bodies of its kernels, run one after the other."""

    bodies: list[Emitted]
    blocks: int
    priority: Priority
    staging: RowStaging | None = None  # of row-wise fused kernels
    memory: ResidentMemory | None = None  # of a resident block

    def order(self) -> tuple[bool, int, float, int]:
        """Return a sort key: long partitions come first, deferred ones last."""
        work = max(body.work for body in self.bodies)
        return self.blocks > 1, self.priority.value, -work, -self.blocks

    @cached_property
    def buffers(self) -> dict[BufferKey, Buffer]:
        """The arrays of all bodies."""
        return {b.key: b for body in self.bodies for b in body.buffers}

    @cached_property
    def _layout(self) -> tuple[dict[BufferKey, int], int]:
        """The offsets of arrays in shared memory, and its size."""
        offsets: dict[BufferKey, int] = {}
        end = rounded(max(body.shared for body in self.bodies), 16)
        for key, buffer in self.buffers.items():
            if self.memory and key in self.memory.offsets:
                offsets[key] = self.memory.offsets[key]
            elif size := self.staging.size(buffer) if self.staging else 0:
                offsets[key] = end
                end += rounded(size * buffer.dtype.itemsize, 16)
        return offsets, self.memory.end if self.memory else end

    @property
    def shared(self) -> int:
        """The bytes of a block's shared memory."""
        return self._layout[1]

    def staged(self, buffer: Buffer) -> str:
        """Return the address of a block's copy of an array, "" if there is none."""
        offset = self._layout[0].get(buffer.key)
        kind = c_type(buffer.dtype)
        return "" if offset is None else f"({kind}*)(shared_bytes + {offset})"


class Function:
    """The text of a kernel function, and the buffers that are its arguments.

    With `like_blocks`, block 0 of every model starts before block 1 of any model.
    """

    def __init__(
        self, partitions: Iterable[PartitionText], like_blocks: bool = False
    ) -> None:
        self._like_blocks = like_blocks
        self._block = "place.block" if like_blocks else "BLOCK"
        self.buffers: list[Buffer] = []
        self._bodies: dict[str, str] = {}
        self._arguments: dict[BufferKey, str] = {}
        self._scratch = 0
        self._partitions: list[tuple[int, list[str]]] = []
        self._before, self._after = list[str](), list[str]()  # the loop over steps
        start = 0
        for partition in partitions:
            block = f"{self._block} - {start}" if start else self._block
            start += partition.blocks
            if partition.memory:
                self._keep_state(partition, partition.memory)
                lines = self._resident_step(partition, partition.memory)
            else:
                lines = self._calls(partition, block)
            self._partitions.append((start, lines))

    def named(
        self, pair: bool, models: bool = False, resident: bool = False
    ) -> tuple[str, str]:
        """Return the function's name, a hash of its text, and its text.

        With `pair`, registers are limited so that a multiprocessor can run two blocks.
        With `models`, each model has its own blocks, and its memory a stride behind
        that of the model before. A `resident` block loops over steps.
        """
        lines = [
            fill(text, body=f"${{kernel}}_{name}")
            for text, name in self._bodies.items()
        ]
        arguments = [
            f"{c_type(buffer.dtype)}* a{i}" for i, buffer in enumerate(self.buffers)
        ]
        arguments += ["long long state_stride", "long long work_stride"] * models
        arguments += ["long long steps"] * resident
        lines.append(
            f'extern "C" __global__ void __launch_bounds__({THREADS}{", 2" * pair}) '
            f"$kernel({', '.join(arguments)}) {{"
        )
        lines += self._select_model() if models else []
        lines += self._before if resident else []
        lines += ["  for (long long step = 0; step < steps; step++)"] * resident
        *others, (_, last) = self._partitions
        for end, calls in others:
            lines += [f"  if ({self._block} < {end}) {{", *calls, "  } else"]
        # The next step reads what this one has written: hence the barrier.
        after = ["    BARRIER;", "  }", *self._after] if resident else ["  }"]
        text = "\n".join([*lines, "  {", *last, *after, "}", ""])
        digest = hashlib.sha256(fill(text, kernel="NAME").encode()).hexdigest()
        name = f"k{digest[:24]}"
        return name, fill(text, kernel=name)

    def _select_model(self) -> Iterator[str]:
        """Yield lines that advance the arguments to the memory of a block's model."""
        model = ", place.model" * self._like_blocks
        if self._like_blocks:
            yield "  const Place place = Place::of_like_blocks();"
        for number, buffer in enumerate(self.buffers):
            if buffer.kind not in ("data", "constant"):
                stride = "state_stride" if buffer.kind == "state" else "work_stride"
                yield f"  a{number} = of_model(a{number}, {stride}{model});"

    def _calls(self, partition: PartitionText, block: str) -> list[str]:
        """Return the lines with which a block of a partition calls its bodies."""
        staging = partition.staging
        lines = [] if partition.bodies[0].waits else ["start_after_others();"]
        if staging:
            lines = self._stage(partition, staging, block, lines)
        which = f"({block}) * {staging.rows}" if staging else block
        for number, body in enumerate(partition.bodies):
            if number:
                lines.append("BARRIER;")
                lines += self._write_back(partition, number - 1, block)
            arguments = [which] if staging else [which, str(partition.blocks)]
            arguments += [self._address(partition, b, block) for b in body.buffers]
            lines.append(self._call(body, arguments))
        return [f"    {line}" for line in lines]

    def _call(self, body: Emitted, arguments: Sequence[str]) -> str:
        name = self._bodies.setdefault(body.text, f"body{len(self._bodies)}")
        return f"${{kernel}}_{name}({', '.join(arguments)});"

    def _resident_step(
        self, partition: PartitionText, memory: ResidentMemory
    ) -> list[str]:
        """Return the calls of a step of a resident block; add its prologue."""
        lines = []
        for number, (kernel, body) in enumerate(
            zip(memory.kernels, partition.bodies, strict=True)
        ):
            step = "(step + 1)" if kernel.for_next else "step"
            step = "0" if kernel.is_prologue else step
            arguments = [self._block, "1"]
            for buffer in body.buffers:
                address = partition.staged(buffer) or self._argument(buffer)
                prefetch = memory.row_prefetches.get(buffer.key)
                if prefetch and not kernel.row_prefetch:  # reads one of its steps
                    address += f" + {step} % {prefetch.steps} * {prefetch.size}"
                arguments.append(address)
            call = self._call(body, arguments)
            if kernel.is_prologue:
                self._before += [f"  {call}", "  BARRIER;"]
                continue
            if number not in memory.needs_no_barrier:
                lines.append("BARRIER;")
            if kernel.row_prefetch:
                lines.append(f"if ({step} % {kernel.row_prefetch.steps} == 0)")
            lines.append(call)
        return [f"    {line}" for line in lines]

    def _keep_state(self, partition: PartitionText, memory: ResidentMemory) -> None:
        """Stage a model's variables before the loop over steps, and write them back."""
        self._before.append("  start_after_others();")
        for key, buffer in partition.buffers.items():
            if buffer.kind == "state" and key in memory.offsets:
                argument, staged = self._argument(buffer), partition.staged(buffer)
                width = memory.swizzled.get(key, 0)
                size = f"{buffer.size}, {width}" if width else f"{buffer.size}"
                self._before.append(f"  stage<{size}>({staged}, {argument});")
                self._after.append(f"  write_back<{size}>({argument}, {staged});")
        self._before.append("  wait_for_staged();")

    def _stage(
        self, partition: PartitionText, staging: RowStaging, block: str, start: list
    ) -> list[str]:
        """Return the lines with which a block starts, and stages arrays."""
        before, after = list[str](), list[str]()
        for key, buffer in partition.buffers.items():
            if key in staging.staged_whole or key in staging.staged:
                size, source = staging.size(buffer), self._argument(buffer)
                if key not in staging.staged_whole:
                    source += f" + ({block}) * {size}"
                copies = before if key in staging.ready else after
                target = partition.staged(buffer)
                copies.append(f"stage<{size}>({target}, {source});")
        waits = ["wait_for_staged();"] if before or after else []
        return [*before, *start, *after, *waits]

    def _write_back(
        self, partition: PartitionText, number: int, block: str
    ) -> Iterator[str]:
        """Yield lines that copy results of a body to where other partitions read."""
        if (staging := partition.staging) is None:
            return
        for buffer in partition.bodies[number].buffers:
            if buffer.key in staging.written_back[number]:
                size = staging.size(buffer)
                target = f"{self._argument(buffer)} + ({block}) * {size}"
                yield f"write_back<{size}>({target}, {partition.staged(buffer)});"

    def _address(self, partition: PartitionText, buffer: Buffer, block: str) -> str:
        """Return an array's address; of staged rows, that of a virtual first row."""
        staging, address = partition.staging, partition.staged(buffer)
        if not address:
            return self._argument(buffer)
        if staging is None or buffer.key in staging.staged_whole:
            return address
        return f"{address} - ({block}) * {staging.size(buffer)}"

    def _argument(self, buffer: Buffer) -> str:
        key = buffer.key
        if buffer.kind == "scratch":  # never shared, whatever it is called
            self._scratch += 1
            key = ("scratch", f"#{self._scratch}")
        if key not in self._arguments:
            self._arguments[key] = f"a{len(self.buffers)}"
            self.buffers.append(buffer)
        return self._arguments[key]


# ---- launches of a step, in order ----------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A launch: a function by name, its number of blocks, memory and arguments.

    A `resident` function has the number of steps as its last argument.
    """

    function: str
    blocks: int
    shared: int
    buffers: tuple[Buffer, ...]
    resident: bool = False


@dataclass(frozen=True)
class Emission:
    """A schedule as functions, and a call for each launch."""

    schedule: Schedule
    functions: dict[str, str]
    once: tuple[Call, ...]
    first: tuple[Call, ...]
    every: tuple[Call, ...]
    last: tuple[Call, ...]
    workspace: dict[BufferKey, int]  # offsets: of the schedule's, and of scratch arrays
    workspace_bytes: int
    keeps_cache: bool  # prefers an L1 cache to overlapping blocks of two launches
    models: bool  # whether launches have a grid axis of models

    @property
    def calls(self) -> Iterator[Call]:
        """All launches."""
        yield from (*self.once, *self.first, *self.every, *self.last)


def emit_program(program: Program, spec: GpuSpec, models: int = 1) -> Emission:
    """Return a program as CUDA C for a GPU, to train one or many models at once."""
    return emit(build(program, spec), spec, models)


def emit(schedule: Schedule, spec: GpuSpec, models: int = 1) -> Emission:
    """Return a schedule as CUDA C."""
    resident = schedule.step.resident
    alone = schedule
    if models > 1 and not resident:
        schedule = schedule_of_models(schedule, spec.products)
    emitter = _Emitter(schedule, spec, models, alone)
    counting = [emitter.count_step()] if schedule.plan.results else []
    once = tuple(map(emitter.call, schedule.once))
    first = tuple(map(emitter.call, schedule.first))
    every = [
        *([emitter.resident_call(schedule)] if resident and schedule.every else ()),
        *(() if resident else map(emitter.call, schedule.every)),
    ]
    return Emission(
        schedule,
        emitter.functions,
        once,
        first,
        (*every, *counting),
        (*map(emitter.call, schedule.last), *(counting if schedule.last else [])),
        emitter.workspace,
        emitter.workspace_bytes,
        any(_overlaps(fused.kernel) for _, fused in fused_kernels_of(schedule.every)),
        models > 1 or resident,
    )


def _overlaps(kernel: Kernel) -> bool:
    """Return whether a kernel reads elements repeatedly, in overlapping windows."""
    return isinstance(kernel, Contract) and Product(kernel).again > TUNING.window_reuse


class _Emitter:
    """Collects functions, and the scratch memory of their blocks."""

    def __init__(
        self, schedule: Schedule, spec: GpuSpec, models: int, alone: Schedule
    ) -> None:
        self.spec, self._models = spec, models
        self._has_models = models > 1 or schedule.step.resident
        self.functions: dict[str, str] = {}
        self.workspace = dict(schedule.workspace)
        self.workspace_bytes = schedule.workspace_bytes
        self._scratch = 0
        self._calls: dict[int, Call] = {}
        self._contexts: dict[int, LaunchContext] = {}  # of partitions
        if models > 1:
            every = () if schedule.step.resident else alone.every
            for launch in (*alone.once, *alone.first, *every):
                self._partitions_of_one_model(launch)

    def call(self, launch: Launch) -> Call:
        """Return the call of a launch; emit its function if it is new."""
        if id(launch) not in self._calls:
            self._calls[id(launch)] = self._new_call(launch)
        return self._calls[id(launch)]

    def _new_call(self, launch: Launch) -> Call:
        partitions = sorted(self._partitions(launch), key=PartitionText.order)
        function = Function(partitions, self._starts_like_blocks(launch))
        shared = max(partition.shared for partition in partitions)
        available = self.spec.shared_per_block
        if any(self._must_spread(partition) for partition in partitions):
            shared = max(shared, available // TUNING.row_wise_share)
        pair = launch.products > 0 and 2 * (shared + 1024) <= available
        # Loops over time fill all registers of a multiprocessor with weights.
        pair = pair and not launch.time_loops
        blocks = sum(partition.blocks for partition in partitions)
        name, text = function.named(pair, self._has_models)
        self.functions.setdefault(name, text)
        return Call(name, blocks, shared, self._renamed(function.buffers))

    def resident_call(self, schedule: Schedule) -> Call:
        """Return the launch of a resident block: all kernels of a step, in a loop."""
        partition = resident_partition(schedule, self.spec)
        function = Function([partition])
        pair = self.spec.resident_blocks(partition.shared) > 1
        name, text = function.named(pair, models=True, resident=True)
        self.functions.setdefault(name, text)
        buffers = self._renamed(function.buffers)
        return Call(name, 1, partition.shared, buffers, resident=True)

    def _starts_like_blocks(self, launch: Launch) -> bool:
        """Return whether the first blocks of all models start first.

        Blocks of a time loop wait for each other: all those of a model must start.
        """
        return self._models > 1 and not launch.time_loops

    def _must_spread(self, partition: PartitionText) -> bool:
        """Return whether row-wise blocks would crowd on a few multiprocessors."""
        capacity = TUNING.row_wise_share * self.spec.processors
        few = partition.staging is not None and partition.blocks <= capacity
        return few and self._models == 1

    def _partitions(self, launch: Launch) -> list[PartitionText]:
        """Return the partitions of a launch, tiled so that all blocks fit one wave."""
        of_last_step = launch.partitions[0].derived_from is not None
        if self._models == 1 and not of_last_step:
            return self._partitions_of_one_model(launch)
        partitions = []
        for partition in launch.partitions:
            context = self._contexts[id(partition.origin)]
            context = replace(context, models=self._models)
            partitions.append(self._partition(partition, context))
        return _joined(partitions) if self._models > 1 else partitions

    def _partitions_of_one_model(self, launch: Launch) -> list[PartitionText]:
        """Return the partitions for a single model; record their contexts."""
        context = LaunchContext(self.spec, self.spec.half, launch.products == 1)
        context = replace(context, time_loops=max(launch.time_loops, 1))
        if any(
            partition.row_wise and partition.priority is not Priority.PREFETCH
            for partition in launch.partitions
        ):  # the launch lasts as long as these few blocks: leave room for them
            limit = TUNING.prefetch_blocks_beside_rows
            context = replace(context, most_prefetch_blocks=limit)
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
        """Tile products into fewer blocks, if a launch would take a second wave."""
        wave = 2 * self.spec.processors
        context = replace(context, room=self.spec.half)

        def rank(number: int) -> tuple[bool, int]:
            """Shrink products first that nothing in this step waits for: updates."""
            written = launch.partitions[number].fused_kernels[0].writes()
            is_read = any(kind == "arena" for kind, _ in written)
            return is_read, -partitions[number].blocks

        for number in sorted(range(len(partitions)), key=rank):
            excess = sum(partition.blocks for partition in partitions) - wave
            partition, blocks = launch.partitions[number], partitions[number].blocks
            first = partition.fused_kernels[0].kernel
            if excess <= 0 or not isinstance(first, Contract):
                continue
            fewer = replace(context, most_blocks=max(blocks - excess, 1))
            retiled = self._partition(partition, fewer)
            if 0.4 * blocks <= retiled.blocks < blocks:
                partitions[number] = retiled
                self._contexts[id(partition)] = fewer

    def _renamed(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Allocate scratch arrays in the workspace, under names unique in a program."""
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
        if context.models > 1:
            blocks = min(blocks, _most_blocks_of_many(partition.fused_kernels[0]))
        return PartitionText(bodies, blocks, partition.priority)

    def _row_wise_partition(
        self, partition: Partition, context: LaunchContext
    ) -> PartitionText:
        rows_alone = rows_per_block(partition.rows, partition.origin.kernels)
        rows, fused_kernels = rows_alone, partition.fused_kernels
        if context.models > 1:
            blocks = 4 * context.spec.processors // context.models
            rows = max(rows_alone, largest_part(partition.rows, blocks))
        bodies = []
        for fused in fused_kernels:
            block_rows = rows_of_block(fused, partition.rows, rows, rows_alone)
            bodies.append(emit_rows(fused, context.spec, block_rows))
        staging = RowStaging(
            rows,
            partition.private,
            [partition.written_back_by(fused) for fused in fused_kernels],
            staged_rows(fused_kernels, partition.rows),
            {buffer.key for buffer in staged_whole(fused_kernels, partition.rows)},
            {key for fused in fused_kernels for key in fused.ready},
        )
        blocks = partition.rows // rows
        text = PartitionText(bodies, blocks, partition.priority, staging)
        if text.shared <= context.room:
            return text
        # Too large: read what other partitions computed from global memory.
        return replace(text, staging=replace(staging, staged={}, staged_whole=()))

    def count_step(self) -> Call:
        """Return the launch that counts steps, for programs with results."""
        self.functions["count_step"] = (
            'extern "C" __global__ void count_step(int* step) {\n'
            "  start_after_others();\n"
            "  if (THREAD == 0) *step += 1;\n}\n"
        )
        return Call("count_step", 1, 0, (STEP,))


def _most_blocks_of_many(fused: FusedKernel) -> int:
    """Return how many blocks of one of many models pay for their start."""
    kernel = fused.kernel
    if not isinstance(kernel, Loop) or kernel.adds or fused.column_sums:
        return 1 << 30
    return max(math.prod(kernel.shape) // TUNING.elements_per_block_of_many, 1)


def _joined(partitions: list[PartitionText]) -> list[PartitionText]:
    """Merge partitions of a single block that are not critical into one block."""
    bodies: list[Emitted] = []
    others: list[PartitionText] = []
    for partition in partitions:
        is_critical = partition.priority is Priority.CRITICAL
        if partition.blocks > 1 or is_critical or partition.staging:
            others.append(partition)
        else:
            bodies += partition.bodies
    small = [PartitionText(bodies, 1, Priority.DEFERRED)] if bodies else []
    return [*others, *small]


def resident_partition(schedule: Schedule, spec: GpuSpec) -> PartitionText:
    """Return all kernels of a step as bodies of a single resident block.

    It prefetches the rows of as many steps as leave room for another block on the same
    multiprocessor.
    """
    context = LaunchContext(spec, spec.half, alone=True)

    def partition(max_steps: int) -> PartitionText:
        kernels = pipelined_kernels(schedule, max_steps)
        bodies = [emit_fused(kernel.emitted, context) for kernel in kernels]
        memory = ResidentMemory.of(schedule, kernels, bodies)
        return PartitionText(bodies, 1, Priority.CRITICAL, memory=memory)

    choices = [partition(steps) for steps in (8, 4, 2, 1)]
    pairs = (c for c in choices if spec.resident_blocks(c.shared) > 1)
    return next(pairs, choices[0])


def emit_fused(fused: FusedKernel, context: LaunchContext) -> Emitted:
    """Return the text of a kernel and its epilogues."""
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
        if kernel.reduced:
            return emit_reduction(fused, context.spec)
        return emit_map(fused, context.spec, models=context.models)
    if isinstance(kernel, TimeLoop):
        return emit_time_loop(kernel, context, emit_fused, emit_rows)
    if isinstance(kernel, Scan):
        return emit_scan(kernel)
    if isinstance(kernel, Scatter):
        return emit_scatter(kernel)
    if isinstance(kernel, PoolBack):
        return emit_pool_back(fused)
    raise TypeError(f"no CUDA code for a {type(kernel).__name__}")


def emit_rows(fused: FusedKernel, spec: GpuSpec, rows: BlockRows) -> Emitted:
    """Return the text of a loop, for blocks that compute some rows each."""
    assert isinstance(fused.kernel, Loop)
    emit_loop = emit_reduction if fused.kernel.reduced else emit_map
    return emit_loop(fused, spec, rows)


def constants_of(emission: Emission) -> dict[BufferKey, np.ndarray]:
    """Return the constant arrays of a program."""
    constants = {}
    for call in emission.calls:
        for buffer in call.buffers:
            if buffer.kind == "constant":
                assert buffer.array is not None
                constants[buffer.key] = np.ascontiguousarray(buffer.array)
    return constants
