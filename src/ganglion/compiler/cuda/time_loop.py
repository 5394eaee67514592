"""Emit time loops as CUDA C: a single function that runs all steps.

If the rows of a batch are independent within the loop, a block runs all steps of some
rows: it synchronizes with no other block, and keeps the weights in registers and shared
memory. If those are too small, several blocks share rows: each computes some units,
with their weights, and waits for the others' state once in a step. If rows depend on
each other, a single block runs the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from ganglion.compiler.cuda.fusion import BlockRows, FusedKernel, loop_of
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    fill,
    is_wide,
)
from ganglion.compiler.cuda.tiling import LaunchContext, on_tensor_cores
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    BufferKey,
    Contract,
    Kernel,
    Literal,
    Load,
    Loop,
    walk,
)
from ganglion.compiler.plan.plan import rounded
from ganglion.compiler.plan.time_loop import TimeLoop, Window, independent_rows

ROWS = 8  # of a block: the n of an `mma` instruction
WARPS = THREADS // 32
WEIGHT_REGISTERS = 128  # of a thread
SHARED_FOR_REST = 48 * 1024  # bytes, for rows and temporary arrays
STEP_NANOSECONDS = 1000.0

EmitKernel = Callable[[FusedKernel, LaunchContext], Emitted]
EmitRows = Callable[[FusedKernel, GpuSpec, BlockRows], Emitted]


def emit_time_loop(
    loop: TimeLoop,
    context: LaunchContext,
    emit_kernel: EmitKernel,
    emit_rows: EmitRows,
) -> Emitted:
    """Return the text of a loop over time."""
    count = independent_rows(loop)
    kernels = [_as_rows(kernel, loop, context.spec) for kernel in loop.body]
    if count == 1 or None in kernels:
        # A nested time loop must not share rows among blocks: there is only this one.
        nested = replace(context, time_loops=context.spec.processors + 1)
        bodies = [emit_kernel(FusedKernel(kernel), nested) for kernel in loop.body]
        calls = [_Called(body, ["0", "1"]) for body in bodies]
        return _Emission(loop, 1, 1).text(calls)
    of_rows = [kernel for kernel in kernels if kernel]
    blocks = context.spec.processors // context.time_loops
    shares = _shares(loop, of_rows, count, context.spec, blocks)
    rows = _rows(count, blocks // shares)
    emission = _Emission(loop, count, rows, shares)
    return emission.row_wise_text(of_rows, context.spec, emit_rows)


def _as_rows(kernel: Kernel, loop: TimeLoop, spec: GpuSpec) -> Kernel | None:
    """Return a kernel in a form that a block can run on its rows, None if it cannot."""
    if isinstance(kernel, Loop):
        return None if kernel.adds else kernel
    if type(kernel) is not Contract:
        return None
    if is_recurrent_product(kernel, loop) and on_tensor_cores(kernel, spec.products):
        return kernel
    if math.prod(axis.size for axis in kernel.inner) == 0:
        return None
    batch = [axis for axis in kernel.batch if axis.size > 1]
    return loop_of(kernel, (*batch, *kernel.rows, *kernel.columns))


def is_recurrent_product(kernel: Contract, loop: TimeLoop) -> bool:
    """Return whether a kernel multiplies plain matrices, with a constant right one."""
    if len(kernel.rows) != 1 or len(kernel.inner) != 1 or len(kernel.columns) != 1:
        return False
    if any(axis.size > 1 for axis in kernel.batch):
        return False
    (columns,), (inner,) = kernel.columns, kernel.inner
    written = {loop.memory_of(b) for other in loop.body for b in other.writes()}
    is_constant = loop.memory_of(kernel.right.buffer) not in written
    is_constant = is_constant and kernel.right.buffer.kind != "window"
    return is_constant and columns.right == columns.out == inner.left == 1


# ---- rows and units of a block -------------------------------------------------------


def _rows(count: int, max_groups: int) -> int:
    """Return how many rows a block takes: the fewest that need no more groups."""
    sizes = [n for n in range(1, ROWS + 1) if count % n == 0]
    return next((n for n in sizes if count // n <= max_groups), sizes[-1])


def _shares(
    loop: TimeLoop, kernels: Sequence[Kernel], count: int, spec: GpuSpec, blocks: int
) -> int:
    """Return how many blocks share rows: the fewest that can hold all weights.

    There must not be more than run at once, because they wait for each other.
    """
    units = _separate_units(loop, kernels)
    products = [kernel for kernel in kernels if isinstance(kernel, Contract)]
    if not units or not products:
        return 1
    groups = count // _rows(count, 0)
    fitting = [
        n for n in (1, 2, 4, 8) if n * groups <= blocks and units % (16 * n) == 0
    ]
    for shares in fitting:
        room = spec.shared_per_block - SHARED_FOR_REST
        capacity = WEIGHT_REGISTERS // 4 + room // (WARPS * 512)
        needed = sum(_Weights(product, shares).fragments for product in products)
        if needed <= capacity:
            return shares
    return max(fitting, default=1)


class _Weights:
    """How the weights of a product are divided among warps; see `KeptWeights`."""

    def __init__(self, product: Contract, shares: int) -> None:
        self.columns, self.inner = product.columns[0].size // shares, product.inner[0]
        tiles = -(-self.columns // 16)
        self.parts = 4 if tiles <= WARPS // 4 else 2 if tiles <= WARPS // 2 else 1
        self.per_warp = -(-tiles // (WARPS // self.parts))
        self.steps = -(-self.inner.size // (8 * self.parts))

    @property
    def fragments(self) -> int:
        """The number of fragments of a warp."""
        return self.per_warp * self.steps

    @property
    def row_bytes(self) -> int:
        """The bytes of staged rows in shared memory."""
        return 8 * (self.parts * self.steps * 8 + 4) * 4

    @property
    def partial_bytes(self) -> int:
        """The bytes of the partial sums of warps."""
        return WARPS * self.per_warp * 512 if self.parts > 1 else 0


def _separate_units(loop: TimeLoop, kernels: Sequence[Kernel]) -> int:
    """Return the number of units, if they depend on each other only through products.

    0 if loops combine them, or if a product reads what the same step overwrites.
    """
    loops = [kernel for kernel in kernels if isinstance(kernel, Loop)]
    shapes = {kernel.shape for kernel in loops}
    if len(shapes) != 1 or any(kernel.reduced for kernel in loops):
        return 0
    (shape,) = shapes
    if len(shape) != 2 or not all(_shifts(kernel) is not None for kernel in loops):
        return 0
    units, written = shape[1], {loop.memory_of(b) for k in kernels for b in k.writes()}
    for kernel in loops:
        views = [e.view for e in walk(*kernel.exprs) if isinstance(e, Load)]
        views += [view for _, view in kernel.outputs]
        for view in views:
            if loop.memory_of(view.buffer) in written and (
                view.strides[1] != 1 or view.offset % units or view.strides[0] % units
            ):
                return 0
    for product in kernels:
        if isinstance(product, Contract):
            (columns,), (row,) = product.columns, product.rows
            sizes = (columns.size, row.out, product.out.offset)
            aligned = not any(size % units for size in sizes)
            if not aligned or product.left.buffer.kind != "window":
                return 0
    return units


def _shifts(kernel: Loop) -> dict[BufferKey, bool] | None:
    """Return which buffers a loop indexes by unit; None if strides are not plain."""
    shifts: dict[BufferKey, bool] = {}
    for expr in walk(*kernel.exprs):
        if isinstance(expr, Load):
            views = [expr.view]
        elif isinstance(expr, (Apply, Literal)):
            continue
        else:
            return None
        for view in views:
            if view.strides[-1] not in (0, 1):
                return None
            along = view.strides[-1] == 1
            if shifts.setdefault(view.buffer.key, along) != along:
                return None
    for _, view in kernel.outputs:
        if view.strides[-1] != 1 or not shifts.setdefault(view.buffer.key, True):
            return None
    return shifts


@dataclass(frozen=True)
class _Called:
    """A body, and the arguments before its pointers."""

    body: Emitted
    first: Sequence[str]


class _Emission:
    """A time loop under construction."""

    def __init__(self, loop: TimeLoop, count: int, rows: int, shares: int = 1) -> None:
        self.loop, self.count, self.rows, self.shares = loop, count, rows, shares
        self.body = Body(is_wide((*loop.reads(), *loop.writes())))
        self.windows = {window.buffer.key: window for window in loop.windows}
        self.shared = 0
        self._staged: dict[BufferKey, str] = {}  # temporary arrays in shared memory
        self._names: dict[BufferKey, str] = {}  # of windows
        self._before: list[str] = []  # the bodies' functions

    # ---- a single block, all rows ----------------------------------------------------

    def text(self, calls: list[_Called]) -> Emitted:
        """Return the text of a loop that calls bodies one after the other."""
        self.shared = max((called.body.shared for called in calls), default=0)
        with self._steps():
            for called in calls:
                self._call(called)
        return self._emitted(1)

    # ---- blocks with rows of their own ---------------------------------------------

    def row_wise_text(
        self, kernels: Sequence[Kernel], spec: GpuSpec, emit_rows: EmitRows
    ) -> Emitted:
        """Return the text of a loop whose blocks each run all steps of some rows."""
        body, shares = self.body, self.shares
        bodies = {}
        for kernel in kernels:
            if isinstance(kernel, Loop):
                share = self._share(kernel)
                rows = BlockRows(self.rows, share.outer[:1])
                bodies[id(kernel)] = emit_rows(FusedKernel(share), spec, rows)
        self.shared = max((b.shared for b in bodies.values()), default=0)
        groups = self.count // self.rows
        body.do(f"const int share = block % {shares};")
        # A block has several groups only in a nested loop, which has a single block.
        with body.block(
            f"for (int group = block / {shares}; group < {groups}; group += blocks)"
        ):
            self._emit_group(kernels, bodies, spec.shared_per_block - 1024)
        return self._emitted(groups * shares)

    def _emit_group(
        self, kernels: Sequence[Kernel], bodies: dict[int, Emitted], room: int
    ) -> None:
        """Append all steps of a block's rows."""
        body, shares = self.body, self.shares
        body.do(f"const int row0 = group * {self.rows};")
        products = [k for k in kernels if isinstance(k, Contract)]
        self._stage_temporaries(room // 4)
        names = {id(k): self._keep_weights(i, k, room) for i, k in enumerate(products)}
        waits = [k for k in products if shares > 1 and self._is_written(k.left.buffer)]
        if waits:
            counters = body.scratch(self.count // self.rows, "uint64")
            turns = self.loop.steps * len(waits)
            body.do(f"BlocksTogether blocks_of({counters} + group, {shares}, {turns});")
        with self._steps():
            for kernel in kernels:
                if isinstance(kernel, Contract):
                    if kernel in waits:
                        body.do("blocks_of.wait();")
                    self._multiply(names[id(kernel)], kernel)
                else:
                    assert isinstance(kernel, Loop)
                    self._call(_Called(bodies[id(kernel)], ["row0"]), kernel)

    def _share(self, kernel: Loop) -> Loop:
        """Return a loop over the units of a single block."""
        *rows, units = kernel.shape
        return replace(kernel, shape=(*rows, units // self.shares))

    def _is_written(self, buffer: Buffer) -> bool:
        written = {self.loop.memory_of(b) for k in self.loop.body for b in k.writes()}
        return self.loop.memory_of(buffer) in written

    def _reserve(self, nbytes: int) -> int:
        start = rounded(self.shared, 128)
        self.shared = start + nbytes
        return start

    def _stage_temporaries(self, available: int) -> None:
        """Place temporary arrays of a step in shared memory, as far as they fit."""
        for buffer in self.loop.writes():
            if buffer.kind != "arena" or buffer.key in self._stacked_keys():
                continue
            size = buffer.size // self.count * self.rows
            nbytes = size * buffer.dtype.itemsize
            if nbytes <= available and buffer.size % self.count == 0:
                start, kind = self._reserve(nbytes), c_type(buffer.dtype)
                name = self.body.fresh("staged")
                value = f"({kind}*)(shared_bytes + {start}) - group * {size}"
                self.body.do(f"{kind}* const {name} = {value};")
                self._staged[buffer.key] = name
                available -= nbytes

    def _stacked_keys(self) -> set[BufferKey]:
        return {window.stacked.key for window in self.loop.windows}

    def _keep_weights(self, number: int, kernel: Contract, room: int) -> str:
        """Append the load of a product's weights; return the name of their struct."""
        weights, columns = _Weights(kernel, self.shares), kernel.columns[0].size
        left = self._reserve(weights.row_bytes)
        partial = self._reserve(weights.partial_bytes)
        held = min(weights.fragments, WEIGHT_REGISTERS // 4)
        room = max(room - self.shared - 128, 0) // (WARPS * 512)
        staged = min(weights.fragments - held, room)
        start = self._reserve(staged * WARPS * 512)
        inner = weights.inner
        sizes = (self.rows, weights.columns, inner.size, inner.right, held, staged)
        shape = (*sizes, *self._units(columns), self._width(kernel))
        name = f"weights{number}"
        self.body.do(f"unsigned* left{number} = (unsigned*)(shared_bytes + {left});")
        view = kernel.right
        source = affine([self.body.pointer(view.buffer)], (1,), view.offset)
        self.body.do(
            f"KeptWeights<{', '.join(map(str, shape))}> {name}({source}, "
            f"shared_bytes + {start}, left{number}, share);"
        )
        self.body.do(f"float* partial{number} = (float*)(shared_bytes + {partial});")
        return name

    def _width(self, kernel: Contract) -> int:
        """Return how many elements of a row an aligned load can read."""
        view = kernel.left
        window = self.windows.get(view.buffer.key)
        steps = (window.offset, window.stride) if window else ()
        lines = (kernel.inner[0].size, kernel.rows[0].left, view.offset, *steps)
        return 1 if any(size % 4 for size in lines) else 4

    def _units(self, columns: int) -> tuple[int, int]:
        """Return the columns of a group of units, and how many of them a block has."""
        if self.shares == 1:
            return columns, columns
        units = next(k.shape[1] for k in self.loop.body if isinstance(k, Loop))
        return units, units // self.shares

    def _multiply(self, name: str, kernel: Contract) -> None:
        (rows,) = kernel.rows
        left = name.replace("weights", "left")
        source = affine(
            [self._pointer(kernel.left.buffer), "row0"],
            (1, rows.left),
            kernel.left.offset,
        )
        target = affine(
            [self._pointer(kernel.out.buffer), "row0"], (1, rows.out), kernel.out.offset
        )
        self.body.do(f"{name}.stage_rows({left}, {source}, {rows.left});")
        self.body.do("BARRIER;")
        partial = name.replace("weights", "partial")
        self.body.do(f"{name}.multiply({left}, {partial}, {target}, {rows.out});")
        self.body.do("BARRIER;")

    # ---- both ----------------------------------------------------------------------

    def _steps(self) -> AbstractContextManager[None]:
        self.body.do("#pragma unroll 1")
        return self.body.block(f"for (int t = 0; t < {self.loop.steps}; t++)")

    def _call(self, called: _Called, kernel: Loop | None = None) -> None:
        shifts = _shifts(kernel) or {} if kernel and self.shares > 1 else {}
        number = len(self._before)
        name = f"${{body}}_k{number}"
        self._before.append(fill(called.body.text, body=name))
        buffers = [
            replace(b, name=f"#{number}{b.name}") if b.kind == "scratch" else b
            for b in called.body.buffers
        ]
        arguments = list(called.first)
        for buffer in buffers:
            shift = ""
            if kernel and shifts.get(buffer.key):
                shift = f" + share * {kernel.shape[1] // self.shares}"
            arguments.append(self._pointer(buffer) + shift)
        self.body.do(f"{name}({', '.join(arguments)});")
        self.body.do("BARRIER;")

    def _pointer(self, buffer: Buffer) -> str:
        """Return the address of a buffer of the body, at the current step."""
        if buffer.key in self._staged:
            return self._staged[buffer.key]
        window = self.windows.get(buffer.key)
        if window is None:
            return self.body.pointer(buffer)
        return f"({self.body.pointer(window.stacked)} + {_start(window)})"

    def _emitted(self, blocks: int) -> Emitted:
        self.body.before = self._before
        emitted = self.body.emitted(blocks, self.shared)
        return replace(emitted, work=self.loop.steps * STEP_NANOSECONDS)


def _start(window: Window) -> str:
    step = f"t % {window.slots}" if window.slots else "t"
    return f"({window.offset} + (long long)({step}) * {window.stride})"
