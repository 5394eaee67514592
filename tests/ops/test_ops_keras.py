"""The same calls on `keras.ops`: values, shapes and types."""

from __future__ import annotations

import numpy as np
import ops_cases_edges  # noqa: F401 (adds its calls to the table)
import ops_cases_nn  # noqa: F401
import pytest
from ops_cases import CALLS, Call
from ops_cases_numpy import NUMPY_CALLS
from ops_titles import title

from ganglion import ops, tree

pytestmark = pytest.mark.rivals

# Calls in which Keras 3.15 on TensorFlow leaves NumPy's or its own definition.
DIFFERENT = {
    "isclose((2, 3), (2, 3))": "equal infinities are not close",
    "isclose((2, 3), (2, 3), equal_nan=True)": "equal infinities are not close",
    "select((2, 3), (2, 3), (2, 3), (2, 3), 7.0)": "gives float64 for float32",
    "vstack((3,), (3,))": "joins two rows into one",
    "pad((2, 3), 1, constant_values=2.5)": "refuses one width for all axes",
    "norm((2, 3, 4))": "refuses three axes",
    "linspace((3,), (3,), 5, retstep=True, dtype=int32)": "gives steps of float64",
    "multi_hot((0,), 4)": "gives minus infinity",
    "eye(2, 4, k=1)": "gives a matrix of another shape",
    "sparsemax((4, 6))": "rows that do not add up to one",
    "sparsemax((2, 3, 4), axis=1)": "rows that do not add up to one",
}


# TensorFlow refuses or miscounts many of these: `test_ops_jax.py` compares them.
ON_JAX = [id(call) for call in NUMPY_CALLS]


@pytest.mark.parametrize("call", [c for c in CALLS if id(c) not in ON_JAX], ids=title)
def test_keras_gives_the_same(keras, call: Call) -> None:
    function = getattr(keras.ops, call.name, None)
    if function is None:
        pytest.skip(f"keras.ops has no {call.name}")
    if title(call) in DIFFERENT:
        pytest.skip(f"Keras differs: {DIFFERENT[title(call)]}")
    args = call.args
    if call.name.startswith("adaptive_"):  # Keras' asks for tensors
        args = (keras.ops.convert_to_tensor(args[0]), *args[1:])
    theirs = [
        keras.ops.convert_to_numpy(part)
        for part in tree.flatten(function(*args, **call.kwargs))
    ]
    ours = tree.flatten(getattr(ops, call.name)(*call.args, **call.kwargs))
    assert len(ours) == len(theirs)
    for got, right in zip(ours, theirs, strict=True):
        assert got.shape == right.shape
        assert got.dtype == right.dtype
        # Two roundings in float32, in different orders of addition.
        np.testing.assert_allclose(got, right, rtol=2e-5, atol=4e-6)
