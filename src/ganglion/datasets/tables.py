"""Tables of houses and their prices: how they are read, mixed and split."""

from typing import Any, NamedTuple

import numpy as np

from ganglion.datasets.decode import Record
from ganglion.datasets.keras_files import open_npz

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
FloatSplit = tuple[Floats, Floats]


class _Columns(NamedTuple):
    x: Floats
    y: Floats


class Table(Record, _Columns):
    """Features, a row for each sample, and what is to be predicted."""

    __slots__ = ()


def from_keras(data: bytes) -> Table:
    """Decode Keras' file of a table."""
    table = Table(**open_npz(data, Table._fields))
    for name, array in table._asdict().items():
        if array.dtype.kind != "f":
            raise ValueError(f"{name} holds {array.dtype}, not floats")
    if table.x.ndim != 2 or table.y.shape != table.x.shape[:1]:
        raise ValueError(f"x is {table.x.shape} and y is {table.y.shape}")
    return table


def from_csv(data: bytes, columns: int) -> Floats:
    """Decode a text with a line of names and then a line of numbers for each row."""
    _, *lines = data.decode("ascii").splitlines()
    numbers = np.array([line.split(",") for line in lines], np.float64)
    if numbers.ndim != 2 or numbers.shape[1] != columns:
        raise ValueError(f"the table has the shape {numbers.shape}")
    return numbers


def check_split(test_split: float) -> None:
    """Refuse a share that leaves nothing to train on, before anything is fetched."""
    if not 0 <= test_split < 1:
        raise ValueError(
            f"`test_split` is the share of the test data, from 0 to below 1, not "
            f"{test_split}."
        )


def mixed_split(
    table: Table, test_split: float, seed: int | None
) -> tuple[FloatSplit, FloatSplit]:
    """Mix the rows of a table and hold some of them out, as Keras does."""
    order = np.arange(len(table.x))
    np.random.RandomState(seed).shuffle(order)
    count = int(len(order) * (1 - test_split))
    train, test = order[:count], order[count:]
    return (table.x[train], table.y[train]), (table.x[test], table.y[test])
