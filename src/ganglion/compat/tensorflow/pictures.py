"""`tf.image`: images of rows, columns and channels, alone or in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.compat.tensorflow.arrays import known
from ganglion.dtypes import is_float_dtype


def flip_left_right(image: Any) -> Any:
    """Return images with left and right exchanged."""
    return ops.flip(image, axis=-2)


def flip_up_down(image: Any) -> Any:
    """Return images upside down."""
    return ops.flip(image, axis=-3)


def rot90(image: Any, k: int = 1) -> Any:
    """Return images turned counterclockwise by quarters."""
    first = len(image.shape) - 3
    return ops.rot90(image, k, axes=(first, first + 1))


def _flipped_at_random(image: Any, axis: int, seed: Any) -> Any:
    count = (image.shape[0], 1, 1, 1) if len(image.shape) == 4 else (1, 1, 1)
    heads = ops.less(random.uniform(count, seed=seed), 0.5)
    return ops.where(heads, ops.flip(image, axis=axis), image)


def random_flip_left_right(image: Any, seed: Any = None) -> Any:
    """Return images, each of which may have left and right exchanged."""
    return _flipped_at_random(image, -2, seed)


def random_flip_up_down(image: Any, seed: Any = None) -> Any:
    """Return images, each of which may be upside down."""
    return _flipped_at_random(image, -3, seed)


def _as_floats(image: Any) -> tuple[Any, str]:
    """Return an image as floats between 0 and 1, and its own type."""
    name = str(np.dtype(str(image.dtype)))
    return convert_image_dtype(image, "float32"), name


def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False) -> Any:
    """Return an image of another type; floats are between 0 and 1.

    Floats that are too large for integers become the largest in any case.
    """
    before, after = np.dtype(str(image.dtype)), np.dtype(str(dtype))
    if before == after:
        return image
    cast = ops.saturate_cast if saturate else ops.cast
    if before.kind in "iu" and after.kind in "iu":
        old, new = (int(np.iinfo(kind).max) + 1 for kind in (before, after))
        if old > new:
            return cast(ops.floor_divide(image, old // new), after.name)
        return ops.multiply(cast(image, after.name), new // old)
    if before.kind in "iu" and after.kind == "f":
        return ops.divide(ops.cast(image, after.name), float(np.iinfo(before).max))
    if before.kind == "f" and after.kind in "iu":
        scaled = ops.multiply(image, float(np.iinfo(after).max) + 0.5)
        return ops.saturate_cast(scaled, after.name)
    if before.kind == after.kind == "f":
        return ops.cast(image, after.name)
    raise NotImplementedError(
        f"tf.image.convert_image_dtype from {before} to {after} is not supported; "
        "go through float32."
    )


def adjust_brightness(image: Any, delta: Any) -> Any:
    """Return images with a number added to all pixels."""
    floats, name = _as_floats(image)
    return convert_image_dtype(ops.add(floats, delta), name)


def adjust_contrast(images: Any, contrast_factor: Any) -> Any:
    """Return images whose pixels differ more or less from their channel's mean."""
    floats, name = _as_floats(images)
    mean = ops.mean(floats, axis=(-3, -2), keepdims=True)
    changed = ops.add(ops.multiply(ops.subtract(floats, mean), contrast_factor), mean)
    return convert_image_dtype(changed, name)


def random_brightness(image: Any, max_delta: float, seed: Any = None) -> Any:
    """Return images with a random number added to all pixels."""
    return adjust_brightness(
        image, random.uniform((), -max_delta, max_delta, seed=seed)
    )


def random_contrast(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    """Return images with a random contrast."""
    return adjust_contrast(image, random.uniform((), lower, upper, seed=seed))


def crop_to_bounding_box(
    image: Any,
    offset_height: int,
    offset_width: int,
    target_height: int,
    target_width: int,
) -> Any:
    """Return a rectangle of images."""
    rows = slice(offset_height, offset_height + target_height)
    columns = slice(offset_width, offset_width + target_width)
    return image[..., rows, columns, :]


def central_crop(image: Any, central_fraction: float) -> Any:
    """Return the middle of images."""
    height, width = image.shape[-3], image.shape[-2]
    top = int((height - height * central_fraction) / 2)
    left = int((width - width * central_fraction) / 2)
    return crop_to_bounding_box(image, top, left, height - 2 * top, width - 2 * left)


def random_crop(value: Any, size: Any, seed: Any = None) -> Any:
    """Return a random part of this size."""
    sizes = known(size, "image.random_crop").tolist()
    draws = random.uniform((len(sizes),), seed=seed)
    spare = [total - wanted for total, wanted in zip(value.shape, sizes, strict=True)]
    if min(spare) < 0:
        raise ValueError(f"A part of {sizes} does not fit into {tuple(value.shape)}.")
    free = np.array([room + 1 for room in spare], np.float32)
    starts = ops.cast(ops.floor(ops.multiply(draws, free)), "int32")
    return ops.slice(value, starts, sizes)


def rgb_to_grayscale(images: Any) -> Any:
    """Return images with one channel, as bright as the three seem."""
    floats, name = _as_floats(images)
    weights = np.array([0.2989, 0.587, 0.114], np.float32)
    gray = ops.sum(ops.multiply(floats, weights), axis=-1, keepdims=True)
    return convert_image_dtype(gray, name)


def grayscale_to_rgb(images: Any) -> Any:
    """Return images with three equal channels."""
    return ops.repeat(images, 3, axis=-1)


def per_image_standardization(image: Any) -> Any:
    """Return images with mean 0 and variance 1 each."""
    floats = ops.cast(image, "float32")
    axes = (-3, -2, -1)
    count = float(np.prod([int(size) for size in image.shape[-3:]]))
    deviation = ops.maximum(ops.std(floats, axis=axes, keepdims=True), count**-0.5)
    return ops.divide(
        ops.subtract(floats, ops.mean(floats, axis=axes, keepdims=True)), deviation
    )


def resize(
    images: Any,
    size: Any,
    method: str = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
) -> Any:
    """Return images of another size: floats, except for the nearest pixels."""
    sizes = known(size, "image.resize").tolist()
    if preserve_aspect_ratio:
        now = np.array(images.shape[-3:-1], np.float32)  # TensorFlow rounds in float32
        scale = np.min(np.array(sizes, np.float32) / now)
        sizes = np.round(scale * now).astype(int).tolist()
    if method != "nearest" and not is_float_dtype(images.dtype):
        images = ops.cast(images, "float32")  # or integers would be rounded
    resized = ops.image.resize(
        images,
        tuple(sizes),
        method,
        antialias=antialias,
        data_format="channels_last",
    )
    return resized if method == "nearest" else ops.cast(resized, "float32")


def rgb_to_hsv(images: Any) -> Any:
    """Return hue, saturation and value of pixels between 0 and 1."""
    return ops.image.rgb_to_hsv(images, data_format="channels_last")


def hsv_to_rgb(images: Any) -> Any:
    """Return red, green and blue of pixels between 0 and 1."""
    return ops.image.hsv_to_rgb(images, data_format="channels_last")


_YUV_OF_RGB = np.array(
    [
        [0.299, -0.14714119, 0.61497538],
        [0.587, -0.28886916, -0.51496512],
        [0.114, 0.43601035, -0.10001026],
    ],
    np.float32,
)
_RGB_OF_YUV = np.array(
    [[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]],
    np.float32,
)


def rgb_to_yuv(images: Any) -> Any:
    """Return brightness and two differences of colour, of floats."""
    return ops.matmul(images, _YUV_OF_RGB)


def yuv_to_rgb(images: Any) -> Any:
    """Return red, green and blue from brightness and differences of colour."""
    return ops.matmul(images, _RGB_OF_YUV)


def _recolored(image: Any, change: Callable[[Any], Any]) -> Any:
    """Return images whose hue, saturation and value were changed."""
    before = np.dtype(str(image.dtype))
    if before.kind in "iu" and before.itemsize > 2:
        # Between 0 and 1 such pixels are as good as black, and lose their colours.
        floats = hsv_to_rgb(change(rgb_to_hsv(ops.cast(image, "float32"))))
        return ops.saturate_cast(floats, before.name)
    floats, name = _as_floats(image)
    return convert_image_dtype(hsv_to_rgb(change(rgb_to_hsv(floats))), name)


def adjust_hue(image: Any, delta: Any) -> Any:
    """Return images whose colours are turned by a part of the circle."""

    def turned(hsv: Any) -> Any:
        hue = ops.mod(ops.add(hsv[..., :1], delta), 1.0)
        return ops.concatenate([hue, hsv[..., 1:]], -1)

    return _recolored(image, turned)


def adjust_saturation(image: Any, saturation_factor: Any) -> Any:
    """Return images with stronger or weaker colours."""

    def changed(hsv: Any) -> Any:
        strength = ops.clip(ops.multiply(hsv[..., 1:2], saturation_factor), 0.0, 1.0)
        return ops.concatenate([hsv[..., :1], strength, hsv[..., 2:]], -1)

    return _recolored(image, changed)


def random_hue(image: Any, max_delta: float, seed: Any = None) -> Any:
    """Return images whose colours are turned at random."""
    return adjust_hue(image, random.uniform((), -max_delta, max_delta, seed=seed))


def random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    """Return images with colours of a random strength."""
    return adjust_saturation(image, random.uniform((), lower, upper, seed=seed))


def pad_to_bounding_box(
    image: Any,
    offset_height: int,
    offset_width: int,
    target_height: int,
    target_width: int,
) -> Any:
    """Return images with zeros around them."""
    below = target_height - offset_height - image.shape[-3]
    right = target_width - offset_width - image.shape[-2]
    widths = [(offset_height, below), (offset_width, right), (0, 0)]
    if min(offset_height, offset_width, below, right) < 0:
        raise ValueError(
            f"tf.image.pad_to_bounding_box: an image of {tuple(image.shape[-3:-1])} at "
            f"({offset_height}, {offset_width}) does not fit into "
            f"({target_height}, {target_width})."
        )
    return ops.pad(image, [(0, 0)] * (len(image.shape) - 3) + widths)


def resize_with_crop_or_pad(image: Any, target_height: int, target_width: int) -> Any:
    """Return the middle of images, with zeros around where they are too small."""
    height, width = image.shape[-3], image.shape[-2]
    rows, columns = min(height, target_height), min(width, target_width)
    top, left = (height - rows) // 2, (width - columns) // 2
    middle = crop_to_bounding_box(image, top, left, rows, columns)
    above, before = (target_height - rows) // 2, (target_width - columns) // 2
    return pad_to_bounding_box(middle, above, before, target_height, target_width)


def resize_with_pad(
    image: Any,
    target_height: int,
    target_width: int,
    method: str = "bilinear",
    antialias: bool = False,
) -> Any:
    """Return images of another size, their shape kept by zeros around them."""
    sizes = np.array(image.shape[-3:-1], np.float32)  # TensorFlow rounds in float32
    target = np.array([target_height, target_width], np.float32)
    fitted = sizes / np.max(sizes / target)
    rows, columns = (max(int(size), 1) for size in fitted)
    resized = resize(image, (rows, columns), method, antialias=antialias)
    # The border is that of the size before it is rounded.
    top, left = (max(int(space // 2), 0) for space in target - fitted)
    return pad_to_bounding_box(resized, top, left, target_height, target_width)


def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: str
) -> Any:
    """Return windows of images, each laid out along the channels."""
    return ops.image.extract_patches(
        images,
        tuple(sizes[1:3]),
        strides=tuple(strides[1:3]),
        dilation_rate=tuple(rates[1:3]),
        padding=padding.lower(),
        data_format="channels_last",
    )


def psnr(a: Any, b: Any, max_val: Any) -> Any:
    """Return the peak signal-to-noise ratio of images, in decibels."""
    first, second = ops.cast(a, "float32"), ops.cast(b, "float32")
    error = ops.mean(ops.square(ops.subtract(first, second)), axis=(-3, -2, -1))
    peak = 20 * np.log10(float(known(max_val, "image.psnr")))
    return ops.subtract(float(peak), ops.multiply(10.0, ops.log10(error)))


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Any:
    """Return the structural similarity of images, in floats for pixels of any type."""
    (first, _), (second, _) = _as_floats(img1), _as_floats(img2)
    kind = np.dtype(str(img1.dtype))
    return ops.image.ssim(
        first,
        second,
        max_val / float(np.iinfo(kind).max) if kind.kind in "iu" else max_val,
        filter_size=filter_size,
        filter_sigma=filter_sigma,
        k1=k1,
        k2=k2,
        data_format="channels_last",
    )


def total_variation(images: Any) -> Any:
    """Return the sum of the differences between neighbouring pixels of each image."""
    rows = ops.subtract(images[..., 1:, :, :], images[..., :-1, :, :])
    columns = ops.subtract(images[..., :, 1:, :], images[..., :, :-1, :])
    axes = (-3, -2, -1)
    return ops.add(ops.sum(ops.abs(rows), axes), ops.sum(ops.abs(columns), axes))
