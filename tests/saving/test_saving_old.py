"""Keras 2's `.h5` files, written here by hand as its versions wrote them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import keras2, saving

h5py = pytest.importorskip("h5py")


def entry(kind: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": config}


def old_dense(name: str, units: int, **more: Any) -> dict[str, Any]:
    """A Dense layer as Keras 2.2 wrote it."""
    scaling = {"scale": 1.0, "mode": "fan_avg", "distribution": "uniform", "seed": None}
    return entry(
        "Dense",
        name=name,
        trainable=True,
        units=units,
        activation="relu",
        use_bias=True,
        kernel_initializer=entry("VarianceScaling", **scaling),
        bias_initializer=entry("Zeros"),
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **more,
    )


def old_file(path: Path, config: dict[str, Any], weights: dict[str, Any]) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config).encode()
        file.attrs["keras_version"] = b"2.2.4"
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name in weights]
        for name, arrays in weights.items():
            subgroup = group.create_group(name)
            names = [f"{name}/w_{i}:0".encode() for i in range(len(arrays))]
            subgroup.attrs["weight_names"] = names
            for key, array in zip(names, arrays, strict=True):
                subgroup[key.decode()] = array


KERNEL, BIAS = np.full((4, 3), 0.5, "float32"), np.arange(3, dtype="float32")


def test_a_sequential_of_keras_2(tmp_path):
    first = old_dense("dense_1", 3, batch_input_shape=[None, 4], dtype="float32")
    dropout = entry(
        "Dropout", name="d", trainable=True, rate=0.5, noise_shape=None, seed=None
    )
    layers_of = [first, dropout]
    weights = {"dense_1": [KERNEL, BIAS], "d": []}
    x = np.ones((1, 4), "float32")
    for number, config in enumerate(
        (
            entry("Sequential", name="sequential_1", layers=layers_of),
            {"class_name": "Sequential", "config": layers_of},  # before Keras 2.2.3
        )
    ):
        path = tmp_path / f"{number}.h5"
        old_file(path, config, weights)
        with pytest.warns(keras2.Keras2Warning) if not number else nullcontext():
            model = saving.load_model(path)
        np.testing.assert_array_equal(model(x), x @ KERNEL + BIAS)


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_a_functional_model_of_keras_2_with_a_model_inside(tmp_path):
    start = entry("InputLayer", batch_input_shape=[None, 4], dtype="float32", name="a")
    inner_start = entry(
        "InputLayer", batch_input_shape=[None, 4], dtype="float32", name="b"
    )
    inner = entry(
        "Model",
        name="inner",
        layers=[
            {**inner_start, "name": "b", "inbound_nodes": []},
            {
                **old_dense("deep", 3),
                "name": "deep",
                "inbound_nodes": [[["b", 0, 0, {}]]],
            },
        ],
        input_layers=[["b", 0, 0]],
        output_layers=[["deep", 0, 0]],
    )
    # The calls of `inner` are counted from one: its own graph was call zero.
    config = entry(
        "Model",
        name="outer",
        layers=[
            {**start, "name": "a", "inbound_nodes": []},
            {**inner, "name": "inner", "inbound_nodes": [[["a", 0, 0, {}]]]},
            {
                **entry("Add", name="add", trainable=True),
                "name": "add",
                "inbound_nodes": [[["inner", 1, 0, {}], ["inner", 1, 0, {}]]],
            },
        ],
        input_layers=[["a", 0, 0]],
        output_layers=[["add", 0, 0]],
    )
    old_file(tmp_path / "m.h5", config, {"inner": [KERNEL, BIAS]})
    model = saving.load_model(tmp_path / "m.h5")
    x = np.ones((1, 4), "float32")
    np.testing.assert_array_equal(model.predict(x, verbose=0), 2 * (x @ KERNEL + BIAS))


class Blocks(ganglion.Model):
    """Keeps layers in tuples within a list."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [(ganglion.layers.Dense(3, use_bias=False),) for _ in range(2)]
        self.top = ganglion.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        for (layer,) in self.blocks:
            inputs = layer(inputs)
        return self.top(inputs)


def test_layers_in_nested_lists_that_keras_once_saved_by_number(tmp_path):
    """Older Keras 3 left out lists within lists: they lie below `layers` alone."""
    x = np.ones((1, 3), "float32")
    model, other = Blocks(), Blocks()
    expected, _ = model(x), other(x)
    with h5py.File(tmp_path / "old.weights.h5", "w") as file:
        file.create_group("vars")
        for name, layer in zip(["", "_1", "_2"], model.layers, strict=True):
            for number, value in enumerate(layer.get_weights()):
                file[f"layers/dense{name}/vars/{number}"] = value
    other.load_weights(tmp_path / "old.weights.h5")
    np.testing.assert_array_equal(other(x), expected)
