"""Layers that look words and numbers up, which ONNX has as LabelEncoder.

They run on the host here, before the compiled graph. Where all that runs there is such
layers, they go into the file, which then takes words; otherwise the file begins behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from ganglion import layers
from ganglion.export.onnx.builder import Builder, value_info
from ganglion.symbolic import TEXT

DOMAIN, VERSION = "ai.onnx.ml", 3


class Lookups:
    """The part of a functional model before its graph: nothing but lookups."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.names = list(network.input_names)

    def inputs(self, batch: str) -> list[Any]:
        """Return what the file says of its inputs."""
        infos = []
        for name, tensor in zip(self.names, self._network.flat_inputs, strict=True):
            shape = [batch, *tensor.shape[1:]]
            if tensor.dtype == TEXT:
                kind = onnx.TensorProto.STRING
                infos.append(helper.make_tensor_value_info(name, kind, shape))
            else:
                infos.append(value_info(name, np.dtype(tensor.dtype), shape))
        return infos

    def emit(self, builder: Builder, dtypes: list[np.dtype]) -> list[str]:
        """Write the lookups; return the names of what crosses over to the graph."""
        part = self._network.host_part
        names = dict(zip(self._network.flat_inputs, self.names, strict=True))
        for call in part.calls:
            names[call.outputs] = _encoded(builder, call, names[call.inputs[0]])
        return [
            builder.cast(names[tensor], dtype)
            for tensor, dtype in zip(part.crossing, dtypes, strict=True)
        ]


def lookups_of(model: Any) -> Lookups | None:
    """Return the lookups before a model's graph, None if there are none, or others."""
    network = model._network
    part = None if network is None else network.host_part
    if part is None or part.crossing != part.outputs:
        return None
    is_known = all(_is_plain(call.operation) for call in part.calls)
    sizes = [size for tensor in network.flat_inputs for size in tensor.shape[1:]]
    return Lookups(network) if is_known and None not in sizes else None


def _is_plain(layer: Any) -> bool:
    """Return whether a layer gives each word its index, and all others the same one."""
    return (
        isinstance(layer, (layers.StringLookup, layers.IntegerLookup))
        and layer.output_mode == "int"
        and not layer.invert
        and layer.num_oov_indices == 1
    )


def _encoded(builder: Builder, call: Any, name: str) -> str:
    layer = call.operation
    words = layer.get_vocabulary()
    is_text = isinstance(layer, layers.StringLookup)
    if not is_text and call.inputs[0].dtype != "int64":
        name = builder.cast(name, np.dtype("int64"))
    unknown = words.index(layer.oov_token)
    return builder.emit(
        "LabelEncoder",
        name,
        domain=DOMAIN,
        default_int64=unknown,
        values_int64s=list(range(len(words))),
        **{"keys_strings" if is_text else "keys_int64s": words},
    )
