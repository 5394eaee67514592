"""Our graph as an ONNX graph: walks the nodes, and keeps every value's name there.

A value may have several names: in its own layout, channels first, and, if it only
repeats another value, that of the other one, which ONNX broadcasts by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ganglion.compiler.ir.graph import Constant, Graph, Node, Value
from ganglion.compiler.ir.shaping import broadcast
from ganglion.export.onnx import loops
from ganglion.export.onnx.builder import Builder
from ganglion.export.onnx.operators import EMITTERS
from ganglion.export.onnx.symbols import Size, Twins, where


class GraphWriter:
    """Writes the nodes of a graph into a builder."""

    def __init__(
        self,
        graph: Graph,
        twins: Twins,
        builder: Builder,
        names: dict[Value, str],
    ) -> None:
        self.twins, self.b = twins, builder
        self._graph = graph
        self._names = dict(names)  # as it is
        self._first: dict[Value, str] = {}  # channels first
        self._done: set[Value] = set()
        self._node: Node | None = None
        self.fields: dict[tuple[Value, str], str] = {}  # results of loops
        readers = Counter(value for node in graph.nodes for value in node.inputs)
        readers.update(graph.outputs.values())
        self._readers = readers
        self._reader = {x: node for node in graph.nodes for x in node.inputs}

    def write(self) -> None:
        """Write all nodes."""
        for node in self._graph.nodes:
            if node in self._done:
                continue
            self._node = node
            if node.op.kind == "loop":
                loops.emit(self, node)
                continue
            emit = EMITTERS.get(node.op.name)
            if emit is None:
                raise self.refusal(f"uses {node.op.name}, which ONNX does not have")
            emit(self, node)

    def refusal(self, reason: str) -> ValueError:
        """Return the error for the node that is being written."""
        assert self._node is not None
        return ValueError(f"{where(self._node)} {reason}: it cannot be exported.")

    def shape(self, value: Value) -> list[Size]:
        """Return the sizes of a value."""
        return self.twins.shape(value)

    # ---- names -------------------------------------------------------------------

    def set(self, value: Value, name: str) -> None:
        """Note the name of a value."""
        self._names[value] = name
        self._done.add(value)

    def set_first(self, value: Value, name: str) -> None:
        """Note the name of a value that is channels first."""
        self._first[value] = name
        self._done.add(value)

    def alias(self, value: Value, source: Value) -> None:
        """Use the names of another value for a value."""
        if source in self._first:
            self._first[value] = self._first[source]
        if source in self._names or source not in self._first:
            self._names[value] = self.name(source)

    def name(self, value: Value) -> str:
        """Return the name of a value in its own shape."""
        if value not in self._names:
            self._names[value] = self._written(value)
        return self._names[value]

    def _written(self, value: Value) -> str:
        if isinstance(value, Constant):
            return self._constant(value)
        if value in self._first:
            rank = value.ndim
            axes = [0, *range(2, rank), 1]
            return self.b.emit("Transpose", self._first[value], perm=axes)
        assert isinstance(value, Node)
        assert value.op is broadcast, value.op.name
        return self._expanded(value)

    def _constant(self, value: Constant) -> str:
        numbers, b = self.twins.constant(value), self.b
        if isinstance(numbers, np.ndarray):
            return b.constant(numbers)
        step = b.constant(numbers.step, value.dtype)
        if not numbers.sizes:
            rows = b.cast(b.rows(1), value.dtype)
            if numbers.is_share:
                return b.reshaped(b.emit("Div", step, rows), value.shape)
            return b.reshaped(b.emit("Mul", step, rows), value.shape)
        first = b.constant(numbers.first.reshape(()))
        if not numbers.step:
            return b.emit("Expand", first, b.vector(numbers.sizes))
        count = b.cast(b.counted(self.twins.elements(value)), value.dtype)
        line = b.emit("Add", first, b.emit("Mul", step, count))
        return b.reshaped(line, numbers.sizes)

    def _expanded(self, node: Node) -> str:
        """Repeat a value; nothing is written for axes that it has already."""
        (x,) = node.inputs
        sizes, known = self.shape(node), self.shape(x)
        known = [*[0] * (len(sizes) - len(known)), *known]
        target = [
            1 if old == new else new for old, new in zip(known, sizes, strict=True)
        ]
        return self.b.emit("Expand", self.name(x), self.b.vector(target))

    def broadcast(self, node: Node) -> None:
        """Leave a repetition to its readers."""

    def _loose(self, value: Value) -> Value:
        """Return a value without repetitions, which ONNX broadcasts by itself."""
        while isinstance(value, Node) and value.op is broadcast:
            value = value.inputs[0]
        return value

    # ---- layouts -----------------------------------------------------------------

    def is_channels_first(self, value: Value) -> bool:
        """Return whether a value is there channels first, and not as it is."""
        return value in self._first and value not in self._names

    def channels_first(self, value: Value) -> str:
        """Return the name of a value channels first."""
        if value not in self._first:
            axes = (0, value.ndim - 1, *range(1, value.ndim - 1))
            self._first[value] = self.transposed(value, axes)
        return self._first[value]

    def transposed(self, value: Value, axes: tuple[int, ...]) -> str:
        """Return the name of a value with its axes in another order."""
        if isinstance(value, Constant):
            array = self.twins.constant(value)
            if isinstance(array, np.ndarray):
                return self.b.constant(array.transpose(axes), word="weight")
        return self.b.emit("Transpose", self.name(value), perm=list(axes))

    def elementwise(
        self,
        node: Node,
        emit: Callable[[Sequence[str]], str],
        inputs: Sequence[Value] | None = None,
    ) -> None:
        """Write an elementwise op, in the layout that its inputs are in."""
        inputs = node.inputs if inputs is None else inputs
        loose = [self._loose(x) for x in inputs]
        if all(x.shape != node.shape for x in loose):
            loose[0] = inputs[0]  # one must have the shape of the result
        if any(self.is_channels_first(x) for x in loose):
            names = [self._beside_channels_first(x, node.ndim) for x in loose]
            self.set_first(node, emit(names))
        else:
            self.set(node, emit([self.name(x) for x in loose]))

    def _beside_channels_first(self, value: Value, rank: int) -> str:
        """Return the name of a value that is combined with a channels-first one."""
        if value.size == 1 and isinstance(value, Constant):
            return self.b.reshaped(self.name(value), [])
        if value.ndim == rank:
            return self.channels_first(value)
        # Axes in front are missing: the value repeats along them.
        ones = rank - value.ndim
        if isinstance(value, Constant):
            array = self.twins.constant(value)
            if isinstance(array, np.ndarray):
                array = array.reshape((1,) * ones + array.shape)
                axes = (0, rank - 1, *range(1, rank - 1))
                return self.b.constant(array.transpose(axes))
        full = self.b.emit("Unsqueeze", self.name(value), self.b.integers(*range(ones)))
        return self.b.emit("Transpose", full, perm=[0, rank - 1, *range(1, rank - 1)])

    def following_bias(self, node: Node) -> tuple[Node, np.ndarray] | None:
        """Return the sum with a number for each channel that alone reads a product."""
        reader = self._reader.get(node)
        if reader is None or self._readers[node] != 1 or reader.op.name != "add":
            return None
        others = [x for x in reader.inputs if x is not node]
        if len(others) != 1 or reader.dtype.name != "float32":
            return None
        constant, channels = self._loose(others[0]), node.shape[-1]
        if not isinstance(constant, Constant) or constant.size != channels:
            return None
        if constant.shape[-1:] != (channels,):
            return None
        array = self.twins.constant(constant)
        return (reader, array.reshape(-1)) if isinstance(array, np.ndarray) else None
