"""TensorFlow's types, which are names here, and specifications of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = """float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32
uint64 bool string complex64 complex128""".split()  # noqa: SIM905
ALIASES = {"half": "float16", "double": "float64"}


class DType(str):
    """The name of a type, usable wherever a type is, with TensorFlow's attributes.

    >>> DType("float32") == np.dtype("float32"), DType("int8").max, DType("int8")
    (True, 127, tf.int8)
    """

    @property
    def name(self) -> str:
        """The type's name."""
        return str(self)

    @property
    def as_numpy_dtype(self) -> Any:
        """The type of NumPy's."""
        return object if self == "string" else np.dtype(str(self)).type

    @property
    def is_floating(self) -> bool:
        """Whether it is a type of floating numbers."""
        return "float" in self

    @property
    def is_integer(self) -> bool:
        """Whether it is a type of integers."""
        return self.startswith(("int", "uint"))

    @property
    def is_bool(self) -> bool:
        """Whether it is the type of truth values."""
        return self == "bool"

    @property
    def is_complex(self) -> bool:
        """Whether it is a type of complex numbers."""
        return self.startswith("complex")

    @property
    def size(self) -> int:
        """Bytes of one number."""
        return np.dtype(str(self)).itemsize

    @property
    def min(self) -> Any:
        """The smallest number of the type."""
        return self._limits().min

    @property
    def max(self) -> Any:
        """The largest number of the type."""
        return self._limits().max

    def _limits(self) -> Any:
        kind = np.dtype(str(self))
        return np.finfo(kind) if self.is_floating else np.iinfo(kind)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        try:
            return np.dtype(str(self)) == np.dtype(other)  # type: ignore[call-overload]
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return f"tf.{self!s}"


def as_dtype(value: Any) -> DType:
    """Return any name or object of a type as one of TensorFlow's."""
    if isinstance(value, str):
        return DType(ALIASES.get(value, value))
    return DType(np.dtype(value).name)


class TensorSpec:
    """The shape and the type of a tensor."""

    def __init__(
        self, shape: Any, dtype: Any = "float32", name: str | None = None
    ) -> None:
        self.shape = None if shape is None else tuple(shape)
        self.dtype = as_dtype(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """Return what describes a tensor."""
        return cls(tensor.shape, tensor.dtype, name)

    def is_compatible_with(self, other: Any) -> bool:
        """Return whether a tensor or another specification fits this one."""
        shape = tuple(other.shape)
        fits = self.shape is None or (
            len(shape) == len(self.shape)
            and all(
                mine is None or theirs is None or mine == theirs
                for mine, theirs in zip(self.shape, shape, strict=True)
            )
        )
        return fits and self.dtype == other.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and (self.shape, self.dtype) == (
            other.shape,
            other.dtype,
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return (
            f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"
        )
