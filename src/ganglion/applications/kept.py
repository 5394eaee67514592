"""What a frozen network computes of images: once, then it is kept on disk.

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
    found = _read(path, (len(inputs), *network.output_shape[1:]))
    if found is not None:
        return found
    made = _computed(network, inputs, verbose)
    if made.nbytes <= MOST_KEPT // 2:
        _write(path, made)
    return made


def _computed(network: Model, inputs: np.ndarray, verbose: Any) -> np.ndarray:
    """Compute outputs in batches of one size, the last filled up: compiled once."""
    total, size = len(inputs), batch_for(inputs.shape[1:3], MOST_AT_ONCE)
    bar = Progbar(total, verbose=verbose, unit_name="image")
    made = []
    for at in range(0, total, size):
        x = inputs[np.minimum(np.arange(at, at + size), total - 1)]
        made.append(network.predict_on_batch(x)[: total - at])
        bar.update(min(at + size, total))
    return np.concatenate(made)


def folder() -> Path:
    """Return the folder of kept outputs: in GANGLION_HOME, else the user's cache."""
    return config.home() / "features"


def _key(network: Model, inputs: np.ndarray) -> str:
    """Return a name that other inputs, sizes or weights would change."""
    shapes = f"{VERSION} {inputs.shape} {inputs.dtype} {network.output_shape}"
    total = hashlib.blake2b(shapes.encode())
    for weight in network.weights:
        total.update(np.ascontiguousarray(weight.array).data)
    for row in inputs:  # one by one: they may lie on disk
        total.update(np.ascontiguousarray(row).data)
    return total.hexdigest()[:40]


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return kept outputs, None where there are none, or others than were kept."""
    held = np.empty(shape, np.float32)
    try:
        with files.open_file(path) as file:
            length = os.fstat(file.fileno()).st_size
            if length != _DIGEST + held.nbytes:
                return None
            digest = file.read(_DIGEST)
            file.readinto(held.reshape(-1).view("uint8").data)
    except (OSError, ValueError):
        return None
    if _digest(path, held) != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    return held


def _digest(path: Path, held: np.ndarray) -> bytes:
    """Return the checksum of outputs and of the name that says what they are of."""
    total = hashlib.blake2b(path.name.encode(), digest_size=_DIGEST)
    total.update(held.data)
    return total.digest()


def _write(path: Path, held: np.ndarray) -> None:
    """Keep outputs; without a place for them they are computed again next time."""

    def write(file: BinaryIO) -> None:
        file.write(_digest(path, held))
        file.write(held.data)

    held = np.ascontiguousarray(held, np.float32)
    with suppress(OSError, ValueError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.clear_leftovers(path.parent)
        _make_room(path.parent, held.nbytes)
        files.write_file(path, write, durable=False)


def _make_room(place: Path, size: int) -> None:
    entries = []
    for one in [*place.glob(f"*{_SUFFIX}"), *place.glob("*.npz")]:
        with suppress(OSError):
            found = one.stat()
            entries.append((found.st_mtime, found.st_size, one))
    held = sum(entry[1] for entry in entries) + size
    for _, length, one in sorted(entries):
        if held <= MOST_KEPT:
            return
        one.unlink(missing_ok=True)
        held -= length
