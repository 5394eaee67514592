"""Convolutions, pools, slices and products on awkward shapes, and against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from op_checks import assert_gradients, assert_inferred

from ganglion.compiler.ir import arrays, contraction, pooling, shaping
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Constant, Input, evaluate

# ---- awkward shapes --------------------------------------------------------------


def _conv_case(
    spatial: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    strides: tuple[int, ...] | None = None,
    pairs: tuple[tuple[int, int], ...] | None = None,
    dilation: tuple[int, ...] | None = None,
    groups: int = 1,
    channels: tuple[int, int] = (2, 3),
    batch: int = 2,
) -> tuple[tuple[int, ...], tuple[int, ...], dict]:
    rank = len(spatial)
    cin, cout = channels
    window = {
        "strides": strides or (1,) * rank,
        "pairs": pairs or ((0, 0),) * rank,
        "dilation": dilation or (1,) * rank,
        "groups": groups,
    }
    return (batch, *spatial, cin), (*kernel, cin // groups, cout), window


CONVS = {
    "one pixel": _conv_case((1, 1), (1, 1), channels=(1, 1), batch=1),
    "primes": _conv_case((7, 5), (3, 2), channels=(5, 3), batch=3),
    "stride over kernel": _conv_case((7, 8), (1, 2), strides=(3, 4)),
    "dilation": _conv_case((9, 7), (3, 2), dilation=(3, 4)),
    "groups": _conv_case((4, 3), (2, 2), groups=3, channels=(6, 9)),
    "depthwise": _conv_case((4, 4), (3, 3), groups=4, channels=(4, 8)),
    "lopsided padding": _conv_case((3, 4), (3, 2), pairs=((0, 2), (3, 1))),
    "padding over kernel": _conv_case((2, 2), (1, 1), pairs=((2, 0), (1, 2))),
    "kernel as large as image": _conv_case((4, 3), (4, 3)),
    "1-D": _conv_case((11,), (4,), strides=(3,), pairs=((2, 1),)),
    "1-D dilated groups": _conv_case(
        (9,), (2,), dilation=(5,), groups=2, channels=(4, 6)
    ),
    "3-D": _conv_case(
        (4, 3, 5), (2, 1, 3), strides=(2, 2, 1), pairs=((1, 0), (0, 0), (1, 1))
    ),
    "3-D depthwise": _conv_case((2, 3, 3), (2, 2, 2), groups=2, channels=(2, 2)),
}


@pytest.mark.parametrize("case", CONVS)
def test_the_three_convolutions_on_awkward_shapes(case: str) -> None:
    x_shape, w_shape, window = CONVS[case]
    rng = np.random.default_rng(3)
    x, w = rng.uniform(-1, 1, x_shape), rng.uniform(-1, 1, w_shape)
    y = assert_inferred(contraction.conv, [x, w], window)
    dy = rng.uniform(-1, 1, y.shape)
    back = window | {"spatial": x_shape[1:-1]}
    to_kernel = window | {"kernel": w_shape[:-2]}
    dx = assert_inferred(contraction.conv_transpose, [dy, w], back)
    dw = assert_inferred(contraction.conv_kernel, [x, dy], to_kernel)
    # One trilinear form seen from three sides.
    total = np.sum(y * dy)
    assert np.sum(x * dx) == pytest.approx(total, rel=1e-12, abs=1e-12)
    assert np.sum(w * dw) == pytest.approx(total, rel=1e-12, abs=1e-12)
    for op, drawn, attrs in (
        (contraction.conv, [x, w], window),
        (contraction.conv_transpose, [dy, w], back),
        (contraction.conv_kernel, [x, dy], to_kernel),
    ):
        assert_gradients(op, drawn, attrs, 0)


POOLS = {
    "one": ((1, 1, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))),
    "primes": ((2, 7, 5, 3), (3, 2), (2, 3), ((0, 0), (0, 0))),
    "stride over window": ((1, 8, 7, 2), (2, 1), (3, 4), ((0, 0), (0, 0))),
    "padded": ((2, 4, 3, 1), (3, 3), (2, 2), ((1, 1), (1, 0))),
    "overlapping": ((1, 5, 5, 2), (3, 3), (1, 1), ((1, 1), (1, 1))),
    "1-D": ((2, 9, 2), (4,), (3,), ((1, 2),)),
    "3-D": ((1, 3, 4, 3, 2), (2, 2, 3), (1, 2, 1), ((0, 0), (0, 1), (1, 1))),
}


@pytest.mark.parametrize("case", POOLS)
def test_pools_on_awkward_shapes(case: str) -> None:
    shape, window, strides, pairs = POOLS[case]
    attrs = {"window": window, "strides": strides, "pairs": pairs}
    rng = np.random.default_rng(5)
    x = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.1
    y = assert_inferred(pooling.max_pool, [x], attrs)
    assert np.isfinite(y).all()
    dy = rng.uniform(-1, 1, y.shape)
    dx = assert_inferred(pooling.max_pool_back, [x, y, dy], attrs)
    assert dx.sum() == pytest.approx(dy.sum())
    for op in (pooling.max_pool, pooling.sum_pool):
        assert_gradients(op, [x], attrs, 0)
    spread = attrs | {"spatial": shape[1:-1]}
    assert_inferred(pooling.sum_pool_back, [dy], spread)
    assert_gradients(pooling.sum_pool_back, [dy], spread, 0)


def test_the_first_of_equal_maxima_takes_the_whole_gradient() -> None:
    x = np.ones((1, 2, 2, 1))
    attrs = {"window": (2, 2), "strides": (2, 2), "pairs": ((0, 0), (0, 0))}
    y, dy = np.ones((1, 1, 1, 1)), np.full((1, 1, 1, 1), 5.0)
    back = pooling.max_pool_back.meaning(x, y, dy, **attrs)
    assert back[0, :, :, 0].tolist() == [[5.0, 0.0], [0.0, 0.0]]


def test_ties_of_a_maximum() -> None:
    """relu has slope 0 at 0, and equal largest elements share, as in Keras."""
    x = Input("x", (3,), "float64")
    known = {x: np.array([1.0, 2.0, 2.0])}
    pair = p.maximum(x, Constant(np.array([1.0, 1.0, 3.0])))
    for loss, expected in (
        (shaping.sum_(pair, axes=(0,)), [0.0, 1.0, 0.0]),
        (arrays.max_(x, axes=(0,)), [0.0, 0.5, 0.5]),
    ):
        assert evaluate([gradients(loss, [x])[x]], known)[0].tolist() == expected


SLICES = [
    ((5,), (0,), (5,), (1,)),
    ((5,), (1,), (5,), (3,)),
    ((7,), (2,), (3,), (4,)),
    ((4,), (2,), (2,), (1,)),
    ((1, 3), (0, 0), (1, 3), (1, 2)),
    ((0, 3), (0, 1), (0, 2), (1, 1)),
]


@pytest.mark.parametrize(("shape", "starts", "stops", "steps"), SLICES)
def test_slices_at_the_edges(shape, starts, stops, steps) -> None:
    attrs = {"starts": starts, "stops": stops, "steps": steps}
    x = np.random.default_rng(0).uniform(-1, 1, shape)
    assert_inferred(arrays.slice_, [x], attrs)
    if x.size:
        assert_gradients(arrays.slice_, [x], attrs, 0)


@pytest.mark.parametrize("shape", [(1, 1), (0, 2), (1, 5), (4, 1)])
def test_interior_padding_at_the_edges(shape) -> None:
    attrs = {"pairs": ((0, 1), (2, 0)), "interior": (3, 2), "value": -1.5}
    x = np.random.default_rng(0).uniform(-1, 1, shape)
    assert_inferred(arrays.pad, [x], attrs)
    if x.size:
        assert_gradients(arrays.pad, [x], attrs, 0)


@pytest.mark.parametrize(
    ("a", "b"), [((1, 1), (1, 1)), ((7, 1), (1, 3)), ((2, 3, 5, 0), (2, 3, 0, 4))]
)
def test_matmul_at_the_edges(a, b) -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.uniform(-1, 1, a), rng.uniform(-1, 1, b)]
    assert_inferred(contraction.matmul, drawn, {})
    if drawn[0].size:
        assert_gradients(contraction.matmul, drawn, {}, 0)


# ---- against PyTorch ---------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def channels_first(torch, x: np.ndarray):
    return torch.from_numpy(np.moveaxis(x, -1, 1).copy())


@pytest.mark.rivals
@pytest.mark.parametrize("case", CONVS)
def test_convolutions_equal_those_of_pytorch(torch, case: str) -> None:
    x_shape, w_shape, window = CONVS[case]
    rank = len(x_shape) - 2
    rng = np.random.default_rng(11)
    x, w = rng.uniform(-1, 1, x_shape), rng.uniform(-1, 1, w_shape)
    tx = channels_first(torch, x).requires_grad_()
    tw = torch.from_numpy(np.moveaxis(w, (-1, -2), (0, 1)).copy()).requires_grad_()
    flat = [n for pair in reversed(window["pairs"]) for n in pair]
    convolve = getattr(torch.nn.functional, f"conv{rank}d")
    ty = convolve(
        torch.nn.functional.pad(tx, flat),
        tw,
        stride=window["strides"],
        dilation=window["dilation"],
        groups=window["groups"],
    )
    y = contraction.conv.meaning(x, w, **window)
    np.testing.assert_allclose(y, np.moveaxis(ty.detach().numpy(), 1, -1), atol=1e-12)
    dy = rng.uniform(-1, 1, y.shape)
    ty.backward(channels_first(torch, dy))
    dx = contraction.conv_transpose.meaning(dy, w, spatial=x_shape[1:-1], **window)
    dw = contraction.conv_kernel.meaning(x, dy, kernel=w_shape[:-2], **window)
    np.testing.assert_allclose(dx, np.moveaxis(tx.grad.numpy(), 1, -1), atol=1e-12)
    np.testing.assert_allclose(
        dw, np.moveaxis(tw.grad.numpy(), (0, 1), (-1, -2)), atol=1e-12
    )


@pytest.mark.rivals
@pytest.mark.parametrize("case", POOLS)
def test_pools_equal_those_of_pytorch(torch, case: str) -> None:
    shape, window, strides, pairs = POOLS[case]
    attrs = {"window": window, "strides": strides, "pairs": pairs}
    rank = len(shape) - 2
    rng = np.random.default_rng(12)
    x = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.1
    flat = [n for pair in reversed(pairs) for n in pair]
    pad = torch.nn.functional.pad
    tx = channels_first(torch, x).requires_grad_()
    largest = getattr(torch.nn.functional, f"max_pool{rank}d")
    ty = largest(pad(tx, flat, value=-np.inf), window, strides)
    y = pooling.max_pool.meaning(x, **attrs)
    np.testing.assert_array_equal(y, np.moveaxis(ty.detach().numpy(), 1, -1))
    dy = rng.uniform(-1, 1, y.shape)
    ty.backward(channels_first(torch, dy))
    dx = pooling.max_pool_back.meaning(x, y, dy, **attrs)
    np.testing.assert_allclose(dx, np.moveaxis(tx.grad.numpy(), 1, -1), atol=1e-12)
    average = getattr(torch.nn.functional, f"avg_pool{rank}d")
    mean = average(pad(channels_first(torch, x), flat), window, strides)
    total = pooling.sum_pool.meaning(x, **attrs) / np.prod(window)
    np.testing.assert_allclose(total, np.moveaxis(mean.numpy(), 1, -1), atol=1e-12)
