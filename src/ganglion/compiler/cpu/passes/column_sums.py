"""Fuse column sums into products: the gradients of biases into those of weights.

Both read all rows of the same gradients, which are often larger than any cache. A
product that reads them panel by panel sums their columns along the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ganglion.compiler.cpu.products.small_gemm import goes_by_panels
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Kernel,
    Load,
    Loop,
    View,
    row_major,
)
from ganglion.compiler.plan.plan import Uses


class Sums(NamedTuple):
    """One or two loops that sum columns, by number, and their result."""

    loops: list[int]
    result: Buffer


def sum_in_products(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with column sums fused into products."""
    products = [
        (number, kernel)
        for number, kernel in enumerate(kernels)
        if isinstance(kernel, Contract) and _suits(kernel)
    ]
    if not products:
        return list(kernels)
    left = dict(enumerate(kernels))  # by number, with gaps where loops were fused
    uses = Uses(kernels)
    for now, product in products:
        for sums in _sums_of(left, uses, product):
            at = min(now, sums.loops[-1])
            if _can_join(uses, product, sums, now, at):
                for number in {now, *sums.loops}:
                    uses.remove(number, left.pop(number))
                left[at] = replace(product, sums=sums.result)
                uses.add(at, left[at])
                break
    return [left[number] for number in sorted(left)]


def _suits(product: Contract) -> bool:
    """Return whether a product reads all of its right operand panel by panel."""
    axes = (product.rows, product.columns, product.inner)
    if product.batch or any(len(axis) > 1 for axis in axes):
        return False
    if product.bits or product.rounded:
        return False
    (inner,), (columns,) = product.inner, product.columns
    right = product.right
    view = View(right.buffer, (inner.right, columns.right), right.offset)
    if columns.right != 1 or not _covers(view, (inner.size, columns.size)):
        return False
    # Lists of nonzeros must not decide: results have the same bits with them.
    plain = replace(product, nonzeros=None) if product.nonzeros else product
    return product.packed is not None or goes_by_panels(plain)


def _covers(view: View, shape: Sequence[int]) -> bool:
    """Return whether a loop visits every element of a buffer exactly once."""
    size = 1
    for stride, count in sorted(zip(view.strides, shape, strict=True)):
        if count > 1 and stride != size:
            return False
        size *= count
    return view.offset == 0 and size == view.buffer.size


def _sums_of(
    kernels: Mapping[int, Kernel], uses: Uses, product: Contract
) -> Iterator[Sums]:
    """Yield the column sums of a product's right operand."""
    width = product.columns[0].size
    for first in uses.readers[product.right.buffer.key]:
        partial = _summed(kernels[first], width)
        if partial is None:
            continue
        if partial.size == width:
            yield Sums([first], partial)
            continue
        readers, writers = uses.readers[partial.key], uses.writers[partial.key]
        if len(readers) == len(writers) == 1 and partial.kind == "arena":
            total = _summed(kernels[readers[0]], width)
            if total is not None and total.size == width:
                yield Sums([first, readers[0]], total)


def _summed(kernel: Kernel, width: int) -> Buffer | None:
    """Return the result of a loop that sums rows of this width, None for others."""
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.adds:
        return None
    (expr, target), *more = kernel.outputs
    if more or not isinstance(expr, Load) or not kernel.outer:
        return None
    keeps_columns = expr.view.strides[len(kernel.outer) - 1] == 1
    stored = target.strides == row_major(kernel.outer) and _covers(target, kernel.outer)
    complete = _covers(expr.view, kernel.shape) and kernel.outer[-1] % width == 0
    return target.buffer if keeps_columns and stored and complete else None


def _can_join(uses: Uses, product: Contract, sums: Sums, now: int, at: int) -> bool:
    """Return whether a product can move from `now` to `at`, and compute the sums."""
    result, out = sums.result, product.out.buffer
    if result.kind != "arena" or result.dtype != out.dtype:
        return False
    needed = [n for b in product.reads() for n in uses.writers[b.key]]
    touched = (*uses.readers[out.key], *uses.writers[out.key])
    is_free = not any(at <= n < now for n in touched)
    is_only_writer = uses.writers[result.key] == [sums.loops[-1]]
    return is_only_writer and is_free and all(n < at for n in needed)
