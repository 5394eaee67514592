"""Weights as small numbers that data has chosen: what GPTQ and AWQ leave in a layer."""

from __future__ import annotations

import math
from typing import Any

from ganglion import ops
from ganglion.layers.weight_formats.float8 import Float8
from ganglion.quantizers.packing import pack_int4, unpack_int4
from ganglion.quantizers.scaling import dequantize_by_groups
from ganglion.variables import Variable

CALIBRATED_MODES = ("gptq", "awq")


class Calibrated(Float8):
    """The part of a layer that ``quantize("gptq")`` and ``quantize("awq")`` add.

    The kernel, a matrix from inputs to outputs, is kept transposed, with a scale and a
    zero point for each output and group of inputs. Until `calibrate` is called, or a
    file is read, the layer computes with the kernel that it had.
    """

    is_gptq_calibrated = False
    is_awq_calibrated = False
    quantized_kernel: Variable

    @property
    def _is_calibrated(self) -> bool:
        return bool(getattr(self, f"is_{self.quantization_mode}_calibrated", False))

    def _calibrated_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return how many inputs and outputs the kernel has."""
        rows, columns = shape
        return rows, columns

    def _make_calibrated(self, mode: str, config: Any) -> None:
        assert self._full_shape is not None
        setattr(self, f"is_{mode}_calibrated", False)
        settings: Any = self._own_policy() if config is None else config
        rows, columns = self._kernel_matrix = self._calibrated_shape(self._full_shape)
        self._weight_bits = settings.weight_bits
        size = settings.group_size
        groups = 1 if size == -1 else math.ceil(rows / size)
        kept = math.ceil(columns / 2) if self._weight_bits == 4 else columns
        self._make_fixed("quantized_kernel", (kept, rows), "zeros", "uint8", "kernel")
        self._make_fixed("kernel_scale", (columns, groups), "ones")
        self._make_fixed("kernel_zero", (columns, groups), "zeros", "uint8")
        if mode == "awq":
            self._make_fixed("awq_scales", (rows,), "ones")
        self._make_fixed("g_idx", (rows,), "zeros", "float32")

    def _make_fixed(
        self,
        attribute: str,
        shape: tuple[int, ...],
        initializer: str,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        variable = self.add_weight(
            shape, initializer, dtype=dtype, trainable=False, name=name or attribute
        )
        setattr(self, attribute, variable)

    def _calibrated_variables(self) -> list[Variable]:
        names = ("quantized_kernel", "kernel_scale", "kernel_zero", "awq_scales")
        own = vars(self)
        return [own[name] for name in (*names, "g_idx") if name in own]

    def calibrate(
        self, numbers: Any, scale: Any, zero: Any, group: Any, awq_scales: Any = None
    ) -> None:
        """Take the numbers that were chosen, (outputs, inputs), in the kernel's place.

        A row of `scale` and `zero` belongs to an output, a number of `group` to an
        input.
        """
        packed = numbers.astype("uint8")
        if self._weight_bits == 4:
            packed, _, _ = pack_int4(packed, axis=0, dtype="uint8")
        delattr(self, "_kernel")
        values = [packed, scale, zero, *([] if awq_scales is None else [awq_scales])]
        variables = self._calibrated_variables()
        for variable, value in zip(variables, [*values, group], strict=True):
            variable.assign(value)
        setattr(self, f"is_{self.quantization_mode}_calibrated", True)

    def _small_numbers(self) -> Any:
        if self._weight_bits != 4:
            return self.quantized_kernel
        columns = self._kernel_matrix[1]
        return unpack_int4(self.quantized_kernel, columns, axis=0, dtype="uint8")

    def _calibrated_product(self, inputs: Any) -> Any:
        if not self._is_calibrated and "_kernel" in vars(self):
            weight: Any = self._plain
        else:  # also before a file is read
            _, scale, zero, *_, group = self._calibrated_variables()
            numbers = self._small_numbers()
            matrix = dequantize_by_groups(numbers, scale, zero, group, axis=-1)
            weight = ops.transpose(matrix)
            if self.quantization_mode == "awq":
                weight = weight / ops.expand_dims(vars(self)["awq_scales"], -1)
            weight = ops.reshape(weight, self._full_shape)
        weight = ops.cast(weight, self.compute_dtype)
        return self._product(inputs, weight)  # type: ignore[attr-defined]

    def enable_lora(self, rank: int, *args: Any, **kwargs: Any) -> None:
        if self.quantization_mode in CALIBRATED_MODES:
            name = self.quantization_mode.upper()
            raise NotImplementedError(
                f"lora is not currently supported with {name} quantization."
            )
        super().enable_lora(rank, *args, **kwargs)
