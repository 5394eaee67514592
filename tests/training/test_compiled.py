"""What compile(loss=..., metrics=...) means for one output and for several."""

import numpy as np
import pytest

from ganglion import losses, metrics, ops
from ganglion.compiler.ir.graph import Input, ShapeError, evaluate
from ganglion.training.compile_utils import CompiledLoss, CompiledMetrics
from ganglion.variables import Scope

RNG = np.random.default_rng(0)
BITS = RNG.integers(0, 2, (6, 1)).astype("float32")
BIT_SCORES = RNG.uniform(0.1, 0.9, (6, 1)).astype("float32")
NUMBERS = RNG.integers(0, 3, 6).astype("int32")
HOT = np.eye(3, dtype="float32")[NUMBERS]
SCORES = RNG.dirichlet(np.ones(3), 6).astype("float32")
REALS = RNG.normal(size=(6, 2)).astype("float32")
GUESSES = RNG.normal(size=(6, 2)).astype("float32")
WEIGHT = RNG.uniform(size=6).astype("float32")
NAMES = ["kind", "place"]  # two outputs: a class and two coordinates


def distance(y_true, y_pred):
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)


# ---- one output ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["accuracy", "acc", "crossentropy", "ce"])
@pytest.mark.parametrize(
    ("y_true", "y_pred", "kind"),
    [
        (BITS, BIT_SCORES, "binary"),
        (BITS[:, 0], BIT_SCORES, "binary"),
        (BITS[:, 0], BIT_SCORES[:, 0], "binary"),
        (NUMBERS, SCORES, "sparse_categorical"),
        (NUMBERS[:, None], SCORES, "sparse_categorical"),
        (HOT, SCORES, "categorical"),
    ],
)
def test_shapes_choose_the_function(name, y_true, y_pred, kind):
    is_accuracy = name.startswith("acc")
    expected = metrics.get(f"{kind}_{'accuracy' if is_accuracy else 'crossentropy'}")
    expected.update_state(y_true, y_pred)
    compiled = CompiledMetrics([name])
    compiled.update_state(y_true, y_pred)
    assert compiled.result() == {name: pytest.approx(float(expected.result()))}
    if not is_accuracy:
        total = CompiledLoss(name)(y_true, y_pred)
        loss = losses.get(f"{kind}_crossentropy")
        wrapped = losses.LossFunctionWrapper(loss)
        assert total == wrapped(y_true, y_pred)


def test_a_cross_entropy_metric_follows_the_loss():
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled = CompiledMetrics(["crossentropy"], loss=loss)
    compiled.update_state(NUMBERS, SCORES)
    assert compiled.result()["crossentropy"] == pytest.approx(
        float(loss(NUMBERS, SCORES)), rel=1e-6
    )


@pytest.mark.parametrize(
    "loss",
    [
        "mse",
        losses.MeanSquaredError(),
        losses.MeanSquaredError,
        ["mse"],
        {"out": "mse"},
    ],
)
@pytest.mark.parametrize("weight", [None, 0.5, [0.5]])
def test_one_loss_in_every_form(loss, weight):
    compiled = CompiledLoss(loss, weight, ["out"])
    expected = np.mean((REALS - GUESSES) ** 2) * (0.5 if weight else 1.0)
    assert compiled(REALS, GUESSES) == pytest.approx(expected, rel=1e-6)
    assert compiled([REALS], GUESSES) == compiled(REALS, GUESSES)
    assert compiled.metrics == []


def test_sample_weights_reach_the_loss_and_the_weighted_metrics_only():
    total = CompiledLoss("mse")(REALS, GUESSES, WEIGHT)
    expected = losses.MeanSquaredError()(REALS, GUESSES, WEIGHT)
    assert total == expected
    compiled = CompiledMetrics(["mse"], ["mse"])
    compiled.update_state(REALS, GUESSES, WEIGHT)
    plain, weighted = metrics.MeanSquaredError(), metrics.MeanSquaredError()
    plain.update_state(REALS, GUESSES)
    weighted.update_state(REALS, GUESSES, WEIGHT)
    assert compiled.result() == {
        "mse": float(plain.result()),
        "weighted_mse": float(weighted.result()),
    }


def test_names_of_results():
    compiled = CompiledMetrics(
        [
            "mae",
            distance,
            metrics.MeanAbsoluteError(),
            metrics.MeanAbsoluteError(),
            "mae",
        ]
    )
    compiled.update_state(REALS, GUESSES)
    result = compiled.result()
    assert list(result) == [
        "mae",
        "distance",
        "mean_absolute_error",
        "mean_absolute_error_1",
        "mae_1",
    ]
    assert len({round(value, 6) for value in result.values()}) == 1
    compiled.reset_state()
    assert set(compiled.result().values()) == {0.0}


def test_results_that_are_not_single_numbers():
    class Both(metrics.Mean):
        def result(self):
            return {"half": super().result() / 2, "whole": super().result()}

        def update_state(self, y_true, y_pred, sample_weight=None):
            super().update_state(y_pred)

    compiled = CompiledMetrics([Both(), metrics.Precision(thresholds=[0.2, 0.7])])
    compiled.update_state(np.ones((2, 1)), np.full((2, 1), 0.5, "float32"))
    result = compiled.result()
    assert (result["half"], result["whole"]) == (0.25, 0.5)
    np.testing.assert_array_equal(next(reversed(result.values())), [1.0, 0.0])


# ---- several outputs -----------------------------------------------------------------


LOSSES = [
    ["sparse_categorical_crossentropy", "mse"],
    ("sparse_categorical_crossentropy", losses.MeanSquaredError()),
    {"place": "mse", "kind": "sparse_categorical_crossentropy"},
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("factors", [None, [2.0, 0.5], {"place": 0.5, "kind": 2.0}])
@pytest.mark.parametrize("as_dict", [False, True])
def test_several_losses(loss, factors, as_dict):
    compiled = CompiledLoss(loss, factors, NAMES)
    y_true, y_pred = [NUMBERS, REALS], [SCORES, GUESSES]
    if as_dict:
        y_true, y_pred = (dict(zip(NAMES, y, strict=True)) for y in (y_true, y_pred))
    a = float(losses.SparseCategoricalCrossentropy()(NUMBERS, SCORES))
    b = float(losses.MeanSquaredError()(REALS, GUESSES))
    expected = a + b if factors is None else 2.0 * a + 0.5 * b
    assert compiled(y_true, y_pred) == pytest.approx(expected, rel=1e-6)
    metrics = {metric.name: float(metric.result()) for metric in compiled.metrics}
    assert metrics == {
        "kind_loss": pytest.approx(a, rel=1e-6),
        "place_loss": pytest.approx(b, rel=1e-6),
    }
    trackers = compiled.metrics
    compiled(y_true, y_pred)
    assert compiled.metrics == trackers
    assert float(trackers[0].count) == 12.0


def test_an_output_without_a_loss_needs_no_labels():
    compiled = CompiledLoss([None, "mse"], output_names=NAMES)
    expected = losses.MeanSquaredError()(REALS, GUESSES)
    assert compiled([None, REALS], [SCORES, GUESSES]) == expected
    assert compiled([REALS], [SCORES, GUESSES]) == expected
    assert compiled({"place": REALS}, [SCORES, GUESSES]) == expected
    assert compiled.metrics == []
    assert CompiledLoss([None, None])([None, None], [SCORES, GUESSES]) is None


def test_weights_for_each_output():
    compiled = CompiledLoss("mse", output_names=NAMES)
    other = WEIGHT[::-1].copy()
    total = compiled([HOT, REALS], [SCORES, GUESSES], [WEIGHT, other])
    mse = losses.MeanSquaredError()
    expected = mse(HOT, SCORES, WEIGHT) + mse(REALS, GUESSES, other)
    assert total == expected
    by_name = {"kind": WEIGHT, "place": other}
    assert compiled([HOT, REALS], [SCORES, GUESSES], by_name) == expected


def test_metrics_of_several_outputs():
    y_true, y_pred = [NUMBERS, REALS], [SCORES, GUESSES]
    for arguments in (
        [["accuracy"], ["mae", distance]],
        {"place": ["mae", distance], "kind": "accuracy"},
    ):
        compiled = CompiledMetrics(arguments, output_names=NAMES)
        compiled.update_state(y_true, y_pred)
        result = compiled.result()
        assert list(result) == ["kind_accuracy", "place_mae", "place_distance"]
    compiled = CompiledMetrics([None, "mae"])
    compiled.update_state(y_true, y_pred)
    assert list(compiled.result()) == ["mae"]


def test_one_metric_name_for_all_outputs_as_in_keras_2():
    compiled = CompiledMetrics(["mae"], output_names=NAMES)
    compiled.update_state([HOT, REALS], [SCORES, GUESSES])
    assert list(compiled.result()) == ["kind_mae", "place_mae"]


# ---- in a trace ----------------------------------------------------------------------


def test_everything_is_part_of_one_step():
    loss = CompiledLoss(LOSSES[0], [2.0, 0.5], NAMES)
    compiled = CompiledMetrics([["accuracy", metrics.F1Score], ["mse"]], None, NAMES)
    hot = CompiledMetrics(["accuracy", "ce", metrics.AUC(name="auc")])
    batch = [NUMBERS, REALS, SCORES, GUESSES, HOT]
    with Scope(training=True) as scope:
        inputs = [
            Input(f"x{i}", array.shape, array.dtype) for i, array in enumerate(batch)
        ]
        number, real, score, guess, one_hot = inputs
        total = loss([number, real], [score, guess])
        hot.update_state(one_hot, score)
        with pytest.raises(ValueError, match="one-hot rows"):
            compiled.update_state([number, real], [score, guess])
    assert total.shape == ()
    known = dict(zip(inputs, batch, strict=True))
    known.update({value: variable.numpy() for variable, value in scope.reads.items()})
    (value,) = evaluate([total], known)
    assert value == CompiledLoss(LOSSES[0], [2.0, 0.5], NAMES)(batch[:2], batch[2:4])
    for variable, written in scope.writes.items():
        variable.assign(evaluate([written], known)[0])
    eager = CompiledMetrics(["accuracy", "ce", metrics.AUC(name="auc")])
    eager.update_state(HOT, SCORES)
    assert hot.result() == eager.result()
    assert set(hot.variables) <= set(scope.writes)
    assert [float(metric.count) for metric in loss.metrics] == [6.0, 6.0]


def test_softmax_stays_in_sight_of_the_loss():
    loss = CompiledLoss("crossentropy")
    with Scope():
        x, y = Input("x", (2, 2), "float32"), Input("y", (2,), "uint8")
        total = loss(y, ops.softmax(x))
    known = {x: np.array([[0, 100]] * 2, "float32"), y: np.zeros(2, "uint8")}
    assert evaluate([total], known)[0] == 100.0


# ---- what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CompiledLoss("categorical_crossentropi"), "categorical_crossentropy"),
        (lambda: CompiledLoss({"out": "msee"}), "'mse'"),
        (lambda: CompiledLoss("mse", "0.5"), "loss_weights"),
        (lambda: CompiledMetrics("accuracy"), r"metrics=\['accuracy'\]"),
        (lambda: CompiledMetrics(["acuracy"]), "'accuracy'"),
        (lambda: CompiledMetrics(None, {"a": ["aucc"]}), "'auc'"),
    ],
)
def test_mistakes_are_found_when_the_model_is_compiled(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("loss", "weights", "words"),
    [
        (["mse"], None, "1 entries.*2 output.*kind, place"),
        ({"kin": "mse"}, None, "'kind'"),
        ("mse", 0.5, "2 outputs"),
        ("mse", [0.5], "loss_weights"),
        ([losses.MeanSquaredError(reduction=None)] * 2, None, "reduction='sum"),
    ],
)
def test_losses_that_do_not_fit_the_outputs(loss, weights, words):
    with pytest.raises(ValueError, match=words):
        CompiledLoss(loss, weights, NAMES)([HOT, REALS], [SCORES, GUESSES])


def test_labels_that_do_not_fit_the_outputs():
    with pytest.raises(ValueError, match="no labels for the output 'kind'"):
        CompiledLoss("mse", output_names=NAMES)([None, REALS], [SCORES, GUESSES])
    with pytest.raises(ValueError, match=r"2 output\(s\).*3 arrays of labels"):
        CompiledLoss("mse", output_names=NAMES)([HOT] * 3, [SCORES, GUESSES])
    with pytest.raises(ShapeError, match="sparse_categorical"):
        CompiledLoss("categorical_crossentropy")(NUMBERS, SCORES)
    shared = CompiledMetrics([metrics.MeanSquaredError()])
    with pytest.raises(ValueError, match="2 output"):
        shared.update_state([HOT, REALS], [SCORES, GUESSES])


# ---- against Keras -------------------------------------------------------------------


@pytest.mark.rivals
@pytest.mark.parametrize(
    ("arguments", "weighted", "y_true", "y_pred", "names"),
    [
        (["accuracy", "acc", "mse"], None, HOT, SCORES, ["out"]),
        (["accuracy", "sparse_categorical_crossentropy"], None, NUMBERS, SCORES, None),
        (["accuracy", "bce", "AUC"], ["accuracy", "mse"], BITS, BIT_SCORES, ["out"]),
        (["mae", "mae"], ["mae", "mae"], REALS, GUESSES, None),
        ({"out": ["mae"]}, None, REALS, GUESSES, ["out"]),
        ([["accuracy"], ["mae"]], None, [NUMBERS, REALS], [SCORES, GUESSES], NAMES),
        (
            ["accuracy", "mae"],
            ["acc", "mse"],
            [NUMBERS, REALS],
            [SCORES, GUESSES],
            NAMES,
        ),
        ([["acc"], None], None, [NUMBERS, REALS], [SCORES, GUESSES], None),
        (
            {"place": ["mae"], "kind": ["acc", "mse"]},
            {"place": ["mae"]},
            {"kind": HOT, "place": REALS},
            {"kind": SCORES, "place": GUESSES},
            None,
        ),
    ],
)
def test_metrics_are_named_and_computed_as_in_keras(
    keras, arguments, weighted, y_true, y_pred, names
):
    from keras.src.trainers.compile_utils import CompileMetrics

    ours = CompiledMetrics(arguments, weighted, names)
    theirs = CompileMetrics(arguments, weighted, output_names=names)
    for metric in (ours, theirs):
        for _ in range(2):
            metric.update_state(y_true, y_pred, sample_weight=WEIGHT)
    expected = {name: float(value) for name, value in theirs.result().items()}
    assert ours.result() == pytest.approx(expected, rel=1e-5)
    assert list(ours.result()) == list(expected)


@pytest.mark.rivals
@pytest.mark.parametrize("loss", [*LOSSES, {"kind": "ce", "place": distance}])
@pytest.mark.parametrize("factors", [None, [2.0, 0.5]])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_losses_are_named_and_computed_as_in_keras(keras, loss, factors, weight):
    from keras.src.trainers.compile_utils import CompileLoss

    theirs_loss = loss
    if isinstance(loss, tuple):
        theirs_loss = [loss[0], keras.losses.MeanSquaredError()]
    if isinstance(loss, dict) and loss["place"] is distance:

        def theirs_distance(y_true, y_pred):
            return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)

        theirs_loss = {**loss, "place": theirs_distance}
    ours = CompiledLoss(loss, factors, NAMES)
    theirs = CompileLoss(theirs_loss, factors, output_names=NAMES)
    y_true, y_pred = [NUMBERS, REALS], [SCORES, GUESSES]
    for _ in range(2):
        result, expected = ours(y_true, y_pred, weight), theirs(y_true, y_pred, weight)
        assert result == pytest.approx(float(expected), rel=1e-5)
    named = {metric.name: float(metric.result()) for metric in theirs.metrics}
    assert {
        metric.name: float(metric.result()) for metric in ours.metrics
    } == pytest.approx(named, rel=1e-5)
