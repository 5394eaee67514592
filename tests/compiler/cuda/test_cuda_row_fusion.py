"""Blocks that go on row by row: what they copy, keep and show, on a CPU that plays."""

import re

import cuda_host
import numpy as np
import pytest
from cuda_checks import check, compiled

from ganglion import config, layers, models, ops, optimizers
from ganglion.compiler.cuda import emit
from ganglion.compiler.cuda.fusion import FusedKernel, staged_rows, staged_whole
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.plan.kernels import Apply, Buffer, Indirect, Load, Loop, View
from ganglion.training.data_adapters import Table

pytestmark = pytest.mark.usefixtures("launches")

emulation = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")


def classifier(batch, features=24, classes=10):
    """Return the training step of a small classifier, with data for some batches."""
    model = models.Sequential(
        [
            layers.Input((features,)),
            layers.Dense(40, activation="relu"),
            layers.Dense(classes, activation="softmax", name="last"),
        ],
        name="classifier",
    )
    rate = optimizers.SGD(0.1)
    model.compile(rate, "sparse_categorical_crossentropy", metrics=["accuracy"])
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3 * batch, features)).astype("float32")
    table = Table(x, rng.integers(0, classes, 3 * batch).astype("int32"))
    signature = table.signature(batch, len(x), False)
    step = model._step_cache.traced("train", table, signature)
    state = {key: variable.array.copy() for key, variable in step.variables.items()}
    arrays = table.arrays()
    return step.program, {key: arrays[key] for key in step.program.data}, state


def row_wise_partitions(program):
    launches = build(program, GpuSpec(90, "tf32")).every
    return [
        (launches[number - 1], partition)
        for number, launch in enumerate(launches)
        for partition in launch.partitions
        if partition.row_wise
    ]


def attention_scores(batch, causal):
    """Return the training step of a softmax over scores, some of them masked."""
    heads, queries, keys = 4, 48, 24
    inputs = layers.Input((heads, queries, keys))
    scores = layers.Dense(keys, name="first")(inputs)
    mask = np.tri(queries, keys, dtype=bool) if causal else np.ones(keys, bool)
    weights = ops.softmax(ops.where(mask, scores, -1e9), axis=-1)
    normalized = layers.LayerNormalization(name="norm")(weights)
    outputs = layers.Dense(keys, name="last")(normalized)
    model = models.Model(inputs, outputs, name="scores")
    model.compile(optimizers.SGD(0.1), "mse")
    rng = np.random.default_rng(4)
    shape = (2 * batch, heads, queries, keys)
    x, y = rng.normal(size=(2, *shape)).astype("float32")
    table = Table(x, y)
    signature = table.signature(batch, len(x), False)
    step = model._step_cache.traced("train", table, signature)
    state = {key: variable.array.copy() for key, variable in step.variables.items()}
    arrays = table.arrays()
    return step.program, {key: arrays[key] for key in step.program.data}, state


@emulation
@pytest.mark.parametrize("causal", [False, True])
def test_many_short_rows_of_several_axes_are_read_once(causal):
    """A mask keeps axes of some kernels apart, while others see one long axis."""
    program, data, state = attention_scores(32, causal)
    rows = {partition.rows for _, partition in row_wise_partitions(program)}
    assert 32 * 4 * 48 in rows
    check(program, data, state, steps=1, tolerance=2e-5, precise="float32")


def test_many_rows_of_one_element_run_side_by_side():
    """Updates of weights that share a counter are no chain."""
    model = models.Sequential([layers.Input((64,)), layers.Dense(64), layers.Dense(64)])
    model.compile(optimizers.AdamW(), "mse")
    x = np.ones((32, 64), "float32")
    table = Table(x, x)
    signature = table.signature(32, 32, False)
    program = model._step_cache.traced("train", table, signature).program
    assert all(p.rows <= 1024 for _, p in row_wise_partitions(program))


@emulation
@pytest.mark.parametrize("batch", [16, 48])
@pytest.mark.parametrize("precise", ["float32", "tf32"])
def test_a_classifier_ends_row_wise(batch, precise):
    program, data, state = classifier(batch)
    text = "".join(compiled(program, None, precise).emission.functions.values())
    for copied in ("stage<", "write_back<", "wait_for_staged();"):
        assert copied in text
    lost = 2e-5 if precise == "float32" else 1e-2
    check(program, data, state, steps=3, tolerance=lost, precise=precise)


def test_what_is_copied_early_is_ready():
    ((before, partition),) = row_wise_partitions(classifier(32)[0])
    near = {
        buffer.key for buffer in staged_whole(partition.fused_kernels, partition.rows)
    }
    early = near & {key for fused in partition.fused_kernels for key in fused.ready}
    assert ("state", "classifier/last/kernel") in early
    written = {
        key
        for each in before.partitions
        for w in each.fused_kernels
        for key in w.writes()
    }
    assert written
    assert not written & early
    assert staged_rows(partition.fused_kernels, partition.rows).keys() & written


def test_what_others_read_is_shown_once_and_what_nobody_reads_has_no_place():
    ((_, partition),) = row_wise_partitions(classifier(32)[0])
    assert partition.written_back
    assert partition.private
    shown = [
        name
        for fused in partition.fused_kernels
        for name in partition.written_back_by(fused)
    ]
    assert sorted(shown) == sorted(partition.written_back)
    assert not partition.private.keys() & partition.written_back.keys()


def test_code_that_runs_once_has_no_loops():
    program, _, _ = classifier(16)
    functions = emit.emit_program(program, GpuSpec(90, "float32")).functions
    text = "".join(functions.values())
    assert "if (int i = " in text
    runs = {int(n) for n in re.findall(r"u < (\d+); u\+\+", text)}
    assert max(runs) <= 16


def test_row_wise_blocks_do_not_gather_on_idle_processors():
    target = GpuSpec(90, "tf32")
    emission = emit.emit_program(classifier(32)[0], target)
    near = [
        call
        for call in emission.every
        if "wait_for_staged();" in emission.functions[call.function]
    ]
    assert near
    for call in near:
        assert 3 * (call.shared + 1024) > 228 * 1024
        assert call.shared <= target.half


def test_tables_are_not_cut_into_rows():
    rows = 32
    float32, int32 = np.dtype("float32"), np.dtype("int32")
    table = Buffer("table", (rows, 4), float32, "state")
    first, second = (Buffer(name, (rows, 4), float32, "arena") for name in "ab")
    index = Buffer("index", (rows,), int32, "state")
    by_rows = Load(float32, View(table, (4, 1)))
    chosen = Indirect(
        float32, table, Load(int32, View(index, (1, 0))), rows, 4, within=(0, 1)
    )
    load = Load(float32, View(first, (4, 1)))
    copy = Loop.of("copy", (rows, 4), by_rows, View(first, (4, 1)))
    both = Apply(float32, "add", (load, chosen))
    goes_on = Loop.of("add", (rows, 4), both, View(second, (4, 1)))
    assert ("state", "table") in staged_rows([FusedKernel(copy)], rows)
    assert ("state", "table") not in staged_rows(
        [FusedKernel(copy), FusedKernel(goes_on)], rows
    )


@pytest.mark.parametrize("capability", [75, 80, 89, 90])
@pytest.mark.parametrize("features", [24, 1500])
def test_copies_find_room_on_every_gpu(capability, features):
    spec = GpuSpec(capability)
    program, _, _ = classifier(64, features)
    emission = emit.emit_program(program, spec)
    assert max(call.shared for call in emission.calls) <= spec.shared_per_block
