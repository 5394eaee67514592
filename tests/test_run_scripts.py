"""Scripts as users write them, through `ganglion run` and through Keras 3.15.

They run in two processes, one with Ganglion and one with Keras, whose printed losses
are compared line by line. Those called `keras2_*` are written for Keras 2, which
Keras 3 does not run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from folders import ROOT
from script_worker import ANSWER

FOLDER = ROOT / "tests" / "scripts"
WORKER = ROOT / "tests" / "support" / "script_worker.py"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
pytestmark = pytest.mark.rivals
NUMBER = re.compile(r"(.+): (-?\d+\.\d+(?:e[+-]?\d+)?)$")


class Worker:
    """A process that runs scripts with one framework, begun when it is needed."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._process: subprocess.Popen[str] | None = None

    def _started(self) -> subprocess.Popen[str]:
        settings = {
            **os.environ,
            "GANGLION_BACKEND": os.environ.get("GANGLION_BACKEND", "numpy"),
            "PYTHONPATH": str(ROOT / "src"),
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        return subprocess.Popen(
            [sys.executable, str(WORKER), self._framework],
            env=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def printed(self, name: str) -> dict[str, Any]:
        """Return what a script printed, and why it failed if it did."""
        if self._process is None:
            self._process = self._started()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{FOLDER / name}.py\n")
        self._process.stdin.flush()
        said = []
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
            said.append(line)
        pytest.fail(f"{self._framework} ended: {''.join(said)[-3000:]}")

    def end(self) -> None:
        """Let the process end."""
        if self._process is not None:
            self._process.communicate()


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Worker]]:
    frameworks = ["ganglion"]
    if importlib.util.find_spec("tensorflow") is not None:
        frameworks.append("keras")
    processes = {framework: Worker(framework) for framework in frameworks}
    yield processes
    for process in processes.values():
        process.end()


def numbers(lines: list[str]) -> dict[str, float]:
    matches = map(NUMBER.match, lines)
    return {match[1]: float(match[2]) for match in matches if match}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_script_prints_what_it_prints_with_keras(name, workers):
    ours = workers["ganglion"].printed(name)
    assert not ours["failure"], ours["failure"]
    losses = numbers(ours["lines"])
    assert any("loss" in key for key in losses)
    assert all(map(pytest.approx(0, abs=1e6).__eq__, losses.values()))
    if name.startswith("keras2_") or "keras" not in workers:
        return
    theirs = workers["keras"].printed(name)
    assert not theirs["failure"], theirs["failure"]
    assert losses == pytest.approx(numbers(theirs["lines"]), rel=2e-3, abs=2e-4)
    rest = [[x for x in run["lines"] if not NUMBER.match(x)] for run in (ours, theirs)]
    assert rest[0] == rest[1]
