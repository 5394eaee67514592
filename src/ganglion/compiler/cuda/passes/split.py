"""Long sums are split so that they keep a GPU busy; what is split is added up after."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from ganglion.compiler.cuda.conv_tiling import split_k_of
from ganglion.compiler.cuda.epilogue import Root, SplitContract, is_map, is_producer
from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.cuda.passes.rewrite import Uses
from ganglion.compiler.cuda.scheduler import by_priority
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import computed, root
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Expr,
    Kernel,
    Load,
    Loop,
    Shape,
    View,
    rewrite,
)


def split_long_contractions(step: StepKernels, spec: GpuSpec) -> StepKernels:
    """Split long contractions into as many parts as keep a GPU busy, then add those."""
    every: list[Kernel] = []
    for kernel in step.every:
        parts = 1
        if isinstance(kernel, Contract) and is_producer(kernel):
            parts = split_k_of(kernel, spec)
        every += [kernel] if parts == 1 else _split_contraction(kernel, parts)
    return replace(step, every=tuple(every))


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
    parts = {id(one): _row_parts(one, producers) for one in deferred}
    every: list[Kernel] = []
    for kernel in kernels:
        count = parts.get(id(kernel), 1)
        every += [kernel] if count == 1 else _split_rows(kernel, count)
    return replace(step, every=tuple(every))


def _row_parts(kernel: Kernel, producers: dict[Root, Kernel]) -> int:
    """Return into how many parts of its rows a sum is split."""
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.reduced != 1:
        return 1
    long = math.prod(kernel.shape) >= TUNING.fewest_summed
    if not long or len(kernel.outer) != 1 or kernel.adds:
        return 1
    columns, rows = kernel.shape
    views = [expr.view for expr, _ in kernel.outputs if isinstance(expr, Load)]
    flat = [one for one in views if (one.strides, one.offset) == ((1, columns), 0)]
    maps = [one for one in flat if is_map(producers.get(root(one.buffer), kernel))]
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
            Loop.of(kernel.name, shape, part, View.whole(partial), 1, "sum")
        )
        totals.append((Load(dtype, View(partial, (1, columns))), target))
    total = replace(kernel, shape=(columns, parts), outputs=tuple(totals))
    return [*partial_sums, total]
