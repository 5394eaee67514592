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
from ganglion.export.onnx.lookups import (
    DOMAIN,
    VERSION,
    emit_front,
    front_inputs,
    needed_opset,
)
from ganglion.export.onnx.parsing import MOST_BYTES
from ganglion.export.onnx.symbols import ROWS, Rows, Twins

OPSET = 18  # of early 2023: every runtime of today reads it
NEWEST_OPSET = 22  # whose operators are the same as the version that is written
_IR_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10}  # that came with each
_BATCH = "batch"


def write(
    model: Any,
    path: Path,
    input_signature: Any = None,
    opset_version: int | None = None,
) -> Artifact:
    """Return a model as the bytes of an ONNX file."""
    _check_opset(opset_version)
    first, second = (
        inference_of(model, rows, input_signature, may_draw=True) for rows in ROWS
    )
    version = max(opset_version or OPSET, needed_opset(first.front))
    twins = Twins(first.program.graph, second.program.graph)
    proto = _model(first, twins, version)
    if proto.ByteSize() > MOST_BYTES:
        raise ValueError(
            f'The model "{model.name}" is larger than the 2 GB that an ONNX file holds.'
        )
    onnx.checker.check_model(proto, full_check=True)
    return Artifact({path: proto.SerializeToString()})


def _check_opset(version: int | None) -> None:
    if version is None:
        return
    if type(version) is not int or not OPSET <= version <= NEWEST_OPSET:
        raise ValueError(
            f"`opset_version` must be from {OPSET} to {NEWEST_OPSET}, got {version!r}."
        )


def _model(inference: Inference, twins: Twins, version: int) -> Any:
    front = inference.front
    graph = inference.program.graph
    ends = (*inference.inputs, *inference.outputs)
    builder = Builder(taken=[port.name for port in ends])
    names: dict[Value, str] = {value: value.name for value in graph.inputs}
    builder.rows_of = inference.inputs[0].name
    if front is not None:
        names = dict(zip(graph.inputs, emit_front(builder, front), strict=True))
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
            (inference.numbers, graph.inputs),
            (inference.outputs, graph.outputs.values()),
        )
    )
    versions = [opset(version)]
    if front is not None:
        inputs = front_inputs(front, _BATCH)
        versions.append(helper.make_opsetid(DOMAIN, VERSION))
    nodes, constants = builder.used(port.name for port in inference.outputs)
    proto = helper.make_model(
        helper.make_graph(nodes, inference.name, inputs, outputs, constants),
        opset_imports=versions,
        ir_version=_IR_VERSIONS.get(version, max(_IR_VERSIONS.values())),
        producer_name="ganglion",
        producer_version=config.VERSION,
    )
    return proto


def _named(sizes: list[Any]) -> list[Any]:
    return [
        (_BATCH if size.times == 1 else f"{size.times}*{_BATCH}")
        if isinstance(size, Rows)
        else size
        for size in sizes
    ]
