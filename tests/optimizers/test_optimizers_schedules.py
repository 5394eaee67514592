"""Learning rate schedules, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ganglion.optimizers import schedules


def cosine(fraction: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * fraction))


BY_HAND = [
    (schedules.ExponentialDecay(0.5, 4, 0.25), 6, 0.5 * 0.25**1.5),
    (schedules.ExponentialDecay(0.5, 4, 0.25, staircase=True), 6, 0.5 * 0.25),
    (schedules.InverseTimeDecay(0.5, 4, 2.0), 6, 0.5 / (1 + 2.0 * 1.5)),
    (schedules.InverseTimeDecay(0.5, 4, 2.0, staircase=True), 6, 0.5 / 3),
    (schedules.PiecewiseConstantDecay([3, 6], [1, 0.5, 0.1]), 6, 0.5),
    (schedules.PiecewiseConstantDecay([3, 6], [1, 0.5, 0.1]), 7, 0.1),
    (schedules.PiecewiseConstantDecay([], [0.5]), 7, 0.5),
    (schedules.PolynomialDecay(1.0, 8, 0.1, power=2.0), 6, 0.9 * 0.25**2 + 0.1),
    (schedules.PolynomialDecay(1.0, 8, 0.1), 99, 0.1),
    (schedules.PolynomialDecay(1.0, 8, 0.1, cycle=True), 12, 0.9 * 0.25 + 0.1),
    (schedules.PolynomialDecay(1.0, 8, 0.1, cycle=True), 0, 1.0),
    (schedules.CosineDecay(0.5, 8), 2, 0.5 * cosine(0.25)),
    (schedules.CosineDecay(0.5, 8, alpha=0.1), 99, 0.05),
    (schedules.CosineDecay(0.1, 8, warmup_target=0.5, warmup_steps=4), 1, 0.2),
    (
        schedules.CosineDecay(0.1, 8, warmup_target=0.5, warmup_steps=4),
        6,
        0.5 * cosine(0.25),
    ),
    (schedules.CosineDecayRestarts(0.5, 4, m_mul=0.5), 6, 0.25 * cosine(2 / 8)),
    (schedules.CosineDecayRestarts(0.5, 4, t_mul=1.0), 9, 0.5 * cosine(1 / 4)),
]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("schedule", "step", "expected"), BY_HAND)
def test_schedule_by_hand(schedule: Any, step: int, expected: float) -> None:
    assert float(schedule(step)) == pytest.approx(expected, rel=1e-14)
    assert schedule(step).dtype == "float64"


def test_waves_restart_where_they_should() -> None:
    """Float32 logarithms must not end a wave one step late."""
    for first in (1, 3, 5, 7, 10, 1000):
        rate = schedules.CosineDecayRestarts(1.0, first)
        starts = [first * (2**k - 1) for k in range(1, 12)]
        np.testing.assert_allclose(rate(np.array(starts)), 1.0, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: schedules.ExponentialDecay(0.1, 0, 0.5), "decay_steps"),
        (lambda: schedules.CosineDecay(0.1, -1), "decay_steps"),
        (lambda: schedules.CosineDecayRestarts(0.1, 0), "first_decay_steps"),
        (lambda: schedules.PiecewiseConstantDecay([1], [0.1]), "2 values"),
        (lambda: schedules.PiecewiseConstantDecay([5, 1], [1, 2, 3]), "grow"),
    ],
)
def test_bad_schedules_are_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_the_base_schedule_must_be_overridden() -> None:
    with pytest.raises(NotImplementedError, match="__call__"):
        schedules.LearningRateSchedule()(1)
