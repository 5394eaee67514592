"""Layers whose large weight may be numbers of 8 or 4 bits, with scales."""

from __future__ import annotations

import math
from typing import Any

from ganglion import ops
from ganglion.dtypes import policy_by_name
from ganglion.layers.construction import is_ours
from ganglion.layers.weight_formats.calibrated import CALIBRATED_MODES, Calibrated
from ganglion.quantizers.configs import (
    QuantizationConfig,
    block_size_of,
    is_grouped,
    resolved,
)
from ganglion.quantizers.packing import pack_int4, unpack_int4
from ganglion.quantizers.scaling import (
    AbsMaxQuantizer,
    abs_max_quantize_grouped_with_zero_point,
    dequantize_by_groups,
)
from ganglion.variables import Variable

_INT4 = (-8, 7)


class Quantizable(Calibrated):
    """An adaptable layer that can hold its weight as integers.

    Of 8 bits, the weight is ``numbers / scale``: a subclass says along which axes it
    has one scale (`_scaled_axes`), how scales are kept (`_kept_scale`), and how they
    meet the weight again (`_spread_scale`). Of 4 bits, it is a matrix (`_as_matrix`),
    two numbers in a byte along its last axis, and has a scale for each column, or one
    and a zero point for each block of the rows of a column.
    """

    quantization_config: Any
    inputs_quantizer: Any = None
    quantization_modes: tuple[str, ...] = ("int8", "int4", "float8", "gptq", "awq")
    summed_axis = 0  # of the matrix of numbers of 4 bits

    def _scaled_axes(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _kept_scale(self, scale: Any) -> Any:
        raise NotImplementedError

    def _spread_scale(self, scale: Any) -> Any:
        raise NotImplementedError

    def _as_matrix(self, weight: Any) -> Any:
        """Return the weight as a matrix, with the axes that are summed over merged."""
        return weight

    def _from_matrix(self, matrix: Any) -> Any:
        """Return a matrix in the shape of the weight."""
        return matrix

    @property
    def _stored(self) -> list[Variable]:
        """The numbers, their scales, zero points and the block of each row."""
        name = self.adapted_name
        names = (f"_{name}", f"{name}_scale", f"{name}_zero", "g_idx")
        return [vars(self)[own] for own in names if own in vars(self)]

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Turn the weight into integers, or products into those of float8."""
        config = resolved(mode, config)
        self._check_mode(config.mode)
        if type_check and not is_ours(type(self)):
            super().quantize(config.mode)
        if config.mode not in self.quantization_modes:
            raise self._unknown_mode(config.mode)
        self.quantization_config = config
        self._quantize_by(config)
        if self.quantization_mode is None:
            mode = config.mode
            if mode == "int4":
                size = block_size_of(self, config)
                mode = f"int4/{-1 if size is None else size}"
            elif mode in CALIBRATED_MODES:
                mode = config.dtype_policy_string()
            source = self._own_policy().name
            self.dtype_policy = policy_by_name(f"{mode}_from_{source}")

    def _check_mode(self, mode: str) -> None:
        if not self.built:
            raise ValueError(
                f"Cannot quantize a layer that isn't yet built. Layer '{self.name}' "
                f"(of type '{type(self).__name__}') is not built yet."
            )
        if getattr(self, "_is_quantized", False):
            raise ValueError(
                f"Layer '{self.name}' is already quantized with "
                f"dtype_policy='{self.dtype_policy.name}'. Received: mode={mode}"
            )
        if mode == "int8" and self.compute_dtype == "float16":
            raise ValueError(
                f"Quantization mode='{mode}' doesn't work well with "
                "compute_dtype='float16'. Consider another dtype policy such as "
                "'mixed_bfloat16' before calling `quantize()`."
            )

    def _quantize_by(self, config: Any) -> None:
        shape = self._plain.shape
        if config.mode not in ("int8", "int4"):
            self.quantized_build(shape, config.mode, config)
            return
        values = self._quantized(self._plain, config)
        delattr(self, f"_{self.adapted_name}")
        self.quantized_build(shape, config.mode, config)
        for variable, value in zip(self._stored, values, strict=False):
            variable.assign(value)

    def _unknown_mode(self, mode: Any) -> NotImplementedError:
        return NotImplementedError(
            f"Invalid quantization mode. Expected one of {self.quantization_modes}. "
            f"Received: quantization_mode={mode}"
        )

    def _quantized(self, weight: Any, config: Any) -> list[Any]:
        """Return the numbers and scales of a weight, and zero points of blocks."""
        if config is None or config.mode == "int8":
            default = AbsMaxQuantizer(axis=self._scaled_axes())
            quantizer = QuantizationConfig.weight_quantizer_or_default(config, default)
            numbers, scale = quantizer(weight, to_numpy=True)
            return [numbers, self._kept_scale(scale)]
        return quantized_matrix(
            self._as_matrix(weight), self.summed_axis, config, pack_axis=-1
        )

    # ---- variables -----------------------------------------------------------------

    def quantized_build(self, kernel_shape: Any, mode: Any, config: Any = None) -> None:
        """Make the variables of a mode, to be assigned or read from a file."""
        if mode not in self.quantization_modes:
            raise self._unknown_mode(mode)
        self._full_shape = tuple(kernel_shape)
        if mode == "float8":
            self._make_float8()
        elif mode in CALIBRATED_MODES:
            self._make_calibrated(mode, config)
        else:
            make = self._make_int8 if mode == "int8" else self._make_int4
            make(self._full_shape, config)
        self._is_quantized = True

    def _build_quantized(self, shape: tuple[int, ...]) -> bool:
        """Make the variables of the policy's mode; return whether there is a weight."""
        mode = self.quantization_mode
        if mode is None:
            return True
        self.quantized_build(shape, mode, self.quantization_config)
        return mode == "float8"

    def _fixed(
        self, name: str, shape: Any, initializer: Any = "zeros", dtype: Any = None
    ) -> Variable:
        return self.add_weight(
            shape, initializer, dtype=dtype, trainable=False, name=name
        )

    def _make_int8(self, shape: tuple[int, ...], config: Any) -> None:
        name = self.adapted_name
        self.inputs_quantizer = QuantizationConfig.activation_quantizer_or_default(
            config, AbsMaxQuantizer()
        )
        setattr(self, f"_{name}", self._fixed(name, shape, dtype="int8"))
        axes = {axis % len(shape) for axis in self._scaled_axes()}
        kept = self._kept_scale(
            ops.ones([1 if axis in axes else n for axis, n in enumerate(shape)])
        )
        scale = self._fixed(f"{name}_scale", kept.shape, "ones")
        setattr(self, f"{name}_scale", scale)

    def _make_int4(self, shape: tuple[int, ...], config: Any) -> None:
        name = self.adapted_name
        self.inputs_quantizer = QuantizationConfig.activation_quantizer_or_default(
            config, None
        )
        self._int4_block_size = size = block_size_of(self, config)
        rows, columns = self._matrix_shape = self._as_matrix(ops.zeros(shape)).shape
        numbers = self._fixed(name, (rows, math.ceil(columns / 2)), dtype="int8")
        setattr(self, f"_{name}", numbers)
        scales = scales_shape((rows, columns), self.summed_axis, size)
        setattr(self, f"{name}_scale", self._fixed(f"{name}_scale", scales, "ones"))
        if not is_grouped(size):
            return
        zero = self._fixed(f"{name}_zero", scales, dtype="int8")
        setattr(self, f"{name}_zero", zero)
        summed = (rows, columns)[self.summed_axis]
        self.g_idx = self._fixed("g_idx", (summed,), dtype="float32")
        self.g_idx.assign(ops.floor(ops.arange(summed, dtype="float32") / size))

    # ---- products ------------------------------------------------------------------

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs with the quantized weight."""
        if self.quantization_mode not in self.quantization_modes:
            raise self._unknown_mode(self.quantization_mode)
        return self.call(*args, **kwargs)

    def _product(self, inputs: Any, weight: Any) -> Any:
        """Return what the layer computes of its inputs and a weight."""
        raise NotImplementedError

    def _product_back(self, upstream: Any, weight: Any) -> Any:
        """Return the gradient of a product to its inputs."""
        raise NotImplementedError

    def _inputs_axes(self) -> Any:
        """Return the axes along which the inputs share a scale."""
        return -1

    def _aligned(self, scale: Any) -> Any:
        """Return a scale of the inputs as it meets the outputs."""
        return scale

    def _dequantized(self, numbers: Any, scale: Any, *blocks: Any) -> Any:
        """Return the weight that numbers, scales and blocks mean."""
        if self.quantization_mode != "int4":
            return ops.cast(numbers, scale.dtype) / self._spread_scale(scale)
        unpacked = unpack_int4(numbers, self._matrix_shape[-1], axis=-1)
        return self._from_matrix(
            dequantized_matrix(unpacked, self.summed_axis, scale, *blocks)
        )

    def _quantized_product(self, inputs: Any) -> Any:
        """Multiply integers, and scale what comes out; adapted, if it is."""
        if self.quantization_mode == "float8":
            return self._float8_product(inputs)
        if self.quantization_mode in CALIBRATED_MODES:
            return self._calibrated_product(inputs)

        @ops.custom_gradient
        def product(inputs: Any, *stored: Any) -> Any:
            def back(upstream: Any) -> tuple[Any, ...]:
                weight = ops.cast(self._dequantized(*stored), upstream.dtype)
                return self._product_back(upstream, weight), *[None] * len(stored)

            compute = self._int4_product
            if self.quantization_mode != "int4":
                compute = self._int8_product
            return ops.cast(compute(inputs, *stored), self.compute_dtype), back

        outputs = product(inputs, *map(ops.convert_to_tensor, self._stored))
        return self._with_change(outputs, inputs)

    def _int8_product(self, inputs: Any, numbers: Any, scale: Any) -> Any:
        total, kind = scale, self.compute_dtype
        if self.inputs_quantizer:
            inputs, own = self.inputs_quantizer(inputs, axis=self._inputs_axes())
            total, kind = total * self._aligned(own), "float32"
        # Sums of products of bytes are as exact in floats, and much faster.
        outputs = self._product(ops.cast(inputs, kind), ops.cast(numbers, kind))
        return ops.cast(outputs, self.compute_dtype) / total

    def _int4_product(self, inputs: Any, *stored: Any) -> Any:
        if self.inputs_quantizer:
            inputs, own = self.inputs_quantizer(inputs, axis=self._inputs_axes())
            inputs = ops.cast(inputs, self.compute_dtype) / own
        weight = ops.cast(self._dequantized(*stored), self.compute_dtype)
        return self._product(inputs, weight)

    def _with_change(self, outputs: Any, inputs: Any) -> Any:
        if not self.lora_enabled:
            return outputs
        assert self.lora_alpha is not None
        assert self.lora_rank is not None
        first, second = self._low_rank()
        change = ops.matmul(self._product(inputs, first), second)
        outputs = outputs + change * (self.lora_alpha / self.lora_rank)
        return ops.cast(outputs, self.compute_dtype)

    def _base_weight(self) -> Any:
        if not self._is_quantized:
            return super()._base_weight()
        if self._is_calibrated:
            return self._small_numbers()
        if self.quantization_mode != "int4":
            return super()._base_weight()
        unpacked = unpack_int4(self._plain, self._matrix_shape[-1], axis=-1)
        return self._from_matrix(unpacked)

    # ---- files -----------------------------------------------------------------------

    @property
    def saves_plainly(self) -> bool:
        return super().saves_plainly and not self._is_quantized

    def _saved_variables(self) -> list[Variable]:
        if self._is_quantized and self.quantization_mode in CALIBRATED_MODES:
            bias = getattr(self, "bias", None)
            return [*([] if bias is None else [bias]), *self._calibrated_variables()]
        plain = super()._saved_variables()
        if not self._is_quantized:
            return plain
        if self.quantization_mode == "float8":
            return [*plain, *self._float8_variables()]
        return [*plain, *self._stored[1:]]

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if not self._is_quantized or self.quantization_mode not in ("int8", "int4"):
            return
        values = [variable.array for variable in self._stored]
        if self.lora_enabled:
            config = self.quantization_config
            values[: 3 if len(values) > 2 else 2] = self._quantized(
                self._merged(), config
            )
        saved = self._saved_variables()
        for variable, value in zip(self._stored, values, strict=True):
            number = next(n for n, own in enumerate(saved) if own is variable)
            store[str(number)] = value

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)
        if self.quantization_mode in CALIBRATED_MODES:  # those of files always are
            setattr(self, f"is_{self.quantization_mode}_calibrated", True)

    def _merged(self) -> Any:
        """Return the weight that numbers and low-rank weights mean together."""
        assert self.lora_alpha is not None
        assert self.lora_rank is not None
        change = ops.matmul(*self._low_rank()) * (self.lora_alpha / self.lora_rank)
        return ops.cast(self._dequantized(*self._stored) + change, self.compute_dtype)


# ---- matrices of numbers of 4 bits ---------------------------------------------------


def scales_shape(
    shape: tuple[int, ...], summed_axis: int, block_size: int | None
) -> tuple[int, ...]:
    """Return the shape of the scales of a matrix, a column or a block each."""
    columns = shape[1 - summed_axis]
    if not is_grouped(block_size):
        return (columns,)
    assert block_size is not None
    groups = math.ceil(shape[summed_axis] / block_size)
    return (groups, columns) if summed_axis == 0 else (columns, groups)


def quantized_matrix(
    matrix: Any, summed_axis: int, config: Any, pack_axis: int
) -> list[Any]:
    """Return packed numbers of 4 bits and scales, and zero points for blocks."""
    size = config.block_size
    if is_grouped(size):
        is_turned = summed_axis == 1
        upright = ops.transpose(matrix) if is_turned else matrix
        parts = abs_max_quantize_grouped_with_zero_point(upright, size, to_numpy=True)
        numbers, *rest = map(ops.transpose, parts) if is_turned else parts
    else:
        default = AbsMaxQuantizer(axis=summed_axis, value_range=_INT4)
        quantizer = QuantizationConfig.weight_quantizer_or_default(config, default)
        numbers, scale = quantizer(matrix, to_numpy=True)
        rest = [ops.squeeze(scale, summed_axis)]
    packed, _, _ = pack_int4(ops.convert_to_tensor(numbers), axis=pack_axis)
    return [packed, *rest]


def dequantized_matrix(numbers: Any, summed_axis: int, scale: Any, *blocks: Any) -> Any:
    """Return what numbers mean, by scales of columns or of blocks of their rows."""
    if not blocks:
        return ops.cast(numbers, scale.dtype) / ops.expand_dims(scale, summed_axis)
    zero, group = blocks
    return dequantize_by_groups(numbers, scale, zero, group, axis=summed_axis)
