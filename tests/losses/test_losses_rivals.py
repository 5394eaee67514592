"""Losses against Keras: values, names and configurations."""

import inspect
import warnings

import numpy as np
import pytest
from label_draws import bit_probabilities, bits
from loss_cases import CASES, REDUCTIONS, SHAPES, drawn, every_case

from ganglion import Input, Sequential, layers, losses, optimizers

pytestmark = pytest.mark.rivals


@every_case
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_keras_gives_the_same(keras, case, shape, weighted):
    y_true, y_pred = drawn(case, shape)
    weight = np.random.default_rng(2).uniform(size=shape[:-1]).astype("float32")
    for reduction in REDUCTIONS:
        ours = getattr(losses, case[0])(**case[1], reduction=reduction)
        theirs = getattr(keras.losses, case[0])(**case[1], reduction=reduction)
        arguments = (y_true, y_pred, weight) if weighted else (y_true, y_pred)
        # Two libraries round exp, log and sums differently in the last bits.
        np.testing.assert_allclose(
            ours(*arguments), np.asarray(theirs(*arguments)), rtol=2e-5, atol=1e-6
        )
        assert ours.name == theirs.name


@pytest.mark.parametrize(
    ("labels", "predictions"), [((5,), (5, 1)), ((5, 1), (5,)), ((5, 1), (5, 1))]
)
@pytest.mark.parametrize("weights", [None, (5,), (5, 1), ()])
def test_keras_makes_the_same_of_a_last_axis_of_one(
    keras, labels, predictions, weights
):
    rng = np.random.default_rng(3)
    y_true, y_pred = bits(rng, labels), bit_probabilities(rng, predictions)
    weight = None if weights is None else rng.uniform(size=weights).astype("float32")
    for name in ("MeanSquaredError", "BinaryCrossentropy", "Hinge"):
        ours = getattr(losses, name)(reduction=None)(y_true, y_pred, weight)
        theirs = getattr(keras.losses, name)(reduction=None)(y_true, y_pred, weight)
        assert ours.shape == tuple(theirs.shape)
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-5)


def test_configurations_are_those_of_keras(keras):
    for name in {case[0] for case in CASES}:
        ours, theirs = getattr(losses, name), getattr(keras.losses, name)
        assert theirs().get_config().items() <= ours().get_config().items()
        theirs.from_config(ours().get_config())


def test_functions_and_names_are_those_of_keras(keras):
    left_out = {"CTC", "ctc"}
    known = keras.src.losses.ALL_OBJECTS_DICT
    for name, theirs in known.items():
        if name in left_out or name in ("Loss", "LossFunctionWrapper"):
            continue
        ours = losses.get(name)
        if inspect.isclass(theirs):
            assert type(ours).__name__ == theirs.__name__
        else:
            assert ours.__name__ == theirs.__name__


def test_our_files_are_read_by_keras_and_theirs_by_us(keras):
    for name, arguments, *_ in CASES:
        ours = getattr(losses, name)(**arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # `keras.losses.deserialize` does not know the generalized cross-entropy.
            theirs = keras.saving.deserialize_keras_object(losses.serialize(ours))
        assert type(theirs).__name__ == name
        again = losses.deserialize(keras.losses.serialize(theirs))
        assert type(again) is type(ours)


def embeddings(rng, rows):
    points = rng.normal(size=(rows, 3)).astype("float32")
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("options", [{}, {"gamma": 8.0, "remove_diagonal": False}])
def test_circle(keras, options):
    rng = np.random.default_rng(5)
    x, labels = embeddings(rng, 7), np.array([0, 1, 1, 0, 2, 1, 3])
    weights = rng.uniform(size=7).astype("float32")
    for reduction in REDUCTIONS:
        ours = losses.Circle(**options, reduction=reduction)
        theirs = keras.losses.Circle(**options, reduction=reduction)
        for arguments in ((labels, x), (labels[:, None], x), (labels, x, weights)):
            expected = np.asarray(theirs(*arguments))
            np.testing.assert_allclose(ours(*arguments), expected, rtol=2e-4)
    more = {"ref_labels": np.array([1, 2]), "ref_embeddings": embeddings(rng, 2)}
    more["remove_diagonal"] = False
    expected = np.asarray(keras.losses.circle(labels, x, **more))
    np.testing.assert_allclose(losses.circle(labels, x, **more), expected, rtol=2e-4)


def test_the_gradient_of_circle_is_that_of_keras(keras):
    import tensorflow as tf

    rng = np.random.default_rng(5)
    x, labels = embeddings(rng, 6), np.array([0, 1, 1, 0, 1, 0])
    with tf.GradientTape() as tape:
        points = tf.Variable(x)
        loss = keras.losses.Circle(gamma=5.0)(labels, points)
    model = Sequential([Input((3,)), layers.EinsumDense("ab,bc->ac", 3)])
    model.compile(optimizers.SGD(1.0), losses.Circle(gamma=5.0))
    model.set_weights([np.eye(3, dtype="float32")])
    model.fit(x, labels, batch_size=6, shuffle=False, verbose=0)
    ours = np.eye(3) - model.get_weights()[0]
    np.testing.assert_allclose(ours, x.T @ tape.gradient(loss, points), atol=1e-5)
