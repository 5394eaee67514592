"""Slopes at zeros and ties, where halves of a formula meet: no rival is needed."""

from __future__ import annotations

import cpu_checks
import numpy as np
import pytest
from special_points import POINTS, our_slopes

import ganglion
from ganglion import activations, config, layers, models, ops, optimizers
from ganglion.compiler import reference
from ganglion.compiler.cpu import backend as cpu_run
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input

# Smooth everywhere: at 0 the slope is what central differences say.
SMOOTH = [
    "arcsinh", "arctanh", "celu", "cosh", "elu", "erf", "exp", "expm1", "gelu", "log1p",
    "log_sigmoid", "mish", "sigmoid", "silu", "sin", "sinh", "softplus", "softsign",
    "squareplus", "tan", "tanh", "tanh_shrink",
]  # fmt: skip


def slopes(function, *points):
    """Return the slopes of a function of elements, without weights."""
    _, plain = our_slopes(lambda *xs: ops.sum(function(*xs)), [*map(np.array, points)])
    return [slope / _factor() for slope in plain]


def _factor():
    return our_slopes(lambda x: x, [np.array(0.0)])[1][0]


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_smooth_functions_have_their_slope_at_zero(name, zero):
    function = getattr(ops, name)
    (slope,) = slopes(function, [zero])
    step = 1e-6
    ends = [our_slopes(function, [np.array([x])])[0] for x in (step, -step)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=2e-6)


def test_losses_have_their_slope_at_zero():
    label, zero = np.array([[1.0]]), [[0.0]]
    binary = ganglion.losses.BinaryCrossentropy(from_logits=True, dtype="float64")
    assert slopes(lambda x: binary(label, x), zero) == [[-0.5]]
    focal = ganglion.losses.BinaryFocalCrossentropy(from_logits=True, dtype="float64")
    # d/dx of -(1 - s)² log(s) with s = 1/2
    right = -0.25 * 0.5 + 2 * 0.25 * 0.5 * np.log(0.5)
    assert slopes(lambda x: focal(label, x), zero)[0] == pytest.approx(right)
    log_cosh = ganglion.losses.LogCosh(dtype="float64")
    assert slopes(lambda x: log_cosh(label, x), [[1.0]]) == [[0.0]]


@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, -3.0, 100.0, 1e4, -1e30])
def test_a_tie_is_shared_by_both(x):
    assert np.allclose(slopes(ops.logaddexp, [x], [x]), 0.5)
    for a, b in ((x, x), (x, -x), (-x, x)):
        right = [0.0, 0.0] if x == 0 else np.array([a, b]) / np.hypot(a, b)
        np.testing.assert_allclose(np.ravel(slopes(ops.hypot, [a], [b])), right)


def test_a_tie_of_two_belongs_to_the_first_as_in_tensorflow():
    for function in (ops.maximum, ops.minimum):
        assert np.ravel(slopes(function, [2.0], [2.0])).tolist() == [1.0, 0.0]
    limits = slopes(lambda x: ops.clip(x, -1.0, 1.0), [-1.0, 1.0])
    assert np.ravel(limits).tolist() == [1.0, 1.0]
    assert np.ravel(slopes(activations.relu, [0.0, -0.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize(
    ("activation", "from_logits"), [("sigmoid", False), (None, True)]
)
@pytest.mark.parametrize("loss", ["BinaryCrossentropy", "BinaryFocalCrossentropy"])
def test_a_neuron_of_zeros_takes_its_first_step(backend, activation, from_logits, loss):
    config.set_backend(backend)
    zeros = {"kernel_initializer": "zeros", "activation": activation}
    model = models.Sequential([layers.Input((1,)), layers.Dense(1, **zeros)])
    error = getattr(ganglion.losses, loss)(from_logits=from_logits)
    model.compile(optimizers.SGD(1.0), error)
    model.train_on_batch(np.ones((1, 1), "float32"), np.zeros((1, 1), "float32"))
    right = {"BinaryCrossentropy": -0.5}.get(loss, -0.125 + 0.25 * np.log(0.5))
    for weight in model.get_weights():
        np.testing.assert_allclose(weight, np.full(weight.shape, right), rtol=1e-6)


# Every function of one argument of elements, compiled at the same points.
OF_ELEMENTS = sorted(
    {
        *SMOOTH, "abs", "arccosh", "ceil", "cos", "exp2", "floor", "hard_shrink",
        "hard_sigmoid", "hard_silu", "hard_tanh", "leaky_relu", "log", "log2", "log10",
        "reciprocal", "relu", "relu6", "round", "rsqrt", "selu", "sign", "soft_shrink",
        "sparse_plus", "sparse_sigmoid", "sqrt", "square", "trunc",
    }
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_machine_code_has_the_values_and_slopes_of_the_reference(dtype):
    points = POINTS.astype(dtype)
    outputs = {}
    x = Input("x", points.shape, dtype)
    for name in OF_ELEMENTS:
        outputs[name] = getattr(ops, name)(x)
        slope = gradients(ops.sum(outputs[name]), [x])
        if x in slope:
            outputs[f"slope of {name}"] = slope[x]
    program = cpu_checks.pure(Graph.of("special", [x], outputs))
    with np.errstate(all="ignore"):
        right = reference.compile(program).run({"x": points}, {}, 1)
        result = cpu_run.compile(program).run({"x": points}, {}, 1)
    near = {"float32": 2e-5, "float64": 1e-9}[dtype]
    for name, values in right.items():
        np.testing.assert_allclose(result[name], values, near, near, err_msg=name)
