"""An ONNX graph under construction: names, constants, and nodes in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ganglion.compiler.ir.graph import FLOAT32, is_short
from ganglion.export.onnx.symbols import Rows, Size

INT64_MAX = 2**63 - 1


def widened(dtype: np.dtype) -> np.dtype:
    """Return the type of a value in a file: short floats become float32."""
    return FLOAT32 if is_short(dtype) else dtype


def onnx_type(dtype: np.dtype) -> int:
    """Return ONNX's number of a type."""
    try:
        return int(helper.np_dtype_to_tensor_dtype(widened(dtype)))
    except (KeyError, ValueError):
        raise ValueError(f"ONNX files of Ganglion cannot hold {dtype.name}.") from None


class Builder:
    """Collects nodes; a builder of a loop's body shares names with the builder around.

    Args:
        outer: The builder around.
        taken: Names that are the model's: those of its inputs and outputs.
    """

    def __init__(self, outer: Builder | None = None, taken: Iterable[str] = ()) -> None:
        self.nodes: list[Any] = []
        self._top: Builder = self if outer is None else outer._top
        # These are used only in the top builder, by all.
        self.initializers: list[Any] = []
        self._constants: dict[Any, str] = {}
        self._counter = itertools.count()
        self._taken = frozenset(taken)
        self._rows: dict[int, str] = {}
        self.rows_of = ""  # an input whose first axis has the rows

    def fresh(self, word: str) -> str:
        """Return a name that nothing has yet."""
        names = (f"{word}_{number}" for number in self._top._counter)
        return next(name for name in names if name not in self._top._taken)

    def emit(
        self, op: str, *inputs: str, name: str | None = None, **attributes: Any
    ) -> str:
        """Append a node with a single result; return the name of that."""
        return self.emit_many(op, inputs, [name or self.fresh(op)], **attributes)[0]

    def emit_many(
        self, op: str, inputs: Iterable[str], outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        """Append a node of several results; return their names."""
        self.nodes.append(
            helper.make_node(op, list(inputs), list(outputs), outputs[0], **attributes)
        )
        return outputs

    def constant(self, array: Any, dtype: Any = None, word: str = "constant") -> str:
        """Return the name of a constant; equal ones are in a file once."""
        exact = np.asarray(array, dtype)
        exact = np.asarray(exact, widened(exact.dtype), order="C")
        top = self._top
        is_text = exact.dtype.kind == "O"
        content = tuple(exact.reshape(-1)) if is_text else exact.tobytes()
        key = (exact.dtype, exact.shape, content)
        if key not in top._constants:
            onnx_type(exact.dtype)
            name = self.fresh(word)
            top.initializers.append(numpy_helper.from_array(exact, name))
            top._constants[key] = name
        return top._constants[key]

    def used(self, outputs: Iterable[str]) -> tuple[list[Any], list[Any]]:
        """Return the nodes before some outputs, and the constants that those read."""
        needed, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.output):
                needed.update(_names_read([node]))
                nodes.append(node)
        return nodes[::-1], [c for c in self.initializers if c.name in needed]

    def integers(self, *numbers: int) -> str:
        """Return the name of a vector of integers."""
        return self.constant(np.array(numbers, np.int64))

    def rows(self, times: int) -> str:
        """Return the name of a vector of a single number: that many times the rows."""
        top = self._top
        if 1 not in top._rows:
            top._rows[1] = self._first("Shape", top.rows_of, start=0, end=1)
        if times not in top._rows:
            factor = self.integers(times)
            top._rows[times] = self._first("Mul", top._rows[1], factor)
        return top._rows[times]

    def _first(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Put a node before all others, so that loops see its result, too."""
        name, top = self.fresh("rows"), self._top
        node = helper.make_node(op, list(inputs), [name], name, **attributes)
        top.nodes.insert(len(top._rows), node)
        return name

    def counted(self, size: Size) -> str:
        """Return the name of the integers below a size."""
        end = self.emit("Squeeze", self.vector([size]))
        start, step = self.constant(0, np.int64), self.constant(1, np.int64)
        return self.emit("Range", start, end, step)

    def vector(self, sizes: Sequence[Size]) -> str:
        """Return the name of a vector of sizes."""
        if all(isinstance(size, int) for size in sizes):
            return self.integers(*sizes)  # type: ignore[arg-type]
        parts = [
            self.rows(size.times) if isinstance(size, Rows) else self.integers(size)
            for size in sizes
        ]
        return parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=0)

    def reshaped(self, x: str, sizes: Sequence[Size]) -> str:
        """Return the name of x in another shape; a size may depend on the rows."""
        unknown = [size for size in sizes if isinstance(size, Rows)]
        if len(unknown) == 1 and 0 not in sizes:
            known = [-1 if isinstance(size, Rows) else size for size in sizes]
            return self.emit("Reshape", x, self.integers(*known))
        return self.emit("Reshape", x, self.vector(sizes), allowzero=1)

    def cast(self, x: str, dtype: np.dtype) -> str:
        """Return the name of x in another type."""
        return self.emit("Cast", x, to=onnx_type(dtype))


def _names_read(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _names_read(attribute.g.node)


def value_info(name: str, dtype: np.dtype, shape: Sequence[Any]) -> Any:
    """Return the declaration of an input or output; strings name symbolic sizes."""
    return helper.make_tensor_value_info(name, onnx_type(dtype), list(shape))


def opset(version: int) -> Any:
    """Return the set of operators of a version."""
    return helper.make_opsetid("", version)


__all__ = ["INT64_MAX", "Builder", "onnx", "onnx_type", "opset", "value_info"]
