"""Saving and loading without a rival: resuming, replacing files, refusing bad ones."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import keras2, layers, saving

h5py = pytest.importorskip("h5py")


@pytest.fixture(autouse=True)
def fresh_keras2():
    keras2.set_active(False)
    yield
    keras2.set_active(False)


def small(seed: int = 1, units: int = 3, compiled: bool = True) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(units), layers.Dense(2, activation="softmax")]
    )
    if compiled:
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def same_weights(a: Any, b: Any) -> bool:
    return all(
        np.array_equal(one, other)
        for one, other in zip(a.get_weights(), b.get_weights(), strict=True)
    )


# ---- a resumed run equals one that was never stopped -----------------------------

RNG = np.random.default_rng(5)
X = RNG.normal(size=(70, 6)).astype("float32")
Y = RNG.integers(0, 3, 70)


def busy() -> Any:
    """A model with everything that has a state: dropout, batch norm, Adam, metrics."""
    keras.utils.set_random_seed(11)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.4),
            layers.GaussianNoise(0.1),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


class StopAfter(keras.callbacks.Callback):
    """Interrupts training after some batches, as Ctrl-C does."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def train(model: Any, epochs: int, first: int = 0, **options: Any) -> Any:
    return model.fit(
        X,
        Y,
        batch_size=16,
        epochs=epochs,
        initial_epoch=first,
        verbose=0,
        validation_data=(X[:10], Y[:10]),
        **options,
    )


def all_state(model: Any) -> list[np.ndarray]:
    arrays = [one.array for one in (*model.variables, *model.optimizer.variables)]
    return [*arrays, model.order.array, model.position.array]


def assert_same_state(a: Any, b: Any) -> None:
    for one, other in zip(all_state(a), all_state(b), strict=True):
        np.testing.assert_array_equal(one, other)


def test_training_goes_on_after_an_epoch_bit_for_bit(tmp_path):
    straight = busy()
    history = train(straight, 5).history
    part = busy()
    train(part, 2)
    part.save(tmp_path / "m.keras")
    resumed = saving.load_model(tmp_path / "m.keras")
    rest = train(resumed, 5, first=int(resumed.epoch)).history
    assert_same_state(straight, resumed)
    for name, values in history.items():
        assert values[2:] == rest[name]


@pytest.mark.parametrize("batches", [1, 7, 8, 10])
def test_training_goes_on_in_the_middle_of_an_epoch_bit_for_bit(tmp_path, batches):
    straight = busy()
    history = train(straight, 4).history
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 4, callbacks=[StopAfter(batches)])
    saving.save_checkpoint(tmp_path / "c", part)
    resumed = busy()
    resumed.evaluate(X[:5], Y[:5], verbose=0)  # must leave no trace in the metrics
    epoch = saving.load_checkpoint(tmp_path / "c", resumed)
    resumed.evaluate(X[:5], Y[:5], verbose=0)
    assert epoch == (batches - 1) // 5
    rest = train(resumed, 4, first=epoch).history
    assert_same_state(straight, resumed)
    for name, values in history.items():
        assert values[epoch:] == rest[name]


def test_epochs_of_a_given_length_go_on_in_the_middle(tmp_path):
    straight = busy()
    train(straight, 4, steps_per_epoch=3)
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 4, steps_per_epoch=3, callbacks=[StopAfter(8)])
    part.save(tmp_path / "m.keras")
    resumed = saving.load_model(tmp_path / "m.keras")
    train(resumed, 4, first=int(resumed.epoch), steps_per_epoch=3)
    assert_same_state(straight, resumed)


class Batches(keras.utils.PyDataset):
    """Batches that `fit` visits in a new order in each epoch."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * 14, (index + 1) * 14)
        return X[rows], Y[rows]


@pytest.mark.parametrize("batches", [5, 7])
def test_streams_of_batches_go_on(tmp_path, batches):
    straight = busy()
    straight.fit(Batches(), epochs=3, verbose=0)
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        part.fit(Batches(), epochs=3, verbose=0, callbacks=[StopAfter(batches)])
    saving.save_checkpoint(tmp_path / "c", part)
    resumed = busy()
    epoch = saving.load_checkpoint(tmp_path / "c", resumed)
    resumed.fit(Batches(), epochs=3, initial_epoch=epoch, verbose=0)
    assert_same_state(straight, resumed)


def test_a_backup_brings_a_run_back(tmp_path):
    straight = busy()
    train(straight, 4)
    part = busy()
    backup = keras.callbacks.BackupAndRestore(tmp_path / "b", save_freq=1)
    with pytest.raises(KeyboardInterrupt):
        train(part, 4, callbacks=[backup, StopAfter(7)])
    resumed = busy()
    train(resumed, 4, callbacks=[keras.callbacks.BackupAndRestore(tmp_path / "b")])
    assert_same_state(straight, resumed)


def test_another_process_goes_on_bit_for_bit(tmp_path):
    straight = busy()
    train(straight, 3)
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 3, callbacks=[StopAfter(7)])
    part.save(tmp_path / "m.keras")
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "import test_saving as t\n"
        "from ganglion import saving\n"
        "model = saving.load_model(sys.argv[1])\n"
        "t.train(model, 3, first=int(model.epoch))\n"
        "model.save(sys.argv[1])\n"
    )
    here = Path(__file__).parent
    paths = [str(here), str(here.parent / "src")]
    command = [sys.executable, "-c", code, str(tmp_path / "m.keras"), *paths]
    subprocess.run(command, check=True, timeout=300)
    assert_same_state(straight, saving.load_model(tmp_path / "m.keras"))


def test_a_loaded_model_may_also_start_anew(tmp_path):
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 2, callbacks=[StopAfter(7)])
    part.save(tmp_path / "m.keras")
    model = saving.load_model(tmp_path / "m.keras")
    train(model, 1)  # epoch 0 again, from the first row
    assert int(model.optimizer.iterations.numpy()) == 7 + 5


def test_train_on_batch_after_loading_reports_that_batch_only(tmp_path):
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 2, callbacks=[StopAfter(2)])
    part.save(tmp_path / "m.keras")
    model = saving.load_model(tmp_path / "m.keras")
    assert model.train_on_batch(X[:8], Y[:8]) == part.train_on_batch(X[:8], Y[:8])


def test_weights_alone_are_no_checkpoint(tmp_path):
    model = small()
    model.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(
        ValueError, match=r"m\.weights\.h5.*no checkpoint.*load_weights"
    ):
        saving.load_checkpoint(tmp_path / "m.weights.h5", model)


# ---- round trips -----------------------------------------------------------------


def test_a_model_comes_back_with_its_optimizer_and_names(tmp_path):
    model = small()
    model.fit(np.eye(4), [0, 1, 0, 1], epochs=2, verbose=0)
    model.save(tmp_path / "m.keras")
    back = saving.load_model(tmp_path / "m.keras")
    assert same_weights(model, back)
    assert [one.name for one in back.layers] == [one.name for one in model.layers]
    assert back.name == model.name
    for one, other in zip(
        model.optimizer.variables, back.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
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
    assert [one.trainable for one in back.layers] == [False, True]
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
    x = RNG.normal(size=(8, 3)).astype("float32")
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
    assert [one.shape for one in back.weights] == [one.shape for one in model.weights]
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
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert found.stdout.strip() == "False"


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
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


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
    with pytest.raises(ValueError, match=r"has 2 weights.*the file has 0"):
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
    with pytest.raises(ValueError, match=r"by_name=True.*Keras 2.*skip_mismatch"):
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

    monkeypatch.setattr("ganglion.saving.files.open", opened, raising=False)
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
    broken = keras.Model(x, layers.Lambda(lambda one: one + 1)(x))
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
    with pytest.raises(ValueError, match=r"format.*\.keras"):
        model.save(tmp_path / "model.bin")
    with pytest.raises(ValueError, match="no local path"):
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


# ---- files that are damaged or hostile -------------------------------------------


@pytest.fixture
def good(tmp_path) -> Path:
    path = tmp_path / "m.keras"
    small().save(path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, **changed: bytes | None) -> Path:
    """Write the archive again with other members (config, weights)."""
    names = {"config": "config.json", "weights": "model.weights.h5"}
    parts = members(path)
    for short, content in changed.items():
        del parts[names[short]]
        if content is not None:
            parts[names[short]] = content
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def refused(path: Path, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern) as error:
        saving.load_model(path)
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    for load in (saving.load_model, small().load_weights):
        with pytest.raises(FileNotFoundError, match=r"no file .*gone\.keras"):
            load(tmp_path / "gone.keras")
    with pytest.raises(ValueError, match="is a folder"):
        saving.load_model(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_archive(good, share):
    content = good.read_bytes()
    good.write_bytes(content[: int(len(content) * share)])
    refused(good, "no `.keras` archive, or damaged or cut short")


def test_single_damaged_bytes_never_pass_in_silence(good):
    """Whatever byte is damaged: a ValueError, or the same model."""
    content = good.read_bytes()
    expected = saving.load_model(good).get_weights()
    for place in np.random.default_rng(0).integers(0, len(content), 60):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        good.write_bytes(bytes(damaged))
        with contextlib.suppress(ValueError):
            found = saving.load_model(good).get_weights()
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_weights(tmp_path, share):
    path = tmp_path / "m.weights.h5"
    model = small()
    model.save_weights(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ValueError, match=r"m\.weights\.h5.*cut short"):
        model.load_weights(path)
    with pytest.raises(ValueError, match=r"m\.weights\.h5.*cut short"):
        saving.load_checkpoint(path, model)


def test_text_is_no_archive(tmp_path):
    (tmp_path / "m.keras").write_text("a page of a web site")
    refused(tmp_path / "m.keras", "no `.keras` archive")


def test_weights_are_no_model(tmp_path):
    small().save_weights(tmp_path / "m.weights.h5")
    refused(tmp_path / "m.weights.h5", "weights but no model.*load_weights")


def test_missing_members(good):
    content = good.read_bytes()
    refused(rewritten(good, config=None), "no member 'config.json'")
    good.write_bytes(content)
    refused(rewritten(good, weights=None), "no member 'model.weights.h5'")


@pytest.mark.parametrize(
    "name", ["/etc/cron.d/evil", "../evil", "a/../../evil", "..\\evil", "C:\\evil"]
)
def test_names_that_point_out_of_the_archive(good, name):
    with zipfile.ZipFile(good, "a") as archive:
        archive.writestr(name, "evil")
    refused(good, "points out of it: refused")
    assert sorted(os.listdir(good.parent)) == ["m.keras"]


def test_two_members_of_one_name(good):
    with (
        zipfile.ZipFile(good, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("config.json", "{}")
    refused(good, "two members of the same name")


def test_zip_bombs(good):
    parts = members(good)
    for name in ("config.json", "model.weights.h5"):
        with zipfile.ZipFile(good, "w", zipfile.ZIP_DEFLATED) as archive:
            for one, content in parts.items():
                with archive.open(one, "w") as member:
                    if one != name:
                        member.write(content)
                        continue
                    for _ in range(65):
                        member.write(bytes(1 << 20))
        assert good.stat().st_size < 1 << 20
        refused(good, f"'{name}' claims 68,157,440 bytes.*decompression bomb")


def test_a_member_that_is_longer_than_it_declares(good):
    content = bytearray(good.read_bytes())
    size = len(members(good)["config.json"])
    where = content.rindex(b"PK\x01\x02", 0, content.rindex(b"config.json"))
    content[where + 24 : where + 28] = (size - 50).to_bytes(4, "little")
    good.write_bytes(bytes(content))
    refused(good, "damaged or cut short|no valid JSON")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("{", "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ("\xff", "no valid JSON"),
        ("[]", "describes no model"),
        ('"model"', "describes no model"),
        ('{"class_name": "Sequential"}', "no `config`"),
        ('{"class_name": "Sequential", "config": 5}', "no `config`"),
        ('{"class_name": "Sequential", "config": {}}', "weights do not fit"),
        ('{"class_name": "Sequential", "config": {"layers": 3}}', "not valid"),
        ('{"class_name": "Sequential", "config": {"layers": [3]}}', "not valid"),
        ('{"class_name": ["Sequential"], "config": {}}', "not valid|Unknown"),
        ('{"class_name": "Dense", "config": {"units": 2}}', "a Dense, not a model"),
        ('{"class_name": "Sequental", "config": {}}', "Unknown .*Sequential"),
        (
            '{"module": "os", "class_name": "function", "config": "system", '
            '"registered_name": "system"}',
            "no `config`|Unknown object 'system'",
        ),
        ('{"module": "os", "class_name": "system", "config": {}}', "Unknown object"),
    ],
)
def test_configurations_of_the_wrong_shape(good, text, pattern):
    refused(rewritten(good, config=text.encode("latin-1")), pattern)


def edited(path: Path, edit: Any) -> Path:
    config = json.loads(members(path)["config.json"])
    edit(config)
    return rewritten(path, config=json.dumps(config).encode())


def test_unknown_layers_and_arguments_are_named(good):
    content = good.read_bytes()

    def misspell(config: Any) -> None:
        config["config"]["layers"][1]["class_name"] = "Dens"

    refused(edited(good, misspell), "Unknown object 'Dens'.*Dense")
    good.write_bytes(content)

    def add(config: Any) -> None:
        config["config"]["layers"][1]["config"]["colour"] = "red"

    refused(edited(good, add), "colour")


def test_a_module_named_in_a_file_is_never_imported(good, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))

    def name(config: Any) -> None:
        layer = config["config"]["layers"][1]
        layer.update(module="evil_module", class_name="Evil", registered_name="Evil")

    refused(edited(good, name), "Unknown object 'Evil'.*evil_module")
    assert "evil_module" not in sys.modules


def test_code_in_a_file_is_never_executed(good):
    def add_code(config: Any) -> None:
        config["config"]["layers"][1]["config"]["activation"] = {
            "class_name": "__lambda__",
            "config": {"value": ["4wEAAAAA", None, None]},
        }

    edited(good, add_code)
    refused(good, "lambda.*never executes")
    with pytest.raises(ValueError, match="never executes"):
        saving.load_model(good, safe_mode=False)


def test_sizes_that_do_not_exist_cost_no_memory(good):
    def enlarge(config: Any) -> None:
        config["config"]["layers"][2]["config"]["units"] = 10**9

    # 12 GB of weights and as much for each slot, if they were made.
    refused(edited(good, enlarge), r"expected shape \(3, 1000000000\)|MemoryError")


def tampered(path: Path, change: Any) -> Path:
    buffer = io.BytesIO(members(path)["model.weights.h5"])
    with h5py.File(buffer, "r+") as file:
        change(file)
    return rewritten(path, weights=buffer.getvalue())


KERNEL = "layers/dense/vars/0"


def replaced(make: Any) -> Any:
    def change(file: Any) -> None:
        del file[KERNEL]
        make(file)

    return change


def bomb(file: Any) -> None:
    file.create_dataset(
        KERNEL, (1 << 20, 1 << 20), "f4", chunks=(1024, 1024), compression="gzip"
    )


def loop(file: Any) -> None:
    file["layers/again"] = file["layers"]


def external_data(file: Any) -> None:
    file.create_dataset(KERNEL, (4, 3), "f4", external=[("/etc/passwd", 0, 48)])


def virtual_data(file: Any) -> None:
    layout = h5py.VirtualLayout((4, 3), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4, 3))
    file.create_virtual_dataset(KERNEL, layout)


def objects(file: Any) -> None:
    text = h5py.string_dtype()
    file.create_dataset(KERNEL, (4, 3), text)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (replaced(lambda f: f.__setitem__(KERNEL, h5py.SoftLink("/vars"))), "a link"),
        (
            replaced(
                lambda f: f.__setitem__(KERNEL, h5py.ExternalLink("/etc/passwd", "x"))
            ),
            "a link to elsewhere",
        ),
        (replaced(external_data), "in another file"),
        (replaced(virtual_data), "in another file"),
        (replaced(objects), "not numbers"),
        (replaced(lambda f: f.create_dataset(KERNEL, data=[b"ab"])), "not numbers"),
        (replaced(bomb), "decompression bomb"),
        (replaced(lambda f: f.create_group(KERNEL)), "not valid|found"),
        (replaced(lambda f: None), "has 2 weights.*the file has 1"),
        (loop, "contains itself"),
    ],
    ids=[
        "soft link",
        "external link",
        "external data",
        "virtual data",
        "text",
        "bytes",
        "bomb",
        "group",
        "missing",
        "loop",
    ],
)
def test_hostile_weights(good, change, pattern):
    refused(tampered(good, change), pattern)


def test_a_training_state_of_the_wrong_shape(good):
    def change(file: Any) -> None:
        del file["ganglion/order"]
        file["ganglion/order"] = np.zeros(7)

    refused(tampered(good, change), "ganglion/order.*shape")


def test_pickles_are_neither_written_nor_read(good, tmp_path):
    assert b"pickle" not in good.read_bytes()
    path = tmp_path / "p.keras"
    with path.open("wb") as file:
        np.save(file, np.array([print], dtype=object), allow_pickle=True)
    refused(path, "no `.keras` archive")
