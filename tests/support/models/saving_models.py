"""Models that the tests of saving share."""

from __future__ import annotations

from typing import Any

import numpy as np

import ganglion as keras
from ganglion import layers


def small(seed: int = 1, units: int = 3, compiled: bool = True) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(units), layers.Dense(2, activation="softmax")]
    )
    if compiled:
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def same_weights(a: Any, b: Any) -> bool:
    return all(
        np.array_equal(array, other)
        for array, other in zip(a.get_weights(), b.get_weights(), strict=True)
    )
