"""Loops and choices: at once, in a trace, on Keras tensors, and against Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import ops, tree
from ganglion.compiler.ir.graph import Input, evaluate
from ganglion.variables import Scope, Variable

X = np.random.default_rng(0).normal(size=(7, 3)).astype("float32")


def traced(function: Callable[[Any], Any], *arrays: np.ndarray) -> Any:
    """Return what a function gives for values that are known when it runs only."""
    with Scope():
        inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        result = function(*inputs)
    known = dict(zip(inputs, arrays, strict=True))
    return tree.pack(result, evaluate(tree.flatten(result), known))


# Each is written for `ganglion.ops` and for `keras.ops`, over one array.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda o, x: o.map(lambda row: row * 2 + 1, x),
    "map of structures": lambda o, x: o.map(
        lambda item: {"sum": item["a"] + item["b"][0], "first": item["a"]},
        {"a": x, "b": (x * x, x)},
    ),
    "vectorized_map": lambda o, x: o.vectorized_map(lambda row: o.sum(row) * row, x),
    "vectorized_map of two": lambda o, x: o.vectorized_map(
        lambda pair: pair[0] - o.mean(pair[1]), (x, x * x)
    ),
    "scan": lambda o, x: o.scan(lambda c, row: (c + row, c * row), x[0], x),
    "scan in reverse": lambda o, x: o.scan(
        lambda c, row: (c * 0.5 + row, c), x[0], x, reverse=True
    ),
    "fori_loop": lambda o, x: o.fori_loop(
        2, 6, lambda i, v: v + o.cast(i, "float32"), x
    ),
    "while_loop": lambda o, x: o.while_loop(
        lambda i, v: i < 4, lambda i, v: (i + 1, v * 2), (0, x)
    ),
    "while_loop of one": lambda o, x: o.while_loop(
        lambda v: o.sum(v * v) < 1e4, lambda v: v * 1.5, x, maximum_iterations=50
    ),
    "while_loop that is stopped": lambda o, x: o.while_loop(
        lambda v: o.sum(v * v) < 1e9, lambda v: v * 1.5, x, maximum_iterations=3
    ),
    "associative_scan": lambda o, x: o.associative_scan(lambda a, b: a + b, x),
    "associative_scan in reverse": lambda o, x: o.associative_scan(
        lambda a, b: a * b, x, reverse=True
    ),
    "associative_scan along an axis": lambda o, x: o.associative_scan(
        lambda a, b: o.maximum(a, b), x, axis=1
    ),
    "associative_scan of pairs": lambda o, x: o.associative_scan(
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x * 0.5, x)
    ),
    "cond": lambda o, x: o.cond(x[0, 0] > 0, lambda: (x, x + 1), lambda: (-x, x)),
    "switch": lambda o, x: [
        o.switch(i, [lambda v: v, lambda v: v * 2, lambda v: v * 3], x)
        for i in (-1, 0, 1, 2, 5)
    ],
    "switch by data": lambda o, x: o.switch(
        o.cast(o.sum(x > 0), "int32") - 8, [lambda v: v, lambda v: -v], x
    ),
}


@pytest.mark.rivals
@pytest.mark.parametrize("name", CALLS)
def test_keras_gives_the_same(name: str, keras: Any) -> None:
    call = CALLS[name]
    theirs = keras.tree.flatten(call(keras.ops, keras.ops.convert_to_tensor(X)))
    ours = tree.flatten(call(ops, X))
    in_trace = tree.flatten(traced(lambda x: call(ops, x), X))
    for mine, late, other in zip(ours, in_trace, theirs, strict=True):
        assert mine.dtype == late.dtype == keras.ops.convert_to_numpy(other).dtype
        for array in (mine, late):
            np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", range(1, 10))
def test_a_prefix_of_any_length(size: int) -> None:
    numbers = np.arange(1, size + 1)
    result = ops.associative_scan(lambda a, b: a + b, numbers)
    np.testing.assert_array_equal(result, np.cumsum(numbers))


def test_loops_in_a_model() -> None:
    entry = ganglion.Input((3,))
    _, doubled = ops.while_loop(
        lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (0, entry)
    )
    total = ops.associative_scan(lambda a, b: a + b, doubled, axis=1)
    chosen = ops.cond(ops.sum(entry) > 0, lambda: total, lambda: -total)
    model = ganglion.Model(entry, chosen)
    assert model.output_shape == (None, 3)
    result = model.predict(X, batch_size=7, verbose=0)
    expected = np.cumsum(X * 8, axis=1) * np.sign(X.sum())
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_loop_whose_length_depends_on_data() -> None:
    def halves(x: Any, **options: Any) -> Any:
        return ops.while_loop(lambda v: ops.max(v) > 1, lambda v: v / 2, x, **options)

    big = np.array([5.0, 3.0], "float32")
    np.testing.assert_allclose(halves(big), big / 8)
    np.testing.assert_allclose(
        traced(lambda x: halves(x, maximum_iterations=10), big), big / 8
    )
    assert halves(ganglion.KerasTensor((None, 3))).shape == (None, 3)
    with pytest.raises(NotImplementedError, match="Give `maximum_iterations`"):
        traced(halves, big)
    with pytest.raises(NotImplementedError, match="`upper` depends on data"):
        traced(lambda n: ops.fori_loop(0, n, lambda i, v: v + i, 0), np.array(3))


def test_what_a_choice_assigns_and_adds_to_the_loss() -> None:
    first, second = Variable(np.zeros(2)), Variable(np.zeros(2))

    class Choosing(ganglion.layers.Layer):
        def call(self, x: Any) -> Any:
            def yes() -> Any:
                first.assign(x)
                self.add_loss(ops.sum(x))
                return x

            def no() -> Any:
                second.assign(x * 2)
                return -x

            return ops.cond(ops.sum(x) > 0, yes, no)

    layer = Choosing()
    ones = np.ones(2, "float32")
    np.testing.assert_array_equal(layer(ones), ones)
    assert float(layer.losses[0]) == 2
    np.testing.assert_array_equal(layer(-ones), ones)
    assert float(layer.losses[0]) == 0
    np.testing.assert_array_equal(first, ones)
    np.testing.assert_array_equal(second, -2 * ones)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.associative_scan(3, X), "callable"),
        (lambda: ops.associative_scan(max, (X, X[:2])), "same first dimension"),
        (
            lambda: ops.while_loop(lambda v: True, lambda v: v[:2], X),
            "keep their shapes",
        ),
        (lambda: ops.switch(0, []), "at least one function"),
        (
            lambda: traced(lambda x: ops.cond(x[0, 0] > 0, lambda: x, lambda: x[0]), X),
            "same structure and shapes",
        ),
        (
            lambda: traced(
                lambda x: ops.cond(x[0, 0] > 0, lambda: x, lambda: (x, x)), X
            ),
            "same structure and shapes",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()
