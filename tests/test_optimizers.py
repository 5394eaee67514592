"""Optimizers without rivals: first steps by hand, and the edges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from optimizer_runs import (
    BOTH,
    TracedStep,
    gradients,
    moved,
    new_variables,
    one_weight,
    run_eagerly,
)

from ganglion import config, constraints, keras2, ops, optimizers
from ganglion.ir.graph import Node, ShapeError
from ganglion.optimizers import schedules
from ganglion.variables import Scope, Variable

NAMES = [
    *("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax"),
    *("Nadam", "Lion", "Ftrl", "Lamb", "Adafactor"),
]


@pytest.fixture(autouse=True)
def _keras_3() -> Iterator[None]:
    keras2.set_active(False)
    yield
    keras2.set_active(False)


@pytest.fixture
def float64() -> Iterator[None]:
    config.set_floatx("float64")
    yield
    config.set_floatx("float32")


# First steps from w = 1 by the gradient 2, worked out on paper.
FIRST_STEPS = [
    (optimizers.SGD(0.1), 1 - 0.1 * 2),
    (optimizers.SGD(0.1, momentum=0.9), 1 - 0.1 * 2),
    (optimizers.SGD(0.1, momentum=0.9, nesterov=True), 1 - 0.9 * 0.2 - 0.2),
    (optimizers.SGD(0.1, weight_decay=0.5), (1 - 0.5 * 0.1) - 0.2),
    (optimizers.SGD(0.1, clipnorm=1.0), 1 - 0.1),
    (optimizers.SGD(0.1, clipvalue=0.5), 1 - 0.05),
    (optimizers.SGD(0.1, global_clipnorm=1.0), 1 - 0.1),
    (optimizers.SGD(0.1, clipnorm=5.0), 1 - 0.2),
    (optimizers.SGD(0.1, global_clipnorm=5.0), 1 - 0.2),
    (optimizers.SGD(0.1, loss_scale_factor=4.0), 1 - 0.1 * 2 / 4),
    (optimizers.Adam(0.1), 1 - 0.1),
    (optimizers.Adam(0.1, amsgrad=True), 1 - 0.1),
    (optimizers.AdamW(0.1, weight_decay=0.5), (1 - 0.5 * 0.1) - 0.1),
    (optimizers.RMSprop(0.1, rho=0.75), 1 - 0.1 * 2 / math.sqrt(0.25 * 4)),
    (optimizers.RMSprop(0.1, rho=0.5, centered=True), 1 - 0.2 / math.sqrt(2 - 1)),
    (optimizers.Adagrad(0.1), 1 - 0.2 / math.sqrt(0.1 + 4)),
    (optimizers.Adadelta(1.0), 1 - math.sqrt(1e-7) * 2 / math.sqrt(0.05 * 4 + 1e-7)),
    (optimizers.Adamax(0.1), 1 - 0.1),
    (optimizers.Lion(0.1), 1 - 0.1),
    (optimizers.Lamb(0.1), 1 - 0.1 * 1 / 1 * 1),
    (optimizers.Adafactor(0.1), 1 - 1.0 * 0.1 * 1),
]


@pytest.mark.parametrize(
    ("optimizer", "expected"), FIRST_STEPS, ids=lambda x: getattr(x, "name", "")
)
def test_first_step_by_hand(optimizer: Any, expected: float) -> None:
    # Rates, epsilons and powers are rounded to float32.
    assert moved(optimizer, 2.0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("float64")
def test_second_steps_by_hand() -> None:
    momentum = moved(optimizers.SGD(0.1, momentum=0.9), 2.0, 3.0)
    assert momentum == pytest.approx(1 - 0.2 - (0.9 * 0.2 + 0.3), rel=1e-14)
    m, v = 0.9 * 0.2 + 0.1 * 3, 0.999 * 0.004 + 0.001 * 9
    rate = 0.1 * math.sqrt(1 - 0.999**2) / (1 - 0.9**2)
    adam = moved(optimizers.Adam(0.1, epsilon=0.0), 2.0, 3.0)
    assert adam == pytest.approx(0.9 - rate * m / math.sqrt(v), rel=1e-14)


def test_nadam_first_step_by_hand() -> None:
    now, following = 0.9 * (1 - 0.5 * 0.96), 0.9 * (1 - 0.5 * 0.96**2)
    mean = following * 0.2 / (1 - now * following) + (1 - now) * 2 / (1 - now)
    assert moved(optimizers.Nadam(0.1), 2.0) == pytest.approx(
        1 - 0.1 * mean / 2, rel=1e-6
    )


def test_ftrl_first_step_by_hand() -> None:
    change = (math.sqrt(0.1 + 4) - math.sqrt(0.1)) / 0.1
    linear = 2 - change * 1
    expected = -linear / (math.sqrt(4.1) / 0.1)
    assert moved(optimizers.Ftrl(0.1), 2.0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_eager_and_traced_are_the_same(name: str) -> None:
    make = getattr(optimizers, name)
    eager, traced = (run(make(learning_rate=0.05)) for run in BOTH)
    for one, other in zip(eager, traced, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_slots_have_the_type_of_their_variable(name: str) -> None:
    """A float64 weight keeps its digits, whatever the global float type."""
    optimizer = getattr(optimizers, name)(0.125)
    first, *rest = run_eagerly(optimizer, "float64")
    assert first.dtype == "float64"
    assert (first != first.astype("float32")).any()
    kinds = {slot.dtype.name for slot in rest if slot.ndim}
    assert kinds == {"float64"}
    assert optimizer.iterations.dtype == "int64"


@pytest.mark.usefixtures("float64")
def test_float64_throughout() -> None:
    optimizer = optimizers.SGD(0.1)
    w = Variable(np.array([1.0]), name="w")
    optimizer.apply([np.array([2.0])], [w])
    assert optimizer.learning_rate.dtype == "float64"
    assert w.numpy()[0] == 1.0 - 2.0 * 0.1


def test_variables_are_in_the_order_of_keras_files() -> None:
    optimizer = optimizers.Adam(use_ema=True, gradient_accumulation_steps=2, name="a")
    optimizer.build(new_variables())
    assert [one.path for one in optimizer.variables] == [
        "a/iteration",
        "a/learning_rate",
        "a/kernel_average",
        "a/bias_average",
        "a/kernel_gradient_accumulator",
        "a/bias_gradient_accumulator",
        "a/kernel_momentum",
        "a/kernel_velocity",
        "a/bias_momentum",
        "a/bias_velocity",
    ]


def test_a_schedule_takes_the_place_of_the_rate_variable() -> None:
    optimizer = optimizers.SGD(schedules.ExponentialDecay(0.1, 10, 0.5), name="s")
    assert [one.path for one in optimizer.variables] == ["s/iteration"]
    changed = optimizers.SGD(0.1, name="c")
    changed.learning_rate = schedules.ExponentialDecay(0.1, 10, 0.5)
    assert [one.path for one in changed.variables] == ["c/iteration"]
    assert float(changed.learning_rate) == pytest.approx(0.1)


def test_the_rate_changes_without_a_new_trace() -> None:
    optimizer, variables = optimizers.SGD(0.0), new_variables()
    step = TracedStep(optimizer, variables)
    gradient = gradients()[0]
    before = variables[0].numpy()
    step(gradient)
    np.testing.assert_array_equal(variables[0].numpy(), before)
    optimizer.learning_rate = 1
    step(gradient)
    np.testing.assert_allclose(
        variables[0].numpy(), before - gradient[0], rtol=1e-6, atol=1e-7
    )
    optimizer.learning_rate.assign(0.0)
    after = variables[0].numpy()
    step(gradient)
    np.testing.assert_array_equal(variables[0].numpy(), after)


def test_a_scheduled_rate_cannot_be_set_to_a_number() -> None:
    optimizer = optimizers.SGD(schedules.ExponentialDecay(0.1, 10, 0.5))
    with pytest.raises(TypeError, match="schedule"):
        optimizer.learning_rate = 0.1


def test_a_function_gives_the_rate() -> None:
    assert moved(optimizers.SGD(lambda: 0.5), 1.0) == 0.5


def test_accumulation_holds_still_and_then_averages() -> None:
    optimizer = optimizers.SGD(0.5, momentum=0.9, gradient_accumulation_steps=2)
    w = one_weight()
    seen = []
    for gradient in (1.0, 3.0, 2.0, 2.0):
        optimizer.apply([np.array([gradient])], [w])
        seen.append(float(w.numpy()[0]))
    assert seen == pytest.approx([1.0, 0.0, 0.0, -1.9], rel=1e-6)
    assert int(optimizer.iterations) == 2


def test_moving_average_and_final_values() -> None:
    optimizer = optimizers.SGD(1.0, use_ema=True, ema_momentum=0.75)
    w = one_weight()
    for gradient in (1.0, 4.0):
        optimizer.apply([np.array([gradient])], [w])
    assert w.numpy()[0] == -4.0
    optimizer.finalize_variable_values([w])
    assert w.numpy()[0] == 0.75 * 0.0 + 0.25 * -4.0


def test_moving_average_overwrites_every_n_steps() -> None:
    optimizer = optimizers.SGD(
        1.0, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2
    )
    assert moved(optimizer, 1.0, 4.0) == 0.5 * 0.0 + 0.5 * -4.0


def test_weight_decay_leaves_out_what_is_excluded() -> None:
    optimizer = optimizers.SGD(1.0, weight_decay=0.5)
    kernel, bias = new_variables()
    kept = Variable(np.ones(2), name="kept")
    optimizer.exclude_from_weight_decay(var_list=[kept], var_names=["bias"])
    before = [kernel.numpy(), bias.numpy()]
    zeros = [np.zeros(one.shape) for one in (kernel, bias, kept)]
    optimizer.apply(zeros, [kernel, bias, kept])
    np.testing.assert_allclose(kernel.numpy(), before[0] * 0.5, rtol=1e-6)
    np.testing.assert_array_equal(bias.numpy(), before[1])
    np.testing.assert_array_equal(kept.numpy(), np.ones(2))
    with pytest.raises(ValueError, match="before"):
        optimizer.exclude_from_weight_decay(var_names=["kernel"])


def test_constraint_holds_after_the_update() -> None:
    w = one_weight()
    w.constraint = constraints.NonNeg()
    optimizers.SGD(1.0).apply([np.array([5.0])], [w])
    assert w.numpy()[0] == 0.0


def test_global_norm_is_common_to_all_variables() -> None:
    a, b = one_weight(0.0), one_weight(0.0)
    optimizer = optimizers.SGD(1.0, global_clipnorm=1.0)
    optimizer.apply([np.array([3.0]), np.array([4.0])], [a, b])
    assert [float(a.numpy()[0]), float(b.numpy()[0])] == pytest.approx([-0.6, -0.8])


def test_zero_gradients_are_clipped_to_zero() -> None:
    for clip in ({"clipnorm": 1.0}, {"global_clipnorm": 1.0}):
        assert moved(optimizers.SGD(1.0, **clip), 0.0) == 1.0


def test_the_loss_is_scaled_by_what_the_gradients_are_divided_by() -> None:
    assert optimizers.SGD(loss_scale_factor=4.0).scale_loss(2.0) == 8.0
    assert optimizers.SGD().scale_loss(2.0) == 2.0


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
    found = optimizer.apply_gradients(zip([np.array([1.0])], [w], strict=True))
    assert w.numpy()[0] == 0.5
    assert int(found) == 1


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
            self.add_variable_from_reference(reference_variable=one, name="momentum")
            for one in variables
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
    found, expected = run(optimizer), run(plain)
    moved = [a - b for a, b in zip(found[:2], new_variables(), strict=True)]
    wanted = [a - b for a, b in zip(expected[:2], new_variables(), strict=True)]
    for one, other in zip(moved, wanted, strict=True):
        np.testing.assert_allclose(one, 2 * other, rtol=1e-5, atol=1e-6)
    names = [one.path.removeprefix("mine/") for one in optimizer.variables]
    assert names[2:] == ["kernel_momentum", "bias_momentum", "total", "own"]
    assert float(optimizer.own) == -40.0
    total = sum(float(part.sum()) for step in gradients() for part in step)
    assert float(optimizer.total) == pytest.approx(total, rel=1e-5)


def test_a_subclass_is_rebuilt_from_its_arguments() -> None:
    made = Momentum(0.5, scale=3.0, clipnorm=1.0).get_config()
    again = Momentum.from_config(made)
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
    for step in gradients()[:10]:
        first.apply(step, variables)
    store: dict[str, np.ndarray] = {}
    first.save_own_variables(store)
    assert sorted(store, key=int) == [str(i) for i in range(6)]
    second = optimizers.Adam(0.7)
    second.build(variables)
    second.load_own_variables(store)
    for step in gradients()[10:]:
        second.apply(step, variables)
    found = [one.numpy() for one in (*variables, *second.variables)]
    for one, other in zip(found, run_eagerly(optimizers.Adam(0.1)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_state_of_another_optimizer_is_not_loaded() -> None:
    optimizer = optimizers.SGD()
    optimizer.build(new_variables())
    with pytest.warns(UserWarning, match="not loaded"):
        optimizer.load_own_variables({"0": np.array(3)})
    assert int(optimizer.iterations) == 0
    with pytest.raises(ValueError, match="2 variables"):
        optimizer.set_weights([np.array(3)])
    optimizer.set_weights([np.array(3), np.array(0.5)])
    assert [float(one) for one in optimizer.get_weights()] == [3.0, 0.5]


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
    with pytest.raises(ValueError, match="no optimizer"):
        optimizers.get(print)
    with pytest.raises(ValueError, match="no optimizer"):
        optimizers.get(3)


BAD = [
    (optimizers.SGD, {"learning_rate": -0.1}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": math.nan}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": "0.1"}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": True}, "learning_rate"),
    (optimizers.SGD, {"learning_rate": None}, "learning_rate"),
    (optimizers.SGD, {"momentum": 1.5}, "momentum"),
    (optimizers.SGD, {"momentum": -0.5}, "momentum"),
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
    (optimizers.Lion, {"beta_1": 0.0}, "beta_1"),
    (optimizers.Ftrl, {"learning_rate_power": 0.5}, "learning_rate_power"),
    (optimizers.Ftrl, {"l1_regularization_strength": -1.0}, "l1_regularization"),
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
    made = optimizers.SGD(0.5, 0.25, True, 0.125, None, 2.0)
    found = made.get_config()
    assert found["learning_rate"] == 0.5
    assert (found["momentum"], found["nesterov"]) == (0.25, True)
    assert (found["weight_decay"], found["clipvalue"]) == (0.125, 2.0)
    with pytest.raises(TypeError):
        optimizers.SGD(0.5, learning_rate=0.5)


def test_nodes_belong_to_the_optimizer() -> None:
    optimizer, variables = optimizers.SGD(0.1, name="descent"), new_variables()
    with Scope(training=True) as scope:
        optimizer.apply([np.ones(one.shape) for one in variables], variables)
    written = scope.writes[variables[0]]
    assert isinstance(written, Node)
    assert written.origin.layer == "descent"


def test_the_base_must_be_overridden() -> None:
    with pytest.raises(NotImplementedError, match="update_step"):
        optimizers.Optimizer(0.1).apply([np.ones(1)], [one_weight()])
