"""Helpers for tests of races and benches: noise as data, fake engines, Ctrl-C."""

import os
import signal
import subprocess
import sys

import forked_workers
import numpy as np
import pytest
from folders import SUPPORT, SUPPORT_PATHS
from typer.testing import CliRunner

from ganglion import recipes
from ganglion.cli.app import app
from ganglion.race import lockstep, run_race
from ganglion.race.engines import Engine, process

RECIPE = recipes.get("mnist-perceptron")


def noise(recipe, rows=256):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (rows, *recipe.input_shape)).astype("uint8")
    data = recipes.prepared(recipe, x, rng.integers(0, recipe.classes, rows))
    return data, data, None


def take_noise(monkeypatch):
    """Let recipes have noise as data, and workers find the fake engines."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([*SUPPORT_PATHS, os.getenv("PYTHONPATH", "")])
    )
    monkeypatch.setattr(recipes, "load", noise)
    monkeypatch.setattr(process, "start_worker", forked_workers.start_worker)


@pytest.fixture(autouse=True)
def small_race(monkeypatch):
    """Make races short, in every module that imports this."""
    take_noise(monkeypatch)
    monkeypatch.setattr(run_race, "PAUSE", 0.0)
    monkeypatch.setattr(lockstep, "TRIALS", 1)


def fake(name, *forms, packages=(), install="", module="race_fakes"):
    return Engine(name, module, packages, forms, install)


def ends(race):
    return {(run.engine, run.number): run.status for run in race.finished}


def start(folder, *arguments):
    """Start `ganglion race` with fake engines as a program of its own."""
    command = [
        sys.executable,
        str(SUPPORT / "race" / "race_small.py"),
        "race",
        *arguments,
    ]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def refused(*arguments):
    """Return the error of `ganglion race`, which begins no race."""
    done = CliRunner().invoke(app, ["race", *map(str, arguments)])
    assert isinstance(done.exception, ValueError), done.output
    return str(done.exception)


def interrupted(process, words, excuse=None):
    """Press Ctrl-C as soon as a line begins so; return all that it printed.

    It may only end in another way than by Ctrl-C if it prints an excuse.
    """
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith(words):
            process.send_signal(signal.SIGINT)
            break
    out, rest = process.communicate(timeout=60)
    output = "".join(lines) + rest
    if excuse is not None and excuse in output:
        return out
    assert process.returncode == 130, output
    assert "Go on with: ganglion race --resume here" in output
    assert "Traceback" not in output
    return out


def drawn(watch):
    """Return the live table of a watch as text."""
    from rich.console import Console

    console = Console(width=100, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    console.print(watch._table())
    console.file.close()
    return console.export_text()
