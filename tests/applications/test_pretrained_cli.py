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
    monkeypatch.setattr(
        transfer, "start", lambda *arguments: begin(*arguments, weights=None)
    )
    draw = np.random.default_rng(0)
    for number, name in enumerate(("dark", "bright")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for row in range(12):
            pixels = draw.integers(0, 100, (40, 40, 3)) + 150 * number
            path = tmp_path / "photos" / name / f"{row}.png"
            explain.write_png(path, pixels.astype("uint8"))
    return tmp_path / "photos"


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_a_folder_is_learned_and_the_model_answers(folder, tmp_path):
    path = tmp_path / "m.keras"
    arguments = ("--images", folder, "--size", 32, "--test", 4, "--validation", 4)
    result = run(*arguments, "--pretrained", "--log", "steps", "--save", path)
    assert result.exit_code == 0, result.output
    assert "5 epochs of the last blocks" in result.output
    assert "Test accuracy" in result.output
    again = saving.load_model(path)
    assert again.notes["class_names"] == ["bright", "dark"]
    asked = CliRunner().invoke(
        app, ["predict", str(path), str(folder), "--format", "csv"]
    )
    assert asked.exit_code == 0, asked.output
    assert len(asked.stdout.splitlines()) == 25
    kinds = {path.name for path in feature_cache.folder().iterdir()}
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
    result = run("--images", folder, "--size", 32, "--pretrained", "--save", path)
    assert result.exit_code == 130
    assert "nothing was saved" in result.output
    assert not path.exists()


def test_stopping_in_fine_tuning_saves_what_there_is(folder, tmp_path, monkeypatch):
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "fine_tune", stop)
    path = tmp_path / "m.keras"
    result = run("--images", folder, "--size", 32, "--pretrained", "--save", path)
    assert result.exit_code == 130
    assert "Stopped in fine-tuning" in result.output
    assert saving.load_model(path).notes["class_names"] == ["bright", "dark"]


def test_frozen_means_that_only_the_head_learns(folder, monkeypatch):
    monkeypatch.setattr(transfer, "fine_tune", None)
    arguments = ("--images", folder, "--size", 32, "--pretrained", "--fine-tune", 0)
    result = run(*arguments, "--log", "steps")
    assert result.exit_code == 0, result.output
    assert "not saved" in result.output


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--color", "grayscale"], "sees colours"),
        (["--resume", "m.keras"], "starts anew"),
    ],
)
def test_what_does_not_go_together_is_named(folder, arguments, match):
    result = run("--images", folder, "--pretrained", *arguments)
    assert result.exit_code == 2
    assert match in " ".join(result.output.replace("│", " ").split())


def test_recipes_have_no_pretrained_start():
    result = run("mnist-mlp", "--pretrained")
    assert result.exit_code == 2
    assert "--images" in result.output
