"""Every primitive: inference agrees with meaning, gradients with differences."""

from __future__ import annotations

import numpy as np
import pytest

from ganglion.ir import arrays, pooling, shaping, structured
from ganglion.ir import pointwise as p
from ganglion.ir.gradient import gradients
from ganglion.ir.graph import Constant, Input, Op, ShapeError, Value
from ganglion.ir.primitives import OPS
from ganglion.ir.shaping import is_float
from ganglion.ir.simplify import evaluate

SEEDS = range(5)

# Steps, comparisons and draws are flat or have no slope, so nothing flows back;
# `max_pool_back` would need gradients of gradients, which no model asks for.
WITHOUT_GRADIENT = {
    "argmax",
    "equal",
    "floor",
    "iota",
    "is_finite",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "max_pool_back",
    "random_uniform",
    "round",
    "shuffle",
    "sign",
    "stop_gradient",
}
DIFFERENTIABLE = sorted(set(OPS) - WITHOUT_GRADIENT)


def inputs_for(drawn: list[np.ndarray]) -> list[Input]:
    return [Input(f"x{i}", one.shape, one.dtype) for i, one in enumerate(drawn)]


def assert_inferred(op: Op, drawn: list[np.ndarray], attrs: dict) -> np.ndarray:
    result = np.asarray(op.meaning(*drawn, **attrs))
    node = op(*inputs_for(drawn), **attrs)
    assert (node.shape, node.dtype) == (result.shape, result.dtype)
    return result


def weighted_sum(node: Value, seed: int) -> Value:
    weights = np.random.default_rng(seed + 1000).uniform(-1, 1, node.shape)
    product = p.multiply(node, Constant(weights))
    return shaping.sum_(product, axes=tuple(range(node.ndim)))


def slopes(loss: Value, known: dict[Value, np.ndarray], one: Value) -> np.ndarray:
    """Return d loss / d one by central differences, one element at a time."""
    step = 1e-5
    found = np.zeros(one.shape)
    for place in np.ndindex(*one.shape):
        ends = []
        for sign in (1, -1):
            moved = known[one].copy()
            moved[place] += sign * step
            ends.append(evaluate([loss], {**known, one: moved})[0])
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def assert_gradients(op: Op, drawn: list[np.ndarray], attrs: dict, seed: int) -> None:
    made = inputs_for(drawn)
    loss = weighted_sum(op(*made, **attrs), seed)
    floats = [one for one in made if is_float(one.dtype)]
    known = dict(zip(made, drawn, strict=True))
    found = gradients(loss, floats)
    assert set(found) == set(floats)
    for one in floats:
        assert (found[one].shape, found[one].dtype) == (one.shape, one.dtype)
        (value,) = evaluate([found[one]], known)
        # Differences of step 1e-5 are good to about 1e-10 x the third derivative.
        np.testing.assert_allclose(
            value, slopes(loss, known, one), rtol=1e-6, atol=1e-6
        )


def test_the_table_is_the_one_we_expect() -> None:
    assert set(OPS) >= WITHOUT_GRADIENT
    assert all(op.name == name for name, op in OPS.items())
    assert {op.kind for op in OPS.values()} == {
        "contraction",
        "gather",
        "movement",
        "pointwise",
        "pool",
        "random",
        "reduction",
    }


@pytest.mark.parametrize("name", sorted(OPS))
def test_inference_gives_the_shape_and_type_of_the_meaning(name: str) -> None:
    for seed in SEEDS:
        drawn, attrs = OPS[name].domain(np.random.default_rng(seed))
        assert_inferred(OPS[name], drawn, attrs)


@pytest.mark.parametrize("name", sorted(OPS))
def test_float32_stays_float32(name: str) -> None:
    drawn, attrs = OPS[name].domain(np.random.default_rng(0))
    if "dtype" in attrs and is_float(np.dtype(attrs["dtype"])):
        attrs = attrs | {"dtype": "float32"}
    drawn = [x.astype("float32") if x.dtype == "float64" else x for x in drawn]
    assert assert_inferred(OPS[name], drawn, attrs).dtype != np.float64


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_match_central_differences(name: str) -> None:
    for seed in SEEDS:
        drawn, attrs = OPS[name].domain(np.random.default_rng(seed))
        assert_gradients(OPS[name], drawn, attrs, seed)


@pytest.mark.parametrize("name", sorted(WITHOUT_GRADIENT))
def test_ops_without_gradient_say_so(name: str) -> None:
    op = OPS[name]
    drawn, attrs = op.domain(np.random.default_rng(0))
    node = op(*inputs_for(drawn), **attrs)
    if op.gradient is not None:
        parts = op.gradient(node, Constant(np.ones(node.shape)))
        assert list(parts) == [None] * len(node.inputs)


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
    y = assert_inferred(structured.conv, [x, w], window)
    dy = rng.uniform(-1, 1, y.shape)
    back = window | {"spatial": x_shape[1:-1]}
    to_kernel = window | {"kernel": w_shape[:-2]}
    dx = assert_inferred(structured.conv_transpose, [dy, w], back)
    dw = assert_inferred(structured.conv_kernel, [x, dy], to_kernel)
    # One trilinear form seen from three sides.
    total = np.sum(y * dy)
    assert np.sum(x * dx) == pytest.approx(total, rel=1e-12, abs=1e-12)
    assert np.sum(w * dw) == pytest.approx(total, rel=1e-12, abs=1e-12)
    for op, drawn, attrs in (
        (structured.conv, [x, w], window),
        (structured.conv_transpose, [dy, w], back),
        (structured.conv_kernel, [x, dy], to_kernel),
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
    assert_inferred(structured.matmul, drawn, {})
    if drawn[0].size:
        assert_gradients(structured.matmul, drawn, {}, 0)


# ---- refusals --------------------------------------------------------------------


def f32(*shape: int) -> Input:
    return Input("x", shape, "float32")


def i32(*shape: int) -> Input:
    return Input("i", shape, "int32")


BOOL = Input("b", (2,), "bool")
WINDOW = {"strides": (1, 1), "pairs": ((0, 0), (0, 0)), "dilation": (1, 1)}
POOL = {"window": (2, 2), "strides": (1, 1), "pairs": ((0, 0), (0, 0))}
REFUSALS = {
    "matmul inner": (
        lambda: structured.matmul(f32(2, 3), f32(4, 5)),
        r"matmul: inner sizes differ, 3 of \(2, 3\) and 4 of \(4, 5\)",
    ),
    "matmul stacks": (
        lambda: structured.matmul(f32(2, 3, 4), f32(4, 5)),
        r"\(2, 3, 4\) and \(4, 5\) are no matching stacks of matrices",
    ),
    "matmul types": (
        lambda: structured.matmul(f32(2, 3), i32(3, 4)),
        "needs floats of one type, got float32, int32",
    ),
    "conv channels": (
        lambda: structured.conv(f32(1, 4, 4, 3), f32(2, 2, 4, 8), groups=1, **WINDOW),
        r"images have 3 channels, kernel \(2, 2, 4, 8\) with 1 groups needs 4",
    ),
    "conv axes": (
        lambda: structured.conv(f32(1, 4, 3), f32(2, 2, 3, 8), groups=1, **WINDOW),
        "have different numbers of axes",
    ),
    "conv does not fit": (
        lambda: structured.conv(f32(1, 2, 9, 3), f32(3, 3, 3, 8), groups=1, **WINDOW),
        r"a window of \(3, 3\) \(dilation \(1, 1\)\) does not fit into \(2, 9\); "
        "use padding='same' or a smaller kernel or pool",
    ),
    "conv groups": (
        lambda: structured.conv(f32(1, 4, 4, 4), f32(2, 2, 2, 7), groups=2, **WINDOW),
        "7 filters do not split into 2 groups",
    ),
    "conv_transpose shape": (
        lambda: structured.conv_transpose(
            f32(1, 3, 3, 8), f32(2, 2, 3, 8), spatial=(9, 9), groups=1, **WINDOW
        ),
        r"\(1, 3, 3, 8\) is not what a convolution of \(1, 9, 9, 3\) leaves",
    ),
    "conv_kernel shape": (
        lambda: structured.conv_kernel(
            f32(1, 9, 9, 3), f32(1, 3, 3, 8), kernel=(2, 2), groups=1, **WINDOW
        ),
        "is not what a convolution",
    ),
    "pool axes": (
        lambda: pooling.max_pool(f32(1, 4, 2), **POOL),
        r"a window of \(2, 2\) does not fit float32\[1,4,2\]",
    ),
    "pool back": (
        lambda: pooling.max_pool_back(
            f32(1, 4, 4, 1), f32(1, 2, 2, 1), f32(1, 3, 3, 1), **POOL
        ),
        "do not belong together",
    ),
    "spread": (
        lambda: pooling.sum_pool_back(f32(1, 9, 9, 1), spatial=(4, 4), **POOL),
        "is not what pooling",
    ),
    "reshape": (
        lambda: shaping.reshape(f32(2, 3), shape=(4, 2)),
        r"cannot reshape \(2, 3\) \(6 elements\) into \(4, 2\)",
    ),
    "reshape negative": (
        lambda: shaping.reshape(f32(2, 3), shape=(-2, -3)),
        "cannot reshape",
    ),
    "broadcast": (
        lambda: shaping.broadcast(f32(2, 3), shape=(3, 3)),
        r"\(2, 3\) does not broadcast to \(3, 3\)",
    ),
    "broadcast down": (
        lambda: shaping.broadcast(f32(1, 3), shape=(3,)),
        "does not broadcast",
    ),
    "concat sizes": (
        lambda: arrays.concat(f32(2, 3), f32(3, 3), axis=1),
        r"float32\[2,3\] and float32\[3,3\] do not join on axis 1",
    ),
    "concat rank": (lambda: arrays.concat(f32(2, 3), f32(2), axis=0), "do not join"),
    "concat types": (lambda: arrays.concat(f32(2), i32(2), axis=0), "do not join"),
    "sum axes": (
        lambda: shaping.sum_(f32(2, 3), axes=(2,)),
        r"axes \(2,\) do not fit float32\[2,3\]",
    ),
    "sum twice": (lambda: shaping.sum_(f32(2, 3), axes=(1, 1)), "do not fit"),
    "sum bool": (lambda: shaping.sum_(BOOL, axes=(0,)), "got bool; cast first"),
    "max of nothing": (
        lambda: arrays.max_(f32(0, 3), axes=(0,)),
        "the maximum of no elements",
    ),
    "cumsum axis": (lambda: arrays.cumsum(f32(3), axis=1), "do not fit"),
    "reverse axis": (lambda: arrays.reverse(f32(3), axes=(-1,)), "do not fit"),
    "transpose": (
        lambda: arrays.transpose(f32(2, 3), axes=(0, 0)),
        "is no order of the axes",
    ),
    "slice rank": (
        lambda: arrays.slice_(f32(2, 3), starts=(0,), stops=(1,), steps=(1,)),
        "one start, stop and step per axis",
    ),
    "slice range": (
        lambda: arrays.slice_(f32(3), starts=(1,), stops=(4,), steps=(1,)),
        "slice 1:4:1 leaves an axis of 3",
    ),
    "pad negative": (
        lambda: arrays.pad(f32(3), pairs=((-1, 0),), interior=(0,), value=0.0),
        "negative padding",
    ),
    "pad rank": (
        lambda: arrays.pad(f32(3), pairs=(), interior=(), value=0.0),
        "one pair per axis",
    ),
    "gather floats": (
        lambda: structured.gather(f32(3, 2), f32(4)),
        "needs a table of rows and whole numbers",
    ),
    "scatter": (
        lambda: structured.scatter_add(f32(3, 2), i32(4), rows=5),
        r"\(3, 2\) does not start with \(4,\)",
    ),
    "pointwise shapes": (
        lambda: p.add(f32(2), f32(3)),
        r"inputs differ, float32\[2\] and float32\[3\]; broadcast or cast first",
    ),
    "pointwise types": (lambda: p.add(f32(2), i32(2)), "inputs differ"),
    "pointwise ints": (lambda: p.exp(i32(2)), "needs floats, got int32; cast first"),
    "pointwise bool": (lambda: p.add(BOOL, BOOL), "needs numbers, got bool"),
    "logical numbers": (
        lambda: p.logical_not(i32(2)),
        "needs bool, got int32; compare first",
    ),
    "where condition": (
        lambda: p.where(BOOL, f32(3), f32(3)),
        r"condition is \(2,\), the choices \(3,\)",
    ),
    "random state": (
        lambda: OPS["random_uniform"](f32(2), shape=(3,), dtype="float32"),
        r"a random state is uint32\[2\], not float32\[2\]",
    ),
    "random ints": (
        lambda: OPS["random_uniform"](
            Input("s", (2,), "uint32"), shape=(3,), dtype="int32"
        ),
        "uniform numbers are floats",
    ),
    "shuffle rows": (
        lambda: OPS["shuffle"](Input("s", (2,), "uint32"), f32(3), rows=3),
        "needs int32 positions",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_does_not_fit_is_refused_in_words(case: str) -> None:
    make, text = REFUSALS[case]
    with pytest.raises(ShapeError, match=text):
        make()


@pytest.mark.parametrize("index", [[-1], [5]])
def test_a_row_outside_of_the_table_is_refused(index) -> None:
    with pytest.raises(IndexError, match=f"row {index[0]} of a table of 5 rows"):
        structured.gather.meaning(np.zeros((5, 2)), np.array(index))


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
    y = structured.conv.meaning(x, w, **window)
    np.testing.assert_allclose(y, np.moveaxis(ty.detach().numpy(), 1, -1), atol=1e-12)
    dy = rng.uniform(-1, 1, y.shape)
    ty.backward(channels_first(torch, dy))
    dx = structured.conv_transpose.meaning(dy, w, spatial=x_shape[1:-1], **window)
    dw = structured.conv_kernel.meaning(x, dy, kernel=w_shape[:-2], **window)
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
