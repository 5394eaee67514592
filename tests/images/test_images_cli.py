"""`ganglion train --images`, `predict`, `evaluate`, `race --images`, as users do."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

import image_files
from PIL import Image

import ganglion
from ganglion import images, recipes
from ganglion.images import networks, scores, training
from ganglion.race import results, settings

TRAIN = ("--size", "16", "--log", "steps", "--threads", "1")


def command(*arguments):
    return [sys.executable, "-m", "ganglion.cli.app", *map(str, arguments)]


def run(*arguments, **env):
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder of images and a model that was trained on it."""
    place = tmp_path_factory.mktemp("trained")
    folder = image_files.folder(place / "photos", each=16)
    (folder / "red" / "bad.png").write_text("words")
    model = place / "m.keras"
    home = {"GANGLION_HOME": str(place / "home")}
    done = run(
        "train", "--images", folder, "--test", 9, "--epochs", 8, "--save", model,
        *TRAIN, **home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, model, done, home


def test_training_tells_what_it_found_and_how_well_it_learned(trained):
    _, model, done, _ = trained
    assert "1 file is left out, unreadable: red/bad.png (no image: it holds text)" in (
        done.stderr
    )
    assert (
        "3 classes (blue, green, red); 33 to train on, 6 to validate on, 9 to test"
        in (done.stderr)
    )
    assert "test accuracy 1.0000 (9 images)" in done.stderr
    assert len(done.stdout.splitlines()) == 8
    kept = ganglion.models.load_model(model)
    assert kept.notes["class_names"] == ["blue", "green", "red"]
    assert kept.notes["images"]["size"] == [16, 16]
    assert [path.name for path in model.parent.iterdir() if path.name[0] == "."] == []


def test_predict_prints_a_table_csv_or_json(trained, tmp_path):
    folder, model, _, home = trained
    odd = tmp_path / "odd name, with comma.jpg"
    Image.fromarray(image_files.pixels((20, 180, 40), 99, (70, 30))).save(odd)
    files = (folder / "red" / "000.png", odd)
    table = run("predict", model, *files, COLUMNS="200", **home)
    assert table.returncode == 0, table.stderr
    assert "red" in table.stdout
    assert "green" in table.stdout
    rows = run("predict", model, *files, "--format", "json", **home)
    data = json.loads(rows.stdout)
    assert [answer["class"] for answer in data] == ["red", "green"]
    for answer in data:
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-4)
        assert answer["probability"] == max(answer["probabilities"].values())
    text = run("predict", model, *files, "--format", "csv", **home).stdout
    lines = list(csv.DictReader(io.StringIO(text)))
    assert lines[1]["file"] == str(odd)
    assert [row["class"] for row in lines] == ["red", "green"]
    assert set(lines[0]) == {"file", "class", "probability", "blue", "green", "red"}


def test_predict_goes_through_folders_and_names_what_it_cannot_read(trained):
    folder, model, _, home = trained
    done = run("predict", model, folder / "red", "--format", "json", **home)
    assert done.returncode == 1  # not everything was answered
    assert "bad.png: no image: it holds text" in done.stderr
    assert "1 of 17 files could not be read" in done.stderr
    assert len(json.loads(done.stdout)) == 16


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere.keras", "x.png"), "There is no file nowhere.keras"),
        (("MODEL", "nowhere.png"), "No such file"),
        (("MODEL", "x.png", "--format", "xml"), "choose table, csv, json"),
    ],
)
def test_predict_refuses(trained, arguments, told):
    _, model, _, home = trained
    words = [str(model) if argument == "MODEL" else argument for argument in arguments]
    done = run("predict", *words, **home)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_evaluate_tests_on_what_was_held_out(trained, tmp_path):
    folder, model, _, home = trained
    out = tmp_path / "c.png"
    done = run("evaluate", model, "--images", folder, "--out", out, **home)
    assert done.returncode == 0, done.stderr
    assert "accuracy 1.0000 on 9 images (the images held out" in done.stdout
    assert "precision" in done.stdout
    assert "confusion" in done.stdout
    with Image.open(out) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 100
    everything = run(
        "evaluate", model, "--images", folder, "--all", "--format", "json", **home
    )
    data = json.loads(everything.stdout)
    assert data["images"] == 48
    assert data["unreadable"] == 1
    assert data["tested"] == "all images"
    assert np.trace(data["confusion"]) / 48 == pytest.approx(data["accuracy"])


def test_evaluate_on_another_folder(trained, tmp_path):
    _, model, _, home = trained
    other = image_files.folder(tmp_path / "other" / "test", classes=("red",)).parent
    image_files.folder(other / "train", each=2)
    done = run("evaluate", model, "--images", other, "--format", "json", **home)
    data = json.loads(done.stdout)
    assert (data["images"], data["tested"]) == (8, "test/")
    assert data["classes"]["blue"] == {"precision": None, "recall": None, "images": 0}
    (other / "train" / "violet").mkdir()
    Image.new("RGB", (4, 4)).save(other / "train" / "violet" / "a.png")
    done = run("evaluate", model, "--images", other, **home)
    assert done.returncode == 1
    assert "class 'violet', which is not among" in done.stderr
    done = run("evaluate", model, "--images", other, "--out", "c.jpg", **home)
    assert "must end in .png" in done.stderr


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nothing", "holds no images"),
        ("one", "one class only"),
        ("empty", "no images in the folder of the class 'violet'"),
        ("case", "differ only by case"),
        ("words", "None of the 8 images of the class 'red' can be read"),
        ("many", "1000 of 24 images cannot be held out"),
    ],
)
def test_bad_folders_are_told_of_and_leave_nothing(tmp_path, what, told):
    folder = tmp_path / "photos"
    if what == "nothing":
        folder.mkdir()
    else:
        classes = ("red",) if what == "one" else tuple(image_files.COLOURS)
        image_files.folder(folder, classes=classes)
    if what == "empty":
        (folder / "violet").mkdir()
    if what == "case":
        (folder / "RED").mkdir()
        Image.new("RGB", (4, 4)).save(folder / "RED" / "a.png")
    if what == "words":
        for path in (folder / "red").iterdir():
            path.write_text("words")
    home, save = tmp_path / "home", tmp_path / "m.keras"
    test = ("--test", 1000) if what == "many" else ()
    done = run(
        "train", "--images", folder, "--save", save, *test, GANGLION_HOME=str(home)
    )
    assert done.returncode == 1
    assert told in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not save.exists()
    assert not list(home.rglob(".*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say which recipe, or --images FOLDER"),
        (("mnist-mlp", "--images", "x"), "not both"),
        (("--images", "x", "--size", "big"), "give 64, or 64x48"),
        (("--images", "x", "--save", "m.h5"), "must end in .keras"),
    ],
)
def test_train_refuses(arguments, told):
    done = run("train", *arguments)
    assert done.returncode != 0
    assert told in " ".join(done.stderr.split())


def test_ctrl_c_keeps_the_best_epoch_and_the_run_goes_on(tmp_path):
    folder = image_files.folder(tmp_path / "photos", each=30)
    save, home = tmp_path / "m.keras", {"GANGLION_HOME": str(tmp_path / "home")}
    train = ("train", "--images", folder, "--save", save, *TRAIN)
    process = subprocess.Popen(
        command(*train, "--epochs", 5000),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **home},
    )
    for _ in range(3):
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "holds the best epoch. Go on with: ganglion train --images" in told
    kept = ganglion.models.load_model(save)
    epoch = int(kept.training_state.epoch.array)
    assert epoch >= 1
    done = run(*train, "--resume", save, "--epochs", epoch + 2, **home)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert "Saved" in done.stderr
    other = image_files.folder(tmp_path / "two", classes=("red", "blue"))
    done = run("train", "--images", other, "--resume", save, **home)
    assert done.returncode == 1
    assert "was trained on other classes" in done.stderr


# ---- what the commands are made of -----------------------------------------------


def test_networks_grow_with_the_data():
    small = networks.network((32, 32, 3), 6, 600)
    many = networks.network((32, 32, 3), 6, 5000)
    large = networks.network((128, 128, 3), 6, 600)
    count = [
        [kind for kind, _ in layers].count("Conv2D") for layers in (small, many, large)
    ]
    assert count == [3, 6, 5]
    assert small[-1] == ("Dense", {"units": 6, "activation": "softmax"})
    tiny = networks.network((4, 4, 1), 2, 10)
    assert [kind for kind, _ in tiny].count("MaxPooling2D") == 0


def test_the_best_epoch_is_kept(tmp_path):
    folder = image_files.folder(tmp_path / "photos", each=4)
    held = images.load(folder, size=8, test=3, validation=3)
    model = training.new_model(held)
    keeper = training.BestKeeper("val_loss", tmp_path / "best.keras")
    keeper.set_model(model)
    seen = []
    for epoch, loss in enumerate([3.0, 1.0, 2.0, float("nan")]):
        model.set_weights([array + 1 for array in model.get_weights()])
        seen.append(model.get_weights()[0].copy())
        keeper.on_epoch_end(epoch, {"val_loss": loss})
    assert (keeper.epoch, keeper.best) == (2, 1.0)
    assert np.array_equal(keeper.weights[0], seen[1])
    kept = ganglion.models.load_model(tmp_path / "best.keras")
    assert np.array_equal(kept.get_weights()[0], seen[1])


def test_a_model_without_notes_is_asked_by_its_shapes():
    model = ganglion.Sequential(
        [ganglion.Input((8, 6)), ganglion.layers.Flatten(), ganglion.layers.Dense(3)]
    )
    asked = training.Classifier.of(model)
    assert asked.classes == ("0", "1", "2")
    assert asked.form.shape == (8, 6, 1)
    probabilities = asked.probabilities(np.zeros((2, 8, 6, 1), "uint8"))
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-6)
    yes = ganglion.Sequential(
        [
            ganglion.Input((8, 6, 3)),
            ganglion.layers.Flatten(),
            ganglion.layers.Dense(1, activation="sigmoid"),
        ]
    )
    probabilities = training.Classifier.of(yes).probabilities(np.zeros((2, 8, 6, 3)))
    assert probabilities.tolist() == [[0.5, 0.5]] * 2
    for notes in (
        {"class_names": ["a"]},
        {"class_names": "ab"},
        {"images": {"size": 1}},
    ):
        yes.notes = notes
        with pytest.raises(ValueError, match=r"class names|form of images"):
            training.Classifier.of(yes)
    flat = ganglion.Sequential([ganglion.Input((4,)), ganglion.layers.Dense(2)])
    with pytest.raises(images.ImagesError, match="not an image"):
        training.Classifier.of(flat)


def test_scores_of_classes_that_are_missing():
    scored = scores.Scores.of([0, 0, 2], [0, 0, 0], ("a", "b", "c"))
    assert scored.recall[[0, 2]].tolist() == [1, 0]
    assert np.isnan(scored.recall[1])
    assert np.isnan(scored.precision[1])
    assert scored.precision[0] == pytest.approx(2 / 3)
    assert json.loads(json.dumps(scored.as_data()))["classes"]["b"]["recall"] is None


def test_the_picture_is_darkest_where_a_model_is_right():
    scored = scores.Scores.of([0, 1], [0, 1], ("a long name of a class", "b"))
    picture = np.asarray(scores.picture(scored)).astype(int)
    dark = (picture == scores.BLUE).all(axis=-1)
    rows, columns = np.nonzero(dark)
    slope = np.corrcoef(rows, columns)[0, 1]
    assert slope > 0.5  # the diagonal


# ---- the race --------------------------------------------------------------------


def test_a_folder_as_a_recipe_travels_as_data(tmp_path):
    folder = image_files.folder(tmp_path / "photos", each=10)
    recipe = networks.of_folder(folder, test=6)
    assert recipe.parameters == recipes.build(recipe).count_params()
    sent = json.loads(json.dumps(asdict(recipe)))
    assert recipes.from_data(sent) == recipe
    (x, _), (x_test, y_test), remark = recipes.load(recipe)
    assert (len(x), len(x_test), remark) == (24, 6, None)
    assert sorted(y_test.tolist()) == [0, 0, 1, 1, 2, 2]
    chosen = settings.choose(recipe, engines="ganglion,torch", runs=4)
    assert chosen.full_recipe is recipe
    assert settings.Settings(**asdict(chosen)) == chosen


def test_a_race_on_a_folder_that_changed_does_not_go_on(tmp_path):
    folder = image_files.folder(tmp_path / "photos", each=10)
    recipe = networks.of_folder(folder, test=6)
    race = results.Race(
        recipe.name, "t", 1, 4, 1, 1, "cpu", 0, ("torch",), images=recipe.source
    )
    results.save(race, tmp_path / "race")
    again = results.load(tmp_path / "race")
    assert settings.of_race(again, tmp_path, {}).full_recipe == recipes.from_data(
        json.loads(json.dumps(asdict(recipe)))
    )
    (folder / "red" / "000.png").unlink()
    with pytest.raises(images.ImagesError, match="not the same as before"):
        settings.of_race(again, tmp_path, {})


def test_ganglion_races_on_a_folder(tmp_path):
    folder = image_files.folder(tmp_path / "my photos", each=20)
    out = tmp_path / "race"
    done = run(
        "race", "--images", folder, "--test", 12, "--size", 16, "--engines", "ganglion",
        "--runs", 2, "--epochs", 2, "--threads", 1, "--out", out,
        GANGLION_HOME=str(tmp_path / "home"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    race = results.load(out)
    assert [run.status for run in race.finished] == ["done", "done"]
    assert "48 to train on, 12 to test on" in race.title
    assert "--test 12 --size 16" in race.command
    assert "my photos'" in race.command
    assert (out / "report.html").exists()
    again = run("race", "--resume", out, "--images", folder)
    assert "--resume knows its images" in " ".join(again.stderr.split())
    for more, told in (
        (("mnist-mlp", "--images", folder), "not both"),
        (("mnist-mlp", "--test", 3), "go with --images"),
    ):
        refused = run("race", *more)
        assert told in " ".join(refused.stderr.split())
