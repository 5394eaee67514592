"""A strict reader of 8-bit PNG images, grey or RGB: only ``zlib`` and NumPy.

It exists because CIFAR-10 also travels as PNG sheets, and a data set should not need
an imaging library. Anything unusual (palettes, interlacing, 16 bits) is refused.
"""

import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ganglion.system import budget

Bytes = npt.NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS_OF_COLOUR_TYPE = {0: 1, 2: 3}
Predictor = Callable[[int, int, int], int]  # left, up, corner

NONE, SUB, UP, AVERAGE, PAETH = range(5)
_BYTES_A_STEP = 3  # of a budget, for what is undone byte by byte, which takes long


def decode(data: bytes) -> Bytes:
    """Decode a PNG file to an array of (height, width, channels).

    >>> def chunk(kind, body):
    ...     crc = zlib.crc32(kind + body)
    ...     return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)
    >>> header = struct.pack(">IIBBBBB", 2, 1, 8, 0, 0, 0, 0)
    >>> pixels = zlib.compress(bytes([SUB, 7, 1]))
    >>> file = SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", pixels)
    >>> decode(file + chunk(b"IEND", b"")).tolist()
    [[[7], [8]]]
    """
    chunks = list(_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR" or chunks[-1] != (b"IEND", b""):
        raise ValueError("the PNG file does not begin with IHDR and end with IEND")
    width, height, channels = _header(chunks[0][1])
    for kind, _ in chunks[1:-1]:
        critical = not kind[0] & 0x20
        if critical and kind != b"IDAT":
            raise ValueError(f"PNG chunk {kind!r} is not supported")
    packed = b"".join(body for kind, body in chunks if kind == b"IDAT")
    return _unfiltered(
        _inflated(packed, height * (width * channels + 1)), width, height
    )


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    view, at = memoryview(data), len(SIGNATURE)
    while at < len(data):
        if at + 12 > len(data):
            raise ValueError("the PNG file is cut short")
        (length,) = struct.unpack_from(">I", data, at)
        end = at + 12 + length
        if end > len(data):
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
    if depth != 8 or colour not in CHANNELS_OF_COLOUR_TYPE or any(methods):
        raise ValueError("only plain 8-bit grey or RGB PNG files are supported")
    if not width or not height:
        raise ValueError("the PNG image is empty")
    return width, height, CHANNELS_OF_COLOUR_TYPE[colour]


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
