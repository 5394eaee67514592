"""Convolutions of volumes, computed as those of images for each slice."""

import numpy as np
import pytest
from cpu_checks import compiled

from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.interpreter import PlanInterpreter

pytest.importorskip("llvmlite")

# Taps, strides, (volumes, their sizes), channels in and out, padding.
SAME = ((1, 1),) * 3
CASES = [
    ((3, 3, 3), (1, 1, 1), (3, 9, 17, 16), (16, 24), SAME),
    ((2, 3, 3), (1, 1, 1), (4, 8, 18, 13), (8, 32), ((1, 0), (0, 0), (2, 1))),
    ((5, 3, 3), (1, 1, 1), (2, 5, 24, 24), (9, 16), ((4, 0), (1, 1), (1, 1))),
    ((3, 4, 4), (1, 2, 2), (3, 7, 28, 26), (16, 17), SAME),
    ((1, 3, 3), (1, 1, 1), (3, 6, 16, 18), (24, 8), ((0, 0), (1, 1), (1, 1))),
]
PASSES = ("conv", "conv_transpose", "conv_kernel")


def pass_of(name, case, dilation=(1, 1, 1)):
    """Return a pass as a program, its data, and its result in doubles."""
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


def by_winograd(program):
    kernels = build(program).kernels
    return any(type(kernel).__name__.startswith("Winograd") for kernel in kernels)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_passes_against_float64_on_any_number_of_threads(name, case):
    program, data, exact = pass_of(name, case)
    assert by_winograd(program)
    meant = PlanInterpreter(build(program)).run(data, {}, 1)["y"][0]
    assert np.abs(meant - exact).max() < 2e-5 * np.abs(exact).max()
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    assert np.abs(results[0][1] - exact).max() < 4e-5 * np.abs(exact).max()
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


@pytest.mark.parametrize(
    ("case", "dilation"),
    [
        (((3, 3, 3), (2, 1, 1), (3, 9, 17, 16), (16, 24), SAME), (1, 1, 1)),
        (((3, 3, 3), (1, 1, 1), (3, 9, 17, 16), (16, 24), SAME), (2, 1, 1)),
        (((3, 3, 3), (1, 1, 1), (3, 9, 17, 16), (1, 24), SAME), (1, 1, 1)),
    ],
    ids=str,
)
def test_other_volumes_are_left_alone(case, dilation):
    program, _, _ = pass_of("conv", case, dilation)
    assert not by_winograd(program)
