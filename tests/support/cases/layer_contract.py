"""One call that checks all a layer promises; used for every layer there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layer_cases import random_weights

from ganglion import config, layers
from ganglion.compiler.ir import graph
from ganglion.compiler.ir.graph import evaluate
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.symbolic import KerasTensor
from ganglion.variables import Scope

Shape = tuple[int, ...]
Call = Callable[[Any, Any], Any]


def check_layer(
    make: Callable[[], Any], *shapes: Shape, x: Any = None, spread: bool = False
) -> None:
    """Check shapes, symbolic and traced calls, configuration, JSON and float64.

    `spread`: the inputs are arguments of their own, not one list.
    """
    if x is None:
        rng = np.random.default_rng(0)
        x = [rng.normal(size=shape).astype("float32") for shape in shapes]
        x = x if len(x) > 1 else x[0]

    def call(layer: Any, inputs: Any) -> Any:
        return layer(*inputs) if spread else layer(inputs)

    layer = make()
    call(layer, x)
    layer.set_weights(random_weights([weight.shape for weight in layer.weights]))
    expected = call(layer, x)
    _check_shapes(make, call, list(shapes), expected.shape, spread)
    _check_trace(layer, call, x, expected)
    _check_round_trips(layer, call, x, expected)
    _check_float64(make, call, x, layer.get_weights(), expected)
    with pytest.raises(TypeError, match="no_such_argument"):
        type(layer)(**layer.get_config(), no_such_argument=1)


def _check_shapes(
    make: Callable[[], Any],
    call: Call,
    shapes: list[Shape],
    out: Shape,
    spread: bool,
) -> None:
    def output_shape(shapes: list[Any]) -> Any:
        several = len(shapes) > 1 and not spread
        return make().compute_output_shape(*([shapes] if several else shapes))

    assert output_shape(shapes) == out
    free = [(None, *shape[1:]) for shape in shapes]
    assert output_shape(free) == (None, *out[1:])
    entries = [layers.Input(shape[1:]) for shape in shapes]
    layer = make()
    symbol = call(layer, entries if len(entries) > 1 else entries[0])
    assert isinstance(symbol, KerasTensor)
    assert symbol.shape == (None, *out[1:])
    assert layer.output is symbol
    assert layer.built


def _check_trace(layer: Any, call: Call, x: Any, expected: np.ndarray) -> None:
    arrays = x if isinstance(x, list) else [x]
    with Scope() as scope:
        fed = [graph.Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        out = call(layer, fed if len(fed) > 1 else fed[0])
    assert not scope.writes, "a layer changes nothing in inference"
    known = dict(zip(fed, arrays, strict=True))
    known |= {value: variable.array for variable, value in scope.reads.items()}
    np.testing.assert_array_equal(evaluate([out], known)[0], expected)


def _check_round_trips(layer: Any, call: Call, x: Any, expected: np.ndarray) -> None:
    def text(thing: Any) -> str:
        return json.dumps(serialize_keras_object(thing), sort_keys=True)

    remade = type(layer).from_config(layer.get_config())
    loaded = deserialize_keras_object(json.loads(text(layer)))
    for other in (remade, loaded):
        assert type(other) is type(layer)
        assert other.name == layer.name
        call(other, x)
        other.set_weights(layer.get_weights())
        np.testing.assert_array_equal(call(other, x), expected)
        assert text(other) == text(layer)


def _check_float64(
    make: Callable[[], Any],
    call: Call,
    x: Any,
    weights: list[Any],
    expected: np.ndarray,
) -> None:
    config.set_floatx("float64")
    layer = make()
    wide = [a.astype("float64") if a.dtype == "float32" else a for a in _listed(x)]
    wide = wide if isinstance(x, list) else wide[0]
    call(layer, wide)
    layer.set_weights(weights)
    out = call(layer, wide)
    assert out.dtype == (np.float64 if expected.dtype == np.float32 else out.dtype)
    assert {weight.dtype for weight in layer.weights} <= {"float64", "int32"}
    scale = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    np.testing.assert_allclose(out, expected, rtol=0, atol=2e-6 * scale)
    config.set_floatx("float32")


def _listed(x: Any) -> list[Any]:
    return x if isinstance(x, list) else [x]
