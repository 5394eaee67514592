"""The command, run in a process of its own on a small recipe."""

import os
import subprocess
import sys

from folders import SUPPORT

import ganglion


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


def weights_of(path):
    return ganglion.models.load_model(path).get_weights()
