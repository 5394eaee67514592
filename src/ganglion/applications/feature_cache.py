"""Features of images from a frozen network: computed once, then read from disk.

Outputs are found again by the pixels and the weights they were computed from; those
that were used longest ago make room for others.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ganglion import config, files
from ganglion.images.loading import batch_for
from ganglion.models import Model
from ganglion.utils import Progbar

MOST_KEPT = 2 << 30  # bytes on disk
MOST_AT_ONCE = 32  # images
_SUFFIX = ".outputs"  # before, it was ".npz"
_DIGEST = 32
VERSION = 3  # of the files; another way to compute is another number


def outputs(network: Model, inputs: np.ndarray, verbose: Any = 0) -> np.ndarray:
    """Return what a network makes of some inputs, from disk if that is known already.

    Args:
        network: A network with one output.
        inputs: Images, or what another network made of them.
        verbose: Whether to show progress, as in `predict`.
    """
    path = folder() / f"{_key(network, inputs)}{_SUFFIX}"
    array = _read(path, (len(inputs), *network.output_shape[1:]))
    if array is None:
        array = _computed(network, inputs, verbose)
        if array.nbytes <= MOST_KEPT // 2:
            _write(path, array)
    return array


def _computed(network: Model, inputs: np.ndarray, verbose: Any) -> np.ndarray:
    """Compute outputs in batches of one size, the last filled up: compiled once."""
    total, size = len(inputs), batch_for(inputs.shape[1:3], MOST_AT_ONCE)
    bar = Progbar(total, verbose=verbose, unit_name="image")
    batches = []
    for at in range(0, total, size):
        x = inputs[np.minimum(np.arange(at, at + size), total - 1)]
        batches.append(network.predict_on_batch(x)[: total - at])
        bar.update(min(at + size, total))
    return np.concatenate(batches)


def folder() -> Path:
    """Return the folder of cached outputs: in GANGLION_HOME, else the user's cache."""
    return config.home() / "features"


def _key(network: Model, inputs: np.ndarray) -> str:
    """Return a name that other inputs, sizes or weights would change."""
    shapes = f"{VERSION} {inputs.shape} {inputs.dtype} {network.output_shape}"
    total = hashlib.blake2b(shapes.encode())
    for weight in network.weights:
        total.update(np.ascontiguousarray(weight.array).data)
    for row in inputs:  # one at a time: they may be on disk
        total.update(np.ascontiguousarray(row).data)
    return total.hexdigest()[:40]


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return outputs, None where there are none, or others than were written."""
    array = np.empty(shape, np.float32)
    try:
        with files.open_file(path) as file:
            if os.fstat(file.fileno()).st_size != _DIGEST + array.nbytes:
                return None
            digest = file.read(_DIGEST)
            file.readinto(array.reshape(-1).view("uint8").data)
    except (OSError, ValueError):
        return None
    if _digest(path, array) != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    return array


def _digest(path: Path, array: np.ndarray) -> bytes:
    """Return the checksum of outputs and of the name that says what they are."""
    total = hashlib.blake2b(path.name.encode(), digest_size=_DIGEST)
    total.update(array.data)
    return total.digest()


def _write(path: Path, array: np.ndarray) -> None:
    """Write outputs; where that is not possible, they are computed again next time."""

    def write(file: BinaryIO) -> None:
        file.write(_digest(path, array))
        file.write(array.data)

    array = np.ascontiguousarray(array, np.float32)
    with suppress(OSError, ValueError):
        parent = path.parent
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.clear_leftovers(parent)
        entries = [*parent.glob(f"*{_SUFFIX}"), *parent.glob("*.npz")]
        files.remove_oldest(entries, MOST_KEPT - array.nbytes)
        files.write_file(path, write, durable=False)
