"""How operands of products are kept: rounded, as tensor cores take them.

Weights stay exact, and products read copies of them that are rounded once and not in
every tile. In `bf16`, the copies and all other temporary arrays that products read are
kept in two bytes, and so are large arrays between layers; loops load and store them as
float32. What weights are updated with stays float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ganglion.compiler.cuda.epilogue import Root, is_map, tables_of
from ganglion.compiler.cuda.passes.cse import map_buffers
from ganglion.compiler.cuda.passes.simplify import StepKernels
from ganglion.compiler.cuda.text import BF16, root
from ganglion.compiler.cuda.tiling import Product, on_tensor_cores
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Contract,
    Kernel,
    Load,
    Loop,
    PoolBack,
    View,
    sources,
    walk,
)

F32 = np.dtype("float32")
LARGE = 1 << 14  # elements of an array whose bytes count


def round_operands(simple: StepKernels, bf16: bool) -> StepKernels:
    """Return the kernels with operands of products as tensor cores take them."""
    copies, every = _with_copies(simple.every, bf16)
    if not bf16:
        return StepKernels(simple.once, (*copies, *every))
    kernels = (*simple.once, *copies, *every)
    operands = {root(b) for b in _operands(kernels) if b.kind == "arena"}
    found = operands | (_large(kernels) - _updates(kernels) if operands else set())
    found -= {one for kernel in kernels for one in _as_they_are(kernel)}
    found -= {one for kernel in kernels for one in _unaligned(kernel)}
    once = tuple(_halved(one, found) for one in simple.once)
    return StepKernels(once, tuple(_halved(one, found) for one in (*copies, *every)))


def _operands(kernels: Iterable[Kernel]) -> Iterator[Buffer]:
    for kernel in kernels:
        if isinstance(kernel, Contract) and on_tensor_cores(kernel, "bf16"):
            yield from (one for one in kernel.reads() if one.dtype == F32)


def _large(kernels: Sequence[Kernel]) -> set[Root]:
    """Return the temporary arrays that are worth keeping in half the bytes."""
    return {
        root(b)
        for kernel in kernels
        for b in (*kernel.reads(), *kernel.writes())
        if b.kind == "arena" and b.dtype == F32 and b.size >= LARGE
    }


def _updates(kernels: Sequence[Kernel]) -> set[Root]:
    """Return what state is computed from, element by element: gradients of weights."""
    found: set[Root] = set()
    for kernel in reversed(kernels):
        written = {(root(b), b.kind) for b in kernel.writes()}
        if is_map(kernel) and any(k == "state" or r in found for r, k in written):
            found |= {root(b) for b in kernel.reads()}
    return found


def _halved(kernel: Kernel, found: set[Root]) -> Kernel:
    def change(buffer: Buffer) -> Buffer:
        return replace(buffer, dtype=BF16) if root(buffer) in found else buffer

    return map_buffers(kernel, change)


def _as_they_are(kernel: Kernel) -> Iterator[Root]:
    """Yield the memory that a kernel needs in its own type."""
    if isinstance(kernel, Loop):
        exprs = kernel.exprs
        yield from (root(b) for one in walk(*exprs) for b in tables_of(one))
        # A largest element is found again by its value: it must not be rounded alone.
        for one in walk(*exprs):
            if isinstance(one, Apply) and one.op in ("equal", "not_equal"):
                yield from map(root, sources(*one.args))
        if kernel.adds:
            yield from map(root, kernel.writes())
    elif isinstance(kernel, Contract) and on_tensor_cores(kernel, "bf16"):
        return
    elif not isinstance(kernel, PoolBack):
        yield from map(root, (*kernel.reads(), *kernel.writes()))


def _unaligned(kernel: Kernel) -> Iterator[Root]:
    """Yield operands of which no two neighbours can be copied at once."""
    if not isinstance(kernel, Contract):
        return
    halves = _halved(kernel, {root(b) for b in kernel.reads()})
    assert isinstance(halves, Contract)
    product = Product(halves)
    for side, view in (("left", halves.left), ("right", halves.right)):
        if product.lanes(side) < 2:
            yield root(view.buffer)


def _with_copies(
    kernels: Sequence[Kernel], bf16: bool
) -> tuple[list[Loop], list[Kernel]]:
    """Let products read copies of weights; return what makes them, and all kernels."""
    written: set[Root] = set()
    late: set[Root] = set()  # what products read after it has changed
    for kernel in kernels:
        late |= written & {root(b) for b in _operands([kernel])}
        written |= {root(b) for b in kernel.writes()}
    copies: dict[Root, Loop] = {}
    for one in _operands(kernels):
        if one.kind == "state" and root(one) not in late:
            copies[root(one)] = _copy(one)
    for kernel in kernels if bf16 else ():
        for key in _unaligned(kernel):  # cannot be bf16: products round it themselves
            copies.pop(key, None)
    names = {key: loop.target.buffer for key, loop in copies.items()}

    def change(buffer: Buffer) -> Buffer:
        return names.get(root(buffer), buffer)

    made = [
        map_buffers(one, change) if isinstance(one, Contract) else one
        for one in kernels
    ]
    return list(copies.values()), made


def _copy(weights: Buffer) -> Loop:
    made = Buffer(f"{weights.name} rounded", weights.shape, F32, "arena")
    load = Load(F32, View(weights, (1,)))
    return Loop.of("pack", (weights.size,), load, View(made, (1,)))
