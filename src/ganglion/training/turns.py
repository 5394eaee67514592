"""Threads that use one model take turns, a chunk of steps each.

`predict` and `evaluate` may be called from any number of threads, also while another
one trains. But a step reads weights that another step writes, and the sums of metrics
are variables of the model: so one thread runs at a time, and each finds the metrics as
it left them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion.system import forks
from ganglion.variables import Variable


@dataclass
class _Session:
    """What a thread is in the middle of: `evaluate`, or a `fit` that may call it."""

    depth: int = 0
    fits: int = 0
    sums: dict[Variable, np.ndarray] | None = None  # while others have their turns


class Turns:
    """Whose turn it is to use a model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._running, self._queue = threading.Lock(), threading.Lock()
        self._owner: int | None = None  # the thread that is running now
        self._sessions: dict[threading.Thread, _Session] = {}
        self._last: threading.Thread | None = None  # whose sums the metrics hold

    @contextmanager
    def take(self) -> Iterator[None]:
        """Use the model while no other thread does; a turn within a turn is the same.

        Callbacks run between turns: they may wait for other threads.
        """
        if self._owner == threading.get_ident():
            yield
            return
        with forks.held_off():
            with self._queue:  # who takes turn after turn lets those in who wait
                self._running.acquire()
            try:
                self._owner = threading.get_ident()
                self._switch(threading.current_thread())
                yield
            finally:
                self._owner = None
                self._running.release()

    def _switch(self, thread: threading.Thread) -> None:
        """Give the metrics the sums of the thread whose turn it is."""
        before, self._last = self._last, thread
        if before is thread:
            return
        if before in self._sessions:
            self._sessions[before].sums = {
                variable: variable.numpy()
                for metric in self._model.metrics
                for variable in metric.variables
            }
        session = self._sessions.get(thread)
        if session is not None and session.sums is not None:
            self._model.reset_metrics()  # some may be newer than the sums
            for variable, array in session.sums.items():
                variable.assign(array)
            session.sums = None

    @contextmanager
    def session(self, *, fits: bool = False) -> Iterator[None]:
        """Keep this thread's metrics apart from those of others inside of this block.

        A model can be trained by one thread at a time only.
        """
        thread = threading.current_thread()
        with self.take():
            if fits:
                self.refuse_training("fit")
            own = self._sessions.setdefault(thread, _Session())
            own.depth += 1
            own.fits += fits
        try:
            yield
        finally:
            own.depth -= 1
            own.fits -= fits
            if not own.depth:
                self._sessions.pop(thread, None)

    def refuse_training(self, verb: str) -> None:
        """Raise an error if another thread is training the model."""
        here = threading.current_thread()
        for thread, session in list(self._sessions.items()):
            # One that is not alive was left behind by a fork.
            if session.fits and thread is not here and thread.is_alive():
                raise RuntimeError(
                    f'`{verb}`: the model "{self._model.name}" is being trained by '
                    f'another thread ("{thread.name}"), and only one can train it at a '
                    "time. Wait until that `fit` returns, or train a copy: "
                    "models.clone_model(model)."
                )
