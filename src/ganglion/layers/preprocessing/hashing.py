"""Hashing and HashedCrossing: values as numbers of buckets, without a vocabulary."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ganglion import config
from ganglion.layers.arguments import positive
from ganglion.layers.preprocessing.encoding import (
    encoded,
    encoded_shape,
    output_mode_of,
)
from ganglion.layers.preprocessing.fingerprints import (
    buckets,
    fingerprint64,
    fingerprint_cat64,
    salt_of,
)
from ganglion.layers.preprocessing.host import HostLayer
from ganglion.layers.preprocessing.words import as_bytes, as_text_array, is_text
from ganglion.serialization import export

_CROSSING_KEY = 0xDECAFCAFFE  # TensorFlow's first hash of a cross


@export("keras.layers")
class Hashing(HostLayer):
    """Texts or integers as numbers of buckets, by a hash of their text.

    >>> Hashing(num_bins=3)([["A"], ["B"], ["C"]]).ravel()
    array([1, 0, 1])
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: Any = None,
        salt: Any = None,
        output_mode: str = "int",
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        mode = output_mode_of(output_mode, ("int", "one_hot", "multi_hot", "count"))
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = "int64" if mode == "int" else config.floatx()
        super().__init__(**kwargs)
        self.refuse_sparse(sparse, mode)
        if mode == "int" and self.dtype not in ("int32", "int64"):
            raise ValueError(
                'When `output_mode="int"`, `dtype` should be an integer type, 32 or 64 '
                f"bits wide. Received: dtype={self.dtype}"
            )
        if num_bins is None or num_bins <= 0:
            raise ValueError(
                "The `num_bins` for `Hashing` cannot be `None` or non-positive. "
                f"Received: num_bins={num_bins}"
            )
        self.num_bins, self.mask_value = positive(num_bins, "num_bins"), mask_value
        self.salt, self.output_mode = salt_of(salt, type(self).__name__), mode
        self.sparse = False

    def call(self, inputs: Any) -> np.ndarray:
        name = f'The input of layer "{self.name}"'
        has_mask = self.mask_value is not None and self.num_bins > 1
        bins = self.num_bins - has_mask
        if is_text(inputs):
            array = as_text_array(inputs, name)
            words = as_bytes(array, name)
            numbers = buckets(words, bins, self.salt)
            mask = self.mask_value
            mask = mask.encode() if isinstance(mask, str) else mask
            masked = np.array([word == mask for word in words], bool)
        else:
            array = _numbers(inputs, name)
            unique, inverse = np.unique(_whole(array), return_inverse=True)
            words = [str(number).encode() for number in unique.tolist()]
            numbers = buckets(words, bins, self.salt)[inverse.reshape(-1)]
            masked = (array == self.mask_value).reshape(-1)
        if has_mask:
            numbers = np.where(masked, 0, numbers + 1)
        indices = numbers.reshape(array.shape)
        return encoded(indices, self.output_mode, self.num_bins, self.dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape for an input shape (None: any size)."""
        return encoded_shape(tuple(input_shape), self.output_mode, self.num_bins)

    def get_config(self) -> dict[str, Any]:
        return self.own_config(
            num_bins=self.num_bins,
            salt=self.salt,
            mask_value=self.mask_value,
            output_mode=self.output_mode,
            sparse=self.sparse,
        )


@export("keras.layers")
class HashedCrossing(HostLayer):
    """Combinations of several features as numbers of buckets, by a hash.

    >>> layer = HashedCrossing(num_bins=5)
    >>> layer((["A", "B", "A", "B", "A"], [101, 101, 101, 102, 102]))
    array([1, 4, 1, 1, 3])
    """

    def __init__(
        self,
        num_bins: int,
        output_mode: str = "int",
        sparse: bool = False,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        mode = output_mode_of(output_mode, ("int", "one_hot"))
        if mode == "int" and dtype is None:
            dtype = "int64"
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.refuse_sparse(sparse, mode)
        self.num_bins, self.output_mode = positive(num_bins, "num_bins"), mode
        self.sparse = False

    def call(self, inputs: Any) -> np.ndarray:
        if not isinstance(inputs, (list, tuple)) or len(inputs) < 2:
            raise ValueError(
                f'Layer "{self.name}" should be called on a list or tuple of inputs: '
                "it crosses at least two inputs."
            )
        shape = np.shape(inputs[0])
        if len(shape) > 2 or shape[1:] not in ((), (1,)):
            raise ValueError(
                f'The inputs of layer "{self.name}": all inputs should have shape (), '
                f"(rows,) or (rows, 1). Received: {shape}"
            )
        features = [self._hashes_of(part, i) for i, part in enumerate(inputs)]
        if any(part.shape != shape for part in features):
            raise ValueError(
                f'Layer "{self.name}" takes inputs of one shape, got '
                f"{[part.shape for part in features]}."
            )
        key = np.full(shape, _CROSSING_KEY, np.uint64)
        crossed = reduce(fingerprint_cat64, features, key)
        indices = (crossed % np.uint64(self.num_bins)).astype(np.int64)
        return encoded(indices, self.output_mode, self.num_bins, self.dtype)

    def _hashes_of(self, part: Any, number: int) -> np.ndarray:
        """Return integers as they are, and the fingerprints of texts."""
        name = f'Input {number} of layer "{self.name}"'
        if is_text(part):
            array = as_text_array(part, name)
            return fingerprint64(as_bytes(array, name)).reshape(array.shape)
        array = _numbers(part, name)
        if array.dtype.kind not in "iu":
            raise ValueError(
                f"{name} should have an integer or string `dtype`, got {array.dtype}: "
                "put numbers into bins with a Discretization layer first."
            )
        return array.astype(np.int64).astype(np.uint64)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape for the shapes of the inputs."""
        first = tuple(input_shape[0])
        return encoded_shape(first, self.output_mode, self.num_bins)

    def get_config(self) -> dict[str, Any]:
        return {
            "num_bins": self.num_bins,
            "output_mode": self.output_mode,
            "sparse": self.sparse,
            "name": self.name,
            "dtype": self.dtype,
        }


def _numbers(inputs: Any, name: str) -> np.ndarray:
    if hasattr(inputs, "numpy"):
        inputs = inputs.numpy()
    array = np.asarray(inputs)
    if array.dtype.kind not in "iuf" and array.size:
        raise TypeError(f"{name} must be text or numbers, got {array.dtype}.")
    return array


def _whole(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int64) if array.dtype.kind == "f" else array
