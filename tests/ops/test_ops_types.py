"""The types of results, for arguments of every type, against Keras 3.15."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops_types_cases import SCALARS, TWO_ARRAYS, UNARY

from ganglion import ops

pytestmark = pytest.mark.rivals

TYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64")
ROUNDED = "Keras rounds what it computed in floats; it stays in floats"
DIFFERENT = {
    "layer_normalization": ROUNDED,
    "rms_normalization": ROUNDED,
    "soft_shrink": ROUNDED,
    "moments": ROUNDED,
    "stack": "Keras on TensorFlow turns all integers into int32 here alone",
    "max_pool": "Keras on TensorFlow makes float32 of every float type",
    "select": "Keras on TensorFlow makes int64 of bool and a Python number",
} | dict.fromkeys(
    (
        "mod", "heaviside", "hypot", "logaddexp", "arctan2", "bitwise_and",
        "bitwise_or", "bitwise_xor", "fmod", "gcd", "lcm", "logaddexp2", "nextafter",
    ),
    "Keras takes a Python number for an array here alone",
)  # fmt: skip


def type_of(function: Any, *args: Any) -> str | None:
    """Return the type of a result, None where the call is refused."""
    with np.errstate(all="ignore"):
        try:
            result = function(*args)
        except Exception:
            return None
    kind = result.dtype
    return kind if isinstance(kind, str) else kind.name


def differences(calls: dict[str, tuple[Any, Any]]) -> dict[str, tuple[str, str]]:
    """Return the calls whose results have other types; refusals are no types."""
    pairs = {text: (type_of(*a), type_of(*b)) for text, (a, b) in calls.items()}
    return {
        text: (ours, theirs)
        for text, (ours, theirs) in pairs.items()
        if theirs is not None and ours != theirs
    }


@pytest.mark.parametrize("name", UNARY)
def test_of_one_array(keras, name: str) -> None:
    calls = {}
    for kind in TYPES:
        x = np.array([[1, 1], [1, 0]]).astype(kind)
        calls[kind] = (UNARY[name], ops, x), (UNARY[name], keras.ops, x)
    if name in DIFFERENT:
        pytest.skip(DIFFERENT[name])
    assert not differences(calls)


@pytest.mark.parametrize("name", TWO_ARRAYS)
def test_of_two_arrays(keras, name: str) -> None:
    ours, theirs = getattr(ops, name), getattr(keras.ops, name)
    calls = {}
    others = TYPES if name in DIFFERENT else (*TYPES, *SCALARS)
    for first in TYPES:
        x = np.ones((2, 2)).astype(first)
        for second in others:
            y = np.ones((2, 2)).astype(second) if isinstance(second, str) else second
            calls[f"{first}, {second}"] = (ours, x, y), (theirs, x, y)
    assert not differences(calls)


NARROW = {
    "mean": lambda o, x: [o.mean(x), o.mean(x, axis=1, keepdims=True)],
    "moments": lambda o, x: o.moments(x, axes=[1]),
    "average": lambda o, x: [o.average(x, axis=1, weights=np.ones(4, "float32"))],
    "whole weights": lambda o, x: [o.average(x, axis=1, weights=np.ones(4, "int32"))],
    "correlate": lambda o, x: [o.correlate(x[0], np.ones(2, "int32"))],
    "rms_scaling": lambda o, x: [o.layer_normalization(x / 100, rms_scaling=True)],
}


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling=True`")
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NARROW)
def test_of_narrow_floats_whose_sums_leave_their_range(keras, name, kind) -> None:
    if (name, kind) == ("moments", "bfloat16"):
        pytest.skip("Keras on TensorFlow clips the variance to float16's range")
    x = np.array([[60000, 60000, 59000, 1], [3, -5, 60000, 2]], np.dtype(kind))
    ours = NARROW[name](ops, x)
    theirs = NARROW[name](keras.ops, keras.ops.convert_to_tensor(x))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype.name == keras.backend.standardize_dtype(other.dtype)
        wide = keras.ops.convert_to_numpy(keras.ops.cast(other, "float64"))
        np.testing.assert_allclose(mine.astype("float64"), wide, rtol=2e-2)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8"])
def test_of_a_product_of_bytes(keras, kind: str) -> None:
    a, b = np.ones(2, "int8"), np.ones(2, kind)
    expected = keras.backend.standardize_dtype(keras.ops.einsum("i,i->i", a, b).dtype)
    assert ops.einsum("i,i->i", a, b).dtype == expected


def test_float64_in_a_trace_takes_the_float_type_of_the_configuration() -> None:
    """A table of NumPy's default type must not make a float32 model slow."""
    from ganglion.variables import Scope

    with Scope():
        assert ops.convert_to_tensor(np.ones(2)).dtype == "float32"
    assert ops.convert_to_tensor(np.ones(2)).dtype == "float64"
    assert ops.convert_to_tensor([1.0, 2.0]).dtype == "float32"
