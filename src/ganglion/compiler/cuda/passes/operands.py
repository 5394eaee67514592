"""How operands of products are stored: as bytes, or rounded for tensor cores.

Images come as bytes, and what a first layer multiplies is each of them times a number.
As bytes they take a quarter of the memory, and of the time to fetch them. A product
multiplies them as they are, which no precision rounds, and scales its sums.

Weights stay exact, and products read copies of them that are rounded once and not in
every tile. In `bf16`, the copies and all other temporary arrays that products read are
kept in two bytes, and so are large arrays between layers; loops load and store them as
float32. What weights are updated with stays float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cuda.fusion import is_flat, is_map, tables_of
from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.cuda.text import BF16
from ganglion.compiler.cuda.tiling import Product, on_tensor_cores
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Contract,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    PoolBack,
    View,
    sources,
    walk,
)
from ganglion.compiler.plan.plan import map_buffers, read_by, written_by

BYTE, F32 = np.dtype("uint8"), np.dtype("float32")
CHUNK = 16  # bytes that are copied at once


@dataclass(frozen=True, eq=False)
class Scaled(Buffer):
    """Bytes, of which each stands for itself times a number."""

    scale: float = 1.0

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype.name}{list(self.shape)} × {self.scale:g}"


def keep_bytes(step: StepKernels) -> StepKernels:
    """Keep what only products read as bytes, where it is scaled bytes."""
    kernels = step.every
    scaled_by: dict[BufferKey, tuple[Loop, Expr, Scaled]] = {}
    for kernel in kernels:
        if isinstance(kernel, Loop) and (source_and_buffer := _scaled(kernel)):
            scaled_by[kernel.target.buffer.key] = (kernel, *source_and_buffer)
    as_bytes = {
        key for key in scaled_by if _is_read_as_bytes(key, scaled_by[key][2], kernels)
    }

    def change(buffer: Buffer) -> Buffer:
        return scaled_by[buffer.key][2] if buffer.key in as_bytes else buffer

    result = []
    for kernel in kernels:
        if isinstance(kernel, Loop) and kernel.target.buffer.key in as_bytes:
            _, source, scaled = scaled_by[kernel.target.buffer.key]
            target = replace(kernel.target, buffer=scaled)
            kernel = replace(kernel, outputs=((source, target),))
        elif isinstance(kernel, Contract):
            kernel = map_buffers(kernel, change)
        result.append(kernel)
    return replace(step, every=tuple(result))


def _scaled(kernel: Loop) -> tuple[Expr, Scaled] | None:
    """Return the bytes that a map scales, and what it stores if it leaves them so."""
    target = kernel.target
    fits = is_map(kernel) and len(kernel.outputs) == 1 and is_flat(target, kernel.outer)
    if not fits or target.buffer.kind != "arena" or target.buffer.dtype != F32:
        return None
    expr, scale = kernel.expr, 1.0
    if isinstance(expr, Apply) and expr.op == "multiply":
        factors = [argument for argument in expr.args if isinstance(argument, Literal)]
        others = [
            argument for argument in expr.args if not isinstance(argument, Literal)
        ]
        if len(factors) != 1:
            return None
        scale, (expr,) = float(factors[0].value), others
    if not isinstance(expr, Apply) or expr.op != "cast" or expr.args[0].dtype != BYTE:
        return None
    buffer = target.buffer
    return expr.args[0], Scaled(
        buffer.name, buffer.shape, BYTE, buffer.kind, scale=scale
    )


def _is_read_as_bytes(
    key: BufferKey, scaled: Scaled, kernels: Iterable[Kernel]
) -> bool:
    """Whether all that read an array are products that copy it in whole chunks."""
    users = [kernel for kernel in kernels if key in read_by([kernel])]
    writers = [kernel for kernel in kernels if key in written_by([kernel])]
    return (
        len(writers) == 1
        and bool(users)
        and all(_copies_bytes(kernel, key, scaled) for kernel in users)
    )


def _copies_bytes(kernel: Kernel, key: BufferKey, scaled: Scaled) -> bool:
    if not isinstance(kernel, Contract) or not on_tensor_cores(kernel, "tf32"):
        return False
    if kernel.left.buffer.key != key or kernel.right.buffer.key == key:
        return False
    left = replace(kernel.left, buffer=scaled)
    return Product(replace(kernel, left=left)).lanes("left") == CHUNK


# ---- rounded operands --------------------------------------------------------------


def round_operands(step: StepKernels, bf16: bool) -> StepKernels:
    """Return the kernels with operands of products as tensor cores take them."""
    copies, every = _with_copies(step.every, bf16)
    step = replace(step, every=(*copies, *every))
    if not bf16:
        return step
    kernels = (*step.once, *step.every)
    operands = {b.key for b in _operands(kernels) if b.kind == "arena"}
    halved = operands | (_large(kernels) - _updates(kernels) if operands else set())
    halved -= {key for kernel in kernels for key in _needed_exact(kernel)}
    halved -= {key for kernel in kernels for key in _unaligned(kernel)}
    return step.map(lambda kernel: _in_bf16(kernel, halved))


def _operands(kernels: Iterable[Kernel]) -> Iterator[Buffer]:
    for kernel in kernels:
        if isinstance(kernel, Contract) and on_tensor_cores(kernel, "bf16"):
            yield from (buffer for buffer in kernel.reads() if buffer.dtype == F32)


def _large(kernels: Sequence[Kernel]) -> set[BufferKey]:
    """Return the temporary arrays that are worth keeping in half the bytes."""
    return {
        b.key
        for kernel in kernels
        for b in (*kernel.reads(), *kernel.writes())
        if b.kind == "arena" and b.dtype == F32 and b.size >= TUNING.bf16_elements
    }


def _updates(kernels: Sequence[Kernel]) -> set[BufferKey]:
    """Return what state is computed from, element by element: gradients of weights."""
    updates: set[BufferKey] = set()
    for kernel in reversed(kernels):
        written = {(b.key, b.kind) for b in kernel.writes()}
        if is_map(kernel) and any(k == "state" or r in updates for r, k in written):
            updates |= {b.key for b in kernel.reads()}
    return updates


def _in_bf16(kernel: Kernel, halved: set[BufferKey]) -> Kernel:
    def change(buffer: Buffer) -> Buffer:
        return replace(buffer, dtype=BF16) if buffer.key in halved else buffer

    return map_buffers(kernel, change)


def _needed_exact(kernel: Kernel) -> Iterator[BufferKey]:
    """Yield the memory that a kernel needs in its own type."""
    if isinstance(kernel, Loop):
        exprs = kernel.exprs
        yield from (b.key for node in walk(*exprs) for b in tables_of(node))
        # A largest element is found again by its value: it must not be rounded alone.
        for node in walk(*exprs):
            if isinstance(node, Apply) and node.op in ("equal", "not_equal"):
                yield from (buffer.key for buffer in sources(*node.args))
        if kernel.adds:
            yield from (buffer.key for buffer in kernel.writes())
    elif isinstance(kernel, Contract) and on_tensor_cores(kernel, "bf16"):
        return
    elif not isinstance(kernel, PoolBack):
        yield from (buffer.key for buffer in (*kernel.reads(), *kernel.writes()))


def _unaligned(kernel: Kernel) -> Iterator[BufferKey]:
    """Yield operands of which no two neighbours can be copied at once."""
    if not isinstance(kernel, Contract):
        return
    halves = _in_bf16(kernel, {b.key for b in kernel.reads()})
    assert isinstance(halves, Contract)
    product = Product(halves)
    for side, view in (("left", halves.left), ("right", halves.right)):
        if product.lanes(side) < 2:
            yield view.buffer.key


def _with_copies(
    kernels: Sequence[Kernel], bf16: bool
) -> tuple[list[Loop], list[Kernel]]:
    """Let products read copies of weights; return what makes them, and all kernels."""
    written: set[BufferKey] = set()
    read_after_change: set[BufferKey] = set()  # what products read after it has changed
    for kernel in kernels:
        read_after_change |= written & {b.key for b in _operands([kernel])}
        written |= {b.key for b in kernel.writes()}
    copies: dict[BufferKey, Loop] = {}
    for buffer in _operands(kernels):
        if buffer.kind == "state" and buffer.key not in read_after_change:
            copies[buffer.key] = _copy(buffer)
    for kernel in kernels if bf16 else ():
        for key in _unaligned(kernel):  # cannot be bf16: products round it themselves
            copies.pop(key, None)
    names = {key: loop.target.buffer for key, loop in copies.items()}

    def change(buffer: Buffer) -> Buffer:
        return names.get(buffer.key, buffer)

    result = [
        map_buffers(kernel, change) if isinstance(kernel, Contract) else kernel
        for kernel in kernels
    ]
    return list(copies.values()), result


def _copy(weights: Buffer) -> Loop:
    copy = Buffer(f"{weights.name} rounded", weights.shape, F32, "arena")
    load = Load(F32, View(weights, (1,)))
    return Loop.of("pack", (weights.size,), load, View(copy, (1,)))
