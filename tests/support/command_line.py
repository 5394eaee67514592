"""The command, run in a process of its own on a small recipe."""

import os
import subprocess
import sys
from types import SimpleNamespace

from folders import SUPPORT
from typer.testing import CliRunner

import ganglion
from ganglion.cli.app import app


def command(*arguments, small=True):
    start = [str(SUPPORT / "cli_small.py")] if small else ["-m", "ganglion.cli.app"]
    return [sys.executable, *start, *map(str, arguments)]


def run(*arguments, small=True, **env):
    return subprocess.run(
        command(*arguments, small=small),
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )


def here(*arguments):
    """Run the command in this process, as its user sees it."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    error = done.exception
    if error is not None and not isinstance(error, SystemExit):
        return SimpleNamespace(returncode=1, stdout=done.stdout, stderr=str(error))
    return SimpleNamespace(
        returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr
    )


def weights_of(path):
    return ganglion.models.load_model(path).get_weights()
