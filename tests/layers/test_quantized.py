"""Quantized layers: beside Keras, in training, and in files."""

import gc
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import config
from ganglion.quantizers import Int8QuantizationConfig

CASES = {
    "Dense": (lambda layers: layers.Dense(3, activation="relu"), (4, 5)),
    "Dense of sequences": (lambda layers: layers.Dense(3, use_bias=False), (2, 4, 5)),
    "EinsumDense": (
        lambda layers: layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e"),
        (2, 3, 5),
    ),
    "EinsumDense back": (
        lambda layers: layers.EinsumDense("abde,dec->abc", (None, 4), bias_axes="c"),
        (2, 3, 2, 5),
    ),
    "EinsumDense any": (
        lambda layers: layers.EinsumDense("...b,bc->...c", (3,), bias_axes="c"),
        (2, 4, 5),
    ),
    "Embedding": (lambda layers: layers.Embedding(6, 4), (3, 2)),
}


@pytest.fixture(autouse=True)
def no_search_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras does so whenever a layer loses a variable: long, late in a large suite."""
    monkeypatch.setattr(gc, "collect", lambda generation=2: 0)


def data_of(name: str) -> np.ndarray:
    rng, shape = np.random.default_rng(0), CASES[name][1]
    if name == "Embedding":
        return rng.integers(0, 6, shape)
    return rng.normal(size=shape).astype("float32")


def model_of(module: Any, name: str, weights: Any = None) -> Any:
    make, shape = CASES[name]
    dtype = "int32" if name == "Embedding" else "float32"
    inputs = module.Input(batch_shape=shape, dtype=dtype)
    model = module.Model(inputs, make(module.layers)(inputs))
    if weights is not None:
        model.set_weights(weights)
    return model


def chosen_by(module: Any, mode: str) -> Any:
    if mode == "int8":
        return module.quantizers.Int8QuantizationConfig()
    size = int(mode.partition("/")[2])
    return module.quantizers.Int4QuantizationConfig(block_size=size)


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have")
@pytest.mark.parametrize("name", [name for name in CASES if "any" not in name])
@pytest.mark.parametrize("mode", ["int8", "int4/2", "int4/-1"])
def test_layers_are_quantized_as_in_keras(name, mode, keras, tmp_path):
    config.set_backend("numpy")
    theirs, x = model_of(keras, name), data_of(name)
    ours = model_of(ganglion, name, theirs.get_weights())
    plain = np.asarray(ours(x))
    for module, model in ((ganglion, ours), (keras, theirs)):
        model.quantize(config=chosen_by(module, mode))
        assert model.layers[1].dtype_policy.name == f"{mode}_from_float32"
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, 1e-5)
    np.testing.assert_allclose(ours(x), theirs(x), 1e-4, 1e-5)
    error = 0.05 if mode == "int8" else 0.6
    np.testing.assert_allclose(ours(x), plain, error, error)
    for writer, reader in ((ours, keras), (theirs, ganglion)):
        path = str(tmp_path / "model.keras")
        writer.save(path)
        loaded = reader.models.load_model(path)
        np.testing.assert_allclose(loaded(x), writer(x), 1e-4, 1e-5)


def test_axes_that_the_equation_does_not_name():
    model, x = model_of(ganglion, "EinsumDense any"), data_of("EinsumDense any")
    plain = np.asarray(model(x))
    model.layers[1].quantize("int8")  # Keras itself cannot
    assert model.layers[1].kernel_scale.shape == (1, 1, 3)
    np.testing.assert_allclose(model(x), plain, 0.05, 0.05)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_what_is_below_a_quantized_layer_learns(backend):
    config.set_backend(backend)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 6)), rng.normal(size=(64, 2))
    losses = []
    for quantizes in (False, True):
        ganglion.utils.set_random_seed(1)
        first, second = ganglion.layers.Dense(8, "tanh"), ganglion.layers.Dense(2)
        model = ganglion.Sequential([ganglion.Input((6,)), first, second])
        second.trainable = False
        if quantizes:
            second.quantize("int8")
        model.compile(ganglion.optimizers.SGD(0.1), "mse")
        fit = model.fit(x, y, batch_size=16, epochs=4, shuffle=False, verbose=0)
        losses.append(fit.history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], 0.02)
    assert losses[1][-1] < losses[1][0]


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have")
@pytest.mark.parametrize("name", ["Dense", "EinsumDense", "Embedding"])
@pytest.mark.parametrize("mode", ["int8", "int4/2"])
def test_quantized_layers_are_adapted(name, mode, keras, tmp_path):
    config.set_backend("numpy")
    theirs, x = model_of(keras, name), data_of(name)
    ours = model_of(ganglion, name, theirs.get_weights())
    for module, model in ((ganglion, ours), (keras, theirs)):
        model.quantize(config=chosen_by(module, mode))
        model.layers[1].enable_lora(2)
        rng = np.random.default_rng(1)
        for variable in model.trainable_weights:
            variable.assign(rng.normal(size=variable.shape) * 0.1)
    np.testing.assert_allclose(ours(x), theirs(x), 1e-4, 1e-5)
    for writer, reader in ((ours, keras), (theirs, ganglion)):
        path = str(tmp_path / "model.weights.h5")
        writer.save_weights(path)
        loaded = model_of(reader, name)
        loaded.quantize(config=chosen_by(reader, mode))
        loaded.load_weights(path)
        error = 0.05 if mode == "int8" else 0.6  # it is rounded once more
        np.testing.assert_allclose(loaded(x), writer(x), error, error)


@pytest.mark.rivals
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("mode", ["int8", "int4/2", "int4/-1"])
def test_the_way_back_is_quantized_too(mode, is_tied, keras, tmp_path):
    config.set_backend("numpy")
    rows = np.random.default_rng(0).normal(size=(2, 5)).astype("float32")
    results, weights = [], None
    for module in (keras, ganglion):
        layer = module.layers.ReversibleEmbedding(6, 5, tie_weights=is_tied)
        layer.build()
        weights = layer.get_weights() if weights is None else weights
        layer.set_weights(weights)
        layer.quantize(config=chosen_by(module, mode))
        results.append([layer(rows, reverse=True), *layer.get_weights()])
        path = str(tmp_path / f"{module.__name__}.keras")
        module.Sequential([layer]).save(path)
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)
    loaded = ganglion.models.load_model(str(tmp_path / "keras.keras")).layers[0]
    np.testing.assert_allclose(loaded(rows, reverse=True), results[0][0], 1e-4, 1e-5)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_scales_of_float8_follow_what_is_rounded(backend):
    config.set_backend(backend)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 6)).astype("float32")
    y = rng.normal(size=(48, 3)).astype("float32")
    losses = []
    for quantizes in (False, True):
        ganglion.utils.set_random_seed(1)
        model = ganglion.Sequential([ganglion.Input((6,)), ganglion.layers.Dense(3)])
        layer = model.layers[-1]
        if quantizes:
            layer.quantize("float8")
        model.compile(ganglion.optimizers.SGD(0.1), "mse")
        fit = model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
        losses.append(fit.history["loss"][0])
    np.testing.assert_allclose(losses[1], losses[0], 0.05)
    assert len(layer.trainable_weights) == 8
    largest = np.abs(x).reshape(3, -1).max(axis=1)
    # The scale of a step comes from the values before it.
    np.testing.assert_allclose(layer.inputs_scale, largest[:2].max() / 448, 1e-5)
    np.testing.assert_allclose(layer.inputs_amax_history[0], largest[2], 1e-5)
    assert 0 < layer.outputs_grad_scale.numpy() < 1


class Numbers:
    """A tokenizer of texts of digits."""

    def tokenize(self, text: str) -> list[int]:
        return [int(letter) for letter in text]


CALIBRATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gptq": ("GPTQConfig", {"group_size": 4}),
    "gptq in order": ("GPTQConfig", {"group_size": 4, "activation_order": True}),
    "gptq of 8 bits": ("GPTQConfig", {"group_size": -1, "weight_bits": 8}),
    "gptq even": ("GPTQConfig", {"group_size": 3, "symmetric": True}),
    "awq": ("AWQConfig", {"group_size": 4}),
    "awq by channels": ("AWQConfig", {"group_size": -1}),
}


def calibrated_model(module: Any, name: str, weights: Any = None) -> Any:
    layers = module.layers
    block = module.Sequential(
        [
            layers.Dense(7, "relu"),
            layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e"),
        ]
    )
    model = module.Sequential(
        [module.Input((12,), dtype="int32"), layers.Embedding(10, 8), block]
    )
    if weights is None:
        return model
    model.set_weights(weights)
    kind, options = CALIBRATIONS[name]
    structure = {"pre_block_layers": [model.layers[0]], "sequential_blocks": [block]}
    chosen = getattr(module.quantizers, kind)(
        ["271828182845"],
        Numbers(),
        num_samples=1,
        sequence_length=12,
        quantization_layer_structure=structure,
        **options,
    )
    model.quantize(config=chosen, mode=chosen.mode)
    chosen.quantization_layer_structure = None  # Keras writes it without end
    return model


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore:Layer")
@pytest.mark.parametrize("name", CALIBRATIONS)
def test_layers_quantized_by_data_are_files_of_keras(name, keras, tmp_path):
    config.set_backend("numpy")
    rng = np.random.default_rng(0)
    plain = calibrated_model(ganglion, name)
    weights = [rng.normal(size=w.shape).astype("float32") for w in plain.get_weights()]
    for kernel in (weights[1], weights[3]):  # Keras fails on a group of one sign
        kernel[...] = np.abs(kernel)
        kernel[::2] *= -1
    plain.set_weights(weights)
    theirs, ours = (calibrated_model(m, name, weights) for m in (keras, ganglion))
    x = rng.integers(0, 10, (3, 12))
    expected = np.asarray(plain(x))
    error = np.abs(np.asarray(ours(x)) - expected).mean()
    assert 0 < error < 0.2 * np.abs(expected).mean()
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
    path = str(tmp_path / "model.keras")
    ours.save(path)  # what Keras writes lacks the zero points, and it cannot read it
    for reader in (keras, ganglion):
        loaded = reader.models.load_model(path)
        np.testing.assert_allclose(loaded(x), ours(x), 1e-4, 1e-4)


def test_weights_alone_by_a_configuration_and_by_filters():
    model = ganglion.Sequential(
        [
            ganglion.Input((4,)),
            ganglion.layers.Dense(3, name="one"),
            ganglion.layers.Dense(2, name="two"),
        ]
    )
    chosen = Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=chosen, filters="two")
    assert [layer.quantization_mode for layer in model.layers] == [None, "int8"]
    assert model.layers[1].inputs_quantizer is None
    again = ganglion.Sequential.from_config(model.get_config())
    assert again.layers[1].quantization_config.activation_quantizer is None
    assert again.layers[1]._kernel.dtype == "int8"


def test_policies_quantize():
    layer = ganglion.layers.Dense(2, dtype="int8_from_mixed_bfloat16")
    assert layer(np.ones((1, 3), "float32")).dtype == "bfloat16"
    assert (layer._kernel.dtype, layer.kernel_scale.dtype) == ("int8", "float32")
    other = ganglion.layers.Dense(2)
    other.build((None, 3))
    other.dtype_policy = "int8_from_float32"
    assert other._kernel.dtype == "int8"


def test_what_cannot_be_quantized_is_refused():
    layer = ganglion.layers.Dense(2)
    with pytest.raises(ValueError, match="isn't yet built"):
        layer.quantize("int8")
    layer.build((None, 3))
    with pytest.raises(ValueError, match="Invalid quantization mode"):
        layer.quantize("int3")
    with pytest.raises(ValueError, match="you must pass a `GPTQConfig`"):
        layer.quantize("gptq")
    with pytest.raises(ValueError, match="Implicitly enabling AWQ"):
        layer.dtype_policy = "awq/4/8_from_float32"
    layer.quantize("int8")
    with pytest.raises(ValueError, match="already quantized"):
        layer.quantize("int8")
    half = ganglion.layers.Dense(2, dtype="float16")
    half.build((None, 3))
    with pytest.raises(ValueError, match="doesn't work well"):
        half.quantize("int8")
    conv = ganglion.layers.Conv1D(2, 2)
    conv.build((None, 5, 3))
    with pytest.raises(NotImplementedError, match="does not have a `quantize"):
        conv.quantize("int8")


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have")
def test_a_layer_of_ones_own_is_quantized_by_its_own_call(keras):
    def predictions(module: Any) -> list[Any]:
        class Rounding(module.layers.Layer):
            def build(self, input_shape):
                self.scale = self.add_weight(shape=(), initializer="ones")

            def call(self, inputs):
                return inputs * self.scale

            def quantize(self, mode, type_check=True, config=None):
                self._is_quantized = True
                self.dtype_policy = f"{mode}_from_{self.dtype_policy.name}"

            def quantized_call(self, inputs):
                return module.ops.round(inputs) * self.scale

        model = module.Sequential([module.Input((2,)), Rounding()])
        data = np.array([[0.25, 1.75]], "float32")
        before = model.predict(data, verbose=0)
        model.quantize("int8")
        return [before.tolist(), model.predict(data, verbose=0).tolist()]

    assert predictions(ganglion) == predictions(keras) == [[[0.25, 1.75]], [[0.0, 2.0]]]
