"""Layers for text and categories as operators of ONNX, so that a file takes words.

Texts are standardized and split by operators of strings (of opset 20); vocabularies
are LabelEncoders. ONNX has no hash, and nothing that splits a text into its letters.
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ganglion.export.onnx.builder import Builder, value_info
from ganglion.export.onnx.symbols import Rows
from ganglion.export.text.front import Front, LookUp, Step, Table, Vectorize

DOMAIN, VERSION = "ai.onnx.ml", 3
TEXT_OPSET = 20  # that has operators which split and join texts
_INT64 = np.dtype("int64")
_SPACES = "\t\n\r\v\f"  # besides the blank, which alone splits words there


def needed_opset(front: Front | None) -> int:
    """Return the oldest opset with the operators that a front needs."""
    steps = () if front is None else front.steps
    return TEXT_OPSET if any(isinstance(step, Vectorize) for step in steps) else 0


def front_inputs(front: Front, batch: str) -> list[Any]:
    """Return the declarations of a file's inputs."""
    infos = []
    for port in front.inputs:
        shape: list[Any] = [batch, *port.shape]
        if port.is_text:
            kind = onnx.TensorProto.STRING
            infos.append(helper.make_tensor_value_info(port.name, kind, shape))
        else:
            infos.append(value_info(port.name, port.dtype, shape))
    return infos


def emit_front(builder: Builder, front: Front) -> list[str]:
    """Write the steps; return the names of the graph's inputs."""
    names = [port.name for port in front.inputs]
    for step in front.steps:
        sources = [names[number] for number in step.sources]
        ports = [front.values[number] for number in step.sources]
        if isinstance(step, Vectorize):
            names.append(_vectorized(builder, step, sources[0]))
        elif isinstance(step, LookUp):
            is_text = ports[0].is_text
            names.append(_looked_up(builder, step, sources[0], is_text))
        else:
            raise _refused(step, "hashes words or numbers")
    return [names[number] for number in front.crossing]


def _refused(step: Step, what: str) -> ValueError:
    layer = step.layer
    return ValueError(
        f'Layer "{layer.name}" ({type(layer).__name__}) {what}, and ONNX has no '
        "operator for that: export to C, machine code or WebAssembly, or the model "
        "that begins behind the layer."
    )


# ---- lookups -------------------------------------------------------------------------


def _looked_up(builder: Builder, step: LookUp, name: str, is_text: bool) -> str:
    table = step.table
    if not is_text:
        name = builder.cast(name, _INT64)
    if table.buckets <= 1:
        return _encoded(builder, table, name, is_text, table.unknown)
    if is_text or table.by_hash:
        raise _refused(step, "spreads unknown words by a hash (`num_oov_indices`)")
    nowhere = -(2**63)
    index = _encoded(builder, table, name, is_text, nowhere)
    rest = builder.emit("Mod", name, builder.constant(table.buckets, _INT64))
    rest = builder.emit("Add", rest, builder.constant(table.unknown, _INT64))
    is_unknown = builder.emit("Equal", index, builder.constant(nowhere, _INT64))
    return builder.emit("Where", is_unknown, rest, index)


def _encoded(
    builder: Builder, table: Table, name: str, is_text: bool, unknown: int
) -> str:
    attributes: dict[str, Any] = {
        "domain": DOMAIN,
        "default_int64": unknown,
        "keys_strings" if is_text else "keys_int64s": list(table.keys),
        "values_int64s": list(table.values),
    }
    return builder.emit("LabelEncoder", name, **attributes)


# ---- texts ---------------------------------------------------------------------------


def _vectorized(builder: Builder, step: Vectorize, name: str) -> str:
    if step.by_character:
        raise _refused(step, 'splits texts into characters (`split="character"`)')
    if step.widths != (1,):
        raise _refused(step, "joins words (`ngrams`)")
    text = builder.emit("Reshape", name, builder.integers(-1))
    for sign in string.punctuation if step.strip else "":
        text = _replaced(builder, text, sign, "")
    for sign in _SPACES:
        text = _replaced(builder, text, sign, " ")
    if step.lower:
        # Of ASCII alone, as the layer does it; and every machine has this locale.
        text = builder.emit(
            "StringNormalizer", text, case_change_action="LOWER", locale="C"
        )
    outputs = [builder.fresh("words"), builder.fresh("counts")]
    words, _ = builder.emit_many("StringSplit", [text], outputs)
    # Rows are filled with '', which is the mask of the table.
    indices = _encoded(builder, step.table, words, True, step.table.unknown)
    size = step.result.size
    if step.counts:
        return _counted(builder, indices, size)
    zeros = builder.emit("Expand", builder.constant(0, _INT64), _rows(builder, size))
    padded = builder.emit("Concat", indices, zeros, axis=1)
    return _first_columns(builder, padded, size)


def _counted(builder: Builder, indices: str, size: int) -> str:
    """Return how often each index occurs in a row; those out of range do not count."""
    last = builder.constant(size, _INT64)
    is_one = builder.emit("GreaterOrEqual", indices, builder.constant(0, _INT64))
    columns = builder.emit("Where", is_one, indices, last)
    columns = builder.emit("Min", columns, last)
    zeros = builder.emit(
        "Expand", builder.constant(0, _INT64), _rows(builder, size + 1)
    )
    ones = builder.emit(
        "Expand", builder.constant(1, _INT64), builder.emit("Shape", indices)
    )
    counts = builder.emit(
        "ScatterElements", zeros, columns, ones, axis=1, reduction="add"
    )
    return _first_columns(builder, counts, size)


def _rows(builder: Builder, size: int) -> str:
    """Return the shape of rows of a size."""
    return builder.vector([Rows(1), size])


def _first_columns(builder: Builder, x: str, size: int) -> str:
    start, end, axis = (builder.integers(n) for n in (0, size, 1))
    return builder.emit("Slice", x, start, end, axis)


def _replaced(builder: Builder, text: str, sign: str, by: str) -> str:
    """Return texts with a character replaced, by splitting and joining them."""
    names = [builder.fresh("parts"), builder.fresh("counts")]
    parts, _ = builder.emit_many("StringSplit", [text], names, delimiter=sign)
    # Texts without a word have no parts: the join begins with nothing.
    nothing = builder.constant(np.array("", object))
    first = builder.emit("Expand", nothing, builder.emit("Shape", text))
    columns = builder.emit("Squeeze", builder.emit("Shape", parts, start=1, end=2))
    body = Builder(builder)
    step, going, before = (body.fresh(word) for word in ("step", "going", "before"))
    part = body.emit("Gather", parts, step, axis=1)
    if by:
        part = body.emit("StringConcat", body.constant(np.array(by, object)), part)
    still = body.emit("Identity", going)
    joined = body.emit("StringConcat", before, part)
    kinds = onnx.TensorProto
    graph = helper.make_graph(
        body.nodes,
        body.fresh("join"),
        [
            helper.make_tensor_value_info(step, kinds.INT64, []),
            helper.make_tensor_value_info(going, kinds.BOOL, []),
            helper.make_tensor_value_info(before, kinds.STRING, None),
        ],
        [
            helper.make_tensor_value_info(still, kinds.BOOL, []),
            helper.make_tensor_value_info(joined, kinds.STRING, None),
        ],
    )
    always = builder.constant(True, np.dtype("bool"))
    return builder.emit("Loop", columns, always, first, body=graph)
