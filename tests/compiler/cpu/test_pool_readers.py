"""Pools' gradients that their readers compute: the same numbers, without the array."""

import numpy as np
import pytest
from cpu_checks import check, pure

from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import add, multiply
from ganglion.compiler.ir.pooling import max_pool_back
from ganglion.compiler.ir.shaping import reshape, sum_
from ganglion.compiler.plan.scan_scatter import PoolBack


def pooled(images, window, readers):
    """Return a program that reads what a pool gives back, and arrays with ties."""
    small = (images[0], *(n // w for n, w in zip(images[1:-1], window, strict=True)))
    small = (*small, images[-1])
    x, dy = Input("x", images, np.float32), Input("dy", small, np.float32)
    attrs = {"window": window, "strides": window, "pairs": ((0, 0),) * len(window)}
    y = Input("y", small, np.float32)
    dx = max_pool_back(x, y, dy, **attrs)
    graph = Graph.of("pooled", [x, y, dy], readers(x, dx))
    draw = np.random.default_rng(sum(images))
    arrays = {
        "x": draw.integers(-1, 2, images).astype(np.float32),
        "dy": draw.normal(size=small).astype(np.float32),
    }
    cut = [images[0]]
    for n, w in zip(small[1:-1], window, strict=True):
        cut += [n, w]
    taps = tuple(range(2, 2 * len(window) + 1, 2))
    arrays["y"] = arrays["x"].reshape(*cut, images[-1]).max(taps)
    return pure(graph), arrays


def sums(x, dx):
    """Sums by channel, as batch norm takes them."""
    axes = tuple(range(dx.ndim - 1))
    return {"one": sum_(dx, axes=axes), "two": sum_(multiply(dx, x), axes=axes)}


def sums_of_slices(x, dx):
    """Sums of some images each."""
    cut = reshape(multiply(dx, x), shape=(2, dx.shape[0] // 2, *dx.shape[1:]))
    return {"cut": sum_(cut, axes=tuple(range(1, cut.ndim - 1)))}


def mapped(x, dx):
    """Something else at each place, which a product reads."""
    rows = reshape(add(dx, x), shape=(dx.shape[0], dx.size // dx.shape[0]))
    return {"product": matmul(rows, reshape(rows, shape=rows.shape[::-1]))}


def stored(program):
    return any(isinstance(kernel, PoolBack) for kernel in build(program).kernels)


@pytest.mark.parametrize("readers", [sums, sums_of_slices, mapped])
@pytest.mark.parametrize(
    ("images", "window"),
    [
        ((4, 8, 6, 24), (2, 2)),
        ((2, 6, 9, 16), (1, 3)),
        ((4, 12, 7), (4,)),
        ((2, 4, 2, 3, 5), (2, 1, 1)),
    ],
)
def test_readers_find_the_first_largest_element(images, window, readers):
    program, arrays = pooled(images, window, readers)
    assert not stored(program)
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)


def test_an_unknown_element_gets_nothing():
    program, arrays = pooled((2, 4, 4, 16), (2, 2), sums)
    arrays["x"][0, 0, 0, 3] = arrays["y"][0, 0, 0, 3] = np.nan
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "readers",
    [
        lambda x, dx: {"dx": dx},
        lambda x, dx: {"rows": sum_(dx, axes=(1, 3))},
        lambda x, dx: sums(x, dx) | {"dx": dx},
    ],
)
def test_others_are_given_the_array(readers):
    program, arrays = pooled((4, 8, 6, 24), (2, 2), readers)
    assert stored(program)
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)


def test_large_windows_are_given_the_array():
    program, arrays = pooled((4, 9, 6, 8), (3, 3), sums)
    assert stored(program)
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
