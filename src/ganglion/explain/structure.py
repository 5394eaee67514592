"""Which part of a model its class activation map is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganglion import layers
from ganglion.explain.network import Inside
from ganglion.symbolic import KerasTensor

CAM, GRAD_CAM = "cam", "grad-cam"
METHODS = ("auto", CAM, GRAD_CAM)

# What does nothing to a score when a model predicts, or only squeezes it in order.
_PASSING = (
    layers.Dropout,
    layers.SpatialDropout2D,
    layers.Flatten,
    layers.Reshape,
    layers.Softmax,
)
_ORDER_KEEPING = ("softmax", "sigmoid", "linear", "log_softmax")
# What comes behind the last features that still have their full size.
_NOT_FEATURES = (
    layers.MaxPooling2D,
    layers.AveragePooling2D,
    layers.GlobalAveragePooling2D,
    layers.GlobalMaxPooling2D,
    *_PASSING,
)


@dataclass(frozen=True)
class Structure:
    """Where the map comes from: features, and what weighs them."""

    method: str
    features: KerasTensor  # (rows, height, width, channels)
    weights: Any  # the Dense behind the pooling, None where a channel is a class
    output: KerasTensor
    layer: str  # the name of the layer that made the features


def structure_of(inside: Inside, method: str, layer: str | None) -> Structure:
    """Find the features before global pooling, or the last ones with a height."""
    outputs = inside.network.flat_outputs
    if len(outputs) != 1 or outputs[0].ndim != 2:
        shapes = ", ".join(str(one.shape) for one in outputs)
        raise ValueError(
            "A class activation map needs a model with one output of shape (rows, "
            f"classes), not {shapes}."
        )
    if method not in METHODS:
        raise ValueError(f"`method` is one of {', '.join(METHODS)}, not {method!r}.")
    pooled = _pooled(inside, outputs[0]) if layer is None else None
    if method == GRAD_CAM or (method == "auto" and pooled is None):
        features = _last_features(inside, layer)
        return _structure(inside, GRAD_CAM, features, None)
    if pooled is None:
        raise ValueError(
            "This model does not end in global average pooling, with at most a Dense "
            'behind it: take method="grad-cam", and name no `layer` for "cam".'
        )
    return _structure(inside, CAM, *pooled)


def _structure(
    inside: Inside, method: str, features: KerasTensor, weights: Any
) -> Structure:
    maker, _ = inside.maker(features)
    name = getattr(maker, "name", "input")
    return Structure(method, features, weights, inside.network.flat_outputs[0], name)


def _pooled(inside: Inside, tensor: KerasTensor) -> tuple[KerasTensor, Any] | None:
    """Return the features before global average pooling, and the Dense behind it."""
    dense = None
    while True:
        maker, before = inside.maker(tensor)
        if isinstance(maker, layers.GlobalAveragePooling2D):
            return before[0], dense
        if isinstance(maker, layers.Dense) and dense is None:
            if not _keeps_order(maker.activation):
                return None
            dense = maker
        elif not _passes(maker):
            return None
        if len(before) != 1:
            return None
        tensor = before[0]


def _passes(maker: Any) -> bool:
    if isinstance(maker, layers.Activation):
        return _keeps_order(maker.activation)
    return isinstance(maker, _PASSING)


def _keeps_order(activation: Any) -> bool:
    return getattr(activation, "__name__", "") in _ORDER_KEEPING


def _last_features(inside: Inside, layer: str | None) -> KerasTensor:
    found = []
    for maker, tensor in inside.tensors():
        is_named = layer is None or getattr(maker, "name", None) == layer
        is_picture = tensor.ndim == 4 and tensor.shape[1] != 1 != tensor.shape[2]
        if is_named and is_picture and (layer or not isinstance(maker, _NOT_FEATURES)):
            found.append(tensor)
    if not found:
        what = f"layer {layer!r} with" if layer else "layer with"
        raise ValueError(
            f"This model has no {what} an output of shape (rows, height, width, "
            "channels): there is nothing to draw a map from."
        )
    return found[-1]


def scores_before_activation(
    inside: Inside, output: KerasTensor, known: dict[KerasTensor, Any]
) -> Any:
    """Return the scores before a final softmax, which would mix the classes."""
    maker, before = inside.maker(output)
    if isinstance(maker, layers.Softmax) or (
        isinstance(maker, layers.Activation) and _keeps_order(maker.activation)
    ):
        return known[before[0]]
    if isinstance(maker, layers.Dense) and _keeps_order(maker.activation):
        from ganglion import ops

        scores = ops.matmul(known[before[0]], maker.kernel)
        return scores if maker.bias is None else scores + maker.bias
    return known[inside.source(output)]
