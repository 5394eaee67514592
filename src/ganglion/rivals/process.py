"""The other end of a worker's pipes: start it, ask it, end it, read its log."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from ganglion.rivals import Engine

LIMIT = 600.0  # seconds for an answer; compiling can take minutes on a busy machine
LOG_LINES = 12


class EngineError(RuntimeError):
    """An engine that crashed, hung or said something else than an answer."""


class Process:
    """A worker with one engine in one of its forms."""

    def __init__(self, module: str, form: str, threads: int, log: Path) -> None:
        self._log = log
        with log.open("w") as target:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ganglion.rivals.worker", module, form],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=target,
                text=True,
                env=environment(threads),
                start_new_session=True,  # Ctrl-C is for us, who then end it
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def ask(self, do: str, limit: float | None = None, **given: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        limit = LIMIT if limit is None else limit
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **given}) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self.end()
            raise EngineError(f"no answer within {limit:.3g} s") from None
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise EngineError(f"ended with {ending(code)}\n{self.log_end()}")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            self.end()
            raise EngineError(f"answered {line.strip()[:200]!r}") from None
        return answer

    def log_end(self) -> str:
        """Return the last lines that the engine printed."""
        text = self._log.read_text(errors="replace")
        return "\n".join(text.strip().splitlines()[-LOG_LINES:])

    def end(self) -> None:
        """End the process and those it started."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def ending(code: int) -> str:
    """Say how a process ended.

    >>> ending(1), ending(-9)
    ('exit code 1', 'signal SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}"


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker: the same number of threads for everyone."""
    count = str(threads)
    given = {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "GANGLION_THREADS": count,
        "GANGLION_BACKEND": "cpu",
        "TF_NUM_INTRAOP_THREADS": count,
        "TF_NUM_INTEROP_THREADS": count,
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()}",
        "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_PLATFORMS": "cpu",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    return os.environ | given


def start(engine: Engine, form: str, threads: int, folder: Path) -> Process:
    """Start a worker for an engine in one of its forms, its log in a folder."""
    log = folder / f"{engine.name}-{form.replace(' ', '-')}.log"
    return Process(engine.module, form, threads, log)
