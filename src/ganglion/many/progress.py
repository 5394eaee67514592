"""What training many models shows: how many are done, the best so far, time left."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from ganglion.many.model_set import Member, ModelSet
from ganglion.many.settings import ModelPlan
from ganglion.progress import eta_text, is_animated, number_text, print_message
from ganglion.system.terminal import printable

_ERASE = "\r\x1b[K"


class Progress:
    """One line that is drawn over, or a line a model."""

    def __init__(
        self,
        plans: Sequence[ModelPlan],
        epochs: int,
        verbose: Any = "auto",
        monitor: str | None = None,
    ) -> None:
        self._verbose = 1 if verbose in ("auto", True) else int(verbose)
        self._is_drawn = self._verbose == 1 and is_animated()
        self._monitor = monitor
        self._models = len(plans)
        self._epochs = sum(plan.for_fit.get("epochs", epochs) for plan in plans)
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._done: list[Member] = []
        self._epochs_done = 0  # of all models
        self._skipped = 0  # of models that stopped early, or were there before
        self._seen: dict[int, int] = {}
        self._planned = {p.index: p.for_fit.get("epochs", epochs) for p in plans}

    def count_epoch(self) -> None:
        """Count an epoch of some model."""
        with self._lock:
            self._epochs_done += 1

    def finished(self, member: Member) -> None:
        """Take a model that is finished."""
        with self._lock:
            self._done.append(member)
            ran = len(member.history.epoch)
            self._skipped += max(0, self._planned[member.index] - ran)
            if self._verbose == 2:
                print_message(self._line_of(member))

    def _line_of(self, member: Member) -> str:
        logs = {k: v for k, v in member.logs.items() if isinstance(v, float)}
        text = "  ".join(f"{printable(k)}: {number_text(v)}" for k, v in logs.items())
        setting = {k: v for k, v in member.row().items() if k in member.setting}
        shown = " ".join(f"{name}={value}" for name, value in setting.items())
        text = f"{len(self._done)}/{self._models}  {printable(shown)}  {text}"
        return f"{text}  {printable(member.message)}" if member.message else text

    def line(self) -> str:
        """Return how far the set is."""
        with self._lock:
            done, epochs = list(self._done), self._epochs_done
            left = self._epochs - self._skipped - epochs
        text = f"{len(done)}/{self._models} models"
        if done:
            finished = ModelSet(done)
            values = finished.values(self._monitor)
            if not all(map(math.isnan, values)):
                try:
                    best = finished.best(self._monitor)
                except ValueError:  # nobody knows which is better
                    return text
                name = finished.monitor(self._monitor)
                value = number_text(best.logs[name])
                text += f"  best {printable(name)}: {value} ({printable(best.name)})"
        if epochs and left > 0:
            seconds = (time.monotonic() - self._start) / epochs * left
            text += f"  {eta_text(seconds)} left"
        return text

    def show(self) -> None:
        """Draw the line."""
        if self._is_drawn:
            print_message(f"{_ERASE}{self.line()}", line_break=False, drawn=True)

    def end(self, finished: ModelSet) -> None:
        """Show the last line, and let it stand."""
        if self._verbose != 1:
            return
        seconds = time.monotonic() - self._start
        lead = _ERASE if self._is_drawn else ""
        print_message(f"{lead}{self.line()}  {seconds:.1f} s", drawn=True)
        sys.stdout.flush()
