"""Every layer beside Keras without a number: names, paths, shapes, configurations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from layer_cases import CASES, Case, case, is_channels_first

from ganglion import layers

pytestmark = pytest.mark.rivals

_STEPS, _VIDEO = (2, 5, 3), (2, 3, 6, 5, 2)
RECURRENT = [
    case("SimpleRNN", _STEPS, units=4),
    case("LSTM", _STEPS, units=4, return_sequences=True),
    case("GRU", _STEPS, units=4, go_backwards=True),
    case("GRU", _STEPS, units=4, reset_after=False, use_bias=False),
    case("ConvLSTM1D", _VIDEO[:-1], filters=2, kernel_size=2),
    case("ConvLSTM2D", _VIDEO, filters=2, kernel_size=2, padding="same"),
    case("ConvLSTM2D", (2, 3, 2, 6, 5), filters=2, kernel_size=2,
         data_format="channels_first"),
]  # fmt: skip


def one_of_each() -> list[Case]:
    """Return the first case of each layer in each layout of images."""
    chosen: dict[Any, Case] = {}
    for item in CASES:
        chosen.setdefault((item.layer, is_channels_first(item)), item)
    return [*chosen.values(), *RECURRENT]


EACH = one_of_each()


def plain(value: Any) -> Any:
    """Return lists for tuples, as files have them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return (
        [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
    )


def unknown(shape: tuple[int, ...]) -> Iterator[tuple[int | None, ...]]:
    """Yield a shape with ever more unknown axes: the batch, another one, all."""
    yield (None, *shape[1:])
    for axis in {1, len(shape) - 1} - {0}:
        if axis < len(shape):
            yield tuple(None if i in (0, axis) else n for i, n in enumerate(shape))
    yield (None,) * len(shape)


@pytest.mark.parametrize("item", EACH, ids=lambda item: item.id)
def test_before_and_after_building(keras: Any, item: Case) -> None:
    ours, theirs = item.make(layers), item.make(keras.layers)
    for name in ("name", "built", "trainable", "supports_masking", "path"):
        assert getattr(ours, name) == getattr(theirs, name), name
    mine, other = plain(ours.get_config()), plain(theirs.get_config())
    if item.layer == "SimpleRNN":  # Keras forgets it
        other["seed"] = None
    assert mine == other
    assert plain(type(ours).from_config(ours.get_config()).get_config()) == mine
    x = item.inputs()
    results = [item.call(layer, x) for layer in (ours, theirs)]
    assert results[0].dtype == np.asarray(results[1]).dtype
    seen = [
        [(w.name, w.path, tuple(w.shape), w.trainable) for w in weights]
        for weights in (ours.weights, theirs.weights)
    ]
    assert seen[0] == seen[1]
    assert len(ours.variables) == len(theirs.variables)
    assert ours.count_params() == theirs.count_params()
    assert plain(ours.get_build_config()) == plain(theirs.get_build_config())
    assert ours.path == theirs.path


SINGLE = [item for item in EACH if len(item.shapes) == 1]


@pytest.mark.parametrize("item", SINGLE, ids=lambda item: item.id)
def test_compute_output_shape(keras: Any, item: Case) -> None:
    theirs = item.make(keras.layers)
    for shape in unknown(item.shapes[0]):
        ours = item.make(layers)
        try:
            expected = theirs.compute_output_shape(shape)
        except (ValueError, TypeError):
            continue  # it needs that size
        if item.layer.startswith("ConvLSTM") and None in shape[1:]:
            continue  # ours is built to find out
        assert plain(ours.compute_output_shape(shape)) == plain(expected), shape
        if not item.layer.startswith("ConvLSTM"):
            assert ours.built == theirs.built
