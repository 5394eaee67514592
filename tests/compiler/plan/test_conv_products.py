"""Convolutions as products: few channels out of many, and sums in parts."""

import numpy as np
import pytest
from cpu_checks import compiled
from step_programs import program_of

from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Contract

pytest.importorskip("llvmlite")

# Images with their channels, taps, channels out, padding, dilation.
CASES = [
    ((6, 9, 8, 32), (7, 7), 1, ((3, 3), (3, 3)), (1, 1)),
    ((4, 7, 10, 17), (3, 3), 3, ((0, 2), (1, 0)), (1, 1)),
    ((3, 9, 9, 16), (3, 5), 4, ((1, 1), (4, 4)), (2, 1)),
    ((5, 23, 24), (9,), 1, ((4, 4),), (1,)),
    ((2, 5, 6, 4, 16), (3, 2, 3), 2, ((1, 1), (0, 1), (2, 0)), (1, 1, 1)),
]


def pass_of(name, case):
    """Return the arrays of a pass and its attributes."""
    images, taps, out, pairs, dilation = case
    rng = np.random.default_rng(0)
    sizes = zip(images[1:-1], taps, pairs, dilation, strict=True)
    spatial = [n + lo + hi - (k - 1) * d for n, k, (lo, hi), d in sizes]
    x = rng.standard_normal(images)
    w = rng.standard_normal((*taps, images[-1], out))
    dy = rng.standard_normal((images[0], *spatial, out))
    strides = (1,) * len(taps)
    attrs = {"strides": strides, "pairs": pairs, "dilation": dilation, "groups": 1}
    arrays = (x, w) if name == "conv" else (x, dy)
    more = {} if name == "conv" else {"kernel": taps}
    return [array.astype("float32") for array in arrays], attrs | more


def check_meaning(program, plan, data, exact):
    """Compare the interpreter and 1 to 3 threads, of equal bits, with doubles."""
    scale = np.abs(exact).max()
    meant = PlanInterpreter(plan).run(data, {}, 1)["y"][0]
    np.testing.assert_allclose(meant, exact, atol=1e-5 * scale)
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    np.testing.assert_allclose(results[0][1], exact, atol=1e-5 * scale)
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


@pytest.mark.parametrize("name", ["conv", "conv_kernel"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_taps_are_columns_or_rows_of_a_product(name, case):
    arrays, attrs = pass_of(name, case)
    program, data = (
        program_of(OPS[name], arrays, attrs),
        {f"x{i}": array for i, array in enumerate(arrays)},
    )
    plan = build(program)
    (product,) = (kernel for kernel in plan.kernels if isinstance(kernel, Contract))
    axes = product.columns if name == "conv" else product.rows
    assert np.prod([axis.size for axis in axes]) == np.prod(case[1]) * case[2]
    exact = OPS[name].meaning(*(array.astype("float64") for array in arrays), **attrs)
    check_meaning(program, plan, data, exact)


# Outputs with their channels, taps, strides, padding; 18 channels are spread.
SPREAD = [
    ((9, 8, 1), (3, 3), (2, 2), ((0, 1), (0, 1))),
    ((10, 13, 3), (4, 5), (2, 3), ((1, 2), (0, 0))),
    ((7, 9, 4), (3, 3), (3, 1), ((2, 0), (1, 1))),
    ((11, 12, 1), (3, 4), (4, 2), ((0, 0), (3, 2))),
    ((23, 2), (9,), (2,), ((4, 4),)),
    ((8, 9, 3), (3, 5), (1, 1), ((1, 2), (0, 4))),
    ((5, 6, 4, 1), (3, 2, 3), (2, 2, 1), ((1, 1), (0, 0), (1, 1))),
]


@pytest.mark.parametrize("case", SPREAD, ids=str)
def test_transposed_taps_are_columns_of_a_product(case):
    (*outputs, channels), taps, strides, pairs = case
    sizes = zip(outputs, taps, strides, pairs, strict=True)
    spatial = [(n + lo + hi - k) // s + 1 for n, k, s, (lo, hi) in sizes]
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((3, *spatial, 18)).astype("float32")
    w = rng.standard_normal((*taps, channels, 18)).astype("float32")
    attrs = {"strides": strides, "pairs": pairs, "groups": 1}
    attrs |= {"dilation": (1,) * len(taps), "spatial": tuple(outputs)}
    program = program_of(OPS["conv_transpose"], [dy, w], attrs)
    plan = build(program)
    (product,) = (kernel for kernel in plan.kernels if isinstance(kernel, Contract))
    assert product.columns[0].size == np.prod(taps) * channels
    exact = OPS["conv_transpose"].meaning(dy.astype("f8"), w.astype("f8"), **attrs)
    check_meaning(program, plan, {"x0": dy, "x1": w}, exact)


def test_padding_wider_than_the_kernel_is_left_to_the_plain_way():
    case = ((4, 7, 8, 32), (3, 3), 1, ((4, 3), (1, 1)), (1, 1))
    arrays, attrs = pass_of("conv_kernel", case)
    program = program_of(OPS["conv_kernel"], arrays, attrs)
    exact = OPS["conv_kernel"].meaning(*(a.astype("f8") for a in arrays), **attrs)
    data = {f"x{i}": array for i, array in enumerate(arrays)}
    result = compiled(program, 2).run(data, {}, 1)["y"][0]
    np.testing.assert_allclose(result, exact, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize(("channels", "parts"), [(64, 32), (256, 16), (512, 4)])
def test_large_gradients_of_kernels_are_summed_in_fewer_parts(channels, parts):
    """Parts of their own for all threads would be more memory than the images."""
    x = np.zeros((64, 2, 2, channels), "float32")
    window = {"strides": (1, 1), "dilation": (1, 1), "pairs": ((0, 0),) * 2}
    attrs = window | {"groups": 1, "kernel": (1, 1)}
    plan = build(program_of(OPS["conv_kernel"], [x, x], attrs))
    (product,) = (kernel for kernel in plan.kernels if isinstance(kernel, Contract))
    assert product.batch[0].size == parts
