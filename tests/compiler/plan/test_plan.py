"""The plan means what the graph means, op by op and model by model."""

import numpy as np
import pytest
from step_programs import program_of, step_of

from ganglion import config
from ganglion.compiler import reference
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.pipeline import Pass, Pipeline
from ganglion.compiler.plan.interpreter import PlanInterpreter


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("seed", range(3))
def test_every_op(name, seed):
    op = OPS[name]
    arrays, attrs = op.domain(np.random.default_rng(seed))
    program = program_of(op, arrays, attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    expected = reference.compile(program).run(data, {}, 1)["y"]
    result = PlanInterpreter(build(program)).run(data, {}, 1)["y"]
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["mnist-perceptron", "mnist-mlp", "mnist-cnn"])
@pytest.mark.parametrize("kind", ["train", "predict"])
def test_every_recipe(name, kind):
    program, data, state = step_of(name, kind=kind)
    data = {key: data[key] for key in program.data}
    other = {key: array.copy() for key, array in state.items()}
    expected = reference.compile(program).run(data, state, 1)
    result = PlanInterpreter(build(program)).run(data, other, 1)
    for key, array in state.items():
        np.testing.assert_allclose(other[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
    for key, array in expected.items():
        np.testing.assert_allclose(result[key], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("every_pass", [True, False])
def test_what_passes_return_is_verified_where_that_is_asked_for(every_pass):
    verified = []
    verifiers = {int: verified.append, str: verified.append}
    passes = [
        Pass("double", "", lambda stage: stage * 2),
        Pass("same", "", lambda stage: stage),
        Pass("grow", "", lambda stage: stage + 1),
        Pass("write", "", str),
        Pass("repeat", "", lambda stage: stage * 2),
    ]
    config.set_verify_passes(every_pass)
    assert Pipeline(tuple(passes), verifiers).run(3) == "77"
    assert verified == ([6, 7, "7", "77"] if every_pass else [])
    assert Pipeline(tuple(passes), verifiers).run(3, after="double") == 6
    assert verified[-1:] == ([6] if every_pass else [])
