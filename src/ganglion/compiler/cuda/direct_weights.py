"""Weights that products of many models read directly, not as rounded copies.

For a single model, a copy that is rounded once is cheaper than rounding in every tile.
The copies of many models exceed the cache: writing and reading them takes longer. The
rounded values are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ganglion.compiler.cuda.launches import (
    NEXT,
    Launch,
    Schedule,
    fused_kernels_of,
    partitions_of,
)
from ganglion.compiler.cuda.tiling import Product
from ganglion.compiler.plan.epilogues import is_copy, is_flat
from ganglion.compiler.plan.kernels import (
    Buffer,
    BufferKey,
    Contract,
    Kernel,
    Load,
    Loop,
)
from ganglion.compiler.plan.plan import map_buffers

Direct = Mapping[str, Buffer]  # weights by the names of their copies


def direct_weights(schedule: Schedule) -> dict[str, Buffer]:
    """Return the weights whose copies are current where products, alone, read them."""
    every, used = schedule.every, _otherwise_used(schedule)
    return {
        name: weights
        for name, weights in _copies(schedule).items()
        if name not in used
        and _made_when_written(every, name, weights)
        and _unchanged_while_read(every, name, weights)
    }


def reading_weights(kernel: Kernel, direct: Direct) -> Kernel | None:
    """Return a kernel that reads weights directly, None if it only copies them."""
    if _copied_name(kernel) in direct:
        return None
    if not isinstance(kernel, Contract):
        return kernel

    def change(buffer: Buffer) -> Buffer:
        return direct.get(buffer.name, buffer) if _is_temporary(buffer) else buffer

    reads = any(change(buffer) is not buffer for buffer in kernel.reads())
    return map_buffers(kernel, change) if reads else kernel


def _is_temporary(buffer: Buffer) -> bool:
    return buffer.kind in ("arena", NEXT)


def _copied_name(kernel: Kernel) -> str | None:
    """Return the name of the rounded copy that a loop writes, None for other loops."""
    if not isinstance(kernel, Loop) or not is_copy(kernel):
        return None
    assert isinstance(kernel.expr, Load)
    view, target = kernel.expr.view, kernel.target
    plain = view.buffer.dtype == target.buffer.dtype == np.float32
    same = view.buffer.size == target.buffer.size and all(
        is_flat(side, kernel.outer) for side in (view, target)
    )
    is_of_weights = view.buffer.kind == "state" and _is_temporary(target.buffer)
    return target.buffer.name if plain and same and is_of_weights else None


def _copying_epilogues(schedule: Schedule) -> Iterator[Loop]:
    """Yield the epilogues of a step that copy weights."""
    for partition in partitions_of(schedule.every):
        for fused in () if partition.row_wise else partition.fused_kernels:
            yield from (loop for loop in fused.epilogues if _copied_name(loop))


def _copies(schedule: Schedule) -> dict[str, Buffer]:
    """Return the weights that a step copies."""
    found = {}
    for loop in _copying_epilogues(schedule):
        assert isinstance(loop.expr, Load)
        found[loop.target.buffer.name] = loop.expr.view.buffer
    return found


def _otherwise_used(schedule: Schedule) -> set[str]:
    """Return the arrays that other kernels than matrix products read or write."""
    copying = {id(loop) for loop in _copying_epilogues(schedule)}
    used: set[str] = set()
    for _, fused in fused_kernels_of(schedule.every):
        for kernel in fused.kernels:
            if id(kernel) not in copying:
                used |= _names(kernel)
    for _, fused in fused_kernels_of([*schedule.once, *schedule.first]):
        for kernel in fused.kernels:
            if not _copied_name(kernel):
                used |= _names(kernel)
    return used


def _names(kernel: Kernel) -> set[str]:
    """Return the temporary arrays that a kernel touches, except a product's factors."""
    touched = list(kernel.writes())
    if not (isinstance(kernel, Contract) and Product(kernel).is_matrix_product):
        touched += kernel.reads()
    return {buffer.name for buffer in touched if _is_temporary(buffer)}


def _writers(launches: list[Launch], key: BufferKey) -> set[int]:
    return {n for n, fused in fused_kernels_of(launches) if key in fused.writes()}


def _made_when_written(launches: list[Launch], name: str, weights: Buffer) -> bool:
    made = _writers(launches, (NEXT, name)) | _writers(launches, ("arena", name))
    return _writers(launches, weights.key) <= made


def _unchanged_while_read(launches: list[Launch], name: str, weights: Buffer) -> bool:
    """Return whether weights change only in launches after those of their readers."""
    read = [n for n, f in fused_kernels_of(launches) if ("arena", name) in f.reads()]
    return max(read, default=-1) < min(_writers(launches, weights.key), default=0)
