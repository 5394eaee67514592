"""Metrics: by hand, traced, and what they refuse."""

import json
import math

import numpy as np
import pytest
from metric_cases import batches, every_case, metric_of, updated, usable, weighted

from ganglion import losses, metrics, ops
from ganglion.compiler.ir.graph import Input, ShapeError, evaluate
from ganglion.serialization import custom_object_scope
from ganglion.variables import Scope, Variable

# ---- by hand -------------------------------------------------------------------------


def test_mean_and_sum_by_hand():
    assert updated(metrics.Mean(), [1, 3, 5, 7]) == 4.0
    assert updated(metrics.Mean(), [1, 3, 5, 7], sample_weight=[1, 1, 0, 0]) == 2.0
    assert updated(metrics.Mean(), 3.0) == 3.0
    assert updated(metrics.Sum(), [1, 3, 5, 7], sample_weight=[1, 1, 0, 0]) == 4.0
    assert metrics.Mean().result() == 0.0


def test_a_mean_weighted_by_the_batch_is_the_mean_of_all_samples():
    mean = metrics.Mean(name="loss")
    mean.update_state(2.0, sample_weight=3)
    mean.update_state(5.0, sample_weight=1)
    assert mean.result() == 11.0 / 4.0
    mean.reset_state()
    assert mean.result() == 0.0


@pytest.mark.parametrize(
    ("metric", "y_true", "y_pred", "expected"),
    [
        (metrics.Accuracy(), [1, 2, 3, 4], [0, 2, 3, 4], 0.75),
        (metrics.BinaryAccuracy(), [1, 1, 0, 0], [0.98, 1, 0, 0.6], 0.75),
        (
            metrics.CategoricalAccuracy(),
            [[0, 1], [1, 0]],
            [[0.1, 0.9], [0.2, 0.8]],
            0.5,
        ),
        (metrics.SparseCategoricalAccuracy(), [1, 0], [[0.1, 0.9], [0.2, 0.8]], 0.5),
        (metrics.TopKCategoricalAccuracy(k=1), [[0, 0, 1]], [[0.1, 0.9, 0.8]], 0.0),
        (metrics.TopKCategoricalAccuracy(k=2), [[0, 0, 1]], [[0.1, 0.9, 0.8]], 1.0),
        (metrics.SparseTopKCategoricalAccuracy(k=2), [2], [[0.1, 0.9, 0.8]], 1.0),
        (metrics.RootMeanSquaredError(), [[0, 1], [0, 0]], [[1, 1], [0, 0]], 0.5),
        (metrics.MeanSquaredError(), [[0, 1], [0, 0]], [[1, 1], [0, 0]], 0.25),
        (metrics.CosineSimilarity(), [[0, 1], [1, 1]], [[1, 0], [1, 1]], 0.5),
        (metrics.BinaryCrossentropy(), [[1.0]], [[0.5]], math.log(2)),
        (metrics.TruePositives(), [0, 1, 1, 1], [1, 0, 1, 1], 2.0),
        (metrics.FalsePositives(), [0, 1, 0, 0], [0, 0, 1, 1], 2.0),
        (metrics.FalseNegatives(), [0, 1, 1, 1], [0, 1, 0, 0], 2.0),
        (metrics.TrueNegatives(), [0, 1, 0, 0], [1, 1, 0, 0], 2.0),
        (metrics.Precision(), [0, 1, 1, 1], [1, 0, 1, 1], 2 / 3),
        (metrics.Recall(), [0, 1, 1, 1], [1, 0, 1, 1], 2 / 3),
        (metrics.AUC(num_thresholds=3), [0, 0, 1, 1], [0, 0.5, 0.3, 0.9], 0.75),
        (metrics.MeanIoU(num_classes=2), [0, 0, 1, 1], [0, 1, 0, 1], 1 / 3),
    ],
    ids=lambda case: case.name if isinstance(case, metrics.Metric) else None,
)
def test_values_by_hand(metric, y_true, y_pred, expected):
    actual = updated(metric, np.array(y_true), np.array(y_pred, "float32"))
    assert actual == pytest.approx(expected, rel=1e-6)


def test_predictions_on_a_threshold_are_below_it():
    counts = metrics.TruePositives(thresholds=[0.0, 0.25, 0.5, 0.75, 1.0])
    counts.update_state(np.ones(5), np.array([0.0, 0.25, 0.5, 0.75, 1.0], "float32"))
    np.testing.assert_array_equal(counts.result(), [4, 3, 2, 1, 0])


def test_one_weight_per_sample_covers_all_its_elements():
    counts = metrics.TruePositives()
    counts.update_state(np.ones((2, 3, 4)), np.ones((2, 3, 4)), np.array([1.0, 0.5]))
    assert counts.result() == 12 + 6


# ---- the trace -----------------------------------------------------------------------


def step(metric, batch):
    """Trace one update, run it on a batch, and store what it wrote."""
    with Scope() as scope:
        inputs = [
            Input(f"x{i}", item.shape, item.dtype) for i, item in enumerate(batch)
        ]
        metric.update_state(*inputs)
    known = dict(zip(inputs, batch, strict=True))
    known.update({value: variable.numpy() for variable, value in scope.reads.items()})
    written = list(scope.writes)
    assert set(written) == set(metric.variables)
    arrays = evaluate([scope.writes[item] for item in written], known)
    for variable, array in zip(written, arrays, strict=True):
        assert array.dtype == variable.dtype
        variable.assign(array)


@every_case
@weighted
def test_a_trace_computes_what_arrays_compute(case, weighted):
    for shape in case[4]:
        if not usable(case, weighted):
            continue
        eager, traced = metric_of(case), metric_of(case)
        for batch in batches(case, shape, weighted):
            eager.update_state(*batch)
            step(traced, batch)
        for a, b in zip(eager.variables, traced.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        np.testing.assert_array_equal(eager.result(), traced.result())
        traced.reset_state()
        for variable in traced.variables:
            assert not variable.numpy().any()


# ---- own metrics ---------------------------------------------------------------------


class Positives(metrics.Metric):
    """As the Keras documentation writes one."""

    def __init__(self, name="positives", **kwargs):
        super().__init__(name=name, **kwargs)
        self.found = self.add_variable(shape=(), initializer="zeros", name="found")
        self.seen = self.add_weight(name="seen", initializer="zeros")
        self.inner = [metrics.Mean(name="inner")]

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.cast(y_true, "bool")
        y_pred = ops.cast(y_pred > 0.5, "bool")
        values = ops.cast(ops.logical_and(y_true, y_pred), self.dtype)
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, self.dtype)
            values = values * ops.broadcast_to(sample_weight, values.shape)
        self.found.assign_add(ops.sum(values))
        self.seen.assign(self.seen + 1.0)
        self.inner[0].update_state(values)

    def result(self):
        return self.found


def test_a_subclass_works_on_arrays_and_in_a_trace():
    eager, traced = Positives(), Positives()
    assert len(eager.variables) == 4
    batch = (np.array([1, 0, 1]), np.array([0.9, 0.9, 0.2], "float32"))
    for _ in range(2):
        eager.update_state(*batch)
        step(traced, batch)
    assert float(eager.result()) == float(traced.result()) == 2.0
    assert float(traced.seen) == 2.0
    assert traced.inner[0].result() == pytest.approx(1 / 3)
    assert traced.found.path == "positives/found"
    traced.reset_state()
    assert float(traced.inner[0].count) == 0.0


def test_a_subclass_that_forgets_super_is_told():
    class Forgetful(metrics.Metric):
        def __init__(self):
            self.total = self.add_variable((), "zeros")

    with pytest.raises(RuntimeError, match=r"super\(\).__init__"):
        Forgetful()


def test_variables_kept_as_attributes_count():
    class Own(metrics.Metric):
        def __init__(self):
            super().__init__()
            self.total = Variable(np.zeros(()), trainable=False)

    assert len(Own().variables) == 1


def own_metric(y_true, y_pred):
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)


def test_a_function_becomes_a_metric_that_is_rebuilt():
    metric = metrics.MeanMetricWrapper(own_metric, name="own")
    y_true = np.array([[1.0], [2.0]], "float32")
    assert updated(metric, y_true, y_true * 2) == 1.5
    with custom_object_scope({"own_metric": own_metric}):
        config = json.loads(json.dumps(metrics.serialize(metric)))
        assert metrics.get(config)._fn is own_metric
    for function in (metrics.binary_accuracy, losses.huber):
        ours = metrics.MeanMetricWrapper(function)
        again = metrics.get(json.loads(json.dumps(metrics.serialize(ours))))
        assert again._fn is function


# ---- names and configurations --------------------------------------------------------


@every_case
def test_a_configuration_survives_json(case):
    metric = getattr(metrics, case[0])(**case[1], name="mine")
    again = metrics.deserialize(json.loads(json.dumps(metrics.serialize(metric))))
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    (batch,) = batches(case, case[4][0], False, count=1)
    np.testing.assert_array_equal(updated(again, *batch), updated(metric, *batch))


def test_get_and_unique_names():
    assert metrics.get(None) is None
    assert isinstance(metrics.get("binary_accuracy"), metrics.BinaryAccuracy)
    assert metrics.get("mse").name == "mean_squared_error"
    assert metrics.get(own_metric) is own_metric
    first, second = metrics.AUC().name, metrics.AUC().name
    assert first.startswith("auc")
    assert second.startswith("auc_")
    assert first != second
    with pytest.raises(ValueError, match="'auc'"):
        metrics.get("aucc")


# ---- what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "label", "prediction", "word"),
    [
        ("CategoricalAccuracy", (8,), (8, 3), "sparse_categorical_accuracy"),
        ("SparseCategoricalAccuracy", (8, 3), (8, 3), "use categorical_accuracy"),
        ("BinaryAccuracy", (8, 2), (8, 3), "units"),
        ("AUC", (8,), (8, 3), "to_categorical"),
        ("Precision", (8, 1), (8, 3), "to_categorical"),
        ("MeanSquaredError", (8, 2), (8, 3), "units"),
        ("RootMeanSquaredError", (8, 2), (8, 3), "units"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_a_way_out(
    name, label, prediction, word
):
    with pytest.raises(ShapeError) as error:
        getattr(metrics, name)().update_state(
            np.zeros(label, "float32"), np.zeros(prediction, "float32")
        )
    for part in (str(label), str(prediction), word):
        assert part in str(error.value)


def test_counts_of_pixels_have_64_bits() -> None:
    metric = metrics.MeanIoU(num_classes=2)
    metric.total_cm.assign(np.array([[2**31, 0], [0, 2**31]]))
    metric.update_state([0, 1], [0, 1])
    assert metric.total_cm.numpy().sum() == 2**32 + 2
    assert float(metric.result()) == pytest.approx(1.0)


def test_other_refusals():
    with pytest.raises(ShapeError, match="one weight per sample"):
        metrics.Mean().update_state(np.ones(3), sample_weight=np.ones(2))
    with pytest.raises(ValueError, match="Threshold values"):
        metrics.Precision(thresholds=1.5)
    with pytest.raises(ValueError, match="curve"):
        metrics.AUC(curve="ROCK")
    with pytest.raises(ValueError, match="num_thresholds"):
        metrics.AUC(num_thresholds=1)
    with pytest.raises(ValueError, match="beta"):
        metrics.FBetaScore(beta=-1.0)
    with pytest.raises(ValueError, match="expects 2D inputs"):
        metrics.F1Score().update_state(np.ones(3), np.ones(3))
    with pytest.raises(ShapeError, match="class_id=7"):
        metrics.Recall(class_id=7).update_state(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="out of range"):
        metrics.IoU(num_classes=2, target_class_ids=[2])
