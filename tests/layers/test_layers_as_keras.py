"""Habits of scripts with layers, variables and callbacks that Keras 3.15 allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import callbacks, layers, ops, optimizers
from ganglion.compiler.ir.graph import Value
from ganglion.variables import Scope, Variable

X = np.array([[-1.0, 2.0]], "float32")

WITHOUT_WEIGHTS = {
    "ReLU": (), "LeakyReLU": (), "ELU": (), "Softmax": (), "Activation": ("relu",),
    "Identity": (), "Dropout": (0.5,), "SpatialDropout1D": (0.5,),
    "SpatialDropout2D": (0.5,), "SpatialDropout3D": (0.5,), "GaussianNoise": (0.1,),
    "GaussianDropout": (0.1,), "AlphaDropout": (0.1,), "ActivityRegularization": (),
    "Reshape": ((2,),), "MaxPooling1D": (), "MaxPooling2D": (), "MaxPooling3D": (),
    "AveragePooling1D": (2,), "AveragePooling2D": (2,), "AveragePooling3D": (2,),
    "GlobalAveragePooling1D": (), "GlobalAveragePooling2D": (),
    "GlobalMaxPooling1D": (), "GlobalMaxPooling3D": (), "UnitNormalization": (),
    # These wait for the shape of their input, in Keras too.
    "Dense": (1,), "Flatten": (), "Permute": ((1,),), "Conv2D": (1, 1),
    "BatchNormalization": (), "LayerNormalization": (), "Embedding": (2, 2),
    "ZeroPadding2D": (), "UpSampling2D": (), "Add": (), "PReLU": (), "Layer": (),
    "Normalization": (), "RandomFlip": (), "Rescaling": (2.0,),
}  # fmt: skip


@pytest.mark.rivals
@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_built_after_construction(keras, name: str) -> None:
    ours = getattr(layers, name)(*WITHOUT_WEIGHTS[name])
    theirs = getattr(keras.layers, name)(*WITHOUT_WEIGHTS[name])
    assert ours.built == theirs.built


def test_a_layer_that_is_built_at_once_remembers_its_first_input() -> None:
    layer = layers.ReLU()
    assert layer.built
    assert layer.get_build_config() is None
    layer(X)
    assert layer.get_build_config() is None
    assert layer._build_shape == (1, 2)

    class Own(layers.Dropout):
        def build(self, input_shape: Any) -> None:
            self.offset = self.add_weight((1,), "zeros")

    own = Own(0.5)
    assert not own.built
    own(X)
    assert own.weights == [own.offset]


@pytest.mark.parametrize(
    "layer",
    [
        layers.Dense(1, activation="relu", kernel_initializer="ones"),
        layers.Activation("relu"),
        layers.Conv1D(1, 1, activation="relu", kernel_initializer="ones"),
        layers.DepthwiseConv1D(1, activation="relu", depthwise_initializer="ones"),
        layers.SeparableConv1D(1, 1, activation="relu"),
        layers.Conv1DTranspose(1, 1, activation="relu", kernel_initializer="ones"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_an_activation_may_be_taken_away(layer) -> None:
    layer = type(layer).from_config(layer.get_config())
    x = X[..., None] if layer.__class__.__name__.endswith(("1D", "Transpose")) else X
    before = layer(x)
    layer.activation = None
    after = layer(x)
    assert (before >= 0).all()
    np.testing.assert_array_equal(np.maximum(after, 0), before)


def test_merging_layers_are_built_with_any_sequence_of_shapes() -> None:
    for shapes in (((2, 4), (2, 4)), [(2, 4), (2, 4)], [[2, 4], [2, 4]]):
        for layer in (layers.Add(), layers.Multiply(), layers.Average()):
            layer.build(shapes)
            assert layer.built
    with pytest.raises(ValueError, match="merges a list of inputs"):
        layers.Add().build((2, 4))


@pytest.mark.parametrize("cls", [layers.LayerNormalization, layers.RMSNormalization])
def test_normalisation_of_another_number_of_axes(cls) -> None:
    layer = cls()
    layer.build((2, 2, 2))
    x = np.random.default_rng(0).normal(size=(3, 4, 2, 2)).astype("float32")
    flat = layer(x.reshape(-1, 2, 2)).reshape(x.shape)
    np.testing.assert_allclose(layer(x), flat, rtol=1e-6)
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have"):
        layer(np.ones((2, 3), "float32"))


def test_the_statistics_of_a_normalization_have_the_axes_of_its_inputs() -> None:
    layer = layers.Normalization(mean=5.0, variance=4.0)
    layer.build((3, 7))
    assert (layer.mean.shape, layer.variance.shape) == ((1, 7), (1, 7))
    assert layer.mean.dtype == "float32"
    adapted = layers.Normalization()
    data = np.arange(12, dtype="float32").reshape(2, 3, 2)
    adapted.adapt(data)
    np.testing.assert_allclose(adapted.mean, [[[5.0, 6.0]]])
    result = adapted(data)
    np.testing.assert_allclose(result.mean((0, 1)), 0, atol=1e-6)


def test_numpy_reads_a_variable() -> None:
    variable = Variable(np.array([3.0, -1.0], "float32"))
    assert np.min(variable) == -1
    assert np.sum(variable) == 2
    np.testing.assert_array_equal(np.abs(variable), [3, 1])
    np.testing.assert_allclose(np.exp(variable), np.exp(variable.numpy()))
    np.testing.assert_array_equal(np.maximum(variable, 0), [3, 0])
    np.testing.assert_array_equal(np.ones(2, "float32") + variable, [4, 0])
    np.testing.assert_array_equal(np.ones(2) > variable, [False, True])
    total = np.zeros(2, "float32")
    total += variable
    np.testing.assert_array_equal(total, variable.numpy())
    with Scope():
        assert isinstance(np.ones(2, "float32") * variable, Value)
        with pytest.raises(TypeError, match=r"use `ganglion\.ops`"):
            np.min(variable)


def test_an_optimizer_is_built_for_no_variables() -> None:
    for name in ("Nadam", "Adam", "SGD", "RMSprop", "Lion", "Ftrl", "Adafactor"):
        getattr(optimizers, name)().build([])


def test_a_lambda_callback_keeps_other_functions() -> None:
    helper = callbacks.LambdaCallback(helper=lambda x: x + 1)
    assert helper.helper(1) == 2
    with pytest.raises(TypeError, match="Did you mean 'on_epoch_end'"):
        callbacks.LambdaCallback(on_epoc_end=print)


def test_map_over_the_rows_of_an_input() -> None:
    x = ganglion.Input((3,))
    doubled = ops.map(lambda row: row * 2, x)
    assert doubled.shape == (None, 3)
    result = ganglion.Model(x, doubled).predict(np.ones((2, 3)), verbose=0)
    np.testing.assert_array_equal(result, 2)
