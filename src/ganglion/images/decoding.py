"""An image file as an array: any format, colour and size to those requested."""

from __future__ import annotations

import importlib
import io
import os
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.config import closest
from ganglion.system.terminal import one_line

MODES = {"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"}
FITS = ("crop", "resize", "pad")
# Whatever the ending, nothing else is tried: some formats run programs.
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF")
METHODS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
MOST_PIXELS = 100_000_000  # more than cameras make; 300 MB when decoded
MOST_BYTES = 1 << 30
_DAMAGE = (OSError, ValueError, SyntaxError, TypeError, EOFError, LookupError,
           ArithmeticError, MemoryError, struct.error, zlib.error)  # fmt: skip


class Unreadable(Exception):  # noqa: N818 (said of a file, it is the error)
    """A file that is no image that we read; the text is the reason, in one line."""


@dataclass(frozen=True)
class Form:
    """The form that every image is converted to.

    >>> Form((64, 48)).shape
    (64, 48, 3)
    """

    size: tuple[int, int]  # rows and columns
    color: str = "rgb"
    fit: str = "crop"
    method: str = "bilinear"
    background: int | None = 255  # under what is transparent; None: alpha is dropped

    def __post_init__(self) -> None:
        for name, known in (("color", MODES), ("fit", FITS), ("method", METHODS)):
            if getattr(self, name) not in known:
                hint = closest(str(getattr(self, name)), known)
                raise ValueError(f"Unknown {name} of images. {hint}")
        if min(self.size) < 1 or self.size[0] * self.size[1] > MOST_PIXELS:
            raise ValueError(f"Images of {self.size[0]} × {self.size[1]} pixels?")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels."""
        return (*self.size, len(MODES[self.color]))

    def as_data(self) -> dict[str, Any]:
        """Return the form as JSON can hold it."""
        return asdict(self) | {"size": list(self.size)}

    @classmethod
    def from_data(cls, data: Any) -> Form:
        """Return the form that `as_data` gave; refuse anything else."""
        try:
            rows, columns = data["size"]
            return cls(**data | {"size": (int(rows), int(columns))})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"This is no form of images: {data!r:.80}") from error


def pillow(part: str = "Image") -> Any:
    """Return a module of Pillow, or explain how to get it."""
    try:
        return importlib.import_module(f"PIL.{part}")
    except ImportError:
        raise ImportError(
            'Images need the library Pillow: pip install "ganglion-nn[images]"'
        ) from None


def decode(source: str | os.PathLike[str] | bytes, form: Form) -> np.ndarray:
    """Return an image file as integers (rows, columns, channels)."""
    try:
        with _opened(source) as image, _room_for(image.size[0] * image.size[1]):
            _hasten(image, form)
            upright = pillow("ImageOps").exif_transpose(image)
            return _fitted(_coloured(upright, form), form)
    except _DAMAGE as error:
        raise Unreadable(one_line(error)) from error


_in_work = 0
_freed = threading.Condition()


@contextmanager
def _room_for(pixels: int) -> Iterator[None]:
    """Wait until all images that are decoded at once are no more than one may be."""
    global _in_work
    with _freed:
        _freed.wait_for(lambda: not _in_work or _in_work + pixels <= MOST_PIXELS)
        _in_work += pixels
    try:
        yield
    finally:
        with _freed:
            _in_work -= pixels
            _freed.notify_all()


def header(source: str | os.PathLike[str] | bytes) -> tuple[tuple[int, int], str]:
    """Return the size (rows, columns, upright) and the mode, without decoding."""
    try:
        with _opened(source) as image:
            columns, rows = image.size
            is_sideways = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            return (columns, rows) if is_sideways else (rows, columns), image.mode
    except _DAMAGE as error:
        raise Unreadable(one_line(error)) from error


def _opened(source: str | os.PathLike[str] | bytes) -> Any:
    """Read the head of a file; refuse at once what would not fit into memory."""
    image_module = pillow()
    data = source if isinstance(source, bytes) else _read(Path(source))
    if not data:
        raise ValueError("the file is empty")
    try:
        image = image_module.open(io.BytesIO(data), formats=FORMATS)
    except image_module.DecompressionBombError as error:
        raise ValueError(_size_error(_number_in(str(error)))) from None
    except image_module.UnidentifiedImageError:
        raise ValueError(f"no image: {_kind(data)}") from None
    columns, rows = image.size
    if columns * rows > MOST_PIXELS:
        raise ValueError(_size_error(columns * rows))
    return image


def _number_in(text: str) -> int:
    """Return the first number that a message of Pillow's names."""
    match = re.search(r"\d+", text)
    return int(match[0]) if match else MOST_PIXELS


def _size_error(pixels: int) -> str:
    return f"too large: {pixels:,} pixels, more than {MOST_PIXELS:,}"


def _read(path: Path) -> bytes:
    with files.open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise ValueError(f"too large: {size / 1e9:.1f} GB")
        return file.read(MOST_BYTES)


def _kind(data: bytes) -> str:
    start = data[:512]
    if start.isascii() and b"\0" not in start:
        return "it holds text"
    return "its content is not JPEG, PNG, BMP, WebP or GIF"


def _hasten(image: Any, form: Form) -> None:
    """Make a JPEG decoder skip detail that would be averaged away anyway."""
    wanted = 2 * max(form.size)
    if image.format in ("JPEG", "MPO") and min(image.size) > 2 * wanted:
        # In proportion, so that the shorter side keeps twice the pixels it needs.
        scale = wanted / min(image.size)
        image.draft(None, tuple(int(scale * side) for side in image.size))


def _coloured(image: Any, form: Form) -> Any:
    mode = MODES[form.color]
    if image.mode.startswith("I"):  # 16 bits: Pillow would cut off, not scale
        values = np.asarray(image) // 257
        image = pillow().fromarray(values.clip(0, 255).astype("uint8"))
    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    if has_alpha and mode != "RGBA" and form.background is not None:
        image = image.convert("RGBA")
        below = pillow().new("RGBA", image.size, (form.background,) * 3 + (255,))
        image = pillow().alpha_composite(below, image)
    return image if image.mode == mode else image.convert(mode)


def _fitted(image: Any, form: Form) -> np.ndarray:
    size = form.size[::-1]
    method = getattr(pillow().Resampling, form.method.upper())
    if image.size != size:
        crop = pillow("ImageOps").fit
        fit = {"crop": crop, "pad": _padded, "resize": type(image).resize}
        image = fit[form.fit](image, size, method)
    return np.array(image, "uint8").reshape(form.shape)


def _padded(image: Any, size: tuple[int, int], method: Any) -> Any:
    """Return the whole image in the middle of a black one, as TensorFlow places it."""
    ratio = max(side / target for side, target in zip(image.size, size, strict=True))
    exact = [side / ratio for side in image.size]
    inner = image.resize([max(int(side), 1) for side in exact], method)
    padded = pillow().new(image.mode, size)
    pairs = zip(size, exact, strict=True)
    padded.paste(inner, tuple(int((target - side) / 2) for target, side in pairs))
    return padded
