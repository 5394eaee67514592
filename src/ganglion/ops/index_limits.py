"""Ranges of indices and labels, checked where their numbers are known.

Numbers in the data of a step are known before it runs: the trace notes their limits
(`Scope.limits`), and a table of data is checked once. Indices that a compiled step
computes itself read NaN from outside of a table.
"""

from __future__ import annotations

import numpy as np

from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import Constant, Input, Node, Value, evaluate
from ganglion.symbolic import unknown_size
from ganglion.system.records import record
from ganglion.variables import current_scope


@record(guarded=True)
class Limit:
    """The range in which integers must be, and the layer or line that reads them."""

    low: int
    high: int
    reader: str
    are_labels: bool

    def first_bad(self, numbers: np.ndarray) -> tuple[int, ...] | None:
        """Return the index of the first number out of range, None if there is none."""
        if not numbers.size:
            return None
        # Two passes without temporary arrays; NaN fails both comparisons.
        low, high = numbers.min(), numbers.max()
        if low > self.low - 1 and high < self.high:
            return None
        fits = (numbers > self.low - 1) & (numbers < self.high)
        index = np.unravel_index(int(np.argmin(fits)), numbers.shape)
        return tuple(int(n) for n in index)

    def error(self, number: float, where: str = "") -> Exception:
        """Return the error about a number that is out of range."""
        where = f" in {where}" if where else ""
        if self.are_labels:
            return ValueError(
                f"Label {number:g}{where} is out of range: the model has {self.high} "
                f"classes, 0 to {self.high - 1}."
            )
        from_end = f", or {-self.high} to -1 from the end" if self.low < 0 else ""
        return IndexError(
            f"Index {number:g}{where} is out of range: {self.reader} reads a table of "
            f"{self.high} rows, 0 to {self.high - 1}{from_end}."
        )


def require_range(
    value: Value, low: int, high: int, *, are_labels: bool = False
) -> None:
    """Refuse numbers out of a range, now if they are known, else before a step."""
    limit = Limit(low, high, _reader(origin.here()), are_labels)
    if unknown_size() in value.shape:
        return  # as many numbers as an unknown axis is long: only a real trace has it
    numbers = _known(value)
    if numbers is not None:
        index = limit.first_bad(numbers)
        if index is not None:
            raise limit.error(numbers[index])
        return
    scope = current_scope()
    if scope is not None:
        scope.limits.append((value, limit))


def _reader(here: origin.Origin) -> str:
    """Name the layer and the line that read a table."""
    line = str(here._replace(layer=""))
    if here.layer:
        return f'layer "{here.layer}"' + (f" ({line})" if line else "")
    return line or "it"


def _known(value: Value) -> np.ndarray | None:
    """Return the numbers of a value that depends on no input of a trace."""
    if isinstance(value, Constant):
        return value.array
    return None if _reads_input(value) else evaluate([value])[0]


def _reads_input(value: Value) -> bool:
    """Return whether a value depends on an input; stops at the first that is found."""
    seen: set[Value] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Input):
            return True
        if isinstance(node, Node) and node not in seen:
            seen.add(node)
            waiting.extend(node.inputs)
    return False
