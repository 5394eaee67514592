"""Products in float8: both factors, and gradients, are rounded by scales that learn."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.dtypes import QuantizedFloat8DTypePolicy, finfo
from ganglion.layers.weight_formats.lora import Adaptable
from ganglion.quantizers.training import (
    compute_float8_amax_history,
    compute_float8_scale,
    quantize_and_dequantize,
)
from ganglion.variables import Variable, current_scope

_FORWARD, _BACKWARD = "float8_e4m3fn", "float8_e5m2"
_ROUNDED = ("inputs", "kernel", "outputs_grad")


class Float8(Adaptable):
    """The part of a layer that ``quantize("float8")`` adds.

    Every rounded value has a scale and a history of its largest values. Both arrive as
    gradients, which optimizers assign (`overwrite_with_gradient`).
    """

    _is_quantized = False

    def _make_float8(self) -> None:
        default = QuantizedFloat8DTypePolicy.default_amax_history_length
        length = getattr(self._own_policy(), "amax_history_length", default)
        for name in _ROUNDED:
            for end, shape, initializer in (
                ("scale", (), "ones"),
                ("amax_history", (length,), "zeros"),
            ):
                variable = self.add_weight(
                    shape,
                    initializer,
                    dtype="float32",
                    autocast=False,
                    overwrite_with_gradient=True,
                    name=f"{name}_{end}",
                )
                setattr(self, f"{name}_{end}", variable)

    def _float8_variables(self) -> list[Variable]:
        ends = ("scale", "amax_history")
        return [vars(self)[f"{name}_{end}"] for name in _ROUNDED for end in ends]

    def _float8_product(self, inputs: Any) -> Any:
        if self.lora_enabled:
            raise NotImplementedError(
                "A layer quantized to float8 doesn't support LoRA."
            )
        scale_and_history = iter(self._float8_variables())
        pairs = list(zip(scale_and_history, scale_and_history, strict=True))
        factors = [
            self._rounded(x, *map(ops.convert_to_tensor, pair))
            for x, pair in zip(
                (inputs, ops.convert_to_tensor(self._plain)), pairs, strict=False
            )
        ]
        outputs = self._product(*factors)  # type: ignore[attr-defined]
        return self._with_rounded_gradient(
            outputs, *map(ops.convert_to_tensor, pairs[2])
        )

    def _rounded(self, x: Any, scale: Any, history: Any) -> Any:
        scope = current_scope()
        is_training = scope is not None and scope.training

        @ops.custom_gradient
        def rounded(x: Any, scale: Any, history: Any) -> Any:
            def back(upstream: Any) -> tuple[Any, Any, Any]:
                if not is_training:
                    return upstream, None, None
                return upstream, *_updated(x, scale, history, _FORWARD)

            outputs = quantize_and_dequantize(x, scale, _FORWARD, self.compute_dtype)
            return outputs, back

        return rounded(x, scale, history)

    def _with_rounded_gradient(self, outputs: Any, scale: Any, history: Any) -> Any:
        @ops.custom_gradient
        def unchanged(outputs: Any, scale: Any, history: Any) -> Any:
            def back(upstream: Any) -> tuple[Any, Any, Any]:
                rounded = quantize_and_dequantize(
                    upstream, scale, _BACKWARD, self.compute_dtype
                )
                return rounded, *_updated(upstream, scale, history, _BACKWARD)

            return outputs, back

        return unchanged(outputs, scale, history)

    def _bias_to_add(self) -> Any:
        """Return the bias; with float8 it is rounded to bfloat16, as in Keras."""
        bias = self.bias  # type: ignore[attr-defined]
        rounds = self.quantization_mode == "float8" and self.compute_dtype == "float32"
        if bias is None or not rounds:
            return bias
        return ops.cast(ops.cast(bias, "bfloat16"), bias.dtype)


def _updated(x: Any, scale: Any, history: Any, dtype: str) -> tuple[Any, Any]:
    """Return the next scale, by the history so far, and the history with these."""
    largest = ops.max(history, axis=0)
    new = compute_float8_scale(largest, scale, float(finfo(dtype).max))
    return new, compute_float8_amax_history(x, history)
