"""NumPy's functions beside Keras on JAX: values, types and slopes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ops_cases import Call
from ops_cases_numpy import EAGER_CALLS, NUMPY_CALLS
from ops_on_jax import float_arrays, loss
from ops_titles import title

from ganglion import ops, tree
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Constant, Input, evaluate
from ganglion.variables import Scope

pytestmark = pytest.mark.rivals
SCRIPT = Path(__file__).parents[1] / "support" / "ops_on_jax.py"
NUMBERS = range(len(NUMPY_CALLS))
EACH = 6  # of so many calls, one runs by default


def some(numbers):
    return [
        pytest.param(n, marks=[pytest.mark.more] if n % EACH else []) for n in numbers
    ]


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory, request):
    pytest.importorskip("jax")
    pytest.importorskip("keras")
    path = tmp_path_factory.mktemp("jax") / "results.npz"
    each = "1" if request.config.getoption("--all") else str(EACH)
    command = [sys.executable, SCRIPT, path, each]
    subprocess.run(command, check=True, capture_output=True)
    with np.load(path) as results:
        return dict(results)


# Where both are right, or JAX is not.
DIFFERENT = {
    "argpartition": "the order within the two parts is free",
}
DIFFERENT_SLOPES: dict[str, str] = {}


@pytest.mark.parametrize("number", some(NUMBERS), ids=lambda n: title(NUMPY_CALLS[n]))
def test_values_and_types(on_jax, number: int) -> None:
    call = NUMPY_CALLS[number]
    if call.name in DIFFERENT:
        pytest.skip(DIFFERENT[call.name])
    ours = tree.flatten(getattr(ops, call.name)(*call.args, **call.kwargs))
    assert f"{number}/{len(ours)}" not in on_jax
    for place, got in enumerate(ours):
        right = on_jax[f"{number}/{place}"]
        assert (got.shape, got.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(got, right, rtol=2e-5, atol=4e-6)


def slopes_of(call: Call) -> dict[int, np.ndarray]:
    """Return the slopes of a call's floats by its own graph."""
    args, inputs = list(call.args), {}
    for number in float_arrays(call):
        inputs[number] = Input(f"x{number}", args[number].shape, "float32")
        args[number] = inputs[number]
    with Scope():
        parts = tree.flatten(getattr(ops, call.name)(*args, **call.kwargs))
        total = loss(parts, Constant(np.float32(0)), ops.sum)
    known = {value: call.args[number] for number, value in inputs.items()}
    slopes = gradients(total, inputs.values())
    return {
        number: evaluate([slopes[value]], known)[0]
        if value in slopes
        else np.zeros(value.shape, "float32")
        for number, value in inputs.items()
    }


EAGER = [call.name for call in EAGER_CALLS]
SLOPED = [
    n
    for n in NUMBERS
    if float_arrays(NUMPY_CALLS[n]) and NUMPY_CALLS[n].name not in EAGER
]


@pytest.mark.parametrize("number", some(SLOPED), ids=lambda n: title(NUMPY_CALLS[n]))
def test_slopes(on_jax, number: int) -> None:
    call = NUMPY_CALLS[number]
    places = [n for n in float_arrays(call) if f"slope {number}/{n}" in on_jax]
    if title(call) in DIFFERENT_SLOPES or not places:
        pytest.skip(DIFFERENT_SLOPES.get(title(call), "JAX has no slope there"))
    ours = slopes_of(call)
    for place in places:
        right = on_jax[f"slope {number}/{place}"]
        np.testing.assert_allclose(ours[place], right, rtol=1e-4, atol=1e-5)
