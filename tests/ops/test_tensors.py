"""What ops and models return outside of a trace: arrays with the operators of Keras."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import ops
from ganglion.tensors import Tensor

WHOLE = ops.convert_to_tensor([1, 2, 3])
FLOATS = ops.convert_to_tensor([1.0, 2.0, 3.0])


def test_bits_and_truth_values_stay_tensors_and_mean_the_same_when_traced() -> None:
    mask = ops.convert_to_tensor([True, False, True])
    calls = {
        "not": lambda x, m: ~m,
        "and": lambda x, m: m & (x > 1),
        "numbers": lambda x, m: (x & 1) | 4,
        "flipped": lambda x, m: ~x ^ 2,
        "swapped": lambda x, m: 6 & x,
    }
    plain = np.array([1, 2, 3], "int32"), np.array([True, False, True])
    for name, call in calls.items():
        expected = call(*plain)
        for result in (call(WHOLE, mask), keras.function(call)(WHOLE, mask)):
            np.testing.assert_array_equal(result.numpy(), expected, name)
            assert result.dtype == expected.dtype
    assert (WHOLE << 1).numpy().tolist() == [2, 4, 6]


def test_models_ops_metrics_losses_and_draws_return_tensors() -> None:
    model = keras.Sequential([keras.layers.Dense(2)])
    mean = keras.metrics.Mean()
    mean.update_state([1.0, 3.0])
    for result in (
        model(np.ones((1, 3))),
        ops.exp(np.ones(2)),
        mean.result(),
        keras.losses.MeanSquaredError()(np.ones((2, 1)), np.zeros((2, 1))),
        keras.random.normal((2,)),
        keras.Variable([1.0]).value,
    ):
        assert type(result) is Tensor
        assert isinstance(result.numpy(), (np.ndarray, np.generic))
        assert not isinstance(result.numpy(), Tensor)


@pytest.mark.parametrize(
    ("compute", "expected", "dtype"),
    [
        (lambda: WHOLE / 2, [0.5, 1, 1.5], "float32"),
        (lambda: WHOLE * 2.5, [2.5, 5, 7.5], "float32"),
        (lambda: 1 - WHOLE, [0, -1, -2], "int32"),
        (lambda: FLOATS + 1, [2, 3, 4], "float32"),
        (lambda: np.ones(3, "float32") + FLOATS, [2, 3, 4], "float32"),
        (lambda: FLOATS @ FLOATS, 14, "float32"),
        (lambda: FLOATS**2, [1, 4, 9], "float32"),
        (lambda: FLOATS > 1, [False, True, True], "bool"),
        (lambda: -WHOLE % 2, [1, 0, 1], "int32"),
        (lambda: abs(-FLOATS), [1, 2, 3], "float32"),
        (lambda: FLOATS[1], 2, "float32"),
        (lambda: FLOATS[::2], [1, 3], "float32"),
        (lambda: FLOATS.sum(), 6, "float32"),
    ],
)
def test_operators_give_the_types_of_keras(
    compute: Callable[[], Any], expected: Any, dtype: str
) -> None:
    result = compute()
    assert type(result) is Tensor
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.numpy(), expected)


def test_numpy_makes_plain_arrays_of_tensors() -> None:
    assert type(np.exp(FLOATS)) is np.ndarray
    assert type(np.unique(FLOATS)) is np.ndarray
    assert type(np.concatenate([FLOATS, FLOATS])) is np.ndarray
    assert type(np.asarray(FLOATS)) is np.ndarray
    assert type(ops.convert_to_numpy(FLOATS)) is np.ndarray


def test_other_names_for_a_tensor_are_left_alone_by_operators_in_place() -> None:
    x = y = ops.ones((2,))
    x += 1
    np.testing.assert_array_equal(y, [1, 1])
    np.testing.assert_array_equal(x, [2, 2])


def test_the_value_of_a_variable_stays_when_the_variable_changes() -> None:
    variable = keras.Variable([1.0])
    before = variable.value
    variable.assign([2.0])
    assert float(before[0]) == 1.0


def test_a_tensor_is_iterated_compared_and_shown_as_an_array() -> None:
    assert [type(row) for row in FLOATS] == [Tensor] * 3
    assert (FLOATS == None) is False  # noqa: E711
    assert repr(FLOATS) == "array([1., 2., 3.], dtype=float32)"
    assert f"{ops.sum(FLOATS):.1f}" == "6.0"
    assert ops.is_tensor(FLOATS)
    assert not ops.is_tensor(np.ones(2))


def test_operators_of_variables() -> None:
    v, flags = keras.Variable([-1.1, 2.6]), keras.Variable([True, False])
    np.testing.assert_array_equal(+v, v.numpy())
    np.testing.assert_array_equal(round(v), [-1, 3])
    np.testing.assert_array_equal(flags ^ [True, True], [False, True])
    np.testing.assert_array_equal([True, True] ^ flags, [False, True])
    assert repr(v).endswith("shape=(2,), dtype=float32, value=[-1.1  2.6]>")
    assert str(v.value) == "[-1.1  2.6]"


def test_a_tensor_is_copied_and_pickled_as_an_array() -> None:
    for other in (copy.deepcopy(FLOATS), pickle.loads(pickle.dumps(FLOATS))):
        np.testing.assert_array_equal(other, FLOATS)
