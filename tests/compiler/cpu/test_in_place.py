"""Loops in place: who may write over what it reads, with the same results."""

import numpy as np
import pytest
from cpu_checks import compiled

from ganglion.compiler import reference
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Loop

pytest.importorskip("llvmlite")

WINDOW = {"strides": (1, 1), "pairs": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}


def convolutions(between, images=64):
    """Return a program of two convolutions, and its data: what is between is given."""
    x = Input("x", (images, 8, 8, 16), np.dtype("float32"))
    w = Input("w", (3, 3, 16, 16), np.dtype("float32"))
    first = OPS["conv"](x, w, **WINDOW)
    outputs = {"y": OPS["conv"](between(first), w, **WINDOW)}
    program = Program(Graph.of("net", [x, w], outputs), ("x", "w"), (), ("y",))
    rng = np.random.default_rng(0)
    data = {v.name: rng.standard_normal(v.shape).astype("f4") / 8 for v in (x, w)}
    return program, data


def loops_in_place(plan):
    """Return the loops that write what they read."""
    loops = (kernel for kernel in plan.kernels if isinstance(kernel, Loop))
    return [loop for loop in loops if loop.memory_read & loop.memory_written]


def check(program, data):
    """Check results against the reference, on any number of threads."""
    expected = reference.compile(program).run(data, {}, 1)["y"]
    meant = PlanInterpreter(build(program)).run(data, {}, 1)["y"]
    np.testing.assert_allclose(meant, expected, rtol=1e-4, atol=1e-5)
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    np.testing.assert_allclose(results[0][:1], expected, rtol=1e-3, atol=1e-4)
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


@pytest.mark.parametrize("images", [64, 67, 130])
def test_what_follows_a_convolution_writes_over_it(images):
    program, data = convolutions(lambda y: OPS["sin"](OPS["exp"](y)), images)
    before = build(program, after="cache-blocking")
    plan = build(program)
    assert not loops_in_place(before)
    (loop,) = loops_in_place(plan)
    assert loop.memory_read == loop.memory_written
    assert len(plan.temporary_arrays()) == len(before.temporary_arrays()) - 1
    check(program, data)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_read_elsewhere_is_kept(axis):

    def mirrored(y):
        return OPS["add"](y, OPS["reverse"](y, axes=(axis,)))

    program, data = convolutions(mirrored)
    assert not loops_in_place(build(program))
    check(program, data)


def test_what_another_kernel_reads_is_kept():
    def weighed(y):
        total = OPS["max"](y, axes=(0, 1, 2))
        return OPS["multiply"](y, OPS["broadcast"](total, shape=y.shape))

    program, data = convolutions(weighed)
    assert not loops_in_place(build(program))
    check(program, data)
