"""Ctrl-C, and the command it tells: it repeats all options, and the run is the same."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import SUPPORT
from typer.main import get_command

pytest.importorskip("PIL", reason="Pillow is not installed")
pytest.importorskip("h5py")

from PIL import Image

import ganglion
from ganglion import callbacks, images, saving
from ganglion.cli import app, resume
from ganglion.images import training

CHOICES = {
    "size": "48x64",
    "color": "grayscale",
    "fit": "pad",
    "backend": "numpy",
    "log": "steps",
}


# ---- the command -----------------------------------------------------------------


def parameters(command: str) -> list[Any]:
    return [
        parameter
        for parameter in get_command(app.app).commands[command].params
        if parameter.name not in ("help", "resume")
    ]


def sample(parameter: Any) -> list[str]:
    """Return words that give a parameter another value than its default."""
    kind, number = parameter.type.name, "7"
    if parameter.param_type_name == "argument":
        return ["it's $HOME"]
    if getattr(parameter, "is_flag", False):
        return [(parameter.secondary_opts or parameter.opts)[0]]
    if "float" in kind:
        number = "0.25"
    elif "int" not in kind:
        # Any text where there is a choice of any, so that quotes are tried.
        number = CHOICES.get(parameter.name, 'a b/it\'s "c".keras')
    words = [parameter.opts[0], number]
    return words * 2 if parameter.multiple else words


def parsed(command: str, words: list[str]) -> Any:
    return get_command(app.app).commands[command].make_context(command, list(words))


@pytest.mark.parametrize("name", [parameter.name for parameter in parameters("train")])
def test_every_option_of_train_is_repeated(name):
    chosen = next(
        parameter for parameter in parameters("train") if parameter.name == name
    )
    context = parsed("train", sample(chosen))
    assert resume.set_by_user(context, name)
    told = shlex.split(resume.command(context, {"resume": Path("a b.keras")}))
    assert told[:2] == ["ganglion", "train"]
    again = parsed("train", told[2:])
    assert again.params == context.params | {"resume": "a b.keras"}


def test_all_options_at_once_are_repeated():
    words = [word for parameter in parameters("train") for word in sample(parameter)]
    context = parsed("train", words)
    last = {"epochs": 150, "resume": "-x.keras", "save": "-x.keras"}
    again = parsed("train", shlex.split(resume.command(context, last))[2:])
    assert again.params == context.params | last
    plain = parsed("train", ["mnist-mlp"])
    assert resume.command(plain, {}) == "ganglion train mnist-mlp"
    odd = parsed("train", ["--test", "192", "--", "-odd"])
    assert resume.command(odd, {}) == "ganglion train --test 192 -- -odd"


# ---- recipes, as users interrupt them --------------------------------------------


def start(*words: Any, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SUPPORT / "cli_small.py"), *map(str, words)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    _, told = process.communicate(timeout=200)
    assert process.returncode == code, told
    return told


def interrupted(*words: Any, after: int = 1, **env: str) -> list[str]:
    """Press Ctrl-C after some epochs; return the words of the command that goes on."""
    process = start(*words, **env)
    assert process.stdout is not None
    for _ in range(after):
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    told = ended(process, 130)
    assert "Go on with: ganglion train" in told, told
    return shlex.split(told.split("Go on with: ganglion ")[1])


def assert_same_weights(first: Path, other: Path) -> None:
    mine, its = (saving.load_model(path).get_weights() for path in (first, other))
    for a, b in zip(mine, its, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_command_that_is_told_goes_on_with_the_same_run(tmp_path):
    full_path, part = tmp_path / "whole.keras", tmp_path / "the part.keras"
    words = (
        "train", "cifar10-cam", "--no-augment", "--batch-size", 20, "--epochs", 12,
        "--seed", 3, "--log", "json", "--threads", 1, "--save",
    )  # fmt: skip
    env = {"SMALL_ROWS": "60"}
    ended(start(*words, full_path, **env))
    again = interrupted(*words, part, **env)
    for option in ("--no-augment", "--batch-size 20", "--seed 3", "--log json"):
        assert option in " ".join(again)
    ended(start(*again, **env))
    assert_same_weights(full_path, part)


def test_a_run_with_augmentation_is_not_continued_without(tmp_path):
    part = tmp_path / "part.keras"
    words = ("train", "cifar10-cam", "--log", "json", "--batch-size", 20)
    words += ("--threads", 1, "--epochs", 1, "--save", part)
    ended(start(*words, SMALL_ROWS="60"))
    more = ("--resume", part, "--epochs", 2, "--no-augment")
    told = ended(start("train", "cifar10-cam", *more, COLUMNS="300"), 2)
    assert "keeps what it was begun with" in told


# ---- folders of images -----------------------------------------------------------


def noise(place: Path, each: int = 16, classes: int = 3) -> Path:
    """Make a folder of images that cannot be told apart: training comes to its end."""
    rng = np.random.default_rng(0)
    for name in "abc"[:classes]:
        (place / name).mkdir(parents=True)
        for number in range(each):
            pixels = rng.integers(0, 256, (8, 8, 3)).astype("uint8")
            Image.fromarray(pixels).save(place / name / f"{number:02}.png")
    return place


class Stop(callbacks.Callback):
    """Interrupts a run at some epoch and batch; -1: at its end."""

    def __init__(self, epoch: int, batch: int) -> None:
        super().__init__()
        self.at, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch, -1) == self.at:
            raise KeyboardInterrupt


@pytest.fixture
def impatient(monkeypatch):
    """Let training end soon: least epochs, whatever the steps."""
    for name in ("WARM_UP_STEPS", "SLOWER_STEPS", "STOP_STEPS"):
        monkeypatch.setattr(training, name, 1)


@pytest.fixture
def held(tmp_path, monkeypatch, impatient):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))
    return images.load(noise(tmp_path / "photos"), size=8, test=6, validation=9)


def fit(held: Any, model: Any, save: Path | None, *more: Any) -> Any:
    logger = callbacks.CSVLogger(Path(held.folder).parent / f"{save.stem}.csv")
    return training.fit(
        model,
        held,
        epochs=60,
        batch_size=12,
        save=save,
        more=[*more, logger],
        verbose=0,
    )


def fresh(held: Any) -> Any:
    ganglion.utils.set_random_seed(4)
    return training.new_model(held)


def test_a_training_on_images_is_the_same_however_often_it_is_stopped(tmp_path, held):
    model = fresh(held)
    full_run = fit(held, model, tmp_path / "whole.keras")
    table = (tmp_path / "whole.csv").read_text()
    epochs = len(table.splitlines()) - 1
    assert full_run.epoch is not None
    assert 16 <= epochs < 60  # it ended by itself
    save = tmp_path / "part.keras"
    best = full_run.epoch - 1
    for stops in (
        [(0, 0)],
        [(best, -1), (best + 1, 1)],
        [(2, 0), (epochs - 1, -1), (0, 0)],
        [(epochs - 1, 1), (epochs - 1, 2)],
    ):
        save.unlink(missing_ok=True)
        part = fresh(held)
        for stop in stops:
            with contextlib.suppress(KeyboardInterrupt):  # the last may be too late
                fit(held, part, save, Stop(*stop))
            part = saving.load_model(save)
        keeper = fit(held, part, save)
        assert (keeper.epoch, keeper.best) == (full_run.epoch, full_run.best), stops
        assert (tmp_path / "part.csv").read_text() == table, stops
        assert_same_weights(tmp_path / "whole.keras", save)
        for a, b in zip(model.get_weights(), part.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_file_has_the_best_weights_and_the_run_the_latest(tmp_path, held):
    model, save = fresh(held), tmp_path / "m.keras"
    full_run = fit(held, fresh(held), tmp_path / "whole.keras")
    with pytest.raises(KeyboardInterrupt):
        fit(held, model, save, Stop(full_run.epoch + 3, 1))
    kept = saving.load_model(save)
    assert int(kept.training_state.epoch.array) == full_run.epoch + 3
    assert_same_weights(tmp_path / "whole.keras", save)  # `predict` asks the best
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(model.get_weights(), kept.get_weights(), strict=True)
    )


def test_ctrl_c_on_a_folder_tells_a_command_that_gives_the_same_model(tmp_path):
    folder, home = noise(tmp_path / "my photos"), str(tmp_path / "home")
    full_path, part = tmp_path / "whole.keras", tmp_path / "part.keras"
    words = (
        "train", "--images", folder, "--test", 6, "--validation", 9, "--size", 8,
        "--fit", "pad", "--no-augment", "--batch-size", 6, "--epochs", 60, "--seed", 5,
        "--log", "steps", "--threads", 1, "--save",
    )  # fmt: skip
    told = ended(start(*words, full_path, GANGLION_HOME=home))
    again = interrupted(*words, part, after=2, GANGLION_HOME=home)
    for option in ("--fit pad", "--no-augment", "--batch-size 6", "--seed 5"):
        assert option in " ".join(again)
    resumed = ended(start(*again, GANGLION_HOME=home))
    assert_same_weights(full_path, part)

    def result(text: str) -> str:
        return text[text.index("the best is") :].splitlines()[0]

    assert result(told) == result(resumed)
    for change, named in ((("--test", 9), "--test"), (("--size", 16), "--size")):
        refused = ended(start(*again, *change, GANGLION_HOME=home, COLUMNS="300"), 2)
        assert f"{named} is for a new run" in refused
