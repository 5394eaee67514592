"""Processes read one folder of images at once, while its cache comes and goes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

from PIL import Image

ROUNDS = int(os.environ.get("GANGLION_STRESS_ROUNDS", "15"))

# Reads the folder again and again; the first process also takes the cache away. Every
# third round has a small bound, beyond which pixels stay on disk.
READER = """
import os, shutil, sys
import numpy as np
from ganglion import images
from ganglion.images import cache
number, rounds, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
expected = np.load(sys.argv[4])
usual = cache.LARGEST_IN_MEMORY
for turn in range(rounds):
    cache.LARGEST_IN_MEMORY = 1000 if turn % 3 == number % 3 else usual
    held = images.load(folder, size=8, test=6, validation=6)
    parts = (held.train, held.validation, held.test)
    for part in parts:
        for pixels, file in zip(part.x, part.files, strict=True):
            assert np.array_equal(pixels, expected[int(file.stem)]), file
    assert sum(len(part) for part in parts) == len(expected)
    if number == 0:
        for entry in list(cache.folder().glob("[!.]*")):
            if turn % 2:
                shutil.rmtree(entry, ignore_errors=True)
            elif (entry / "pixels.npy").exists():
                cut = entry.parent / ".cut"
                cut.write_bytes(b"damaged")
                os.replace(cut, entry / "pixels.npy")
"""


def test_processes_share_a_folder_of_images(tmp_path):
    rng = np.random.default_rng(0)
    expected = rng.integers(0, 256, (24, 8, 8, 3)).astype("uint8")
    for number, pixels in enumerate(expected):
        place = tmp_path / "photos" / "abc"[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number:03}.png")
    np.save(tmp_path / "expected.npy", expected)
    words = [str(ROUNDS), str(tmp_path / "photos"), str(tmp_path / "expected.npy")]
    readers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", READER, str(number), *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "GANGLION_HOME": str(tmp_path / "home")},
        )
        for number in range(3)
    ]
    told = [reader.communicate(timeout=300)[1] for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0, 0], "\n".join(told)
