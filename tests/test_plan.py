"""The plan means what the graph means, op by op and model by model."""

import numpy as np
import pytest

from ganglion.compiler import reference
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.build import build
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.registry import Program


def program_of(op, arrays, attrs):
    inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    out = op(*inputs, **attrs)
    graph = Graph.of(op.name, inputs, {"y": out})
    return Program(graph, tuple(one.name for one in inputs), (), ("y",))


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("seed", range(3))
def test_every_op(name, seed):
    op = OPS[name]
    arrays, attrs = op.domain(np.random.default_rng(seed))
    program = program_of(op, arrays, attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    expected = reference.compile(program).run(data, {}, 1)["y"]
    found = PlanInterpreter(build(program)).run(data, {}, 1)["y"]
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def step_of(name, rows=6, batch=4, kind="train", shuffle=True):
    """Return a recipe's step on a few made-up rows, and the arrays it runs on."""
    from ganglion import recipes
    from ganglion.training import trace
    from ganglion.training.data_adapters import Table
    from ganglion.training.step_cache import batch_of

    recipe = recipes.get(name)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (rows, *recipe.input_shape)).astype("uint8")
    y = rng.integers(0, 10, rows).astype("int32")
    y = np.eye(10, dtype="float32")[y] if recipe.one_hot else y
    table = Table(x, y)
    model = recipes.build(recipe)
    signature = table.signature(batch, rows, shuffle)
    step, _ = model._runner.step(kind, batch_of(table), signature)
    state = {n: v.numpy() for n, v in step.variables.items()}
    assert trace.as_state(step, {}).keys() == state.keys()
    return step.program, table.arrays(), state


@pytest.mark.parametrize("name", ["mnist-perceptron", "mnist-mlp", "mnist-cnn"])
@pytest.mark.parametrize("kind", ["train", "predict"])
def test_every_recipe(name, kind):
    program, data, state = step_of(name, kind=kind)
    data = {key: data[key] for key in program.data}
    other = {key: array.copy() for key, array in state.items()}
    expected = reference.compile(program).run(data, state, 1)
    found = PlanInterpreter(build(program)).run(data, other, 1)
    for key, array in state.items():
        np.testing.assert_allclose(other[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5)
