"""`ops.vectorize`: functions of elements, rows and matrices called on arrays."""

from __future__ import annotations

import numpy as np
import pytest

from ganglion import ops
from ganglion.symbolic import KerasTensor

X = np.arange(6, dtype="float32").reshape(2, 3)


def test_every_element_is_handed_over_alone():
    def clipped(a, b):
        assert a.shape == b.shape == ()
        return ops.maximum(a, b), a + b

    largest, total = ops.vectorize(clipped)(X, np.float32(3))
    np.testing.assert_array_equal(largest, np.maximum(X, 3))
    np.testing.assert_array_equal(total, X + 3)


def test_a_signature_hands_over_rows_and_broadcasts_the_rest():
    dot = ops.vectorize(lambda a, b: ops.sum(a * b), signature="(n),(n)->()")
    np.testing.assert_array_equal(dot(X, X[0]), X @ X[0])
    stacked = np.stack([X, X + 1])
    np.testing.assert_array_equal(dot(stacked, X), (stacked * X).sum(-1))


def test_what_is_excluded_is_handed_over_as_it_is():
    power = ops.vectorize(lambda x, n, scale=1.0: x**n * scale, excluded={1, "scale"})
    np.testing.assert_array_equal(power(X, 2, scale=3.0), 3 * X**2)


def test_on_keras_tensors():
    doubled = ops.vectorize(lambda row: row + row, signature="(n)->(n)")
    assert doubled(KerasTensor((None, 4))).shape == (None, 4)


def test_refusals():
    with pytest.raises(ValueError, match="should be a callable"):
        ops.vectorize(3)
    with pytest.raises(ValueError, match="of 2 arguments, got 1"):
        ops.vectorize(lambda a: a, signature="(n),(n)->()")(X)
