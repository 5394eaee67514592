"""Data sets to train on: images, texts, prices, and glyphs of our own.

    >>> from ganglion.datasets import glyphs
    >>> (x_train, y_train), (x_test, y_test) = glyphs.load_data(train=100, test=10)

All others have Keras' names and ``load_data()``: fetched on first use, checked, and
kept in ``GANGLION_HOME`` or the user's cache folder.
"""

import difflib
import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ganglion.compat.unsupported import explain

if TYPE_CHECKING:
    from ganglion.datasets import (
        boston_housing,
        california_housing,
        cifar10,
        cifar100,
        fashion_mnist,
        glyphs,
        imdb,
        mnist,
        reuters,
    )
    from ganglion.datasets.loading import DataSet

NAMES = ("mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters",
         "boston_housing", "california_housing", "glyphs")  # fmt: skip

__all__ = [
    "NAMES",
    "DataSetInfo",
    "DataUnavailable",
    "boston_housing",
    "california_housing",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "fetch",
    "glyphs",
    "imdb",
    "info",
    "mnist",
    "reuters",
]


class DataUnavailable(RuntimeError):  # noqa: N818 - said of data, it is the error
    """No source has the data set. The first line says so, the rest says why."""


def __getattr__(name: str) -> ModuleType:
    if name in NAMES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(explain(__name__, name, NAMES))


@dataclass(frozen=True)
class DataSetInfo:
    """One line of ``info()``: a data set, and its state on this machine."""

    name: str
    title: str
    train_shape: tuple[int, ...]
    test_shape: tuple[int, ...]
    path: Path
    size: int | None
    """Bytes on disk; None when it is not in the cache yet."""

    @property
    def cached(self) -> bool:
        """Whether its file is in the cache (loading it also checks it)."""
        return self.size is not None


def info() -> list[DataSetInfo]:
    """List every data set with its shapes and whether it is in the cache.

    >>> [entry.name for entry in info()][:3]
    ['mnist', 'fashion_mnist', 'cifar10']
    """
    return [_info(__getattr__(name).DATA_SET) for name in NAMES]


def _info(data_set: "DataSet") -> DataSetInfo:
    path = data_set.path
    try:
        size = path.stat().st_size
    except OSError:
        size = None
    shapes = data_set.train_shape, data_set.test_shape
    return DataSetInfo(data_set.name, data_set.title, *shapes, path, size)


def fetch(name: str) -> Path:
    """Download a data set into the cache, check it, and return its file.

    >>> fetch("mnist").name  # doctest: +SKIP
    'mnist.npz'
    """
    if name not in NAMES:
        similar = difflib.get_close_matches(name, NAMES, n=1)
        hint = (
            f"did you mean {similar[0]!r}?"
            if similar
            else f"there are {', '.join(NAMES)}"
        )
        raise ValueError(f"no data set is called {name!r}; {hint}")
    module = __getattr__(name)
    module.load_data()
    path: Path = module.DATA_SET.path
    if not path.exists():
        raise DataUnavailable(
            f"{name} was fetched but could not be kept in {path.parent}: set "
            "GANGLION_HOME to a folder that can be written to"
        )
    return path
