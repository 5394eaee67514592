"""Types of numbers by Keras' names, and policies of them.

>>> import numpy as np
>>> standardize_dtype(np.float32), standardize_dtype(int), standardize_dtype(None)
('float32', 'int64', 'float32')
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# registers "bfloat16" and "float8_e4m3fn" in NumPy
from ml_dtypes import finfo as finfo

from ganglion import config

INT_TYPES = tuple(f"{u}int{bits}" for u in ("u", "") for bits in (8, 16, 32, 64))
FLOAT_TYPES = config.FLOAT_TYPES
FLOAT8_TYPES = ("float8_e4m3fn", "float8_e5m2")
COMPLEX_TYPES = ("complex64", "complex128")
TEXT = "string"
ALLOWED_TYPES = (
    *FLOAT_TYPES,
    *INT_TYPES,
    "bool",
    TEXT,
    *FLOAT8_TYPES,
    *COMPLEX_TYPES,
)
# As Keras has them on TensorFlow.
_OF_PYTHON = {
    bool: "bool",
    int: "int64",
    float: "float32",
    complex: "complex128",
    str: TEXT,
    "int": "int64",
}
QUANTIZATION_MODES = ("int8", "float8", "int4", "gptq", "awq")


def standardize_dtype(dtype: Any) -> str:
    """Return a type's name, from a name or a type of any framework."""
    if dtype is None:
        return config.floatx()
    if isinstance(dtype, np.dtype):
        return _standard_name(dtype)
    return _name_of(dtype)


@cache
def _standard_name(dtype: np.dtype) -> str:
    return _name_of(dtype)


def _name_of(dtype: Any) -> str:
    try:
        dtype = _OF_PYTHON.get(dtype, dtype)
    except TypeError:  # it cannot be hashed, so it is none
        raise ValueError(f"Invalid dtype: {dtype!r}") from None
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype
    if not isinstance(name, str):
        name = str(name).rsplit(".", 1)[-1]  # torch.float32
    if name not in ALLOWED_TYPES:
        raise ValueError(
            f"Invalid dtype: {name}. {config.closest(name, ALLOWED_TYPES)}"
        )
    return name


def is_float_dtype(dtype: Any) -> bool:
    """Return whether this is a type of floats."""
    return "float" in standardize_dtype(dtype)


def is_int_dtype(dtype: Any) -> bool:
    """Return whether this is a type of integers."""
    return "int" in standardize_dtype(dtype)


_cast: list[Callable[[Any, str], Any]] = []


def register_cast(cast: Callable[[Any, str], Any]) -> None:
    """Register the function that converts arrays and tensors, from a room above."""
    _cast[:] = [cast]


# ---- policies ------------------------------------------------------------------------


class DTypePolicy:
    """The types that a layer computes in and stores its weights in.

    >>> policy = DTypePolicy("mixed_float16")
    >>> policy.compute_dtype, policy.variable_dtype
    ('float16', 'float32')
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = config.dtype_policy().name if name is None else name
        self._compute_dtype, self._variable_dtype = _parse(self._name)
        self._quantization_mode: str | None = None

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @property
    def compute_dtype(self) -> str:
        """The type that layers compute in."""
        return self._compute_dtype

    @property
    def variable_dtype(self) -> str:
        """The type of weights."""
        return self._variable_dtype

    @property
    def quantization_mode(self) -> str | None:
        """How weights are quantized, None if they are not."""
        return self._quantization_mode

    def convert_input(self, x: Any, autocast: bool, dtype: Any) -> Any:
        """Return floats as this type, if `autocast`; anything else as it is."""
        if not autocast or not hasattr(x, "dtype") or not is_float_dtype(x.dtype):
            return x
        name = standardize_dtype(dtype)
        return x if standardize_dtype(x.dtype) == name else _cast[0](x, name)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal policy."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a policy from its configuration."""
        return cls(**config)

    def __repr__(self) -> str:
        kind = type(self).__name__.replace("FloatDTypePolicy", "DTypePolicy")
        return f'<{kind} "{self._name}">'

    def __eq__(self, other: object) -> bool:
        plain = (DTypePolicy, FloatDTypePolicy)
        if type(self) in plain:
            return type(other) in plain and self._name == other._name  # type: ignore[attr-defined]
        return type(other) is type(self) and self.get_config() == other.get_config()

    def __hash__(self) -> int:
        return hash(self._name)


class FloatDTypePolicy(DTypePolicy):
    """Another name of `DTypePolicy`."""


class QuantizedDTypePolicy(DTypePolicy):
    """The policy of a layer whose weights are quantized.

    >>> QuantizedDTypePolicy("int8", "float32").name
    'int8_from_float32'
    """

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        source = config.dtype_policy().name if source_name is None else source_name
        self._compute_dtype, self._variable_dtype = _parse(source)
        if mode not in QUANTIZATION_MODES:
            raise ValueError(
                f"Invalid quantization mode {mode!r}: use one of "
                f"{', '.join(QUANTIZATION_MODES)}."
            )
        if mode == "int8" and self._compute_dtype == "float16":
            raise ValueError(
                "Quantization mode='int8' doesn't work well with "
                "compute_dtype='float16': use 'mixed_bfloat16' or 'bfloat16'."
            )
        self._name = f"{mode}_from_{source}"
        self._source_name, self._quantization_mode = source, mode

    def get_config(self) -> dict[str, Any]:
        return {"mode": self._quantization_mode, "source_name": self._source_name}


class QuantizedFloat8DTypePolicy(QuantizedDTypePolicy):
    """The policy of a layer that multiplies in float8."""

    default_amax_history_length = 1024

    def __init__(
        self,
        mode: str,
        source_name: str | None = None,
        amax_history_length: int = 1024,
    ) -> None:
        super().__init__(mode, source_name)
        if not isinstance(amax_history_length, int):
            raise TypeError(
                "`amax_history_length` must be an integer, got "
                f"{amax_history_length!r}."
            )
        self._amax_history_length = amax_history_length

    @property
    def amax_history_length(self) -> int:
        """The length of the history of largest values."""
        return self._amax_history_length

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "amax_history_length": self._amax_history_length,
        }


class Int4DTypePolicy(QuantizedDTypePolicy):
    """The policy of a layer with weights of 4 bits, scaled block by block.

    The mode is "int4/128" for blocks of 128 elements, "int4/-1" for whole channels.
    """

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        base, _, size = str(mode).partition("/")
        if base != "int4" or not size.lstrip("-").isdecimal():
            raise ValueError(
                "Invalid mode for Int4DTypePolicy: expected 'int4/<block_size>' with a "
                f"integer, but got {mode!r}."
            )
        if int(size) < -1 or int(size) == 0:
            raise ValueError(
                "Invalid block_size in mode. Supported values are -1 (per-channel) or "
                f"a positive integer (sub-channel), but got {size} from '{mode}'."
            )
        super().__init__(base, source_name)
        self._name = f"{mode}_from_{source_name}"
        self.mode, self.block_size = base, int(size)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mode": f"{self.mode}/{self.block_size}"}


class _CalibratedDTypePolicy(QuantizedDTypePolicy):
    """The policy of a layer whose small numbers were chosen by data."""

    algorithm = ""
    supported_bits: tuple[int, ...] = ()

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        base, *numbers = str(mode).split("/")
        invalid = f"Invalid mode for {type(self).__name__}."
        expected = (
            f"Expected format '{self.algorithm}/<weight_bits>/<group_size>', but got "
            f"'{mode}'."
        )
        if base != self.algorithm or len(numbers) != 2:
            raise ValueError(f"{invalid} {expected}")
        try:
            self.weight_bits, self.group_size = map(int, numbers)
        except ValueError:
            raise ValueError(
                f"{invalid} <weight_bits> and <group_size> must be integers. {expected}"
            ) from None
        if self.weight_bits not in self.supported_bits:
            raise ValueError(
                f"Invalid weight_bits in mode. {base.upper()} only supports "
                f"{', '.join(map(str, self.supported_bits))}-bit quantization. "
                "Supported values are those, but got "
                f"{self.weight_bits} from '{mode}'."
            )
        if self.group_size < -1 or self.group_size == 0:
            raise ValueError(
                "Invalid group_size in mode. Supported values are -1 (no groups) or a "
                f"positive integer, but got {self.group_size} from '{mode}'."
            )
        super().__init__(base, source_name)
        self._name = f"{mode}_from_{self._source_name}"
        self.mode = base

    def get_config(self) -> dict[str, Any]:
        mode = f"{self.mode}/{self.weight_bits}/{self.group_size}"
        return {**super().get_config(), "mode": mode}


class GPTQDTypePolicy(_CalibratedDTypePolicy):
    """The policy of a layer that GPTQ quantized: "gptq/4/128" is bits and group."""

    algorithm = "gptq"
    supported_bits = (2, 3, 4, 8)


class AWQDTypePolicy(_CalibratedDTypePolicy):
    """The policy of a layer that AWQ quantized, to 4 bits: "awq/4/128"."""

    algorithm = "awq"
    supported_bits = (4,)


def _parse(name: Any) -> tuple[str, str]:
    """Return what a policy of this name computes in, and its type of weights."""
    if not isinstance(name, str):
        raise TypeError(
            "'name' must be a string, such as 'mixed_float16'. "
            f"Received: name={name} (of type {type(name)})"
        )
    mixed = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
    if name in mixed:
        return mixed[name], "float32"
    try:
        dtype = standardize_dtype(name)
    except ValueError:
        raise ValueError(
            f"Cannot convert '{name}' to a mixed precision DTypePolicy: use "
            "'mixed_float16', 'mixed_bfloat16', or a type such as 'float32'."
        ) from None
    return dtype, dtype


def policy_by_name(name: str) -> DTypePolicy:
    """Return the policy of this name, quantized ones too: "int8_from_float32".

    >>> policy_by_name("int8_from_mixed_bfloat16").compute_dtype
    'bfloat16'
    """
    mode, _, source = name.partition("_from_")
    base = mode.split("/")[0]
    if not name.startswith(QUANTIZATION_MODES):
        return DTypePolicy(name)
    if not source:
        raise ValueError(
            "Cannot convert `policy` into a valid pair (`mode`, `source_name`) of a "
            f"quantized policy, such as 'int8_from_float32'. Received: policy={name}"
        )
    if base in ("gptq", "awq"):
        calibrated = GPTQDTypePolicy if base == "gptq" else AWQDTypePolicy
        return calibrated(mode, source)
    if base == "float8":
        return QuantizedFloat8DTypePolicy(mode, source)
    kind = Int4DTypePolicy if "/" in mode else QuantizedDTypePolicy
    return kind(mode, source)
