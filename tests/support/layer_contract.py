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


def check_layer(make: Callable[[], Any], *shapes: Shape, x: Any = None) -> None:
    """Check shapes, symbolic and traced calls, configuration, JSON and float64."""
    if x is None:
        rng = np.random.default_rng(0)
        x = [rng.normal(size=shape).astype("float32") for shape in shapes]
        x = x if len(x) > 1 else x[0]
    layer = make()
    expected = layer(x)
    layer.set_weights(random_weights([weight.shape for weight in layer.weights]))
    expected = layer(x)
    _check_shapes(make, list(shapes), expected.shape)
    _check_trace(layer, x, expected)
    _check_round_trips(layer, x, expected)
    _check_float64(make, x, layer.get_weights(), expected)
    with pytest.raises(TypeError, match="no_such_argument"):
        type(layer)(**layer.get_config(), no_such_argument=1)


def _check_shapes(make: Callable[[], Any], shapes: list[Shape], out: Shape) -> None:
    def one_or_all(values: list[Any]) -> Any:
        return values if len(values) > 1 else values[0]

    assert make().compute_output_shape(one_or_all(shapes)) == out
    free = [(None, *shape[1:]) for shape in shapes]
    assert make().compute_output_shape(one_or_all(free)) == (None, *out[1:])
    entries = [layers.Input(shape[1:]) for shape in shapes]
    layer = make()
    symbol = layer(one_or_all(entries))
    assert isinstance(symbol, KerasTensor)
    assert symbol.shape == (None, *out[1:])
    assert layer.output is symbol
    assert layer.built


def _check_trace(layer: Any, x: Any, expected: np.ndarray) -> None:
    arrays = x if isinstance(x, list) else [x]
    with Scope() as scope:
        fed = [graph.Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
        out = layer(fed if len(fed) > 1 else fed[0])
    assert not scope.writes, "a layer changes nothing in inference"
    known = dict(zip(fed, arrays, strict=True))
    known |= {value: variable.array for variable, value in scope.reads.items()}
    np.testing.assert_array_equal(evaluate([out], known)[0], expected)


def _check_round_trips(layer: Any, x: Any, expected: np.ndarray) -> None:
    def text(thing: Any) -> str:
        return json.dumps(serialize_keras_object(thing), sort_keys=True)

    remade = type(layer).from_config(layer.get_config())
    loaded = deserialize_keras_object(json.loads(text(layer)))
    for other in (remade, loaded):
        assert type(other) is type(layer)
        assert other.name == layer.name
        other(x)
        other.set_weights(layer.get_weights())
        np.testing.assert_array_equal(other(x), expected)
        assert text(other) == text(layer)


def _check_float64(
    make: Callable[[], Any], x: Any, weights: list[Any], expected: np.ndarray
) -> None:
    config.set_floatx("float64")
    layer = make()
    wide = [a.astype("float64") if a.dtype == "float32" else a for a in _listed(x)]
    wide = wide if isinstance(x, list) else wide[0]
    layer(wide)
    layer.set_weights(weights)
    out = layer(wide)
    assert out.dtype == (np.float64 if expected.dtype == np.float32 else out.dtype)
    assert {weight.dtype for weight in layer.weights} <= {"float64", "int32"}
    scale = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    np.testing.assert_allclose(out, expected, rtol=0, atol=2e-6 * scale)
    config.set_floatx("float32")


def _listed(x: Any) -> list[Any]:
    return x if isinstance(x, list) else [x]
