"""Simplification: each rule alone, then random graphs whose values must not change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graph_maker import Maker
from hypothesis import given, settings
from hypothesis import strategies as st

from ganglion.compiler.ir import arrays, shaping
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Constant, Graph, Input, Node, Value
from ganglion.compiler.ir.simplify import FOLD_LIMIT, evaluate, simplify, splat
from ganglion.compiler.ir.table import OPS

X = Input("x", (2, 3), "float32")
Y = Input("y", (2, 3), "float32")
MASK = Input("mask", (2, 3), "bool")
STATE = Input("state", (2,), "uint32")


def filled(number: float) -> Value:
    return shaping.fill(number, X)


def simplified(*values: Value) -> list[Value]:
    outputs = {f"out{i}": value for i, value in enumerate(values)}
    return list(simplify(Graph.of("g", [X, Y, MASK, STATE], outputs)).outputs.values())


# ---- each rule -----------------------------------------------------------------------

SAME_AS_X: dict[str, Callable[[], Value]] = {
    "x + 0": lambda: p.add(X, filled(0)),
    "0 + x": lambda: p.add(filled(0), X),
    "x - 0": lambda: p.subtract(X, filled(0)),
    "x * 1": lambda: p.multiply(X, filled(1)),
    "1 * x": lambda: p.multiply(filled(1), X),
    "x / 1": lambda: p.divide(X, filled(1)),
    "--x": lambda: p.negative(p.negative(X)),
    "0 - (0 - x)": lambda: p.subtract(filled(0), p.subtract(filled(0), X)),
    "where true": lambda: p.where(shaping.fill(True, MASK), X, Y),
    "where false": lambda: p.where(shaping.fill(False, MASK), Y, X),
    "where both": lambda: p.where(MASK, X, X),
    "stop_gradient": lambda: p.stop_gradient(X),
    "reshape to itself": lambda: shaping.reshape(X, shape=(2, 3)),
    "reshape and back": lambda: shaping.reshape(
        shaping.reshape(X, shape=(6,)), shape=(2, 3)
    ),
    "broadcast to itself": lambda: shaping.broadcast(X, shape=(2, 3)),
    "transpose by nothing": lambda: shaping.transpose(X, axes=(0, 1)),
    "transpose and back": lambda: shaping.transpose(
        shaping.transpose(X, axes=(1, 0)), axes=(1, 0)
    ),
    "cast to itself": lambda: p.cast(X, dtype="float32"),
    "sum over nothing": lambda: shaping.sum_(X, axes=()),
    "pad by nothing": lambda: arrays.pad(
        X, pairs=((0, 0), (0, 0)), interior=(0, 0), value=1.0
    ),
    "slice of all": lambda: arrays.slice_(X, starts=(0, 0), stops=(2, 3), steps=(1, 1)),
}


@pytest.mark.parametrize("rule", SAME_AS_X)
def test_identities_vanish(rule: str) -> None:
    assert simplified(SAME_AS_X[rule]()) == [X]


@pytest.mark.parametrize(
    "make",
    [
        lambda: p.add(X, filled(1)),
        lambda: p.subtract(X, filled(1)),
        lambda: p.multiply(X, filled(0)),  # not if x is infinite or NaN
        lambda: p.subtract(X, X),  # nor here
        lambda: p.divide(filled(1), X),
        lambda: p.where(MASK, X, Y),
        lambda: arrays.slice_(X, starts=(0, 0), stops=(2, 3), steps=(1, 2)),
        lambda: shaping.transpose(X, axes=(1, 0)),
        lambda: p.cast(X, dtype="float64"),
    ],
)
def test_what_is_no_identity_stays(make: Callable[[], Value]) -> None:
    node = make()
    (kept,) = simplified(node)
    assert isinstance(kept, Node)
    assert kept.op is node.op  # type: ignore[attr-defined]


def test_zero_minus_x_is_a_negation() -> None:
    (value,) = simplified(p.subtract(filled(0), X))
    assert isinstance(value, Node)
    assert (value.op, value.inputs) == (p.negative, (X,))


@pytest.mark.parametrize("op", [p.maximum, p.minimum])
def test_a_number_to_compare_with_comes_second(op) -> None:
    values = simplified(op(filled(2), X), op(X, filled(2)), op(Y, X))
    assert values[0] is values[1]
    assert (values[0].inputs[0], splat(values[0].inputs[1])) == (X, 2)
    assert values[2].inputs == (Y, X)


def test_moves_merge() -> None:
    flat = shaping.reshape(shaping.reshape(X, shape=(6,)), shape=(3, 2))
    cube = shaping.broadcast(X, shape=(4, 2, 3))
    turned = shaping.transpose(shaping.transpose(cube, axes=(1, 2, 0)), axes=(2, 0, 1))
    other = shaping.transpose(shaping.transpose(cube, axes=(1, 2, 0)), axes=(0, 2, 1))
    wide = shaping.broadcast(cube, shape=(5, 4, 2, 3))
    values = simplified(flat, turned, other, wide)
    kinds = [(node.op.name, node.inputs[0]) for node in values]  # type: ignore[attr-defined]
    assert kinds[0] == ("reshape", X)
    assert values[1].shape == (4, 2, 3)
    assert kinds[1] == ("broadcast", X)
    assert values[2].attrs["axes"] == (1, 0, 2)  # type: ignore[attr-defined]
    assert kinds[3] == ("broadcast", X)


def test_constants_fold() -> None:
    two, three = Constant(2, "float32"), Constant(3, "float32")
    (value,) = simplified(p.exp(p.multiply(two, three)))
    assert isinstance(value, Constant)
    assert value.array == np.exp(np.float32(6))
    row = Constant(np.arange(3, dtype="float32"))
    (total,) = simplified(shaping.sum_(p.add(row, row), axes=(0,)))
    assert isinstance(total, Constant)
    assert total.array == 6


def test_filled_arrays_fold_as_one_number() -> None:
    (value,) = simplified(p.add(filled(2), p.multiply(filled(3), filled(4))))
    assert isinstance(value, Node)
    assert value.op is shaping.broadcast
    assert splat(value) == 14
    assert value.shape == X.shape


def test_large_constants_and_random_numbers_do_not_fold() -> None:
    large = Constant(np.ones(FOLD_LIMIT + 1, "float32"))
    state = Constant(np.array([1, 2], "uint32"))
    draw = OPS["random_uniform"](state, shape=(3,), dtype="float32")
    values = simplified(
        p.exp(large), draw, shaping.broadcast(Constant(1.0), shape=(9,))
    )
    assert [type(node) for node in values] == [Node, Node, Node]


def test_equal_work_is_shared() -> None:
    doubled = p.multiply(p.add(X, Y), filled(2))
    two = p.multiply(p.add(X, Y), filled(2))
    first, second = simplified(doubled, two)
    assert first is second
    # Also constants, attributes and draws from one state.
    draws = [
        OPS["random_uniform"](STATE, shape=(3,), dtype=kind)
        for kind in ("float32", "float32", "float64")
    ]
    a, b, c = simplified(*draws)
    assert a is b
    assert a is not c


def test_what_differs_in_type_or_attributes_is_not_shared() -> None:
    values = simplified(
        p.cast(X, dtype="float64"),
        p.cast(X, dtype="int32"),
        p.add(X, shaping.fill(2, X)),
        p.add(X, shaping.fill(3, X)),
        shaping.sum_(X, axes=(0,)),
        shaping.sum_(X, axes=(1,)),
    )
    assert len(set(values)) == len(values)


def test_dead_work_goes_and_inputs_stay() -> None:
    p.exp(X)
    graph = Graph.of("g", [X, Y], {"y": p.where(MASK, p.exp(X), p.exp(X))})
    small = simplify(Graph.of("g", [X, Y, MASK], graph.outputs))
    assert [node.op.name for node in small.nodes] == ["exp"]
    assert small.inputs == (X, Y, MASK)


def test_what_replaces_a_node_keeps_its_origin() -> None:
    node = p.subtract(filled(0), X)
    (value,) = simplified(node)
    assert value.origin == node.origin  # type: ignore[attr-defined]
    folded = p.exp(filled(3))
    (value,) = simplified(folded)
    assert value.origin == folded.origin  # type: ignore[attr-defined]


# ---- random graphs -------------------------------------------------------------------


def random_inputs(graph: Graph, seed: int) -> dict[Value, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        source: rng.uniform(-1.5, 1.5, source.shape).astype(source.dtype)
        for source in graph.inputs
    }


def bits(array: np.ndarray) -> list[str]:
    """Return every element exactly, NaN equal to NaN and -0 equal to 0."""
    return [float(x + 0).hex() for x in array.ravel()]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(["float32", "float64"]), st.integers(1, 14))
def test_random_graphs_keep_their_values_exactly(data, dtype: str, steps: int) -> None:
    graph = Maker(data, dtype, smooth=False).graph(steps)
    small = simplify(graph)
    assert len(small.nodes) <= len(graph.nodes)
    assert simplify(small).nodes == small.nodes
    known = random_inputs(graph, steps)
    before = evaluate(list(graph.outputs.values()), known)
    after = evaluate(list(small.outputs.values()), known)
    for old, new in zip(before, after, strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        assert bits(old) == bits(new)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 8))
def test_gradients_of_random_graphs_match_differences(data, steps: int) -> None:
    graph = Maker(data, "float64", smooth=True).graph(steps)
    last = graph.outputs["last"]
    loss = p.sin(shaping.sum_(last, axes=tuple(range(last.ndim))))
    slope_of = gradients(loss, graph.inputs)
    known = random_inputs(graph, steps)
    slopes = Graph.of("slopes", graph.inputs, {k.name: v for k, v in slope_of.items()})
    small = simplify(slopes)
    for source in slope_of:
        (slope,) = evaluate([slope_of[source]], known)
        (again,) = evaluate([small.outputs[source.name]], known)
        assert bits(slope) == bits(again)
        direction = np.random.default_rng(1).uniform(-1, 1, source.shape)
        expected = directional(loss, known, source, direction)
        # Richardson's rule leaves an error of step^4 x the fifth derivative, and
        # rounding of the loss over the step: both well below 1e-6 of the slope.
        scale = max(1.0, float(np.abs(slope).max()))
        assert np.sum(slope * direction) == pytest.approx(expected, abs=1e-5 * scale**2)


def directional(loss, known, source, direction) -> float:
    """Return the slope of the loss along a direction, by Richardson's rule."""

    def central(step: float) -> float:
        ends = [
            evaluate(
                [loss], {**known, source: known[source] + sign * step * direction}
            )[0]
            for sign in (1, -1)
        ]
        return float(ends[0] - ends[1]) / (2 * step)

    fine, coarse = central(5e-4), central(1e-3)
    return (4 * fine - coarse) / 3
