"""Checks that the rows of a batch are independent, as single-row formats assume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ganglion.compiler.ir.graph import Graph, Node
from ganglion.export.inference import inference_of
from ganglion.export.onnx.symbols import ROWS, Rows, RowsError, Twins, where


def refuse_mixed_rows(model: Any, input_signature: Any) -> None:
    """Refuse a model that computes something across the rows of a batch, by layer."""
    network = model._network
    if network is not None and any(t.shape[0] for t in network.flat_inputs):
        return  # of a fixed number of rows
    first, second = (
        inference_of(model, rows, input_signature).program.graph for rows in ROWS
    )
    try:
        problem = _problem(first, Twins(first, second))
    except RowsError as error:
        problem = str(error)
    if problem:
        raise ValueError(
            f"{problem}, and this format predicts each row alone: export to ONNX, or "
            "the model without it."
        )


def _problem(graph: Graph, twins: Twins) -> str | None:
    for node in _nodes(graph):
        if _mixes_rows(node, twins):
            return f"{where(node)} computes across the rows of a batch"
    for value in graph.outputs.values():
        if any(isinstance(size, Rows) for size in twins.shape(value)[1:]):
            return "The output of a row has a size that depends on the number of rows"
    return None


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, Graph):
                yield from _nodes(value)


def _mixes_rows(node: Node, twins: Twins) -> bool:
    if node.op.kind == "reduction" or node.op.name == "reverse":
        axes = node.attrs["axes"] if "axes" in node.attrs else [node.attrs["axis"]]
    elif node.op.name == "matmul":
        axes = [-1]
    else:
        return False
    sizes = twins.shape(node.inputs[0])
    return any(isinstance(sizes[axis], Rows) for axis in axes)
