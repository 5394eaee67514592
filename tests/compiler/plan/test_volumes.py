"""Convolutions of volumes, computed as those of images for each slice."""

import numpy as np
import pytest
from cpu_checks import by_winograd, compiled, conv_pass

from ganglion.compiler.cpu.pipeline import build
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


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_passes_against_float64_on_any_number_of_threads(name, case):
    program, data, exact = conv_pass(name, case, (1, 1, 1))
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
    program, _, _ = conv_pass("conv", case, dilation)
    assert not by_winograd(program)
