"""Data sets that Keras publishes as one file, known by the checksum of that file.

The checksum of their arrays is known only after the file was decoded, so the cache
holds it beside them: a sealed file.
"""

import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from ganglion.datasets import decode, loading
from ganglion.datasets.decode import DamageError, Reader, Record
from ganglion.datasets.loading import DataSet
from ganglion.datasets.sources import Source, web
from ganglion.system import budget

HOST = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
SEAL = "sha256"


def verified(data: bytes, digest: str, name: str) -> bytes:
    """Return the bytes of a file if they have the sum that is published for it.

    Args:
        data: The bytes.
        digest: SHA-256, or MD5 where nothing better is published.
        name: The name of the file.
    """
    kind = "sha256" if len(digest) == 64 else "md5"
    actual = hashlib.new(kind, data, usedforsecurity=False).hexdigest()
    if actual != digest:
        raise ValueError(
            f"{name} is damaged or another file: it has {kind} {actual[:12]}..., "
            f"expected {digest[:12]}..."
        )
    return data


def write_sealed(file: IO[bytes], arrays: Any) -> None:
    """Write arrays with their sum beside them."""
    seal = np.frombuffer(arrays.sha256().encode(), np.uint8)
    members: dict[str, Any] = {**arrays._asdict(), SEAL: seal}
    np.savez(file, **members)


def read_sealed(file: IO[bytes], record: type[Any]) -> Any:
    """Read arrays with a sum beside them, and compare."""
    arrays = decode.members(file, (*record._fields, SEAL))
    seal = arrays.pop(SEAL).tobytes().decode("ascii", "replace")
    sealed = record(**arrays)
    if sealed.sha256() != seal:
        raise ValueError("the arrays do not fit the checksum beside them")
    return sealed


@dataclass(frozen=True)
class KerasFile:
    """A file on Keras' host.

    Args:
        name: The name of the file.
        digest: Its published checksum.
        record: The type of the decoded data.
        decode: Decodes its bytes.
    """

    name: str
    digest: str
    record: type[Any]
    decode: Callable[[bytes], Record]

    def decoded(self, data: bytes) -> Record:
        """Decode the bytes of the file; refuse any but the published ones."""
        return self.decode(verified(data, self.digest, self.name))

    def fetched(self, read: Reader) -> Record:
        """Decode the file, from any source."""
        return self.decoded(read(self.name))

    def kept(self, file: IO[bytes]) -> Record:
        """Decode a file in the cache: a sealed one, or Keras' own."""
        with zipfile.ZipFile(file) as archive:
            is_sealed = f"{SEAL}.npy" in archive.namelist()
        file.seek(0)
        if is_sealed:
            sealed: Record = read_sealed(file, self.record)
            return sealed
        return self.decoded(budget.drain(file, self.name))

    def url(self) -> str:
        """Return where Keras publishes it."""
        return f"{HOST}{self.name}"

    def data_set(
        self,
        name: str,
        title: str,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        copies: Sequence[Source] = (),
    ) -> DataSet:
        """Return the data set that the file is.

        Args:
            name: Its name in code.
            title: Its name in messages.
            shapes: The shapes of the training and the test data.
            copies: Where else it can be had.
        """
        return DataSet(
            name=name,
            title=title,
            train_shape=shapes[0],
            test_shape=shapes[1],
            sha256=None,
            sources=lambda: [web(HOST, self.name, self.fetched), *copies],
            by_hand=lambda: (
                f"  copy Keras' {self.name} ({self.url()}) to {loading.folder()}"
            ),
            read=self.kept,
            write=write_sealed,
        )


def check_copy(arrays: Record, sha256: str) -> Record:
    """Return the arrays of a copy, if they are those of the published file."""
    try:
        loading.check(arrays, sha256)
    except DamageError as error:
        raise ValueError(str(error)) from error
    return arrays


def open_npz(data: bytes, names: Sequence[str]) -> dict[str, Any]:
    """Return some arrays of an ``.npz`` file in memory."""
    return decode.members(io.BytesIO(data), names)
