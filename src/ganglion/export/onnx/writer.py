"""`model.export("model.onnx")`: a model as an ONNX file, for any number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from ganglion import config
from ganglion.compiler.ir.graph import Value
from ganglion.export.formats import Artifact
from ganglion.export.inference import Inference, inference_of
from ganglion.export.onnx.builder import Builder, opset, value_info
from ganglion.export.onnx.graph import GraphWriter
from ganglion.export.onnx.symbols import ROWS, Rows, Twins

OPSET, IR_VERSION = 18, 8  # of early 2023: every runtime of today reads them
_MOST_BYTES = 2**31 - 1  # of a message of protobuf
_BATCH = "batch"


def write(model: Any, path: Path, input_signature: Any = None) -> Artifact:
    """Return a model as the bytes of an ONNX file."""
    first, second = (
        inference_of(model, rows, input_signature, may_draw=True) for rows in ROWS
    )
    proto = _model(first, Twins(first.program.graph, second.program.graph))
    if proto.ByteSize() > _MOST_BYTES:
        raise ValueError(
            f'The model "{model.name}" is larger than the 2 GB that an ONNX file holds.'
        )
    onnx.checker.check_model(proto, full_check=True)
    return Artifact({path: proto.SerializeToString()}, first.notes)


def _model(inference: Inference, twins: Twins) -> Any:
    graph = inference.program.graph
    builder = Builder()
    builder.rows_of = graph.inputs[0].name
    names: dict[Value, str] = {value: value.name for value in graph.inputs}
    writer = GraphWriter(graph, twins, builder, names)
    writer.write()
    for port, value in zip(inference.outputs, graph.outputs.values(), strict=True):
        builder.emit("Identity", writer.name(value), name=port.name)
    inputs, outputs = (
        [
            value_info(port.name, value.dtype, _named(twins.shape(value)))
            for port, value in zip(ports, values, strict=True)
        ]
        for ports, values in (
            (inference.inputs, graph.inputs),
            (inference.outputs, graph.outputs.values()),
        )
    )
    nodes, constants = builder.used(port.name for port in inference.outputs)
    proto = helper.make_model(
        helper.make_graph(nodes, inference.name, inputs, outputs, constants),
        opset_imports=[opset(OPSET)],
        ir_version=IR_VERSION,
        producer_name="ganglion",
        producer_version=config.VERSION,
    )
    notes = {f"note_{number}": note for number, note in enumerate(inference.notes)}
    helper.set_model_props(proto, notes)
    return proto


def _named(sizes: list[Any]) -> list[Any]:
    return [
        (_BATCH if size.times == 1 else f"{size.times}*{_BATCH}")
        if isinstance(size, Rows)
        else size
        for size in sizes
    ]
