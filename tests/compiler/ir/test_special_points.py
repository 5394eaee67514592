"""Values and slopes at zeros, ties, saturation and infinities are those of Keras."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import loss_cases
import metric_cases
import numpy as np
import pytest
from label_draws import bit_probabilities, bits, one_hot, probabilities, reals
from special_points import PAIRS, POINTS, ROWS, differences

import ganglion
from ganglion import activations, losses, ops
from ganglion.compiler.ir.table import OPS
from ganglion.ops import activation, bitwise, elementary, numpy

pytestmark = pytest.mark.rivals

# Functions of elements live in three modules of ops, beside these:
APART = {
    "convert_to_numpy", "convert_to_tensor", "dtype", "glu", "is_tensor", "log_softmax",
    "ndim", "shape", "size", "softmax", "sparsemax", "gcd", "isreal", "lcm", "ldexp",
}  # fmt: skip
OF_ELEMENTS = {*activation.__all__, *elementary.__all__, *numpy.__all__} - APART


def is_tie(a: np.ndarray, b: np.ndarray) -> Any:
    return np.abs(a) == np.abs(b)


def is_infinite(*arrays: np.ndarray) -> Any:
    return np.any([np.isinf(x) for x in arrays], axis=0)


# Where Keras on TensorFlow is not right: why, and at which points.
EXPLAINED: dict[str, tuple[str, Callable[..., Any]]] = {
    "cbrt": ("slope NaN at 0", lambda x: x == 0),
    "celu": ("both halves count at 0: slope 2", lambda x: x == 0),
    "erf": ("NaN for infinities", is_infinite),
    "hard_silu": ("slope NaN at infinities: inf times 0", is_infinite),
    "hard_swish": ("slope NaN at infinities: inf times 0", is_infinite),
    "heaviside": ("NaN becomes x2", lambda a, b: np.isnan(a)),
    "hypot": (
        "all of a tie goes to x1; infinities are NaN",
        lambda a, b: is_tie(a, b) | is_infinite(a, b),
    ),
    "i0": ("NaN for infinities", is_infinite),
    "isclose": ("all is close to infinities but they", is_infinite),
    "logaddexp": ("all of a tie goes to x1", is_tie),
    "logaddexp2": ("all of a tie goes to x1", lambda a, b: a == b),
    "nextafter": ("computed in float64", is_infinite),
    "sinc": ("the slope cancels near 0", lambda x: np.abs(x) < 1e-16),
    "selu": ("takes tiny negative numbers for positive", lambda x: np.abs(x) < 1e-16),
}


def compared(count: int) -> list[str]:
    """Return the public ops of so many arrays that `keras.ops` has, too."""
    first = {1: "x", 2: "x1"}[count]
    return sorted(
        name
        for name in OF_ELEMENTS
        if _needed(getattr(ops, name))[:1] == [first]
        and len(_needed(getattr(ops, name))) == count
    )


def _needed(function: Any) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
    ]


@pytest.mark.parametrize(("dtype", "relative"), [("float64", 1e-6), ("float32", 1e-4)])
@pytest.mark.parametrize("count", [1, 2])
def test_every_op_of_elements(keras, dtype, relative, count) -> None:
    arrays = [x.astype(dtype) for x in ((POINTS[:, None],) if count == 1 else PAIRS)]
    wrong = []
    for name in compared(count):
        functions = getattr(ops, name), getattr(keras.ops, name, None)
        explained = EXPLAINED.get(name, ("", None))[1]
        if functions[1] is not None:
            wrong += differences(name, functions, arrays, relative, explained)
    assert not wrong, "\n".join(wrong)


def test_every_primitive_of_elements_is_among_them() -> None:
    primitives = {op.name for op in OPS.values() if op.kind == "pointwise"}
    names = {"is_finite": "isfinite", "remainder": "mod"}
    public = {names.get(name, name) for name in primitives}
    of_bits = set(bitwise.__all__)
    others = public - {*compared(1), *compared(2)} - of_bits
    assert others == {"cast", "stop_gradient", "where"}


@pytest.mark.parametrize(("dtype", "relative"), [("float64", 1e-6), ("float32", 1e-4)])
def test_every_activation_by_name(keras, dtype, relative) -> None:
    wrong = []
    for name in sorted(keras.src.activations.ALL_OBJECTS_DICT):
        functions = activations.get(name), keras.activations.get(name)
        of_rows = name in ("softmax", "log_softmax", "sparsemax", "glu")
        if name == "sparsemax":  # Keras' rows do not add up to one
            continue
        if name == "threshold":
            functions = [lambda x, f=f: f(x, 0.5, -1.0) for f in functions]
        arrays = [(ROWS if of_rows else POINTS[:, None]).astype(dtype)]
        explained = EXPLAINED.get(name, ("", None))[1]
        wrong += differences(name, functions, arrays, relative, explained)
    assert not wrong, "\n".join(wrong)


RELUS = [
    {"negative_slope": 0.1},
    {"max_value": 1.0},
    {"max_value": 6},
    {"threshold": 1.0},
    {"threshold": -1.0},
    {"threshold": 0.5, "negative_slope": 0.25, "max_value": 2.0},
    {"threshold": 0.5, "negative_slope": 0.25},
    {"negative_slope": 0.1, "max_value": 3.0},
]


@pytest.mark.parametrize("options", RELUS, ids=str)
def test_every_relu(keras, options) -> None:
    functions = [
        lambda x, m=m: m.relu(x, **options) for m in (activations, keras.activations)
    ]
    wrong = differences("relu", functions, [POINTS.astype("float32")], 1e-5)
    assert not wrong, "\n".join(wrong)


OVER_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {}),
    ("log_softmax", {}),
    ("logsumexp", {"axis": -1}),
    ("glu", {}),
    *(
        (name, {"axis": -1})
        for name in (
            "max",
            "min",
            "amax",
            "amin",
            "mean",
            "sum",
            "var",
            "ptp",
            "cumsum",
            "average",
            "nanmax",
            "nanmin",
            "nansum",
            "nanmean",
        )
    ),
    ("max", {"axis": -1, "initial": 0.0}),
    ("min", {"axis": -1, "initial": 0.0}),
    ("normalize", {}),
    ("normalize", {"order": 1}),
    ("layer_normalization", {}),
    ("rms_normalization", {}),
    ("norm", {"axis": -1, "ord": 1}),
]


@pytest.mark.parametrize(("name", "options"), OVER_ROWS, ids=str)
def test_every_op_over_rows(keras, name, options) -> None:
    functions = [
        lambda x, m=m: getattr(m, name)(x, **options) for m in (ops, keras.ops)
    ]
    wrong = differences(name, functions, [ROWS], 1e-6)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "options"), OVER_ROWS, ids=str)
def test_infinities_in_rows(keras, name, options) -> None:
    rows = [[np.inf, 0.0, 1.0, 1.0], [-np.inf, 0.0, 0.0, 1.0], [1.0, np.nan, 0.0, 0.0]]
    with np.errstate(all="ignore"):
        ours = getattr(ops, name)(np.array(rows), **options)
    theirs = np.asarray(getattr(keras.ops, name)(np.array(rows), **options))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# ---- losses --------------------------------------------------------------------------

LABELS = {
    "reals": [0.0, -0.0, 1.0, -1.0, 20.0, 1e4],
    "positives": [0.0, 1.0, 1e-6, 20.0],
    "bits": [0.0, 1.0],
    "signs": [-1.0, 1.0],
    "probabilities": [0.0, 0.25, 1.0],
}
# (1e-7 is the limit of some losses, which Keras rounds to float32.)
PREDICTIONS = {
    "reals": [0.0, -0.0, 1.0, -1.0, 0.7, -0.7, 20.0, -20.0, 100.0, -100.0, 1e4, -1e4],
    "positives": [0.0, 1e-6, 1.0, 20.0, 1e4],
    "bit_probabilities": [0.0, 1.0, 0.5, 1e-7, 1 - 1e-7, 1e-30],
    "probabilities": [0.0, 1.0, 0.5, 1e-7, 0.25],
}


def special_rows(case: Any, shape: tuple[int, int], seed: int) -> list[np.ndarray]:
    """Draw labels and predictions of a loss from special points alone."""
    rng = np.random.default_rng(seed)
    points = LABELS.get(case[2].__name__)
    y_true = case[2](rng, shape) if points is None else rng.choice(points, shape)
    y_pred = rng.choice(PREDICTIONS[case[3].__name__], shape)
    if case[3] is probabilities:  # rows of nothing but zeros are no distributions
        y_pred[:, 0] = np.where(y_pred.sum(-1) == 0, 1.0, y_pred[:, 0])
        y_pred /= y_pred.sum(-1, keepdims=True)
    exact = [
        x if x.dtype.kind == "i" else x.astype("float64") for x in (y_true, y_pred)
    ]
    return exact


FOCAL = [
    (f"{kind}FocalCrossentropy", {"gamma": gamma, "from_logits": from_logits}, *kinds)
    for gamma in (0.0, 0.5, 1.0, 3.0)
    for kind, from_logits, *kinds in (
        ("Binary", False, bits, bit_probabilities),
        ("Binary", True, bits, reals),
        ("Categorical", False, one_hot, probabilities),
        ("Categorical", True, one_hot, reals),
    )
]


@pytest.mark.parametrize("case", [*loss_cases.CASES, *FOCAL], ids=lambda case: case[:2])
def test_every_loss(keras, case) -> None:
    name, arguments = case[:2]
    functions = [
        getattr(m, name)(**arguments, reduction=None, dtype="float64")
        for m in (losses, keras.losses)
    ]
    arrays = special_rows(case, (200, loss_cases.CLASSES), 0)
    wrong = differences(name, functions, arrays, 1e-6)
    assert not wrong, "\n".join(wrong[:30])


@pytest.mark.parametrize("name", ["BinaryCrossentropy", "BinaryFocalCrossentropy"])
def test_losses_of_a_sigmoid(keras, name) -> None:
    functions = [
        lambda y, x, m=m: getattr(m.losses, name)(reduction=None, dtype="float64")(
            y, m.activations.sigmoid(x)
        )
        for m in (ganglion, keras)
    ]
    arrays = [x[..., None] for x in np.meshgrid([0.0, 0.5, 1.0], POINTS[:-3])]
    wrong = differences(name, functions, arrays, 1e-6)
    assert not wrong, "\n".join(wrong[:30])


@pytest.mark.parametrize(
    "name", ["CategoricalCrossentropy", "CategoricalFocalCrossentropy", "KLDivergence"]
)
def test_losses_of_a_softmax(keras, name) -> None:
    functions = [
        lambda y, x, m=m: getattr(m.losses, name)(reduction=None, dtype="float64")(
            y, m.activations.softmax(x)
        )
        for m in (ganglion, keras)
    ]
    hot = np.eye(4)[np.arange(len(ROWS)) % 4]
    wrong = differences(name, functions, [hot, ROWS], 1e-6)
    assert not wrong, "\n".join(wrong[:30])


@metric_cases.every_case
def test_every_metric(keras, case) -> None:
    points = PREDICTIONS.get(case[3].__name__)
    if points is None or (2, 4) not in [(len(s), s[-1]) for s in case[4]]:
        pytest.skip("counts integers")
    metrics = [getattr(m.metrics, case[0])(**case[1]) for m in (ganglion, keras)]
    y_true, y_pred = special_rows(case, (200, loss_cases.CLASSES), 0)
    for metric in metrics:
        metric.update_state(y_true.astype("float32"), y_pred.astype("float32"))
    ours, theirs = (np.asarray(metric.result()) for metric in metrics)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
