"""Shorter loops: axes of one are dropped, neighbours that run through memory merged."""

from __future__ import annotations

import math
from dataclasses import replace

from ganglion.compiler.plan.kernels import (
    Axis,
    Contract,
    Index,
    Indirect,
    Kernel,
    Load,
    Loop,
    Shape,
    View,
    rewrite,
    walk,
)


def collapse(kernel: Kernel) -> Kernel:
    """Return an equal kernel with as few axes as possible."""
    if isinstance(kernel, Contract):
        return _collapse_contract(kernel)
    if not isinstance(kernel, Loop):
        return kernel
    groups = _groups(kernel)
    kept = len(kernel.shape) - kernel.reduced
    outer = [group for group in groups if group[0] < kept]

    def strides(old: Shape) -> Shape:
        return tuple(old[group[-1]] for group in groups) if old else old

    def stored(view: View) -> View:
        kept_strides = tuple(view.strides[group[-1]] for group in outer)
        return View(view.buffer, kept_strides, view.offset)

    return replace(
        kernel,
        shape=tuple(math.prod(kernel.shape[a] for a in group) for group in groups),
        outputs=tuple((rewrite(e, strides), stored(v)) for e, v in kernel.outputs),
        reduced=len(groups) - len(outer),
    )


def _collapse_contract(kernel: Contract) -> Contract:
    return replace(
        kernel,
        batch=_merged(kernel.batch),
        rows=_merged(kernel.rows),
        inner=_merged(kernel.inner),
    )


def _merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Join neighbouring axes that are one long axis in all three arrays."""
    merged: list[Axis] = []
    for axis in axes:
        last = merged[-1] if merged else None
        if axis.size == 1:
            continue
        if last is not None and all(
            getattr(last, side) == getattr(axis, side) * axis.size
            for side in ("left", "right", "out")
        ):
            merged[-1] = replace(axis, size=axis.size * last.size)
        else:
            merged.append(axis)
    return tuple(merged) or axes[-1:]


def _groups(kernel: Loop) -> list[list[int]]:
    """Return the axes to keep, each with the neighbours that merge into it."""
    every = _all_strides(kernel)
    kept = len(kernel.shape) - kernel.reduced
    groups: list[list[int]] = []
    for axis, size in enumerate(kernel.shape):
        first_of_adding = kernel.adds and axis == 0
        if size == 1 and not first_of_adding:
            continue
        joins = (
            groups
            and (groups[-1][0] < kept) == (axis < kept)
            and not (kernel.adds and groups[-1][0] == 0)
            and all(s[groups[-1][-1]] == s[axis] * size for s in every if s)
        )
        if joins:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if kernel.reduced and not any(group[0] >= kept for group in groups):
        groups.append([len(kernel.shape) - 1])  # a reduction keeps an axis, if of one
    return groups


def _all_strides(kernel: Loop) -> list[Shape]:
    strides: list[Shape] = []
    for expr in walk(*kernel.exprs):
        if isinstance(expr, Load):
            strides.append(expr.view.strides)
        elif isinstance(expr, Index):
            strides.append(expr.strides)
        elif isinstance(expr, Indirect):
            strides.append(expr.within)
    targets = [view.strides + (0,) * kernel.reduced for _, view in kernel.outputs]
    return [*strides, *targets]
