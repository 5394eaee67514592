"""Updates that are traced for one variable, and made again for others."""

from __future__ import annotations

import numpy as np
import pytest

from ganglion import layers, models, optimizers
from ganglion.compiler.ir.graph import Input, Node, toposort
from ganglion.compiler.ir.shaping import broadcast
from ganglion.optimizers.base import TracedUpdate
from ganglion.utils import set_random_seed
from ganglion.variables import Scope, Variable

ELEMENTWISE = {
    "Adam": {"amsgrad": True},
    "AdamW": {"clipnorm": 1.0},
    "Adamax": {},
    "Nadam": {},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Lion": {"use_ema": True},
    "RMSprop": {"centered": True, "momentum": 0.3},
    "Adagrad": {"gradient_accumulation_steps": 2},
    "Adadelta": {},
    "Ftrl": {},
}
x = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")


def trained(optimizer):
    set_random_seed(3)
    parts = [layers.Dense(5, "tanh"), layers.BatchNormalization(), layers.Dense(1)]
    model = models.Sequential([layers.Input((6,)), *parts])
    model.compile(optimizer, "mse")
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0)
    return model.get_weights() + optimizer.get_weights()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_updates_made_again_have_the_bits_of_traced_ones(name, monkeypatch):
    kind, arguments = getattr(optimizers, name), ELEMENTWISE[name]
    repeated = []
    repeat = TracedUpdate.repeat

    def counted(self, *values):
        repeated.append(self)
        repeat(self, *values)

    monkeypatch.setattr(TracedUpdate, "repeat", counted)
    again = trained(kind(**arguments))
    assert repeated
    repeated.clear()
    own = type(name, (kind,), {"__module__": __name__})  # it might do anything
    traced = trained(own(**arguments))
    assert not repeated
    for a, b in zip(again, traced, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["Lamb", "Adafactor", "Muon"])
def test_updates_that_look_at_a_whole_variable_are_traced(name, monkeypatch):
    monkeypatch.setattr(TracedUpdate, "repeat", None)  # calling it would fail
    trained(getattr(optimizers, name)())


def test_variables_of_one_shape_share_the_numbers_of_their_updates():
    variables = [Variable(np.zeros(shape, "float32")) for shape in [5, 7, 7, 7]]
    optimizer = optimizers.Adam()
    optimizer.build(variables)
    with Scope() as scope:
        gradients = [
            Input(f"g{n}", v.shape, "float32") for n, v in enumerate(variables)
        ]
        optimizer.apply(gradients, variables)
    nodes = [x for x in toposort(scope.writes.values()) if isinstance(x, Node)]
    numbers = [x.shape for x in nodes if x.op is broadcast]
    assert set(numbers) == {(5,), (7,)}
    assert numbers.count((5,)) == numbers.count((7,))
