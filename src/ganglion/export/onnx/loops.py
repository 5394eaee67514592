"""A loop over time as ONNX's Scan, whose body is a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from ganglion.compiler.ir.graph import Graph, Node, Value
from ganglion.compiler.ir.scan import carry_name
from ganglion.export.onnx.builder import Builder, value_info

if TYPE_CHECKING:
    from ganglion.export.onnx.graph import GraphWriter


def emit(w: GraphWriter, node: Node) -> None:
    """Write a loop, or take a result of a loop."""
    if node.op.name == "field":
        w.set(node, w.fields[node.inputs[0], node.attrs["name"]])
    elif node.op.name == "scan":
        _scan(w, node)
    else:
        raise w.refusal(f"uses {node.op.name}, which ONNX does not have")


def _scan(w: GraphWriter, node: Node) -> None:
    body: Graph = node.attrs["body"]
    carries, stacked = node.attrs["carries"], node.attrs["stacked"]
    sliced = [w.name(value) for value in node.inputs[carries : carries + stacked]]
    starts = [w.name(value) for value in node.inputs[:carries]]
    inner = Builder(w.b)
    ends = [inner.fresh("step") for _ in range(carries + max(stacked, 1))]
    if not stacked:  # a loop without data still has a length
        sliced = [w.b.constant(np.zeros(node.attrs["length"], np.float32))]
    names: dict[Value, str] = dict(zip(body.inputs, ends, strict=False))
    rest = zip(body.inputs, node.inputs, strict=True)
    # What does not change is seen from inside.
    names |= {x: w.name(y) for x, y in list(rest)[carries + stacked :]}
    outputs = _body_outputs(w, body, inner, names)
    results = [w.b.fresh("loop") for _ in outputs]
    directions = {}
    if node.attrs["reverse"]:
        directions["scan_input_directions"] = [1] * len(sliced)
        if len(outputs) > carries:
            directions["scan_output_directions"] = [1] * (len(outputs) - carries)
    w.b.emit_many(
        "Scan",
        [*starts, *sliced],
        results,
        body=_body(body, inner, ends, outputs, carries, stacked),
        num_scan_inputs=len(sliced),
        **directions,
    )
    for name, result in zip(body.outputs, results, strict=True):
        w.fields[node, name] = result


def _body_outputs(
    w: GraphWriter, body: Graph, inner: Builder, names: dict[Value, str]
) -> list[str]:
    writer = type(w)(body, w.twins, inner, names)
    writer.write()
    # An output may be an input or come from outside, which ONNX does not allow.
    return [
        inner.emit("Identity", writer.name(value)) for value in body.outputs.values()
    ]


def _body(
    body: Graph,
    inner: Builder,
    ends: list[str],
    outputs: list[str],
    carries: int,
    stacked: int,
) -> object:
    # Shapes may depend on the rows, so that only their ranks are written.
    values = body.inputs[: carries + stacked]
    inputs = [
        value_info(name, value.dtype, [None] * value.ndim)
        for name, value in zip(ends, values, strict=False)
    ]
    if not stacked:
        inputs.append(value_info(ends[-1], np.dtype("float32"), []))
    results = [
        value_info(name, value.dtype, [None] * value.ndim)
        for name, value in zip(outputs, body.outputs.values(), strict=True)
    ]
    names = [carry_name(number) for number in range(carries)]
    assert list(body.outputs)[:carries] == names
    nodes, _ = inner.used(outputs)
    return helper.make_graph(nodes, "step", inputs, results)
