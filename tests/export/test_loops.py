"""Passes over loops for exports: each keeps what a plan means."""

import numpy as np
import pytest
from exported_models import made, rows_for

import ganglion as keras
from ganglion import layers
from ganglion.compiler.cpu.passes.skip_zeros import Nonzeros
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Loop
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.export import bands
from ganglion.export.inference import inference_of
from ganglion.export.llvm_program import pipeline_for
from ganglion.export.planning import PORTABLE, with_constants
from ganglion.export.targets import WASM, machine_of

PIPELINES = {
    "portable": PORTABLE,
    "wide": pipeline_for(machine_of("x86-64-avx512")),
    "wasm": pipeline_for(WASM),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_stage_means_the_same(name):
    model, pipeline = made("efficient"), PIPELINES[name]
    inference = inference_of(model, 2)
    arrays, (expected,) = rows_for(model, 2)
    names = [step.name for step in pipeline.passes]
    for after in names[names.index("lower") :]:
        plan = with_constants(pipeline.run(inference.program, after))
        results = PlanInterpreter(plan).run({"input": arrays[0]}, {}, 1)
        np.testing.assert_allclose(results["output/0"][0], expected, atol=1e-5)


def test_windows_are_written_out_inlined_and_share_what_they_load():
    pipeline = PIPELINES["wide"]
    inference = inference_of(made("efficient"), 1)

    def loops(after):
        plan = pipeline.run(inference.program, after)
        return [kernel for kernel in plan.kernels if isinstance(kernel, Loop)]

    depthwise = [loop for loop in loops("lower") if loop.name == "conv"]
    assert len(depthwise) == 2
    assert all(loop.reduced for loop in depthwise)
    assert not any(loop.reduced for loop in loops("windows") if loop.name == "conv")
    assert not any(loop.name == "conv" for loop in loops("inline"))
    together = [loop for loop in loops("neighbours") if len(loop.outputs) > 1]
    assert [len(loop.outputs) for loop in together] == [6, 6]
    # A row of six windows of 3 x 3 has 8 columns: 24 elements, 9 weights and a bias.
    views = {expr.view for expr in together[0].leaves}
    assert len(views) == 24 + 9 + 1


def test_a_row_reads_no_weights_for_what_relu_made_zero():
    keras.utils.set_random_seed(6)
    stack = [layers.Dense(400, activation="relu"), layers.Dense(400)]
    model = keras.Sequential([keras.Input((400,)), *stack])
    x = np.random.default_rng(7).normal(size=(1, 400)).astype("float32")
    pipeline = PIPELINES["wide"]
    for rows, lists in ((1, 2), (2, 1)):  # of the data, and behind ReLU
        inference = inference_of(model, rows)
        plan = with_constants(pipeline.run(inference.program))
        assert sum(isinstance(kernel, Nonzeros) for kernel in plan.kernels) == lists
        given = np.repeat(x, rows, axis=0)
        results = PlanInterpreter(plan).run({"input": given}, {}, 1)["output/0"][0]
        np.testing.assert_allclose(results, model.predict(given, verbose=0), atol=1e-5)


def test_only_borders_are_filled():
    pipeline = PIPELINES["portable"]
    inference = inference_of(made("efficient"), 2)

    def filled(after):
        plan = pipeline.run(inference.program, after)
        fills = [k for k in plan.kernels if isinstance(k, Loop) and k.name == "fill"]
        return sum(np.prod(fill.shape) for fill in fills)

    # 24 to 25 rows at the end, 12 to 14 on both sides, and 12 to 13 at the end.
    whole = [(25, 3), (14, 32), (13, 32)]
    inside = [(24, 3), (12, 32), (12, 32)]
    sizes = [2 * sum(n * n * c for n, c in sides) for sides in (whole, inside)]
    assert filled("fuse") == sizes[0]
    assert filled("borders") == sizes[0] - sizes[1]


@pytest.mark.parametrize("is_added", [False, True])
def test_large_products_go_band_by_band(is_added, monkeypatch):
    monkeypatch.setattr(bands, "LARGE", 4 * 12 * 12 * 16)
    monkeypatch.setattr(bands, "BAND", 4 * 12 * 20 * 3)
    x = entry = keras.Input((12, 12, 8))
    x = layers.Conv2D(20, 1, activation="relu")(x)
    if is_added:
        x = layers.Add()([x, layers.Concatenate()([entry, entry, x[..., :4] * 2])])
    else:
        x = layers.DepthwiseConv2D(3, padding="same")(x)
    model = keras.Model(entry, x)
    plan = with_constants(PIPELINES["wide"].run(inference_of(model, 1).program))
    loops = [kernel for kernel in plan.kernels if isinstance(kernel, TimeLoop)]
    # What has two readers is stored as a whole.
    assert [loop.steps for loop in loops] == ([] if is_added else [4])
    (given,), (expected,) = rows_for(model, 1)
    results = PlanInterpreter(plan).run({"input": given}, {}, 1)["output/0"][0]
    np.testing.assert_allclose(results, expected, atol=1e-5)
