"""Convolutions of sequences, computed as those of images with one row."""

import numpy as np
import pytest
from cpu_checks import by_winograd, compiled, conv_pass

from ganglion import config

pytest.importorskip("llvmlite")

# Taps, stride, (sequences, steps), channels in and out, padding.
CASES = [
    (3, 1, (32, 250), (16, 40), (1, 1)),
    (5, 1, (40, 125), (24, 17), (2, 2)),
    (4, 1, (64, 61), (32, 32), (0, 0)),
    (2, 1, (32, 250), (16, 40), (1, 0)),
    (5, 2, (32, 251), (24, 40), (2, 1)),
    (6, 2, (32, 250), (16, 24), (2, 2)),
    (7, 1, (32, 250), (16, 40), (3, 3)),
    (9, 1, (32, 125), (24, 16), (8, 0)),
]
PASSES = ("conv", "conv_transpose", "conv_kernel")


def pass_of(name, case, dilation=1):
    """Return a pass along one axis as a program, its data, its result in doubles."""
    taps, stride, sizes, channels, pair = case
    whole = (taps,), (stride,), sizes, channels, (pair,)
    return conv_pass(name, whole, (dilation,))


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_passes_against_float64_on_any_number_of_threads(name, case):
    program, data, exact = pass_of(name, case)
    assert by_winograd(program)
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    assert np.abs(results[0][1] - exact).max() < 2e-5 * np.abs(exact).max()
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


@pytest.mark.parametrize(
    ("case", "dilation"),
    [
        ((3, 1, (32, 250), (16, 40), (1, 1)), 2),
        ((3, 1, (32, 250), (4, 40), (1, 1)), 1),  # channels
        ((7, 1, (120, 6), (16, 40), (3, 3)), 1),  # taps that a step may not meet
        ((3, 1, (2, 20), (16, 40), (1, 1)), 1),  # tiles
    ],
    ids=str,
)
def test_other_sequences_are_left_alone(case, dilation):
    program, _, _ = pass_of("conv", case, dilation)
    assert not by_winograd(program)
    names = [f"{node.op.name}{node.shape}" for node in program.graph.nodes]
    assert len(names) == 1


def test_precise_is_direct():
    program, _, _ = pass_of("conv", CASES[0])
    before = config.precise()
    config.set_precise(True)
    try:
        assert not by_winograd(program)
    finally:
        config.set_precise(before)
