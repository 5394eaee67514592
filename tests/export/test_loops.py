"""Passes over loops for exports: each keeps what a plan means."""

import numpy as np
import pytest
from exported_models import made, rows_for

import ganglion as keras
from ganglion import layers
from ganglion.compiler.cpu.skip_zeros import Nonzeros
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Loop
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
