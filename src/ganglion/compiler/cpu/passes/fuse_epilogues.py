"""Fuse loops as epilogues into products.

Such loops read a product's result: bias, activation, the mask of its gradient, dropout,
the update of weights.

A loop moves up to its product, and the kernels that it depends on move before it,
unless they depend on the product. A loop that reads several products, such as the
fused updates of equal layers, is split: each part becomes an epilogue of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ganglion.compiler.cpu.elementwise import fails_at_zero, is_gathered
from ganglion.compiler.cpu.products import gemm, packing
from ganglion.compiler.cpu.products.small_gemm import repays_epilogue
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.epilogues import along, can_follow, is_map, is_producer
from ganglion.compiler.plan.kernels import Buffer, Contract, Expr, Kernel, Load, Loop


def fuse_epilogues(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with loops as epilogues of products, where that is possible.

    An output that depends on several products is fused into the last of them.
    """
    order = list(kernels)
    readers = _Readers(order)
    for number in range(len(order) - 1, -1, -1):
        product = order[number]
        if isinstance(product, Contract) and _suits(product):
            _fuse(order, number, product, readers)
    return order


class _Readers:
    """How many kernels read each buffer, and the loops among them."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self.counts: dict[Buffer, int] = {}
        self.loops: dict[Buffer, list[Loop]] = {}
        for kernel in kernels:
            self.add(kernel)

    def add(self, kernel: Kernel) -> None:
        """Add a kernel."""
        for buffer in kernel.memory_read:
            self.counts[buffer] = self.counts.get(buffer, 0) + 1
        if isinstance(kernel, Loop) and is_map(kernel):
            for buffer in kernel.memory_read:
                self.loops.setdefault(buffer, []).append(kernel)

    def remove(self, kernel: Kernel) -> None:
        """Remove a kernel."""
        for buffer in kernel.memory_read:
            self.counts[buffer] -= 1
        if isinstance(kernel, Loop) and is_map(kernel):
            for buffer in kernel.memory_read:
                self.loops[buffer].remove(kernel)


def _suits(product: Contract) -> bool:
    """Return whether a product has complete sums in tiles that fill vectors."""
    if len(product.columns) != 1 or not product.rows or not product.inner:
        return False
    if not repays_epilogue(product) or not (product.packed or sums_stay(product)):
        return False
    columns = product.columns[0]
    wide = columns.size >= CPU.epilogue_columns and columns.out == 1
    return wide and product.out.buffer.kind == "arena" and is_producer(product)


def _fuse(
    order: list[Kernel], number: int, product: Contract, readers: _Readers
) -> None:
    """Fuse the first loop that can be an epilogue into a product."""
    out = product.out.buffer.root
    for loop in sorted(readers.loops.get(out, ()), key=order.index):
        dependent, rest = _split(loop, out)
        epilogue = _epilogue_of(product, dependent) if dependent else None
        where = order.index(loop)
        if epilogue is None or where < number:
            continue
        before = _needed(order, number, where, epilogue)
        if before is None:
            continue
        readers.remove(loop)
        fused = replace(product, epilogue=epilogue)
        if readers.counts.get(out, 0) == 0 and sums_stay(product):
            fused = _unstored(fused)
        between = [k for k in order[number + 1 : where] if k not in before]
        behind = [rest] if rest else []
        order[number : where + 1] = [*before, fused, *between, *behind]
        readers.remove(product)
        for kernel in (fused, *behind):
            readers.add(kernel)
        return


def _split(loop: Loop, out: Buffer) -> tuple[Loop | None, Loop | None]:
    """Split a loop into the outputs that depend on a buffer, and the others.

    It remains in one part if one part overwrites what the other reads or writes.
    """
    if len(loop.outputs) == 1:
        return loop, None
    depend = set(loop.reading(out))
    for expr in loop.every_expr:
        if not depend.isdisjoint(expr.children):
            depend.add(expr)
    parts: tuple[list, list] = ([], [])
    for output in loop.outputs:
        parts[output[0] not in depend].append(output)
    if not parts[1]:
        return loop, None
    first, rest = (loop.with_outputs(tuple(outputs)) for outputs in parts)
    is_free = first.memory_written.isdisjoint(rest.memory_read | rest.memory_written)
    is_free = is_free and rest.memory_written.isdisjoint(first.memory_read)
    return (first, rest) if is_free else (loop, None)


def _epilogue_of(product: Contract, loop: Loop) -> Loop | None:
    """Return a loop as an epilogue of a product, None if it cannot be."""
    if not can_follow([product], loop) or any(map(fails_at_zero, loop.every_expr)):
        return None
    epilogue = along(loop, product)
    if epilogue is None:
        return None
    if product.packed and _streams(epilogue, product) > CPU.packed_streams:
        return None
    last = len(epilogue.shape) - 1
    gathers = any(is_gathered(expr, last) for expr in epilogue.leaves)
    is_contiguous = all(view.strides[last] == 1 for _, view in epilogue.outputs)
    return epilogue if is_contiguous and not gathers else None


def _streams(epilogue: Loop, product: Contract) -> int:
    """Return how many arrays an epilogue reads or writes row by row."""
    out = product.out.buffer.root
    loads = {expr.view for expr in epilogue.leaves if isinstance(expr, Load)}
    views = [*loads, *(view for _, view in epilogue.outputs)]
    return sum(v.strides[-2] != 0 for v in views if v.buffer.root is not out)


def _needed(
    order: Sequence[Kernel], number: int, where: int, epilogue: Loop
) -> list[Kernel] | None:
    """Return the kernels that must move before an epilogue, None if they cannot."""
    reads, writes = set(epilogue.memory_read), set(epilogue.memory_written)
    reads -= order[number].memory_written
    needed: list[Kernel] = []
    for kernel in reversed(order[number + 1 : where]):
        written = kernel.memory_written
        if not (reads.isdisjoint(written) and writes.isdisjoint(kernel.memory_touched)):
            needed.insert(0, kernel)
            reads |= kernel.memory_read
            writes |= written
    product = order[number]
    for kernel in needed:
        if not product.memory_touched.isdisjoint(kernel.memory_written):
            return None
        if not product.memory_written.isdisjoint(kernel.memory_read):
            return None
    return needed


def sums_stay(product: Contract) -> bool:
    """Return whether the sums of a tile are complete when it leaves registers.

    They are not if the inner axis is blocked: partial sums are stored between blocks.
    """
    in_blocks = packing.in_blocks if product.packed else gemm.in_blocks
    return not in_blocks(product)


def _unstored(product: Contract) -> Contract:
    """Return a product whose result has no memory: only its epilogue reads it."""
    out, epilogue = product.out.buffer.root, product.epilogue
    assert epilogue is not None
    register = replace(out, kind="register")

    def held(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.view.buffer.root is out:
            return Load(expr.dtype, replace(expr.view, buffer=register))
        return expr

    return replace(
        product,
        out=replace(product.out, buffer=register),
        epilogue=epilogue.with_exprs(held, {}),
    )
