"""The plan of an exported file: the kernels of a forward pass, and their memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cpu.pipeline import verify_memory
from ganglion.compiler.cpu.plan import for_one_thread, place_in_arena
from ganglion.compiler.pipeline import Pass, Pipeline, graph_pass, kernel_pass
from ganglion.compiler.plan import plan as plans
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Contract,
    Expr,
    Kernel,
    Load,
    Loop,
    Memory,
    mapped,
)
from ganglion.compiler.plan.lowering import Preferences, lower
from ganglion.compiler.plan.passes.graph import (
    integer_products_as_sums,
    light_inputs_in_loops,
    without_empty,
)
from ganglion.compiler.plan.passes.loops import collapse_all, fuse
from ganglion.compiler.plan.passes.short_floats import compute_in_float32
from ganglion.compiler.plan.plan import Plan, map_buffers
from ganglion.compiler.plan.rules import RULES
from ganglion.export.borders import fill_borders
from ganglion.export.inference import Inference
from ganglion.export.loops import inline_loops, write_windows_out

ALIGNMENT = 64  # bytes, of every buffer and of every constant

WINDOWS = (
    kernel_pass("windows", "sums over small windows are unrolled", write_windows_out),
    kernel_pass(
        "inline", "arrays that a single loop reads are computed within it", inline_loops
    ),
)
BORDERS = kernel_pass(
    "borders", "a fill skips elements that are overwritten next", fill_borders
)
PORTABLE = Pipeline(
    (
        graph_pass(
            "short-floats",
            "16-bit floats are only stored: arithmetic is in float32",
            compute_in_float32,
        ),
        graph_pass(
            "integer-products",
            "contractions are of floats only: integer products become sums",
            integer_products_as_sums,
            ops=("matmul",),
            in_loops=True,
        ),
        graph_pass(
            "no-empty",
            "later passes may assume that no array is empty",
            without_empty,
            in_loops=True,
        ),
        graph_pass(
            "loop-inputs",
            "loops add the bias of their input products themselves",
            light_inputs_in_loops,
            ops=("scan",),
            in_loops=True,
        ),
        Pass(
            "lower",
            "values become buffers, ops become kernels",
            lambda program: lower(program, Preferences(strides_by_phase=True), RULES),
        ),
        *WINDOWS,
        kernel_pass(
            "collapse",
            "fewer axes make tighter loops",
            collapse_all,
        ),
        kernel_pass("fuse", "loops that share data read it once", fuse, in_loops=True),
        BORDERS,
    )
)


@dataclass(frozen=True)
class ExportPlan:
    """Kernels in order, the offsets of their buffers, and the constants they read."""

    inference: Inference
    kernels: tuple[Kernel, ...]
    offsets: dict[Buffer, int]  # in the workspace, of temporary buffers
    workspace: int  # bytes


def planned(inference: Inference, pipeline: Pipeline = PORTABLE) -> ExportPlan:
    """Return the plan of a forward pass, with constants computed."""
    plan = with_constants(pipeline.run(inference.program))
    placed = place_in_arena(for_one_thread(plan))
    verify_memory(placed)
    return ExportPlan(inference, placed.kernels, placed.offsets, placed.arena)


def with_constants(plan: Plan) -> Plan:
    """Run the kernels that read only constants, and drop them."""
    writers = Counter(root for k in plan.kernels for root in k.memory_written)
    known: dict[Buffer, np.ndarray] = {}
    constants: dict[Buffer, Buffer] = {}  # each once: a file has every array once

    def change(buffer: Buffer) -> Buffer:
        array = known.get(buffer.root)
        if array is None:
            return buffer
        if buffer not in constants:
            shaped = array.reshape(buffer.shape)
            constants[buffer] = replace(
                buffer, kind="constant", array=shaped, alias_of=None
            )
        return constants[buffer]

    kept: list[Kernel] = []
    for kernel in plan.kernels:
        if _is_constant(kernel, known, writers):
            known |= _computed(kernel, known)
        else:
            kept.append(map_buffers(kernel, change) if known else kernel)
    return plans.verify(replace(plan, kernels=tuple(kept)))


def _is_constant(
    kernel: Kernel, known: dict[Buffer, np.ndarray], writers: Counter[Buffer]
) -> bool:
    own = all(
        root.kind == "arena" and writers[root] == 1 for root in kernel.memory_written
    )
    read = kernel.memory_read
    return own and all(root.kind == "constant" or root in known for root in read)


def _computed(
    kernel: Kernel, known: dict[Buffer, np.ndarray]
) -> dict[Buffer, np.ndarray]:
    new = {root: np.zeros(root.size, root.dtype) for root in kernel.memory_written}
    with np.errstate(all="ignore"):
        kernel.run(Memory({}, known | new))
    return new


def constants_of(kernels: Sequence[Kernel]) -> list[Buffer]:
    """Return the constants that kernels read, each once."""
    read = [b for kernel in kernels for b in kernel.reads() if b.array is not None]
    return list({id(buffer.array): buffer for buffer in read}.values())


def in_bytes(plan: ExportPlan) -> ExportPlan:
    """Return the plan with constants of small integers as int8, a byte each."""
    narrow: dict[int, np.ndarray] = {}
    for buffer in constants_of(plan.kernels):
        array = buffer.array
        assert array is not None
        if array.dtype == np.float32 and _is_whole(array):
            narrow[id(array)] = array.astype(np.int8)
    for kernel in plan.kernels:
        for read in _not_as_bytes(kernel):
            narrow.pop(id(read.array), None)

    def change(buffer: Buffer) -> Buffer:
        array = narrow.get(id(buffer.array))
        if array is None:
            return buffer
        return replace(buffer, dtype=array.dtype, array=array)

    def widen(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.view.buffer.dtype != expr.dtype:
            stored = replace(expr, dtype=expr.view.buffer.dtype)
            return Apply(expr.dtype, "cast", (stored,))
        return expr

    kernels = []
    for kernel in plan.kernels:
        kernel = map_buffers(kernel, change)
        if isinstance(kernel, Loop):
            pairs = [(mapped(expr, widen), view) for expr, view in kernel.outputs]
            kernel = replace(kernel, outputs=tuple(pairs))
        kernels.append(kernel)
    return replace(plan, kernels=tuple(kernels))


def _not_as_bytes(kernel: Kernel) -> list[Buffer]:
    """Return the buffers that a kernel reads only as floats: not product weights."""
    if isinstance(kernel, Loop):
        return []
    plain = type(kernel) is Contract and not (kernel.packed or kernel.bits)
    weights = kernel.right.buffer if isinstance(kernel, Contract) and plain else None
    return [buffer for buffer in kernel.reads() if buffer is not weights]


def _is_whole(array: np.ndarray) -> bool:
    return array.size > 1 and bool(
        (np.abs(array) <= 127).all() and (array == np.rint(array)).all()
    )
