"""Metrics against Keras: values, names and configurations."""

import inspect

import numpy as np
import pytest
from label_draws import CLASSES, bits
from metric_cases import (
    CASES,
    batches,
    bit_probabilities,
    every_case,
    metric_of,
    pixels,
    updated,
    usable,
    weighted,
)

from ganglion import metrics

pytestmark = pytest.mark.rivals


@every_case
@weighted
def test_keras_gives_the_same(keras, case, weighted):
    for shape in case[4]:
        if not usable(case, weighted):
            continue
        ours, theirs = metric_of(case), getattr(keras.metrics, case[0])(**case[1])
        for batch in batches(case, shape, weighted):
            ours.update_state(*batch)
            theirs.update_state(*batch)
            # Two libraries round exp, log and sums differently in the last bits.
            np.testing.assert_allclose(
                ours.result(), np.asarray(theirs.result()), rtol=2e-5, atol=2e-6
            )
        assert len(ours.variables) == len(theirs.variables)
        for a, b in zip(ours.variables, theirs.variables, strict=True):
            assert a.shape == tuple(b.shape)


def test_keras_weighs_pixels_the_same(keras):
    rng = np.random.default_rng(5)
    y_true, y_pred = pixels(rng, (3, 5)), pixels(rng, (3, 5))
    weight = rng.integers(0, 4, (3, 5)).astype("int32")
    actual = [
        updated(module.MeanIoU(num_classes=CLASSES), y_true, y_pred, weight)
        for module in (metrics, keras.metrics)
    ]
    assert actual[0] == pytest.approx(float(actual[1]), rel=1e-6)


@pytest.mark.parametrize(
    ("shape", "weights"),
    [
        *[(shape, None) for shape in [(), (3,), (3, 2), (3, 2, 4)]],
        *[(shape, ()) for shape in [(), (3,), (3, 2), (3, 2, 4)]],
        *[(shape, (3,)) for shape in [(3,), (3, 2), (3, 2, 4)]],
        *[(shape, (3, 1)) for shape in [(3,), (3, 2), (3, 2, 4)]],
        *[(shape, (3, 2)) for shape in [(3, 2), (3, 2, 4)]],
    ],
)
def test_keras_takes_the_same_means(keras, shape, weights):
    rng = np.random.default_rng(6)
    values = rng.normal(size=shape).astype("float32")
    weight = None if weights is None else rng.uniform(size=weights).astype("float32")
    for name in ("Mean", "Sum"):
        ours, theirs = getattr(metrics, name)(), getattr(keras.metrics, name)()
        for metric in (ours, theirs):
            metric.update_state(values, sample_weight=weight)
        assert ours.result() == pytest.approx(float(theirs.result()), rel=1e-5)
        for a, b in zip(ours.variables, theirs.variables, strict=True):
            assert float(a) == pytest.approx(float(b.numpy()), rel=1e-5)


@pytest.mark.parametrize("labels", [(6,), (6, 1)])
@pytest.mark.parametrize("predictions", [(6,), (6, 1)])
@pytest.mark.parametrize("weights", [None, (6,), (6, 1)])
def test_keras_makes_the_same_of_a_last_axis_of_one(
    keras, labels, predictions, weights
):
    rng = np.random.default_rng(7)
    y_true, y_pred = bits(rng, labels), bit_probabilities(rng, predictions)
    weight = None if weights is None else rng.uniform(size=weights).astype("float32")
    names = ["BinaryAccuracy", "Accuracy", "RootMeanSquaredError"]
    is_row = len(labels + predictions) == 2
    if not (is_row and weights == (6, 1)):
        names += ["Precision", "AUC"]  # Keras fails on more axes of weights
    if not (is_row and weights):
        names += ["MeanSquaredError"]  # one number for a row: Keras fails on weights
    for name in names:
        ours = updated(getattr(metrics, name)(), y_true, y_pred, sample_weight=weight)
        theirs = getattr(keras.metrics, name)()
        theirs.update_state(y_true, y_pred, sample_weight=weight)
        assert ours == pytest.approx(float(theirs.result()), rel=1e-5), name


def test_configurations_are_those_of_keras(keras):
    for name, arguments, *_ in CASES:
        config = getattr(metrics, name)(**arguments).get_config()
        theirs = getattr(keras.metrics, name).from_config(config)
        missing = set(theirs.get_config()) - set(config)
        assert not missing, name


def test_functions_and_names_are_those_of_keras(keras):
    needs_arguments = {"Metric", "MeanMetricWrapper"}
    for name, theirs in keras.src.metrics.ALL_OBJECTS_DICT.items():
        if theirs.__name__ in needs_arguments:
            continue
        required = [
            parameter.name
            for parameter in inspect.signature(theirs).parameters.values()
            if parameter.default is inspect.Parameter.empty
        ]
        if required:
            assert hasattr(metrics, theirs.__name__)
            continue
        ours = metrics.get(name)
        assert type(ours).__name__ == theirs.__name__, name
        default = inspect.signature(theirs).parameters["name"].default
        assert default is None or ours.name == default
    for name, theirs in vars(keras.metrics).items():
        assert not inspect.isfunction(theirs) or hasattr(metrics, name), name


def test_our_configurations_are_read_by_keras_and_theirs_by_us(keras):
    for name, arguments, *_ in CASES:
        ours = getattr(metrics, name)(**arguments)
        theirs = keras.metrics.deserialize(metrics.serialize(ours))
        assert type(theirs).__name__ == name
        again = metrics.deserialize(keras.metrics.serialize(theirs))
        assert type(again) is type(ours)
