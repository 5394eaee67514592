"""Optimizers without rivals: first steps by hand, and the edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from optimizer_runs import (
    BOTH,
    NAMES,
    TracedStep,
    gradients,
    moved,
    new_variables,
    one_weight,
    run_eagerly,
)

from ganglion import constraints, optimizers
from ganglion.optimizers import schedules
from ganglion.variables import Variable

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
    for item, other in zip(eager, traced, strict=True):
        np.testing.assert_array_equal(item, other)


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
    assert [variable.path for variable in optimizer.variables] == [
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
    assert [variable.path for variable in optimizer.variables] == ["s/iteration"]
    changed = optimizers.SGD(0.1, name="c")
    changed.learning_rate = schedules.ExponentialDecay(0.1, 10, 0.5)
    assert [variable.path for variable in changed.variables] == ["c/iteration"]
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
    zeros = [np.zeros(item.shape) for item in (kernel, bias, kept)]
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
