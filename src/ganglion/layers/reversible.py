"""ReversibleEmbedding: from numbers of words to rows, and back to scores of words."""

from __future__ import annotations

import math
from typing import Any

from ganglion import ops
from ganglion.layers.arguments import keep
from ganglion.layers.construction import as_plain_data
from ganglion.layers.dense import Embedding
from ganglion.layers.weight_formats.quantized import (
    dequantized_matrix,
    quantized_matrix,
    scales_shape,
)
from ganglion.quantizers.configs import QuantizationConfig
from ganglion.quantizers.packing import unpack_int4
from ganglion.quantizers.scaling import AbsMaxQuantizer
from ganglion.serialization import export, passed
from ganglion.tensors import set_keras_mask
from ganglion.variables import Variable

__all__ = ["ReversibleEmbedding"]


@export("keras.layers")
class ReversibleEmbedding(Embedding):
    """An Embedding that also projects rows back, by the same weights or by others.

    >>> import numpy as np
    >>> layer = ReversibleEmbedding(10, 4)
    >>> rows = layer(np.array([[1, 2, 3]]))
    >>> rows.shape, layer(rows, reverse=True).shape
    ((1, 3, 4), (1, 3, 10))
    """

    embeddings_initializer: Any
    tie_weights: bool
    reverse_dtype: Any
    logit_soft_cap: float | None

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        tie_weights: bool = True,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        reverse_dtype: Any = None,
        logit_soft_cap: float | None = None,
        **kwargs: Any,
    ) -> None:
        own = {
            "tie_weights": tie_weights,
            "reverse_dtype": reverse_dtype,
            "logit_soft_cap": logit_soft_cap,
        }
        of_base = {k: v for k, v in passed(locals()).items() if k not in (*own, "own")}
        super().__init__(**of_base)
        keep(self, own)

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        if not self.tie_weights and not self._is_quantized:
            self.reverse_embeddings = self.add_weight(
                (self.output_dim, self.input_dim),
                self.embeddings_initializer,
                name="reverse_embeddings",
            )

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        """Return a row for each number, or a score of each number for rows."""
        if not reverse:
            rows = super().call(inputs)
            mask = super().compute_mask(inputs)
            if mask is not None:
                set_keras_mask(rows, mask)
            return rows
        if self._is_quantized:
            logits = self._quantized_logits(inputs)
        else:
            logits = self._logits(inputs)
        if self.logit_soft_cap is None:
            return logits
        return ops.tanh(logits / self.logit_soft_cap) * self.logit_soft_cap

    def _logits(self, inputs: Any) -> Any:
        is_tied = self.tie_weights
        kernel = ops.transpose(self.embeddings) if is_tied else self.reverse_embeddings
        if self.reverse_dtype is not None:
            inputs = ops.cast(inputs, self.reverse_dtype)
            kernel = ops.cast(kernel, self.reverse_dtype)
        return ops.matmul(inputs, kernel)

    # ---- integers: untied weights of the way back have scales of their own ------

    @property
    def _reverse_stored(self) -> list[Variable]:
        ends = ("", "_scale", "_zero")
        names = [f"reverse_embeddings{end}" for end in ends]
        return [vars(self)[name] for name in names if name in vars(self)]

    def quantized_build(self, kernel_shape: Any, mode: Any, config: Any = None) -> None:
        super().quantized_build(kernel_shape, mode, config)
        self.inputs_quantizer = QuantizationConfig.activation_quantizer_or_default(
            config, AbsMaxQuantizer(axis=-1)
        )
        if self.tie_weights:
            return
        shape = (self.output_dim, self.input_dim)
        scales: tuple[int, ...] = (self.input_dim,)
        if mode == "int4":
            scales = scales_shape(shape, 0, self._int4_block_size)
            shape = (math.ceil(self.output_dim / 2), self.input_dim)
        name = "reverse_embeddings"
        self.reverse_embeddings = self._fixed(name, shape, dtype="int8")
        self.reverse_embeddings_scale = self._fixed(f"{name}_scale", scales, "ones")
        if len(scales) == 2:
            self.reverse_embeddings_zero = self._fixed(f"{name}_zero", scales)

    def _quantize_by(self, config: Any) -> None:
        if self.tie_weights:
            super()._quantize_by(config)
            return
        values = self._quantized_reverse(self.reverse_embeddings, config)
        del self.reverse_embeddings
        super()._quantize_by(config)
        for variable, value in zip(self._reverse_stored, values, strict=True):
            variable.assign(value)

    def _quantized_reverse(self, matrix: Any, config: Any) -> list[Any]:
        if config.mode == "int4":
            return quantized_matrix(matrix, 0, config, pack_axis=0)
        default = AbsMaxQuantizer(axis=0)
        quantizer = QuantizationConfig.weight_quantizer_or_default(config, default)
        numbers, scale = quantizer(matrix, to_numpy=True)
        return [numbers, ops.squeeze(scale, 0)]

    def _quantized_logits(self, inputs: Any) -> Any:
        if self.inputs_quantizer:
            inputs, scale = self.inputs_quantizer(inputs)
            inputs = ops.cast(inputs, self.compute_dtype) / scale
        if self.tie_weights:
            kernel = ops.transpose(self._dequantized(*self._stored))
        else:
            numbers, *scales = self._reverse_stored
            if self.quantization_mode == "int4":
                numbers = unpack_int4(numbers, self.output_dim, axis=0)
            blocks = [self.g_idx] if len(scales) == 2 else []
            kernel = dequantized_matrix(numbers, 0, *scales, *blocks)
        return ops.matmul(inputs, ops.cast(kernel, self.compute_dtype))

    def _saved_variables(self) -> list[Variable]:
        return [*super()._saved_variables(), *self._reverse_stored]

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return None: scores have no mask, and rows have theirs already."""
        return None

    def compute_output_shape(self, input_shape: Any, reverse: bool = False) -> Any:
        if reverse:
            return (*input_shape[:-1], self.input_dim)
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return config | {"quantization_config": as_plain_data(self.quantization_config)}
