"""California housing: 20,640 districts of 1990 in 8 columns (Pace and Barry)."""

import numpy as np

from ganglion.datasets.decode import Reader, Record
from ganglion.datasets.keras_files import KerasFile, check_copy
from ganglion.datasets.loading import load
from ganglion.datasets.sources import npm
from ganglion.datasets.tables import (
    FloatSplit,
    Table,
    check_split,
    from_csv,
    from_keras,
    mixed_split,
)

SMALL = 600  # the first districts, which are all around San Francisco Bay
# Of the arrays of the copy. Order of rows and columns are those of Keras' file, as
# books and its issue tracker show them.
SHA256 = "c91e7b34206e123d3945d26254bdf725c866084709861df031ee3326fbdab579"


def _from_package(read: Reader) -> Record:
    """Undo scikit-learn's averages: Keras' file has counts for a whole district."""
    numbers = from_csv(read("california_housing.csv"), columns=9)
    income, age, rooms, bedrooms, people, household, latitude, longitude, value = (
        numbers.T
    )
    households = np.round(people / household)
    columns = [
        longitude,
        latitude,
        age,
        np.round(rooms * households),
        np.round(bedrooms * households),
        people,
        households,
        income,
    ]
    x = np.stack(columns, axis=1).astype(np.float32)
    return check_copy(Table(x, np.round(value * 1e5).astype(np.float32)), SHA256)


FILE = KerasFile(
    name="california_housing.npz",
    digest="1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f",
    record=Table,
    decode=from_keras,
)
DATA_SET = FILE.data_set(
    name="california_housing",
    title="California housing",
    shapes=((16_512, 8), (4_128, 8)),
    copies=[npm("scikitjs@1.24.0", "docs/static/data/", _from_package)],
)


def load_data(
    version: str = "large",
    path: str = FILE.name,
    test_split: float = 0.2,
    seed: int | None = 113,
) -> tuple[FloatSplit, FloatSplit]:
    """Load California housing as Keras does; fetched on first use, then kept.

    The columns are longitude, latitude, median age of the houses, rooms, bedrooms,
    people, households and median income; the target is the median price in dollars.

    Args:
        version: "large", or "small" for the first 600 rows.
        path: Where the data is kept, relative to the cache folder or absolute.
        test_split: The share of the test data.
        seed: Of the mixing before the split.

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    >>> x_train.shape, y_train[:3].tolist()  # doctest: +SKIP
    ((16512, 8), [252300.0, 146900.0, 290900.0])
    """
    check_split(test_split)
    if version not in ("small", "large"):
        raise ValueError(f"`version` is 'small' or 'large', not {version!r}.")
    table = load(DATA_SET, path)
    if version == "small":
        table = Table(table.x[:SMALL], table.y[:SMALL])
    return mixed_split(table, test_split, seed)
