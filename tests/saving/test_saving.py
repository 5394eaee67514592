"""Saving and loading without a rival: round trips, misfits, files replaced whole."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saving_models import same_weights, small

import ganglion as keras
from ganglion import keras2, layers, saving

pytest.importorskip("h5py")


# ---- round trips -----------------------------------------------------------------


def test_a_model_comes_back_with_its_optimizer_and_names(tmp_path):
    model = small()
    model.fit(np.eye(4), [0, 1, 0, 1], epochs=2, verbose=0)
    model.save(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras")
    assert same_weights(model, back)
    assert [layer.name for layer in back.layers] == [
        layer.name for layer in model.layers
    ]
    assert back.name == model.name
    for first, other in zip(
        model.optimizer.variables, back.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(first.numpy(), other.numpy())
    uncompiled = saving.load_model(tmp_path / "m.keras", compile=False)
    assert not uncompiled.compiled
    assert same_weights(model, uncompiled)


def test_a_file_object_serves_as_a_file():
    model, buffer = small(), io.BytesIO()
    model.save(buffer)
    buffer.seek(0)
    assert same_weights(model, saving.load_model(buffer))


def test_frozen_layers_stay_frozen(tmp_path):
    model = small(compiled=False)
    model.layers[0].trainable = False
    model.compile("adam", "mse")
    model.save(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras")
    assert [layer.trainable for layer in back.layers] == [False, True]
    assert len(back.optimizer.variables) == 2 + 2 * 2


def test_a_layer_used_in_two_models_is_one_layer_again(tmp_path):
    shared = layers.Dense(3)
    first = keras.Sequential([keras.Input((3,)), shared])
    second = keras.Sequential([keras.Input((3,)), shared, layers.Activation("relu")])
    x = keras.Input((3,))
    model = keras.Model(x, second(first(x)))
    model.save(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras")
    assert len(back.weights) == 2
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(
        back.predict(x, verbose=0), model.predict(x, verbose=0)
    )


def test_a_layer_used_by_itself_and_in_a_wrapper_is_one_layer_again(tmp_path):
    shared = layers.Dense(3)
    x, steps = keras.Input((3,)), keras.Input((2, 3))
    model = keras.Model([x, steps], [shared(x), layers.TimeDistributed(shared)(steps)])
    model.save(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras")
    assert back.layers[2] is back.layers[3].layer
    for ours, theirs in zip(model.weights, back.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@saving.register_keras_serializable(package="test_saving")
class Blocks(keras.Model):
    """A model written as a class, with layers in lists and private attributes."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.width = width
        self.blocks = [layers.Dense(width), [layers.Dense(width, use_bias=False)]]
        self._last = layers.Dense(2)

    def call(self, x: Any) -> Any:
        x = self.blocks[1][0](self.blocks[0](x))
        return self._last(x)


def test_a_model_written_as_a_class_comes_back(tmp_path):
    model = Blocks(width=4)
    model.compile("adam", "mse")
    x = np.random.default_rng(5).normal(size=(8, 3)).astype("float32")
    model.fit(x, np.ones((8, 2)), epochs=2, verbose=0)
    model.save(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras")
    assert type(back) is Blocks
    assert back.width == 4
    np.testing.assert_array_equal(
        back.predict(x, verbose=0), model.predict(x, verbose=0)
    )


def test_json_rebuilds_a_model_with_fresh_weights():
    model = small(compiled=False)
    back = saving.model_from_json(model.to_json(indent=2))
    assert [weight.shape for weight in back.weights] == [
        weight.shape for weight in model.weights
    ]
    assert not same_weights(model, back)


def test_a_lambda_as_loss_costs_the_training_arguments_only(tmp_path):
    model = small(compiled=False)
    model.compile("sgd", lambda y_true, y_pred: keras.ops.mean(y_pred))
    with pytest.warns(UserWarning, match=r"without the arguments of `compile`.*lambda"):
        model.save(tmp_path / "m.keras")
    assert not saving.load_model(tmp_path / "m.keras").compiled


def test_own_functions_are_found_by_their_names(tmp_path):
    def halved(y_true: Any, y_pred: Any) -> Any:
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1) / 2

    model = small(compiled=False)
    model.compile("sgd", halved)
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=r"m\.keras.*'halved'.*compile=False"):
        saving.load_model(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras", custom_objects={"halved": halved})
    assert back.loss is halved


def test_weights_load_from_every_kind_of_file(tmp_path):
    model = small()
    with pytest.warns(keras2.Keras2Warning, match=r"weights.h5"):
        model.save_weights(tmp_path / "best.hdf5")
    model.save_weights(tmp_path / "m.weights.h5")
    model.save(tmp_path / "m.keras")
    with pytest.warns(keras2.Keras2Warning, match=r"\.keras"):
        model.save(tmp_path / "m.h5")
    for name in ("best.hdf5", "m.weights.h5", "m.keras", "m.h5"):
        other = small(seed=2)
        assert not same_weights(model, other)
        other.load_weights(tmp_path / name)
        assert same_weights(model, other), name
    assert same_weights(model, saving.load_model(tmp_path / "m.h5"))
    by_name = small(seed=2)
    for layer, source in zip(by_name.layers, model.layers, strict=True):
        layer.name = source.name
    by_name.load_weights(tmp_path / "m.h5", by_name=True)
    assert same_weights(model, by_name)


def test_importing_ganglion_does_not_import_h5py():
    code = "import sys, ganglion; print('h5py' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(keras.__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert result.stdout.strip() == "False"


# ---- weights that do not fit -----------------------------------------------------


def test_a_mismatch_names_layer_shapes_and_count_and_changes_nothing(tmp_path):
    small(units=5).save_weights(tmp_path / "m.weights.h5")
    model = small(seed=2)
    before = model.get_weights()
    with pytest.raises(ValueError, match="do not fit") as error:
        model.load_weights(tmp_path / "m.weights.h5")
    text = str(error.value)
    assert "m.weights.h5" in text
    assert "in 2 place(s)" in text
    assert f'layer "{model.layers[0].name}"' in text
    assert "expected shape (4, 3), found (4, 5)" in text
    assert "skip_mismatch=True" in text
    for first, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(first, other)


def test_skip_mismatch_loads_what_fits_and_warns(tmp_path):
    source = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(7)])
    source.save_weights(tmp_path / "m.weights.h5")
    model = small(seed=2, compiled=False)
    with pytest.warns(UserWarning, match=r"1 mismatch.*\(3, 2\), found \(3, 7\)"):
        model.load_weights(tmp_path / "m.weights.h5", skip_mismatch=True)
    kernel = model.layers[0].get_weights()[0]
    np.testing.assert_array_equal(kernel, source.layers[0].get_weights()[0])


def test_files_of_larger_and_smaller_models_are_refused(tmp_path):
    larger = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.Dense(2), layers.Dense(9)]
    )
    larger.save_weights(tmp_path / "large.weights.h5")
    model = small()
    with pytest.raises(ValueError, match=r'weights for a layer "dense.*does not have'):
        model.load_weights(tmp_path / "large.weights.h5")
    model.save_weights(tmp_path / "small.weights.h5")
    with pytest.raises(ValueError, match=r"expected 2 variables.*received 0 variables"):
        larger.load_weights(tmp_path / "small.weights.h5")


def test_a_model_without_weights_says_so(tmp_path):
    model = keras.Sequential([layers.Dense(3)])
    with pytest.raises(ValueError, match=r"no weights to save yet.*Input"):
        model.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(ValueError, match=r"no weights to load yet.*Input"):
        model.load_weights(tmp_path / "m.weights.h5")


def test_by_name_says_where_it_works(tmp_path):
    model = small()
    model.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(ValueError, match=r"by_name=True.*legacy.*skip_mismatch"):
        model.load_weights(tmp_path / "m.weights.h5", by_name=True)


# ---- files are replaced whole ----------------------------------------------------


def saved_by(kind: str, model: Any, path: Path) -> None:
    {
        "model": lambda: model.save(path),
        "weights": lambda: model.save_weights(path),
        "checkpoint": lambda: saving.save_checkpoint(path, model),
    }[kind]()


FILES = [("model", "m.keras"), ("weights", "m.weights.h5"), ("checkpoint", "c")]


@pytest.mark.parametrize(("kind", "name"), FILES)
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, kind, name, where):
    path = tmp_path / name
    saved_by(kind, small(), path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"ganglion.saving.files.os.{where}", full)
    with pytest.raises(OSError, match=f"{name}.*No space left.*intact") as error:
        saved_by(kind, small(seed=2), path)
    monkeypatch.undo()
    assert error.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [name]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_while_writing(tmp_path, monkeypatch):
    path = tmp_path / "m.keras"
    small().save(path)
    before = path.read_bytes()
    really_open = open

    def opened(name: Any, mode: str = "r", **options: Any) -> Any:
        place = "/dev/full" if str(name).endswith(".part") else name
        if place == "/dev/full":
            Path(name).touch()
            mode = "wb"
        return really_open(place, mode, **options)

    monkeypatch.setattr("ganglion.files.open", opened, raising=False)
    with pytest.raises(OSError, match=r"m\.keras.*No space left"):
        small(seed=2).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.keras"]


def test_an_interrupt_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.keras"
    small().save(path)
    before = path.read_bytes()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ganglion.saving.files.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small(seed=2).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.keras"]


def test_a_model_that_cannot_be_saved_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.keras"
    small().save(path)
    before = path.read_bytes()
    x = keras.Input((2,))
    broken = keras.Model(x, layers.Dense(1, activation=lambda t: t + 1)(x))
    with pytest.raises(ValueError, match="lambda"):
        broken.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.keras"]


def test_places_that_cannot_be_written(tmp_path):
    model = small()
    with pytest.raises(FileNotFoundError, match=r"no folder .*missing"):
        model.save(tmp_path / "missing" / "m.keras")
    (tmp_path / "d.keras").mkdir()
    with pytest.raises(IsADirectoryError, match=r"d.keras.*folder"):
        model.save(tmp_path / "d.keras")
    with pytest.raises(ValueError, match=r"extension.*\.keras"):
        model.save(tmp_path / "model.bin")
    with pytest.raises(ValueError, match="not a local path"):
        model.save("hf://someone/model.keras")
    model.save(tmp_path / "m.keras")
    with pytest.raises(FileExistsError, match="overwrite=False"):
        model.save(tmp_path / "m.keras", overwrite=False)


def test_a_link_keeps_pointing_to_the_file(tmp_path):
    small().save(tmp_path / "real.keras")
    (tmp_path / "link.keras").symlink_to(tmp_path / "real.keras")
    model = small(seed=2)
    model.save(tmp_path / "link.keras")
    assert (tmp_path / "link.keras").is_symlink()
    assert same_weights(model, saving.load_model(tmp_path / "real.keras"))


@saving.register_keras_serializable(package="test_saving")
class Plus(layers.Layer):
    def call(self, x):
        return x + 1.0


class PlusTwice(Plus):
    def call(self, x):
        return x + 2.0


def test_a_subclass_of_a_registered_class_is_saved_as_itself(tmp_path):
    model = keras.Sequential([keras.Input((2,)), PlusTwice()])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="Unknown object 'PlusTwice'"):
        saving.load_model(tmp_path / "m.keras")
    known = {"PlusTwice": PlusTwice}
    again = saving.load_model(tmp_path / "m.keras", custom_objects=known)
    np.testing.assert_array_equal(again(np.zeros((1, 2))), [[2.0, 2.0]])


@saving.register_keras_serializable(package="tests")
class Noted(layers.Layer):
    """A layer with a file of its own, and an attribute of the name `assets`."""

    assets = "none"

    def call(self, x):
        return x

    def save_assets(self, folder):
        (Path(folder) / "deep").mkdir()
        (Path(folder) / "deep" / "notes.txt").write_text(self.assets)

    def load_assets(self, folder):
        self.assets = (Path(folder) / "deep" / "notes.txt").read_text()


def test_files_of_own_layers_are_kept(tmp_path):
    model = keras.Sequential([keras.Input((2,)), Noted()])
    model.layers[0].assets = "learned"
    model.save(tmp_path / "m.keras")
    loaded = saving.load_model(tmp_path / "m.keras")
    assert loaded.layers[0].assets == "learned"


def test_an_old_file_without_its_optimizer(tmp_path):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.compile("adam", "mse")
    path = tmp_path / "new" / "m.h5"  # the folder is made, as by Keras
    with pytest.warns(keras2.Keras2Warning):
        model.save(path, include_optimizer=False)
    assert not saving.load_model(path).compiled


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda model: model.save("m.png"), "Invalid filepath extension for saving"),
        (lambda model: model.save("m", save_format="tf"), "`save_format` argument is"),
        (
            lambda model: model.save("m.keras", tag=1),
            r"argument\(s\) are not supported",
        ),
        (lambda model: model.load_weights("m.h5", tag=1), "Invalid keyword arguments"),
        (lambda model: saving.load_model("no.keras"), "File not found"),
        (lambda model: saving.load_model("no.pkl"), "format not supported"),
    ],
)
def test_files_are_refused_in_the_words_of_keras(act, match):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    with pytest.raises(ValueError, match=match):
        act(model)


def test_objects_to_skip(tmp_path):
    def two() -> Any:
        return keras.Sequential([keras.Input((2,)), layers.Dense(2), layers.Dense(2)])

    model, path = two(), tmp_path / "m.weights.h5"
    for skipped in ([model.layers[0]], []):
        saving.save_weights(model, path, objects_to_skip=skipped)
        other = two()
        other.load_weights(path, objects_to_skip=[other.layers[0]])
        first, second = other.layers[0].kernel, other.layers[1].kernel
        np.testing.assert_array_equal(second, model.layers[1].kernel)
        assert not np.array_equal(first, model.layers[0].kernel)
    with pytest.raises(ValueError, match=r"only supports loading '\.weights\.h5'"):
        model.load_weights(tmp_path / "m.keras", objects_to_skip=[])


def test_optimizers_kept_in_attributes_need_not_be_built(tmp_path):
    class Pair(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = layers.Dense(2)

        def call(self, inputs):
            return self.first(inputs)

        def compile(self, own):
            super().compile(loss="mse", optimizer=own)
            self.own = own

    x = np.ones((4, 3), "float32")
    trained, loaded, bare = Pair(), Pair(), Pair()
    trained.compile(keras.optimizers.Adam(0.1))
    trained.fit(x, x[:, :2], verbose=0)
    trained.save_weights(tmp_path / "pair.weights.h5")
    loaded.compile(keras.optimizers.Adam(0.1))
    for model in (loaded, bare):
        model(x)
        model.load_weights(tmp_path / "pair.weights.h5")
        np.testing.assert_array_equal(model(x), trained(x))
