"""The program of one training step of a model, for tests of the compiler."""

import numpy as np

from ganglion.compiler.ir.graph import Graph, Input, Program


def program_of(op, arrays, attrs):
    inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    out = op(*inputs, **attrs)
    graph = Graph.of(op.name, inputs, {"y": out})
    return Program(graph, tuple(source.name for source in inputs), (), ("y",))


def step_of(name, rows=6, batch=4, kind="train", shuffle=True):
    """Return a recipe's step on a few made-up rows, and the arrays it runs on."""
    from ganglion import recipes
    from ganglion.training.data_adapters import Table
    from ganglion.training.tracing import state_arrays

    recipe = recipes.get(name)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (rows, *recipe.input_shape)).astype("uint8")
    y = rng.integers(0, 10, rows).astype("int32")
    y = np.eye(10, dtype="float32")[y] if recipe.one_hot else y
    table = Table(x, y)
    model = recipes.build(recipe)
    signature = table.signature(batch, rows, shuffle)
    step = model._step_cache.traced(kind, table, signature)
    state = {n: v.array.copy() for n, v in step.variables.items()}
    assert state_arrays(step, {}).keys() == state.keys()
    return step.program, table.arrays(), state
