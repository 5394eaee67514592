"""An ONNX graph as a functional model: each operator becomes a layer or an op.

A value is a Keras tensor, or a constant that is known while the model is built. Shapes
that files compute at run time are constants here, too: a special number in them is an
unknown size (the batch, most often).
"""

from __future__ import annotations

import re
from collections import ChainMap, Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import ops, symbolic
from ganglion.compiler.ir.graph import is_short
from ganglion.export.onnx import folding
from ganglion.export.onnx.import_control import CONTROL
from ganglion.export.onnx.parsing import OnnxGraph, OnnxNode, Port, parsed
from ganglion.layers import Input
from ganglion.layers.weighted import WEIGHTED_OPS, WeightedOp
from ganglion.models import Model
from ganglion.saving.files import check_exists, local_path, reading
from ganglion.system import budget
from ganglion.system.terminal import printable
from ganglion.variables import uninitialized


@dataclass(frozen=True)
class Constant:
    """An array that is known, and whether it is a weight, which can be trained."""

    array: np.ndarray
    is_weight: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.array.shape


Value = Any  # a Keras tensor, a Constant, or None for an input that is left out


def read_model(filepath: Any) -> Any:
    """Return the model of a file; see `load_onnx`."""
    from ganglion.export.onnx.import_table import IMPORTERS

    path = local_path(filepath)
    with reading(filepath):
        check_exists(path)
        graph = parsed(Path(path))
        _refuse_unknown(graph, IMPORTERS)
        return Importer(graph, IMPORTERS).model()


def _refuse_unknown(graph: OnnxGraph, known: Any) -> None:
    """Refuse operators that are not supported, naming all of them."""
    counts = Counter(node.op for node in graph.every_node() if node.op not in known)
    if counts:
        names = ", ".join(
            f"{printable(op):.80}{f' ({count}×)' if count > 1 else ''}"
            for op, count in sorted(counts.items())
        )
        raise ValueError(
            f"it has operators that no layer here covers: {names}. Nothing was built."
        )


class Importer:
    """Builds the model of a graph."""

    def __init__(
        self, graph: OnnxGraph, importers: Any, outer: Importer | None = None
    ) -> None:
        self.graph, self.opset = graph, graph.opset
        self._importers = importers
        # A nested graph can use the values of the outer graph, and shares its layers.
        self.values: ChainMap[str, Value] = ChainMap({"": None})
        self._constants = ChainMap(dict(graph.constants))
        self._layers: dict[Any, Any] = {}
        self._names: set[str] = set()
        if outer is not None:
            self.values = outer.values.new_child()
            self._constants = outer._constants.new_child(dict(graph.constants))
            self._layers, self._names = outer._layers, outer._names
        self._readers = Counter(graph.names_read())
        self._reader = {name: node for node in graph.nodes for name in node.inputs}
        self._joined: set[int] = set()  # nodes that became a part of another

    def model(self) -> Any:
        """Return the model."""
        inputs = [self._input(port) for port in self.graph.inputs]
        if not inputs:
            raise ValueError("it has no input: there is nothing to predict from.")
        with uninitialized():
            self._build_nodes()
        outputs = [self._output(name) for name in self.graph.outputs]
        title = _identifier(self.graph.name) or None
        ends = inputs if len(inputs) > 1 else inputs[0]
        return Model(ends, outputs if len(outputs) > 1 else outputs[0], name=title)

    def _build_nodes(self) -> None:
        for name, array in self.graph.constants.items():
            wide = _widened(array)
            is_weight = wide.dtype.kind == "f" and wide.size > 1
            self.values[name] = Constant(wide, is_weight)
        for node in self.graph.nodes:
            if id(node) not in self._joined:
                self._build(node)

    def inlined(self, graph: OnnxGraph, inputs: Sequence[Value]) -> list[Value]:
        """Return the outputs of a graph inside of this graph, for some inputs."""
        if len(inputs) != len(graph.inputs):
            raise ValueError(
                f"its graph takes {len(graph.inputs)} values and is given {len(inputs)}"
            )
        inner = Importer(graph, self._importers, self)
        for port, value in zip(graph.inputs, inputs, strict=True):
            inner._new(port.name)
            inner.values[port.name] = value
        inner._build_nodes()
        return [inner._known(name, None) for name in graph.outputs]

    def constant(self, array: Any) -> Constant:
        """Return a value that is known."""
        return Constant(np.asarray(array))

    def _output(self, name: str) -> Any:
        value = self._known(name, None)
        if not symbolic.is_symbolic(value):
            raise ValueError(
                f"its output {printable(name)!r:.80} does not depend on its inputs."
            )
        return value

    def _input(self, port: Port) -> Any:
        self._new(port.name)
        dtype = "float32" if is_short(port.dtype) else port.dtype.name
        shape = port.shape or (None,)
        name = self.unique(_identifier(port.name))
        tensor = Input(batch_shape=shape, dtype=dtype, name=name)
        self.values[port.name] = tensor
        return tensor

    def _build(self, node: OnnxNode) -> None:
        budget.count("operators")
        values = [self._known(name, node) for name in node.inputs]
        results = self._results(node, values)
        for name in node.outputs[len(results) :]:
            if self._readers[name]:
                raise ValueError(f"{node}: its result {name!r:.80} is not supported.")
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self._new(name)
                self.values[name] = value

    def _new(self, name: str) -> None:
        if name in self.values.maps[0] or name in self.graph.constants:
            raise ValueError(f"it makes {printable(name)!r:.80} twice.")

    def _known(self, name: str, node: OnnxNode | None) -> Value:
        if name not in self.values:
            reader = "its outputs ask" if node is None else f"{node} asks"
            raise ValueError(
                f"{reader} for {printable(name)!r:.80}, which is not computed before: "
                "the graph has a cycle, or is cut short."
            )
        return self.values[name]

    def _results(self, node: OnnxNode, values: Sequence[Value]) -> Sequence[Value]:
        folded = folding.fold(self, node, values)
        if folded is not None:
            return folded
        if node.op not in CONTROL and not any(map(symbolic.is_symbolic, values)):
            folding.check_constant(node, [x.shape for x in values if x is not None])
        try:
            result = self._importers[node.op](self, node, values)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            if isinstance(error, budget.BudgetError) or str(node) in str(error):
                raise
            raise ValueError(f"{node} cannot be built: {error}") from error
        results = result if isinstance(result, (list, tuple)) else [result]
        return [self._as_value(x) for x in results]

    def _as_value(self, x: Any) -> Value:
        is_value = x is None or isinstance(x, Constant) or symbolic.is_symbolic(x)
        return x if is_value else Constant(np.asarray(x))

    # ---- for importers -----------------------------------------------------------

    def tensor(self, value: Value) -> Any:
        """Return a value to compute with: a Keras tensor or an array."""
        if isinstance(value, Constant):
            if folding.has_unknown(value.array):
                raise ValueError("the size of the batch is used as a number")
            return value.array
        return value

    def layer(self, node: OnnxNode, weights: Sequence[str], make: Any) -> Any:
        """Return the layer of a node; nodes with the same weights share it."""
        key = (node.op, tuple(weights), repr(sorted(node.attrs.items(), key=str)))
        if key not in self._layers:
            self._layers[key] = make(name=self.unique(_layer_name(node, weights)))
        return self._layers[key]

    def word(self, node: OnnxNode) -> str:
        """Return a node's name as the name of a layer."""
        return _identifier(node.name)

    def weighted(self, op: str, node: OnnxNode, values: Sequence[Value]) -> Any:
        """Return an op of two values; if one is a weight, it belongs to a layer."""
        first, second = values
        for position, (value, other) in enumerate(((first, second), (second, first))):
            is_weight = getattr(value, "is_weight", False)
            if is_weight and symbolic.is_symbolic(other) and op in WEIGHTED_OPS:
                make = partial(WeightedOp, op, value.shape, weight_first=position == 0)
                layer = self.layer(node, [node.inputs[position]], make)
                return self.called(layer, other, [value.array])
        return getattr(ops, op)(self.tensor(first), self.tensor(second))

    def called(self, layer: Any, inputs: Any, weights: Sequence[Any]) -> Any:
        """Call a layer, and give it its weights."""
        is_new = not layer.built
        outputs = layer(*inputs) if isinstance(inputs, tuple) else layer(inputs)
        if is_new and weights:
            layer.set_weights([np.asarray(weight) for weight in weights])
        return outputs

    def unique(self, name: str) -> str | None:
        """Return a name that no layer has yet, None for an empty name."""
        if not name:
            return None
        number, chosen = 1, name
        while chosen in self._names:
            number += 1
            chosen = f"{name}_{number}"
        self._names.add(chosen)
        return chosen

    def joined_bias(self, node: OnnxNode, size: int) -> tuple[str, np.ndarray] | None:
        """Return the bias of a sum that is the only reader of a node, and skip the sum.

        The caller sets the result of the sum by `alias`.
        """
        (output,) = node.outputs
        reader = self._reader.get(output)
        if self._readers[output] != 1 or reader is None or reader.op != "Add":
            return None
        (other,) = [name for name in reader.inputs if name != output] or [""]
        array = self._constants.get(other)
        if array is None or array.shape != (size,) or id(reader) in self._joined:
            return None
        self._joined.add(id(reader))
        return other, _widened(array)

    def alias(self, node: OnnxNode, value: Value) -> None:
        """Set the result of the sum that was joined to a node."""
        reader = self._reader[node.outputs[0]]
        self.values[reader.outputs[0]] = value


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if is_short(array.dtype) else array


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", name).strip("_./")[:100]


def _layer_name(node: OnnxNode, weights: Sequence[str]) -> str:
    """Return a name for a layer: that of its weights, as PyTorch has it, or its own."""
    prefix, _, last = weights[0].rpartition(".") if weights else ("", "", "")
    if prefix and last:
        return _identifier(prefix)
    return _identifier(node.name)
