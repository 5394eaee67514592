"""Resident steps: a single block runs them, with all arrays in its shared memory.

The block runs many steps in a single launch. It stages the variables of its model
before the first step, and writes them back after the last. Products read transposed
matrices without copies; the parts of an update that do not depend on its gradient are
computed first, so that updates are epilogues; gradients of ReLUs compare results. See
also `one_block.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganglion.compiler.cuda.fusion import loop_of
from ganglion.compiler.cuda.launches import (
    StepKernels,
)
from ganglion.compiler.cuda.passes.simplify import compare_results
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.cuda.text import THREADS
from ganglion.compiler.plan.epilogues import is_copy
from ganglion.compiler.plan.kernels import (
    Axis,
    Buffer,
    BufferKey,
    Contract,
    Expr,
    Indirect,
    Kernel,
    Load,
    Loop,
    View,
    mapped,
    rewrite,
    row_major,
)
from ganglion.compiler.plan.plan import Uses, expression_key, read_by

_AXES = ("batch", "rows", "columns", "inner")


def make_resident(step: StepKernels) -> StepKernels:
    """Return a step for a resident block."""
    kernels = [_thin_as_loop(kernel) for kernel in step.every]
    kernels = _read_as_it_lies(_compute_early(kernels))
    kernels = _gather_first(compare_results(kernels))
    return replace(step, every=tuple(kernels), resident=True)


def _thin_as_loop(kernel: Kernel) -> Kernel:
    """Return a product of few rows or columns as a loop: tiles would be empty."""
    if type(kernel) is not Contract or not kernel.inner:
        return kernel
    sizes = [math.prod(a.size for a in axes) for axes in (kernel.rows, kernel.columns)]
    if min(sizes) > TUNING.resident_thin:
        return kernel
    return loop_of(kernel, (*kernel.batch, *kernel.rows, *kernel.columns))


def _compute_early(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Move outputs to the front that depend on nothing computed before them."""
    uses = Uses(kernels)
    first: list[Kernel] = []
    others: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and not kernel.reduced and number:
            early = [
                (expr, view)
                for expr, view in kernel.outputs
                if view.buffer.kind == "arena"
                and len(uses.writers[view.buffer.key]) == 1
                and not any(
                    writer < number
                    for buffer in replace(kernel, outputs=((expr, view),)).reads()
                    for writer in uses.writers[buffer.key]
                )
            ]
            if early and len(early) < len(kernel.outputs):
                first.append(replace(kernel, outputs=tuple(early)))
                known = {expr: Load(expr.dtype, view) for expr, view in early}
                late = [
                    (_with_loads(expr, known), view)
                    for expr, view in kernel.outputs
                    if expr not in known
                ]
                kernel = replace(kernel, outputs=tuple(late))
        others.append(kernel)
    return [*first, *others]


def _with_loads(expr: Expr, known: Mapping[Expr, Load]) -> Expr:
    """Return an expression with known subexpressions replaced by loads."""
    return mapped(expr, lambda part: known.get(part, part))


def _gather_first(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Gather the few elements of the data that loops read by index in advance.

    The latency of global memory is then paid once for all of them.
    """
    gathered: dict[Any, Buffer] = {}
    changed: list[Kernel] = []
    for kernel in kernels:
        if not isinstance(kernel, Loop) or isinstance(kernel.expr, Indirect):
            changed.append(kernel)
            continue

        def gather(expr: Expr, loop: Loop = kernel) -> Expr:
            axes = _axes_of_few(expr, loop)
            if axes is None:
                return expr
            shape = tuple(loop.shape[axis] for axis in axes)
            alone = rewrite(expr, lambda strides: tuple(strides[a] for a in axes))
            key = shape, expression_key(alone)
            if key not in gathered:
                name = f"gathered {len(gathered)}"
                gathered[key] = Buffer(name, shape, expr.dtype, "arena")
                target = View.of(gathered[key])
                changed.append(Loop.of("gather", shape, alone, target))
            strides = dict(zip(axes, row_major(shape), strict=True))
            along = tuple(strides.get(axis, 0) for axis in range(len(loop.shape)))
            return Load(expr.dtype, View(gathered[key], along))

        outputs = [(mapped(expr, gather), view) for expr, view in kernel.outputs]
        changed.append(replace(kernel, outputs=tuple(outputs)))
    return changed


def _axes_of_few(expr: Expr, loop: Loop) -> list[int] | None:
    """Return the axes along which a loop gathers few elements of the data, if any."""
    if not isinstance(expr, Indirect) or not isinstance(expr.row, Load):
        return None
    strides = zip(expr.within, expr.row.view.strides, strict=True)
    axes = [
        axis for axis, both in enumerate(strides) if any(both) and loop.shape[axis] > 1
    ]
    count = math.prod(loop.shape[axis] for axis in axes)
    return axes if expr.table.kind == "data" and count <= THREADS else None


def _read_as_it_lies(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let products read the source of a transposing copy."""
    uses = Uses(kernels)
    copies: dict[BufferKey, tuple[int, Loop]] = {}
    changed: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and is_copy(kernel):
            target = kernel.target.buffer
            if target.kind == "arena" and len(uses.writers[target.key]) == 1:
                copies[target.key] = number, kernel
        if isinstance(kernel, Contract):
            for side in ("left", "right"):
                copied, loop = copies.get(
                    getattr(kernel, side).buffer.key, (number, None)
                )
                if loop is not None and not _is_written(uses, loop, copied, number):
                    kernel = _read_source(kernel, side, loop)
        changed.append(kernel)
    unread = copies.keys() - read_by(changed)
    return [
        kernel
        for kernel in changed
        if not (isinstance(kernel, Loop) and kernel.target.buffer.key in unread)
    ]


def _is_written(uses: Uses, loop: Loop, after: int, before: int) -> bool:
    """Return whether the source of a copy changes between two kernels."""
    assert isinstance(loop.expr, Load)
    writers = uses.writers[loop.expr.view.buffer.key]
    return any(after < writer < before for writer in writers)


def _read_source(kernel: Contract, side: str, loop: Loop) -> Contract:
    """Return a product that reads the source of a copy, if its axes are the copy's."""
    assert isinstance(loop.expr, Load)
    copy, source = loop.target, loop.expr.view
    if getattr(kernel, side).offset or copy.offset:
        return kernel
    strides = {
        there: (size, here)
        for size, there, here in zip(
            loop.shape, copy.strides, source.strides, strict=True
        )
    }

    def moved(axis: Axis) -> Axis | None:
        stride = getattr(axis, side)
        if axis.size == 1 or not stride:
            return axis
        size, here = strides.get(stride, (0, 0))
        return replace(axis, **{side: here}) if axis.size <= size else None

    changes: dict[str, Any] = {}
    for name in _AXES:
        changes[name] = tuple(map(moved, getattr(kernel, name)))
        if None in changes[name]:
            return kernel
    changes[side] = View(source.buffer, source.strides, source.offset)
    return replace(kernel, **changes)
