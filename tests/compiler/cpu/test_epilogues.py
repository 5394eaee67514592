"""Loops that go on with a product's result do so tile by tile, to the same bits."""

from dataclasses import replace

import numpy as np
import pytest
from cpu_checks import check, compiled, pure, ran, same, step_of_model

from ganglion import layers, models
from ganglion.compiler.cpu import pipeline
from ganglion.compiler.cpu.emit import emit_form, form_of
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.products import packing, small_gemm
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.contraction import flipped, matmul
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import add, exp, less, maximum, multiply, where
from ganglion.compiler.ir.shaping import broadcast, fill, sum_
from ganglion.compiler.pipeline import Pipeline
from ganglion.compiler.plan.kernels import Contract, Loop
from ganglion.compiler.plan.plan import PlanError, verify
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.optimizers import SGD

PACKED = {
    "packed_bytes": 0,
    "packed_in_batch": 0,
    "packed_columns": 64,
    "packed_block_rows": 56,
}
PACKED |= {"merged_rows": 112, "packed_grain": 1, "inner_block": 32}


pytestmark = pytest.mark.usefixtures("own_tiles")


@pytest.fixture(params=["own tiles", "one text", "copied columns", "packed"])
def form(request, monkeypatch):
    """Products have tiles made for them, one text for all sizes, or are packed."""
    if request.param == "copied columns":
        request.getfixturevalue("copied_columns")
    if request.param == "one text":
        monkeypatch.setattr(small_gemm, "CPU", replace(CPU, epilogue_product=0))
    if request.param == "packed":
        monkeypatch.setattr(packing, "CPU", replace(CPU, **PACKED))
    return request.param


def products(program):
    return [k for k in build(program).kernels if isinstance(k, Contract)]


def without_epilogues(monkeypatch):
    """Compile as if loops could not be epilogues."""
    passes = pipeline.PIPELINE.passes
    kept = tuple(step for step in passes if step.name != "epilogues")
    verifiers = pipeline.PIPELINE.verifiers
    monkeypatch.setattr(pipeline, "PIPELINE", Pipeline(kept, verifiers))


def drawn(*inputs):
    draw = np.random.default_rng(len(inputs))
    return {v.name: draw.normal(size=v.shape).astype(v.dtype) for v in inputs}


def dense(rows, inner, columns, activation, dtype="float32"):
    """Return activation(x·w + b), what it runs on, and its product."""
    x, w = Input("x", (rows, inner), dtype), Input("w", (inner, columns), dtype)
    b = Input("b", (columns,), dtype)
    sums = matmul(exp(x), w)
    outputs = activation(add(sums, broadcast(b, shape=sums.shape)))
    arrays = drawn(x, w, b)
    arrays["w"] /= inner  # the exponential of a large sum would show its last bits
    return pure(Graph.of("dense", [x, w, b], {"y": outputs})), arrays


def relu(x):
    return maximum(x, fill(0, x))


@pytest.mark.parametrize("activation", [relu, exp])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [(29, 20, 65), (64, 32, 48), (3, 7, 130), (57, 70, 33)],
)
def test_bias_and_activation(
    form, monkeypatch, rows, inner, columns, dtype, activation
):
    program, arrays = dense(rows, inner, columns, activation, dtype)
    (product,) = products(program)
    assert product.epilogue
    assert not any(
        product.out.buffer.root in k.memory_read for k in build(program).kernels
    )
    check(program, arrays, {}, rtol=2e-5, atol=2e-5)
    fused = ran(compiled(program, 1), arrays, {}, 1)
    without_epilogues(monkeypatch)
    same(fused, ran(compiled(program, 1), arrays, {}, 1))


def test_sums_that_nobody_else_reads_have_no_memory():
    program, _ = dense(32, 20, 64, relu)
    (product,) = products(program)
    assert product.out.buffer.kind == "register"
    assert product.out.buffer not in product.writes()
    assert "then: y@" in str(build(program))


def test_sums_that_others_read_are_stored():
    x, w = Input("x", (32, 20), "float32"), Input("w", (20, 64), "float32")
    sums = matmul(exp(x), w)
    outputs = {"y": relu(sums), "s": sum_(sums, axes=(0, 1))}
    program = pure(Graph.of("both", [x, w], outputs))
    (product,) = products(program)
    assert product.epilogue
    assert product.out.buffer.kind == "arena"
    check(program, drawn(x, w), {}, rtol=2e-5, atol=2e-5)


def test_small_products_have_one_text_and_no_epilogue(monkeypatch):
    monkeypatch.setattr(small_gemm, "CPU", CPU)
    program, _ = dense(32, 20, 64, relu)
    assert not any(product.epilogue for product in products(program))


def test_one_text_goes_on_with_products_of_any_size(monkeypatch):
    monkeypatch.setattr(small_gemm, "CPU", replace(CPU, epilogue_product=0))
    names = set()
    for size in (32, 57):
        (product,) = products(dense(size, size + 3, size, relu)[0])
        names.add(emit_form(form_of(product))[0].name)
    assert len(names) == 1


def test_one_text_goes_on_with_a_batch_of_products(monkeypatch):
    monkeypatch.setattr(small_gemm, "CPU", replace(CPU, epilogue_product=0))
    x, w = Input("x", (3, 19, 7), "float32"), Input("w", (3, 7, 50), "float32")
    b = Input("b", (3, 1, 50), "float32")
    sums = matmul(exp(x), w)
    y = exp(add(sums, broadcast(b, shape=sums.shape)))
    program = pure(Graph.of("batch", [x, w, b], {"y": y}))
    (product,) = products(program)
    assert product.epilogue
    assert small_gemm.is_small(product)
    check(program, drawn(x, w, b), {}, rtol=2e-5, atol=2e-5)


def test_few_columns_stay_a_loop():
    program, arrays = dense(64, 20, 10, relu)
    assert not any(product.epilogue for product in products(program))
    check(program, arrays, {}, rtol=2e-5, atol=2e-5)


def test_what_needs_the_whole_product_stays_a_loop():
    x, w = Input("x", (32, 20), "float32"), Input("w", (20, 64), "float32")
    sums = matmul(exp(x), w)
    mean = broadcast(sum_(sums, axes=(0,)), shape=sums.shape)
    program = pure(Graph.of("norm", [x, w], {"y": multiply(sums, mean)}))
    assert not any(product.epilogue for product in products(program))
    check(program, drawn(x, w), {}, rtol=1e-3, atol=1e-2)


def test_a_transposed_result_stays_a_loop():
    x, w = Input("x", (32, 20), "float32"), Input("w", (20, 64), "float32")
    y = exp(flipped(matmul(exp(x), w)))
    program = pure(Graph.of("flipped", [x, w], {"y": y}))
    assert not any(product.epilogue for product in products(program))
    check(program, drawn(x, w), {}, rtol=2e-5, atol=1e-4)


def test_a_mask_is_read_off_the_output():
    x, w = Input("x", (32, 20), "float32"), Input("w", (20, 64), "float32")
    g = Input("g", (32, 64), "float32")
    sums = matmul(exp(x), w)
    zero = fill(0, sums)
    outputs = {"y": maximum(sums, zero), "d": where(less(zero, sums), g, zero)}
    program = pure(Graph.of("mask", [x, w, g], outputs))
    arrays = drawn(x, w, g)
    arrays["w"][:, :3] = 0.0
    arrays["w"][:, 3] = np.nan
    (product,) = products(program)
    assert product.out.buffer.kind == "register"
    check(program, arrays, {}, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("slope", [0.2, 3.0])
def test_a_leaky_mask_is_read_off_the_output(slope):
    x, w = Input("x", (32, 20), "float32"), Input("w", (20, 64), "float32")
    v = Input("v", (64, 64), "float32")
    sums = matmul(exp(x), w)
    zero = fill(0, sums)
    mask = less(zero, sums)
    y = where(mask, sums, multiply(sums, fill(slope, sums)))
    outputs = {"y": y, "d": where(mask, matmul(y, v), zero)}
    program = pure(Graph.of("mask", [x, w, v], outputs))
    arrays = drawn(x, w, v)
    arrays["w"][:, :3] = 0.0
    arrays["w"][:, 4] = -1e-45  # times a slope below 1, a negative zero
    assert [each.out.buffer.kind for each in products(program)] == ["register"] * 2
    check(program, arrays, {}, rtol=2e-5, atol=1e-3)


def test_a_mask_of_a_falling_slope_is_not_read_off_the_output():
    x = Input("x", (32, 64), "float32")
    zero = fill(0, x)
    mask = less(zero, x)
    outputs = {
        "y": where(mask, x, multiply(x, fill(-0.5, x))),
        "d": where(mask, x, zero),
    }
    check(pure(Graph.of("mask", [x], outputs)), drawn(x), {}, rtol=0, atol=0)


def step(optimizer, batch=24, units=(40, 40), features=20, **more):
    model = models.Sequential(
        [layers.Input((features,))]
        + [layers.Dense(n, activation="relu") for n in units]
        + [layers.Dropout(0.3), layers.Dense(1)]
    )
    model.compile(optimizer, "mse", **more)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(batch, features)).astype("f4")
    return step_of_model(model, x, x[:, :1].copy(), batch, None)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop"])
def test_updates_go_with_the_gradients_of_weights(form, monkeypatch, optimizer):
    program, data, state = step(optimizer)
    kernels = build(program).kernels
    updated = [
        view.buffer.name
        for kernel in kernels
        if isinstance(kernel, Contract) and kernel.epilogue
        for _, view in kernel.epilogue.outputs
        if view.buffer.kind == "state"
    ]
    if form != "packed" or optimizer == "sgd":
        assert {"dense/kernel", "dense_1/kernel"} <= {
            n.split("/", 1)[-1] for n in updated
        }
    check(program, data, state, steps=3, rtol=2e-4, atol=1e-4)
    fused = ran(compiled(program, 2), data, state, 3)
    without_epilogues(monkeypatch)
    same(fused, ran(compiled(program, 1), data, state, 3))


def test_clipped_updates_stay_loops():
    clipped, *rest = step(SGD(0.01, global_clipnorm=0.1))
    count = sum(bool(p.epilogue) for p in products(step("sgd")[0]))
    assert sum(bool(p.epilogue) for p in products(clipped)) < count
    check(clipped, *rest, steps=2, rtol=2e-4, atol=1e-4)


def test_the_product_of_a_loop_over_time_has_an_epilogue():
    model = models.Sequential(
        [layers.Input((5, 8)), layers.SimpleRNN(32, activation="relu"), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(16, 5, 8)).astype("f4")
    program, data, state = step_of_model(model, x, x[:, 0, :1].copy(), 16, None)
    loops = [k for k in build(program).kernels if isinstance(k, TimeLoop)]
    bodies = [kernel for loop in loops for kernel in loop.body]
    assert any(isinstance(k, Contract) and k.epilogue for k in bodies)
    check(program, data, state, steps=2, rtol=2e-4, atol=1e-4)


def test_a_wrong_epilogue_is_refused():
    program, _ = dense(32, 20, 64, relu)
    plan = build(program, "epilogues")
    (number,) = (n for n, k in enumerate(plan.kernels) if isinstance(k, Contract))
    product = plan.kernels[number]

    def with_product(changed):
        kernels = [*plan.kernels[:number], changed, *plan.kernels[number + 1 :]]
        return replace(plan, kernels=tuple(kernels))

    verify(plan)
    with pytest.raises(PlanError, match="does not store its result"):
        verify(with_product(replace(product, epilogue=None)))
    assert isinstance(product.epilogue, Loop)
    other = replace(product.epilogue, shape=(64, 32))
    with pytest.raises(PlanError):
        verify(with_product(replace(product, epilogue=other)))
