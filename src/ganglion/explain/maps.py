"""Class activation maps: where in a picture a model sees its class."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ganglion import ops
from ganglion.compiler.ir.gradient import gradients
from ganglion.explain.network import Inside, network_of
from ganglion.explain.structure import CAM, structure_of
from ganglion.explain.structure import scores_before_activation as plain_scores
from ganglion.images.batches import batch_for
from ganglion.models import Model
from ganglion.models.functional import Network


class ActivationMaps(NamedTuple):
    """The maps of some images and what they tell about."""

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
    """Return where in each image the model sees a class.

    The features before global average pooling are weighed as the class weighs them: a
    channel is the map where nothing but an activation follows, else the weights of the
    Dense behind the pooling. Other models are asked by Grad-CAM: features are weighed
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
    >>> found = class_activation_map(model, np.ones((2, 8, 8, 1), "float32"))
    >>> found.maps.shape, found.method, found.layer
    ((2, 8, 8), 'cam', 'conv2d')
    """
    explainer = _explainer(model, method, layer)
    x = _images(explainer.inside.network, images)
    wanted = _wanted(class_index, len(x), explainer.classes)
    rows = min(batch_size, len(x)) if batch_size else batch_for(x.shape[1:3], len(x))
    maps, classes, scores = explainer.predict(
        [x, wanted], batch_size=rows, verbose=verbose
    )
    if size == "image":
        size = x.shape[1:3]
    elif size == "features":
        size = maps.shape[1:]
    if normalize:
        maps = normalized(maps, explainer.structure.method)
    maps = resized(maps, size)
    return ActivationMaps(
        maps, classes, scores, explainer.structure.method, explainer.structure.layer
    )


class Explainer(Model):
    """Computes maps, classes and scores for images and wanted classes (-1: any)."""

    def __init__(self, network: Network, method: str, layer: str | None) -> None:
        super().__init__(name="class_activation_map")
        self.inside = Inside(network)
        self.structure = structure_of(self.inside, method, layer)
        self.classes = int(self.structure.output.shape[-1] or 0)

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Weigh the features for the class."""
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
            target = plain_scores(self.inside, self.structure.output, known)
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


def _chosen(scores: Any, wanted: Any) -> tuple[Any, Any]:
    """Return the class of each row, and how its map adds up from those of all."""
    if scores.shape[-1] == 1:  # one unit: high for class 1, low for class 0
        likely = ops.cast(ops.greater(scores[:, 0], 0.5), "int32")
        classes = ops.where(ops.less(wanted, 0), likely, wanted)
        return classes, ops.cast(2 * classes - 1, "float32")[:, None]
    likely = ops.cast(ops.argmax(scores, axis=-1), "int32")
    classes = ops.where(ops.less(wanted, 0), likely, wanted)
    return classes, ops.one_hot(classes, scores.shape[-1])


# Kept while the model lives, so that a second call compiles nothing. They hold on to
# the network, not to the model.
_kept: WeakKeyDictionary[Any, dict[Any, Explainer]] = WeakKeyDictionary()


def _explainer(model: Any, method: str, layer: str | None) -> Explainer:
    network = network_of(model)
    held = _kept.setdefault(model, {})
    found = held.get((method, layer))
    if found is None or found.inside.network is not network:
        found = held[method, layer] = Explainer(network, method, layer)
    return found


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
    given = -1 if class_index is None else class_index
    array = np.asarray(given)
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


def normalized(maps: np.ndarray, method: str) -> np.ndarray:
    """Scale each map to 0 ... 1; one that is the same everywhere becomes 0.

    Plain maps start at their lowest value. Grad-CAM has left out what speaks against
    the class already, so that its zero stays zero.

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
    rows = _spread(maps.shape[1], size[0])
    columns = _spread(maps.shape[2], size[1])
    return np.einsum("ij,njk...,lk->nil...", rows, maps, columns, optimize=True).astype(
        maps.dtype, copy=False
    )


def _spread(old: int, new: int) -> np.ndarray:
    """Return the matrix that turns a line of some cells into one of others."""
    place = ((np.arange(new) + 0.5) * old / new - 0.5).clip(0, old - 1)
    first = np.floor(place).astype(int)
    second = np.minimum(first + 1, old - 1)
    share = place - first
    made = np.zeros((new, old))
    made[np.arange(new), first] = 1 - share
    made[np.arange(new), second] += share
    return made
