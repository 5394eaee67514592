"""Fashion-MNIST: 70,000 articles of clothing, 28x28 grey (Zalando Research)."""

from pathlib import Path

from ganglion.datasets import decode
from ganglion.datasets.decode import IDX_FILES, Split
from ganglion.datasets.loading import DataSet, load
from ganglion.datasets.sources import Source, debian, placed, web

HOST = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = "usr/share/datasets/fashion-mnist"


def _sources() -> list[Source]:
    return [
        placed(DATA_SET.raw_folder, decode.idx_files),
        placed(Path("/") / DEBIAN_FOLDER, decode.idx_files),
        web(HOST, "{train,t10k}-*-ubyte.gz", decode.idx_files, suffix=".gz"),
        debian(DEBIAN_PACKAGE, DEBIAN_FOLDER, decode.idx_files),
    ]


def _by_hand() -> str:
    return (
        f"  put the files {', '.join(IDX_FILES)}\n"
        f"  (gzipped or not; {HOST}{IDX_FILES[0]}.gz and so on)\n"
        f"  into {DATA_SET.raw_folder},\n"
        f"  or install Debian's package {DEBIAN_PACKAGE}"
    )


DATA_SET = DataSet(
    name="fashion_mnist",
    title="Fashion-MNIST",
    train_shape=(60_000, 28, 28),
    test_shape=(10_000, 28, 28),
    sha256="8294d2ca571ee42977a0b2dbf2f2f22ac6655a869e4497e2cd010da5acf40c92",
    sources=_sources,
    by_hand=_by_hand,
)


def load_data() -> tuple[Split, Split]:
    """Load Fashion-MNIST as Keras does; fetched on first use, then kept in the cache.

    The images are uint8 (60000, 28, 28) and (10000, 28, 28), the labels uint8.

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    >>> x_train.shape, y_train[:5].tolist()  # doctest: +SKIP
    ((60000, 28, 28), [9, 0, 0, 3, 0])
    """
    return load(DATA_SET).splits()
