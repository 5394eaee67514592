"""A step that is one block's: arrays in its shared memory, and no launches to fill.

Products read transposed matrices as they lie, and what an update needs besides its
gradient is computed first, so that updates are epilogues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.compiler.cuda.fusion import is_copy, loop_of
from ganglion.compiler.cuda.launches import ALIGNMENT, StepKernels
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import Axis, Contract, Kernel, Load, Loop, View
from ganglion.compiler.plan.plan import Uses, read_by, rounded

_AXES = ("batch", "rows", "columns", "inner")


def is_one_blocks(step: StepKernels, spec: GpuSpec) -> bool:
    """Return whether one block takes a step as fast as several launches would.

    It has all arrays in its shared memory, and leaves the other processors to other
    models.
    """
    kernels = (*step.once, *step.every)
    if step.plan.results or spec.products != "tf32":
        return False
    if not all(map(_can_be_resident, kernels)):
        return False
    products = sum(_multiplications(k) for k in kernels if isinstance(k, Contract))
    elements = sum(math.prod(k.shape) for k in kernels if isinstance(k, Loop))
    if products > TUNING.resident_products or elements > TUNING.resident_elements:
        return False
    arrays = {b.key: b for k in step.every for b in (*k.reads(), *k.writes())}
    kept = [b.nbytes for b in arrays.values() if b.kind in ("arena", "state")]
    most = spec.shared_per_block - TUNING.resident_scratch
    return sum(rounded(nbytes, ALIGNMENT) for nbytes in kept) <= most


def _can_be_resident(kernel: Kernel) -> bool:
    """Return whether a kernel is a loop, or a product of float32 on tensor cores."""
    if not isinstance(kernel, Contract):
        return isinstance(kernel, Loop) and not kernel.adds
    views = (kernel.left, kernel.right, kernel.out)
    return all(view.buffer.dtype == np.float32 for view in views)


def _multiplications(kernel: Contract) -> int:
    return math.prod(axis.size for name in _AXES for axis in getattr(kernel, name))


def make_resident(step: StepKernels) -> StepKernels:
    """Return a step for one block."""
    kernels = [_thin_as_loop(kernel) for kernel in step.every]
    kernels = _read_as_it_lies(_compute_early(kernels))
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
    """Put results first that depend on nothing which the step computes before them."""
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
                late = [output for output in kernel.outputs if output not in early]
                kernel = replace(kernel, outputs=tuple(late))
        others.append(kernel)
    return [*first, *others]


def _read_as_it_lies(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let products read the matrix that a copy would transpose for them."""
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
    """Return whether what a loop copies is changed between two kernels."""
    assert isinstance(loop.expr, Load)
    writers = uses.writers[loop.expr.view.buffer.key]
    return any(after < writer < before for writer in writers)


def _read_source(kernel: Contract, side: str, loop: Loop) -> Contract:
    """Return a product that reads what was copied, where its axes are the copy's."""
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
