"""Kernels that run a step ahead: which ones may, and that nobody sees a difference."""

import re

import cuda_host
import numpy as np
import pytest
from cpu_checks import pure, ran
from cuda_checks import check, compiled, emulated
from step_programs import step_of

from ganglion import config, layers, models
from ganglion.compiler.cuda import emit
from ganglion.compiler.cuda.launches import NEXT, StepKernels
from ganglion.compiler.cuda.passes.prefetch import split_prefetch
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.ir import contraction
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.plan.kernels import Buffer, Contract, Load, Loop, View
from ganglion.compiler.plan.plan import Plan
from ganglion.training.data_adapters import Table

pytestmark = pytest.mark.usefixtures("launches")

emulation = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


def buffer(name, kind="arena", dtype="float32"):
    return Buffer(name, (4,), np.dtype(dtype), kind)


def loop(name, *pairs):
    """Return a loop that copies from one buffer to another, for each pair."""
    copies = tuple(
        (Load(source.dtype, View(source, (1,))), View(target, (1,)))
        for source, target in pairs
    )
    return Loop(name, (4,), copies)


def written(launch):
    return launch.writes()


def names(kernels):
    return [kernel.name for kernel in kernels]


def ahead_of(name):
    program, _, _ = step_of(name, rows=256, batch=64)
    return build(program, GpuSpec(), after="prefetch")


def split(kernels):
    plan = Plan("test", tuple(kernels), {}, {}, {})
    return split_prefetch(StepKernels(plan, plan.kernels))


@pytest.mark.parametrize("name", ["mnist-perceptron", "mnist-mlp", "cifar10-cam"])
def test_the_next_batch_is_fetched_ahead(name):
    step = ahead_of(name)
    assert step.double_buffered
    assert not any(isinstance(kernel, Contract) for kernel in step.prefetched)
    read = {
        b.name for kernel in step.prefetched for b in kernel.reads() if b.kind == "data"
    }
    assert "x" in read
    assert not [b for kernel in step.every for b in kernel.reads() if b.name == "x"]
    changed = {
        b.name
        for kernel in step.prefetched
        for b in kernel.writes()
        if b.kind == "state"
    }
    assert "position" in changed
    assert not changed & {b.name for kernel in step.every for b in kernel.writes()}


def test_copies_of_weights_are_made_behind_their_update():
    weights, packed = buffer("w", "state"), buffer("packed")
    kernels = [
        loop("pack", (weights, packed)),
        loop("use", (packed, buffer("y", "result"))),
        loop("update", (packed, weights)),
    ]
    step = split(kernels)
    assert names(step.prefetched) == ["pack"]
    assert names(step.every) == ["use", "update"]
    assert step.double_buffered == {"packed"}
    kernels.insert(1, loop("double", (packed, buffer("twice"))))
    assert names(split(kernels).prefetched) == ["pack"]  # not what follows


def test_counters_that_others_read_as_they_were_are_copied():
    position = buffer("position", "state", "int32")
    batch, loss = buffer("batch"), buffer("loss", "state")
    bad = buffer("bad", "state", "int32")
    kernels = [
        loop("gather", (buffer("x", "data"), batch)),
        loop("train", (batch, loss)),
        loop("count", (position, position), (position, bad), (loss, buffer("sum"))),
        loop("tell", (bad, buffer("y", "result"))),
    ]
    step = split(kernels)
    assert names(step.prefetched) == ["copy", "gather", "count"]
    assert names(step.every) == ["train", "count", "tell"]
    assert step.double_buffered == {"batch", "position before"}
    (_, _, counted), (_, noted, _) = step.prefetched, step.every
    assert [b.name for b in counted.writes()] == ["position"]
    assert [b.name for b in noted.reads()] == ["position before", "loss"]


def test_counters_that_others_read_as_they_become_are_not_ahead():
    position, now = buffer("position", "state", "int32"), buffer("now", "state")
    kernels = [
        loop("gather", (buffer("x", "data"), buffer("batch"))),
        loop("count", (position, position)),
        loop("late", (position, now)),
        loop("train", (buffer("batch"), buffer("loss", "state"))),
    ]
    assert names(split(kernels).prefetched) == ["gather"]


def test_operands_are_fetched_early_only_if_they_have_long_been_there():
    program, _, _ = step_of("mnist-mlp", rows=256, batch=64)
    schedule = build(program, GpuSpec())
    early, before = 0, written(schedule.first[-1])
    for kind, name in written(schedule.every[-1]):  # of the step before
        before.add(("arena" if kind == NEXT else kind, name))
    for launch in schedule.every:
        for fused in launch.fused_kernels:
            assert not fused.ready & before
            early += isinstance(fused.kernel, Contract) and bool(fused.ready)
        before = written(launch)
    assert early >= 4  # products wait for one of their operands only


def test_a_program_that_starts_at_once_waits_for_the_one_before():
    """What it reads may just be written by another program."""
    x, w = (Input(name, (64, 64), "float32") for name in "xw")
    program = pure(Graph.of("one", [x, w], {"y": contraction.matmul(x, w)}))
    schedule = build(program, GpuSpec())
    assert schedule.first or not any(
        fused.ready for fused in schedule.every[0].fused_kernels
    )


@emulation
@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_steps_are_the_same(steps):
    """Shuffled batches, the last one smaller; odd and even numbers of steps."""
    program, data, state = step_of("mnist-perceptron", rows=96, batch=16)
    check(program, data, state, steps=steps, tolerance=2e-4)


# ---- where a run ends ----------------------------------------------------------------


def convolutions():
    """Return images that are normed, then two convolutions with batch norms."""
    return [
        layers.Input((9, 9, 8)),
        layers.LayerNormalization(scale=False, center=False),
        layers.Conv2D(16, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.MaxPooling2D(),
        layers.Conv2D(24, 3),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(10, activation="softmax"),
    ]


def dense():
    return [
        layers.Input((40,)),
        layers.LayerNormalization(),
        layers.Dense(48, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ]


def pooled():
    """Return images that are made smaller, and then need a padded copy."""
    return [
        layers.Input((8, 8, 3)),
        layers.AveragePooling2D(3, 2, "same"),
        layers.Conv2D(5, 3, padding="same", activation="relu"),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ]


def shuffled_step(stack, rows, batch):
    """Return a training step that draws its batches, and what it runs on."""
    model = models.Sequential(stack)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, *stack[0].shape[1:])).astype("float32")
    table = Table(x, rng.integers(0, 10, rows).astype("int32"))
    signature = table.signature(batch, rows, True)
    step = model._step_cache.traced("train", table, signature)
    state = {name: variable.array.copy() for name, variable in step.variables.items()}
    return step.program, {n: table.arrays()[n] for n in step.program.data}, state


@emulation
@pytest.mark.parametrize(
    ("stack", "processors"), [(convolutions, 20), (dense, 3), (pooled, 20)]
)
@pytest.mark.parametrize("precise", ["tf32", "bf16"])
def test_a_step_computes_the_same_wherever_a_run_ends(
    stack, processors, precise, monkeypatch
):
    monkeypatch.setattr(TUNING, "fewest_summed", 1)
    monkeypatch.setattr(TUNING, "bf16_elements", 1)
    config.set_backend("numpy")
    program, data, state = shuffled_step(stack(), rows=24, batch=6)
    # So few that blocks are fewer for those that get the next batch beside them.
    executable = compiled(program, emulated(processors=processors), precise)
    assert executable.emission.first
    full, _ = ran(executable, data, state, 4)
    parts = state
    for steps in (1, 2, 1):
        parts, _ = ran(executable, data, parts, steps)
    for name, array in full.items():
        assert array.tobytes() == parts[name].tobytes(), name


@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-cnn", "cifar10-cam"])
@pytest.mark.parametrize("precise", ["tf32", "bf16", "float32"])
def test_the_last_step_is_cut_as_all_others(name, precise):
    program, _, _ = step_of(name, rows=512, batch=128)
    emission = emit.emit_program(program, GpuSpec(precision=precise))
    every, last = (
        [how_sums_are_cut(emission.functions[call.function]) for call in calls]
        for calls in (emission.every, emission.last)
    )
    assert sum(map(len, every)) >= 6
    assert last == every[: len(last)]
    assert not any(every[len(last) :])


def how_sums_are_cut(text):
    """Return the numbers of a function's products and of its sums by columns."""
    products = re.findall(r"_shape \{(.*?)\n\};", text, re.DOTALL)
    return sorted(products + re.findall(r"(?:add_columns|fold_threads)<.*?>", text))


def test_copies_in_other_orders_are_loops_of_their_own():
    """Both are one loop in the plan, over places of the copies; one is turned."""
    size, f4 = (4, 3), np.dtype("float32")
    a, b = Buffer("a", size, f4, "state"), Buffer("b", size[::-1], f4, "state")
    straight, turned = (Buffer(name, size, f4, "arena") for name in ("s", "t"))
    load, other = Load(f4, View(a, (3, 1))), Load(f4, View(b, (1, 4)))
    to = [View(buffer, (3, 1)) for buffer in (straight, turned)]
    pack = Loop("pack", size, ((load, to[0]), (other, to[1])))
    use = [
        Loop.of("use", (12,), Load(f4, View(buffer, (1,))), View(back, (1,)))
        for buffer, back in ((straight, a), (turned, b))
    ]
    memory = {"a": np.arange(12.0), "b": -np.arange(12.0), "s": {}, "t": {}}
    for kernel in split([pack, *use]).prefetched:
        assert isinstance(kernel, Loop)
        for expr, target in kernel.outputs:
            for at in np.ndindex(*kernel.shape):
                read, write = (
                    view.offset + int(np.dot(at, view.strides))
                    for view in (expr.view, target)
                )
                memory[target.buffer.name][write] = memory[expr.view.buffer.name][read]
    wanted = {"s": memory["a"], "t": memory["b"].reshape(3, 4).T.ravel()}
    for name, array in wanted.items():
        np.testing.assert_array_equal([memory[name][i] for i in range(12)], array)
