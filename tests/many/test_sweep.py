"""`ganglion sweep`: settings, seeds and folds of a recipe or a script, as a report."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

import ganglion as keras
from ganglion import recipes
from ganglion.cli.app import app
from ganglion.many import sweep, sweep_report

SCRIPT = '''"""A line and its slope."""
import numpy as np
import ganglion as keras

fit = {"epochs": 2, "batch_size": 8}

def build(units, rate=0.1):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units),
                              keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model

def data():
    x = np.random.default_rng(0).normal(size=(30, 2))
    return x, x[:, :1]
'''


@pytest.fixture(autouse=True)
def _kept_for_scripts(monkeypatch):
    """Restore what scripts see of the command."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))


def sweep_it(*words):
    return CliRunner().invoke(app, ["sweep", *map(str, words)])


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_over_settings_and_seeds(script, tmp_path):
    result = sweep_it(
        script, "--set", "units=2,3", "--seeds", "0-2", "--out", tmp_path / "out"
    )
    assert result.exit_code == 0, result.output
    assert "units=2" in result.output
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    assert data["title"] == "A line and its slope."
    assert (data["epochs"], data["score"], len(data["models"])) == (2, "loss", 6)
    groups = {row["setting"]["units"]: row for row in data["groups"]}
    ends = [
        m["history"]["loss"][-1] for m in data["models"] if m["setting"]["units"] == 3
    ]
    assert groups[3]["mean"] == pytest.approx(np.mean(ends))
    assert groups[3]["deviation"] == pytest.approx(np.std(ends, ddof=1))
    assert groups[3]["best"] == min(ends)
    assert groups[3]["worst"] == max(ends)
    page = (tmp_path / "out" / "report.html").read_text()
    HTMLParser().feed(page)
    assert "units=3" in page
    assert "Every model&#x27;s end" in page


def test_folds_judge_by_what_was_left_out(script, tmp_path):
    result = sweep_it(
        script, "--set", "units=2", "--folds", 3, "--out", tmp_path / "out"
    )
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    assert data["score"] == "val_loss"
    assert [model["fold"] for model in data["models"]] == [0, 1, 2]
    assert data["groups"][0]["models"] == 3
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Held-out loss over epochs" in page
    script.write_text(f"{script.read_text()}\nmonitor = 'loss'")
    for words, score in ((["--folds", 3], "val_loss"), ([], "loss")):
        result = sweep_it(script, "--set", "units=2", *words, "--out", tmp_path / "out")
        assert result.exit_code == 0, result.output
        data = json.loads((tmp_path / "out" / "results.json").read_text())
        assert data["score"] == score
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Training loss over epochs" in page


def test_a_folder_that_is_a_file_is_refused_before_the_training(script, tmp_path):
    result = sweep_it(script, "--set", "units=2", "--out", script)
    assert isinstance(result.exception, FileExistsError)
    assert "epochs each" not in result.output


def test_an_error_names_its_model(script):
    words = ["sweep", str(script), "--set", "units=2,x"]
    ran = subprocess.run(
        [sys.executable, "-m", "ganglion", *words], capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "This happened in model 1 (units='x'" in ran.stderr.replace("\n", " ")


def test_a_recipe_is_what_train_makes_of_it(monkeypatch, tmp_path):
    recipe = recipes.get("mnist-perceptron")
    training, testing = recipes.noise(recipe, 256), recipes.noise(recipe, 64, 1)
    monkeypatch.setattr(recipes, "load", lambda chosen: (training, testing, "a remark"))
    out = tmp_path / "out"
    words = ("--set", "lr=0.1,0.5", "--seeds", "3,5", "--epochs", 2, "--out", out)
    result = sweep_it("mnist-perceptron", *words)
    assert result.exit_code == 0, result.output
    assert "published: TensorFlow (14 s)" in result.output
    data = json.loads((out / "results.json").read_text())
    assert data["score"] == "val_accuracy"
    assert data["remark"] == "a remark"
    keras.utils.set_random_seed(5)
    model = recipes.build(recipes.tuned(recipe, {"learning_rate": 0.1}))
    history = model.fit(
        *training, batch_size=128, epochs=2, validation_data=testing,
        validation_batch_size=1000, verbose=0,
    )  # fmt: skip
    (own,) = [
        m for m in data["models"]
        if m["seed"] == 5 and m["setting"]["learning_rate"] == 0.1
    ]  # fmt: skip
    assert own["history"] == history.history
    page = (out / "report.html").read_text()
    assert "0.9089" in page
    assert "a remark" in page


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mnist-perceptron", "--set", "rate=1"], "unknown key 'rate'"),
        (["mnist-perceptron", "--set", "lr"], "--set lr: write a key and its values"),
        (["mnist-perceptron", "--seeds", "5-2"], "--seeds 5-2: give integers"),
        (["mnist-perceptron", "--seeds", ","], "no seed"),
        (["mnist-perceptron", "--seeds", "0-9999999"], "are too many"),
        (["mnist-vae", "--set", "momentum=0.5"], "which has none"),
        (["mnist-perception"], "Did you mean 'mnist-perceptron'"),
        (["none.py"], "there is no file 'none.py'"),
        (["mnist-mlp", "--", "--units", "3"], "a recipe takes no arguments"),
        (["any.py", "--set", "seed=1,2"], "write --seeds instead"),
    ],
)
def test_what_cannot_be_swept_is_refused(words, told):
    result = sweep_it(*words)
    assert result.exit_code != 0
    assert told in str(result.exception) + result.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", "defines no function `build`"),
        ("def build(): ...", "defines no function `data`"),
        ("def build(): ...\ndef data(): return 3", "must return (x, y)"),
        (SCRIPT, "Setting 0 lacks units"),
        ("import sys\nsys.exit()", "ends by itself"),
    ],
)
def test_scripts_that_say_too_little_are_refused(tmp_path, text, told):
    path = tmp_path / "net.py"
    path.write_text(text)
    assert told in str(sweep_it(path).exception)


SEES_ITSELF = SCRIPT.replace(
    "import numpy as np",
    """import argparse
import numpy as np
from beside import RATE

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
SCALE = parser.parse_args().scale
monitor = "val_novelty"
""",
).replace(
    "def build(units, rate=0.1):\n",
    "def build(units, rate=RATE):\n    first, units = units\n",
).replace(
    "return x, x[:, :1]", "return {'x': x}, SCALE * x[:, :1]"
)  # fmt: skip


def test_scripts_see_their_arguments_and_the_modules_beside_them(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(
        SEES_ITSELF.replace("keras.Input((2,)", "keras.Input((2,), name='x'")
    )
    (tmp_path / "beside.py").write_text("RATE = 0.2")
    words = (path, "--set", "units=(0,2),(0,3)", "--folds", 3, "--out", tmp_path)
    small = sweep_it(*words, "--", "--scale", "0.0")
    assert small.exit_code == 0, small.output
    assert "There is no metric 'val_novelty'" in small.output.replace("\n", " ")
    results = json.loads((tmp_path / "results.json").read_text())
    assert [group["setting"] for group in results["groups"]] == [
        {"units": [0, 2]},
        {"units": [0, 3]},
    ]
    assert results["score"] == "val_loss"
    first = results["models"][0]["history"]["loss"]
    large = sweep_it(*words, "--", "--scale=100")
    assert large.exit_code == 0, large.output
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["models"][0]["history"]["loss"][0] > 10 * first[0]


def test_a_saved_sweep_is_read_when_it_is_asked_for_again(script, tmp_path):
    words = (script, "--set", "units=2", "--save", tmp_path / "set.zip")
    first = sweep_it(*words, "--out", tmp_path / "a")
    assert first.exit_code == 0, first.output
    second = sweep_it(*words, "--out", tmp_path / "b")
    assert second.exit_code == 0, second.output
    data = [
        json.loads((tmp_path / name / "results.json").read_text())["models"]
        for name in ("a", "b")
    ]
    assert data[0][0]["history"] == data[1][0]["history"]


def test_a_model_without_a_number_is_counted_apart():
    models = [
        {"setting": {}, "fold": None, "seed": n, "message": None,
         "history": {"val_accuracy": [0.1, value]}}
        for n, value in enumerate((0.5, 0.7, None))
    ]  # fmt: skip
    (group,) = sweep.groups_of(models, "val_accuracy", True)
    assert sweep_report.cells(group) == ["3 (1 failed)", "0.6000", "0.1414", "0.7000",
                                         "0.5000"]  # fmt: skip
    assert group.label == "all"


def test_the_live_table_grows(script, tmp_path):
    experiment = sweep.of_script(script)
    tables = []

    class Kept(sweep_report.LiveTable):
        def show(self):
            tables.append(self._table(self.done))

        def end(self):
            tables.append(self._table(self.done))

    live = Kept("net", None)
    settings = sweep.settings_of(experiment, {"units": [2, 3]}, [0, 1], None)
    sweep.run(experiment, settings, progress=live)
    assert "4/4 models" in str(tables[-1].title)
    assert tables[-1].row_count == 2
