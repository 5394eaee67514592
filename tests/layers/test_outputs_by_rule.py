"""Layers whose outputs follow from a rule are not traced when a model is put together.

What the rule says must be what a trace would.
"""

from __future__ import annotations

from typing import Any

import pytest

import ganglion as keras
from ganglion import layers

CASES: list[tuple[type, dict[str, Any], tuple[Any, ...]]] = [
    (layers.Dense, {"units": 4}, (3,)),
    (layers.Dense, {"units": 4, "activation": "relu"}, (None, 5, 3)),
    (layers.Conv1D, {"filters": 2, "kernel_size": 3, "padding": "causal"}, (None, 3)),
    (layers.Conv1D, {"filters": 2, "kernel_size": 3, "dilation_rate": 2}, (9, 3)),
    (layers.Conv2D, {"filters": 4, "kernel_size": 3, "strides": 2}, (9, 8, 3)),
    (layers.Conv2D, {"filters": 4, "kernel_size": 3, "strides": 2}, (None, 8, 3)),
    (layers.Conv2D, {"filters": 4, "kernel_size": 1, "groups": 2}, (9, 8, 4)),
    (
        layers.Conv2D,
        {"filters": 4, "kernel_size": 3, "padding": "same", "activation": "gelu"},
        (None, None, 3),
    ),
    (
        layers.Conv3D,
        {"filters": 2, "kernel_size": 2, "data_format": "channels_first"},
        (3, 5, 4, 5),
    ),
    (layers.BatchNormalization, {}, (4, 4, 3)),
    (layers.BatchNormalization, {"axis": 1, "scale": False}, (3, None)),
    (layers.Dropout, {"rate": 0.5}, (3,)),
    (layers.SpatialDropout1D, {"rate": 0.5}, (None, 3)),
    (layers.GaussianNoise, {"stddev": 0.5}, (2, 3)),
    (layers.ReLU, {"max_value": 6}, (3,)),
    (layers.LeakyReLU, {}, (None, 3)),
    (layers.Activation, {"activation": "tanh"}, (2, 3)),
]


@pytest.mark.parametrize(("kind", "arguments", "shape"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "mixed_bfloat16"])
def test_the_rule_says_what_a_trace_does(
    kind: Any,
    arguments: dict[str, Any],
    shape: tuple[Any, ...],
    dtype: str,
    monkeypatch: Any,
) -> None:
    layer = kind(**arguments, dtype=dtype)
    calls: list[Any] = []
    inner = kind.call
    monkeypatch.setattr(
        kind, "call", lambda self, *a, **k: calls.append(1) or inner(self, *a, **k)
    )
    x = keras.Input(shape, dtype=layer.compute_dtype)
    by_rule = layer(x)
    assert not calls
    monkeypatch.setattr(kind, "_follows_shape_rule", lambda self: False)
    traced = kind(**arguments, dtype=dtype)(x)
    assert calls
    assert (by_rule.shape, by_rule.dtype) == (traced.shape, traced.dtype)
    assert by_rule.name != traced.name


def test_other_types_masks_and_functions_are_traced() -> None:
    whole = keras.Input((3,), dtype="int32")
    assert layers.Dropout(0.5)(whole).dtype == "int32"
    assert layers.BatchNormalization()(whole).dtype == "float32"
    sigmoid = layers.Activation("sigmoid", dtype="int32")
    assert sigmoid(whole).dtype == "float32"
    masked = layers.Masking()(keras.Input((4, 3)))
    assert layers.Dense(2)(masked)._keras_mask is not None
    halves = layers.Dense(4, activation=keras.activations.glu)(keras.Input((3,)))
    assert halves.shape == (None, 2)
    first = layers.Dense(4, activation=lambda x: x[:, :1])(keras.Input((3,)))
    assert first.shape == (None, 1)


def test_layers_of_the_users_are_traced() -> None:
    class Doubled(layers.Dense):
        def call(self, inputs: Any) -> Any:
            return keras.ops.concatenate([super().call(inputs)] * 2, axis=-1)

    assert Doubled(4)(keras.Input((3,))).shape == (None, 8)


def test_a_wrong_window_is_refused_when_the_model_is_put_together() -> None:
    with pytest.raises(ValueError, match="3"):
        layers.Conv2D(2, 5)(keras.Input((3, 3, 1)))
