"""Every primitive: inference agrees with meaning, gradients with differences."""

from __future__ import annotations

import numpy as np
import pytest
from op_checks import (
    assert_gradients,
    assert_inferred,
    inputs_for,
    slopes,
    weighted_sum,
)

from ganglion.compiler.ir import arrays, contraction, pooling, shaping
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Constant, Input, ShapeError, evaluate
from ganglion.compiler.ir.shaping import is_float
from ganglion.compiler.ir.table import OPS

SEEDS = range(5)

# Steps, comparisons and draws are flat or have no slope, so nothing flows back.
WITHOUT_GRADIENT = {
    "argmax",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "floor",
    "iota",
    "is_finite",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "random_uniform",
    "right_shift",
    "round",
    "shuffle",
    "sign",
    "stop_gradient",
}
# Which element is the largest is a step of the first two inputs.
ONLY_THE_LAST = {"max_pool_back"}
DIFFERENTIABLE = sorted(set(OPS) - WITHOUT_GRADIENT - ONLY_THE_LAST)


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


@pytest.mark.parametrize("name", sorted(ONLY_THE_LAST))
def test_gradients_of_the_last_input_match_central_differences(name: str) -> None:
    for seed in SEEDS:
        drawn, attrs = OPS[name].domain(np.random.default_rng(seed))
        inputs = inputs_for(drawn)
        loss = weighted_sum(OPS[name](*inputs, **attrs), seed)
        known = dict(zip(inputs, drawn, strict=True))
        actual = gradients(loss, inputs)
        assert list(actual) == [inputs[-1]]
        (value,) = evaluate([actual[inputs[-1]]], known)
        expected = slopes(loss, known, inputs[-1])
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", sorted(WITHOUT_GRADIENT))
def test_ops_without_gradient_say_so(name: str) -> None:
    op = OPS[name]
    drawn, attrs = op.domain(np.random.default_rng(0))
    node = op(*inputs_for(drawn), **attrs)
    if op.gradient is not None:
        parts = op.gradient(node, Constant(np.ones(node.shape)))
        assert list(parts) == [None] * len(node.inputs)


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
        lambda: contraction.matmul(f32(2, 3), f32(4, 5)),
        r"matmul: inner sizes differ, 3 of \(2, 3\) and 4 of \(4, 5\)",
    ),
    "matmul stacks": (
        lambda: contraction.matmul(f32(2, 3, 4), f32(4, 5)),
        r"\(2, 3, 4\) and \(4, 5\) are not matching stacks of matrices",
    ),
    "matmul types": (
        lambda: contraction.matmul(f32(2, 3), i32(3, 4)),
        "needs numbers of one type, got float32, int32",
    ),
    "conv channels": (
        lambda: contraction.conv(f32(1, 4, 4, 3), f32(2, 2, 4, 8), groups=1, **WINDOW),
        r"images have 3 channels, kernel \(2, 2, 4, 8\) with 1 groups needs 4",
    ),
    "conv axes": (
        lambda: contraction.conv(f32(1, 4, 3), f32(2, 2, 3, 8), groups=1, **WINDOW),
        "have different numbers of axes",
    ),
    "conv does not fit": (
        lambda: contraction.conv(f32(1, 2, 9, 3), f32(3, 3, 3, 8), groups=1, **WINDOW),
        r"a window of \(3, 3\) \(dilation \(1, 1\)\) does not fit into \(2, 9\); "
        "use padding='same' or a smaller kernel or pool",
    ),
    "conv groups": (
        lambda: contraction.conv(f32(1, 4, 4, 4), f32(2, 2, 2, 7), groups=2, **WINDOW),
        "7 filters do not split into 2 groups",
    ),
    "conv_transpose shape": (
        lambda: contraction.conv_transpose(
            f32(1, 3, 3, 8), f32(2, 2, 3, 8), spatial=(9, 9), groups=1, **WINDOW
        ),
        r"\(1, 3, 3, 8\) is not what a convolution of \(1, 9, 9, 3\) leaves",
    ),
    "conv_kernel shape": (
        lambda: contraction.conv_kernel(
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
        lambda: shaping.transpose(f32(2, 3), axes=(0, 0)),
        "is not an order of the axes",
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
        lambda: contraction.gather(f32(3, 2), f32(4)),
        "needs a table of rows and integers",
    ),
    "scatter": (
        lambda: contraction.scatter_add(f32(3, 2), i32(4), rows=5),
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


@pytest.mark.parametrize("index", [[-1, 2], [5, 2]])
def test_a_row_outside_of_the_table_is_nan_and_takes_nothing(index) -> None:
    picked = contraction.gather.meaning(np.ones((5, 2)), np.array(index))
    np.testing.assert_array_equal(picked, [[np.nan] * 2, [1, 1]])
    added = contraction.scatter_add.meaning(np.ones((2, 3)), np.array(index), rows=5)
    np.testing.assert_array_equal(added, np.eye(5)[2][:, None] * np.ones(3))
