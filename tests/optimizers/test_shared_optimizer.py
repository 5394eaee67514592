"""One optimizer for several models, as published GANs for Keras 2 have it."""

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers


def dense(units=1):
    return keras.Sequential(
        [keras.Input((3,)), layers.Dense(units, kernel_initializer="ones")]
    )


def batch():
    return np.ones((4, 3), "float32"), np.zeros((4, 1), "float32")


@pytest.mark.parametrize("name", ["SGD", "Adam", "Nadam", "RMSprop", "Adafactor"])
def test_each_model_has_slots_of_its_own(name):
    shared = getattr(keras.optimizers, name)(0.1)
    item, two = dense(), dense()
    item.compile(shared, "mse")
    two.compile(shared, "mse")
    for _ in range(3):
        item.train_on_batch(*batch())
        two.train_on_batch(*batch())
    assert two.optimizer.iterations is item.optimizer.iterations
    assert int(shared.iterations) == 6
    shared.learning_rate = 0.5
    assert float(two.optimizer.learning_rate) == 0.5


def test_sgd_trains_both_as_it_trains_each_alone():
    shared = keras.optimizers.SGD(0.1, momentum=0.9)
    together, alone = [dense(), dense()], dense()
    for model in together:
        model.compile(shared, "mse")
    alone.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    for _ in range(3):
        alone.train_on_batch(*batch())
        for model in together:
            model.train_on_batch(*batch())
    for model in together:
        for mine, wanted in zip(model.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, wanted)


def test_a_frozen_part_thawed_under_the_same_optimizer():
    base, head = layers.Dense(3), layers.Dense(1)
    model = keras.Sequential([keras.Input((3,)), base, head])
    optimizer = keras.optimizers.Adam(0.01)
    base.trainable = False
    model.compile(optimizer, "mse")
    model.fit(*batch(), verbose=0)
    base.trainable = True
    model.compile(optimizer, "mse")
    before = base.get_weights()[0]
    model.fit(*batch(), verbose=0)
    assert (base.get_weights()[0] != before).any()


def test_both_are_saved(tmp_path):
    shared = keras.optimizers.Adam(0.1)
    item, two = dense(), dense(2)
    item.compile(shared, "mse")
    two.compile(shared, "mse")
    item.train_on_batch(*batch())
    two.train_on_batch(batch()[0], np.zeros((4, 2)))
    two.save(tmp_path / "two.keras")
    again = keras.saving.load_model(tmp_path / "two.keras")
    for a, b in zip(
        again.optimizer.get_weights(), two.optimizer.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_metrics_as_the_third_argument_of_compile():
    model = dense()
    with pytest.warns(keras.keras2.Keras2Warning, match="metrics="):
        model.compile("sgd", "mse", ["mae"])
    assert set(model.fit(*batch(), verbose=0).history) == {"loss", "mae"}
