"""Products read an array inside of its padded copy, where there is one.

A gradient is needed twice: with zeros around it, for the gradient of the images, and as
it is, for the gradient of the weights. The first holds the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganglion.compiler.cuda.epilogue import Root, is_copy, is_flat
from ganglion.compiler.cuda.passes.simplify import Uses
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import (
    Axis,
    Contract,
    Kernel,
    Load,
    Loop,
    View,
    row_major,
)


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
        near = row_major(shape)
        left = [(size - 1) * step for size, step in zip(shape, near, strict=True)]
        made = []
        for size, stride in axes:
            if size == 1 or stride == 0:
                made.append(0)
                continue
            along = next((a for a, step in enumerate(near) if not stride % step), -1)
            left[along] -= (size - 1) * stride
            if stride < 0 or left[along] < 0:
                return None
            made.append(stride // near[along] * far[along])
        return made


def read_inside_padding(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let products read copies of what they read, if a copy is made anyway."""
    uses = Uses(kernels)
    copies: dict[Root, _Copy] = {}
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and is_copy(kernel):
            assert isinstance(kernel.expr, Load)
            source, target = kernel.expr.view, kernel.target.buffer
            larger = source.buffer.size < target.size
            lasts = uses.writers[root(target)][-1] == number
            ours = source.buffer.kind == target.kind == "arena"
            if larger and lasts and ours and is_flat(source, kernel.shape):
                copies.setdefault(root(source.buffer), _Copy(number, kernel))
    made: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Contract):
            for side in ("left", "right"):
                kernel = _moved(kernel, side, copies, uses, number)
        made.append(kernel)
    return made


def _moved(
    kernel: Contract, side: str, copies: dict[Root, _Copy], uses: Uses, number: int
) -> Contract:
    """Let one side of a product be read from a copy, where that can be."""
    view: View = getattr(kernel, side)
    copy = copies.get(root(view.buffer))
    written = uses.writers[root(view.buffer)]
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
    found = iter(strides)
    for name in groups:
        changes[name] = tuple(
            replace(axis, **{side: next(found)}) for axis in getattr(kernel, name)
        )
    return replace(kernel, **changes)
