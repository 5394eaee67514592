"""Products skip the zeros of data: which ones do, and that nothing else changes."""

import itertools

import numpy as np
import pytest
from cpu_checks import check, compiled, ran, same
from sparse_data import KINDS, pixels
from step_programs import step_of

import ganglion
from ganglion import config, layers, models
from ganglion.compiler.cpu import emit, jit
from ganglion.compiler.cpu.jit import Target
from ganglion.compiler.cpu.passes.skip_zeros import Nonzeros
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.pointwise import add, cast, divide, fill, maximum, multiply
from ganglion.compiler.ir.shaping import transpose
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Contract

pytestmark = pytest.mark.usefixtures("listed_zeros", "tiles")

pytest.importorskip("llvmlite", reason="llvmlite is not installed")


@pytest.fixture(params=["own_tiles", "one_text", "copied_columns"])
def tiles(request):
    """Products have tiles made for their shapes, or one text for all of them."""
    if request.param != "one_text":
        request.getfixturevalue(request.param)


@pytest.fixture
def precise():
    """Return a function that turns shortcuts off or on, until the test ends."""
    yield config.set_precise
    config.set_precise(False)


def lists(plan):
    return [kernel for kernel in plan.kernels if isinstance(kernel, Nonzeros)]


def listed(plan):
    """Return the products that go through lists, as (rows, columns, inner)."""
    return [
        (kernel.rows[0].size, kernel.columns[0].size, kernel.inner[0].size)
        for kernel in plan.kernels
        if isinstance(kernel, Contract) and kernel.nonzeros
    ]


def product(rows, inner, columns, *, dtype="float32", turned=False, stored="uint8"):
    """Return scaled data times weights, or the data turned around times them."""
    x = Input("x", (rows, inner), stored)
    scaled = multiply(cast(x, dtype=dtype), fill(1 / 255, cast(x, dtype=dtype)))
    left = transpose(scaled, axes=(1, 0)) if turned else scaled
    w = Input("w", (left.shape[1], columns), dtype)
    graph = Graph.of("product", [x, w], {"y": matmul(left, w)})
    return Program(graph, ("x",), ("w",), ("y",))


def weights(program, seed=1):
    (w,) = [source for source in program.graph.inputs if source.name == "w"]
    return np.random.default_rng(seed).normal(size=w.shape).astype(w.dtype)


SIZES = (
    (1, 784, 10),
    (3, 31, 70),
    (4, 16, 64),
    (7, 33, 513),
    (13, 100, 4),
    (32, 17, 17),
    (128, 47, 10),
    (50, 64, 128),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "inner", "columns"), SIZES)
def test_a_product_by_rows(rows, inner, columns, kind):
    program = product(rows, inner, columns)
    assert len(lists(build(program))) == 1
    data, state = {"x": pixels(kind, rows, inner)}, {"w": weights(program)}
    check(program, data, state, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(16, 9, 64), (37, 50, 33), (128, 30, 520)]
)
def test_a_product_by_columns(rows, inner, columns, kind):
    """As the gradient of weights: the batch is the inner axis."""
    program = product(rows, inner, columns, turned=True)
    assert listed(build(program)) == [(inner, columns, rows)]
    data, state = {"x": pixels(kind, rows, inner)}, {"w": weights(program)}
    check(program, data, state, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_double_precision(kind, turned):
    program = product(21, 34, 40, dtype="float64", turned=turned)
    assert lists(build(program))
    data, state = {"x": pixels(kind, 21, 34)}, {"w": weights(program)}
    check(program, data, state, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(70, 90, 530), (40, 80, 10)])
def test_sums_have_the_bits_of_plain_ones(rows, inner, columns, turned, precise):
    program = product(rows, inner, columns, turned=turned)
    state = {"w": weights(program)}
    plain = {}
    for kind in KINDS:
        data = {"x": pixels(kind, rows, inner)}
        precise(True)
        assert not lists(build(program))
        plain[kind] = ran(compiled(program, 1), data, state, 1)
        precise(False)
        for threads in (1, 2, 3, 4):
            same(ran(compiled(program, threads), data, state, 1), plain[kind])


def test_the_interpreter_goes_through_the_lists():
    """A wrong list is a bug of the planner: it must show without machine code."""
    program = product(8, 20, 30)
    data, state = {"x": pixels("full", 8, 20)}, {"w": weights(program)}
    right = PlanInterpreter(build(program)).run(data, dict(state), 1)["y"]
    plan = build(program)
    (kernel,) = lists(plan)
    object.__setattr__(kernel, "inner", type(kernel.inner)(10, kernel.inner.left))
    wrong = PlanInterpreter(plan).run(data, dict(state), 1)["y"]
    assert np.abs(wrong - right).max() > 1e-3


# ---- what counts as data -------------------------------------------------------------


def of(left, columns=32):
    """Return a plan of data, changed somehow, times weights."""
    x = Input("x", (16, 64), "float32")
    changed = left(x)
    w = Input("w", (64, columns), "float32")
    graph = Graph.of("changed", [x, w], {"y": matmul(changed, w)})
    return build(Program(graph, ("x",), ("w",), ("y",)))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: multiply(x, fill(2, x)),
        lambda x: divide(x, fill(255, x)),
        lambda x: cast(cast(x, dtype="float64"), dtype="float32"),
    ],
    ids=["as it is", "multiplied", "divided", "cast"],
)
def test_scaled_data_keeps_its_zeros(change):
    assert listed(of(change)) == [(16, 32, 64)]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: add(x, fill(1, x)),
        lambda x: maximum(x, fill(-1, x)),
        lambda x: divide(fill(1, x), x),
    ],
    ids=["moved", "bounded", "below a line"],
)
def test_changed_data_is_not_marked(change):
    assert not listed(of(change))


def test_weights_are_no_data():
    x, w = Input("x", (16, 64), "float32"), Input("w", (64, 32), "float32")
    graph = Graph.of("state", [x, w], {"y": matmul(x, w)})
    assert not listed(build(Program(graph, ("w",), ("x",), ("y",))))


def test_short_sums_and_single_columns_are_not_worth_it():
    assert not listed(of(lambda x: x, columns=3))
    assert not listed(build(product(64, 15, 64)))


def test_first_layers_skip_zeros_and_others_do_not():
    plan = build(step_of("mnist-mlp", rows=130, batch=128)[0])
    assert listed(plan) == [(128, 512, 784), (784, 512, 128)]
    assert [kernel.nonzeros.group for kernel in lists(plan)] == [4, 4]
    text = str(plan)
    assert "for 32 groups of 4, inner 784: nonzeros0" in text
    assert "· mnist-mlp/dense/kernel:float32[784, 512]  at nonzeros0" in text
    plan = build(step_of("mnist-perceptron", rows=130, batch=128)[0])
    assert listed(plan) == [(16, 10, 784)]  # a part of the batch each
    (segment,) = plan.segments
    assert lists(plan)[0] in plan.kernels[segment.first : segment.last]


def test_an_offset_makes_zeros_go_away():
    def first(offset):
        model = models.Sequential(
            [
                layers.Input((64,)),
                layers.Rescaling(1 / 128, offset),
                layers.Dense(32, activation="relu"),
                layers.Dense(32),
            ]
        )
        from ganglion.training.data_adapters import Table

        table = Table(np.zeros((16, 64), "uint8"))
        signature = table.signature(16, 16, False)
        step = model._step_cache.traced("predict", table, signature)
        return listed(build(step.program))

    assert first(0.0) == [(16, 32, 64)]
    assert first(-1.0) == []


def test_two_products_share_their_lists():
    x = Input("x", (16, 64), "float32")
    w, v = (Input(name, (64, 32), "float32") for name in "wv")
    outputs = {"y": matmul(x, w), "z": matmul(x, v)}
    graph = Graph.of("shared", [x, w, v], outputs)
    program = Program(graph, ("x",), ("w", "v"), ("y", "z"))
    plan = build(program)
    assert (len(lists(plan)), len(listed(plan))) == (1, 2)
    rng = np.random.default_rng(0)
    state = {n: rng.normal(size=(64, 32)).astype("float32") for n in "wv"}
    data = {"x": pixels("holes", 16, 64).astype("float32")}
    check(program, data, state, rtol=1e-4, atol=1e-3)


# ---- training ------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 30, 128])
@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-perceptron"])
def test_training_is_the_same_for_any_number_of_threads(name, batch, precise):
    program, data, state = step_of(name, rows=150, batch=batch)
    data = {key: data[key] for key in program.data}
    data["x"] = pixels("holes", 150, 784).reshape(data["x"].shape)
    precise(True)
    plain = ran(compiled(program, 1), data, state, 3)
    precise(False)
    for threads in (1, 2, 3, 4):
        same(ran(compiled(program, threads), data, state, 3), plain)


def fitted(learning_rate, **arguments):
    ganglion.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = pixels("holes", 64, 100).reshape(64, 100)
    model = models.Sequential(
        [layers.Input((100,)), layers.Rescaling(1 / 255), layers.Dense(40, **arguments)]
    )
    model.compile(ganglion.optimizers.SGD(learning_rate), "mse")
    model.fit(x, rng.normal(size=(64, 40)), batch_size=16, epochs=4, verbose=0)
    return model


@pytest.mark.parametrize("use_bias", [True, False])
def test_training_that_went_bad_is_noticed(use_bias):
    with pytest.warns(RuntimeWarning, match="stopped being a finite number"):
        fitted(1e30, use_bias=use_bias)


def test_what_is_not_a_number_is_listed():
    """Data that is NaN or infinite is not zero; an infinite weight meets only zeros."""
    program = product(8, 40, 32, stored="float32")
    x = np.zeros((8, 40), "float32")
    x[2, 5], x[6, 7] = np.nan, np.inf
    w = weights(program)
    w[9, 3] = np.inf  # 0 times infinity is left out with the other zeros
    _, result = ran(compiled(program, 2), {"x": x}, {"w": w}, 1)
    finite = np.isfinite(result["y"][0]).all(axis=1)
    assert np.flatnonzero(~finite).tolist() == [2, 6]


# ---- other processors ----------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        Target("x86-64-v3", triple="x86_64-unknown-linux-gnu"),
        Target("x86-64-v4", triple="x86_64-unknown-linux-gnu"),
        Target("generic", "+neon", triple="aarch64-unknown-linux-gnu"),
    ],
    ids=["AVX2", "AVX-512", "NEON"],
)
def test_the_kernels_compile_for(target):
    program, _, _ = step_of("mnist-mlp", rows=130, batch=128)
    modules, _ = emit.emit_plan(build(program))
    text = jit.assembly(modules.values(), target)
    assert ("vpcompressd" in text) == (target.cpu == "x86-64-v4")


@pytest.mark.skipif(jit.family() != "x86", reason="not an x86 processor")
def test_avx2_code_lists_the_same_places(monkeypatch, tmp_path):
    if "+avx2" not in jit.host().features:
        pytest.skip("the processor has no AVX2")
    for turned, kind in itertools.product((False, True), KINDS):
        program = product(22, 50, 70, turned=turned)
        data, state = {"x": pixels(kind, 22, 50)}, {"w": weights(program)}
        here = ran(compiled(program, 1), data, state, 1)
        with monkeypatch.context() as patch:
            patch.setenv("GANGLION_CPU", "x86-64-v3")
            patch.setenv("GANGLION_HOME", str(tmp_path))
            same(ran(compiled(program, 2), data, state, 1), here)
