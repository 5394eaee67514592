"""Initializers, regularizers, constraints and activations: what names stand for."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from ganglion import (
    activations,
    constraints,
    initializers,
    keras2,
    regularizers,
    signal_windows,
)
from ganglion.initializers import compute_fans
from ganglion.random import SeedGenerator
from ganglion.serialization import names_in
from ganglion.variables import Variable

SHAPE = (300, 400)  # 120,000 numbers: variances are known to 0.4 %


# ---- distributions -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("glorot_uniform", math.sqrt(6 / 700)),
        ("he_uniform", math.sqrt(6 / 300)),
        ("lecun_uniform", math.sqrt(3 / 300)),
        ("random_uniform", 0.05),
    ],
)
def test_uniform_numbers_fill_their_range(name: str, limit: float) -> None:
    result = initializers.get(name)(SHAPE)
    assert result.dtype == np.float32
    assert result.shape == SHAPE
    assert np.abs(result).max() <= limit
    assert np.abs(result).max() > 0.999 * limit
    assert result.var() == pytest.approx(limit**2 / 3, rel=0.02)
    assert result.mean() == pytest.approx(0, abs=0.01 * limit)


@pytest.mark.parametrize(
    ("name", "variance"),
    [("glorot_normal", 2 / 700), ("he_normal", 2 / 300), ("lecun_normal", 1 / 300)],
)
def test_scaled_normal_numbers_are_truncated_and_widened(name, variance) -> None:
    result = initializers.get(name)(SHAPE)
    # Cut at two deviations of the wider normal, so that the variance comes out right.
    bound = 2 * math.sqrt(variance) / 0.87962566103423978
    assert result.var() == pytest.approx(variance, rel=0.02)
    assert 0.99 * bound < np.abs(result).max() <= bound * (1 + 1e-6)


def test_normal_and_truncated_normal() -> None:
    normal = initializers.RandomNormal(mean=1.0, stddev=0.5, seed=3)(SHAPE)
    assert normal.mean() == pytest.approx(1, abs=0.01)
    assert normal.std() == pytest.approx(0.5, rel=0.02)
    assert np.abs(normal - 1).max() > 1.5
    cut = initializers.TruncatedNormal(mean=1.0, stddev=0.5, seed=3)(SHAPE)
    assert 0.99 < np.abs(cut - 1).max() <= 1
    assert cut.std() == pytest.approx(0.5 * 0.87962566, rel=0.02)


def test_constants() -> None:
    assert initializers.Zeros()((2, 3)).tolist() == [[0] * 3] * 2
    assert initializers.Ones()((2,), dtype="int32").dtype == np.int32
    assert initializers.Constant(2.5)((2,)).tolist() == [2.5, 2.5]
    assert initializers.Constant([1, 2])((3, 2)).tolist() == [[1, 2]] * 3
    assert initializers.get(np.array([3.0, 4.0]))((2,)).tolist() == [3, 4]
    eye = initializers.Identity(gain=2.0)((2, 3))
    assert eye.tolist() == [[2, 0, 0], [0, 2, 0]]
    with pytest.raises(ValueError, match="Identity makes matrices"):
        initializers.Identity()((2, 3, 4))


@pytest.mark.parametrize("shape", [(5, 5), (4, 9), (9, 4), (3, 3, 2, 4), (2, 2, 1, 9)])
def test_orthogonal_matrices(shape) -> None:
    result = initializers.Orthogonal(gain=1.5, seed=1)(shape, "float64")
    flat = result.reshape(-1, shape[-1]) / 1.5
    product = flat.T @ flat if flat.shape[0] >= flat.shape[1] else flat @ flat.T
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-12)
    with pytest.raises(ValueError, match="at least two axes"):
        initializers.Orthogonal()((3,))


@pytest.mark.parametrize(
    ("shape", "fans"),
    [
        ((), (1, 1)),
        ((7,), (7, 7)),
        ((3, 5), (3, 5)),
        ((3, 3, 16, 32), (144, 288)),
        ((5, 4, 8), (20, 40)),
        ((2, 2, 2, 3, 7), (24, 56)),
        ((3, 3, 4, 1), (36, 9)),
    ],
)
def test_fans_of_kernels(shape, fans) -> None:
    assert compute_fans(shape) == fans


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
@pytest.mark.parametrize("kind", ["uniform", "truncated_normal", "untruncated_normal"])
def test_variance_scaling(mode: str, kind: str) -> None:
    result = initializers.VarianceScaling(3.0, mode, kind, seed=2)((3, 3, 60, 120))
    fans = {"fan_in": 540, "fan_out": 1080, "fan_avg": 810}
    assert result.var() == pytest.approx(3.0 / fans[mode], rel=0.03)


def test_variance_scaling_refuses_in_words() -> None:
    with pytest.raises(ValueError, match="scale=0"):
        initializers.VarianceScaling(0)
    with pytest.raises(ValueError, match=r"'in'\. Use one of fan_in"):
        initializers.VarianceScaling(mode="in")
    with pytest.raises(ValueError, match="'cauchy'"):
        initializers.VarianceScaling(distribution="cauchy")


RANDOM = [
    "RandomUniform",
    "RandomNormal",
    "TruncatedNormal",
    "VarianceScaling",
    "GlorotUniform",
    "GlorotNormal",
    "HeUniform",
    "HeNormal",
    "LecunUniform",
    "LecunNormal",
    "Orthogonal",
]


@pytest.mark.parametrize("name", RANDOM)
def test_a_seed_decides_everything(name: str) -> None:
    kind = getattr(initializers, name)
    first = kind(seed=7)
    result = first((4, 5))
    assert np.array_equal(result, first((4, 5)))
    assert np.array_equal(result, kind(seed=7)((4, 5)))
    assert not np.array_equal(result, kind(seed=8)((4, 5)))
    assert not np.array_equal(kind()((4, 5)), kind()((4, 5)))
    moving = SeedGenerator(7)
    pair = [kind(seed=moving)((4, 5)) for _ in range(2)]
    assert not np.array_equal(*pair)


# ---- names and configurations --------------------------------------------------------

MODULES = {
    "initializers": initializers,
    "regularizers": regularizers,
    "constraints": constraints,
    "activations": activations,
}
MADE = [
    *((initializers, getattr(initializers, name)(seed=3)) for name in RANDOM),
    (initializers, initializers.Zeros()),
    (initializers, initializers.Ones()),
    (initializers, initializers.Constant(1.5)),
    (initializers, initializers.Identity(2.0)),
    (initializers, initializers.VarianceScaling(2.0, "fan_out", "uniform", 4)),
    (regularizers, regularizers.L1(0.1)),
    (regularizers, regularizers.L2(0.2)),
    (regularizers, regularizers.L1L2(0.1, 0.2)),
    (regularizers, regularizers.OrthogonalRegularizer(0.5, "columns")),
    (constraints, constraints.MaxNorm(3, axis=[0, 1])),
    (constraints, constraints.NonNeg()),
    (constraints, constraints.UnitNorm(axis=1)),
    (constraints, constraints.MinMaxNorm(0.5, 1.5, 0.9, 1)),
]


@pytest.mark.parametrize(
    ("module", "thing"), MADE, ids=lambda thing: type(thing).__name__
)
def test_configurations_survive_json(module, thing) -> None:
    text = json.dumps(module.serialize(thing))
    again = module.get(json.loads(text))
    assert type(again) is type(thing)
    assert again.get_config() == thing.get_config()
    if module is initializers:
        assert np.array_equal(again((3, 3)), thing((3, 3)))
        assert np.array_equal(thing.clone()((3, 3)), thing((3, 3)))


def test_activations_survive_json() -> None:
    for name in names_in("keras.activations"):
        function = activations.get(name)
        assert (
            activations.get(json.loads(json.dumps(activations.serialize(function))))
            is function
        )


def test_objects_functions_and_none_pass_through() -> None:
    he = initializers.HeNormal()
    assert initializers.get(he) is he
    assert isinstance(initializers.get(initializers.HeNormal), initializers.HeNormal)
    assert initializers.get(None) is None
    assert regularizers.get(None) is None
    assert activations.get(None) is activations.linear
    assert activations.get(np.tanh) is np.tanh


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (initializers, "he_norma", "'he_norma'. Did you mean .*'he_normal'"),
        (regularizers, "L3", "Unknown regularizer 'L3'. Did you mean"),
        (constraints, "max_nrm", "constraint 'max_nrm'. Did you mean 'max_norm'"),
        (activations, "rleu", "Unknown activation 'rleu'. Did you mean .*'relu'"),
        (activations, "zzzz", "Unknown activation 'zzzz'. Known: celu, elu"),
        (initializers, 3, "3 is no initializer: give a name, an object or None"),
    ],
)  # fmt: skip
def test_an_unknown_name_gets_the_closest(module, name, text) -> None:
    with pytest.raises(ValueError, match=text):
        module.get(name)


# Base classes are no choice, and the Fourier kernel is for audio alone.
NOT_OURS = {
    "initializers": {"Initializer", "initializer"},
    "regularizers": {"Regularizer", "regularizer"},
    "constraints": {"Constraint", "constraint"},
    "activations": set(),
}
KERAS_2 = {
    "initializers": set(),
    "regularizers": {"l1_l2"},
    "constraints": {"maxnorm", "nonneg", "unitnorm"},
    "activations": set(),
}


@pytest.mark.rivals
@pytest.mark.parametrize("kind", MODULES)
def test_the_names_are_those_of_keras(keras, kind: str) -> None:
    import importlib

    theirs = set(importlib.import_module(f"keras.src.{kind}").ALL_OBJECTS_DICT)
    ours = set(names_in(f"keras.{kind}"))
    assert ours - KERAS_2[kind] == theirs - NOT_OURS[kind]


def test_l1_l2_has_the_defaults_of_the_script() -> None:
    assert regularizers.l1_l2() == regularizers.L1L2(0.0, 0.0)
    keras2.set_active(True)
    assert regularizers.l1_l2(l1=0.5) == regularizers.L1L2(0.5, 0.01)


@pytest.mark.parametrize("kind", MODULES)
def test_deserialize_takes_objects_of_the_user(kind: str) -> None:
    def mine(x: Any) -> Any:
        return x

    assert MODULES[kind].deserialize("mine", {"mine": mine}) is mine


# ---- values against Keras ------------------------------------------------------------

FAR = np.array(
    [-1e30, -100, -20, -3, -1, -0.5, -1e-4, 0, 1e-4, 0.5, 1, 3, 20, 100, 1e30],
    "float32",
)
NEAR = np.random.default_rng(0).normal(0, 2, (6, 10)).astype("float32")
NO_SHAPE = {"glu", "sparsemax", "threshold"}


@pytest.mark.rivals
@pytest.mark.parametrize("name", sorted(set(names_in("keras.activations")) - NO_SHAPE))
def test_activations_equal_those_of_keras(keras, name: str) -> None:
    for x in (NEAR, FAR):
        right = np.asarray(keras.activations.get(name)(x))
        result = activations.get(name)(x)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)


@pytest.mark.rivals
@pytest.mark.parametrize(
    "options",
    [
        {"negative_slope": 0.1},
        {"max_value": 2.0},
        {"threshold": 1.0},
        {"negative_slope": 0.3, "max_value": 3.0, "threshold": -0.5},
        {"max_value": 2.0, "threshold": 1.0},
    ],
    ids=str,
)
def test_every_option_of_relu_equals_keras(keras, options) -> None:
    x = np.linspace(-4, 4, 33).astype("float32")
    right = np.asarray(keras.activations.relu(x, **options))
    np.testing.assert_allclose(activations.relu(x, **options), right, rtol=1e-6)


WEIGHTS = np.random.default_rng(1).normal(0, 1, (5, 4)).astype("float32")
PENALTIES = [
    ("L1", {"l1": 0.3}),
    ("L2", {"l2": 0.3}),
    ("L1L2", {"l1": 0.1, "l2": 0.2}),
    ("L1L2", {}),
    ("OrthogonalRegularizer", {"factor": 0.5}),
    ("OrthogonalRegularizer", {"mode": "columns"}),
]


@pytest.mark.rivals
@pytest.mark.parametrize(("name", "options"), PENALTIES)
def test_regularizers_equal_those_of_keras(keras, name: str, options) -> None:
    right = np.asarray(
        getattr(keras.regularizers, name)(**options)(keras.ops.array(WEIGHTS))
    )
    result = getattr(regularizers, name)(**options)
    for weight in (WEIGHTS, Variable(WEIGHTS)):
        assert float(result(weight)) == pytest.approx(float(right), rel=1e-5)


def test_regularizers_refuse_in_words() -> None:
    with pytest.raises(ValueError, match="Received: l1=-1"):
        regularizers.L1(-1)
    with pytest.raises(ValueError, match="Received: l2=nan"):
        regularizers.L2(math.nan)
    with pytest.raises(ValueError, match="mode=both"):
        regularizers.OrthogonalRegularizer(mode="both")
    with pytest.raises(ValueError, match="must have rank 2"):
        regularizers.OrthogonalRegularizer()(np.ones(3, "f4"))


LIMITS = [
    ("MaxNorm", {}),
    ("MaxNorm", {"max_value": 0.5, "axis": 1}),
    ("NonNeg", {}),
    ("UnitNorm", {}),
    ("UnitNorm", {"axis": [0, 1]}),
    ("MinMaxNorm", {"min_value": 1.0, "max_value": 2.0}),
    ("MinMaxNorm", {"min_value": 3.0, "max_value": 4.0, "rate": 0.5, "axis": 1}),
]


@pytest.mark.rivals
@pytest.mark.parametrize(("name", "options"), LIMITS)
def test_constraints_equal_those_of_keras(keras, name: str, options) -> None:
    for weight in (WEIGHTS, WEIGHTS * 1e-20, np.zeros_like(WEIGHTS), WEIGHTS * 1e4):
        right = np.asarray(getattr(keras.constraints, name)(**options)(weight))
        result = getattr(constraints, name)(**options)(weight)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-30)


def test_configurations_are_plain_data() -> None:
    for initializer in (
        initializers.Constant(np.arange(3.0)),
        initializers.Orthogonal(seed=SeedGenerator(3)),
    ):
        text = json.dumps(initializer.get_config())
        again = type(initializer).from_config(json.loads(text))
        np.testing.assert_array_equal(initializer((3, 3)), again((3, 3)))


def test_windows_are_those_of_scipy() -> None:
    windows = pytest.importorskip("scipy.signal.windows")
    for name in ("tukey", "barthann", "parzen", "lanczos", "exponential", "bohman"):
        for size in (2, 7, 16):
            for periodic in (True, False):
                ours = signal_windows.window(name, size, periodic)
                theirs = windows.get_window(name, size, periodic)
                np.testing.assert_allclose(ours, theirs, atol=1e-12, err_msg=name)


def test_variables_lie_row_by_row_whatever_order_their_numbers_have():
    """A compiled run would copy others, there and back."""
    turned = Variable(np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(turned, [[0, 3], [1, 4], [2, 5]])
    drawn = Variable(initializers.Orthogonal(seed=0), shape=(4, 16))
    for variable in (turned, drawn):
        assert variable.array.flags.c_contiguous
