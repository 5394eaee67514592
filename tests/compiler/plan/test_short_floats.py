"""Floats of 16 bits: the same bits in the reference, on the CPU and as CUDA text."""

import cuda_host
import ml_dtypes
import numpy as np
import pytest
from cpu_checks import op_program, pure, ran, training_step
from cuda_checks import check, compiled
from layer_cases import CASES

from ganglion import config
from ganglion.compiler import reference
from ganglion.compiler.cpu import backend, pipeline
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.contraction import gather, matmul
from ganglion.compiler.ir.graph import Graph, Input, Program, is_short
from ganglion.compiler.ir.scan import make_scan
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.passes.short_floats import compute_in_float32

SHORT = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# Twice the distance of neighbours near 1: functions differ in the last bit of float32,
# which is seldom that of 16 bits.
LAST_BITS = {"float16": 2e-3, "bfloat16": 1.6e-2}
needs_compiler = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")


def conversions(dtype: str) -> tuple[Program, dict[str, np.ndarray]]:
    """Return a program that converts both ways, and numbers of every kind."""
    every = np.arange(1 << 16, dtype=np.uint16).view(SHORT[dtype])
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 14, dtype=np.uint32)
    wide = bits.view("f4")
    with np.errstate(all="ignore"):
        near = every.astype("f4") * np.float32(1 + 2**-11)  # halfway and about
        small = rng.normal(size=1 << 12).astype("f4") * np.float32(2.0**-20)
    x = Input("x", every.shape, every.dtype)
    y = Input("y", (len(wide) + len(near) + len(small),), "float32")
    outputs = {"wide": p.cast(x, dtype="float32"), "short": p.cast(y, dtype=dtype)}
    data = {"x": every, "y": np.concatenate([wide, near, small])}
    return pure(Graph.of("conversions", [x, y], outputs)), data


def same_numbers(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == theirs.dtype
    ours, theirs = ours.astype("f4"), theirs.astype("f4")
    np.testing.assert_array_equal(ours, theirs)
    ordered = ~np.isnan(theirs)
    np.testing.assert_array_equal(
        np.signbit(ours[ordered]), np.signbit(theirs[ordered])
    )


@pytest.mark.parametrize("dtype", SHORT)
def test_every_number_is_converted_as_numpy_does(dtype):
    program, data = conversions(dtype)
    _, ours = ran(backend.compile(program), data, {}, 1)
    _, theirs = ran(reference.compile(program), data, {}, 1)
    for name, expected in theirs.items():
        same_numbers(ours[name], expected)


@needs_compiler
@pytest.mark.parametrize("dtype", SHORT)
def test_cuda_text_converts_every_number(dtype):
    program, data = conversions(dtype)
    _, ours = ran(compiled(program), data, {}, 1)
    _, theirs = ran(reference.compile(program), data, {}, 1)
    for name, expected in theirs.items():
        same_numbers(ours[name], expected)


def drawn(name: str, dtype: str):
    op = OPS[name]
    arrays, attrs = op.domain(np.random.default_rng(0))
    arrays = [a.astype(SHORT[dtype]) if a.dtype == np.float64 else a for a in arrays]
    attrs = {k: dtype if v == "float64" else v for k, v in attrs.items()}
    return op_program(op, arrays, attrs)


def close(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    if is_short(theirs.dtype):
        ours, theirs = ours.astype("f4"), theirs.astype("f4")
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance)


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("name", sorted(n for n in OPS if OPS[n].domain))
def test_every_op_on_the_cpu(name, dtype):
    program, data = drawn(name, dtype)
    _, ours = ran(backend.compile(program), data, {}, 1)
    _, theirs = ran(reference.compile(program), data, {}, 1)
    close(ours["y"], theirs["y"], LAST_BITS[dtype])


def step(dtype: str) -> tuple[Program, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a step with a table and weights of 16 bits, products and a loop."""
    rng = np.random.default_rng(1)
    table, weights = Input("table", (7, 8), dtype), Input("weights", (8, 8), dtype)
    index = Input("index", (5, 4), "int32")
    rows = gather(table, index)  # five steps of a batch of four

    def turn(carries, slices):
        state = p.tanh(p.add(matmul(carries[0], weights), slices[0]))
        return [state], [state]

    first = Input("first", (4,), "int32")
    last, every = make_scan(turn, [gather(table, first)], [rows], 5)
    outputs = {
        "weights": p.subtract(weights, matmul(weights, weights)),
        "every": every[0],
        "last": last[0],
    }
    graph = Graph.of("step", [table, index, first, weights], outputs)
    data = {
        "table": rng.normal(size=(7, 8)).astype(SHORT[dtype]),
        "index": rng.integers(0, 7, (5, 4)).astype("int32"),
        "first": rng.integers(0, 7, 4).astype("int32"),
    }
    state = {"weights": (rng.normal(size=(8, 8)) / 4).astype(SHORT[dtype])}
    return Program(graph, tuple(data), ("weights",), ("every", "last")), data, state


@pytest.mark.parametrize("dtype", SHORT)
def test_state_tables_and_loops(dtype):
    program, data, state = step(dtype)
    ours = ran(backend.compile(program), data, state, 2)
    theirs = ran(reference.compile(program), data, state, 2)
    for mine, other in zip(ours, theirs, strict=True):
        for name, array in other.items():
            close(mine[name], array, 2 * LAST_BITS[dtype])


@needs_compiler
@pytest.mark.parametrize("dtype", SHORT)
def test_state_tables_and_loops_as_cuda_text(dtype):
    program, data, state = step(dtype)
    check(program, data, state, steps=2, tolerance=2 * LAST_BITS[dtype], precise="tf32")


def test_a_graph_without_them_is_left_alone():
    x = Input("x", (3,), "float32")
    graph = Graph.of("plain", [x], {"y": p.add(x, x)})
    program = Program(graph, ("x",), (), ("y",))
    assert pipeline.build(program, after="short-floats") is program


def test_tables_are_converted_row_by_row():
    program, _, _ = step("float16")
    graph = compute_in_float32(program.graph)
    tables = [node.inputs[0] for node in graph.nodes if node.op is gather]
    assert all(table is graph.inputs[0] for table in tables)


@needs_compiler
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize("layer", ["Conv2D", "Embedding", "LayerNormalization"])
def test_a_training_step_as_cuda_text(layer, policy):
    """Products, tables and sums of a model: tensor cores take what it rounds."""
    config.set_dtype_policy(policy)
    case = next(case for case in CASES if case.layer == layer)
    program, data, state = training_step(case, "float32")
    precise = "bf16" if "bfloat16" in policy else "tf32"
    tolerance = 2 * LAST_BITS["bfloat16" if precise == "bf16" else "float16"]
    check(program, data, state, steps=2, tolerance=tolerance, precise=precise)
