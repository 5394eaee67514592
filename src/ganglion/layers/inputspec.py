"""What a layer accepts, and the refusal of anything else."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import ShapeError
from ganglion.compiler.ir.origin import Origin


class InputSpec:
    """What a layer accepts: number of axes and fixed sizes."""

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.dtype, self.shape, self.name, self.optional = dtype, shape, name, optional
        self.ndim = len(shape) if shape is not None else ndim
        self.max_ndim, self.min_ndim, self.axes = max_ndim, min_ndim, dict(axes or {})
        self.allow_last_axis_squeeze = allow_last_axis_squeeze

    def refusal(self, shape: tuple[int | None, ...]) -> str | None:
        """Say in words why a shape does not fit, None if it does."""
        if self.ndim is not None and len(shape) != self.ndim:
            return f"expected {self.ndim} axes"
        if self.min_ndim is not None and len(shape) < self.min_ndim:
            return f"expected at least {self.min_ndim} axes"
        if self.max_ndim is not None and len(shape) > self.max_ndim:
            return f"expected at most {self.max_ndim} axes"
        for axis, size in self._sizes().items():
            if not -len(shape) <= axis < len(shape):
                return f"expected an axis {axis}"
            if shape[axis] not in (size, None):
                return f"expected axis {axis} to have size {size}"
        return None

    def _sizes(self) -> dict[int, int]:
        given = enumerate(self.shape if self.shape is not None else ())
        return {axis: size for axis, size in given if size is not None} | self.axes


def check_inputs(specs: Any, inputs: Any, name: str, created: Origin) -> None:
    """Refuse inputs that the specs of the layer of this name do not allow."""
    given = [specs] if isinstance(specs, InputSpec) else list(specs)
    values = [one for one in tree.flatten(inputs) if hasattr(one, "shape")]
    where = f" ({created})" if created.file else ""
    if len(values) != len(given):
        way = "Join several into one by a Concatenate or Add layer."
        raise ValueError(
            f'Layer "{name}" takes {len(given)} input(s), but got {len(values)}{where}.'
            f"{f' {way}' if len(given) == 1 else ''}"
        )
    for number, (spec, value) in enumerate(zip(given, values, strict=True)):
        shape = tuple(value.shape)
        if spec.allow_last_axis_squeeze and len(shape) == (spec.ndim or 0) + 1:
            shape = shape[:-1] if shape[-1] == 1 else shape
        refusal = spec.refusal(shape)
        if refusal:
            raise ShapeError(
                f'Input {number} of layer "{name}" does not fit: {refusal}, '
                f"but the input has shape {tuple(value.shape)}{where}."
            )
        if spec.dtype is not None and np.dtype(value.dtype) != np.dtype(spec.dtype):
            raise ValueError(
                f'Input {number} of layer "{name}" has the type {value.dtype}, but '
                f"{spec.dtype} is expected{where}."
            )
