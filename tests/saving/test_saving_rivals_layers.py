"""Single layers and models written as classes, exchanged with Keras 3.15 in files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_cases import CASES, Case, is_right_in_keras

import ganglion
from ganglion import saving

pytestmark = pytest.mark.rivals

# Both compute in float32 with sums in different orders.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def one_layer(k: Any, case: Any) -> Any:
    inputs = [
        k.Input(shape[1:], dtype="int32" if case.classes else "float32")
        for shape in case.shapes
    ]
    layer = case.make(k.layers)
    return k.Model(inputs, case.call(layer, inputs if len(inputs) > 1 else inputs[0]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.sampled(2)
def test_every_layer_lies_where_keras_expects_it(keras, tmp_path, case):
    ours, theirs = one_layer(ganglion, case), one_layer(keras, case)
    rng = np.random.default_rng(1)
    values = [rng.uniform(0.1, 1.0, array.shape) for array in ours.get_weights()]
    x = case.inputs()
    x = x if isinstance(x, list) else [x]
    ours.set_weights(values)
    ours.save(tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    assert_same(case, ours, loaded, x)
    theirs.set_weights(values)
    for layer in theirs.layers:
        if hasattr(layer, "finalize_state"):  # Keras keeps a copy of what was adapted
            layer.finalize_state()
    theirs.save(tmp_path / "theirs.keras")
    back = saving.load_model(tmp_path / "theirs.keras")
    assert_same(case, back, theirs, x)


def assert_same(case: Case, ours: Any, theirs: Any, x: list[np.ndarray]) -> None:
    """Compare outputs, or what they come from where Keras' are wrong."""
    if is_right_in_keras(case):
        np.testing.assert_allclose(ours(x), np.asarray(theirs(x)), **CLOSE)
        return
    assert ours.layers[-1].get_config() == theirs.layers[-1].get_config()
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)


def written_as_a_class(k: Any) -> Any:
    """Attributes before and after "layers" in the alphabet, lists, private ones."""

    class Block(k.layers.Layer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.scale = k.layers.Dense(4)
            self.before = k.layers.Dense(4, use_bias=False)

        def build(self, shape: Any) -> None:
            self.before.build(shape)
            self.scale.build(shape)
            self.gain = self.add_weight(shape=(4,), initializer="ones", name="gain")

        def call(self, x: Any) -> Any:
            return self.scale(self.before(x)) * self.gain

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.zoom = k.layers.Dense(3, activation="softmax")
            self._hidden = k.layers.Dense(4)
            self.blocks = [Block(), Block()]
            self.more = {"b": k.layers.Dense(4), "a": [k.layers.Dense(4)]}
            self.alpha = k.layers.Dense(4)

        def call(self, x: Any) -> Any:
            x = self.alpha(self._hidden(x))
            for block in self.blocks:
                x = block(x)
            return self.zoom(self.more["a"][0](self.more["b"](x)))

    model = Net()
    model(np.zeros((1, 4), "float32"))
    return model


def test_a_model_written_as_a_class_keeps_its_weights_both_ways(keras, tmp_path):
    path = str(tmp_path / "m.weights.h5")
    ours, theirs = written_as_a_class(ganglion), written_as_a_class(keras)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    ours.save_weights(path)
    theirs.load_weights(path)
    np.testing.assert_allclose(ours(x), np.asarray(theirs(x)), **CLOSE)
    other = written_as_a_class(keras)
    other.save_weights(path)
    ours.load_weights(path)
    np.testing.assert_allclose(ours(x), np.asarray(other(x)), **CLOSE)


def registered(k: Any) -> Any:
    """A model, a layer and a function of the user's own, known by their names."""
    register = k.saving.register_keras_serializable(package="saving_rivals")

    @register
    class Scale(k.layers.Layer):
        def __init__(self, factor: float = 2.0, **options: Any) -> None:
            super().__init__(**options)
            self.factor = factor

        def build(self, shape: Any) -> None:
            self.gain = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x: Any) -> Any:
            return x * self.gain * self.factor

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "factor": self.factor}

    @register
    def gated(x: Any) -> Any:
        return x * k.ops.sigmoid(x)

    @register
    class Net(k.Model):
        def __init__(self, width: int = 4, **options: Any) -> None:
            super().__init__(**options)
            self.width = width
            self.first = k.layers.Dense(width, activation=gated)
            self.scale = Scale(3.0)
            self.out = k.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.out(self.scale(self.first(x)))

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "width": self.width}

    return Net


def test_registered_classes_go_both_ways_with_their_optimizer(keras, tmp_path):
    registered(keras)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 3)).astype("float32"), np.ones((6, 2), "float32")
    ours = registered(ganglion)(5)
    ours.compile(ganglion.optimizers.Adam(0.01), "mse")
    ours.train_on_batch(x, y)
    ours.save(tmp_path / "m.keras")
    theirs = keras.models.load_model(tmp_path / "m.keras")
    assert theirs.width == 5
    for model in (ours, theirs):
        model.train_on_batch(x, y)
    theirs.save(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras")
    for model in (ours, back):
        model.train_on_batch(x, y)
    assert type(back) is type(ours)
    np.testing.assert_allclose(back(x), ours(x), **CLOSE)


def named_by_a_property(k: Any, attribute: str) -> Any:
    """Make a model whose layer has the name `middle` by a property alone."""

    class Named(k.Model):
        def __init__(self):
            super().__init__()
            setattr(self, attribute, k.layers.Dense(2))

        @property
        def broken(self):
            raise RuntimeError("not built")

        @property
        def middle(self):
            return getattr(self, attribute)

        def call(self, inputs):
            return self.middle(inputs)

    model = Named()
    model(np.zeros((1, 3), "float32"))
    return model


@pytest.mark.parametrize("saved", ["a_first", "z_last", "_private"])
@pytest.mark.parametrize("loaded", ["a_first", "z_last", "_private"])
def test_a_property_names_a_layer_in_files_as_in_keras(keras, tmp_path, saved, loaded):
    x = np.ones((1, 3), "float32")
    for writer, reader in ((ganglion, keras), (keras, ganglion), (ganglion, ganglion)):
        model = named_by_a_property(writer, saved)
        model.save_weights(tmp_path / "own.weights.h5")
        other = named_by_a_property(reader, loaded)
        if saved == "a_first" != loaded:  # stands in the file by a name of its own
            with pytest.raises(ValueError, match=r"not be loaded|do not fit"):
                other.load_weights(tmp_path / "own.weights.h5")
            continue
        other.load_weights(tmp_path / "own.weights.h5")
        np.testing.assert_allclose(np.array(other(x)), np.array(model(x)), rtol=1e-5)


@pytest.mark.parametrize("theirs", [True, False])
def test_a_layer_that_loads_in_its_own_way_is_asked_though_it_saved_nothing(
    keras, tmp_path, theirs
):
    k = keras if theirs else ganglion

    class Strict(k.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = k.layers.Dense(1)

        def build(self, input_shape):
            self.dense.build(input_shape)

        def call(self, inputs):
            return self.dense(inputs)

        def load_own_variables(self, store):
            raise ValueError(f"{len(store.keys())} of mine")

    model = k.Sequential([k.Input((2,)), Strict()])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="0 of mine"):
        k.saving.load_model(tmp_path / "m.keras", custom_objects={"Strict": Strict})
