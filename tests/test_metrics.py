"""Metrics: by hand, traced, against Keras, and what they refuse."""

import inspect
import json
import math

import numpy as np
import pytest

from ganglion import losses, metrics, ops
from ganglion.ir.graph import Input, ShapeError
from ganglion.ir.simplify import evaluate
from ganglion.metrics.confusion import ConfusionMetric
from ganglion.serialization import custom_object_scope
from ganglion.variables import Scope, Variable

CLASSES = 4


def probabilities(rng, shape):
    raw = rng.uniform(0.05, 1.0, shape)
    return (raw / raw.sum(-1, keepdims=True)).astype("float32")


def reals(rng, shape):
    return rng.normal(size=shape).astype("float32")


def positives(rng, shape):
    return rng.uniform(0.1, 3.0, shape).astype("float32")


def bits(rng, shape):
    return rng.integers(0, 2, shape).astype("float32")


def bit_probabilities(rng, shape):
    """Some predictions lie exactly on a threshold, and on 0 and 1."""
    drawn = rng.uniform(size=shape)
    rounded = np.round(drawn * 4) / 4
    return np.where(rng.uniform(size=shape) < 0.3, rounded, drawn).astype("float32")


def signs(rng, shape):
    return (rng.integers(0, 2, shape) * 2 - 1).astype("float32")


def one_hot(rng, shape):
    return np.eye(shape[-1], dtype="float32")[class_numbers(rng, shape)]


def class_numbers(rng, shape):
    return rng.integers(0, shape[-1], shape[:-1]).astype("int32")


def whole_numbers(rng, shape):
    return rng.integers(0, 3, shape).astype("float32")


def pixels(rng, shape):
    return rng.integers(0, CLASSES, shape).astype("int32")


def bit_pixels(rng, shape):
    return rng.integers(0, 2, shape).astype("int32")


ANY = [(6, CLASSES), (3, 5, CLASSES)]
FLAT = [(6, CLASSES)]

# (class, arguments, labels, predictions, shapes)
CASES = [
    ("Accuracy", {}, whole_numbers, whole_numbers, ANY),
    ("BinaryAccuracy", {}, bits, bit_probabilities, ANY),
    ("BinaryAccuracy", {"threshold": 0.25}, bits, bit_probabilities, ANY),
    ("CategoricalAccuracy", {}, one_hot, probabilities, ANY),
    ("SparseCategoricalAccuracy", {}, class_numbers, probabilities, ANY),
    ("TopKCategoricalAccuracy", {"k": 2}, one_hot, probabilities, ANY),
    ("SparseTopKCategoricalAccuracy", {"k": 2}, class_numbers, probabilities, ANY),
    (
        "SparseTopKCategoricalAccuracy",
        {"k": 2, "from_sorted_ids": True},
        class_numbers,
        whole_numbers,
        ANY,
    ),
    ("MeanSquaredError", {}, reals, reals, ANY),
    ("RootMeanSquaredError", {}, reals, reals, ANY),
    ("MeanAbsoluteError", {}, reals, reals, ANY),
    ("MeanAbsolutePercentageError", {}, positives, reals, ANY),
    ("MeanSquaredLogarithmicError", {}, positives, positives, ANY),
    ("CosineSimilarity", {}, reals, reals, ANY),
    ("LogCoshError", {}, reals, reals, ANY),
    ("Hinge", {}, bits, reals, ANY),
    ("SquaredHinge", {}, signs, reals, ANY),
    ("CategoricalHinge", {}, one_hot, reals, ANY),
    ("KLDivergence", {}, probabilities, probabilities, ANY),
    ("Poisson", {}, positives, positives, ANY),
    ("BinaryCrossentropy", {"label_smoothing": 0.1}, bits, bit_probabilities, ANY),
    ("BinaryCrossentropy", {"from_logits": True}, bits, reals, ANY),
    ("CategoricalCrossentropy", {}, one_hot, probabilities, ANY),
    (
        "CategoricalCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        one_hot,
        reals,
        ANY,
    ),
    ("SparseCategoricalCrossentropy", {}, class_numbers, probabilities, ANY),
    (
        "SparseCategoricalCrossentropy",
        {"from_logits": True, "ignore_class": 1},
        class_numbers,
        reals,
        FLAT,
    ),
    ("TruePositives", {}, bits, bit_probabilities, ANY),
    ("TrueNegatives", {"thresholds": [0.25, 0.6]}, bits, bit_probabilities, ANY),
    ("FalsePositives", {"thresholds": 0.25}, bits, bit_probabilities, ANY),
    ("FalseNegatives", {"thresholds": [0.0, 0.5, 1.0]}, bits, bit_probabilities, ANY),
    ("Precision", {}, bits, bit_probabilities, ANY),
    ("Precision", {"thresholds": [0.1, 0.25, 0.9]}, bits, bit_probabilities, ANY),
    ("Precision", {"top_k": 2}, one_hot, probabilities, FLAT),
    ("Precision", {"class_id": 1}, one_hot, probabilities, FLAT),
    ("Precision", {"top_k": 2, "class_id": 3}, one_hot, probabilities, FLAT),
    ("Recall", {}, bits, bit_probabilities, ANY),
    ("Recall", {"top_k": 2, "thresholds": 0.25}, one_hot, bit_probabilities, FLAT),
    ("Recall", {"class_id": 2, "thresholds": [0.3]}, one_hot, probabilities, FLAT),
    ("AUC", {}, bits, bit_probabilities, ANY),
    ("AUC", {"num_thresholds": 5}, bits, bit_probabilities, ANY),
    ("AUC", {"curve": "PR"}, bits, bit_probabilities, ANY),
    (
        "AUC",
        {"curve": "PR", "summation_method": "minoring"},
        bits,
        bit_probabilities,
        FLAT,
    ),
    ("AUC", {"summation_method": "majoring"}, bits, bit_probabilities, FLAT),
    ("AUC", {"curve": "PRGAIN"}, bits, bit_probabilities, FLAT),
    ("AUC", {"thresholds": [0.25, 0.3, 0.9]}, bits, bit_probabilities, FLAT),
    ("AUC", {"from_logits": True}, bits, reals, FLAT),
    ("AUC", {"multi_label": True}, bits, bit_probabilities, FLAT),
    (
        "AUC",
        {
            "multi_label": True,
            "num_labels": CLASSES,
            "label_weights": [1.0, 0.0, 2.0, 0.5],
            "curve": "PR",
        },
        bits,
        bit_probabilities,
        FLAT,
    ),
    ("AUC", {"label_weights": [1.0, 0.0, 2.0, 0.5]}, bits, bit_probabilities, FLAT),
    ("SensitivityAtSpecificity", {"specificity": 0.5}, bits, bit_probabilities, FLAT),
    ("SpecificityAtSensitivity", {"sensitivity": 0.4}, bits, bit_probabilities, FLAT),
    ("PrecisionAtRecall", {"recall": 0.6}, bits, bit_probabilities, FLAT),
    (
        "RecallAtPrecision",
        {"precision": 0.6, "num_thresholds": 7},
        bits,
        bit_probabilities,
        FLAT,
    ),
    ("F1Score", {}, one_hot, probabilities, FLAT),
    ("F1Score", {"average": "macro", "threshold": 0.5}, bits, bit_probabilities, FLAT),
    ("FBetaScore", {"average": "micro", "beta": 2.0}, one_hot, probabilities, FLAT),
    ("FBetaScore", {"average": "weighted", "beta": 0.5}, one_hot, probabilities, FLAT),
    ("PearsonCorrelation", {}, reals, reals, ANY),
    ("ConcordanceCorrelation", {}, reals, reals, ANY),
    ("R2Score", {}, reals, reals, FLAT),
    ("R2Score", {"class_aggregation": None, "num_regressors": 2}, reals, reals, FLAT),
    (
        "R2Score",
        {"class_aggregation": "variance_weighted_average"},
        reals,
        reals,
        FLAT,
    ),
    ("MeanIoU", {"num_classes": CLASSES}, pixels, pixels, [(3, 5)]),
    ("MeanIoU", {"num_classes": CLASSES, "ignore_class": 2}, pixels, pixels, [(3, 5)]),
    (
        "IoU",
        {"num_classes": 6, "target_class_ids": [0, 2, 5]},
        pixels,
        pixels,
        [(3, 5)],
    ),
    ("BinaryIoU", {"threshold": 0.25}, bit_pixels, bit_probabilities, [(3, 5)]),
    (
        "OneHotIoU",
        {"num_classes": CLASSES, "target_class_ids": [1, 2]},
        one_hot,
        probabilities,
        ANY,
    ),
    ("OneHotMeanIoU", {"num_classes": CLASSES}, one_hot, probabilities, ANY),
]
NAMES = [f"{case[0]}-{number}" for number, case in enumerate(CASES)]
every_case = pytest.mark.parametrize("case", CASES, ids=NAMES)
weighted = pytest.mark.parametrize("weighted", [False, True])


def batches(case, shape, weighted, count=3):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        y_true, y_pred = case[2](rng, shape), case[3](rng, shape)
        if not weighted:
            yield y_true, y_pred
        elif "IoU" in case[0]:  # counts are whole numbers: so are their weights
            yield y_true, y_pred, rng.integers(0, 4, y_true.shape[: len(shape) - 1])
        else:
            # Keras' counts need a weight for every step; its means do not.
            is_count = isinstance(made(case), ConfusionMetric)
            size = shape[:-1] if is_count else shape[:1]
            yield y_true, y_pred, rng.uniform(size=size).astype("float32")


def usable(case, weighted):
    # One weight per pixel has a test of its own.
    return not weighted or "IoU" not in case[0] or "OneHot" in case[0]


def made(case):
    return getattr(metrics, case[0])(**case[1])


# ---- by hand -------------------------------------------------------------------------


def updated(metric, *arguments, **options):
    metric.update_state(*arguments, **options)
    return metric.result()


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
    ids=lambda one: one.name if isinstance(one, metrics.Metric) else None,
)
def test_values_by_hand(metric, y_true, y_pred, expected):
    found = updated(metric, np.array(y_true), np.array(y_pred, "float32"))
    assert found == pytest.approx(expected, rel=1e-6)


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
        inputs = [Input(f"x{i}", one.shape, one.dtype) for i, one in enumerate(batch)]
        metric.update_state(*inputs)
    known = dict(zip(inputs, batch, strict=True))
    known.update({value: variable.numpy() for variable, value in scope.reads.items()})
    written = list(scope.writes)
    assert set(written) == set(metric.variables)
    arrays = evaluate([scope.writes[one] for one in written], known)
    for variable, array in zip(written, arrays, strict=True):
        assert array.dtype == variable.dtype
        variable.assign(array)


@every_case
@weighted
def test_a_trace_computes_what_arrays_compute(case, weighted):
    for shape in case[4]:
        if not usable(case, weighted):
            continue
        eager, traced = made(case), made(case)
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


def test_other_refusals():
    with pytest.raises(ShapeError, match="one weight per sample"):
        metrics.Mean().update_state(np.ones(3), sample_weight=np.ones(2))
    with pytest.raises(ValueError, match="between 0 and 1"):
        metrics.Precision(thresholds=1.5)
    with pytest.raises(ValueError, match="curve"):
        metrics.AUC(curve="ROCK")
    with pytest.raises(ValueError, match="num_thresholds"):
        metrics.AUC(num_thresholds=1)
    with pytest.raises(ValueError, match="beta"):
        metrics.FBetaScore(beta=-1.0)
    with pytest.raises(ValueError, match="two axes"):
        metrics.F1Score().update_state(np.ones(3), np.ones(3))
    with pytest.raises(ShapeError, match="class_id=7"):
        metrics.Recall(class_id=7).update_state(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="out of range"):
        metrics.IoU(num_classes=2, target_class_ids=[2])


# ---- against Keras -------------------------------------------------------------------


@pytest.fixture(scope="module")
def keras():
    import os

    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip("keras", minversion="3.15")


@pytest.mark.rivals
@every_case
@weighted
def test_keras_gives_the_same(keras, case, weighted):
    for shape in case[4]:
        if not usable(case, weighted):
            continue
        ours, theirs = made(case), getattr(keras.metrics, case[0])(**case[1])
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


@pytest.mark.rivals
def test_keras_weighs_pixels_the_same(keras):
    rng = np.random.default_rng(5)
    y_true, y_pred = pixels(rng, (3, 5)), pixels(rng, (3, 5))
    weight = rng.integers(0, 4, (3, 5)).astype("int32")
    found = [
        updated(module.MeanIoU(num_classes=CLASSES), y_true, y_pred, weight)
        for module in (metrics, keras.metrics)
    ]
    assert found[0] == pytest.approx(float(found[1]), rel=1e-6)


@pytest.mark.rivals
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


@pytest.mark.rivals
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


def parameters(thing):
    found = inspect.signature(thing).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.rivals
def test_signatures_and_configurations_are_those_of_keras(keras):
    for name in {case[0] for case in CASES} | {"Mean", "Sum", "Metric"}:
        ours, theirs = getattr(metrics, name), getattr(keras.metrics, name)
        assert parameters(ours) == parameters(theirs), name
    for method in ("add_variable", "add_weight", "update_state", "reset_state"):
        ours, theirs = (getattr(m.Metric, method) for m in (metrics, keras.metrics))
        assert parameters(ours) == parameters(theirs), method
    wrapper = keras.metrics.MeanMetricWrapper
    assert parameters(metrics.MeanMetricWrapper) == parameters(wrapper)
    for name, arguments, *_ in CASES:
        config = getattr(metrics, name)(**arguments).get_config()
        theirs = getattr(keras.metrics, name).from_config(config)
        missing = set(theirs.get_config()) - set(config)
        assert not missing, name


@pytest.mark.rivals
def test_functions_and_names_are_those_of_keras(keras):
    needs_arguments = {"Metric", "MeanMetricWrapper"}
    for name, theirs in keras.src.metrics.ALL_OBJECTS_DICT.items():
        if theirs.__name__ in needs_arguments:
            continue
        required = [
            one.name
            for one in inspect.signature(theirs).parameters.values()
            if one.default is inspect.Parameter.empty
        ]
        if required:
            assert hasattr(metrics, theirs.__name__)
            continue
        ours = metrics.get(name)
        assert type(ours).__name__ == theirs.__name__, name
        default = inspect.signature(theirs).parameters["name"].default
        assert default is None or ours.name == default
    for name in vars(keras.metrics):
        theirs = getattr(keras.metrics, name)
        if inspect.isfunction(theirs):
            assert parameters(getattr(metrics, name)) == parameters(theirs), name


@pytest.mark.rivals
def test_our_configurations_are_read_by_keras_and_theirs_by_us(keras):
    for name, arguments, *_ in CASES:
        ours = getattr(metrics, name)(**arguments)
        theirs = keras.metrics.deserialize(metrics.serialize(ours))
        assert type(theirs).__name__ == name
        again = metrics.deserialize(keras.metrics.serialize(theirs))
        assert type(again) is type(ours)
