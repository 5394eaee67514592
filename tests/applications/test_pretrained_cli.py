"""`ganglion train --images FOLDER --pretrained`, with random weights for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ganglion import explain, saving
from ganglion.applications import feature_cache, transfer
from ganglion.cli.app import app


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return dark and bright pictures; let the network start from random weights."""
    pytest.importorskip("PIL")
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))
    begin = transfer.start
    monkeypatch.setattr(transfer, "start", lambda *given: begin(*given, weights=None))
    draw = np.random.default_rng(0)
    for number, name in enumerate(("dark", "bright")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for row in range(12):
            pixels = draw.integers(0, 100, (40, 40, 3)) + 150 * number
            path = tmp_path / "photos" / name / f"{row}.png"
            explain.write_png(path, pixels.astype("uint8"))
    return tmp_path / "photos"


def run(*given: Any) -> Any:
    return CliRunner().invoke(app, ["train", *map(str, given)])


def test_a_folder_is_learned_and_the_model_answers(folder, tmp_path):
    path = tmp_path / "m.keras"
    given = ("--images", folder, "--size", 32, "--test", 4, "--validation", 4)
    made = run(*given, "--pretrained", "--log", "steps", "--save", path)
    assert made.exit_code == 0, made.output
    assert "5 epochs of the last blocks" in made.output
    assert "Test accuracy" in made.output
    again = saving.load_model(path)
    assert again.notes["class_names"] == ["bright", "dark"]
    asked = CliRunner().invoke(
        app, ["predict", str(path), str(folder), "--format", "csv"]
    )
    assert asked.exit_code == 0, asked.output
    assert len(asked.stdout.splitlines()) == 25
    kinds = {one.name for one in feature_cache.folder().iterdir()}
    # Maps and features to train, validate and test on; the last two after tuning, too.
    assert len(kinds) == 3 * 2 + 2
    assert all(name.endswith(".outputs") for name in kinds)


def test_stopping_while_features_are_computed_saves_nothing(
    folder, tmp_path, monkeypatch
):
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "features", stop)
    path = tmp_path / "m.keras"
    made = run("--images", folder, "--size", 32, "--pretrained", "--save", path)
    assert made.exit_code == 130
    assert "nothing was saved" in made.output
    assert not path.exists()


def test_stopping_in_fine_tuning_saves_what_there_is(folder, tmp_path, monkeypatch):
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "fine_tune", stop)
    path = tmp_path / "m.keras"
    made = run("--images", folder, "--size", 32, "--pretrained", "--save", path)
    assert made.exit_code == 130
    assert "Stopped in fine-tuning" in made.output
    assert saving.load_model(path).notes["class_names"] == ["bright", "dark"]


def test_frozen_means_that_only_the_head_learns(folder, monkeypatch):
    monkeypatch.setattr(transfer, "fine_tune", None)
    given = ("--images", folder, "--size", 32, "--pretrained", "--fine-tune", 0)
    made = run(*given, "--log", "steps")
    assert made.exit_code == 0, made.output
    assert "not saved" in made.output


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (["--color", "grayscale"], "sees colours"),
        (["--resume", "m.keras"], "starts anew"),
    ],
)
def test_what_does_not_go_together_is_named(folder, given, match):
    made = run("--images", folder, "--pretrained", *given)
    assert made.exit_code == 2
    assert match in " ".join(made.output.replace("│", " ").split())


def test_recipes_have_no_pretrained_start():
    made = run("mnist-mlp", "--pretrained")
    assert made.exit_code == 2
    assert "--images" in made.output
