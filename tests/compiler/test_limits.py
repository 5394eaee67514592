"""Long, deep, nested, prime and empty: what no limit of the compiler may stop."""

import os
import random

import numpy as np
import pytest
from cpu_checks import check, compiled, pure, ran, same, step_of_model

from ganglion import config, layers, models, ops, optimizers, saving, utils
from ganglion.cli.dump import text_of
from ganglion.compiler.cpu import emit
from ganglion.compiler.cpu.passes.barriers import Spans, unguarded
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cuda import emit as cuda_emit
from ganglion.compiler.cuda import pipeline as cuda_pipeline
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input, Program, toposort
from ganglion.compiler.ir.shaping import broadcast
from ganglion.compiler.plan.plan import packed
from ganglion.training.data_adapters import Table
from ganglion.variables import Scope

long_test = pytest.mark.skipif(
    "GANGLION_LONG_TESTS" not in os.environ, reason="set GANGLION_LONG_TESTS=1"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))


# ---- many pointwise layers in a row ------------------------------------------------


def leaky(x, number):
    return layers.LeakyReLU(0.9)(x)


def mixed(x, number):
    names = ("tanh", "sigmoid", "softplus", "elu")
    return layers.Activation(names[number % 4])(x)


def dropout(x, number):
    return layers.Dropout(0.01, seed=number)(x)


def chain(link, count):
    tensor = x = layers.Input((8,))
    for number in range(count):
        x = link(x, number)
    return models.Model(tensor, layers.Dense(2)(x))


@pytest.mark.parametrize("link", [leaky, mixed, dropout])
def test_400_pointwise_layers_in_a_row_are_trained(link):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 12, 8)).astype("float32")
    results = {}
    for backend in ("numpy", "cpu"):
        config.set_backend(backend)
        model = chain(link, 400)
        for weight in model.weights:
            weight.assign(np.linspace(-1, 1, weight.size).reshape(weight.shape))
        model.compile("sgd", "mse")
        history = model.fit(x, y[:, :2], batch_size=6, shuffle=False, verbose=0)
        results[backend] = (
            history.history["loss"],
            model.evaluate(x, y[:, :2], verbose=0),
            model.predict(x, verbose=0),
        )
    for ours, theirs in zip(results["cpu"], results["numpy"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_400_pointwise_layers_are_shown_saved_and_dumped(tmp_path):
    config.set_backend("numpy")
    model = chain(leaky, 400)
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(line))
    assert any("leaky_re_lu_399" in line for line in lines)
    model.save(tmp_path / "chain.keras")
    x = np.ones((3, 8), "float32")
    wanted = model.predict(x, verbose=0)
    loaded = saving.load_model(tmp_path / "chain.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), wanted)
    assert len(models.clone_model(model).layers) == len(model.layers)
    program = training_program(model, rows=4)
    for backend, form in (("cpu", "plan"), ("cpu", "source"), ("cuda", "source")):
        assert text_of(program, form, backend)


def training_program(model, rows) -> Program:
    model.compile("sgd", "mse")
    shape = model.outputs[0].shape[1:]
    x, y = (np.zeros((rows, *s), "float32") for s in (model.input_shape[1:], shape))
    table = Table(x, y)
    signature = table.signature(rows, rows, True)
    return model._step_cache.traced("train", table, signature).program


def test_one_call_of_1000_ops():
    config.set_backend("cpu")

    def many(x):
        for _ in range(500):
            x = ops.tanh(x) * 1.1
        return x

    tensor = layers.Input((4,))
    model = models.Model(tensor, layers.Lambda(many)(tensor))
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    np.testing.assert_allclose(model.predict(x, verbose=0), model(x), rtol=1e-4)


# ---- many layers -------------------------------------------------------------------


def deep(blocks):
    """Return as many equal blocks of three layers, one after the other."""
    block = (layers.Dense, layers.BatchNormalization, layers.Activation)
    stack = [
        kind(*arguments)
        for _ in range(blocks)
        for kind, arguments in zip(block, ((8,), (), ("relu",)), strict=True)
    ]
    return models.Sequential([layers.Input((8,)), *stack, layers.Dense(2)])


def test_equal_layers_share_their_machine_code():
    config.set_backend("numpy")
    few, many = (training_program(deep(n), rows=8) for n in (10, 40))
    functions, calls = emit.emit_plan(build(few))
    more_functions, more_calls = emit.emit_plan(build(many))
    assert len(more_calls) > 3 * len(calls)
    assert len(more_functions) < 2 * len(functions)


def test_layers_that_are_added_one_by_one_are_called_once():
    model = models.Sequential([layers.Input((4,))])
    for _ in range(30):
        model.add(layers.Dense(4))
    assert all(len(layer._calls) == 1 for layer in model.layers)
    model.pop()
    model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)
    assert len(model.weights) == 60


def test_gradients_of_many_scales_and_shifts_share_their_sums():
    x = y = Input("x", (8, 4), "float32")
    weights = [Input(f"w{i}", (4,), "float32") for i in range(2000)]
    for scale, shift in zip(weights[::2], weights[1::2], strict=True):
        y = y * broadcast(scale, shape=x.shape) + broadcast(shift, shape=x.shape)
    slopes = gradients(ops.sum(y), weights)
    assert len(toposort(slopes.values())) < 20 * len(weights)


@long_test
def test_3000_layers_learn():
    config.set_backend("cpu")
    model = deep(1000)
    model.compile(optimizers.Adam(), "mse")
    x = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
    history = model.fit(x, x[:, :2], batch_size=8, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    program = training_program(model, rows=8)
    assert cuda_emit.emit_program(program, GpuSpec()).every


def test_memory_is_placed_as_if_each_was_compared_with_all():
    rng = random.Random(0)
    for _ in range(30):
        lives, sizes = {}, {}
        for name in range(rng.randint(1, 60)):
            first = rng.randint(0, 30)
            lives[name] = (first, first + rng.choice([0, 1, 5, 20]))
            sizes[name] = rng.choice([64, 64, 128, 640])
        offsets, end = packed(lives, sizes)
        assert (offsets, end) == packed_one_by_one(lives, sizes)


def packed_one_by_one(lives, sizes):
    offsets = {}
    for name in sorted(lives, key=lambda name: (-sizes[name], lives[name])):
        (first, last), at = lives[name], 0
        beside = [o for o in offsets if lives[o][0] <= last and first <= lives[o][1]]
        for other in sorted(beside, key=lambda name: offsets[name]):
            if offsets[other] - at >= sizes[name]:
                break
            at = max(at, offsets[other] + sizes[other])
        offsets[name] = at
    return offsets, max(offsets[name] + sizes[name] for name in offsets)


def test_spans_cover_what_any_of_them_covers():
    rng = random.Random(0)
    for _ in range(200):
        added, spans = [], Spans()
        for _ in range(rng.randint(0, 12)):
            start = rng.randint(0, 40)
            added.append((rng.choice("ab"), start, start + rng.randint(1, 8)))
            spans.add(added[-1:])
        memory, start = rng.choice("abc"), rng.randint(0, 40)
        stop = start + rng.randint(1, 8)
        met = any(m == memory and a < stop and start < b for m, a, b in added)
        assert spans.overlaps([(memory, start, stop)]) == met


# ---- models within models ----------------------------------------------------------


def nested(depth, join):
    """Return a model that calls another one twice, which calls another one twice."""
    tensor = layers.Input((3,))
    model = models.Model(tensor, layers.Dense(3, activation="tanh")(tensor))
    for _ in range(depth):
        tensor = layers.Input((3,))
        model = models.Model(tensor, join(model, tensor))
    return model


def beside(model, x):
    return layers.Average()([model(x), model(x)])


def behind(model, x):
    return model(model(x))


@pytest.mark.parametrize("join", [beside, behind])
def test_models_nested_25_deep_are_built_and_saved(join, tmp_path):
    model = nested(25, join)
    assert model.count_params() == 12
    assert len(model.trainable_weights) == len(model.weights) == 2
    model.trainable = False
    assert not model.trainable_weights
    model.summary(print_fn=lambda *_, **__: None, expand_nested=True)
    model.save(tmp_path / "nested.keras")
    loaded = saving.load_model(tmp_path / "nested.keras")
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert models.clone_model(model).output_shape == (None, 3)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_equal_calls_of_a_nested_model_are_computed_once(backend):
    config.set_backend(backend)
    model = nested(25, beside)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    kernel, bias = model.get_weights()
    wanted = np.tanh(x @ kernel + bias)
    np.testing.assert_allclose(model.predict(x, verbose=0), wanted, rtol=1e-5)
    model.compile("sgd", "mse")
    before = model.evaluate(x, 0 * x, verbose=0)
    model.fit(x, 0 * x, epochs=3, verbose=0)
    assert model.evaluate(x, 0 * x, verbose=0) < before


def test_too_many_calls_are_refused_at_once():
    model = nested(25, behind)
    x = np.ones((2, 3), "float32")
    for use in (model, model.predict):
        with pytest.raises(ValueError, match="more than 100,000 times"):
            use(x)


def test_calls_that_do_more_than_compute_are_repeated():
    tensor = layers.Input((2,))
    inner = models.Model(tensor, layers.BatchNormalization(momentum=0.5)(tensor))
    tensor = layers.Input((2,))
    outer = models.Model(tensor, layers.Add()([inner(tensor), inner(tensor)]))
    outer.compile("sgd", "mse")
    x = np.full((4, 2), 8, "float32")
    outer.fit(x, x, verbose=0)
    np.testing.assert_allclose(inner.layers[-1].moving_mean, 6)  # 0, 4, 6: two calls


def test_nested_models_take_other_shapes_than_they_were_built_for():
    tensor = layers.Input((None, None, 2))
    inner = models.Model(tensor, layers.Conv2D(3, 3)(tensor))
    tensor = layers.Input((None, None, 2))
    outer = models.Model(tensor, layers.Concatenate()([inner(tensor), inner(tensor)]))
    assert outer(layers.Input((9, 8, 2))).shape == (None, 7, 6, 6)
    with pytest.raises(ValueError, match="expected shape"):
        outer(layers.Input((9, 8, 5)))


# ---- prime numbers of rows ---------------------------------------------------------


def images():
    return models.Sequential(
        [
            layers.Input((8, 8, 2)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 2, activation="relu"),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )


@pytest.mark.parametrize("rows", [37, 127, 131])
def test_prime_batches_are_cut_into_slices(rows):
    config.set_backend("numpy")
    model, rng = images(), np.random.default_rng(0)
    model.compile("sgd", "mse")
    x = rng.normal(size=(rows, 8, 8, 2)).astype("float32")
    y = rng.normal(size=(rows, 3)).astype("float32")
    program, data, state = step_of_model(model, x, y, rows, rows)
    plan = build(program)
    assert any(
        segment.units == rows and segment.slices >= 16 for segment in plan.segments
    )
    assert unguarded(plan) is None
    check(program, data, state, rtol=2e-4, atol=2e-5)
    alone = ran(compiled(program, 1), data, state, 2)
    for threads in (3, 5, 16):
        same(alone, ran(compiled(program, threads), data, state, 2))


# ---- arrays without elements -------------------------------------------------------

EMPTY = {
    "add": ([(0, 3)], lambda x: x + 1),
    "sum": ([(0, 3)], lambda x: ops.sum(x, 0)),
    "sum of all": ([(0,)], ops.sum),
    "mean": ([(3, 0)], lambda x: ops.mean(x, 1)),
    "variance": ([(0, 3)], lambda x: ops.var(x, 0)),
    "max by row": ([(0, 3)], lambda x: ops.max(x, 1)),
    "argmax by row": ([(0, 3)], lambda x: ops.argmax(x, 1)),
    "product of no inner": ([(40, 0), (0, 40)], ops.matmul),
    "product of no rows": ([(0, 3), (3, 4)], ops.matmul),
    "product of no columns": ([(3, 4), (4, 0)], ops.matmul),
    "concatenate": ([(0, 3), (2, 3)], lambda a, b: ops.concatenate([a, b], 0)),
    "cumsum": ([(3, 0)], lambda x: ops.cumsum(x, 1)),
    "softmax of no rows": ([(0, 3)], ops.softmax),
    "transpose": ([(0, 3)], ops.transpose),
    "pad": ([(0, 3)], lambda x: ops.pad(x, ((1, 1), (0, 0)))),
    "slice": ([(5, 3)], lambda x: x[2:2]),
    "conv of no images": ([(0, 6, 6, 3), (3, 3, 3, 4)], ops.conv),
    "conv of no channels": ([(2, 6, 6, 0), (3, 3, 0, 4)], ops.conv),
    "conv to no channels": ([(2, 6, 6, 3), (3, 3, 3, 0)], ops.conv),
    "pool": ([(0, 6, 6, 3)], lambda x: ops.max_pool(x, 2)),
    "flip": ([(0, 3)], lambda x: ops.flip(x, 0)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_axes(name):
    shapes, function = EMPTY[name]
    inputs = [Input(f"x{i}", shape, "float32") for i, shape in enumerate(shapes)]
    with Scope():
        result = function(*inputs)
        outputs = {"y": result}
        if result.dtype == np.float32:
            slopes = gradients(ops.sum(result), inputs)
            outputs |= {source.name: slope for source, slope in slopes.items()}
    graph = Graph.of(name, inputs, {f"to {n}": v for n, v in outputs.items()})
    data = {source.name: np.ones(source.shape, "float32") for source in inputs}
    check(pure(graph), data, {}, rtol=1e-6, atol=1e-6)
    plan = cuda_pipeline.build(pure(graph), GpuSpec()).plan
    assert plan.results.keys() == graph.outputs.keys()


@pytest.mark.parametrize("shape", [(0,), (4, 0), (5, 5, 0)])
def test_models_of_empty_inputs_learn_their_biases(shape):
    results = []
    for backend in ("numpy", "cpu"):
        config.set_backend(backend)
        utils.set_random_seed(0)
        tensor = x = layers.Input(shape)
        if len(shape) == 3:
            x = layers.Conv2D(2, 3)(x)
        x = layers.BatchNormalization()(layers.Flatten()(x))
        model = models.Model(tensor, layers.Dense(2)(x))
        model.compile("sgd", "mse")
        rows = np.zeros((6, *shape), "float32")
        model.fit(rows, np.ones((6, 2)), batch_size=4, verbose=0)
        results.append(model.predict(rows, verbose=0))
    assert (results[0] > 0).all()
    np.testing.assert_allclose(*results, rtol=1e-5)
