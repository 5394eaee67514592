"""The data of a set: held once, and the part of it that a model is trained on."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.many.settings import ModelPlan
from ganglion.training import data_adapters
from ganglion.training.data_adapters import Table


@dataclass(frozen=True)
class SharedData:
    """Inputs, targets, weights and validation data, converted once for all models."""

    x: Any
    y: Any
    sample_weight: Any
    validation_data: Any

    @classmethod
    def of(cls, x: Any, y: Any, sample_weight: Any, validation_data: Any) -> SharedData:
        """Convert what `fit` would convert for each model."""
        if x is None:
            raise ValueError("`fit_many` needs data: arrays x and y.")
        x, y, _, _ = data_adapters.as_rows(x, y, None)
        for name, part in (("x", x), ("validation_data", _inputs(validation_data))):
            if part is not None and data_adapters.is_stream(part):
                raise ValueError(
                    f"`{name}` is a source of batches, of which every model would take "
                    "some: give arrays, which all models can read."
                )
        if validation_data is not None:
            is_tuple = isinstance(validation_data, (tuple, list))
            if not is_tuple or not 1 <= len(validation_data) <= 3:
                size = f" of {len(validation_data)}" if is_tuple else ""
                raise ValueError(
                    "`validation_data` must be a tuple (x, y) or (x, y, weights), not "
                    f"a {type(validation_data).__name__}{size}."
                )
            validation_data = _converted(*validation_data)
        x, y, weights = (*_converted(x, y, sample_weight), None)[:3]
        return cls(x, y, weights, validation_data)

    def for_model(self, plan: ModelPlan) -> dict[str, Any]:
        """Return the arguments of `fit` that are a model's data."""
        y, held_out = self.y, self.validation_data
        if "target" in plan.own:
            y = _columns(y, plan)
            if held_out is not None:
                held_out = (held_out[0], _columns(held_out[1], plan), *held_out[2:])
        weight = plan.for_fit.get("sample_weight", self.sample_weight)
        parts = (self.x, y, weight)
        if "validation_rows" in plan.own:
            held_out = _taken(parts, "validation_rows", plan)
            held_out = held_out if held_out[2] is not None else held_out[:2]
        if "rows" in plan.own:
            parts = _taken(parts, "rows", plan)
        data: dict[str, Any] = dict(
            zip(("x", "y", "sample_weight"), parts, strict=True)
        )
        return data | ({} if held_out is None else {"validation_data": held_out})

    def checksum(self) -> int:
        """Return a checksum of all data, its shapes and types."""
        total = 0
        parts = [self.x, self.y, self.sample_weight, self.validation_data]
        for array in tree.flatten(parts):
            if array is not None:
                array = np.ascontiguousarray(array)
                total = zlib.crc32(f"{array.shape}{array.dtype}".encode(), total)
                is_text = array.dtype == object
                body = repr(array.tolist()).encode() if is_text else array.data
                total = zlib.crc32(body, total)
        return total


def _inputs(validation_data: Any) -> Any:
    has_parts = isinstance(validation_data, (tuple, list)) and len(validation_data)
    return validation_data[0] if has_parts else validation_data


def _converted(x: Any, y: Any = None, weight: Any = None) -> tuple[Any, ...]:
    """Return data as a `Table` holds it, or unchanged if it is not numeric."""
    try:
        parts = tuple(Table(x, y, weight).parts)
    except TypeError:  # text, which each model reads in its own way
        parts = (x, y, weight)
    return parts if weight is not None else parts[:2]


def _columns(y: Any, plan: ModelPlan) -> Any:
    """Return a column of the targets, or several."""
    target = plan.own["target"]
    array = np.asarray(y) if y is not None and not isinstance(y, dict) else None
    if array is None or array.ndim < 2:
        shape = "" if array is None else f", not {array.shape}"
        raise ValueError(
            f"`target` of {plan} chooses a column of `y`, which must be one array of "
            f"rows and columns{shape}."
        )
    numbers = np.atleast_1d(target)
    if numbers.dtype.kind not in "iu" or not np.all(
        (numbers >= 0) & (numbers < array.shape[1])
    ):
        raise ValueError(
            f"`target` of {plan} is {target!r}, but `y` has the columns 0 to "
            f"{array.shape[1] - 1}."
        )
    return array[:, numbers]


def _taken(parts: tuple[Any, ...], name: str, plan: ModelPlan) -> tuple[Any, ...]:
    """Return some rows of every array."""
    rows = np.asarray(plan.own[name])
    leaves = [leaf for leaf in tree.flatten(parts) if leaf is not None]
    count = len(leaves[0])
    if rows.dtype == bool:
        if rows.shape != (count,):
            raise ValueError(
                f"`{name}` of {plan} is a mask of shape {rows.shape}, but the data has "
                f"{count} rows."
            )
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
        raise ValueError(
            f"`{name}` of {plan} must be a list of row numbers or a mask, not "
            f"{plan.own[name]!r:.60}."
        )
    if rows.min() < 0 or rows.max() >= count:
        raise ValueError(
            f"`{name}` of {plan} goes from {rows.min()} to {rows.max()}, but the data "
            f"has the rows 0 to {count - 1}."
        )

    def take(leaf: Any) -> Any:
        return None if leaf is None else np.asarray(leaf)[rows]

    return tuple(None if p is None else tree.map_leaves(take, p) for p in parts)
