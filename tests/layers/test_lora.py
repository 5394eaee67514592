"""Low-rank adaptation: beside Keras, in training, and in files."""

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import config

CASES = {
    "Dense": (lambda layers: layers.Dense(3), (4, 5)),
    "EinsumDense": (
        lambda layers: layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e"),
        (2, 3, 5),
    ),
    "Embedding": (lambda layers: layers.Embedding(6, 4), (3, 2)),
    "Conv2D": (lambda layers: layers.Conv2D(3, 2), (2, 5, 5, 2)),
    "Conv1D": (lambda layers: layers.Conv1D(3, 2, use_bias=False), (2, 5, 2)),
}


def data_of(name: str) -> np.ndarray:
    rng, shape = np.random.default_rng(0), CASES[name][1]
    if name == "Embedding":
        return rng.integers(0, 6, shape)
    return rng.normal(size=shape).astype("float32")


def model_of(module: Any, name: str, rank: int | None = 2) -> Any:
    make, shape = CASES[name]
    dtype = "int32" if name == "Embedding" else "float32"
    layer = make(module.layers)
    model = module.Sequential([module.Input(shape[1:], dtype=dtype), layer])
    if rank:
        layer.enable_lora(rank, lora_alpha=3.0)
    return model


def with_change(model: Any, like: Any = None) -> Any:
    """Give the low-rank weights of a model numbers, or those of another."""
    rng = np.random.default_rng(1)
    model.set_weights(
        [rng.normal(size=w.shape) for w in model.get_weights()]
        if like is None
        else like.get_weights()
    )
    return model


@pytest.mark.rivals
@pytest.mark.parametrize("name", CASES)
def test_layers_are_adapted_as_in_keras(name, keras, tmp_path):
    config.set_backend("numpy")
    theirs = with_change(model_of(keras, name))
    ours = with_change(model_of(ganglion, name), theirs)
    assert [w.path.split("/")[-1] for w in ours.trainable_weights] == [
        w.path.split("/")[-1] for w in theirs.trainable_weights
    ]
    x = data_of(name)
    np.testing.assert_allclose(ours(x), theirs(x), 1e-5, 1e-5)
    for model, module in ((ours, ganglion), (theirs, keras)):
        model.compile(module.optimizers.SGD(0.1), "mse")
        y = np.zeros(theirs(x).shape, "float32")
        model.fit(x, y, batch_size=len(x), epochs=2, shuffle=False, verbose=0)
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, 1e-4, 1e-4)
    for writer, reader, before in (
        (ours, keras, model_of(keras, name, None)),
        (theirs, ganglion, model_of(ganglion, name, None)),
    ):
        path = str(tmp_path / "model.keras")
        writer.save(path)
        loaded = reader.models.load_model(path)
        assert loaded.layers[0].lora_rank == 2
        np.testing.assert_allclose(loaded(x), writer(x), 1e-4, 1e-4)
        writer.save_weights(str(tmp_path / "model.weights.h5"))
        before.load_weights(str(tmp_path / "model.weights.h5"))
        np.testing.assert_allclose(before(x), writer(x), 1e-4, 1e-4)


def test_the_constructor_enables_it():
    layer = ganglion.layers.Dense(3, lora_rank=2, lora_alpha=4.0)
    layer.build((None, 5))
    assert layer.lora_enabled
    assert [w.shape for w in layer.trainable_weights] == [(3,), (5, 2), (2, 3)]
    assert [w.shape for w in layer.non_trainable_weights] == [(5, 3)]
    again = ganglion.layers.Dense.from_config(layer.get_config())
    assert (again.lora_rank, again.lora_alpha) == (2, 4.0)


def test_what_cannot_be_adapted_is_refused():
    layer = ganglion.layers.Dense(3)
    with pytest.raises(AttributeError, match="Build the layer before"):
        _ = layer.kernel
    with pytest.raises(ValueError, match="isn't yet built"):
        layer.enable_lora(2)
    layer.build((None, 5))
    layer.enable_lora(2)
    with pytest.raises(ValueError, match="already enabled"):
        layer.enable_lora(2)
    bound = ganglion.layers.Dense(3, kernel_constraint="non_neg")
    bound.build((None, 5))
    with pytest.raises(ValueError, match="remove the `kernel_constraint`"):
        bound.enable_lora(2)


def test_a_file_without_the_weights_of_an_adapted_layer_is_refused(tmp_path):
    bare = ganglion.Sequential([ganglion.Input((2,)), ganglion.layers.ReLU()])
    bare.save_weights(tmp_path / "bare.weights.h5")
    dense = ganglion.layers.Dense(2)
    model = ganglion.Sequential([ganglion.Input((2,)), dense])
    dense.enable_lora(1)
    with pytest.raises(ValueError, match=r"layer \"dense.* asks for '0'"):
        model.load_weights(tmp_path / "bare.weights.h5")
    model.load_weights(tmp_path / "bare.weights.h5", skip_mismatch=True)
