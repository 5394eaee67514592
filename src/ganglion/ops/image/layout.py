"""The layout of images: a single image or a batch, channels last or first.

Every function here works on batches with the channels last; `opened` brings images to
that, and the layout it returns brings the result back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir.shaping import is_float
from ganglion.ops.numpy import (
    cast,
    clip,
    convert_to_tensor,
    round,  # noqa: A004
)
from ganglion.ops.shapes import expand_dims, moveaxis, squeeze
from ganglion.system.records import record


def check_rank(shape: tuple[Any, ...], name: str = "images") -> None:
    """Refuse what is neither an image nor a batch of them."""
    if len(shape) not in (3, 4):
        raise ValueError(
            f"Invalid {name} rank: expected rank 3 (single image) or rank 4 (batch of "
            f"images). Received input with shape: {name}.shape={tuple(shape)}"
        )


@record(guarded=True)
class Layout:
    """The changes that `opened` made to images, to be undone."""

    is_first: bool
    is_single: bool

    def restored(self, batch: Any) -> Any:
        """Return a batch of images (channels last) as the images were given."""
        x = moveaxis(batch, 3, 1) if self.is_first else batch
        return squeeze(x, 0) if self.is_single else x


def opened(
    images: Any, data_format: str | None, name: str = "images"
) -> tuple[Any, Layout]:
    """Return images as a batch with the channels last, and how they were laid out."""
    x = convert_to_tensor(images)
    check_rank(x.shape, name)
    layout = Layout(config.data_format_of(data_format) == "channels_first", x.ndim == 3)
    x = expand_dims(x, 0) if layout.is_single else x
    return (moveaxis(x, 1, 3) if layout.is_first else x), layout


def as_floats(x: Any) -> Any:
    """Return pixels as floats to compute with; 16 bits are too few to add up in."""
    if not is_float(x.dtype):
        return cast(x, config.floatx())
    return x if x.dtype.itemsize > 2 else cast(x, "float32")


def as_before(x: Any, dtype: np.dtype) -> Any:
    """Return computed pixels in their old type; integers are rounded."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = clip(round(x), float(limits.min), float(limits.max))
    return cast(x, dtype.name)
