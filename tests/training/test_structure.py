"""Structures: equal for models that are made alike, and for no others."""

from __future__ import annotations

import functools
import gc
import weakref

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers
from ganglion.training import structure
from ganglion.training.structure import structure_of

X = np.ones((4, 3), "float32")


def build(change=lambda stack: None, rate=0.3):
    stack = [
        layers.Dense(3, activation="relu", kernel_regularizer="l2"),
        layers.Dropout(rate, seed=1),
        layers.Dense(3),
    ]
    change(stack)
    x = keras.Input((3,))
    outputs = functools.reduce(lambda x, layer: layer(x), stack, x)
    model = keras.Model(x, outputs)
    model.compile(keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    model.fit(X, X, verbose=0)
    return model


@pytest.fixture(params=["walk", "form"])
def read(request, monkeypatch):
    """Return what reads structures: by a walk of its own each, or by a form first."""

    def walked(model):
        monkeypatch.setattr(structure._recent, "forms", ())
        return structure_of(model)

    monkeypatch.setattr(structure._recent, "forms", ())
    return walked if request.param == "walk" else structure_of


def test_models_made_alike_are_equal_with_variables_in_one_order(read):
    first, second = build(), build()
    one, other = read(first), read(second)
    assert one.key == other.key
    assert hash(one.key) == hash(other.key)
    places = [one.variables.index(v) for v in first.variables]
    assert places == [other.variables.index(v) for v in second.variables]
    assert [v.shape for v in one.variables] == [v.shape for v in other.variables]
    assert not {id(v) for v in one.variables} & {id(v) for v in other.variables}


def shared(stack):
    stack[2] = stack[0]


def of_zero(sign):
    def change(stack):
        stack[0].kernel_regularizer.l2 = sign * 0.0

    return change


def hold(layer, a, b):
    vars(layer).update(a=a, b=b)


CHANGES = {
    "a layer used twice": (shared, lambda stack: stack.__setitem__(2, other_first())),
    "the sign of zero": (of_zero(1), of_zero(-1)),
    "another type": tuple(
        lambda stack, v=v: setattr(stack[0], "own", v) for v in (1, 1.0, True)
    ),
    "a list that is no longer empty": tuple(
        lambda stack, v=v: setattr(stack[0], "own", v) for v in ([], [0], [False])
    ),
    "other names": tuple(
        lambda stack, n=n: setattr(stack[0], n, None) for n in ("a", "b")
    ),
    "no number": tuple(
        lambda stack, v=v: setattr(stack[0], "own", v) for v in (np.nan, np.inf, 1.0)
    ),
    "one list or two": (
        lambda stack: hold(stack[0], [stack[2]], [stack[2]]),
        lambda stack: hold(stack[0], *[[stack[2]]] * 2),
    ),
}


def other_first():
    return layers.Dense(3, activation="relu", kernel_regularizer="l2")


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_not_equal(name, read):
    models = [build(change) for change in CHANGES[name]]
    keys = [read(model).key for model in models]
    assert len(set(keys)) == len(models)
    assert [read(model).key for model in reversed(models)] == keys[::-1]


def test_what_no_step_depends_on_makes_no_difference(read):
    first, second = build(), build()
    second.notes = {"a": 1}
    second.layers[1].input_hint = "an attribute that the first has not"
    second.layers[2].seed = None
    assert read(first).key == read(second).key
    assert read(build()).key == read(first).key


def test_code_of_the_user_hides_a_structure(read):
    class Own(layers.Layer):
        def call(self, inputs):
            return inputs

    assert read(build()) is not None
    model = build(lambda stack: stack.insert(1, Own()))
    assert read(model) is None


def test_forms_keep_no_model_alive():
    model = build()
    structure_of(model)
    layer = weakref.ref(model.layers[1])
    del model
    gc.collect()
    assert layer() is None


def test_models_that_slice_other_columns_take_other_steps():
    """A slice has no attributes: what it holds counts all the same."""
    x = np.arange(24, dtype="float32").reshape(4, 6)
    for first in (0, 0, 1, 1, 3):  # one that comes again may use the last one's step
        inputs = keras.Input((6,))
        outputs = layers.Dense(1, kernel_initializer="ones")(
            inputs[:, first : first + 2]
        )
        model = keras.Model(inputs, outputs)
        model.compile("sgd", "mse")
        expected = np.mean(x[:, first : first + 2].sum(axis=1) ** 2)
        assert model.train_on_batch(x, np.zeros((4, 1))) == pytest.approx(expected)
