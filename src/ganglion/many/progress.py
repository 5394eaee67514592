"""The progress of training many models: how many are done, the best, the time left."""

from __future__ import annotations

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

    def __init__(self, verbose: Any = "auto", monitor: str | None = None) -> None:
        self._verbose = 1 if verbose in ("auto", True) else int(verbose)
        self._is_drawn = self._verbose == 1 and is_animated()
        self._monitor = monitor
        self._lock = threading.Lock()
        self._done: list[Member] = []
        self._epochs_done = 0  # of all models
        self._epochs_left = 0

    def begin(self, plans: Sequence[ModelPlan], epochs: int) -> None:
        """Start with all plans; `epochs` is for those that do not set their own."""
        self._start = time.monotonic()
        self._planned = {p.index: p.for_fit.get("epochs", epochs) for p in plans}
        self._epochs_left = sum(self._planned.values())

    def count_epoch(self, models: int = 1) -> None:
        """Count an epoch of some models."""
        with self._lock:
            self._epochs_done += models
            self._epochs_left -= models

    def finished(self, member: Member, was_there: bool = False) -> None:
        """Add a model that was finished, now or by an earlier call."""
        with self._lock:
            self._done.append(member)
            counted = 0 if was_there else len(member.history.epoch)
            # It may have stopped early.
            self._epochs_left -= self._planned[member.index] - counted
            if self._verbose == 2:
                print_message(self._line_of(member))

    def _line_of(self, member: Member) -> str:
        logs = {k: v for k, v in member.logs.items() if isinstance(v, float)}
        text = "  ".join(f"{printable(k)}: {number_text(v)}" for k, v in logs.items())
        setting = {k: v for k, v in member.row().items() if k in member.setting}
        shown = " ".join(f"{name}={value}" for name, value in setting.items())
        text = f"{len(self._done)}/{self.total}  {printable(shown)}  {text}"
        return f"{text}  {printable(member.message)}" if member.message else text

    @property
    def done(self) -> ModelSet:
        """The finished models, in the order in which they finished."""
        with self._lock:
            return ModelSet(self._done)

    @property
    def total(self) -> int:
        """How many models there are."""
        return len(self._planned)

    @property
    def time_left(self) -> str:
        """The estimated time left as text, "" if it is not known."""
        if not self._epochs_done or self._epochs_left <= 0:
            return ""
        each = (time.monotonic() - self._start) / self._epochs_done
        return f"{eta_text(each * self._epochs_left)} left"

    def line(self) -> str:
        """Return the progress as a line."""
        text = f"{len(self.done)}/{self.total} models  {self._best()}".rstrip()
        return f"{text}  {self.time_left}".rstrip()

    def _best(self) -> str:
        done = self.done
        try:
            best = done.best(self._monitor)
        except ValueError:  # there is none yet, or the metric's direction is unknown
            return ""
        name = done.monitor(self._monitor)
        value = number_text(best.logs[name])
        return f"best {printable(name)}: {value} ({printable(best.name)})"

    def show(self) -> None:
        """Draw the line."""
        if self._is_drawn:
            print_message(f"{_ERASE}{self.line()}", line_break=False, drawn=True)

    def end(self) -> None:
        """Print the final line."""
        if self._verbose != 1:
            return
        seconds = time.monotonic() - self._start
        lead = _ERASE if self._is_drawn else ""
        print_message(f"{lead}{self.line()}  {seconds:.1f} s", drawn=True)
        sys.stdout.flush()
