"""Quantizers: weights and activations as small integers.

>>> from ganglion import quantizers
>>> quantizers.get("abs_max_quantizer").output_dtype
'int8'
"""

from __future__ import annotations

import inspect
from typing import Any

from ganglion import oldpaths
from ganglion.quantizers.configs import (
    AWQConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    Int4QuantizationConfig,
    Int8QuantizationConfig,
    QuantizationConfig,
)
from ganglion.quantizers.packing import pack_int4, unpack_int4
from ganglion.quantizers.scaling import (
    AbsMaxQuantizer,
    Quantizer,
    abs_max_quantize,
    abs_max_quantize_grouped_with_zero_point,
)
from ganglion.quantizers.training import (
    compute_float8_amax_history,
    compute_float8_scale,
    fake_quant_with_min_max_vars,
    quantize_and_dequantize,
)
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.variables import snake_case

__all__ = [
    "AWQConfig",
    "AbsMaxQuantizer",
    "Float8QuantizationConfig",
    "GPTQConfig",
    "Int4QuantizationConfig",
    "Int8QuantizationConfig",
    "QuantizationConfig",
    "Quantizer",
    "abs_max_quantize",
    "abs_max_quantize_grouped_with_zero_point",
    "compute_float8_amax_history",
    "compute_float8_scale",
    "deserialize",
    "fake_quant_with_min_max_vars",
    "get",
    "pack_int4",
    "quantize_and_dequantize",
    "serialize",
    "unpack_int4",
]

_CLASSES = (
    Quantizer,
    AbsMaxQuantizer,
    QuantizationConfig,
    Int8QuantizationConfig,
    Int4QuantizationConfig,
    Float8QuantizationConfig,
    AWQConfig,
    GPTQConfig,
)
_BY_NAME = {cls.__name__: cls for cls in _CLASSES}
_BY_NAME |= {snake_case(cls.__name__): cls for cls in _CLASSES}


def serialize(initializer: Any) -> Any:
    """Return plain data that rebuilds a quantizer."""
    return serialize_keras_object(initializer)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Rebuild a quantizer from plain data."""
    return deserialize_keras_object(config, custom_objects)


def get(identifier: Any, **kwargs: Any) -> Any:
    """Return the quantizer that a name, plain data or an object means."""
    if identifier is None:
        return None
    quantizer = identifier
    if isinstance(identifier, dict):
        quantizer = deserialize(identifier)
    elif isinstance(identifier, str):
        quantizer = _BY_NAME.get(identifier)
    if inspect.isclass(quantizer):
        quantizer = quantizer(**kwargs)
    if callable(quantizer):
        return quantizer
    raise ValueError(f"Could not interpret quantizer identifier: {identifier}")


__getattr__ = oldpaths.attribute_of(__name__)
