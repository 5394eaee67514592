"""TensorBoard's event files, written by hand: TFRecords of small protobuf messages.

A record is its length (8 bytes), a checksum of the length, the message, a checksum of
the message. The messages (`Event`, `Summary`) are encoded here field by field, which
needs neither TensorFlow nor the protobuf library.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np

_numbers = itertools.count()
# Records are gathered up to this many bytes before they go to the file.
_BUFFER = 1 << 16

# Numbers of the fields, from TensorFlow's event.proto, summary.proto, histogram.proto.
_EVENT_TIME, _EVENT_STEP, _EVENT_VERSION, _EVENT_SUMMARY = 1, 2, 3, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_NUMBER, _VALUE_HISTOGRAM, _VALUE_TENSOR, _VALUE_PLUGIN = (
    1,
    2,
    5,
    8,
    9,
)
_HISTOGRAM_LIMITS, _HISTOGRAM_COUNTS = 6, 7
_BINS = 30  # of a histogram


class EventFile:
    """One event file in a folder, made when the first record is written.

    The file is opened for every flush only, so that an interrupted training leaves
    nothing open and nothing half written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        import socket  # only here: it is slow to load, and few trainings write events

        name = (
            f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
            f".{os.getpid()}.{next(_numbers)}.v2"
        )
        self.path = Path(folder) / name
        self._waiting = bytearray(
            record(_event(_text(_EVENT_VERSION, "brain.Event:2")))
        )

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Add a number."""
        number = _key(_VALUE_NUMBER, 5) + struct.pack("<f", value)
        self._add(tag, number, step)

    def histogram(self, tag: str, values: Any, step: int) -> None:
        """Add the distribution of an array's elements."""
        self._add(tag, _message(_VALUE_HISTOGRAM, _histogram(values)), step)

    def image(self, tag: str, images: np.ndarray, step: int) -> None:
        """Add images, (number, height, width, channels) of bytes; the first three."""
        from ganglion.datasets import png

        size = [str(axis).encode() for axis in (images.shape[2], images.shape[1])]
        pictures = [png.encode(image) for image in images[:3]]
        self._add(tag, _texts([*size, *pictures], plugin="images"), step)

    def texts(self, tag: str, texts: list[bytes], step: int) -> None:
        """Add texts in Markdown."""
        self._add(tag, _texts(texts, plugin="text"), step)

    def sounds(self, tag: str, files: list[bytes], step: int) -> None:
        """Add sounds: WAV files, each with a label that is empty."""
        pairs = [part for file in files for part in (file, b"")]
        payload = _texts(pairs, plugin="audio", content=b"\x10\x0b", columns=2)
        self._add(tag, payload, step)

    def model(self, text: str) -> None:
        """Add the configuration of a model, which TensorBoard draws as a graph."""
        payload = _texts([text.encode()], plugin="graph_keras_model", content=b"1")
        self._add("keras", payload, 0)

    def flush(self) -> None:
        """Write the added records to the file."""
        if not self._waiting:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # TensorBoard follows the file as it grows: it is appended to, never renamed.
        with open(self.path, "ab") as file:
            file.write(self._waiting)
        self._waiting.clear()

    def _add(self, tag: str, payload: bytes, step: int) -> None:
        value = _message(_SUMMARY_VALUE, _text(_VALUE_TAG, tag) + payload)
        step_field = _key(_EVENT_STEP, 0) + _varint(step)
        self._waiting += record(_event(step_field + _message(_EVENT_SUMMARY, value)))
        if len(self._waiting) > _BUFFER:
            self.flush()


def _event(fields: bytes) -> bytes:
    return _key(_EVENT_TIME, 1) + struct.pack("<d", time.time()) + fields


def _histogram(values: Any) -> bytes:
    array = np.asarray(values, "float64").ravel()
    array = array[np.isfinite(array)]
    if not array.size:
        array = np.zeros(1)
    counts, edges = np.histogram(array, _BINS, _range_of(array))
    summary = [array.min(), array.max(), array.size, array.sum(), (array**2).sum()]
    plain = b"".join(
        _key(number, 1) + struct.pack("<d", value)
        for number, value in enumerate(summary, 1)
    )
    limits = _message(_HISTOGRAM_LIMITS, edges[1:].astype("<f8").tobytes())
    return plain + limits + _message(_HISTOGRAM_COUNTS, counts.astype("<f8").tobytes())


def _range_of(array: np.ndarray) -> tuple[float, float]:
    """Return bounds between which every bin has a width, of equal numbers, too."""
    low, high = float(array.min()), float(array.max())
    least = 2 * _BINS * float(np.spacing(max(abs(low), abs(high))))
    if high - low < least:
        margin = max(least, 0.5 if low == high else 0.0)
        low, high = low - margin, high + margin
    return low, high


def _texts(
    texts: list[bytes], plugin: str, content: bytes = b"", columns: int = 1
) -> bytes:
    """Encode strings as a tensor that a plugin of TensorBoard shows."""
    string, shape, strings = 7, 2, 8
    tensor = _key(1, 0) + _varint(string)
    if plugin != "graph_keras_model":  # that one is a scalar
        sizes = [len(texts) // columns, columns][: 2 if columns > 1 else 1]
        axes = [_message(2, _key(1, 0) + _varint(size)) for size in sizes]
        tensor += _message(shape, b"".join(axes))
    tensor += b"".join(_message(strings, text) for text in texts)
    metadata = _message(1, _text(1, plugin) + _message(2, content))
    return _message(_VALUE_PLUGIN, metadata) + _message(_VALUE_TENSOR, tensor)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(number: int) -> bytes:
    """Encode an integer, seven bits a byte, the lowest first.

    >>> _varint(300).hex()
    'ac02'
    """
    number &= (1 << 64) - 1  # negative numbers in two's complement
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _message(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def record(data: bytes) -> bytes:
    """Frame a message as a TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)


def _make_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _make_table()


def crc32c(data: bytes) -> int:
    """Return the Castagnoli checksum.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
