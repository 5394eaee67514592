"""A race on a pretrained start: its runs, its failures, what it refuses."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ganglion.applications import efficientnet_lite
from ganglion.cli.app import app
from ganglion.images import Form, networks
from ganglion.race import pretrained, pretrained_engines
from ganglion.race.pretrained import new_race
from ganglion.race.results import Run, load, save


def held(count: int = 8) -> Any:
    """Return dark and bright noise in the place of a folder."""
    draw = np.random.default_rng(0)
    y = (np.arange(count) % 2).astype("int32")
    x = draw.integers(0, 100, (count, 32, 32, 3)) + 150 * y[:, None, None, None]
    part = SimpleNamespace(x=x.astype("uint8"), y=y)
    return SimpleNamespace(
        folder=Path("noise"),
        classes=("dark", "bright"),
        form=Form((32, 32)),
        train=part,
        test=part,
        fingerprint="",
        counts=lambda: f"{count} to train on",
    )


@pytest.mark.slow
def test_our_run_is_measured_and_kept(tmp_path):
    try:
        efficientnet_lite.weights_file()
    except ImportError as error:
        pytest.skip(str(error))
    told: list[str] = []
    begun = new_race(held(), engines=("ganglion",), epochs=2)
    race = pretrained.run(held(), tmp_path / "race", begun, told.append)
    assert load(tmp_path / "race") == race
    (run,) = race.finished
    assert run.done, run.log_end
    assert [epoch.number for epoch in run.epochs] == [1, 2]
    assert run.epochs[-1].test_loss < 0.69  # of guessing: 0.693
    assert run.parameters > 3_000_000
    assert run.seconds > 0
    assert "accuracy after each epoch" in told[-1]


def test_an_engine_that_fails_is_told_of(tmp_path, monkeypatch):
    broken = held()
    broken.train.x = broken.train.x[..., :2]  # two colours are none
    begun = new_race(broken, engines=("ganglion",))
    race = pretrained.run(broken, tmp_path, begun, lambda _: None)
    (run,) = race.finished
    assert (run.status, run.reason) == ("failed", "exit code 1")
    assert "Error" in run.log_end
    assert (tmp_path / "logs" / "ganglion-1.log").read_text()


def test_what_is_not_installed_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    begun = new_race(held(), engines=("torch",))
    race = pretrained.run(held(), tmp_path, begun, lambda _: None)
    assert not race.finished
    assert "pip install torch efficientnet-lite-pytorch" in race.skipped[0].reason


def test_a_race_goes_on_with_the_runs_that_are_missing(tmp_path, monkeypatch):
    def once(task, number, folder, limit):
        ran.append((task["engine"], number, task["seed"], limit))
        return Run(task["engine"], number, task["seed"], "done")

    monkeypatch.setattr(pretrained, "_once", once)
    monkeypatch.setattr(pretrained, "_skipped", lambda name: None)
    ran: list[Any] = []
    begun = new_race(held(), runs=2, seed=3, epochs=4, limit=50.0, test=0.25)
    full = pretrained.run(held(), tmp_path, begun, lambda _: None)
    assert len(ran) == 4
    part = replace(full, finished=full.finished[:3], complete=False)
    save(part, tmp_path)

    ran.clear()
    assert load(tmp_path) == part
    monkeypatch.setattr(networks, "read_source", lambda source: held())
    answer = CliRunner().invoke(app, ["race", "--resume", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert ran == [("torch", 2, 4, 50.0)]
    assert load(tmp_path) == full
    answer = CliRunner().invoke(app, ["race", "--resume", str(tmp_path), "--runs", "3"])
    assert "holds a race with --runs 2" in str(answer.exception)


def test_a_race_without_the_form_of_its_images_cannot_go_on():
    with pytest.raises(ValueError, match="start anew"):
        networks.read_source({"folder": "noise"})


def test_what_cannot_race_is_refused():
    with pytest.raises(ValueError, match="choose ganglion or torch"):
        new_race(held(), engines=("jax",))
    result = CliRunner().invoke(app, ["race", "mnist-mlp", "--pretrained"])
    assert result.exit_code == 2
    assert "--pretrained goes with" in result.output


@pytest.mark.rivals
@pytest.mark.slow
def test_pytorch_is_fine_tuned():
    pytest.importorskip("torch")
    pytest.importorskip("efficientnet_lite_pytorch")
    part = held().train
    data = {"x": part.x, "y": part.y, "x_test": part.x, "y_test": part.y}
    task = {"epochs": 6, "batch_size": 8, "threads": 1, "seed": 0, "classes": 2}
    result = pretrained_engines.fine_tuned(task, data)
    losses = [epoch[1] for epoch in result["epochs"]]
    assert losses[-1] < losses[0]
    assert json.dumps(result)
