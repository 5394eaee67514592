"""What Keras refuses, Ganglion refuses too, in words."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from bad_arguments import CALLS

import ganglion
from ganglion import initializers, layers, ops, random

GROUPS: dict[str, list[str]] = defaultdict(list)
for _call in CALLS:
    GROUPS[_call.partition("(")[0]].append(_call)


def names_of(module: Any) -> dict[str, Any]:
    """Return what the calls of the table may name."""
    short = {
        "L": "layers", "o": "ops", "R": "random", "I": "initializers", "LO": "losses",
        "OP": "optimizers", "M": "metrics", "C": "constraints", "RG": "regularizers",
        "A": "activations", "CB": "callbacks",
    }  # fmt: skip
    names = {letters: getattr(module, name) for letters, name in short.items()}
    x1, img = np.ones((2, 3), "float32"), np.ones((2, 8, 8, 3), "float32")
    return {**names, "keras": module, "np": np, "x1": x1, "img": img, "seq": img[:, 0]}


def refusal(text: str, module: Any) -> Exception | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(text, names_of(module))
        except Exception as error:
            return error
    return None


@pytest.mark.rivals
@pytest.mark.parametrize("group", GROUPS)
def test_what_keras_refuses_is_refused(keras, group: str) -> None:
    epsilon = keras.config.epsilon()
    try:
        refused = [text for text in GROUPS[group] if refusal(text, keras)]
    finally:
        keras.config.set_epsilon(epsilon)  # Keras takes any, and keeps it
    assert [text for text in refused if refusal(text, ganglion) is None] == []


SOFTMAX = np.ones((2, 1, 3), "float32")
REFUSALS = [
    (lambda: layers.Dense(1, trainable="maybe"), "`trainable` to be a boolean"),
    (lambda: layers.Dense(1, trainable=None), "`trainable` to be a boolean"),
    (lambda: layers.Dense(1, name=3), "`name` must be a string"),
    (lambda: layers.Softmax()(SOFTMAX, mask=np.ones((2, 4, 3))), "or 1"),
    (lambda: layers.Softmax()(SOFTMAX, mask=np.ones((1, 2, 1, 3))), "more dimensions"),
    (lambda: layers.Softmax()(SOFTMAX, mask=np.ones(2)), "does not fit inputs"),
    (lambda: layers.PReLU(shared_axes=[9])(SOFTMAX), "use 1 to 2"),
    (lambda: random.randint((1,), 0, 5, dtype="float32"), "Use `uniform`"),
    (lambda: random.randint((1,), 0, 5, dtype="bool"), "Use `uniform`"),
    (lambda: random.randint((1,), 5, 5), "minval < maxval"),
    (lambda: random.uniform((1,), dtype="int32"), "Use `randint`"),
    (lambda: random.normal((1,), dtype="int32"), "Use `randint`"),
    (lambda: random.truncated_normal((1,), dtype="bool"), "Use `randint`"),
    (lambda: random.uniform((-1,)), "no negative sizes"),
    (lambda: random.normal((1,), seed=1.5), "`seed` must be .*integer"),
    (lambda: random.SeedGenerator("x"), "`seed` must be .*integer"),
    (lambda: random.categorical(np.ones(3), 1), r"\(rows, classes\), got \(3,\)"),
    (lambda: random.dropout(np.ones(3), -0.5), "between 0 and 1"),
    (lambda: initializers.RandomNormal(seed="x"), "`seed` must be .*integer"),
    (lambda: initializers.RandomNormal()((2,), dtype="int32"), "draw floats"),
    (lambda: initializers.GlorotUniform()((2, 2), dtype="int8"), "draw floats"),
    (lambda: ops.normalize(SOFTMAX, order=0), "`order` must be an int >= 1"),
    (lambda: ganglion.KerasTensor((2.5,)), "A shape holds integers"),
    (lambda: ganglion.KerasTensor((-1,)), "A shape holds integers"),
    (lambda: ganglion.KerasTensor(3), "Cannot convert '3' to a shape. A shape holds"),
    (lambda: layers.RepeatVector(0), "`n` should be a positive integer"),
    (lambda: layers.UnitNormalization({}), "list.tuple of ints for the argument"),
    (lambda: ganglion.Variable("nope", shape=(2,)), "nope"),
    (lambda: ganglion.Variable("ones"), "`shape` argument should be"),
    (lambda: ganglion.Variable("ones", shape=(None,)), "a size for every axis"),
    (lambda: ganglion.Variable(1.0, aggregation="nope"), "Unknown `aggregation`"),
    (lambda: ganglion.Variable(1.0, synchronization="x"), "Unknown `synchronization`"),
    (lambda: ganglion.Variable(1.0, name="a/b"), "without '/'|character `/`"),
]


@pytest.mark.parametrize(("call", "text"), REFUSALS)
def test_refusals_name_the_cause(call, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        call()


def test_what_looks_odd_but_makes_sense_is_taken() -> None:
    assert not layers.Dense(1, trainable=np.bool_(False)).trainable
    result = layers.Softmax()(SOFTMAX, mask=np.array([True, False, True]))
    np.testing.assert_allclose(result[0, 0], [0.5, 0, 0.5])
    assert layers.Softmax()(SOFTMAX, mask=np.ones((2, 1, 1), bool)).shape == (2, 1, 3)
    np.testing.assert_array_equal(ganglion.Variable("ones", shape=(2,)).numpy(), 1)
    zeros = ganglion.Variable("zeros", shape=2, dtype="int32")
    assert (zeros.shape, zeros.dtype) == ((2,), "int32")
    soft = layers.Softmax()(SOFTMAX, mask=np.array([1.0, 0.3, 0.6]))
    np.testing.assert_allclose(soft[0, 0], [0.5, 0, 0.5])
    assert [ganglion.Variable(item).dtype for item in (1, [1, 2])] == ["int32"] * 2
    assert ganglion.Variable(np.array([1])).dtype == "int64"
    assert random.randint((3,), -2, -1).tolist() == [-2, -2, -2]
