"""Optimizers and schedules against Keras 3.15 (TensorFlow) and torch.optim."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from optimizer_cases import (
    ALL_SCHEDULES,
    CASES,
    OWN_OPTIONS,
)
from optimizer_runs import BOTH, gradients, run_eagerly, starts

from ganglion import config, keras2, optimizers
from ganglion.optimizers import schedules

pytestmark = pytest.mark.rivals

# Relative to each number, and to the largest of its array (the bits that a number next
# to zero loses are those of the sum it comes from). Both sides do the same arithmetic
# in the same order, but powers, roots and sums of squares may differ in the last bit.
TOLERANCES = {
    "float32": (1e-6, 3e-7),
    "float64": (1e-12, 1e-14),
    # A float64 run in which Keras on TensorFlow computes something in float32: every
    # schedule, and Nadam's powers of 0.96.
    "mixed": (1e-6, 3e-7),
}


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest, keras: Any) -> Iterator[str]:
    config.set_floatx(request.param)
    keras.config.set_floatx(request.param)
    yield request.param
    config.set_floatx("float32")
    keras.config.set_floatx("float32")


@pytest.fixture
def legacy() -> Iterator[None]:
    keras2.set_active(True)
    yield
    keras2.set_active(None)


def run_keras(keras: Any, optimizer: Any, dtype: str) -> list[np.ndarray]:
    variables = [
        keras.Variable(value.astype(dtype), dtype=dtype, name=name)
        for value, name in zip(starts(), ("kernel", "bias"), strict=True)
    ]
    for step in gradients():
        tensors = [keras.ops.convert_to_tensor(item.astype(dtype)) for item in step]
        optimizer.apply(tensors, variables)
    return [np.asarray(item) for item in (*variables, *optimizer.variables)]


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray], dtype: str) -> None:
    assert [our.shape for our in ours] == [their.shape for their in theirs]
    assert [our.dtype for our in ours] == [their.dtype for their in theirs]
    relative, absolute = TOLERANCES[dtype]
    for item, other in zip(ours, theirs, strict=True):
        largest = max(1.0, np.abs(other).max())
        np.testing.assert_allclose(item, other, rtol=relative, atol=absolute * largest)


def rounded(make: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options and float defaults as numbers that float32 holds exactly.

    Keras on TensorFlow rounds hyperparameters to float32 even in a float64 run
    (`ops.cast(0.9, "float64")`); we do not. So that all other digits are compared,
    both sides get numbers on which the rounding does nothing.
    """
    actual = inspect.signature(make).parameters.items()
    known = {name: item.default for name, item in actual if type(item.default) is float}
    return {name: _round(value) for name, value in (known | options).items()}


def _round(value: Any) -> Any:
    return float(np.float32(value)) if type(value) is float else value


def title(case: Any) -> str:
    return case if isinstance(case, str) else ",".join(case) or "defaults"


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
@pytest.mark.sampled(2)
def test_steps_equal_keras(
    keras: Any, dtype: str, name: str, options: dict[str, Any]
) -> None:
    """The variables, and every slot in the order of Keras' files."""
    rival = getattr(keras.optimizers, name)
    options = rounded(rival, options)
    theirs = run_keras(keras, rival(**options), dtype)
    for run in BOTH:
        ours = run(getattr(optimizers, name)(**options), dtype)
        assert_same(ours, theirs, dtype if name != "Nadam" else "mixed")


@pytest.mark.parametrize(("name", "options"), ALL_SCHEDULES, ids=title)
def test_scheduled_steps_equal_keras(
    keras: Any, dtype: str, name: str, options: dict[str, Any]
) -> None:
    """The schedule is computed inside of the traced step, weight decay included."""
    rate = getattr(keras.optimizers.schedules, name)(**options)
    rival = keras.optimizers.SGD(rate, momentum=0.5, weight_decay=0.125)
    theirs = run_keras(keras, rival, dtype)
    for run in BOTH:
        rate = getattr(schedules, name)(**options)
        ours = run(optimizers.SGD(rate, momentum=0.5, weight_decay=0.125), dtype)
        assert_same(ours, theirs, "mixed")


@pytest.mark.parametrize(("name", "options"), ALL_SCHEDULES, ids=title)
def test_schedules_equal_keras(
    keras: Any, dtype: str, name: str, options: dict[str, Any]
) -> None:
    ours = getattr(schedules, name)(**options)
    theirs = getattr(keras.optimizers.schedules, name)(**options)
    steps = np.arange(60)
    expected = np.array([float(theirs(int(step))) for step in steps])
    actual = np.array([float(ours(int(step))) for step in steps])
    # Keras computes in float32; the fraction of a wave loses the bits that its whole
    # part takes.
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-7)
    at_once = ours(steps)
    assert at_once.dtype == dtype
    # Powers of an array and of one number may differ in the last bit.
    np.testing.assert_allclose(at_once, actual, rtol=float(np.finfo(dtype).eps))


ROUND_TRIPS = [
    *OWN_OPTIONS,
    ("Adam", {"clipnorm": 1.0, "use_ema": True, "ema_overwrite_frequency": 5}),
    ("SGD", {"global_clipnorm": 1.0, "gradient_accumulation_steps": 4, "name": "x"}),
]


@pytest.mark.parametrize(("name", "options"), ROUND_TRIPS, ids=title)
def test_configs_travel_both_ways(
    keras: Any, name: str, options: dict[str, Any]
) -> None:
    ours = getattr(optimizers, name)(**options)
    theirs = getattr(keras.optimizers, name)(**options)
    mine, yours = optimizers.serialize(ours), keras.optimizers.serialize(theirs)
    mine, yours = json.loads(json.dumps(mine)), json.loads(json.dumps(yours))
    mine["config"]["name"] = yours["config"]["name"]
    assert mine == yours
    # By its class: `keras.optimizers.deserialize` of 3.15 does not know Lamb.
    rebuilt = type(theirs).from_config(mine["config"])
    assert rebuilt.get_config() == theirs.get_config()
    again = optimizers.deserialize(yours)
    assert type(again) is type(ours)
    assert again.get_config() == mine["config"]


@pytest.mark.parametrize(("name", "options"), ALL_SCHEDULES, ids=title)
def test_schedule_configs_travel_both_ways(
    keras: Any, name: str, options: dict[str, Any]
) -> None:
    ours = optimizers.Adam(getattr(schedules, name)(**options), name="adam")
    rate = getattr(keras.optimizers.schedules, name)(**options)
    theirs = keras.optimizers.Adam(rate, name="adam")
    mine = json.loads(json.dumps(optimizers.serialize(ours)))
    yours = json.loads(json.dumps(keras.optimizers.serialize(theirs)))
    assert mine == yours
    # A copy, because Keras changes the configuration that it reads.
    rebuilt = keras.optimizers.deserialize(copy.deepcopy(mine))
    assert keras.optimizers.serialize(rebuilt) == yours
    assert optimizers.serialize(optimizers.deserialize(yours)) == mine


def test_state_of_keras_continues_here(keras: Any) -> None:
    """Six steps there, its arrays handed over, six steps here."""
    from optimizer_runs import new_variables

    rival = keras.optimizers.Nadam(0.05, use_ema=True)
    weights = [keras.Variable(start.astype("float32")) for start in starts()]
    half = gradients()[:6]
    for step in half:
        tensors = [keras.ops.convert_to_tensor(item.astype("float32")) for item in step]
        rival.apply(tensors, weights)
    store: dict[str, np.ndarray] = {}
    rival.save_own_variables(store)
    ours = optimizers.Nadam(0.05, use_ema=True)
    variables = new_variables()
    ours.build(variables)
    ours.load_own_variables(store)
    for item, other in zip(variables, weights, strict=True):
        item.assign(np.asarray(other))
    for step in gradients()[6:]:
        ours.apply(step, variables)
    optimizer = optimizers.Nadam(0.05, use_ema=True)
    actual = [item.numpy() for item in (*variables, *ours.variables)]
    assert_same(actual, run_eagerly(optimizer), "float32")


def run_torch(make: Any, **options: Any) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    torch.set_default_dtype(torch.float64)  # for the scalars in its state
    try:
        weights = [torch.tensor(start) for start in starts()]
        optimizer = getattr(torch.optim, make)(weights, **options)
        for step in gradients():
            for weight, gradient in zip(weights, step, strict=True):
                weight.grad = torch.tensor(gradient)
            optimizer.step()
    finally:
        torch.set_default_dtype(torch.float32)
    return [item.numpy() for item in weights]


# Where torch adds epsilon to a root that is corrected for its start, Keras adds it
# before the correction: the two agree when epsilon is next to nothing.
NOTHING = 1e-14
SAME_IN_TORCH: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SGD", {"learning_rate": 0.1}, {"lr": 0.1}),
    (
        "SGD",
        {"learning_rate": 0.1, "momentum": 0.9},
        {"lr": 0.1, "momentum": 0.9},
    ),
    (
        "SGD",
        {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    ),
    ("Adam", {"learning_rate": 0.1, "epsilon": NOTHING}, {"lr": 0.1, "eps": NOTHING}),
    (
        "Adam",
        {"learning_rate": 0.1, "epsilon": NOTHING, "amsgrad": True, "beta_2": 0.6},
        {"lr": 0.1, "eps": NOTHING, "amsgrad": True, "betas": (0.9, 0.6)},
    ),
    (
        "AdamW",
        {"learning_rate": 0.1, "epsilon": NOTHING, "weight_decay": 0.1},
        {"lr": 0.1, "eps": NOTHING, "weight_decay": 0.1},
    ),
    ("Adadelta", {"learning_rate": 1.0}, {"lr": 1.0, "rho": 0.95, "eps": 1e-7}),
    # torch adds epsilon after the root, so this is Keras 3's only without it.
    (
        "RMSprop",
        {"learning_rate": 0.1, "epsilon": 1e-30, "momentum": 0.9},
        {"lr": 0.1, "alpha": 0.9, "eps": 1e-30, "momentum": 0.9},
    ),
]


@pytest.mark.parametrize(("name", "options", "theirs"), SAME_IN_TORCH)
def test_steps_equal_torch(
    keras: Any, name: str, options: dict[str, Any], theirs: dict[str, Any]
) -> None:
    """Not compared, because torch means something else.

    SGD and Adam with weight_decay (torch adds it to the gradient), Adamax (epsilon
    inside of the maximum), and RMSprop with an epsilon that matters.
    """
    config.set_floatx("float64")
    try:
        ours = run_eagerly(getattr(optimizers, name)(**options), "float64")
    finally:
        config.set_floatx("float32")
    for item, other in zip(ours, run_torch(name, **theirs), strict=False):
        np.testing.assert_allclose(item, other, rtol=1e-11, atol=1e-12)


SAME_IN_KERAS_2: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("RMSprop", {"epsilon": 1e-2}, "RMSprop", {"lr": 1e-3, "alpha": 0.9, "eps": 1e-2}),
    (
        "RMSprop",
        {"epsilon": 1e-2, "centered": True},
        "RMSprop",
        {"lr": 1e-3, "alpha": 0.9, "eps": 1e-2, "centered": True},
    ),
    ("Adagrad", {"epsilon": 1e-2}, "Adagrad", {"lr": 0.01, "eps": 1e-2}),
    (
        "Adagrad",
        {"lr": 0.1, "decay": 0.3},
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.3, "eps": 1e-7},
    ),
    ("Nadam", {}, "NAdam", {"lr": 0.002, "eps": 1e-7, "momentum_decay": 0.004}),
    (
        "Nadam",
        {"lr": 0.1, "schedule_decay": 0.1},
        "NAdam",
        {"lr": 0.1, "eps": 1e-7, "momentum_decay": 0.1},
    ),
    ("Adadelta", {}, "Adadelta", {"lr": 1.0, "rho": 0.95, "eps": 1e-7}),
]


@pytest.mark.usefixtures("legacy")
@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
@pytest.mark.parametrize(("name", "options", "rival", "theirs"), SAME_IN_KERAS_2)
def test_keras_2_formulas_equal_torch(
    name: str, options: dict[str, Any], rival: str, theirs: dict[str, Any]
) -> None:
    """PyTorch kept the formulas and defaults that Keras 2 had."""
    config.set_floatx("float64")
    try:
        for run in BOTH:
            ours = run(getattr(optimizers, name)(**options), "float64")
            for item, other in zip(ours, run_torch(rival, **theirs), strict=False):
                np.testing.assert_allclose(item, other, rtol=1e-11, atol=1e-12)
    finally:
        config.set_floatx("float32")
