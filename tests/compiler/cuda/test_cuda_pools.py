"""Gradients of pooling, on a CPU that plays a GPU."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import pure
from cuda_checks import check

from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pooling import max_pool, max_pool_back, sum_pool_back
from ganglion.compiler.plan.kernels import Loop, PoolBack

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)

WINDOWS = [  # image, window, strides, pairs
    ((6, 8), (2, 2), (2, 2), ((0, 0), (0, 0))),  # every element in one
    ((7, 9), (2, 3), (2, 3), ((0, 0), (0, 0))),  # some in none
    ((7, 6), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((8, 9), (3, 2), (2, 1), ((0, 1), (1, 0))),
    ((9, 5), (2, 1), (3, 2), ((0, 0), (0, 0))),  # gaps between windows
    ((5, 4), (2, 2), (2, 2), ((1, 2), (2, 1))),  # windows of nothing but padding
    ((17,), (9,), (4,), ((3, 3),)),
    ((4, 3, 5), (2, 2, 2), (1, 2, 2), ((0, 1), (0, 1), (1, 0))),
]


def back(image, window, strides, pairs, x=None, channels=4):
    """Return both gradients as a program, and what it runs on."""
    rng = np.random.default_rng(0)
    options = {"window": window, "strides": strides, "pairs": pairs}
    given = Input("x", (3, *image, channels), "float32")
    y = max_pool(given, **options)
    dy = Input("dy", y.shape, "float32")
    ends = {
        "largest": max_pool_back(given, y, dy, **options),
        "all": sum_pool_back(dy, spatial=image, **options),
    }
    if x is None:  # few numbers: some are the largest of a window more than once
        x = rng.integers(0, 4, given.shape)
    slopes = rng.normal(size=dy.shape)
    data = {"x": x.astype("float32"), "dy": slopes.astype("float32")}
    return pure(Graph.of("back", [given, dy], ends)), data


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_elements_are_given_what_windows_have(case, written, monkeypatch):
    monkeypatch.setattr(TUNING, "fewest_depthwise_elements", 1 if written else 1 << 30)
    program, data = back(*case)
    check(program, data, {}, tolerance=1e-5)


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_with_nan_give_to_nobody(case):
    x = np.random.default_rng(1).normal(size=(3, *case[0], 4))
    x.ravel()[::11] = np.nan
    program, data = back(*case, x=x)
    check(program, data, {}, tolerance=1e-5)


def test_no_window_waits_for_another():
    for case in WINDOWS:
        kernels = build(back(*case)[0], GpuSpec(), after="fuse").kernels
        assert not any(isinstance(one, Loop) and one.adds for one in kernels)
        assert all(one.covers for one in kernels if isinstance(one, PoolBack))
