"""The graph: text, order, immutability, verifier, origins and gradients."""

from __future__ import annotations

import inspect
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ganglion import ops
from ganglion.compiler.ir import arrays, contraction, gradient, origin, shaping
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import (
    Constant,
    Graph,
    GraphError,
    Input,
    Node,
    ShapeError,
    Value,
    evaluate,
    toposort,
    verify,
)
from ganglion.compiler.ir.simplify import simplify
from ganglion.layers.base import Layer
from ganglion.variables import Scope


def f32(name: str, *shape: int) -> Input:
    return Input(name, shape, "float32")


# ---- text --------------------------------------------------------------------------


def test_a_graph_prints_as_text() -> None:
    x, w = f32("x", 4, 3), f32("weights", 3, 2)
    product = contraction.matmul(x, w)
    bias = shaping.broadcast(Constant(np.zeros(2, "float32")), shape=(4, 2))
    scaled = p.multiply(p.add(product, bias), shaping.fill(0.5, product))
    best = arrays.argmax(scaled, axis=1)
    graph = Graph.of("demo", [x, w], {"scores": scaled, "best": best})
    assert str(graph) == "\n".join(
        [
            "graph demo",
            "  x        input float32[4,3]",
            "  weights  input float32[3,2]",
            "  %0 float32[4,2] = matmul(x, weights)",
            "  %1 float32[4,2] = broadcast(constant<float32[2]>, shape=(4,2))",
            "  %2 float32[4,2] = add(%0, %1)",
            "  %3 float32[4,2] = broadcast(0.5, shape=(4,2))",
            "  %4 float32[4,2] = multiply(%2, %3)",
            "  %5 int32[4] = argmax(%4, axis=1)",
            "  return scores=%4, best=%5",
        ]
    )


def test_a_node_of_a_layer_prints_where_it_comes_from() -> None:
    x = f32("x", 2)
    created = origin.Origin("", "/home/me/script.py", 7)
    with origin.inside("net", created), origin.inside("dense", created):
        node = Node(p.add, (x, x), {}, x.shape, x.dtype)
    line = str(Graph.of("g", [x], {"y": node})).splitlines()[2]
    assert line == f"{'  %0 float32[2] = add(x, x)':<72}  # net/dense  script.py:7"


def test_values_print_their_type() -> None:
    assert repr(f32("x", 2, 3)) == "<input float32[2,3]>"
    assert repr(p.negative(f32("x", 2))) == "<node float32[2]>"
    assert repr(Constant(1.5)) == "<constant float64[]>"
    assert repr(p.add) == "<op add>"


def test_an_unbound_input_is_printed_as_such() -> None:
    graph = Graph.of("g", [], {"y": p.negative(f32("x", 2))})
    assert "negative(<unbound float32[2]>)" in str(graph)


# ---- order and size ------------------------------------------------------------------


def chain(length: int) -> tuple[Input, Value]:
    x = f32("x")
    value: Value = x
    for _ in range(length):
        value = Node(p.negative, (value,), {}, (), x.dtype, origin.UNKNOWN)
    return x, value


def test_a_chain_of_a_hundred_thousand_nodes_needs_no_recursion() -> None:
    x, end = chain(100_000)
    order = toposort([end])
    assert len(order) == 100_001
    assert order[0] is x
    assert order[-1] is end
    graph = verify(Graph.of("long", [x], {"y": end}))
    assert len(graph.nodes) == 100_000
    assert evaluate([end], {x: np.float32(3)})[0] == 3
    assert simplify(graph).nodes == ()
    slope = gradients(end, [x])[x]
    assert evaluate([slope], {x: np.float32(3)})[0] == 1


def test_inputs_come_before_what_uses_them_and_each_value_once() -> None:
    x, y = f32("x", 2), f32("y", 2)
    a = p.add(x, y)
    b, c = p.multiply(a, x), p.multiply(a, a)
    order = toposort([p.add(b, c), a, b])
    assert len(order) == len(set(order)) == 6
    place = {value: number for number, value in enumerate(order)}
    for value in order:
        if isinstance(value, Node):
            assert all(place[source] < place[value] for source in value.inputs)


# ---- immutability --------------------------------------------------------------------


def test_nothing_in_a_graph_can_change() -> None:
    x = f32("x", 2)
    node = p.cast(x, dtype="int32")
    graph = Graph.of("g", [x], {"y": node})
    for thing, name in (
        (graph, "name"),
        (graph, "nodes"),
        (x, "shape"),
        (x, "name"),
        (node, "op"),
        (node, "inputs"),
        (node, "attrs"),
        (node, "origin"),
        (Constant(1.0), "array"),
        (p.add, "gradient"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, name, None)
    with pytest.raises(TypeError):
        graph.outputs["z"] = x  # type: ignore[index]
    with pytest.raises(TypeError):
        node.attrs["dtype"] = "bool"  # type: ignore[index]


def test_a_constant_keeps_its_own_copy() -> None:
    array = np.zeros(3)
    constant = Constant(array)
    array[0] = 5
    assert constant.array.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        constant.array[0] = 1


def test_a_traced_value_has_no_truth_and_a_scalar_no_length() -> None:
    with pytest.raises(TypeError, match=r"use ops\.where\(condition, a, b\)"):
        bool(f32("x"))
    with pytest.raises(TypeError, match="a scalar has no length"):
        len(f32("x"))
    assert len(f32("x", 4, 2)) == 4


# ---- verifier ------------------------------------------------------------------------


def raw(op, inputs, shape=(2,), dtype="float32", **attrs) -> Node:
    return Node(op, inputs, attrs, shape, np.dtype(dtype))


def broken_graphs() -> dict[str, tuple[Graph, str]]:
    x, y = f32("x", 2), f32("y", 2)
    first = p.negative(x)
    second = p.negative(first)
    wrong_shape = raw(p.add, (x, x), shape=(3,))
    wrong_type = raw(p.add, (x, x), dtype="float64")
    return {
        "inputs named twice": (
            Graph.of("g", [x, f32("x", 2)], {"y": first}),
            "g: inputs named twice: x",
        ),
        "undeclared input": (
            Graph.of("g", [x], {"y": p.add(x, y)}),
            "g %0 add: uses the undeclared input y",
        ),
        "before it is computed": (
            Graph("g", (x,), {"y": second}, (second, first)),
            "g %0 negative: uses a value before it is computed",
        ),
        "output not computed": (
            Graph("g", (x,), {"y": first}, ()),
            "g: output y is not computed",
        ),
        "wrong shape": (
            Graph.of("g", [x], {"y": wrong_shape}),
            r"g %0 add: is float32\[3\], inferred",
        ),
        "wrong type": (
            Graph.of("g", [x], {"y": wrong_type}),
            r"g %0 add: is float64\[2\], inferred",
        ),
    }


@pytest.mark.parametrize("rule", sorted(broken_graphs()))
def test_the_verifier_refuses(rule: str) -> None:
    graph, text = broken_graphs()[rule]
    with pytest.raises(GraphError, match=text):
        verify(graph)


def test_the_verifier_refuses_a_node_that_its_op_refuses() -> None:
    x, y = f32("x", 2), f32("y", 3)
    with pytest.raises(GraphError, match=r"g %0 add: inputs differ"):
        verify(Graph.of("g", [x, y], {"y": raw(p.add, (x, y))}))


def test_the_verifier_returns_a_good_graph() -> None:
    x = f32("x", 2)
    ends = {"y": p.add(x, x), "same": x, "one": Constant(1.0)}
    graph = Graph.of("g", [x, f32("unused")], ends)
    assert verify(graph) is graph


# ---- origins -------------------------------------------------------------------------


class Doubled(Layer):
    """What a user writes: its nodes belong to lines of its `call`."""

    def call(self, x):
        doubled = x + x  # the user's line
        return doubled


class Product(Layer):
    def build(self, input_shape):
        self.kernel = self.add_weight((3, 2), name="kernel")

    def call(self, x):
        return ops.matmul(x, self.kernel)  # the line that fails


def line_of(thing, text: str) -> int:
    source, start = inspect.getsourcelines(thing)
    return start + next(i for i, line in enumerate(source) if text in line)


def traced(layer, *shape: int) -> Value:
    with Scope():
        return layer(f32("x", *shape))


def test_a_node_keeps_the_line_of_a_users_call() -> None:
    node = traced(Doubled(name="twice"), 2, 3)
    assert isinstance(node, Node)
    line = line_of(Doubled, "the user's line")
    assert node.origin == origin.Origin("twice", __file__, line)
    assert str(node.origin) == f"twice  test_graph.py:{line}"


def builtin_layer(name: str) -> Layer:
    """Return a layer whose `call` lies inside of the package."""
    from ganglion import activations

    class Builtin(Layer):
        call = staticmethod(activations.softplus)

    return Builtin(name=name)  # where it was created


def test_a_builtin_layers_nodes_keep_the_line_that_created_it() -> None:
    node = traced(builtin_layer("soft"), 2, 3)
    assert isinstance(node, Node)
    line = line_of(builtin_layer, "where it was created")
    nodes = [node for node in toposort([node]) if isinstance(node, Node)]
    assert {node.origin for node in nodes} == {origin.Origin("soft", __file__, line)}


def test_layer_paths_nest() -> None:
    class Outer(Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = Doubled(name="inner")

        def call(self, x):
            return self.inner(x)

    node = traced(Outer(name="outer"), 2)
    assert isinstance(node, Node)
    assert node.origin.layer == "outer/inner"


def test_an_error_names_the_layer_and_the_users_line() -> None:
    layer = Product(name="product")
    line = line_of(Product, "the line that fails")
    with pytest.raises(ShapeError) as caught:
        traced(layer, 5, 4)
    assert str(caught.value) == (
        "matmul: inner sizes differ, 4 of (5, 4) and 3 of (3, 2) "
        f"(in product  test_graph.py:{line})"
    )


def test_an_error_outside_of_layers_names_the_users_line() -> None:
    with pytest.raises(ShapeError, match=r"\(in test_graph\.py:\d+\)"):
        p.add(f32("x", 2), f32("y", 3))


def _defined_in(file: str, text: str) -> Any:
    """Return a function `call` as if it stood in another file."""
    room: dict[str, Any] = {"user_line": origin.user_line}
    exec(compile(text, file, "exec"), room)
    return room["call"]


_STANDARD = sysconfig.get_path("stdlib")


@pytest.mark.parametrize(
    "file",
    [
        origin._PACKAGE + "training/trainer.py",
        f"{_STANDARD}/concurrent/futures/thread.py",
        f"{_STANDARD}/site-packages/typer/main.py",
        "/usr/lib/python3/dist-packages/click/core.py",
        "<frozen runpy>",
    ],
)
def test_a_line_of_a_library_is_not_the_users(file: str) -> None:
    call = _defined_in(file, "def call():\n    return user_line()\n")
    line_of_call = call()
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert line_of_call == origin.Origin("", __file__, line)


@pytest.mark.parametrize("name", ["cli/app.py", "cli/train.py", "__main__.py"])
def test_within_the_command_line_there_is_no_line_of_the_user(name: str) -> None:
    """Neither Typer's, between its commands and its main function, nor its script's."""
    inner = _defined_in(
        origin._PACKAGE + "recipes.py", "def call():\n    return user_line()\n"
    )
    outer = _defined_in(origin._PACKAGE + name, "def call(it):\n    return it()\n")
    assert outer(inner) == origin.UNKNOWN


def test_a_thread_that_a_library_started_has_no_line_of_the_user() -> None:
    text = "def call():\n    return user_line()\n"
    call = _defined_in(origin._PACKAGE + "training/trainer.py", text)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(call).result() == origin.UNKNOWN


def test_layers_of_the_command_line_name_no_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from typer.testing import CliRunner

    from ganglion.cli import app, train

    text = "def call(recipe):\n    raise ValueError(f'made at {user_line()!s:.99}.')\n"
    built = _defined_in(origin._PACKAGE + "recipes.py", text)
    monkeypatch.setattr(train.recipe_book, "build", built)
    monkeypatch.setattr(train.recipe_book, "load", lambda name: (None, None, None))
    done = CliRunner().invoke(app.app, ["train", "mnist-mlp"])
    assert str(done.exception) == "made at ."


def test_a_gradient_has_the_origin_of_what_it_differentiates() -> None:
    layer = Doubled(name="twice")
    with Scope():
        x = f32("x", 3)
        doubled = layer(x)
        loss = shaping.sum_(p.multiply(doubled, doubled), axes=(0,))
        slope = gradients(loss, [x])[x]
    assert isinstance(slope, Node)
    assert slope.origin == doubled.origin


# ---- gradients -----------------------------------------------------------------------


def test_gradients_are_a_dictionary_without_the_unreachable() -> None:
    x, y, index = f32("x", 3), f32("y", 3), Input("i", (3,), "int32")
    loss = shaping.sum_(p.multiply(x, p.cast(index, dtype="float32")), axes=(0,))
    slopes = gradients(loss, [x, y, index])
    assert set(slopes) == {x}
    assert evaluate([slopes[x]], {x: np.ones(3, "f4"), index: np.array([1, 2, 3])})[
        0
    ].tolist() == [1, 2, 3]


def test_no_gradient_passes_stop_gradient_or_a_comparison() -> None:
    x = f32("x")
    stopped = p.multiply(p.stop_gradient(x), x)
    assert evaluate([gradients(stopped, [x])[x]], {x: np.float32(7)})[0] == 7
    assert gradients(p.stop_gradient(x), [x]) == {}
    assert (
        gradients(p.cast(p.less(x, Constant(0, "float32")), dtype="float32"), [x]) == {}
    )


def test_shared_subexpressions_accumulate() -> None:
    x = Input("x", (), "float64")
    square = p.multiply(x, x)
    loss = p.add(p.multiply(square, square), square)
    slope = gradients(loss, [x])[x]
    assert evaluate([slope], {x: np.float64(3)})[0] == 4 * 27 + 2 * 3


def test_a_gradient_to_an_intermediate_value_and_to_the_loss_itself() -> None:
    x = Input("x", (), "float64")
    middle = p.multiply(x, x)
    loss = p.multiply(middle, middle)
    slopes = gradients(loss, [middle, loss, x])
    values = evaluate([slopes[middle], slopes[loss], slopes[x]], {x: np.float64(2)})
    assert [float(value) for value in values] == [8, 1, 32]


def test_a_diamond_of_fifty_levels_is_linear_work() -> None:
    x = Input("x", (), "float64")
    value: Value = x
    for _ in range(50):
        value = p.add(value, value)
    slope = gradients(value, [x])[x]
    assert evaluate([slope], {x: np.float64(1)})[0] == 2.0**50
    assert len(toposort([slope])) < 200


def test_a_gradient_to_a_late_value_visits_nothing_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    visited: list[Value] = []

    def recording(*args: Any, **kwargs: Any) -> list[Value]:
        visited.extend(toposort(*args, **kwargs))
        return visited

    monkeypatch.setattr(gradient, "toposort", recording)
    late: Value = Input("x", (), "float64")
    for _ in range(1000):
        late = p.add(late, late)
    slope = gradients(p.multiply(late, late), [late])[late]
    assert len(visited) == 2
    x = np.float64(3)
    assert evaluate([slope], {late: x})[0] == 2 * x


@pytest.mark.parametrize(
    "loss", [f32("x", 2), f32("x", 1), Input("i", (), "int32")], ids=str
)
def test_only_a_scalar_float_has_a_gradient(loss: Value) -> None:
    with pytest.raises(ShapeError, match="needs a scalar float loss, not "):
        gradients(loss, [loss])
