"""Configurations of layers: plain data, to which a subclass adds its own arguments."""

import json
from typing import Any

import numpy as np
import pytest

import ganglion


def subclass(keras: Any) -> Any:
    class Scale(keras.layers.Layer):
        def __init__(self, units, **options):
            super().__init__(**options)
            self.units = units

        def get_config(self):
            return dict(units=self.units, **super().get_config())

    return Scale(3, name="scale")


def wider(keras: Any) -> Any:
    class Wider(keras.layers.Dense):
        def __init__(self, factor, **options):
            super().__init__(2 * factor, **options)
            self.factor = factor

        def get_config(self):
            return {**super().get_config(), "factor": self.factor}

    return Wider(2, activation="relu", name="wider")


@pytest.mark.rivals
@pytest.mark.parametrize("make", [subclass, wider])
def test_a_config_of_ones_own_begins_with_that_of_the_class_above(keras, make):
    ours, theirs = make(ganglion).get_config(), make(keras).get_config()
    assert set(ours) == set(theirs)
    for name in ("units", "activation", "name", "trainable", "use_bias"):
        assert ours.get(name) == theirs.get(name)


def test_a_layer_is_made_again_from_its_own_config():
    layer = subclass(ganglion)
    again = type(layer).from_config(layer.get_config())
    assert (again.units, again.name) == (3, "scale")


@pytest.mark.parametrize(
    "layer",
    [
        lambda: ganglion.layers.Dense(2, activation="relu", kernel_regularizer="l2"),
        lambda: ganglion.layers.Conv2D(2, (3, 3), kernel_constraint="max_norm"),
        lambda: ganglion.layers.BatchNormalization(),
        lambda: ganglion.layers.Activation("gelu"),
        lambda: wider(ganglion),
    ],
)
def test_configs_are_plain_data(layer):
    config = layer().get_config()
    again = json.loads(json.dumps(config))
    assert again.keys() == config.keys()


def test_names_and_sizes_in_configs_are_keras_own():
    config = ganglion.layers.Conv2D(2, (3, 3), activation="relu").get_config()
    assert config["activation"] == "relu"
    assert config["kernel_size"] == (3, 3)
    assert config["kernel_initializer"]["class_name"] == "GlorotUniform"


def test_what_has_no_name_stays_as_it_is():
    def own(x):
        return x

    layer = ganglion.layers.Dense(1, activation=own)
    assert layer.get_config()["activation"] is own
    again = type(layer).from_config(layer.get_config())
    assert again(np.ones((1, 1), "float32")).shape == (1, 1)
