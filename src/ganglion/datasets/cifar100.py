"""CIFAR-100: 60,000 photographs in 100 classes of 20 kinds, 32x32 RGB (Krizhevsky)."""

import io
import tarfile

from ganglion.datasets import decode
from ganglion.datasets.decode import Arrays, Reader, Split
from ganglion.datasets.download import SourceError
from ganglion.datasets.keras_files import read_sealed, verified, write_sealed
from ganglion.datasets.loading import DataSet, load
from ganglion.datasets.sources import Source, placed, web

HOST = "https://www.cs.toronto.edu/~kriz/"
ARCHIVE = "cifar-100-binary.tar.gz"
PICKLED_ARCHIVE = "cifar-100-python.tar.gz"
SHA256 = {
    ARCHIVE: "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
}
LABELS = ("coarse", "fine")  # in the order of the bytes before each image


def _archive(read: Reader) -> Arrays:
    packed = io.BytesIO(verified(read(ARCHIVE), SHA256[ARCHIVE], ARCHIVE))
    with tarfile.open(fileobj=packed) as archive:
        return _batches(lambda name: decode.member(archive, f"cifar-100-binary/{name}"))


def _batches(read: Reader) -> Arrays:
    train, test = (
        decode.cifar_split(
            decode.cifar_records(verified(read(name), SHA256[name], name), len(LABELS))
        )
        for name in ("train.bin", "test.bin")
    )
    return Arrays(*train, *test)


def _hand_placed(read: Reader) -> Arrays:
    """The archive or its two files; its pickled twin is refused by name."""
    folder = DATA_SET.raw_folder
    if (folder / ARCHIVE).is_file():
        return _archive(read)
    if (folder / PICKLED_ARCHIVE).is_file():
        raise SourceError(
            f"{PICKLED_ARCHIVE} holds pickles, which can run any code when read, so it "
            f"is never opened; use {ARCHIVE}"
        )
    if (folder / "train.bin").is_file():
        return _batches(read)
    raise SourceError(f"no {ARCHIVE}" if folder.is_dir() else "no such folder")


def _sources() -> list[Source]:
    return [
        placed(DATA_SET.raw_folder, _hand_placed),
        web(HOST, ARCHIVE, _archive),
    ]


def _by_hand() -> str:
    return (
        f"  put {ARCHIVE} ({HOST}{ARCHIVE}),\n"
        f"  or train.bin and test.bin of it, into {DATA_SET.raw_folder}\n"
        f"  ({PICKLED_ARCHIVE} will not do: it holds pickles)"
    )


DATA_SET = DataSet(
    name="cifar100",
    title="CIFAR-100",
    train_shape=(50_000, 32, 32, 3),
    test_shape=(10_000, 32, 32, 3),
    sha256=None,
    sources=_sources,
    by_hand=_by_hand,
    read=lambda file: read_sealed(file, Arrays),
    write=write_sealed,
)


def load_data(label_mode: str = "fine") -> tuple[Split, Split]:
    """Load CIFAR-100 as Keras does; fetched on first use, then kept in the cache.

    The images are uint8 (50000, 32, 32, 3) and (10000, 32, 32, 3), the labels
    (50000, 1) and (10000, 1).

    Args:
        label_mode: "fine" for 100 classes, "coarse" for 20 kinds of them.

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    if label_mode not in LABELS:
        raise ValueError(f"`label_mode` is 'fine' or 'coarse', not {label_mode!r}.")
    column = slice(LABELS.index(label_mode), LABELS.index(label_mode) + 1)
    (x_train, y_train), (x_test, y_test) = load(DATA_SET).splits()
    return (x_train, y_train[:, column]), (x_test, y_test[:, column])
