"""Class activation maps: the numbers, the pictures, the files."""

from __future__ import annotations

import csv
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ganglion as keras
from ganglion import explain, layers
from ganglion.cli.app import app
from ganglion.datasets import glyphs, png
from ganglion.explain import gallery, maps
from ganglion.explain.pictures import as_pixels

SHAPE = (8, 6, 3)


def pictures(count: int = 5, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    draw = np.random.default_rng(3)
    return draw.integers(0, 256, (count, *shape)).astype("uint8")


def start() -> list[Any]:
    return [keras.Input(SHAPE), layers.Rescaling(1 / 255)]


def channel_model(classes: int = 4) -> keras.Model:
    """The published shape: a channel a class, pooled."""
    return keras.Sequential(
        [
            *start(),
            layers.Conv2D(5, 3, padding="same", activation="relu"),
            layers.Conv2D(classes, 1, name="class_activation_map"),
            layers.GlobalAveragePooling2D(),
            layers.Activation("softmax"),
        ]
    )


def dense_model(units: int = 4, activation: str = "softmax") -> keras.Model:
    return keras.Sequential(
        [
            *start(),
            layers.Conv2D(5, 3, padding="same", activation="relu", name="features"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.5),
            layers.Dense(units, activation=activation),
        ]
    )


def flat_model() -> keras.Model:
    return keras.Sequential(
        [
            *start(),
            layers.Conv2D(5, 3, padding="same", activation="tanh", name="features"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(7, activation="tanh"),
            layers.Dense(4, activation="softmax"),
        ]
    )


def features_of(model: keras.Model, name: str, x: np.ndarray) -> np.ndarray:
    inner = keras.Model(model.inputs, model.get_layer(name).output)
    return inner.predict(x, verbose=0)


RAW: dict[str, Any] = {"size": "features", "normalize": False}


def test_the_channel_of_the_class_is_the_map():
    model, x = channel_model(), pictures()
    explained = explain.class_activation_map(model, x, **RAW)
    scores = model.predict(x, verbose=0)
    wanted = features_of(model, "class_activation_map", x)
    assert (explained.method, explained.layer) == ("cam", "class_activation_map")
    np.testing.assert_allclose(explained.scores, scores, atol=1e-6)
    assert explained.classes.tolist() == scores.argmax(axis=1).tolist()
    for row, number in enumerate(explained.classes):
        np.testing.assert_allclose(
            explained.maps[row], wanted[row, ..., number], atol=1e-5
        )


def test_the_weights_of_the_dense_weigh_the_features():
    model, x = dense_model(), pictures()
    explained = explain.class_activation_map(model, x, class_index=2, **RAW)
    kernel = model.layers[-1].get_weights()[0]
    wanted = features_of(model, "features", x) @ kernel[:, 2]
    assert explained.method == "cam"
    assert explained.classes.tolist() == [2] * 5
    np.testing.assert_allclose(explained.maps, wanted, atol=1e-5)


def test_grad_cam_equals_cam_where_both_are_defined():
    model, x = dense_model(), pictures()
    plain = explain.class_activation_map(model, x, **RAW)
    graded = explain.class_activation_map(model, x, method="grad-cam", **RAW)
    area = plain.maps[0].size
    assert (graded.method, graded.layer) == ("grad-cam", "features")
    np.testing.assert_allclose(graded.maps, np.maximum(plain.maps, 0) / area, atol=1e-6)


def test_grad_cam_weighs_by_gradients():
    """Finite differences on the part of the model behind the features."""
    model, x = flat_model(), pictures(2)
    explained = explain.class_activation_map(model, x, class_index=[3, 1], **RAW)
    assert (explained.method, explained.layer) == ("grad-cam", "features")
    features = features_of(model, "features", x).astype("float64")
    (w1, b1), (w2, b2) = (layer.get_weights() for layer in model.layers[-2:])

    def score(maps: np.ndarray, number: int) -> float:
        high, wide, deep = maps.shape
        pooled = maps.reshape(high // 2, 2, wide // 2, 2, deep).max(axis=(1, 3))
        return float((np.tanh(pooled.reshape(-1) @ w1 + b1) @ w2 + b2)[number])

    for row, number in enumerate((3, 1)):
        slopes = np.zeros_like(features[row])
        for place in np.ndindex(*slopes.shape):
            moved = features[row].copy()
            moved[place] += 1e-6
            slopes[place] = (score(moved, number) - score(features[row], number)) / 1e-6
        wanted = np.maximum(features[row] @ slopes.mean(axis=(0, 1)), 0)
        np.testing.assert_allclose(explained.maps[row], wanted, atol=1e-5)


def test_models_inside_of_models_are_looked_through():
    x = pictures()
    inner = keras.Sequential(
        [*start(), layers.Conv2D(5, 3, activation="relu", name="deep")], name="inner"
    )
    outer = keras.Sequential(
        [inner, layers.GlobalAveragePooling2D(), layers.Dense(4, "softmax")]
    )
    outer.build((None, *SHAPE))
    explained = explain.class_activation_map(outer, x)
    assert (explained.method, explained.layer) == ("cam", "deep")
    pooled = keras.Sequential(
        [
            *start(),
            layers.Conv2D(5, 3, activation="relu", name="deep"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    tensor = keras.Input(SHAPE)
    model = keras.Model(tensor, layers.Dense(4)(pooled(tensor * 1.0)))
    explained = explain.class_activation_map(model, x)
    assert (explained.method, explained.layer) == ("cam", "deep")
    np.testing.assert_allclose(explained.scores, model.predict(x, verbose=0), atol=1e-6)


def test_one_unit_tells_two_classes_apart():
    model, x = dense_model(1, "sigmoid"), pictures()
    yes = explain.class_activation_map(model, x, class_index=1, **RAW).maps
    no = explain.class_activation_map(model, x, class_index=0, **RAW).maps
    np.testing.assert_allclose(yes, -no)
    explained = explain.class_activation_map(model, x)
    assert (
        explained.classes.tolist()
        == (explained.scores[:, 0] > 0.5).astype(int).tolist()
    )


def test_maps_are_scaled_and_enlarged():
    model, x = channel_model(), pictures()
    explained = explain.class_activation_map(model, x, size=(20, 30))
    assert explained.maps.shape == (5, 20, 30)
    small = explain.class_activation_map(model, x, size="features").maps
    assert small.min(axis=(1, 2)).tolist() == [0] * 5
    assert small.max(axis=(1, 2)).tolist() == [1] * 5
    even = maps.normalized(np.full((1, 2, 2), 3.0), "cam")
    assert not even.any()


def test_a_step_is_compiled_once_and_a_model_is_let_go():
    model, x = channel_model(), pictures()
    explain.class_activation_map(model, x)
    first = maps._explainer(model, "auto", None)
    steps = dict(first._step_cache._steps)
    explain.class_activation_map(model, x, class_index=1)
    assert maps._explainer(model, "auto", None) is first
    assert first._step_cache._steps.keys() == steps.keys()
    # Other weights are seen, though nothing is compiled anew.
    model.set_weights([array * 2 + 1 for array in model.get_weights()])
    explained = explain.class_activation_map(model, x)
    np.testing.assert_allclose(explained.scores, model.predict(x, verbose=0), atol=1e-5)
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"class_index": 4}, "knows 4 classes, 0 to 3; got 4"),
        ({"class_index": -1}, "from 0"),
        ({"class_index": [1, 2]}, "one for each of the 5"),
        ({"class_index": 0.5}, "number of a class"),
        ({"method": "lime"}, "auto, cam, grad-cam"),
        ({"layer": "nothing"}, "no layer 'nothing'"),
        (
            {"images": pictures(5, (9, 6, 3))},
            r"takes images of shape \(None, 8, 6, 3\)",
        ),
        ({"images": pictures(0)}, "no images"),
    ],
)
def test_mistakes_are_named(arguments, match):
    with pytest.raises(ValueError, match=match):
        explain.class_activation_map(
            channel_model(), arguments.pop("images", pictures()), **arguments
        )


def test_models_without_maps_are_refused():
    flat = keras.Sequential([keras.Input(SHAPE), layers.Flatten(), layers.Dense(2)])
    with pytest.raises(ValueError, match="nothing to draw a map from"):
        explain.class_activation_map(flat, pictures())
    with pytest.raises(ValueError, match="does not end in global average pooling"):
        explain.class_activation_map(flat_model(), pictures(), method="cam")
    model = keras.Sequential([keras.Input(SHAPE), layers.Conv2D(2, 1)])
    with pytest.raises(ValueError, match="one output of shape"):
        explain.class_activation_map(model, pictures())

    class Own(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(ValueError, match="no graph of layers"):
        explain.class_activation_map(Own(), pictures())


# ---- pictures ----------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_png_holds_the_pixels(tmp_path, channels):
    image = pictures(1, (7, 5, channels))[0]
    path = tmp_path / "a.png"
    explain.write_png(path, image)
    if channels < 4:
        assert np.array_equal(png.decode(path.read_bytes()), image)
    pillow = pytest.importorskip("PIL.Image")
    with pillow.open(path) as image_file:
        assert np.array_equal(np.asarray(image_file).reshape(image.shape), image)


def test_what_is_no_image_is_refused(tmp_path):
    for wrong in (np.zeros((2, 2)), np.zeros((2, 2, 5), "uint8"), np.zeros((0, 2))):
        with pytest.raises(ValueError, match="A PNG needs"):
            explain.write_png(tmp_path / "a.png", wrong)
    assert not list(tmp_path.iterdir())


def test_heat_grows_brighter_all_the_way():
    colors = explain.heat_colors(np.linspace(0, 1, 256)).astype(float)
    light = colors @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(light) >= -0.5).all()
    assert light[0] < 5
    assert light[-1] > 235


def test_cold_places_stay_as_they_are():
    x = pictures(1)
    heat = np.zeros((1, *SHAPE[:2]))
    assert np.array_equal(explain.overlay(x, heat), x)
    heat[0, 3, 3] = 1
    drawn = explain.overlay(x, heat)
    changed = (drawn != x).any(axis=3)[0]
    assert changed[3, 3]
    assert changed.sum() == 1
    assert explain.overlay(x, heat, scale=3).shape == (1, 24, 18, 3)


def test_pixels_of_any_kind_are_shown():
    grey = np.linspace(-1, 1, 12).reshape(1, 3, 4)
    assert as_pixels(grey).shape == (1, 3, 4, 3)
    assert as_pixels(np.full((1, 2, 2, 3), 0.5)).max() == 128
    assert as_pixels(np.full((1, 2, 2, 3), 200.0)).max() == 200
    with pytest.raises(ValueError, match="1 or 3"):
        as_pixels(np.zeros((1, 2, 2, 7)))


def test_a_sheet_shows_pairs_and_frames_the_wrong_ones():
    x = np.full((7, 8, 8, 3), 10, "uint8")
    warm = np.full((7, 16, 16, 3), 90, "uint8")
    sheet = explain.contact_sheet(x, warm, columns=3)
    assert not (sheet == (230, 60, 60)).all(axis=2).any()
    assert (sheet == 10).all(axis=2).sum() == 7 * 16 * 16
    assert (sheet == 90).all(axis=2).sum() == 7 * 16 * 16
    framed = explain.contact_sheet(x, warm, columns=3, is_wrong=[True] + [False] * 6)
    red = (framed == (230, 60, 60)).all(axis=2)
    assert red.any()
    assert not red[30:].any()
    assert (framed == 10).all(axis=2).sum() == 7 * 16 * 16


# ---- files -------------------------------------------------------------------------


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))


def test_a_gallery_holds_a_picture_an_image_and_a_sheet_a_class(tmp_path):
    model, x = channel_model(), pictures(9)
    labels = np.arange(9) % 4
    held = gallery.Pictures(x, ["a"] * 8 + ["b"], labels)
    names = ["cat", "../dog", "CAT", "x/y"]
    out = tmp_path / "maps"
    explained = gallery.write_gallery(model, held, out, names)
    predicted = explained.scores.argmax(axis=1)
    inside = files_below(out)
    assert len([path for path in inside if "/" in path]) == 9
    assert len([path for path in inside if "/" not in path]) == len(set(predicted))
    assert {path.split("/")[0] for path in inside if "/" in path} <= {
        "cat",
        "_dog",
        "CAT-2",
        "x_y",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["maps"]
    with open(out / "index.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [names.index(row["predicted"]) for row in rows] == predicted.tolist()
    assert [names.index(row["class"]) for row in rows] == labels.tolist()
    assert sorted(row["file"] for row in rows) == [row for row in inside if "/" in row]
    drawn = png.decode((out / rows[0]["file"]).read_bytes())
    assert min(drawn.shape[:2]) >= gallery.LEAST_SIDE


def test_a_gallery_made_by_batches_is_the_same(tmp_path, monkeypatch):
    model = channel_model()
    names = [str(row) for row in range(9)]
    held = gallery.Pictures(pictures(9), names, np.arange(9) % 4)
    gallery.write_gallery(model, held, tmp_path / "whole", "abcd")
    monkeypatch.setattr(gallery, "batch_for", lambda size, images: 4)
    told: list[tuple[int, int]] = []
    gallery.write_gallery(
        model,
        held,
        tmp_path / "parts",
        "abcd",
        watch=lambda *progress: told.append(progress),
    )
    assert told == [(4, 9), (8, 9), (9, 9)]
    full_names = files_below(tmp_path / "whole")
    assert full_names == files_below(tmp_path / "parts")
    for name in (*full_names, gallery.INDEX):
        first, other = (tmp_path / place / name for place in ("whole", "parts"))
        assert first.read_bytes() == other.read_bytes(), name


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_nothing_is_left_of_a_gallery_that_was_not_finished(tmp_path, error):
    def stop(done: int, total: int) -> None:
        raise error

    held = gallery.Pictures(pictures(3), ["a", "b", "c"])
    with pytest.raises(error):
        gallery.write_gallery(
            channel_model(), held, tmp_path / "maps", "abcd", watch=stop
        )
    assert not list(tmp_path.iterdir())


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    held = gallery.Pictures(pictures(1), ["a"])
    with pytest.raises(FileExistsError, match="holds something"):
        gallery.write_gallery(channel_model(), held, tmp_path, "abcd")
    with pytest.raises(FileNotFoundError, match="no folder"):
        gallery.write_gallery(channel_model(), held, tmp_path / "a" / "b", "abcd")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


# ---- the command -------------------------------------------------------------------


def saved(tmp_path: Path, model: keras.Model, **notes: Any) -> str:
    model.notes = notes
    model.save(tmp_path / "m.keras")
    return str(tmp_path / "m.keras")


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["cam", *map(str, arguments)])


def digit_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(10, 5, strides=3),
            layers.GlobalAveragePooling2D(),
            layers.Softmax(),
        ]
    )


def test_the_command_draws_the_images_of_a_data_set(tmp_path, monkeypatch):
    few = glyphs._draw(10, 40, 0)  # as it would draw 70,000
    monkeypatch.setattr(glyphs, "_default_set", lambda: few)
    path, out = saved(tmp_path, digit_model()), tmp_path / "out"
    result = run(path, "--data", "glyphs", "--limit", 30, "--out", out, "--class", "3")
    assert result.exit_code == 0, result.output
    assert "right" in result.output
    assert "30 pictures by cam of the layer" in result.output
    assert len([path for path in files_below(out) if "/" in path]) == 30


def test_the_command_draws_files_and_skips_what_is_none(tmp_path):
    pytest.importorskip("PIL")
    path = saved(tmp_path, channel_model(2), class_names=["cats", "dogs"])
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a", "b"):
        explain.write_png(folder / f"{name}.png", pictures(1, (40, 30, 3))[0])
    (folder / "c.png").write_text("no picture")
    out = tmp_path / "out"
    result = run(path, folder, folder / "a.png", "--out", out)
    assert result.exit_code == 0, result.output
    assert "Skipped" in result.output
    assert "c.png" in result.output
    inside = [Path(path) for path in files_below(out) if "/" in path]
    assert {str(path.parent) for path in inside} <= {"cats", "dogs"}
    assert sorted(path.name for path in inside) == ["a-2.png", "a.png", "b.png"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--data", "glyphs", "photo.png"], "image files, or a data set"),
        ([], "image files, or a data set"),
        (["--data", "imagenet"], "Unknown data set"),
        (["--data", "glyphs", "--class", "zebra"], "Unknown class 'zebra'"),
        (["none.png"], "none.png: No such file"),
    ],
)
def test_the_command_names_mistakes_and_writes_nothing(tmp_path, arguments, match):
    path = saved(tmp_path, digit_model())
    result = run(path, *arguments, "--out", tmp_path / "out")
    assert result.exit_code != 0
    told = result.output + str(result.exception)
    assert match in " ".join(told.replace("│", " ").split())
    assert not (tmp_path / "out").exists()
