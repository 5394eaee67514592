"""NumPy's functions in one compiled program give what they give on arrays."""

from __future__ import annotations

import numpy as np
import pytest
from ops_cases import CALLS, Call
from ops_cases_numpy import NUMPY_CALLS
from ops_titles import title

import ganglion
from ganglion import ops, tree
from ganglion.compiler.cpu import backend as cpu
from ganglion.compiler.cuda import emit
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.ir.graph import Graph, Input, Node, Program, toposort
from ganglion.compiler.ir.simplify import simplify
from ganglion.variables import Scope

NUMBERED = {id(call) for call in NUMPY_CALLS}
COMPILED = [call for call in CALLS if id(call) in NUMBERED]


def traced(calls: list[Call]) -> tuple[Program, dict[str, np.ndarray]]:
    """Return one program of all calls, and the arrays it is run on."""
    data: dict[str, np.ndarray] = {}
    inputs: list[Input] = []
    outputs = {}

    def lifted(leaf):
        if not isinstance(leaf, np.ndarray) or not leaf.size:
            return leaf
        inputs.append(Input(f"x{len(inputs)}", leaf.shape, leaf.dtype))
        data[inputs[-1].name] = leaf
        return inputs[-1]

    for number, call in enumerate(calls):
        args, kwargs = tree.map_leaves(lifted, (call.args, call.kwargs))
        with Scope():
            parts = tree.flatten(getattr(ops, call.name)(*args, **kwargs))
        for place, part in enumerate(parts):
            outputs[f"{number}/{place}"] = part
    graph = simplify(Graph.of("calls", inputs, outputs))
    return Program(graph, tuple(data), (), tuple(outputs)), data


@pytest.fixture(scope="module")
def results():
    program, data = traced(COMPILED)
    return cpu.compile(program).run(data, {}, 1)


@pytest.mark.parametrize(
    "number", range(len(COMPILED)), ids=lambda n: title(COMPILED[n])
)
def test_on_the_cpu(results, number: int) -> None:
    call = COMPILED[number]
    eager = tree.flatten(getattr(ops, call.name)(*call.args, **call.kwargs))
    for place, right in enumerate(eager):
        got = results[f"{number}/{place}"][0]
        assert got.dtype == right.dtype
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=2e-6)


def test_cuda_has_text_for_all_that_is_not_computed_by_the_host() -> None:
    program, _ = traced(COMPILED)
    on_host = {
        name
        for name, value in program.graph.outputs.items()
        if Graph.of("part", (), {"y": value}).host_calls
    }
    kept = {n: v for n, v in program.graph.outputs.items() if n not in on_host}
    used = {v.name for v in toposort(kept.values()) if isinstance(v, Input)}
    inputs = [value for value in program.graph.inputs if value.name in used]
    graph = Graph.of("device", inputs, kept)
    assert not any(isinstance(v, Node) and v.op.kind == "host" for v in graph.nodes)
    program = Program(graph, tuple(sorted(used)), (), tuple(kept))
    text = str(emit.emit_program(program, GpuSpec()).functions)
    for part in ("atan2f(", "erfcf(", " >> "):
        assert part in text


class Repeated(ganglion.layers.Layer):
    """Rows as often as constants say that the model computes with."""

    def call(self, x):
        counts = ops.bincount(ops.cast(ops.convert_to_tensor([0, 1, 1]), "int32"))
        rows = ops.repeat(ops.mean(x, axis=0)[:2], counts)
        return x * ops.sum(rows) + ops.sum(ops.arange(ops.max(counts) + 1))


def test_sizes_may_be_computed_from_what_is_known():
    model = ganglion.Sequential([ganglion.Input((2,)), Repeated()])
    x = np.array([[1, 2], [3, 4]], "float32")
    wanted = x * (2 + 3 + 3) + 3
    np.testing.assert_allclose(model(x), wanted)
    np.testing.assert_allclose(model.predict(x, verbose=0), wanted)


def test_sizes_that_depend_on_data_are_refused_by_name():
    class ByData(ganglion.layers.Layer):
        def call(self, x):
            return ops.repeat(x, ops.cast(x[0], "int32"), axis=1)

    model = ganglion.Sequential([ByData()])
    with pytest.raises(NotImplementedError, match=r"ops\.repeat.*known when a model"):
        model.predict(np.ones((2, 2)), verbose=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_bits_are_seen_as_16_bit_floats(dtype):
    x = np.arange(9, 13, dtype="uint16")
    compiled = ganglion.function(lambda x: ops.view(x, dtype))
    np.testing.assert_array_equal(compiled(x), ops.view(x, dtype))
