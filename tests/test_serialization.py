"""Objects as plain data and back, and small ones that are equal by what made them."""

import json

import numpy as np
import pytest

import ganglion as keras

PAIRS = [
    lambda: keras.initializers.Constant(2.0),
    lambda: keras.initializers.Constant([1.0, 2.0]),
    lambda: keras.initializers.Constant(np.arange(3.0)),
    lambda: keras.initializers.HeNormal(seed=3),
    lambda: keras.regularizers.L1L2(0.1, 0.2),
    lambda: keras.constraints.MaxNorm(2.0),
    lambda: keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5),
    lambda: keras.optimizers.schedules.PiecewiseConstantDecay([1, 2], [3.0, 2.0, 1.0]),
    lambda: keras.DTypePolicy("float32"),
]


@pytest.mark.parametrize("make", PAIRS)
def test_equal_objects_hash_alike(make):
    first, other = make(), make()
    assert first == other
    assert hash(first) == hash(other)
    assert len({first, other}) == 1
    assert {first: "found"}[other] == "found"


def test_different_objects_differ():
    first, other = keras.regularizers.L2(0.1), keras.regularizers.L2(0.2)
    assert first != other
    assert first != keras.regularizers.L1(0.1)
    assert first != "l2"
    assert len({first, other, keras.regularizers.L2(0.1)}) == 2


def test_a_constraint_of_ones_own_needs_no_config():
    class Same(keras.constraints.Constraint):
        def __call__(self, w):
            return w

    assert Same().get_config() == {}
    assert Same() == Same()


def test_a_new_schedule_is_taken_up_whatever_it_is_equal_to():
    class Fixed(keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self, value):
            self.kept = value  # under another name: it is no part of the config

        def __call__(self, step):
            return self.kept

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(Fixed(0.0)), "mse")
    x = np.ones((2, 1))
    model.fit(x, 5 * x, verbose=0)
    before = model.get_weights()[0]
    model.optimizer.learning_rate = Fixed(0.1)
    model.fit(x, 5 * x, verbose=0)
    assert (model.get_weights()[0] != before).all()


@pytest.mark.parametrize("thing", [b"hello", slice(None, 20, 1), Ellipsis])
def test_plain_things_travel_through_json(thing):
    plain = json.loads(json.dumps(keras.saving.serialize_keras_object(thing)))
    assert keras.saving.deserialize_keras_object(plain) == thing


@pytest.mark.parametrize(
    ("config", "error", "match"),
    [
        ({"class_name": "Dense", "config": [1]}, TypeError, "'config' to be a dict"),
        ({"class_name": "function", "config": [1]}, TypeError, "a non-null str"),
        (
            {"class_name": "Sequential", "config": {"name": "s", "layers": [{}]}},
            ValueError,
            "containing a 'config' key",
        ),
        (
            {"class_name": "Sequential", "config": {"layers": []}},
            ValueError,
            "containing the 'name' and 'layers' keys",
        ),
        (
            {"class_name": "Dense", "config": {"units": 1}, "registered_name": "a>B"},
            ValueError,
            "resolved to a Keras built-in",
        ),
        (
            {"class_name": "function", "config": "relu", "registered_name": "a>relu"},
            ValueError,
            "resolved to a Keras built-in",
        ),
        (
            {"class_name": "__lambda__", "config": {}},
            ValueError,
            "arbitrary code execution",
        ),
    ],
)
def test_configurations_that_make_no_sense(config, error, match):
    with pytest.raises(error, match=match):
        keras.saving.deserialize_keras_object(config)


def test_a_configuration_without_a_module_means_what_is_asked_for():
    entry = {"class_name": "MeanAbsoluteError", "config": {"name": "q"}}
    assert isinstance(keras.metrics.get(entry), keras.metrics.MeanAbsoluteError)
    assert isinstance(keras.losses.get(entry), keras.losses.MeanAbsoluteError)


class Halver:
    """Of no registered class: only the objects of its module have it."""

    def __init__(self, by: float = 2.0) -> None:
        self.by = by


def test_names_are_looked_for_among_the_objects_of_a_module():
    def scaled(x):
        return x

    mine = {"Halver": Halver, "scaled": scaled, "number": 3}
    read = keras.saving.deserialize_keras_object
    assert read("Halver", module_objects=mine).by == 2.0
    entry = {"class_name": "Halver", "config": {"by": 4.0}}
    assert read(entry, module_objects=mine, printable_module_name="halver").by == 4.0
    assert read("scaled", module_objects=mine) is scaled
    own = read("scaled", custom_objects={"scaled": len}, module_objects=mine)
    assert own is len  # the user's objects first
    assert read("unknown", module_objects=mine) == "unknown"  # as in Keras
    assert read("number", module_objects=mine) == "number"
    assert read("scaled", {"scaled": scaled}) is scaled
    with pytest.raises(TypeError, match="takes no nonsense"):
        read("scaled", nonsense=1)
