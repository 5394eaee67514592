"""Losses: by hand, traced, and what they refuse."""

import json
import math

import numpy as np
import pytest
from loss_cases import SHAPES, drawn, every_case

from ganglion import losses, ops
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Input, ShapeError, evaluate
from ganglion.serialization import custom_object_scope
from ganglion.variables import Scope


def traced(function, *arrays):
    """Compute a function inside of a trace, its arguments being graph inputs."""
    with Scope() as scope:
        inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        result = function(*inputs)
    assert not scope.reads
    return evaluate([result], dict(zip(inputs, arrays, strict=True)))[0]


# ---- by hand -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "y_true", "y_pred", "expected"),
    [
        ("mse", [[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]], 0.5),
        ("mae", [[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]], 0.5),
        ("mape", [[2.0, 4.0]], [[1.0, 5.0]], 37.5),
        ("msle", [[0.0]], [[math.e - 1]], 1.0),
        ("cosine_similarity", [[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]], -0.5),
        ("huber", [[0.0, 0.0]], [[0.5, 3.0]], (0.125 + 2.5) / 2),
        ("log_cosh", [[0.0]], [[2.0]], math.log(math.cosh(2.0))),
        ("hinge", [[0.0, 1.0]], [[0.6, 0.4]], (1.6 + 0.6) / 2),
        ("hinge", [[-1.0, 1.0]], [[0.6, 0.4]], (1.6 + 0.6) / 2),
        ("squared_hinge", [[-1.0, 1.0]], [[0.6, 0.4]], (1.6**2 + 0.6**2) / 2),
        ("categorical_hinge", [[0.0, 1.0]], [[0.6, 0.4]], 1.2),
        ("kld", [[0.5, 0.5]], [[0.25, 0.75]], 0.5 * math.log(4 / 3)),
        ("poisson", [[2.0]], [[3.0]], 3 - 2 * math.log(3)),
        ("bce", [[1.0, 0.0]], [[0.9, 0.2]], -math.log(0.9 * 0.8) / 2),
        ("categorical_crossentropy", [[0.0, 1.0]], [[0.3, 0.7]], -math.log(0.7)),
        ("sparse_categorical_crossentropy", [1], [[0.3, 0.7]], -math.log(0.7)),
        ("binary_focal_crossentropy", [[1.0]], [[0.9]], -0.01 * math.log(0.9)),
        (
            "categorical_focal_crossentropy",
            [[0.0, 1.0]],
            [[0.3, 0.7]],
            -0.25 * 0.09 * math.log(0.7),
        ),
    ],
)
def test_values_by_hand(name, y_true, y_pred, expected):
    values = losses.get(name)(np.array(y_true, "float32"), np.array(y_pred, "float32"))
    # Means of a few float32 numbers: a handful of roundings of 6e-8 each.
    assert np.mean(values) == pytest.approx(expected, rel=2e-6)


def test_reductions_by_hand():
    y_true, y_pred = np.zeros((2, 2), "float32"), np.array([[1, 3], [2, 0]], "float32")
    weight = np.array([1.0, 3.0], "float32")  # losses 5 and 2, weighted 5 and 6

    def loss(reduction):
        result = losses.MeanSquaredError(reduction=reduction)
        return result(y_true, y_pred, sample_weight=weight)

    assert loss("sum_over_batch_size") == loss("mean") == 5.5
    assert loss("sum") == 11.0
    assert loss("mean_with_sample_weight") == 11.0 / 4.0
    np.testing.assert_array_equal(loss(None), [5.0, 6.0])
    np.testing.assert_array_equal(loss("none"), [5.0, 6.0])
    assert losses.MeanSquaredError(reduction="auto").reduction == "sum_over_batch_size"


def test_weights_of_zero_give_zero_and_not_nan():
    result = losses.MeanSquaredError(reduction="mean_with_sample_weight")
    ones = np.ones((2, 1), "float32")
    assert result(ones, 3 * ones, sample_weight=np.zeros(2)) == 0.0


def test_one_weight_per_sample_covers_its_steps():
    # N equals T on purpose: broadcasting alone would weigh the steps instead.
    y_true, y_pred = np.zeros((2, 2, 1), "float32"), np.ones((2, 2, 1), "float32")
    y_pred[0] = 3.0
    loss = losses.MeanSquaredError(reduction=None)
    weighted = loss(y_true, y_pred, sample_weight=np.array([1.0, 0.0]))
    np.testing.assert_array_equal(weighted, [[9.0, 9.0], [0.0, 0.0]])


# ---- the trace -----------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_computes_what_arrays_compute(case, shape):
    y_true, y_pred = drawn(case, shape)
    loss = getattr(losses, case[0])(**case[1])
    weight = np.random.default_rng(1).uniform(size=shape[:-1]).astype("float32")
    eager = loss(y_true, y_pred, sample_weight=weight)
    assert eager.shape == ()
    assert eager.dtype == np.float32
    assert traced(loss, y_true, y_pred, weight) == eager


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_softmax_and_sigmoid_are_taken_back_to_logits(weighted, smoothing):
    """A gap of 100 costs 100: clipped probabilities would say 16.1."""
    weight = np.ones(2, "float32") if weighted else None
    logits = np.array([[0.0, 100.0], [0.0, 100.0]], "float32")
    hot = np.array([[1, 0], [1, 0]], "uint8")
    result = losses.CategoricalCrossentropy(label_smoothing=smoothing)
    actual = traced(lambda y, x: result(y, ops.softmax(x), weight), hot, logits)
    # Smoothing gives 5 % of the label to the class that is predicted.
    assert actual == pytest.approx(100.0 * (1 - smoothing / 2), rel=1e-6)

    bit = np.zeros((2,), "int32")  # (N,) against (N, 1): the label is reshaped
    result = losses.BinaryCrossentropy(label_smoothing=smoothing)
    actual = traced(lambda y, x: result(y, ops.sigmoid(x), weight), bit, logits[:, 1:])
    assert actual == pytest.approx(100.0 * (1 - smoothing / 2), rel=1e-6)

    for name in ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"):
        result = losses.get(name)
        numbers = np.zeros((2, 1), "uint8")
        actual = traced(lambda y, x, f=result: f(y, ops.softmax(x)), numbers, logits)
        assert np.mean(actual) == pytest.approx(100.0, rel=1e-6)


def test_an_ignored_class_leaves_the_fusion_and_the_gradient_whole():
    loss = losses.SparseCategoricalCrossentropy(ignore_class=-1)
    with Scope():
        x, y = Input("x", (2, 2), "float32"), Input("y", (2,), "int32")
        total = loss(y, ops.softmax(x))
        slope = gradients(total, [x])[x]
    known = {x: np.array([[0, 100], [0, 3]], "float32"), y: np.array([0, -1], "int32")}
    value, slope = evaluate([total, slope], known)
    assert value == pytest.approx(100.0)
    np.testing.assert_allclose(slope, [[-1, 1], [0, 0]], atol=1e-6)


def test_the_gradient_of_the_cosine_of_a_zero_row_is_finite():
    with Scope():
        x = Input("x", (1, 3), "float32")
        total = losses.CosineSimilarity()(np.ones((1, 3), "float32"), x)
        slope = gradients(total, [x])[x]
    (actual,) = evaluate([slope], {x: np.zeros((1, 3), "float32")})
    assert np.isfinite(actual).all()


def test_predictions_of_another_type_are_cast_and_integers_stay_whole():
    y_true, y_pred = np.array([1, 0], "uint8"), np.array([[0.5, 0.5], [0.5, 0.5]])
    loss = losses.SparseCategoricalCrossentropy()
    assert loss(y_true, y_pred).dtype == np.float32
    wide = losses.MeanSquaredError(dtype="float64")
    assert traced(wide, y_pred.astype("float32"), y_pred).dtype == np.float64


# ---- own losses ----------------------------------------------------------------------


class Twice(losses.Loss):
    def __init__(self, factor=2.0, name="twice", **kwargs):
        super().__init__(name=name, **kwargs)
        self.factor = factor

    def call(self, y_true, y_pred):
        return ops.mean(ops.abs(y_true - y_pred), axis=-1) * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def test_a_subclass_works_and_is_rebuilt():
    loss = Twice(factor=3.0, reduction="sum")
    assert loss([[1.0], [2.0]], [[2.0], [2.0]]) == 3.0
    config = json.loads(json.dumps(losses.serialize(loss)))
    again = losses.deserialize(config, custom_objects={"Twice": Twice})
    assert again.get_config() == loss.get_config()


def own_loss(y_true, y_pred):
    return ops.sum(y_true - y_pred, axis=-1)


def test_a_function_becomes_a_loss_that_is_rebuilt():
    loss = losses.LossFunctionWrapper(own_loss, name="own")
    assert loss([[3.0, 1.0]], [[1.0, 1.0]]) == 2.0
    with custom_object_scope({"own_loss": own_loss}):
        config = json.loads(json.dumps(losses.serialize(loss)))
        assert losses.get(config).fn is own_loss
    ours = losses.LossFunctionWrapper(losses.huber, delta=0.5)
    again = losses.get(json.loads(json.dumps(losses.serialize(ours))))
    assert again.fn is losses.huber
    assert again.delta == 0.5


# ---- names and configurations --------------------------------------------------------


@every_case
def test_a_configuration_survives_json(case):
    loss = getattr(losses, case[0])(**case[1], reduction="sum", name="mine")
    again = losses.deserialize(json.loads(json.dumps(losses.serialize(loss))))
    assert type(again) is type(loss)
    assert again.get_config() == loss.get_config()
    y_true, y_pred = drawn(case, SHAPES[0])
    assert again(y_true, y_pred) == loss(y_true, y_pred)


def test_default_names_count():
    first = losses.Loss().name
    assert first.startswith("loss")
    assert losses.Loss().name != first
    assert losses.Huber().name == "huber_loss"


def test_get():
    assert losses.get(None) is None
    assert losses.get("MSE") is losses.mean_squared_error
    assert losses.get(own_loss) is own_loss
    assert isinstance(losses.get(losses.Huber), losses.Huber)
    config = {"class_name": "CategoricalCrossentropy", "config": {"from_logits": True}}
    assert losses.get(config).from_logits is True


# ---- what is refused -----------------------------------------------------------------


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(ValueError, match="categorical_crossentropy"):
        losses.get("categorical_crossentropi")
    with pytest.raises(ValueError, match="sum_over_batch_size"):
        losses.MeanSquaredError(reduction="average")


@pytest.mark.parametrize(
    ("name", "label", "prediction", "words"),
    [
        ("categorical_crossentropy", (8,), (8, 3), ["(8,)", "(8, 3)", "sparse_cat"]),
        ("categorical_crossentropy", (8, 1), (8, 3), ["(8, 1)", "sparse_cat"]),
        ("sparse_categorical_crossentropy", (8, 3), (8, 3), ["use categorical_"]),
        ("sparse_categorical_crossentropy", (7,), (8, 3), ["(7,)", "(8, 3)"]),
        ("mse", (8,), (8, 3), ["(8,)", "(8, 3)", "sparse_cat"]),
        ("mse", (8, 6), (8, 2, 3), ["(8, 6)", "Reshape the labels to (8, 2, 3)"]),
        ("mse", (8, 2), (8, 3), ["(8, 2)", "(8, 3)", "units"]),
        ("bce", (8, 2), (8, 1), ["(8, 2)", "(8, 1)"]),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_a_way_out(
    name, label, prediction, words
):
    function = losses.get(name)
    labels, predictions = (
        np.zeros(label, "float32"),
        np.full(prediction, 0.3, "float32"),
    )
    for loss in (function, losses.LossFunctionWrapper(function)):
        with pytest.raises(ShapeError) as error:
            loss(labels, predictions)
        for word in words:
            assert word in str(error.value)


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\).*one weight per sample"):
        losses.MeanSquaredError()(np.ones((2, 1)), np.ones((2, 1)), np.ones(3))


def test_a_single_class_is_warned_about():
    with pytest.warns(SyntaxWarning, match="binary_crossentropy"):
        losses.categorical_crossentropy(np.ones((2, 1)), np.ones((2, 1)))


def test_one_label_stands_for_all():
    predictions = np.array([0.2, 0.7], "float32")
    wanted = losses.kl_divergence(np.full(2, 0.1), predictions)
    assert float(losses.kl_divergence(0.1, predictions)) == pytest.approx(float(wanted))
