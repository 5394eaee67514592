"""The parent's side of a worker: start it, send requests, end it, read its log."""

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
from typing import IO, Any

from ganglion.race.engines import Engine

LIMIT = 600.0  # seconds for an answer; compiling can take minutes on a busy machine
LOG_LINES = 12
WORKER = Path(__file__).with_name("worker.py")
_NO_MEMORY = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory",
              "RESOURCE_EXHAUSTED", "can't allocate memory")  # fmt: skip


class EngineError(RuntimeError):
    """An engine that crashed, hung or sent something else than an answer."""

    def __init__(self, reason: str, log_end: str = "") -> None:
        super().__init__(f"{reason}\n{log_end}" if log_end else reason)
        self.reason, self.log_end = reason, log_end


class Process:
    """A worker with an engine in one of its forms."""

    def __init__(
        self,
        module: str,
        form: str,
        threads: int,
        log: Path,
        variables: dict[str, str] | None = None,
        device: str = "cpu",
    ) -> None:
        self._log = log
        command = [sys.executable, "-P", str(WORKER), module, form]
        with log.open("w") as target:  # a process writes it line by line
            self._process = start_worker(
                command, environment(threads, device) | (variables or {}), target
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def ask(self, do: str, limit: float | None = None, **more: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        limit = LIMIT if limit is None else limit
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self.end()
            raise EngineError(
                f"no answer within {limit:.3g} s", self.log_end()
            ) from None
        except BrokenPipeError:
            line = ""
        if not line:
            reason = f"ended with {ending(self._process.wait())}"
            if any(sign in self.log_end() for sign in _NO_MEMORY):
                reason = f"ran out of memory, {reason}"
            raise EngineError(reason, self.log_end())
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.end()
            raise EngineError(f"answered {line.strip()[:200]!r}", self.log_end())
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
            # It may end by itself just now: its input was closed.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def start_worker(command: list[str], env: dict[str, str], log: IO[str]) -> Any:
    """Start a program with pipes to us, and with a log of what it prints."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=env,
        start_new_session=True,  # only this process gets Ctrl-C, and ends the worker
    )


def ending(code: int) -> str:
    """Return how a process ended.

    >>> ending(1), ending(-9)
    ('exit code 1', 'signal SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}"


def environment(threads: int, device: str = "cpu") -> dict[str, str]:
    """Return the environment of a worker: the same number of threads for everyone."""
    count = str(threads)
    variables = {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "GANGLION_THREADS": count,
        "TF_NUM_INTRAOP_THREADS": count,
        "TF_NUM_INTEROP_THREADS": count,
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    if device == "cpu":
        several = str(threads > 1).lower()
        variables |= {
            "GANGLION_BACKEND": "cpu",
            "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={several}",
            "CUDA_VISIBLE_DEVICES": "-1",
            "JAX_PLATFORMS": "cpu",
        }
    else:  # JAX would reserve three quarters of the device's memory
        variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return os.environ | variables


def start(
    engine: Engine, form: str, threads: int, folder: Path, device: str = "cpu"
) -> Process:
    """Start a worker for an engine in one of its forms, its log in a folder."""
    log = folder / f"{engine.name}-{form.replace(' ', '-')}.log"
    return Process(engine.module, form, threads, log, engine.variables(form), device)
