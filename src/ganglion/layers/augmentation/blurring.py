"""Layers that make images softer or sharper at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.layers.augmentation.base import (
    RandomImageLayer,
    clipped,
    each,
    span,
    value_range_of,
)
from ganglion.serialization import export

__all__ = ["RandomGaussianBlur", "RandomSharpness"]


@export("keras.layers")
class RandomGaussianBlur(RandomImageLayer):
    """Blurs some images; `factor` is the probability.

    >>> import numpy as np
    >>> x = np.full((1, 8, 8, 3), 100.0, "float32")
    >>> RandomGaussianBlur(seed=1)(x, training=True).shape
    (1, 8, 8, 3)
    """

    rank = 2  # of `kernel_size`
    kernel_size: tuple[int, int]

    def __init__(
        self,
        factor: Any = 1.0,
        kernel_size: Any = 3,
        sigma: Any = 1.0,
        value_range: Any = (0, 255),
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self.sigma = span(sigma, "sigma", 0, 1, one_sided=True)
        if any(size % 2 == 0 for size in self.kernel_size):
            raise ValueError(
                "kernel_size must be an odd number. Received: "
                f"kernel_size={kernel_size}"
            )

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        chosen = self.chosen(data, self.factor, seed)
        sigma = random.uniform((2,), *self.sigma, self.compute_dtype, seed) + 1e-6
        return {"should_apply_blur": chosen, "blur_factor": sigma}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        sigma = drawn["blur_factor"]
        blurred = ops.image.gaussian_blur(
            x, self.kernel_size, (sigma[0], sigma[1]), "channels_last"
        )
        x = ops.where(each(drawn["should_apply_blur"]), blurred, x)
        return clipped(x, self.value_range)


@export("keras.layers")
class RandomSharpness(RandomImageLayer):
    """Makes images softer or sharper: 0 is soft, 0.5 changes nothing, 1 is sharp.

    >>> import numpy as np
    >>> x = np.full((1, 8, 8, 3), 100.0, "float32")
    >>> RandomSharpness(0.5, seed=1)(x, training=True).shape
    (1, 8, 8, 3)
    """

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
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self.value_range = value_range_of(value_range)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        return {"factor": self.draw(data, *self.factor, seed)}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        kernel = np.full((3, 3, x.shape[3], 1), 1 / 13, self.compute_dtype)
        kernel[1, 1] = 5 / 13
        soft = ops.depthwise_conv(x, kernel, 1, "same", "channels_last")
        amount = 1.0 - 2.0 * each(drawn["factor"])
        return clipped(x + ops.cast(amount, x.dtype) * (soft - x), self.value_range)
