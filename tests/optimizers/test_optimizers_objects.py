"""Optimizers as objects: subclasses, configurations, saved state, what they refuse."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from optimizer_runs import (
    BOTH,
    NAMES,
    gradients,
    new_variables,
    one_weight,
    run_eagerly,
)

from ganglion import ops, optimizers
from ganglion.compiler.ir.graph import Node, ShapeError
from ganglion.variables import Scope, Variable


def test_missing_gradients_are_named() -> None:
    kernel, bias = new_variables()
    before = bias.numpy()
    with pytest.warns(UserWarning, match="bias"):
        optimizers.Adam().apply([np.ones(kernel.shape), None], [kernel, bias])
    np.testing.assert_array_equal(bias.numpy(), before)
    with pytest.raises(ValueError, match="kernel, bias"):
        optimizers.Adam().apply([None, None], [kernel, bias])


def test_apply_gradients_takes_pairs() -> None:
    w = one_weight()
    optimizer = optimizers.SGD(0.5)
    actual = optimizer.apply_gradients(zip([np.array([1.0])], [w], strict=True))
    assert w.numpy()[0] == 0.5
    assert int(actual) == 1


def test_apply_without_variables_needs_a_build() -> None:
    optimizer, w = optimizers.SGD(0.5), one_weight()
    with pytest.raises(ValueError, match="build"):
        optimizer.apply([np.array([1.0])])
    optimizer.build([w])
    optimizer.apply([np.array([1.0])])
    assert w.numpy()[0] == 0.5
    with pytest.raises(ValueError, match="2 gradients were given for 1"):
        optimizer.apply([np.ones(1), np.ones(1)])
    with pytest.raises(ValueError, match="built without"):
        optimizer.apply([np.ones(1)], [one_weight()])
    with pytest.raises(ShapeError, match="'w'"):
        optimizer.apply([np.ones(3)])
    assert int(optimizer.iterations) == 1


def test_a_failed_update_changes_nothing() -> None:
    class Failing(optimizers.SGD):
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            super().update_step(gradient, variable, learning_rate)
            raise RuntimeError("half way")

    w = one_weight()
    with pytest.raises(RuntimeError):
        Failing(0.5).apply([np.ones(1)], [w])
    assert w.numpy()[0] == 1.0


class Momentum(optimizers.Optimizer):
    """As the Keras documentation tells users to write one."""

    def __init__(self, learning_rate: Any = 0.01, scale: float = 2.0, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.scale = scale

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.momentums = [
            self.add_variable_from_reference(reference_variable=weight, name="momentum")
            for weight in variables
        ]
        self.total = self.add_variable(shape=(), name="total")
        self.own = Variable(0.0, name="own", trainable=False)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        learning_rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        m = self.momentums[self._get_variable_index(variable)]
        self.assign(m, ops.subtract(ops.multiply(m, 0.5), gradient * learning_rate))
        self.assign_add(variable, ops.multiply(m, self.scale))
        self.assign_add(self.total, ops.sum(gradient))
        self.assign_sub(self.own, 1.0)


@pytest.mark.parametrize("run", BOTH)
def test_a_subclass_in_the_style_of_keras(run: Any) -> None:
    optimizer = Momentum(0.1, name="mine")
    plain = optimizers.SGD(0.1, momentum=0.5)
    actual, expected = run(optimizer), run(plain)
    moved = [a - b for a, b in zip(actual[:2], new_variables(), strict=True)]
    wanted = [a - b for a, b in zip(expected[:2], new_variables(), strict=True)]
    for item, other in zip(moved, wanted, strict=True):
        np.testing.assert_allclose(item, 2 * other, rtol=1e-5, atol=1e-6)
    names = [variable.path.removeprefix("mine/") for variable in optimizer.variables]
    assert names[2:] == ["kernel_momentum", "bias_momentum", "total", "own"]
    assert float(optimizer.own) == -2 * len(gradients())
    total = sum(float(part.sum()) for step in gradients() for part in step)
    assert float(optimizer.total) == pytest.approx(total, rel=1e-5)


def test_a_subclass_is_rebuilt_from_its_arguments() -> None:
    result = Momentum(0.5, scale=3.0, clipnorm=1.0).get_config()
    again = Momentum.from_config(result)
    assert (again.scale, again.clipnorm, float(again.learning_rate)) == (3.0, 1.0, 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_configs_travel_through_json(name: str) -> None:
    first = getattr(optimizers, name)(0.25, clipvalue=1.0, ema_momentum=0.5)
    plain = json.loads(json.dumps(optimizers.serialize(first)))
    again = optimizers.deserialize(plain)
    assert type(again) is type(first)
    assert optimizers.serialize(again) == plain
    assert plain["config"]["learning_rate"] == 0.25


def test_state_is_saved_and_loaded() -> None:
    first, variables = optimizers.Adam(0.1), new_variables()
    for step in gradients()[:6]:
        first.apply(step, variables)
    store: dict[str, np.ndarray] = {}
    first.save_own_variables(store)
    assert sorted(store, key=int) == [str(i) for i in range(6)]
    second = optimizers.Adam(0.7)
    second.build(variables)
    second.load_own_variables(store)
    for step in gradients()[6:]:
        second.apply(step, variables)
    actual = [item.numpy() for item in (*variables, *second.variables)]
    for item, other in zip(actual, run_eagerly(optimizers.Adam(0.1)), strict=True):
        np.testing.assert_array_equal(item, other)


def test_state_of_another_optimizer_is_not_loaded() -> None:
    optimizer = optimizers.SGD()
    optimizer.build(new_variables())
    with pytest.warns(UserWarning, match="not loaded"):
        optimizer.load_own_variables({"0": np.array(3)})
    assert int(optimizer.iterations) == 0
    with pytest.raises(ValueError, match="2 variables"):
        optimizer.set_weights([np.array(3)])
    optimizer.set_weights([np.array(3), np.array(0.5)])
    assert [float(weight) for weight in optimizer.get_weights()] == [3.0, 0.5]


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("adam", "Adam"),
        ("Adam", "Adam"),
        ("ADAM", "Adam"),
        ("sgd", "SGD"),
        ("rmsprop", "RMSprop"),
        ("AdamW", "AdamW"),
        (optimizers.Lion, "Lion"),
        ({"class_name": "SGD", "config": {"learning_rate": 0.5}}, "SGD"),
        ({"class_name": "adam", "config": {}}, "Adam"),
    ],
)
def test_names_and_configurations_are_found(identifier: Any, expected: str) -> None:
    assert type(optimizers.get(identifier)).__name__ == expected


def test_get_refuses_what_is_no_optimizer() -> None:
    assert optimizers.get(None) is None
    with pytest.raises(ValueError, match="Did you mean 'adam'"):
        optimizers.get("adm")
    with pytest.raises(ValueError, match=r"is no(t an)? optimizer"):
        optimizers.get(print)
    with pytest.raises(ValueError, match=r"is no(t an)? optimizer"):
        optimizers.get(3)


BAD = [
    (optimizers.SGD, {"learning_rate": -0.1}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": math.nan}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": "0.1"}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": True}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": None}, "learning_rate"),
    (optimizers.SGD, {"momentum": 1.5}, "momentum"),
    (optimizers.SGD, {"momentum": -0.5}, r"must be a float between \[0, 1\]"),
    (optimizers.SGD, {"clipnorm": 1.0, "clipvalue": 1.0}, "clipnorm and clipvalue"),
    (optimizers.SGD, {"clipnorm": -1.0}, "clipnorm"),
    (optimizers.SGD, {"weight_decay": -1.0}, "weight_decay"),
    (optimizers.SGD, {"ema_momentum": 2.0}, "ema_momentum"),
    (optimizers.SGD, {"ema_overwrite_frequency": 0}, "ema_overwrite_frequency"),
    (optimizers.SGD, {"gradient_accumulation_steps": 1}, "gradient_accumulation"),
    (optimizers.SGD, {"gradient_accumulation_steps": 2.5}, "gradient_accumulation"),
    (optimizers.SGD, {"loss_scale_factor": 0.0}, "loss_scale_factor"),
    (optimizers.SGD, {"decay": -1.0}, "decay"),
    (optimizers.SGD, {"learning_rte": 0.1}, "Did you mean 'learning_rate'"),
    (optimizers.Adam, {"beta1": 0.9}, "Did you mean 'beta_1'"),
    (optimizers.Adam, {"beta_1": 1.0}, "beta_1"),
    (optimizers.Adam, {"epsilon": -1e-7}, "epsilon"),
    (optimizers.AdamW, {"weight_decay": None}, "use Adam"),
    (optimizers.RMSprop, {"rho": 1.5}, "rho"),
    (optimizers.Lion, {"beta_1": 0.0}, "degenerates to SignSGD"),
    (optimizers.Ftrl, {"learning_rate_power": 0.5}, "negative or zero"),
    (optimizers.Ftrl, {"l1_regularization_strength": -1.0}, "positive or zero"),
    (optimizers.Adagrad, {"initial_accumulator_value": -1.0}, "initial_accumulator"),
]


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
@pytest.mark.parametrize(("make", "options", "text"), BAD)
def test_bad_values_are_refused_at_once(
    make: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        make(**options)


def test_arguments_by_position_are_those_of_keras() -> None:
    result = optimizers.SGD(0.5, 0.25, True, 0.125, None, 2.0)
    actual = result.get_config()
    assert actual["learning_rate"] == 0.5
    assert (actual["momentum"], actual["nesterov"]) == (0.25, True)
    assert (actual["weight_decay"], actual["clipvalue"]) == (0.125, 2.0)
    with pytest.raises(TypeError):
        optimizers.SGD(0.5, learning_rate=0.5)


def test_nodes_belong_to_the_optimizer() -> None:
    optimizer, variables = optimizers.SGD(0.1, name="descent"), new_variables()
    with Scope(training=True) as scope:
        optimizer.apply([np.ones(variable.shape) for variable in variables], variables)
    written = scope.writes[variables[0]]
    assert isinstance(written, Node)
    assert written.origin.layer == "descent"


def test_the_base_must_be_overridden() -> None:
    with pytest.raises(NotImplementedError, match="update_step"):
        optimizers.Optimizer(0.1).apply([np.ones(1)], [one_weight()])
