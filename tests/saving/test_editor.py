"""KerasFileEditor: what Keras' own reads and writes, ours does, too."""

import numpy as np
import pytest
from keras_programs import errors_of

import ganglion
from ganglion.saving import KerasFileEditor


def model(library, units=3, extra=False):
    layers = [library.layers.Dense(units), library.layers.Dense(1)]
    layers += [library.layers.Dense(1)] if extra else []
    return library.Sequential([library.Input((2,)), *layers])


@pytest.fixture
def path(tmp_path):
    file = str(tmp_path / "m.weights.h5")
    model(ganglion).save_weights(file)
    return file


def shapes(weights):
    return {
        name: shapes(value) if isinstance(value, dict) else tuple(value.shape)
        for name, value in weights.items()
    }


def refusals(editor, path):
    calls = [
        lambda: type(editor)("m.h5"),
        lambda: editor.rename_object("layers/none", "x"),
        lambda: editor.rename_object("none", "x"),
        lambda: editor.rename_object("layers/dense", "a/b"),
        lambda: editor.rename_object("0", "x"),  # occurs several times
        lambda: editor.add_object("none/x", {}),
        lambda: editor.add_object("layers/x", [1]),
        lambda: editor.delete_weight("layers/dense", "7"),
        lambda: editor.add_weights("layers/dense", [1]),
        lambda: editor.save(path + ".txt"),
    ]
    return errors_of(calls)


def edited(editor, path):
    editor.rename_object("layers/dense_1", "head")
    editor.add_object("layers/more", {"0": np.ones(2)})
    editor.add_weights("more", {"1": np.zeros(3)})
    editor.delete_weight("layers/dense", "1")
    before = shapes(editor.weights_dict)
    editor.delete_object("head")
    editor.save(path)
    return before, shapes(type(editor)(path).weights_dict)


@pytest.mark.rivals
def test_edits_as_keras(keras, path, tmp_path):
    ours, theirs = KerasFileEditor(path), keras.saving.KerasFileEditor(path)
    assert shapes(ours.weights_dict) == shapes(theirs.weights_dict)
    assert refusals(ours, path) == refusals(theirs, path)
    files = [str(tmp_path / f"{name}.weights.h5") for name in ("a", "b")]
    assert edited(ours, files[0]) == edited(theirs, files[1])
    # Each reads what the other has written.
    other = keras.saving.KerasFileEditor(files[0])
    assert shapes(other.weights_dict) == shapes(KerasFileEditor(files[1]).weights_dict)


def test_a_renamed_layer_is_loaded_again(path, tmp_path):
    editor = KerasFileEditor(path)
    editor.delete_object("layers/dense_1")
    editor.add_object("layers/dense_1", {"0": np.full((3, 1), 2.0), "1": np.zeros(1)})
    editor.resave_weights(tmp_path / "new.weights.h5")
    loaded = model(ganglion)
    loaded.load_weights(tmp_path / "new.weights.h5")
    assert loaded.layers[1].get_weights()[0].tolist() == [[2.0]] * 3


def test_comparison(path, capsys):
    editor = KerasFileEditor(path)
    counts = {"status": "success", "error_count": 0, "match_count": 4}
    assert editor.compare(model(ganglion)) == counts
    counts = {"status": "error", "error_count": 3, "match_count": 1}
    assert editor.compare(model(ganglion, units=5)) == counts
    counts = {"status": "error", "error_count": 1, "match_count": 4}
    assert editor.compare(model(ganglion, extra=True)) == counts
    text = capsys.readouterr().out
    assert "Object /layers/dense_2 is in the model, but not in the file" in text
    editor.summary()
    assert "shape=(2, 3)" in capsys.readouterr().out


def test_a_keras_archive(tmp_path):
    model(ganglion).save(tmp_path / "m.keras")
    editor = KerasFileEditor(tmp_path / "m.keras")
    assert editor.config["class_name"] == "Sequential"
    assert list(editor.weights_dict["layers"]) == ["dense", "dense_1"]
