"""Indexing arrays and traced values as NumPy does."""

from __future__ import annotations

import numpy as np
import pytest
from ops_cases import X
from ops_titles import assert_equal

import ganglion
from ganglion import ops
from ganglion.compiler.ir.graph import Input, ShapeError, evaluate

KEYS = [
    0, -1, np.int64(1), slice(None), slice(1, None), slice(None, None, -1), slice(5, 1),
    (0, 1), (0, 1, 2), (slice(None), -1), (..., 1), (1, ...), (..., 0, slice(1, 3)),
    (slice(None), slice(2, 0, -1)), (slice(None), slice(None, None, -2), 3),
    (slice(None), slice(None), slice(None, None, 3)), None, (None, 0), (0, None),
    (..., None), (None, ..., 1, None), (slice(None), None, 0), ..., (slice(3, 9),),
    (slice(None), slice(-2, None)), (slice(None), slice(-100, 100, 2)),
    (slice(None), slice(0, -5, -1)), (slice(None), slice(2, 2)),
    [1, 0, 1], np.array([[0, 1], [1, 1]]), np.array([-1, 0]), np.array(1),
    (slice(None), [0, 2]), (slice(None), np.array([[2, 0], [1, -1]]), slice(1, 3)),
    (..., [3, 0]), (slice(None, None, -1), slice(None), np.array([1, 2])),
    (None, slice(None), [2, 1]),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_is_numpys(key) -> None:
    wanted = X[key]
    assert_equal(ops.getitem(X, key), wanted)
    assert np.array_equal(ops.get_item(X, key), wanted)
    x = Input("x", X.shape, X.dtype)
    assert np.array_equal(evaluate([x[key]], {x: X})[0], wanted)


def test_indexing_with_a_traced_number() -> None:
    x, i = Input("x", X.shape, X.dtype), Input("i", (), "int32")
    picked = x[i]
    for number in (0, 1, -1):
        known = {x: X, i: np.array(number, "int32")}
        assert np.array_equal(evaluate([picked], known)[0], X[number])


@pytest.mark.parametrize(
    ("start", "clamped"), [((1, 0, 1), (1, 0, 1)), ((1, 2, 9), (1, 1, 2))]
)
def test_blocks_at_computed_starts(start, clamped) -> None:
    x, i = Input("x", X.shape, X.dtype), Input("i", (3,), "int32")
    block = np.full((1, 2, 2), -1.0, X.dtype)
    results = [ops.slice(x, i, block.shape), ops.slice_update(x, i, block)]
    cut, updated = evaluate(results, {x: X, i: np.array(start, "int32")})
    pairs = zip(clamped, block.shape, strict=True)
    inside = tuple(slice(first, first + size) for first, size in pairs)
    assert np.array_equal(cut, X[inside])
    expected = X.copy()
    expected[inside] = block
    assert np.array_equal(updated, expected)


@pytest.mark.parametrize(
    ("reduction", "function"),
    [("add", np.add), ("max", np.maximum), ("min", np.minimum), ("mul", np.multiply)],
)
def test_scattered_updates_are_combined(reduction, function) -> None:
    indices = np.array([[0, 1], [1, 2], [0, 1]])
    updates = X[0, :3] - 5
    expected = X.copy()
    function.at(expected, tuple(indices.T), updates)
    assert_equal(ops.scatter_update(X, indices, updates, reduction), expected)


def test_truths_stand_for_the_places_they_hold_true() -> None:
    for key in (X > 5, X[:, :, 0] > 5, X[:, 0, 0] > 5):
        assert_equal(ops.getitem(X, key), X[key])
    columns = X[0, 0] > X[0, 0].mean()
    assert_equal(ops.getitem(X, (slice(1), ..., columns)), X[:1, ..., columns])


def test_indexing_refuses_in_words() -> None:
    with pytest.raises(IndexError, match="index 2 is out of range for an axis of 2"):
        ops.getitem(X, 2)
    with pytest.raises(ValueError, match="index 3 is out of range"):
        ganglion.KerasTensor((None, 3))[:, 3]
    with pytest.raises(ShapeError, match="4 indices for an array of 3 axes"):
        ops.getitem(X, (0, 0, 0, 0))
    unknown = ganglion.KerasTensor((None, 3))
    with pytest.raises(TypeError, match=r"Use ops\.where, or multiply by a mask"):
        unknown[unknown > 0]
    with pytest.raises(
        ShapeError, match=r"truths has the shape \(3,\) for an axis of 2"
    ):
        ops.getitem(X, np.array([True, False, True]))
    with pytest.raises(TypeError, match=r"use ops\.take twice"):
        ops.getitem(X, ([0, 1], [0, 1]))
