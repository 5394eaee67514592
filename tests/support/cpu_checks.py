"""Runs a program in every way there is; all must agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from ganglion import layers, models
from ganglion.compiler import reference
from ganglion.compiler.cpu import backend, tuning
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.graph import Graph, Program, Value
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.training.data_adapters import Table

Arrays = dict[str, np.ndarray]
Ran = tuple[Arrays, Arrays]


@contextmanager
def everything_shared() -> Iterator[None]:
    """Split the smallest kernels over the threads too: only so do they meet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "CPU", replace(tuning.CPU, worth_sharing=0.0))
        yield


def pure(graph: Graph) -> Program:
    """Return a graph as a program without state."""
    names = tuple(node.name for node in graph.inputs)
    return Program(graph, names, (), tuple(graph.outputs))


def arrays_of(program: Program) -> Arrays:
    """Return normally distributed arrays for the inputs of a program."""
    draw = np.random.default_rng(3)
    return {
        source.name: draw.normal(size=source.shape).astype(source.dtype)
        for source in program.graph.inputs
    }


def conv_pass(name: str, case: tuple, dilation: tuple[int, ...]) -> tuple:
    """Return a pass of a convolution as a program, its data, its result in doubles.

    The case: taps, strides, sizes with the batch first, channels in and out, padding.
    """
    from ganglion.compiler.ir.graph import Input
    from ganglion.compiler.ir.table import OPS

    taps, strides, (count, *sizes), (into, out), pairs = case
    draw = np.random.default_rng(0)
    axes = zip(sizes, pairs, taps, strides, dilation, strict=True)
    after = [(n + sum(p) - (k - 1) * d - 1) // s + 1 for n, p, k, s, d in axes]
    arrays = {
        "x": draw.standard_normal((count, *sizes, into)),
        "w": draw.standard_normal((*taps, into, out)),
        "dy": draw.standard_normal((count, *after, out)),
    }
    which, attrs = {
        "conv": (("x", "w"), {}),
        "conv_transpose": (("dy", "w"), {"spatial": tuple(sizes)}),
        "conv_kernel": (("x", "dy"), {"kernel": taps}),
    }[name]
    attrs |= {"strides": strides, "pairs": pairs, "groups": 1, "dilation": dilation}
    data = {each: arrays[each].astype("float32") for each in which}
    inputs = [Input(each, array.shape, array.dtype) for each, array in data.items()]
    graph = Graph.of("pass", inputs, {"y": OPS[name](*inputs, **attrs)})
    exact = OPS[name].meaning(*(a.astype("float64") for a in data.values()), **attrs)
    return Program(graph, tuple(data), (), ("y",)), data, exact


def by_winograd(program: Program) -> bool:
    """Return whether a program convolves by Winograd's method."""
    kernels = build(program).kernels
    return any(type(kernel).__name__.startswith("Winograd") for kernel in kernels)


def op_program(op, arrays: list[np.ndarray], attrs: dict) -> tuple[Program, Arrays]:
    """Return one op as a program, and what it runs on."""
    from ganglion.compiler.ir.graph import Input

    inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    output: Value = op(*inputs, **attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    return pure(Graph.of(op.name, inputs, {"y": output})), data


def training_step(case, floatx):
    """Return a step of a small model around a layer, and what it runs on."""
    inputs = [
        layers.Input(s[1:], dtype="int32" if case.classes else None)
        for s in case.shapes
    ]
    inner = case.call(case.make(layers), inputs if len(inputs) > 1 else inputs[0])
    outputs = layers.Dense(3)(layers.Flatten()(layers.Rescaling(1.0)(inner)))
    model = models.Model(inputs, outputs)
    model.compile("sgd", "mse")
    x = case.inputs()
    rows = case.shapes[0][0]
    y = np.random.default_rng(1).normal(size=(rows, 3)).astype(floatx)
    return step_of_model(model, x, y, rows, None)


def step_of_model(model, x, y, batch, rows):
    """Return a compiled model's training step, what it runs on, and its state."""
    table = Table(x, y)
    signature = table.signature(batch, rows, False)
    step = model._step_cache.traced("train", table, signature)
    state = {name: v.array.copy() for name, v in step.variables.items()}
    arrays = table.arrays()
    return step.program, {name: arrays[name] for name in step.program.data}, state


def compiled(program: Program, threads: int) -> backend.CompiledProgram:
    """Return a program that runs on as many threads as said, in a poisoned arena."""
    with everything_shared():
        executable = backend.compile(program)
    executable.forced_threads, executable.poisons = threads, True
    return executable


def ran(executable, data: Arrays, state: Arrays, steps: int) -> Ran:
    """Return the state after some steps, and the results of each."""
    after = {name: array.copy() for name, array in state.items()}
    return after, executable.run(data, after, steps)


def check(
    program: Program,
    data: Mapping[str, np.ndarray],
    state: Mapping[str, np.ndarray],
    *,
    steps: int = 1,
    rtol: float,
    atol: float,
) -> None:
    """Compare graph, plan, and machine code on one and two threads."""
    data, state = {name: data[name] for name in program.data}, dict(state)
    expected = ran(reference.compile(program), data, state, steps)
    machine_code = compiled(program, 1)
    ways = {
        "plan": (PlanInterpreter(build(program)), 1),
        "one thread": (machine_code, 1),
        "two threads": (machine_code, 2),
    }
    results = {}
    for way, (executable, threads) in ways.items():
        machine_code.forced_threads = threads
        results[way] = ran(executable, data, state, steps)
        for ours, theirs in zip(results[way], expected, strict=True):
            assert ours.keys() == theirs.keys()
            for name, array in theirs.items():
                assert ours[name].dtype == array.dtype, (way, name)
                np.testing.assert_allclose(
                    ours[name], array, rtol, atol, err_msg=f"{way}: {name}"
                )
    same(results["one thread"], results["two threads"])


def same(first: Ran, second: Ran) -> None:
    """Refuse any difference, were it in the last bit."""
    for a, b in zip(first, second, strict=True):
        for name in a:
            assert a[name].tobytes() == b[name].tobytes(), name
