"""A graph for any number of rows, out of the same graph for two numbers of them.

Shapes of a graph are exact. A model that is traced for 11 rows and for 13 gives two
graphs, node by node alike; a size that is 11 times something here and 13 times the same
there is that many times the rows, and one that is the same in both is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Constant, Graph, Node, Value

_DIFFERS = "computes other things for other numbers of rows"
ROWS = (11, 13)  # primes, which no other size is a multiple of by mere chance


@dataclass(frozen=True)
class Rows:
    """A size that is a multiple of the number of rows."""

    times: int


Size = int | Rows


@dataclass(frozen=True)
class Varying:
    """Numbers that depend on the rows: the first, and by which step they go on.

    Without sizes, it is a number: a multiple of the number of rows, or a share of it.
    """

    sizes: list[Size]
    first: np.ndarray
    step: float
    is_share: bool = False


class RowsError(ValueError):
    """Something depends on the number of rows in a way that no file can hold."""


def size_of(first: int, second: int) -> Size:
    """Return what two sizes represent.

    >>> size_of(5, 5), size_of(22, 26)
    (5, Rows(times=2))
    """
    if first == second:
        return first
    times, rest = divmod(first, ROWS[0])
    if rest or second != times * ROWS[1]:
        raise RowsError(f"a size is {first} for {ROWS[0]} rows, {second} for {ROWS[1]}")
    return Rows(times)


class Twins:
    """Two graphs of a model, for two numbers of rows: which value is which."""

    def __init__(self, first: Graph, second: Graph) -> None:
        self._twin: dict[Value, Value] = {}
        self._pair(first, second)

    def _pair(self, first: Graph, second: Graph) -> None:
        if len(first.nodes) != len(second.nodes):
            raise RowsError(f"the model {_DIFFERS}")
        self._twin.update(zip(first.inputs, second.inputs, strict=True))
        for node, twin in zip(first.nodes, second.nodes, strict=True):
            self._check(node, twin)
            self._twin[node] = twin
            for key, value in node.attrs.items():
                if isinstance(value, Graph):
                    self._pair(value, twin.attrs[key])
        for name, value in first.outputs.items():
            self._meet(value, second.outputs[name])

    def _check(self, node: Node, twin: Node) -> None:
        if node.op is not twin.op or len(node.inputs) != len(twin.inputs):
            raise RowsError(f"{where(node)} {_DIFFERS}")
        for value, other in zip(node.inputs, twin.inputs, strict=True):
            self._meet(value, other)

    def _meet(self, value: Value, other: Value) -> None:
        known = self._twin.setdefault(value, other)
        if known is not other and not isinstance(value, Constant):
            raise RowsError(f"the model {_DIFFERS}")

    def shape(self, value: Value) -> list[Size]:
        """Return the sizes of a value."""
        return self.sizes(value, value.shape, self._twin[value].shape)

    def elements(self, value: Value) -> Size:
        """Return how many elements a value has."""
        return self.sizes(value, [value.size], [self._twin[value].size])[0]

    def attribute(self, node: Node, name: str) -> list[Size]:
        """Return sizes that are an attribute of a node."""
        twin = self._twin[node]
        assert isinstance(twin, Node)
        return self.sizes(node, _listed(node.attrs[name]), _listed(twin.attrs[name]))

    def sizes(
        self, value: Value, first: Iterable[int], second: Iterable[int]
    ) -> list[Size]:
        """Return the sizes that pairs represent; errors name the layer."""
        try:
            return [size_of(a, b) for a, b in zip(first, second, strict=True)]
        except RowsError as error:
            raise RowsError(f"{where(value)}: {error}") from None

    def constant(self, value: Constant) -> np.ndarray | Varying:
        """Return the numbers of a constant, or how they depend on the rows."""
        other = self._twin[value]
        assert isinstance(other, Constant)
        mine, theirs = value.array, other.array
        if mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes():
            return mine
        numbers = [mine.reshape(-1), theirs.reshape(-1)]
        first = numbers[0][:1]
        if mine.shape == theirs.shape and mine.size == 1:
            factors = [
                number.item() / rows for number, rows in zip(numbers, ROWS, strict=True)
            ]
            shares = [
                number.item() * rows for number, rows in zip(numbers, ROWS, strict=True)
            ]
            if math.isclose(*factors, rel_tol=1e-6):
                return Varying([], first * 0, factors[0])
            if math.isclose(*shares, rel_tol=1e-6):
                return Varying([], first * 0, shares[0], is_share=True)
        elif mine.size > 1:
            sizes, step = self.shape(value), numbers[0][1] - numbers[0][0]
            counted = [first + step * np.arange(len(n), dtype=n.dtype) for n in numbers]
            if all(map(np.array_equal, counted, numbers)):
                return Varying(sizes, first, step)
        raise RowsError(
            "a constant is another for another number of rows, in a way that no file "
            "can hold"
        )


def _listed(value: Any) -> Iterator[int]:
    return iter(value if isinstance(value, tuple) else (value,))


def where(value: Value) -> str:
    """Name the layer that a value comes from."""
    layer = value.origin.layer if isinstance(value, Node) else ""
    return f'Layer "{layer}"' if layer else "The model"
