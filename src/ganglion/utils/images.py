"""Images as arrays and back, by Pillow."""

from __future__ import annotations

import io
import os
import warnings
from typing import IO, Any

import numpy as np

from ganglion import config, files, ops
from ganglion.config import closest
from ganglion.images.decoding import METHODS, MODES, pillow

# Others are not tried, whatever a file claims to be: some formats run programs.
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM", "TGA", "ICO")
_FORMAT_NAMES = {"jpg": "jpeg", "tif": "tiff"}  # by the endings that differ
_GREY_MODES = ("L", "I;16", "I")


def _is_channels_first(data_format: str | None) -> bool:
    return config.data_format_of(data_format) == "channels_first"


def array_to_img(
    x: Any, data_format: str | None = None, scale: bool = True, dtype: Any = None
) -> Any:
    """Return a Pillow image of an array (rows, columns, channels).

    Args:
        x: The array, with 1, 3 or 4 channels.
        data_format: "channels_last" or "channels_first".
        scale: Whether to stretch the values to the range from 0 to 255.
        dtype: The type to compute in.
    """
    array = np.asarray(x, dtype=dtype or config.floatx())
    if array.ndim != 3:
        raise ValueError(
            f"An image has three axes (rows, columns, channels); got {array.shape}."
        )
    if _is_channels_first(data_format):
        array = array.transpose(1, 2, 0)
    if scale:
        array = array - array.min()
        array = array / (array.max() or 1) * 255
    channels = array.shape[2]
    if channels not in (1, 3, 4):
        raise ValueError(f"An image has 1, 3 or 4 channels, not {channels}.")
    if channels > 1:
        return pillow().fromarray(array.astype("uint8"))
    grey = array[:, :, 0]
    return pillow().fromarray(grey.astype("int32" if grey.max() > 255 else "uint8"))


def img_to_array(img: Any, data_format: str | None = None, dtype: Any = None) -> Any:
    """Return an image as an array (rows, columns, channels).

    Args:
        img: A Pillow image, or an array.
        data_format: "channels_last" or "channels_first".
        dtype: The type of the result.
    """
    array = np.asarray(img, dtype=dtype or config.floatx())
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3:
        raise ValueError(f"An image has two or three axes; got {array.shape}.")
    return array.transpose(2, 0, 1) if _is_channels_first(data_format) else array


def save_img(
    path: str | os.PathLike[str] | IO[bytes],
    x: Any,
    data_format: str | None = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Write an array to an image file.

    Args:
        path: The file; its ending gives the format.
        x: The array.
        data_format: "channels_last" or "channels_first".
        file_format: The format, if not by the ending.
        scale: Whether to stretch the values to the range from 0 to 255.
        **kwargs: What Pillow's `save` takes besides.
    """
    if file_format is None and isinstance(path, (str, os.PathLike)):
        file_format = os.path.splitext(path)[1][1:].lower()
    if file_format:
        file_format = _FORMAT_NAMES.get(file_format.lower(), file_format)
    image = array_to_img(x, data_format=data_format, scale=scale)
    if image.mode == "RGBA" and file_format == "jpeg":
        warnings.warn("JPEG has no transparency: saved as RGB.", stacklevel=2)
        image = image.convert("RGB")
    if isinstance(path, (str, os.PathLike)):
        write_img(path, image, file_format, **kwargs)
    else:
        image.save(path, format=file_format, **kwargs)


def write_img(
    path: str | os.PathLike[str],
    image: Any,
    file_format: str | None = None,
    durable: bool = True,
    **kwargs: Any,
) -> None:
    """Write a Pillow image to a file atomically; its ending may name the format."""
    ending = os.path.splitext(path)[1][1:].lower()
    name = file_format or _FORMAT_NAMES.get(ending, ending)
    files.write_file(
        path, lambda file: image.save(file, format=name, **kwargs), durable=durable
    )


def load_img(
    path: Any,
    color_mode: str = "rgb",
    target_size: tuple[int, int] | None = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """Read a Pillow image from a file.

    Args:
        path: The file, or its bytes as `io.BytesIO`.
        color_mode: "grayscale", "rgb" or "rgba".
        target_size: Rows and columns to resize to.
        interpolation: How to resize: "nearest", "bilinear", "bicubic", "hamming",
            "box" or "lanczos".
        keep_aspect_ratio: Whether to crop the image to the target's shape first.
    """
    if color_mode not in MODES:
        raise ValueError(
            f"`color_mode` must be one of {', '.join(MODES)}. "
            f"{closest(color_mode, MODES)}"
        )
    source = path if isinstance(path, io.BytesIO) else io.BytesIO(files.read_file(path))
    image = pillow().open(source, formats=_FORMATS)
    is_grey = color_mode == "grayscale" and image.mode in _GREY_MODES
    if image.mode != MODES[color_mode] and not is_grey:
        image = image.convert(MODES[color_mode])
    if target_size is None or image.size == (target_size[1], target_size[0]):
        return image
    if interpolation not in METHODS:
        raise ValueError(f"Unknown `interpolation`. {closest(interpolation, METHODS)}")
    method = getattr(pillow().Resampling, interpolation.upper())
    rows, columns = target_size
    box = _centre(image.size, (columns, rows)) if keep_aspect_ratio else None
    return image.resize((columns, rows), method, box=box)


def _centre(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, ...]:
    """Return the largest box of the target's shape in the middle of an image.

    >>> _centre((100, 50), (10, 10))
    (25, 0, 75, 50)
    """
    width, height = size
    box_height = min(height, width * target[1] // target[0])
    box_width = min(width, height * target[0] // target[1])
    top, left = (height - box_height) // 2, (width - box_width) // 2
    return left, top, left + box_width, top + box_height


def smart_resize(
    x: Any,
    size: Any,
    interpolation: str = "bilinear",
    data_format: str = "channels_last",
) -> Any:
    """Resize images without stretching them: the largest window that fits is taken.

    >>> smart_resize(np.zeros((340, 500, 3), "float32"), (200, 200)).shape
    (200, 200, 3)
    """
    if len(size) != 2:
        raise ValueError(
            f"Expected `size` to be a tuple of 2 integers, but got: {size}."
        )
    if len(np.shape(x)) not in (3, 4):
        raise ValueError(
            "Expected an image array with shape `(height, width, channels)`, or "
            "`(batch_size, height, width, channels)`, but got input with incorrect "
            f"rank, of shape {tuple(np.shape(x))}."
        )
    if interpolation != "nearest" and np.dtype(ops.dtype(x)).kind != "f":
        x = ops.cast(
            x, config.floatx()
        )  # interpolated pixels are not rounded, as in Keras
    return ops.image.resize(
        x, size, interpolation, crop_to_aspect_ratio=True, data_format=data_format
    )
