"""Class activation maps: the parts of a picture that speak for a class.

Read `class_activation_map` first, then `Explainer.call`. Which features a map is made
of is found by walking back from the model's output; models inside of models are looked
through, their tensors count as the outer model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ganglion import layers, ops
from ganglion.compiler.ir.gradient import gradients
from ganglion.explain.inside import Inside
from ganglion.images.loading import batch_for
from ganglion.models import Model
from ganglion.models.functional import Network
from ganglion.symbolic import KerasTensor

CAM, GRAD_CAM = "cam", "grad-cam"
METHODS = ("auto", CAM, GRAD_CAM)

# Layers that leave scores as they are in inference, or keep their order.
_PASSING = (
    layers.Dropout,
    layers.SpatialDropout2D,
    layers.Flatten,
    layers.Reshape,
    layers.Softmax,
)
_ORDER_KEEPING = ("softmax", "sigmoid", "linear", "log_softmax")
# Layers that may follow the last features of full size.
_NOT_FEATURES = (
    layers.MaxPooling2D,
    layers.AveragePooling2D,
    layers.GlobalAveragePooling2D,
    layers.GlobalMaxPooling2D,
    *_PASSING,
)


class ActivationMaps(NamedTuple):
    """The maps of some images, with the classes and scores that they explain."""

    maps: np.ndarray  # (images, height, width)
    classes: np.ndarray  # the class each map is of
    scores: np.ndarray  # (images, classes): the model's outputs
    method: str  # "cam" or "grad-cam"
    layer: str  # the layer whose output the maps are made of


def class_activation_map(
    model: Any,
    images: Any,
    class_index: Any = None,
    *,
    method: str = "auto",
    layer: str | None = None,
    size: Any = "image",
    normalize: bool = True,
    batch_size: int | None = None,
    verbose: Any = 0,
) -> ActivationMaps:
    """Return the class activation map of each image.

    The features before global average pooling are weighed as the class weighs them: a
    channel is the map where nothing but an activation follows, else the weights of the
    Dense after the pooling. For other models there is Grad-CAM: features are weighed
    by the average gradient of the class's score.

    Args:
        model: A Sequential or functional model with scores of classes as its output.
        images: The images, (images, height, width, channels), as for `predict`.
        class_index: A class, or one for each image; by default the predicted one.
        method: "cam", "grad-cam", or "auto": the first that the model's shape allows.
        layer: For Grad-CAM, the name of the layer to look at; by default the last one
            whose output has a height and a width, before its pooling.
        size: "image" to enlarge maps to the images' size, "features" to leave them, or
            (height, width).
        normalize: Whether to scale each map to 0 ... 1; else they are as computed.
        batch_size: Images at a time.
        verbose: Whether to show progress, as in `predict`.

    >>> import ganglion as keras
    >>> model = keras.Sequential([
    ...     keras.Input((8, 8, 1)),
    ...     keras.layers.Conv2D(3, 3, padding="same"),
    ...     keras.layers.GlobalAveragePooling2D(),
    ...     keras.layers.Softmax(),
    ... ])
    >>> result = class_activation_map(model, np.ones((2, 8, 8, 1), "float32"))
    >>> result.maps.shape, result.method, result.layer
    ((2, 8, 8), 'cam', 'conv2d')
    """
    explainer = _explainer(model, method, layer)
    x = _images(explainer.inside.network, images)
    wanted = _wanted(class_index, len(x), explainer.classes)
    rows = min(batch_size, len(x)) if batch_size else batch_for(x.shape[1:3], len(x))
    maps, classes, scores = explainer.predict(
        [x, wanted], batch_size=rows, verbose=verbose
    )
    if isinstance(size, str):
        size = {"image": x.shape[1:3], "features": maps.shape[1:]}[size]
    structure = explainer.structure
    if normalize:
        maps = normalized(maps, structure.method)
    maps = resized(maps, size)
    return ActivationMaps(maps, classes, scores, structure.method, structure.layer)


def map_method(model: Any) -> str | None:
    """Return how maps of a model are made, "cam" or "grad-cam"; None if they are not.

    >>> import ganglion as keras
    >>> map_method(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    """
    try:
        return _explainer(model, "auto", None).structure.method
    except ValueError:
        return None


class Explainer(Model):
    """Computes maps, classes and scores for images and wanted classes (-1: any)."""

    def __init__(self, network: Network, method: str, layer: str | None) -> None:
        super().__init__(name="class_activation_map")
        self.inside = Inside(network)
        self.structure = _structure_of(self.inside, method, layer)
        self.classes = int(self.structure.output.shape[-1] or 0)

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        images, wanted = inputs
        known = self.inside.values([images])
        scores = known[self.inside.source(self.structure.output)]
        classes, share = _chosen(scores, wanted)
        features = known[self.structure.features]
        if self.structure.method == CAM:
            weights = share
            if self.structure.weights is not None:
                kernel = ops.transpose(self.structure.weights.kernel)
                weights = ops.matmul(share, kernel)
        else:
            target = _scores_before_activation(
                self.inside, self.structure.output, known
            )
            # Rows do not touch each other, so one sum serves the whole batch.
            total = ops.sum(target * share)
            slopes = gradients(total, [features]).get(features)
            if slopes is None:
                raise ValueError(
                    f"The scores do not depend on the layer {self.structure.layer!r}."
                )
            weights = ops.mean(slopes, axis=(1, 2))
        maps = ops.sum(features * weights[:, None, None, :], axis=-1)
        if self.structure.method != CAM:
            maps = ops.relu(maps)
        return maps, classes, scores


class WithMaps(Model):
    """A model that also gives the map of the class that it predicts, to be exported.

    Its outputs are the scores, and the maps in the size of the features, as computed.

    Args:
        model: One that `map_method` knows a method for.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(name=model.name)
        self.explainer = _explainer(model, "auto", None)

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        predicted = ops.full((inputs.shape[0],), -1, "int32")
        maps, _, scores = self.explainer([inputs, predicted])
        return scores, maps


def _chosen(scores: Any, wanted: Any) -> tuple[Any, Any]:
    """Return the class of each row, and how its map adds up from those of all."""
    if scores.shape[-1] == 1:  # one unit: high for class 1, low for class 0
        likely = ops.cast(ops.greater(scores[:, 0], 0.5), "int32")
        classes = ops.where(ops.less(wanted, 0), likely, wanted)
        return classes, ops.cast(2 * classes - 1, "float32")[:, None]
    likely = ops.cast(ops.argmax(scores, axis=-1), "int32")
    classes = ops.where(ops.less(wanted, 0), likely, wanted)
    return classes, ops.one_hot(classes, scores.shape[-1])


# They live as long as the model, so that a second call compiles nothing. They refer
# to the network, not to the model.
_explainers: WeakKeyDictionary[Any, dict[Any, Explainer]] = WeakKeyDictionary()


def _explainer(model: Any, method: str, layer: str | None) -> Explainer:
    network = getattr(model, "_network", None)
    if network is None:
        raise ValueError(
            f"The model {getattr(model, 'name', model)!r} has no graph of layers to "
            "look into: make it with `Sequential([Input(...), ...])` or with the "
            "functional API, or call it on data first."
        )
    known = _explainers.setdefault(model, {})
    explainer = known.get((method, layer))
    if explainer is None or explainer.inside.network is not network:
        explainer = known[method, layer] = Explainer(network, method, layer)
    return explainer


def _images(network: Network, images: Any) -> np.ndarray:
    if len(network.flat_inputs) != 1:
        raise ValueError("A class activation map needs a model with one input.")
    wanted = network.flat_inputs[0].shape
    x = np.asarray(images)
    if x.ndim == len(wanted) - 1 and wanted[-1] == 1:
        x = x[..., np.newaxis]
    fits = x.ndim == len(wanted) and all(
        want in (None, have) for want, have in zip(wanted[1:], x.shape[1:], strict=True)
    )
    if not fits or x.ndim != 4:
        raise ValueError(
            f"The model takes images of shape {wanted}, but these have {x.shape}."
        )
    if not len(x):
        raise ValueError("There are no images.")
    return x


def _wanted(class_index: Any, rows: int, classes: int) -> np.ndarray:
    array = np.asarray(-1 if class_index is None else class_index)
    if array.dtype.kind not in "iu" or array.shape not in ((), (rows,)):
        raise ValueError(
            "`class_index` is the number of a class, or one for each of the "
            f"{rows} images; got {class_index!r:.80}."
        )
    most = max(classes, 2)
    if class_index is not None and array.size and not 0 <= array.min() <= array.max():
        raise ValueError(f"Classes are counted from 0; got {int(array.min())}.")
    if array.size and array.max() >= most:
        raise ValueError(
            f"The model knows {most} classes, 0 to {most - 1}; got {int(array.max())}."
        )
    return np.broadcast_to(array.astype("int32"), (rows,)).copy()


# ---- the features that a map is made of ------------------------------------------


@dataclass(frozen=True)
class Structure:
    """The source of a map: features, and their weights."""

    method: str
    features: KerasTensor  # (rows, height, width, channels)
    weights: Any  # the Dense after the pooling, None where a channel is a class
    output: KerasTensor
    layer: str  # the name of the layer that computes the features


def _structure_of(inside: Inside, method: str, layer: str | None) -> Structure:
    """Find the features before global pooling, or the last ones with a height."""
    outputs = inside.network.flat_outputs
    if len(outputs) != 1 or outputs[0].ndim != 2:
        shapes = ", ".join(str(output.shape) for output in outputs)
        raise ValueError(
            "A class activation map needs a model with one output of shape (rows, "
            f"classes), not {shapes}."
        )
    if method not in METHODS:
        raise ValueError(f"`method` is one of {', '.join(METHODS)}, not {method!r}.")
    pooled = _pooled(inside, outputs[0]) if layer is None else None
    if method == GRAD_CAM or (method == "auto" and pooled is None):
        method, features, weights = GRAD_CAM, _last_features(inside, layer), None
    elif pooled is None:
        raise ValueError(
            "This model does not end in global average pooling, with at most a Dense "
            'behind it: take method="grad-cam", and name no `layer` for "cam".'
        )
    else:
        method, (features, weights) = CAM, pooled
    name = getattr(inside.maker(features)[0], "name", "input")
    return Structure(method, features, weights, outputs[0], name)


def _pooled(inside: Inside, tensor: KerasTensor) -> tuple[KerasTensor, Any] | None:
    """Return the features before global average pooling, and the Dense after it."""
    dense = None
    while True:
        maker, before = inside.maker(tensor)
        if isinstance(maker, layers.GlobalAveragePooling2D):
            return before[0], dense
        if isinstance(maker, layers.Dense) and dense is None:
            if not _keeps_order(maker.activation):
                return None
            dense = maker
        elif not isinstance(maker, _PASSING) and not _is_squeezing(maker):
            return None
        if len(before) != 1:
            return None
        tensor = before[0]


def _is_squeezing(maker: Any) -> bool:
    return isinstance(maker, layers.Activation) and _keeps_order(maker.activation)


def _keeps_order(activation: Any) -> bool:
    return getattr(activation, "__name__", "") in _ORDER_KEEPING


def _last_features(inside: Inside, layer: str | None) -> KerasTensor:
    features = None
    for maker, tensor in inside.tensors():
        is_named = layer is None or getattr(maker, "name", None) == layer
        is_picture = tensor.ndim == 4 and tensor.shape[1] != 1 != tensor.shape[2]
        if is_named and is_picture and (layer or not isinstance(maker, _NOT_FEATURES)):
            features = tensor
    if features is None:
        name = f"layer {layer!r}" if layer else "layer"
        raise ValueError(
            f"This model has no {name} with an output of shape (rows, height, width, "
            "channels): there is nothing to draw a map from."
        )
    return features


def _scores_before_activation(
    inside: Inside, output: KerasTensor, known: dict[KerasTensor, Any]
) -> Any:
    """Return the scores before a final softmax, which would mix the classes."""
    maker, before = inside.maker(output)
    if isinstance(maker, layers.Softmax) or _is_squeezing(maker):
        return known[before[0]]
    if isinstance(maker, layers.Dense) and _keeps_order(maker.activation):
        scores = ops.matmul(known[before[0]], maker.kernel)
        return scores if maker.bias is None else scores + maker.bias
    return known[inside.source(output)]


# ---- maps as arrays --------------------------------------------------------------


def normalized(maps: np.ndarray, method: str) -> np.ndarray:
    """Scale each map to 0 ... 1; one that is the same everywhere becomes 0.

    Plain maps start at their lowest value. Grad-CAM has left out negative values
    already, so that its zero stays zero.

    >>> normalized(np.array([[[-1.0, 1.0], [3.0, 3.0]]]), "cam")
    array([[[0. , 0.5],
            [1. , 1. ]]])
    """
    low = maps.min(axis=(1, 2), keepdims=True) if method == CAM else 0
    high = (maps - low).max(axis=(1, 2), keepdims=True)
    return np.where(high > 0, (maps - low) / np.where(high > 0, high, 1), 0)


def resized(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Enlarge maps (or pictures) smoothly: linear between the middles of their cells.

    >>> resized(np.array([[[0.0, 1.0]]]), (1, 4))
    array([[[0.  , 0.25, 0.75, 1.  ]]])
    """
    rows = _interpolation(maps.shape[1], size[0])
    columns = _interpolation(maps.shape[2], size[1])
    return np.einsum("ij,njk...,lk->nil...", rows, maps, columns, optimize=True).astype(
        maps.dtype, copy=False
    )


def _interpolation(old: int, new: int) -> np.ndarray:
    """Return the matrix that turns a line of some cells into one of others."""
    at = ((np.arange(new) + 0.5) * old / new - 0.5).clip(0, old - 1)
    first = np.floor(at).astype(int)
    matrix = np.zeros((new, old))
    matrix[np.arange(new), first] = 1 - (at - first)
    matrix[np.arange(new), np.minimum(first + 1, old - 1)] += at - first
    return matrix
