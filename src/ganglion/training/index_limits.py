"""What must hold of the columns of a table, read off the indices of a traced step.

An index that comes from a column by moving numbers alone (rows are picked, axes cut and
reordered, types changed) is found on the column itself, for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ganglion.compiler.ir.graph import Input, Node, Value
from ganglion.ops.bounds import Limit

Numbers = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ColumnLimit:
    """A range for the numbers of a column, or for a part of them."""

    column: str
    part: Numbers
    limit: Limit

    def check(self, array: np.ndarray) -> None:
        """Refuse a column that holds a number out of range, naming its row."""
        numbers = self.part(array)
        if numbers.dtype.kind == "f":
            numbers = np.trunc(numbers)  # as a cast to whole numbers does
        elif numbers.dtype.kind == "b":
            numbers = numbers.astype(np.uint8)
        place = self.limit.first_bad(numbers)
        if place is not None:
            where = f"`{self.column}` (row {place[0]})"
            raise self.limit.error(float(numbers[place]), where)


@dataclass(frozen=True)
class _Source:
    """A column, and how the numbers of a value come from it."""

    column: str
    part: Numbers
    in_rows: bool = True  # whether the first axis is still that of the rows

    def then(self, part: Numbers) -> _Source:
        return _Source(self.column, lambda array: part(self.part(array)))

    def shuffled(self) -> _Source:
        return _Source(self.column, self.part, in_rows=False)


def column_limits(
    limits: Iterable[tuple[Value, Limit]], data: Iterable[Input]
) -> tuple[ColumnLimit, ...]:
    """Return what must hold of columns, for the limits that can be found on them."""
    columns = set(data)
    return tuple(
        ColumnLimit(source.column, source.part, limit)
        for value, limit in limits
        for source in _sources(value, columns)
    )


def _sources(value: Value, columns: set[Input]) -> list[_Source]:
    """Return the columns whose numbers a value holds; none if it computes its own."""
    if isinstance(value, Input):
        return [_Source(value.name, _all)] if value in columns else []
    if not isinstance(value, Node):
        return []
    name = value.op.name
    if name == "gather":
        picks_batch = value.origin.layer == "batch"
        return _sources(value.inputs[0], columns) if picks_batch else []
    if name in ("cast", "stop_gradient", "reverse"):
        return _sources(value.inputs[0], columns)
    if name in ("concat", "broadcast"):
        found = [one for x in value.inputs for one in _sources(x, columns)]
        return [one.shuffled() for one in found]
    if name in ("reshape", "transpose", "slice"):
        found = _sources(value.inputs[0], columns)
        moved = [_moved(one, value) for one in found]
        return [one for one in moved if one is not None]
    return []


def _all(array: np.ndarray) -> np.ndarray:
    return array


def _moved(source: _Source, node: Node) -> _Source | None:
    """Return a source behind a change of places; None if it is not known which."""
    before, shape, attrs = node.inputs[0].shape, node.shape, node.attrs
    if node.op.name == "slice":
        if before == shape:
            return source
        starts, stops, steps = attrs["starts"], attrs["stops"], attrs["steps"]
        if not source.in_rows or shape[0] != before[0]:
            return None
        spans = tuple(
            slice(*span) for span in zip(starts[1:], stops[1:], steps[1:], strict=True)
        )
        return source.then(lambda array: array[(slice(None), *spans)])
    if not source.in_rows:
        return source
    if node.op.name == "transpose" and attrs["axes"][0] == 0:
        return source.then(lambda array: array.transpose(attrs["axes"]))
    if node.op.name == "reshape" and shape and before and shape[0] == before[0]:
        return source.then(lambda array: array.reshape(len(array), *shape[1:]))
    return source.shuffled()
