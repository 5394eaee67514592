"""Contractions, and long sums, that a GPU computes better in another way.

Gradients are read inside of their padded copies; depthwise convolutions and narrow
products are loops; long sums are split so that they keep a GPU busy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ganglion.compiler.cuda.conv_tiling import choose_wgrad_tiling, conv_wgrad_of
from ganglion.compiler.cuda.fusion import (
    SplitContract,
    is_copy,
    is_flat,
    is_map,
    is_producer,
    joined,
    loop_of,
    sizes,
)
from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.cuda.scheduler import by_priority
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import computed
from ganglion.compiler.cuda.tiling import (
    Product,
    choose_split_k,
    on_tensor_cores,
    plain_splits,
)
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import (
    Axis,
    Buffer,
    Contract,
    Expr,
    Kernel,
    Load,
    Loop,
    Shape,
    View,
    chained,
    fixed,
    rewrite,
    row_major,
    walk,
)
from ganglion.compiler.plan.passes.loops import collapse
from ganglion.compiler.plan.plan import Uses


@dataclass(frozen=True)
class _Copy:
    """Where an array lies in another one: a loop that copied it, and when."""

    number: int
    loop: Loop

    def strides(self, axes: Sequence[tuple[int, int]]) -> list[int] | None:
        """Return the strides in the copy of axes (size, stride) of the array.

        An axis must stay inside of one of the loop's.
        """
        shape, far = self.loop.shape, self.loop.target.strides
        packed = row_major(shape)
        left = [(size - 1) * step for size, step in zip(shape, packed, strict=True)]
        result = []
        for size, stride in axes:
            if size == 1 or stride == 0:
                result.append(0)
                continue
            along = next((a for a, step in enumerate(packed) if not stride % step), -1)
            left[along] -= (size - 1) * stride
            if stride < 0 or left[along] < 0:
                return None
            result.append(stride // packed[along] * far[along])
        return result


def read_inside_padding(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let products read an array inside of its padded copy, where there is one.

    A gradient is needed twice: with zeros around it, for the gradient of the images,
    and as it is, for the gradient of the weights. The first holds the second.
    """
    uses = Uses(kernels)
    copies: dict[BufferKey, _Copy] = {}
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and is_copy(kernel):
            assert isinstance(kernel.expr, Load)
            source, target = kernel.expr.view, kernel.target.buffer
            larger = source.buffer.size < target.size
            lasts = uses.writers[target.key][-1] == number
            ours = source.buffer.kind == target.kind == "arena"
            if larger and lasts and ours and is_flat(source, kernel.shape):
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
    """Let one side of a product be read from a copy, where that can be."""
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
    there = View(target.buffer, row_major(target.buffer.shape), target.offset)
    changes: dict[str, Any] = {side: there}
    remaining = iter(strides)
    for name in groups:
        changes[name] = tuple(
            replace(axis, **{side: next(remaining)}) for axis in getattr(kernel, name)
        )
    return replace(kernel, **changes)


def depthwise_as_loops(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Yield kernels, those that never mix channels as loops over channels.

    Channels that never mix would fill one column of a tile, or one row. They lie side
    by side in memory: a sum over a small window is written out, and a thread has the
    sums of many taps of a window, for its gradient, in one run through the images.
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
    """Return a sum over a small window as a map, if neighbours lie side by side."""
    outer = len(kernel.outer)
    window = kernel.shape[outer:]
    fits = (
        kernel.how == "sum"
        and not (kernel.adds or len(kernel.outputs) > 1)
        and 1 < math.prod(window) <= TUNING.unrolled_window
        and math.prod(kernel.outer) >= TUNING.fewest_depthwise_elements
        and kernel.expr.dtype == kernel.target.buffer.dtype
        and kernel.expr.dtype.kind == "f"
        and _side_by_side(kernel.expr, outer)
    )
    if not fits:
        return kernel
    indices = itertools.product(*map(range, window))
    total = chained("add", [fixed(kernel.expr, index) for index in indices])
    return Loop.of(kernel.name, kernel.outer, total, kernel.target)


def _side_by_side(expr: Expr, outer: int) -> bool:
    """Whether an expression loads neighbours, of the last axis that is stored."""
    steps = [
        node.view.strides[outer - 1] for node in walk(expr) if isinstance(node, Load)
    ]
    return 1 in steps and all(
        0 <= step <= TUNING.most_depthwise_columns for step in steps
    )


def _is_depthwise(kernel: Contract) -> bool:
    """Return whether a product has but a column or few for each of many neighbours."""
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
    """Yield loops over channels that add up what is for each place of a window."""
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
    """Return the contraction for one tap."""
    moved = {}
    for side in ("left", "right", "out"):
        view = getattr(kernel, side)
        steps = [
            getattr(axis, side) * i for axis, i in zip(kernel.rows, tap, strict=True)
        ]
        moved[side] = replace(view, offset=view.offset + sum(steps))
    return replace(kernel, rows=(), **moved)


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
    """Split long contractions into as many parts as keep a GPU busy, then add those."""
    every: list[Kernel] = []
    for kernel in step.every:
        parts = 1
        if isinstance(kernel, Contract) and is_producer(kernel):
            parts = _split_k(kernel, spec)
        every += [kernel] if parts == 1 else _split_contraction(kernel, parts)
    return replace(step, every=tuple(every))


def _split_k(kernel: Contract, spec: GpuSpec) -> int:
    """Return into how many parts to split the sums of a contraction: 1 for none."""
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
    """Split long deferred sums by columns of what maps compute, to fuse them there.

    Each block of a map adds up its own rows; the blocks' sums are added up after.
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
    """Return into how many parts of its rows a sum is split."""
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.reduced != 1:
        return 1
    long = math.prod(kernel.shape) >= TUNING.fewest_summed
    if not long or len(kernel.outer) != 1 or kernel.adds:
        return 1
    columns, rows = kernel.shape
    views = [expr.view for expr, _ in kernel.outputs if isinstance(expr, Load)]
    flat = [view for view in views if (view.strides, view.offset) == ((1, columns), 0)]
    maps = [view for view in flat if is_map(producers.get(view.buffer.key, kernel))]
    if len(maps) != len(kernel.outputs):
        return 1
    wanted = max(columns * rows // TUNING.summed_per_block, 1)
    return math.gcd(rows, 1 << (wanted - 1).bit_length())


def _split_rows(kernel: Kernel, parts: int) -> list[Loop]:
    """Return sums of parts of the rows, of each array, and the sums of those."""
    assert isinstance(kernel, Loop)
    columns, rows = kernel.shape
    each = rows // parts

    def strides(old: Shape) -> Shape:
        return (old[1] * each, *old) if old else old

    partial_sums: list[Loop] = []
    totals: list[tuple[Expr, View]] = []
    for expr, target in kernel.outputs:
        dtype = computed(target.buffer.dtype)
        name = f"{target.buffer.name} rows"
        partial = Buffer(name, (parts, columns), dtype, "arena")
        shape, part = (parts, columns, each), rewrite(expr, strides)
        partial_sums.append(
            Loop.of(kernel.name, shape, part, View.of(partial), 1, "sum")
        )
        totals.append((Load(dtype, View(partial, (1, columns))), target))
    total = replace(kernel, shape=(columns, parts), outputs=tuple(totals))
    return [*partial_sums, total]
