"""Sums that products take of their own results, on a GPU emulated by a CPU."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import pure, training_step
from cuda_cases import STACKS
from cuda_checks import check, compiled, emulated
from layer_cases import Case

from ganglion import config
from ganglion.compiler.cuda import column_sums
from ganglion.compiler.cuda.launches import fused_kernels_of
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.ir import contraction, pointwise, shaping
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.plan.kernels import Loop

pytestmark = [
    pytest.mark.skipif(cuda_host.reason() is not None, reason=str(cuda_host.reason())),
    pytest.mark.usefixtures("launches"),
]


@pytest.fixture(autouse=True)
def short_sums_are_fused(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    monkeypatch.setattr(TUNING, "fewest_summed", 1)
    monkeypatch.setattr(TUNING, "fewest_summed_per_block", 1)
    monkeypatch.setattr(TUNING, "summed_per_block", 64)
    config.set_backend("numpy")


def text_of(executable):
    return "".join(executable.emission.functions.values())


@pytest.mark.parametrize(
    ("precise", "loses"), [("float32", 2e-3), ("tf32", 3e-2), ("bf16", 1e-1)]
)
@pytest.mark.parametrize(
    "case", STACKS, ids=lambda case: f"{case.shape} {case.filters}"
)
@pytest.mark.sampled(2)
def test_statistics_of_a_batch_are_taken_by_their_product(case, precise, loses):
    program, data, state = training_step(case, "float32")
    executable = compiled(program, precise=precise)
    # Statistics of two layers, and the sums of their gradients: the last by pooling.
    even = not any(size % 2 for size in case.shape[1:3])
    launches = executable.emission.schedule.every
    producers = [
        fused.kernel for _, fused in fused_kernels_of(launches) if fused.column_sums
    ]
    assert sum(not isinstance(kernel, Loop) for kernel in producers) == 3 + even
    # Gradients of biases are sums of maps, whose rows may be split evenly.
    odd = np.prod(case.shape[:3]) % 2
    assert any(isinstance(kernel, Loop) for kernel in producers) != odd
    check(program, data, state, steps=2, tolerance=loses, precise=precise)


def used(total):
    """Return a product that waits for sums."""
    rows = shaping.broadcast(total, shape=(40, *total.shape))
    return contraction.matmul(shaping.transpose(rows, axes=(1, 0)), rows)


def summed(rows, columns, kinds, dtype):
    """Return sums over the rows of a product, and what is made of them."""
    a, b = Input("a", (rows, 40), dtype), Input("b", (40, columns), dtype)
    scale = Input("s", (columns,), dtype)
    y = pointwise.multiply(
        contraction.matmul(a, b), shaping.broadcast(scale, shape=(rows, columns))
    )
    ends = {"y": y}
    for number, term in enumerate((y, pointwise.multiply(y, y))[:kinds]):
        total = shaping.sum_(term, axes=(0,))
        root = pointwise.sqrt(pointwise.absolute(total))
        ends |= {f"total{number}": total, f"used{number}": used(root)}
    return pure(Graph.of("summed", [a, b, scale], ends))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize(
    ("rows", "columns"), [(70, 20), (129, 33), (64, 200), (30, 25)]
)
@pytest.mark.sampled(2)
def test_sums_of_products_of_any_size(rows, columns, kinds, dtype):
    program = summed(rows, columns, kinds, dtype)
    rng = np.random.default_rng(0)
    data = {
        "a": rng.normal(size=(rows, 40)).astype(dtype),
        "b": rng.normal(size=(40, columns)).astype(dtype),
        "s": rng.normal(size=columns).astype(dtype),
    }
    assert "add_columns<" in text_of(compiled(program))
    loses = 1e-12 if dtype == "float64" else 2e-4
    check(program, data, {}, steps=2, tolerance=loses)
    check(program, data, {}, tolerance=loses, memory=emulated(75))


def variance(x):
    """Return the mean and the squared distances from it, as a graph says it."""
    count = shaping.fill(x.shape[0], shaping.sum_(x, axes=(0,)))
    mean = pointwise.divide(shaping.sum_(x, axes=(0,)), count)
    away = pointwise.subtract(x, shaping.broadcast(mean, shape=x.shape))
    return mean, shaping.sum_(pointwise.multiply(away, away), axes=(0,))


def spread_of_product():
    """Return a program of the mean and the variance of a product's columns."""
    a, b = Input("a", (512, 40), "float32"), Input("b", (40, 24), "float32")
    mean, squares = variance(contraction.matmul(a, b))
    ends = {"mean": mean, "squares": squares, "used": used(squares)}
    return pure(Graph.of("far", [a, b], ends))


@pytest.mark.parametrize("offset", [0.0, 30.0, 3000.0])
def test_variances_far_from_zero_keep_their_digits(offset):
    rng = np.random.default_rng(0)
    data = {
        "a": np.c_[rng.normal(size=(512, 39)), np.ones(512)].astype("float32"),
        "b": np.r_[rng.normal(size=(39, 24)), np.full((1, 24), offset)].astype("f4"),
    }
    executable = compiled(spread_of_product(), precise="float32")
    assert "Spread" in text_of(executable)
    results = executable.run(data, {}, 1)
    exact = data["a"].astype("f8") @ data["b"].astype("f8")
    squares = np.square(exact - exact.mean(0)).sum(0)
    np.testing.assert_allclose(results["mean"][0], exact.mean(0), rtol=1e-6, atol=1e-6)
    # The products themselves have 24 bits.
    np.testing.assert_allclose(results["squares"][0], squares, rtol=1e-5)


def test_equal_rows_have_no_variance():
    executable = compiled(spread_of_product(), precise="float32")
    data = {"a": np.full((512, 40), 0.1, "f4"), "b": np.full((40, 24), 0.7, "f4")}
    squares = executable.run(data, {}, 1)["squares"][0]
    assert (squares >= 0).all()
    np.testing.assert_allclose(squares, 0, atol=1e-9)


def test_many_blocks_are_added_up_in_groups(monkeypatch):
    monkeypatch.setattr(column_sums, "MOST_ROWS", 4)
    monkeypatch.setattr(column_sums, "GROUP", 3)
    program = summed(650, 20, 2, "float32")
    rng = np.random.default_rng(0)
    shapes = {"a": (650, 40), "b": (40, 20), "s": (20,)}
    data = {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    assert "add_columns<11, 3, " in text_of(compiled(program, precise="float32"))
    check(program, data, {}, steps=2, tolerance=2e-4)


def test_sums_of_a_transposed_copy_are_not_forgotten():
    """A transposing copy has code of its own, which adds up nothing."""
    x = Input("x", (40, 128), "float32")
    transposed = shaping.transpose(x, axes=(1, 0))
    ends = {"product": contraction.matmul(transposed, x)}
    ends["total"] = shaping.sum_(pointwise.negative(transposed), axes=(0,))
    ends["plain"] = shaping.sum_(transposed, axes=(0,))
    data = {"x": np.random.default_rng(0).normal(size=x.shape).astype("f4")}
    check(pure(Graph.of("transposed", [x], ends)), data, {}, tolerance=2e-4)


@pytest.mark.parametrize("layer", ["Softmax", "Dense", "LayerNormalization"])
def test_row_wise_fused_kernels_have_no_column_sums(layer, monkeypatch):
    monkeypatch.setattr(TUNING, "fewest_rows", 1)
    arguments = {"units": 32, "activation": "softmax"} if layer == "Dense" else {}
    case = Case(layer, ((64, 32),), arguments)
    program, data, state = training_step(case, "float32")
    check(program, data, state, steps=2, tolerance=2e-3)
