"""What subclasses and callers of layers rely on, as Keras' own tests do."""

import json

import numpy as np
import pytest

import ganglion
from ganglion import layers, ops

X = np.ones((2, 3), "float32")


class Inner(layers.Layer):
    def __init__(self):
        super().__init__()
        self._register_call_context_args("mode")

    def call(self, x, mode=None):
        return x + (1 if mode else 0)


class Outer(layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def call(self, x):
        return self.inner(x)


def test_registered_arguments_reach_the_layers_below():
    plain, wrapped = Outer(), ganglion.Sequential([layers.Identity(), Outer()])
    for layer in (plain, wrapped):
        layer._register_call_context_args("mode")
        np.testing.assert_array_equal(layer(X, mode=True), X + 1)
        np.testing.assert_array_equal(layer(X), X)
    with pytest.raises(RuntimeError, match="after the layer has been called"):
        plain._register_call_context_args("other")


class Late(layers.Layer):
    def call(self, x):
        self.w = self.add_weight((), "zeros")
        return x + self.w


class Extending(layers.Layer):
    def build(self, input_shape):
        self.first = self.add_weight((2,), name="first")

    def call(self, x):
        return x

    def extend(self):
        self.second = self.add_weight((2,), name="second")
        self.first = self._untrack_variable(self.first)


class Around(layers.Layer):
    def __init__(self):
        super().__init__(name="around")
        self.below = Extending(name="below")

    def call(self, x):
        return self.below(x)


def test_variables_come_and_go_outside_of_calls():
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        Late()(X)
    layer = Around()
    layer(X)
    layer.below.extend()
    assert [variable.path for variable in layer.variables] == ["around/below/second"]
    assert (layer.below.first, layer._layers) == (None, [layer.below])


class Shapes(layers.Layer):
    def build(self, foo_shape, bar):
        pass

    def call(self, foo, bar):
        return foo


class OtherShapes(Shapes):
    def build(self, foo_shape, baz_shape):
        pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Shapes()(X, X), "`bar`, which does not end in `_shape`"),
        (lambda: OtherShapes()(X, X), "does not have argument `baz`"),
        (lambda: layers.Dense(2)(X, 1), "Only input tensors may be passed"),
        (lambda: layers.Dense(2, trainable="yes"), "to be a boolean"),
        (lambda: layers.Input(tensor=X), "must be a KerasTensor"),
        (
            lambda: layers.Input((2,), tensor=ganglion.KerasTensor((None, 3))),
            "incompatible `shape`",
        ),
        (lambda: layers.Reshape((-1, -1)), "at most one unknown"),
        (lambda: layers.ReLU(threshold=None), "threshold of a ReLU layer cannot"),
        (lambda: layers.Conv1D(5, 1, groups=2), "evenly divisible by the number"),
        (lambda: layers.Conv1D(4, 2, 2, dilation_rate=2), "not supported in conj"),
        (
            lambda: layers.GroupQueryAttention(2, 2, 1).compute_output_shape(
                (2, 3, 4), (2, 3, 5)
            ),
            "`value_shape` must be equal",
        ),
        (lambda: layers.Dropout(0.5, noise_shape=(1, 0)), "positive integers or None"),
        (lambda: layers.GroupNormalization(8)(X), "more than the number of channels"),
    ],
)
def test_misuse_is_said_in_keras_words(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_a_class_does_not_define_is_named():
    layer = layers.Layer()
    layer.built = True
    for method in ("call", "compute_output_shape", "quantized_build", "quantize"):
        arguments = (None, None) if method == "quantized_build" else (None,)
        with pytest.raises(NotImplementedError, match=f"`{method}` method"):
            getattr(layer, method)(*arguments)


def double(x):
    return x * 2


def test_a_configuration_is_plain_data_and_makes_a_layer_again():
    layer = layers.Lambda(double, mask=ops.ones((2, 3)))
    config = layer.get_config()
    assert json.dumps(config)
    np.testing.assert_array_equal(layers.Lambda.from_config(config)(X), X * 2)
    quantized = layers.Dense(2, dtype="int8_from_bfloat16").get_config()
    assert layers.Dense.from_config(quantized).quantization_mode == "int8"
    built = layers.Embedding(3, 2)
    built.build()
    again = layers.Embedding.from_config(built.get_config())
    again.build_from_config(built.get_build_config())
    assert again.built


class Looking(layers.Layer):
    def call(self, x):
        self.seen = ops.convert_to_numpy(x)
        return x

    def compute_output_shape(self, input_shape):
        return input_shape


def test_a_call_on_arrays_shows_its_numbers():
    layer = Looking()
    ganglion.Sequential([layers.Rescaling(2.0), layer])(X)
    np.testing.assert_array_equal(layer.seen, X * 2)
    with pytest.raises(TypeError, match="while a step"):
        ganglion.Sequential([layer]).predict(X, verbose=0)


def test_a_file_of_a_layer_adapted_inside_is_read(tmp_path):
    layer = layers.MultiHeadAttention(2, 3, use_bias=False)
    layer.build((1, 2, 3), (1, 2, 3))
    layer.query_dense.enable_lora(2)
    inputs = layers.Input((2, 3))
    model = ganglion.Model(inputs, layer(inputs, inputs))
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")
    model.fit(x, x, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = ganglion.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(x), model(x), 1e-5, 1e-6)


def test_inputs_begin_with_a_tensor():
    tensor = ganglion.KerasTensor((None, 3))
    model = ganglion.Model(tensor := layers.Input(tensor=tensor), tensor * 2)
    np.testing.assert_array_equal(model(X), X * 2)


NORMALISED = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
IMAGES = np.random.default_rng(0).normal(size=(1, 3, 4, 2)).astype("float32")
CALLS = {
    "rms_scaling": lambda keras: keras.layers.LayerNormalization(rms_scaling=True)(
        NORMALISED
    ),
    "broadcast mask": lambda keras: keras.layers.BatchNormalization()(
        IMAGES, mask=np.array([[[1], [0], [1]]], bool), training=True
    ),
    "mask of steps": lambda keras: keras.layers.GlobalAveragePooling1D(
        data_format="channels_first"
    )(NORMALISED, mask=np.array([[1, 1, 0], [1, 0, 0]], bool)),
    "large values": lambda keras: keras.layers.GroupNormalization(
        1, dtype="mixed_float16"
    )(NORMALISED * 70000),
    **{
        method: lambda keras, method=method: keras.layers.UpSampling2D(
            interpolation=method
        )(IMAGES)
        for method in ("bicubic", "lanczos3", "lanczos5")
    },
}


@pytest.mark.rivals
@pytest.mark.parametrize("name", CALLS)
def test_values_are_those_of_keras(name, keras):
    theirs, ours = np.asarray(CALLS[name](keras)), np.asarray(CALLS[name](ganglion))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(
        ours.astype("float32"), theirs.astype("float32"), 1e-3, 1e-4
    )
