"""Small folders of images for tests: each class has a colour of its own."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"blue": (30, 40, 200), "green": (20, 180, 40), "red": (200, 30, 30)}


def pixels(colour, number=0, size=(20, 16)):
    rng = np.random.default_rng(number)
    noise = rng.integers(-30, 30, (*size, 3))
    return np.clip(np.array(colour) + noise, 0, 255).astype("uint8")


def folder(place: Path, each=8, classes=tuple(COLOURS), size=(20, 16), ending="png"):
    """Make a folder a class; return it."""
    for name in classes:
        (place / name).mkdir(parents=True)
        for number in range(each):
            image = Image.fromarray(pixels(COLOURS[name], number, size))
            image.save(place / name / f"{number:03}.{ending}")
    return place


def damage(path: Path):
    """Cut a file in the middle of its pixels."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def png_that_claims(columns, rows):
    """Return a tiny PNG file whose head says that it is huge, with black pixels."""

    def chunk(kind, body):
        check = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", columns, rows, 1, 0, 0, 0, 0)
    line = zlib.compress(b"\0" * (1 + (columns + 7) // 8) * rows)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", line)
        + chunk(b"IEND", b"")
    )
