"""The features of a `FeatureSpace`, and the columns of the data that they adapt to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers import Layer
from ganglion.layers.arguments import choice
from ganglion.layers.preprocessing.adapting import batches_of
from ganglion.serialization import Configured, deserialize_keras_object, export

_BATCH = 32  # rows that are adapted to at a time, as in Keras
_PRIVATE = "keras.src.layers.preprocessing.feature_space"  # where Keras has the parts


@export(_PRIVATE)
class Cross(Configured):
    """Some features that are crossed: a hash of their values together."""

    def __init__(
        self, feature_names: Any, crossing_dim: int, output_mode: str = "one_hot"
    ) -> None:
        self.feature_names = tuple(feature_names)
        self.crossing_dim = crossing_dim
        self.output_mode = choice(output_mode, "`output_mode`", ("int", "one_hot"))

    @property
    def name(self) -> str:
        """The names of the features, joined."""
        return "_X_".join(self.feature_names)


@export(_PRIVATE)
class Feature(Configured):
    """A column: its type, the layer that prepares it, and how it leaves."""

    def __init__(self, dtype: str, preprocessor: Any, output_mode: str) -> None:
        self.dtype = dtype
        self.preprocessor = deserialize_keras_object(preprocessor)
        self.output_mode = choice(
            output_mode, "`output_mode`", ("int", "one_hot", "float")
        )


@export(_PRIVATE)
class TFDIdentity(Layer):
    """A column as it is."""

    def call(self, x: Any) -> Any:
        return x


@export(_PRIVATE)
class TFDConcat(Layer):
    """Concatenates the features."""

    def __init__(self, axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, xs: Any) -> Any:
        return ops.concatenate(xs, axis=self.axis)


def as_column(array: np.ndarray) -> np.ndarray:
    """Return a column as (rows, size), also of a single number or of one per row."""
    if array.ndim == 0:
        return array.reshape(1, 1)
    return array[:, None] if array.ndim == 1 else array


def columns_of(dataset: Any, names: list[str]) -> dict[str, np.ndarray]:
    """Return the columns of a data set, joined over all batches."""
    if isinstance(dataset, dict):
        batches: Any = [dataset]
    elif hasattr(dataset, "__iter__"):
        batches = batches_of(dataset)
    else:
        raise ValueError(
            "`adapt` of a FeatureSpace takes a dictionary of columns, or an iterable "
            f"of dictionaries, not {type(dataset).__name__}."
        )
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for batch in batches:
        if not isinstance(batch, dict):
            raise ValueError(
                "`adapt` of a FeatureSpace goes over dictionaries, by the names of "
                f"features, not over {type(batch).__name__}."
            )
        for name in names:
            if name not in batch:
                raise ValueError(f"`adapt` got no data for the feature {name!r}.")
            parts[name].append(as_column(np.asarray(batch[name])))
    if names and not parts[names[0]]:
        raise ValueError("`adapt` got no data.")
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def in_batches(column: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a column in batches."""
    for start in range(0, len(column), _BATCH):
        yield column[start : start + _BATCH]
