"""What optimizers accept and mean in scripts that speak Keras 2."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from optimizer_runs import BOTH, moved, one_weight

from ganglion import keras2, optimizers
from ganglion.optimizers import schedules


def test_lr_is_accepted_with_one_warning() -> None:
    with pytest.warns(keras2.Keras2Warning, match="learning_rate="):
        optimizer = optimizers.SGD(lr=1)
    assert keras2.active()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(optimizers.Adam(lr=0.5).learning_rate) == 0.5
    with pytest.warns(keras2.Keras2Warning, match=r"optimizer\.learning_rate"):
        optimizer.lr = 0.25
    assert float(optimizer.learning_rate) == 0.25
    assert float(optimizer.lr) == 0.25


def test_the_warning_names_the_line_of_the_user() -> None:
    with pytest.warns(keras2.Keras2Warning) as seen:
        optimizers.RMSprop(lr=0.1)
    assert [item.filename for item in seen] == [__file__]


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
@pytest.mark.parametrize("run", BOTH)
def test_decay_divides_the_rate_inside_of_the_trace(run: Any) -> None:
    decayed = run(optimizers.SGD(lr=0.5, decay=0.25))
    rate = schedules.InverseTimeDecay(0.5, decay_steps=1, decay_rate=0.25)
    scheduled = run(optimizers.SGD(rate))
    for item, other in zip(decayed[:2], scheduled[:2], strict=True):
        np.testing.assert_allclose(item, other, rtol=1e-6, atol=1e-7)


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_decay_is_saved_and_its_rate_stays_settable() -> None:
    optimizer = optimizers.SGD(lr=0.5, decay=0.25)
    again = optimizers.SGD.from_config(optimizer.get_config())
    assert again.decay == 0.25
    assert "decay" not in optimizers.SGD(lr=0.5, decay=0.0).get_config()
    w = one_weight()
    again.apply([np.array([1.0])], [w])
    again.learning_rate = 1.0
    again.apply([np.array([1.0])], [w])
    assert w.numpy()[0] == pytest.approx(1 - 0.5 - 1.0 / 1.25)


def test_a_keras_2_file_is_understood() -> None:
    old = {
        "class_name": "Adam",
        "config": {"lr": 0.5, "beta_1": 0.5, "decay": 0.0, "epsilon": None},
    }
    with pytest.warns(keras2.Keras2Warning):
        result = optimizers.get(old)
    assert (float(result.learning_rate), result.beta_1, result.epsilon) == (
        0.5,
        0.5,
        1e-7,
    )


def test_defaults_that_changed() -> None:
    today = {"Adadelta": 0.001, "Adagrad": 0.001, "Adamax": 0.001, "Nadam": 0.001}
    before = {"Adadelta": 1.0, "Adagrad": 0.01, "Adamax": 0.002, "Nadam": 0.002}

    def rates() -> dict[str, float]:
        result = {name: optimizers.get(name.lower()) for name in today}
        return {name: float(item.learning_rate) for name, item in result.items()}

    assert rates() == pytest.approx(today)
    assert optimizers.Adagrad().initial_accumulator_value == 0.1
    keras2.set_active(True)
    assert rates() == pytest.approx(before)
    assert optimizers.Adagrad().initial_accumulator_value == 0.0
    optimizer = optimizers.Adadelta(learning_rate=0.001)
    assert float(optimizer.learning_rate) == pytest.approx(0.001)


def test_rmsprop_of_keras_2_adds_epsilon_after_the_root() -> None:
    options = {"learning_rate": 0.1, "rho": 0.75, "epsilon": 0.5}
    inside = moved(optimizers.RMSprop(**options), 2.0)
    assert inside == pytest.approx(1 - 0.2 / math.sqrt(1 + 0.5), rel=1e-6)
    keras2.set_active(True)
    outside = moved(optimizers.RMSprop(**options), 2.0)
    assert outside == pytest.approx(1 - 0.2 / (1 + 0.5), rel=1e-6)
    # With momentum Keras 2 had it under the root too.
    heavy = moved(optimizers.RMSprop(**options, momentum=0.9), 2.0)
    assert heavy == pytest.approx(inside, rel=1e-6)
