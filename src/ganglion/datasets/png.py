"""PNG images of 8 bits with nothing but ``zlib`` and NumPy: a strict reader, a writer.

CIFAR-10 also travels as PNG sheets, and heat maps are written as PNG files; neither
should need an imaging library. Palettes, interlacing and 16 bits are refused.
"""

import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ganglion.system import budget

Bytes = npt.NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, RGBA = 0, 2, 6  # colour types
Predictor = Callable[[int, int, int], int]  # left, up, corner

NONE, SUB, UP, AVERAGE, PAETH = range(5)
_BYTES_A_STEP = 3  # of a budget, for what is undone byte by byte, which takes long


def encode(image: npt.ArrayLike, level: int = 6) -> bytes:
    """Return a uint8 image, (height, width[, 1, 3 or 4]), as the bytes of a PNG file.

    >>> decode(encode(np.array([[7, 8]], "uint8"))).tolist()
    [[[7], [8]]]
    """
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[..., np.newaxis]
    colour_types = {1: GREY, 3: RGB, 4: RGBA}
    is_image = array.ndim == 3 and array.shape[2] in colour_types and array.size
    if not is_image or array.dtype != np.uint8:
        raise ValueError(
            "A PNG needs integers from 0 to 255 (uint8) of shape (height, width, "
            f"1, 3 or 4), not {array.dtype} of shape {array.shape}."
        )
    height, width, channels = array.shape
    header = (width, height, 8, colour_types[channels], 0, 0, 0)
    # Each pixel less its left neighbour: smooth pictures become small numbers.
    rows = np.empty((height, 1 + width * channels), "uint8")
    rows[:, 0] = SUB
    pixels = array.reshape(height, width * channels)
    rows[:, 1:] = pixels
    rows[:, 1 + channels :] -= pixels[:, :-channels]
    return b"".join(
        [
            SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", *header)),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), level)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def decode(data: bytes) -> Bytes:
    """Decode a PNG file, grey or RGB, to an array of (height, width, channels)."""
    chunks = list(_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR" or chunks[-1] != (b"IEND", b""):
        raise ValueError("the PNG file does not begin with IHDR and end with IEND")
    width, height, channels = _header(chunks[0][1])
    for kind, _ in chunks[1:-1]:
        is_critical = not kind[0] & 0x20
        if is_critical and kind != b"IDAT":
            raise ValueError(f"PNG chunk {kind!r} is not supported")
    packed = b"".join(body for kind, body in chunks if kind == b"IDAT")
    lines = _inflated(packed, height * (width * channels + 1))
    return _unfiltered(lines, width, height)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    view, at = memoryview(data), len(SIGNATURE)
    while at < len(data):
        (length,) = (
            struct.unpack_from(">I", data, at) if at + 12 <= len(data) else (-1,)
        )
        end = at + 12 + length
        if length < 0 or end > len(data):
            raise ValueError("the PNG file is cut short")
        (crc,) = struct.unpack_from(">I", data, end - 4)
        if zlib.crc32(view[at + 4 : end - 4]) != crc:
            raise ValueError(f"a PNG chunk at byte {at} fails its checksum")
        yield data[at + 4 : at + 8], data[at + 8 : end - 4]
        at = end


def _header(body: bytes) -> tuple[int, int, int]:
    if len(body) != 13:
        raise ValueError("the PNG header has the wrong length")
    width, height, depth, colour, *methods = struct.unpack(">IIBBBBB", body)
    if depth != 8 or colour not in (GREY, RGB) or any(methods):
        raise ValueError("only plain 8-bit grey or RGB PNG files are supported")
    if not width or not height:
        raise ValueError("the PNG image is empty")
    return width, height, 1 if colour == GREY else 3


def _inflated(packed: bytes, size: int) -> bytes:
    budget.take(2 * size, "an image")
    inflater = zlib.decompressobj()
    try:
        # One byte more than fits, so that a file that unpacks to gigabytes is
        # noticed without unpacking it.
        data = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(f"the PNG pixels do not unpack: {error}") from error
    if len(data) != size or not inflater.eof:
        raise ValueError("the PNG pixels do not fill the image exactly")
    return data


def _unfiltered(data: bytes, width: int, height: int) -> Bytes:
    lines = np.frombuffer(data, np.uint8).reshape(height, -1)
    filters, coded = lines[:, 0], lines[:, 1:].reshape(height, width, -1)
    if filters.max() > PAETH:
        raise ValueError(f"PNG filter {filters.max()} does not exist")
    image = coded.copy()
    sub = filters == SUB
    image[sub] = np.cumsum(coded[sub], axis=1, dtype=np.uint8)
    slow = int((filters >= AVERAGE).sum()) * image[0].size
    budget.take(_BYTES_A_STEP * slow, "an image that takes long to decode")
    # The other filters look at the line above, so they go from top to bottom.
    above = np.zeros_like(image[0])
    for row in np.flatnonzero(filters >= UP):
        previous = image[row - 1] if row else above
        if filters[row] == UP:
            image[row] = coded[row] + previous
        else:
            predict = _average if filters[row] == AVERAGE else _paeth
            image[row] = _sequential(coded[row], previous, predict)
    return image


def _average(left: int, up: int, corner: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    to_left, to_up = abs(up - corner), abs(left - corner)
    to_corner = abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner


def _sequential(coded: Bytes, previous: Bytes, predict: Predictor) -> Bytes:
    """Undo a filter whose every byte depends on the byte decoded just before it."""
    line = np.empty_like(coded)
    for channel in range(coded.shape[1]):
        left, corner, decoded = 0, 0, []
        ups = previous[:, channel].tolist()
        for value, up in zip(coded[:, channel].tolist(), ups, strict=True):
            left = (value + predict(left, up, corner)) & 0xFF
            corner = up
            decoded.append(left)
        line[:, channel] = decoded
    return line
