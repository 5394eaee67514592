"""Layers that change colours at random: each pixel by itself, or with its image."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, ops, random
from ganglion.layers.arguments import keep, share
from ganglion.layers.augmentation.base import (
    ImageLayer,
    RandomImageLayer,
    checked,
    clipped,
    count_of,
    each,
    images_of,
    in_range,
    span,
    value_range_of,
)
from ganglion.ops.image.layout import opened
from ganglion.serialization import export

__all__ = [
    "AutoContrast", "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter",
    "RandomContrast", "RandomGrayscale", "RandomHue", "RandomInvert",
    "RandomPosterization", "RandomSaturation", "Solarization",
]  # fmt: skip

_BYTES = (0, 255)
_LAST = "channels_last"


@export("keras.layers")
class RandomContrast(RandomImageLayer):
    """Moves pixels away from the mean of their channel, or towards it.

    >>> import numpy as np
    >>> x = np.array([1.0, 3.0], "float32").reshape(1, 1, 2, 1)
    >>> RandomContrast(0.5)(x, training=False).ravel()
    array([1., 3.], dtype=float32)
    """

    def __init__(
        self,
        factor: Any,
        value_range: Any = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        low, high = self.factor
        return {"contrast_factor": each(self.draw(data, 1 - low, 1 + high, seed))}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        mean = ops.mean(x, axis=(1, 2), keepdims=True)
        changed = (x - mean) * each(drawn["contrast_factor"]) + mean
        return clipped(changed, self.value_range)


@export("keras.layers")
class RandomBrightness(RandomImageLayer):
    """Adds the same number to all pixels of an image.

    >>> import numpy as np
    >>> layer = RandomBrightness(0.2, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Any,
        value_range: Any = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", -1, 1)
        self.value_range = value_range_of(value_range)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        low, high = self.value_range
        drawn = self.draw(data, *self.factor, seed)
        return {"rgb_delta": each(drawn * (high - low))}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        return clipped(x + each(drawn["rgb_delta"]), self.value_range)


class _ByFactor(RandomImageLayer):
    """A layer whose only number an image is a factor."""

    least, most, one_sided = -1, 1, False

    def __init__(
        self,
        factor: Any,
        value_range: Any = (0, 255),
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        bounds = span(factor, "factor", self.least, self.most, self.one_sided)
        self.factor: tuple[float, float] = bounds
        self.value_range = value_range_of(value_range)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        return {"factor": self.draw(data, *self.factor, seed)}


@export("keras.layers")
class RandomColorDegeneration(_ByFactor):
    """Takes colours out: 0 changes nothing, 1 makes an image grey.

    >>> import numpy as np
    >>> layer = RandomColorDegeneration(0.5, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        return {"factor": each(self.draw(data, *self.factor, seed))}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        grey = ops.image.rgb_to_grayscale(x, data_format=_LAST)
        changed = x + each(drawn["factor"]) * (grey - x)
        return clipped(changed, self.value_range)


@export("keras.layers")
class RandomHue(_ByFactor):
    """Turns the hue of images by up to half of the colour wheel, either way.

    >>> import numpy as np
    >>> layer = RandomHue(0.1, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    least, one_sided = 0, True

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        side = ops.where(self.draw(data, 0.0, 1.0, seed) > 0.5, -1.0, 1.0)
        return {"factor": side * self.draw(data, *self.factor, seed) * 0.5}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        x = in_range(x, self.value_range, (0, 1))
        turn = ops.reshape(drawn["factor"], (-1, 1, 1))
        hue, saturation, value = _planes(ops.image.rgb_to_hsv(x, data_format=_LAST))
        hue = hue + ops.cast(turn, x.dtype)
        hue = ops.where(hue > 1.0, hue - 1.0, hue)
        hue = ops.where(hue < 0.0, hue + 1.0, hue)
        colors = ops.stack([hue, saturation, value], axis=-1)
        x = clipped(ops.image.hsv_to_rgb(colors, data_format=_LAST), (0, 1))
        return in_range(x, (0, 1), self.value_range)


def _planes(x: Any) -> list[Any]:
    return [x[..., number] for number in range(3)]


@export("keras.layers")
class RandomSaturation(_ByFactor):
    """Makes colours paler or stronger: 0 is grey, 0.5 changes nothing, 1 is full.

    >>> import numpy as np
    >>> layer = RandomSaturation(0.3, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        factor = self.draw(data, *self.factor, seed)
        return {"factor": factor / (1.0 - factor + config.epsilon())}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        factor = ops.cast(ops.reshape(drawn["factor"], (-1, 1, 1)), x.dtype)
        hue, saturation, value = _planes(ops.image.rgb_to_hsv(x, data_format=_LAST))
        stronger = clipped(saturation * factor, self.value_range)
        colors = ops.stack([hue, stronger, value], axis=-1)
        return ops.image.hsv_to_rgb(colors, data_format=_LAST)


@export("keras.layers")
class RandomPosterization(_ByFactor):
    """Leaves a few bits of each colour, 1 to 8.

    >>> import numpy as np
    >>> layer = RandomPosterization(4, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    least, most, one_sided = 1, 8, True

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        low, high = (int(bound) for bound in self.factor)
        count = count_of(data)
        if low == high:
            bits = ops.full((count,), low, "uint8")
        else:
            bits = random.randint((count,), low, high, "uint8", seed)
        return {"shift_factor": ops.cast(8 - ops.cast(bits, "int32"), "uint8")}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        powers = np.exp2(np.arange(9)).astype(x.dtype)
        step = each(ops.take(powers, ops.cast(drawn["shift_factor"], "int32")))
        bytes_ = ops.floor(in_range(x, self.value_range, _BYTES))
        return in_range(ops.floor(bytes_ / step) * step, _BYTES, self.value_range)


@export("keras.layers")
class RandomGrayscale(RandomImageLayer):
    """Makes some images grey; `factor` is the probability.

    >>> import numpy as np
    >>> layer = RandomGrayscale(factor=1.0, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        factor: float = 0.5,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = share(factor, "factor")

    def _draw(self, data: Any, seed: Any) -> Any:
        return each(self.draw(data, 0.0, 1.0, seed)) < self.factor

    def _transformed(self, x: Any, drawn: Any) -> Any:
        grey = ops.image.rgb_to_grayscale(x, data_format=_LAST)
        return ops.where(each(drawn), grey, x)


@export("keras.layers")
class RandomInvert(RandomImageLayer):
    """Inverts the colours of some images; `factor` is the probability.

    >>> import numpy as np
    >>> layer = RandomInvert(factor=1.0, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Any = 1.0,
        value_range: Any = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        return {"apply_inversion": self.chosen(data, self.factor, seed)}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        inverted = float(self.value_range[1]) - x
        return ops.where(each(drawn["apply_inversion"]), inverted, x)


@export("keras.layers")
class Solarization(RandomImageLayer):
    """Adds a number to the pixels, and inverts those that are above another.

    >>> import numpy as np
    >>> Solarization()(np.array([10.0, 250.0]).reshape(1, 1, 2, 1)).numpy().ravel()
    array([245.,   5.], dtype=float32)
    """

    def __init__(
        self,
        addition_factor: Any = 0.0,
        threshold_factor: Any = 0.0,
        value_range: Any = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())
        self.addition_factor = span(addition_factor, "addition_factor", 0, 1, True)
        self.threshold_factor = span(threshold_factor, "threshold_factor", 0, 1, True)
        self.value_range = value_range_of(value_range)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        drawn = {}
        names = ("addition", "threshold")
        for name in names:
            low, high = getattr(self, f"{name}_factor")
            drawn[f"{name}s"] = each(self.draw(data, low, high * 255.0, seed))
        return drawn

    def _transformed(self, x: Any, drawn: Any) -> Any:
        x = in_range(x, self.value_range, _BYTES) + each(drawn["additions"])
        x = clipped(x, _BYTES)
        x = ops.where(x < each(drawn["thresholds"]), x, 255.0 - x)
        return in_range(x, _BYTES, self.value_range)


@export("keras.layers")
class AutoContrast(ImageLayer):
    """Stretches each channel of an image over the full range of values.

    >>> import numpy as np
    >>> x = np.array([10.0, 20.0], "float32").reshape(1, 1, 2, 1)
    >>> AutoContrast()(x).ravel()
    array([  0., 255.], dtype=float32)
    """

    def __init__(self, value_range: Any = (0, 255), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        keep(self, locals())
        self.value_range = value_range_of(value_range)

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        x, layout = opened(ops.cast(images, self.compute_dtype), self.data_format)
        pixels = in_range(x, self.value_range, _BYTES)
        low = ops.min(pixels, axis=(1, 2), keepdims=True)
        spread = ops.max(pixels, axis=(1, 2), keepdims=True) - low
        scale = 255.0 / ops.where(spread > 0.0, spread, 1.0)
        stretched = clipped(pixels * scale - low * scale, _BYTES)
        stretched = in_range(stretched, _BYTES, self.value_range)
        return layout.restored(ops.where(spread > 0.0, stretched, x))


@export("keras.layers")
class RandomColorJitter(RandomImageLayer):
    """Changes brightness, contrast, saturation and hue, one after the other.

    >>> import numpy as np
    >>> layer = RandomColorJitter((0, 255), brightness_factor=0.2, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        value_range: Any = (0, 255),
        brightness_factor: Any = None,
        contrast_factor: Any = None,
        saturation_factor: Any = None,
        hue_factor: Any = None,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        kinds: dict[str, Any] = {
            "brightness": RandomBrightness,
            "contrast": RandomContrast,
            "saturation": RandomSaturation,
            "hue": RandomHue,
        }
        for name, kind in kinds.items():
            factor = getattr(self, f"{name}_factor")
            layer = None
            if factor is not None:
                layer = kind(factor, value_range, seed=seed, data_format=data_format)
            setattr(self, f"random_{name}", layer)
        steps = (getattr(self, f"random_{name}") for name in kinds)
        self._steps = [layer for layer in steps if layer is not None]

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        """Return None, as in Keras: each change draws when it is applied."""
        checked(images_of(data))
        return None

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        x = ops.cast(images, self.compute_dtype)
        for layer in self._steps if training else ():
            drawn = layer.get_random_transformation(x, seed=self.seed_generator)
            x = layer.transform_images(x, drawn)
        return ops.cast(x, self.compute_dtype)
