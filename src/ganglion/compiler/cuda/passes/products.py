"""Rewrite products and long sums into forms that suit a GPU.

Products read the interior of padded gradients; depthwise convolutions and narrow
products become loops; long sums are split to keep a GPU busy; operands are stored as
bytes, or rounded for tensor cores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ganglion.compiler.cuda.conv_tiling import choose_wgrad_tiling, conv_wgrad_of
from ganglion.compiler.cuda.fusion import (
    SplitContract,
    is_producer,
    joined,
    loop_of,
    sizes,
)
from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.cuda.scheduler import by_priority
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import BF16, computed
from ganglion.compiler.cuda.tiling import (
    Product,
    choose_split_k,
    on_tensor_cores,
    plain_splits,
)
from ganglion.compiler.plan.epilogues import is_copy, is_flat, is_map, tables_of
from ganglion.compiler.plan.kernels import (
    Apply,
    Axis,
    Buffer,
    BufferKey,
    Contract,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    Shape,
    View,
    chained,
    fixed,
    rewrite,
    row_major,
    sources,
    walk,
)
from ganglion.compiler.plan.passes.loops import collapse
from ganglion.compiler.plan.plan import Uses, map_buffers, read_by, written_by
from ganglion.compiler.plan.scan_scatter import PoolBack
from ganglion.system.records import record


@dataclass(frozen=True)
class _Copy:
    """A loop that copies an array into a larger array, and its number."""

    number: int
    loop: Loop

    def strides(self, axes: Sequence[tuple[int, int]]) -> list[int] | None:
        """Return the strides in the copy of axes (size, stride) of the array.

        None unless every axis runs within a single axis of the copying loop.
        """
        shape, targets = self.loop.shape, self.loop.target.strides
        packed = row_major(shape)
        reach = [(size - 1) * step for size, step in zip(shape, packed, strict=True)]
        result = []
        for size, stride in axes:
            if size == 1 or stride == 0:
                result.append(0)
                continue
            along = next((a for a, step in enumerate(packed) if not stride % step), -1)
            reach[along] -= (size - 1) * stride
            if stride < 0 or reach[along] < 0:
                return None
            result.append(stride // packed[along] * targets[along])
        return result


def read_inside_padding(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let products read the interior of a padded copy in place of the array itself.

    A convolution's gradient is read padded, for the gradient of the images, and
    unpadded, for the gradient of the weights: only the padded copy need be stored.
    """
    uses = Uses(kernels)
    copies: dict[BufferKey, _Copy] = {}
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and is_copy(kernel):
            assert isinstance(kernel.expr, Load)
            source, target = kernel.expr.view, kernel.target.buffer
            is_padded = source.buffer.size < target.size
            is_last_write = uses.writers[target.key][-1] == number
            in_arena = source.buffer.kind == target.kind == "arena"
            is_entire = is_flat(source, kernel.shape)
            if is_padded and is_last_write and in_arena and is_entire:
                copies.setdefault(source.buffer.key, _Copy(number, kernel))
    result: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Contract):
            for side in ("left", "right"):
                kernel = _read_from_copy(kernel, side, copies, uses, number)
        result.append(kernel)
    return result


def _read_from_copy(
    kernel: Contract, side: str, copies: dict[BufferKey, _Copy], uses: Uses, number: int
) -> Contract:
    """Return a product that reads a side from a padded copy, if that is possible."""
    view: View = getattr(kernel, side)
    copy = copies.get(view.buffer.key)
    written = uses.writers[view.buffer.key]
    if copy is None or view.offset or not written[-1] < copy.number < number:
        return kernel
    groups = ("batch", "rows", "columns", "inner")
    axes: list[Axis] = [axis for name in groups for axis in getattr(kernel, name)]
    strides = copy.strides([(axis.size, getattr(axis, side)) for axis in axes])
    if strides is None:
        return kernel
    target = copy.loop.target
    interior = View(target.buffer, row_major(target.buffer.shape), target.offset)
    changes: dict[str, Any] = {side: interior}
    remaining = iter(strides)
    for name in groups:
        changes[name] = tuple(
            replace(axis, **{side: next(remaining)}) for axis in getattr(kernel, name)
        )
    return replace(kernel, **changes)


def depthwise_as_loops(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Yield kernels, with depthwise convolutions as loops over channels.

    Each channel would fill only a column or row of a tile. As a loop, adjacent threads
    have adjacent channels: sums over a small window are unrolled, and for the gradient
    of the filter, a thread sums several taps in a single pass over the images.
    """
    for kernel in kernels:
        if isinstance(kernel, Loop):
            yield _unrolled(kernel)
        elif type(kernel) is not Contract or not _is_depthwise(kernel):
            yield kernel
        elif (
            math.prod(sizes(kernel.rows))
            <= TUNING.unrolled_window
            < math.prod(sizes(kernel.inner))
        ):
            yield from _sums_of_taps(kernel)
        else:
            *batch, channels = kernel.batch
            outer = (*batch, *kernel.rows, channels, *kernel.columns)
            yield _unrolled(loop_of(kernel, [a for a in outer if a.size > 1]))


def _unrolled(kernel: Loop) -> Loop:
    """Return a sum over a small window as a map, if adjacent results load vectors."""
    outer = len(kernel.outer)
    window = kernel.shape[outer:]
    fits = (
        kernel.how == "sum"
        and not (kernel.adds or len(kernel.outputs) > 1)
        and 1 < math.prod(window) <= TUNING.unrolled_window
        and math.prod(kernel.outer) >= TUNING.fewest_depthwise_elements
        and kernel.expr.dtype == kernel.target.buffer.dtype
        and kernel.expr.dtype.kind == "f"
        and _loads_vectors(kernel.expr, outer)
    )
    if not fits:
        return kernel
    indices = itertools.product(*map(range, window))
    total = chained("add", [fixed(kernel.expr, index) for index in indices])
    return Loop.of(kernel.name, kernel.outer, total, kernel.target)


def _loads_vectors(expr: Expr, outer: int) -> bool:
    """Return whether adjacent iterations of the last outer axis load vectors."""
    steps = [
        node.view.strides[outer - 1] for node in walk(expr) if isinstance(node, Load)
    ]
    return 1 in steps and all(
        0 <= step <= TUNING.most_depthwise_columns for step in steps
    )


def _is_depthwise(kernel: Contract) -> bool:
    """Return whether a product has few columns for each of many adjacent channels."""
    columns = math.prod(sizes(kernel.columns))
    return (
        columns <= TUNING.most_depthwise_columns
        and bool(kernel.batch)
        and kernel.batch[-1].size >= TUNING.fewest_depthwise_channels
        and kernel.batch[-1].left <= TUNING.most_depthwise_columns
        and kernel.batch[-1].out == columns
        and kernel.out.buffer.dtype.kind == "f"
        and not (kernel.bits or kernel.nonzeros or kernel.packed)
    )


def _sums_of_taps(kernel: Contract) -> Iterator[Kernel]:
    """Yield loops over channels that compute the sums of several taps each."""
    outer = [axis for axis in (*kernel.batch, *kernel.columns) if axis.size > 1]
    taps = list(itertools.product(*map(range, sizes(kernel.rows))))
    loops = -(-len(taps) // TUNING.window_sums_per_thread)
    for part in range(loops):
        loops_of_taps = [
            loop_of(_at_tap(kernel, tap), outer) for tap in taps[part::loops]
        ]
        outputs = tuple(output for tap in loops_of_taps for output in tap.outputs)
        yield collapse(replace(loops_of_taps[0], outputs=outputs))


def _at_tap(kernel: Contract, tap: Sequence[int]) -> Contract:
    """Return the contraction for a single tap."""
    views = {}
    for side in ("left", "right", "out"):
        view = getattr(kernel, side)
        steps = [
            getattr(axis, side) * i for axis, i in zip(kernel.rows, tap, strict=True)
        ]
        views[side] = replace(view, offset=view.offset + sum(steps))
    return replace(kernel, rows=(), **views)


def narrow_as_loop(kernel: Kernel) -> Kernel:
    """Return a narrow product as a loop, so that it can be fused row-wise."""
    if not isinstance(kernel, Contract) or type(kernel) is not Contract:
        return kernel
    product = Product(kernel)
    rows = joined(product.rows, "left", "out")
    suits = (
        min(product.n, product.k) <= TUNING.narrow_product
        and len(rows) == 1
        and product.batches == 1
        and TUNING.fewest_rows <= product.m <= TUNING.most_rows
        and product.m * product.n * product.k <= TUNING.most_row_wise_products
        and product.k > 1
        and kernel.inner[-1].left == 1
    )
    if not suits:
        return kernel
    return loop_of(kernel, (*rows, *product.columns))


def split_long_contractions(step: StepKernels, spec: GpuSpec) -> StepKernels:
    """Split long contractions into parts that keep a GPU busy, and add up the parts."""
    every: list[Kernel] = []
    for kernel in step.every:
        parts = 1
        if isinstance(kernel, Contract) and is_producer(kernel):
            parts = _split_k(kernel, spec)
        every += [kernel] if parts == 1 else _split_contraction(kernel, parts)
    return replace(step, every=tuple(every))


def _split_k(kernel: Contract, spec: GpuSpec) -> int:
    """Return the number of parts for split-K: 1 leaves the contraction unsplit."""
    product, room = Product(kernel), spec.half
    short = product.k < TUNING.split_k_length
    if short or product.m * product.n > TUNING.split_k_most_results:
        return 1
    if not on_tensor_cores(kernel, spec.products):
        return plain_splits(product, spec)
    parts, cost = choose_split_k(product, spec, room)
    if product.is_matrix_product:
        return parts
    wgrad = conv_wgrad_of(product, spec.bf16)
    tiling = choose_wgrad_tiling(product, wgrad, spec, room) if wgrad else None
    return tiling[0].parts if tiling and tiling[1] < cost else parts


def _split_contraction(kernel: Kernel, parts: int) -> tuple[SplitContract, Loop]:
    assert isinstance(kernel, Contract)
    target = kernel.out.buffer
    name, dtype = f"{target.name} parts", computed(target.dtype)
    partial = Buffer(name, (parts, *target.shape), dtype, "arena")
    values = {field.name: getattr(kernel, field.name) for field in fields(kernel)}
    out = View(partial, kernel.out.strides, kernel.out.offset)
    load = Load(dtype, View(partial, (1, target.size)))
    return (
        SplitContract(**(values | {"out": out, "parts": parts})),
        Loop.of("sum", (target.size, parts), load, View(target, (1,)), 1, "sum"),
    )


def split_column_sums(step: StepKernels) -> StepKernels:
    """Split long deferred column sums of maps, so that they are fused into the maps.

    Each block of a map sums its own rows; another kernel adds up the blocks' sums.
    """
    kernels = step.every
    producers = {
        key: kernels[numbers[0]]
        for key, numbers in Uses(kernels).writers.items()
        if len(numbers) == 1
    }
    _, deferred = by_priority(kernels)
    parts = {id(kernel): _row_parts(kernel, producers) for kernel in deferred}
    every: list[Kernel] = []
    for kernel in kernels:
        count = parts.get(id(kernel), 1)
        every += [kernel] if count == 1 else _split_rows(kernel, count)
    return replace(step, every=tuple(every))


def _row_parts(kernel: Kernel, producers: dict[BufferKey, Kernel]) -> int:
    """Return into how many parts the rows of a column sum are split: 1 for none."""
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.reduced != 1:
        return 1
    is_long = math.prod(kernel.shape) >= TUNING.fewest_summed
    if not is_long or len(kernel.outer) != 1 or kernel.adds:
        return 1
    columns, rows = kernel.shape
    views = [expr.view for expr, _ in kernel.outputs if isinstance(expr, Load)]
    flat = [view for view in views if (view.strides, view.offset) == ((1, columns), 0)]
    maps = [view for view in flat if is_map(producers.get(view.buffer.key, kernel))]
    if len(maps) != len(kernel.outputs):
        return 1
    blocks = max(columns * rows // TUNING.summed_per_block, 1)
    return math.gcd(rows, 1 << (blocks - 1).bit_length())


def _split_rows(kernel: Kernel, parts: int) -> list[Loop]:
    """Return partial sums of each array, and the sum of those."""
    assert isinstance(kernel, Loop)
    columns, rows = kernel.shape
    part_rows = rows // parts

    def strides(old: Shape) -> Shape:
        return (old[1] * part_rows, *old) if old else old

    partial_sums: list[Loop] = []
    totals: list[tuple[Expr, View]] = []
    for expr, target in kernel.outputs:
        dtype = computed(target.buffer.dtype)
        name = f"{target.buffer.name} rows"
        partial = Buffer(name, (parts, columns), dtype, "arena")
        shape, part = (parts, columns, part_rows), rewrite(expr, strides)
        partial_sums.append(
            Loop.of(kernel.name, shape, part, View.of(partial), 1, "sum")
        )
        totals.append((Load(dtype, View(partial, (1, columns))), target))
    total = replace(kernel, shape=(columns, parts), outputs=tuple(totals))
    return [*partial_sums, total]


# ---- how operands are stored: as bytes -----------------------------------------------
# Images are given as bytes, which models scale by a number before their first layer.
# Kept as bytes, they take a quarter of the memory and of the bandwidth. The product
# multiplies the bytes, which are exact in every precision, and scales its sums.

BYTE, F32 = np.dtype("uint8"), np.dtype("float32")
CHUNK = 16  # bytes of an asynchronous copy


@record(eq=False)
class Scaled(Buffer):
    """Bytes whose values are multiplied by a scale."""

    scale: float = 1.0

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype.name}{list(self.shape)} × {self.scale:g}"


def keep_bytes(step: StepKernels) -> StepKernels:
    """Keep arrays of scaled bytes as bytes, where only products read them."""
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
    """Return the bytes that a map scales, and the buffer to store them unscaled."""
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
    """Return whether all readers of an array are products that copy it by chunks."""
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


# ---- how operands are stored: rounded for tensor cores -------------------------------
# Weights stay exact; products read copies that are rounded once, and not in every tile.
# In `bf16`, these copies, all other temporary operands of products and large arrays
# between layers are stored as bfloat16; loops convert them to float32 and back.
# Gradients of weights stay float32.


def round_operands(step: StepKernels, bf16: bool) -> StepKernels:
    """Return a step whose products read operands that are rounded for tensor cores."""
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
    """Return the temporary arrays that are large enough to be stored as bfloat16."""
    return {
        b.key
        for kernel in kernels
        for b in (*kernel.reads(), *kernel.writes())
        if b.kind == "arena" and b.dtype == F32 and b.size >= TUNING.bf16_elements
    }


def _updates(kernels: Sequence[Kernel]) -> set[BufferKey]:
    """Return the arrays from which maps compute state: gradients of weights."""
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
    """Yield the buffers that a kernel must read or write in float32."""
    if isinstance(kernel, Loop):
        exprs = kernel.exprs
        yield from (b.key for node in walk(*exprs) for b in tables_of(node))
        # Gradients find a maximum by comparing: neither side may be rounded.
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
    """Yield operands that cannot be copied by pairs of bfloat16."""
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
    """Return loops that copy weights, and the kernels, whose products read copies."""
    written: set[BufferKey] = set()
    read_after_change: set[BufferKey] = set()  # weights that products read once updated
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
