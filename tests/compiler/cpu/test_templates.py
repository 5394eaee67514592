"""Loops that are told their sizes: the bits of loops that have them in their text."""

from dataclasses import replace

import numpy as np
import pytest
from cpu_checks import compiled, op_program, pure, ran, same, step_of_model

from ganglion import layers, models
from ganglion.compiler.cpu import backend, emit, jit
from ganglion.compiler.cpu.elementwise import suits_lanes
from ganglion.compiler.cpu.emit import form_of
from ganglion.compiler.cpu.passes.barriers import place_barriers
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.text import F32, Parameter
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import fill
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Indirect,
    Literal,
    Load,
    Loop,
    View,
)

CASES = {
    "add": ("add", [(5, 37), (5, 37)], "float32", {}),
    "exp": ("exp", [(3, 100)], "float32", {}),
    "double": ("multiply", [(3, 100), (3, 100)], "float64", {}),
    "compared": ("less", [(4, 33), (4, 33)], "int32", {}),
    "rows added up": ("sum", [(100, 37)], "float32", {"axes": (0,)}),
    "of three axes": ("sum", [(3, 50, 41)], "float32", {"axes": (1,)}),
    "columns added up": ("sum", [(20, 67)], "float32", {"axes": (1,)}),
    "full vectors added up": ("sum", [(20, 64)], "float32", {"axes": (1,)}),
    "few added up": ("sum", [(20, 17)], "float64", {"axes": (1,)}),
    "all added up": ("sum", [(19, 23, 29)], "float32", {"axes": (0, 1, 2)}),
    "largest": ("max", [(20, 37)], "float32", {"axes": (1,)}),
    "largest of rows": ("max", [(20, 3, 37)], "int32", {"axes": (0,)}),
    "index of the largest": ("argmax", [(20, 37)], "float32", {"axis": 1}),
    "of one vector": ("argmax", [(20, 16)], "float32", {"axis": 1}),
    "transposed": ("transpose", [(37, 50)], "float32", {"axes": (1, 0)}),
    "of three": ("transpose", [(9, 37, 20)], "float32", {"axes": (2, 0, 1)}),
    "reversed": ("reverse", [(20, 37)], "float32", {"axes": (1,)}),
}  # fmt: skip


def sizes_in_texts(monkeypatch):
    monkeypatch.setattr(emit, "_is_general", lambda _: False)


@pytest.mark.parametrize("case", CASES)
def test_loops_have_the_same_bits(monkeypatch, case):
    name, shapes, dtype, attrs = CASES[case]
    draw = np.random.default_rng(len(case))
    arrays = [(9 * draw.normal(size=shape)).astype(dtype) for shape in shapes]
    for array in arrays:
        array[0, :2] = 0  # equal ones, and, of a sign, zeros
        array[-1] *= -1
    program, data = op_program(OPS[name], arrays, attrs)
    loops = [k for k in build(program).kernels if isinstance(k, Loop)]
    assert any(form_of(loop).values for loop in loops)
    told = [ran(compiled(program, threads), data, {}, 1) for threads in (1, 3)]
    sizes_in_texts(monkeypatch)
    known = ran(compiled(program, 1), data, {}, 1)
    for result in told:
        same(result, known)


def test_a_step_has_the_same_bits(monkeypatch):
    model = models.Sequential(
        [
            layers.Dense(37, "gelu"),
            layers.BatchNormalization(),
            layers.Dropout(0.4),
            layers.Dense(19, "softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    draw = np.random.default_rng(0)
    x = draw.normal(size=(42, 21)).astype("float32")
    y = draw.integers(0, 19, 42).astype("int32")
    program, data, state = step_of_model(model, x, y, 21, 42)
    told = ran(compiled(program, 2), data, state, 2)
    sizes_in_texts(monkeypatch)
    same(told, ran(compiled(program, 1), data, state, 2))


def test_a_new_width_needs_no_new_texts():
    """Neither of loops, nor of products that go through lists of nonzeros."""

    def keys(width):
        norm, drop = layers.BatchNormalization(), layers.Dropout(0.1)
        parts = [layers.Dense(width, "relu"), norm, drop, layers.Dense(10, "softmax")]
        model = models.Sequential(parts)
        model.compile("adam", "sparse_categorical_crossentropy")
        x, y = np.ones((64, 200), "float32"), np.zeros(64, "int32")
        program, _, _ = step_of_model(model, x, y, 64, 64)
        return {form_of(kernel).key for kernel in build(program).kernels}

    assert keys(104) == keys(72)


@pytest.mark.parametrize("strides", [(40, 2), (1, 0)])
def test_rows_that_an_index_chooses(monkeypatch, strides):
    """Of each lane another, or of all the same."""
    table, index = Input("table", (9, 40), "float32"), Input("index", (3, 40), "int32")
    arrays = {
        "table": np.random.default_rng(0).normal(size=(9, 40)).astype("float32"),
        "index": np.arange(120, dtype="int32").reshape(3, 40) % 9,
    }
    sources = {
        name: Buffer(name, a.shape, a.dtype, "data") for name, a in arrays.items()
    }
    row = Load(np.dtype("int32"), View(sources["index"], strides))
    chosen = Indirect(np.dtype("float32"), sources["table"], row, 9, 40, (0, 1))
    target = Buffer("y", (3, 20), np.dtype("float32"), "result")
    loop = Loop.of("gather", (3, 20), chosen, View.of(target))
    gathered = Graph.of("gather", [table, index], {"y": fill(0.0, table)})
    plan = replace(build(pure(gathered)), kernels=(loop,), results={"y": target})
    plan = place_barriers(replace(plan, segments=(), offsets={}, execution=()))
    results = []
    for _ in range(2):
        executable = backend.CompiledProgram(plan)
        executable.forced_threads = 1
        results.append(ran(executable, arrays, {}, 1))
        sizes_in_texts(monkeypatch)
    same(*results)
    rows = np.lib.stride_tricks.as_strided(
        arrays["index"], (3, 20), [4 * stride for stride in strides]
    )
    expected = arrays["table"][rows, np.arange(20)]
    np.testing.assert_array_equal(results[0][1]["y"][0], expected)


def test_sums_of_rows_that_an_index_chooses_have_columns_in_their_lanes():
    def loop(columns, rows):
        table, number = (Buffer(n, (9, 40), F32, "arena") for n in ("table", "index"))
        row = Load(F32, View(number, rows))
        chosen = Indirect(F32, table, row, 9, 40, columns)
        target = View(Buffer("y", (4, 40), F32, "arena"), (40, 1))
        return Loop.of("bag", (4, 40, 7), chosen, target, 1, "sum")

    assert suits_lanes(loop((0, 1, 0), (7, 0, 1)))
    assert not suits_lanes(loop((0, 2, 0), (7, 0, 1)))
    assert not suits_lanes(loop((0, 1, 0), (7, 1, 0)))


def test_a_text_cannot_ask_for_a_parameter():
    size = Parameter(3)
    assert f"{size}" == str(size) == "%p3"
    assert size not in (0, 1)
    for ask in (lambda: size < 8, lambda: size // 16, lambda: 2 * size, lambda: -size):
        with pytest.raises(TypeError, match="%p3 is not known"):
            ask()


def test_zeros_of_two_signs_have_texts_of_their_own():
    def key(number):
        dtype = np.dtype("float32")
        load = Load(dtype, View.of(Buffer("x", (40,), dtype, "arena")))
        chosen = Apply(dtype, "maximum", (load, Literal(dtype, number)))
        target = View.of(Buffer("y", (40,), dtype, "arena"))
        return form_of(Loop.of("maximum", (40,), chosen, target)).key

    assert key(0.0) == key(0.0)
    assert key(0.0) != key(-0.0)


def test_functions_live_as_long_as_a_program_has_them(monkeypatch):
    monkeypatch.setattr(jit, "CACHED_FUNCTIONS", 1)
    runs = []
    for size in (20, 40):
        arrays = [np.arange(3.0 * size, dtype="float32").reshape(3, size)] * 2
        for name in ("add", "multiply"):
            program, data = op_program(OPS[name], arrays, {})
            runs.append((compiled(program, 1), data, getattr(np, name)(*arrays)))
    backend.free_memory()
    for executable, data, expected in runs:
        _, results = ran(executable, data, {}, 1)
        np.testing.assert_array_equal(results["y"][0], expected)
