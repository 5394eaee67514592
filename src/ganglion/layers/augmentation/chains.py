"""Layers that chain others: RandAugment, AugMix, Pipeline."""

from __future__ import annotations

from typing import Any

from ganglion import ops, random
from ganglion.layers.arguments import positive
from ganglion.layers.augmentation.base import (
    Boxes,
    RandomImageLayer,
    clipped,
    span,
)
from ganglion.layers.augmentation.blurring import RandomSharpness
from ganglion.layers.augmentation.colors import (
    AutoContrast,
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
    RandomPosterization,
    Solarization,
)
from ganglion.layers.augmentation.histograms import Equalization
from ganglion.layers.augmentation.moving import (
    RandomRotation,
    RandomShear,
    RandomTranslation,
)
from ganglion.layers.base import Layer
from ganglion.layers.call_arguments import call_signature
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    serialize_keras_object,
)
from ganglion.tensors import get_keras_mask
from ganglion.tree import map_leaves

__all__ = ["AugMix", "Pipeline", "RandAugment"]


class _Chosen(RandomImageLayer):
    """A layer that holds others, of which some are chosen at random in each step.

    What is chosen is a number of the graph: all are computed and one is taken, so that
    a compiled step chooses again each time.
    """

    factor: tuple[float, float]
    names: tuple[str, ...]

    def _make_layers(self, interpolation: str, **kwargs: Any) -> None:
        shared = {**kwargs, "data_format": self.data_format}
        drawn = {**shared, "seed": self.seed}
        colors = {**drawn, "value_range": self.value_range}
        moved = {**drawn, "interpolation": interpolation}
        factor = self.factor
        bits = max(1, int(8 * factor[1]))
        makers: dict[str, Any] = {
            "random_shear": lambda: RandomShear(factor, factor, **moved),
            "random_translation": lambda: RandomTranslation(factor, factor, **moved),
            "random_rotation": lambda: RandomRotation(factor, **moved),
            "random_brightness": lambda: RandomBrightness(factor, **colors),
            "random_color_degeneration": lambda: RandomColorDegeneration(
                factor, **colors
            ),
            "random_contrast": lambda: RandomContrast(factor, **colors),
            "random_sharpness": lambda: RandomSharpness(factor, **colors),
            "random_posterization": lambda: RandomPosterization(bits, **colors),
            "solarization": lambda: Solarization(factor, factor, **colors),
            "auto_contrast": lambda: AutoContrast(self.value_range, **shared),
            "equalization": lambda: Equalization(self.value_range, **shared),
        }
        for name in self.names:
            setattr(self, name, makers[name]())

    def _drawn_by_all(self, data: Any, seed: Any) -> dict[str, Any]:
        return {
            name: getattr(self, name).get_random_transformation(data, seed=seed)
            for name in self.names
        }

    def _changed(self, kind: str, x: Any, choice: Any, drawn: dict[str, Any]) -> Any:
        """Return images or masks, changed by the chosen layer."""
        outputs = x
        for number, (name, transformation) in enumerate(drawn.items()):
            transform = getattr(getattr(self, name), f"transform_{kind}")
            changed = ops.cast(transform(x, transformation), x.dtype)
            outputs = ops.where(ops.equal(choice, number), changed, outputs)
        return outputs


@export("keras.layers")
class RandAugment(_Chosen):
    """Changes a batch of images by `num_ops` layers, drawn from eleven kinds.

    >>> import numpy as np
    >>> x = np.full((1, 8, 8, 3), 100.0, "float32")
    >>> RandAugment(value_range=(0, 255), seed=1)(x).shape
    (1, 8, 8, 3)
    """

    names = (
        "random_shear", "random_translation", "random_rotation", "random_brightness",
        "random_color_degeneration", "random_contrast", "random_sharpness",
        "random_posterization", "solarization", "auto_contrast", "equalization",
    )  # fmt: skip

    def __init__(
        self,
        value_range: Any = (0, 255),
        num_ops: int = 2,
        factor: Any = 0.5,
        interpolation: str = "bilinear",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.num_ops = num_ops and positive(num_ops, "num_ops")
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self._make_layers(interpolation, **_passed_on(kwargs))

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        if not self.num_ops:
            return {"transforms": {}, "layer_idxes": ()}
        choices = random.randint((self.num_ops,), 0, len(self.names), seed=seed)
        transforms = self._drawn_by_all(data, seed)
        return {"transforms": transforms, "layer_idxes": choices}

    def transform_images(
        self, images: Any, transformation: Any, training: Any = True
    ) -> Any:
        x = ops.cast(images, self.compute_dtype)
        return self._chain("images", x, transformation) if training else x

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        masks = segmentation_masks
        if not training:
            return masks
        return self._chain("segmentation_masks", masks, transformation)

    def _chain(self, kind: str, x: Any, drawn: Any) -> Any:
        for number in range(self.num_ops):
            choice = drawn["layer_idxes"][number]
            x = self._changed(kind, x, choice, drawn["transforms"])
        return x

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        boxes: Boxes = bounding_boxes
        if not training:
            return boxes
        for number in range(self.num_ops):
            choice = transformation["layer_idxes"][number]
            before = boxes
            for place, (name, drawn) in enumerate(transformation["transforms"].items()):
                moved = getattr(self, name).transform_bounding_boxes(before, drawn)
                is_chosen = ops.equal(choice, place)
                picked = {
                    key: ops.where(is_chosen, moved[key], boxes[key])
                    for key in ("boxes", "labels")
                }
                boxes = {**boxes, **picked}
        return boxes


def _passed_on(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the layers within get, too: all but the name."""
    return {key: value for key, value in kwargs.items() if key != "name"}


@export("keras.layers")
class AugMix(_Chosen):
    """Mixes images with what chains of random changes make of them.

    >>> import numpy as np
    >>> AugMix(value_range=(0, 255))(np.full((1, 8, 8, 3), 100.0, "float32")).shape
    (1, 8, 8, 3)
    """

    alpha: float

    def __init__(
        self,
        value_range: Any = (0, 255),
        num_chains: int = 3,
        chain_depth: int = 3,
        factor: Any = 0.3,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: str = "bilinear",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.num_chains = positive(num_chains, "num_chains")
        self.chain_depth = positive(chain_depth, "chain_depth")
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self.names = (
            "random_shear", "random_translation", "random_rotation",
            "random_posterization", "solarization", "auto_contrast", "equalization",
        )  # fmt: skip
        if all_ops:
            self.names += (
                "random_brightness", "random_color_degeneration", "random_contrast",
                "random_sharpness",
            )  # fmt: skip
        self._make_layers(interpolation, **_passed_on(kwargs))

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        amounts = random.gamma((self.num_chains,), self.alpha, self.compute_dtype, seed)
        shape = (self.num_chains, self.chain_depth)
        # One number more than there are layers: nothing is done.
        choices = random.randint(shape, 0, len(self.names) + 1, seed=seed)
        chains = [
            [
                {
                    "layer_index": choices[chain, depth],
                    "transformation": self._drawn_by_all(data, seed),
                }
                for depth in range(self.chain_depth)
            ]
            for chain in range(self.num_chains)
        ]
        return {
            "chain_mixing_weights": amounts / ops.sum(amounts),
            "weight_sample": random.beta(
                (), self.alpha, self.alpha, self.compute_dtype, seed
            ),
            "chain_transforms": chains,
        }

    def transform_images(
        self, images: Any, transformation: Any, training: Any = True
    ) -> Any:
        x = ops.cast(images, self.compute_dtype)
        if not training:
            return x
        return clipped(self._mix("images", x, transformation), self.value_range)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        if not training:
            return segmentation_masks
        masks = ops.cast(segmentation_masks, self.compute_dtype)
        return self._mix("segmentation_masks", masks, transformation)

    def _mix(self, kind: str, x: Any, drawn: Any) -> Any:
        mixed = ops.zeros_like(x)
        for number, chain in enumerate(drawn["chain_transforms"]):
            copy = x
            for step in chain:
                copy = self._step(kind, copy, step)
            mixed = mixed + copy * drawn["chain_mixing_weights"][number]
        share = drawn["weight_sample"]
        return share * x + (1.0 - share) * mixed

    def _step(self, kind: str, x: Any, step: dict[str, Any]) -> Any:
        drawn = step["transformation"]
        if "layer_name" in step:  # as Keras draws it: which layer is known
            layer = getattr(self, step["layer_name"])
            return getattr(layer, f"transform_{kind}")(x, drawn)
        return self._changed(kind, x, step["layer_index"], drawn)


@export("keras.layers")
class Pipeline(Layer):
    """Calls layers one after the other.

    >>> import numpy as np
    >>> from ganglion import layers
    >>> steps = Pipeline([layers.Rescaling(0.5), layers.Rescaling(1.0, offset=1.0)])
    >>> steps(np.array([2.0], "float32"))
    array([2.], dtype=float32)
    """

    takes_python_numbers = True

    def __init__(self, layers: Any, name: str | None = None) -> None:
        super().__init__(name=name)
        self._pipeline_layers = layers

    @property
    def layers(self) -> Any:
        """The layers, in the order in which they are called."""
        return self._pipeline_layers

    def call(self, inputs: Any, training: Any = True, mask: Any = None) -> Any:
        for layer in self._pipeline_layers:
            arguments = {"mask": mask, "training": training}
            known = call_signature(layer).parameters
            kwargs = {
                name: value
                for name, value in arguments.items()
                if name in known and value is not None
            }
            inputs = layer(inputs, **kwargs)
            mask = map_leaves(get_keras_mask, inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        layers = [serialize_keras_object(layer) for layer in self._pipeline_layers]
        return {"layers": layers, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        layers = config.get("layers")
        if not isinstance(layers, (list, tuple)):
            raise ValueError(
                "`Pipeline` config must contain a `layers` key mapping to a list of "
                f"serialized layers. Received config with layers={layers}."
            )
        restored = [deserialize_keras_object(layer) for layer in layers]
        return cls(**{**config, "layers": restored})
