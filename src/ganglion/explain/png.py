"""PNG files, written with nothing but zlib."""

from __future__ import annotations

import os
import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels: PNG's number for them


def png_bytes(image: np.ndarray, level: int = 6) -> bytes:
    r"""Return an image of whole numbers, (height, width[, 1, 3 or 4]), as a PNG file.

    >>> png_bytes(np.zeros((2, 3, 3), "uint8"))[:4]
    b'\x89PNG'
    """
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[..., np.newaxis]
    is_image = array.ndim == 3 and array.shape[2] in _COLOUR_TYPES and array.size
    if not is_image or array.dtype != np.uint8:
        raise ValueError(
            "A PNG needs whole numbers from 0 to 255 (uint8) of shape (height, width, "
            f"1, 3 or 4), not {array.dtype} of shape {array.shape}."
        )
    height, width, channels = array.shape
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    # Each pixel less its left neighbour: smooth pictures become small numbers.
    rows = np.empty((height, 1 + width * channels), "uint8")
    rows[:, 0] = 1
    pixels = array.reshape(height, width * channels)
    rows[:, 1:] = pixels
    rows[:, 1 + channels :] -= pixels[:, :-channels]
    body = zlib.compress(rows.tobytes(), level)
    return b"".join(
        [_SIGNATURE, _chunk(b"IHDR", head), _chunk(b"IDAT", body), _chunk(b"IEND", b"")]
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def write_png(path: str | os.PathLike[str], image: np.ndarray) -> None:
    """Write an image to a file, whole or not at all."""
    from ganglion.saving.files import write_whole

    data = png_bytes(image)
    write_whole(path, lambda file: file.write(data))
