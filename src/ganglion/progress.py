"""The progress of training: Keras' progress bar, a line per epoch, or JSON.

A bar is drawn on terminals and notebooks only; a log file gets the last line of every
epoch, without colours, so that it stays readable.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ganglion.config import is_interactive_logging_enabled
from ganglion.system.terminal import lines, printable

_BOLD, _GREEN, _GREY, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[37m", "\x1b[0m"
_ERASE_TO_END = "\x1b[K"


def print_message(
    message: str, line_break: bool = True, *, drawn: bool = False
) -> None:
    """Show a message on standard output, or log it when that was switched off.

    Args:
        message: The text; what a terminal would obey in it is shown instead.
        line_break: Whether to end the line.
        drawn: Whether it is a bar, which has colours, and names that were checked.
    """
    message = message if drawn else lines(message)
    if not is_interactive_logging_enabled():
        logging.getLogger("ganglion").info(message.strip("\r\n"))
        return
    text = f"{message}\n" if line_break else message
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a terminal without box characters
        encoding = sys.stdout.encoding or "utf-8"
        plain = text.replace("━", "=").encode(encoding, errors="replace")
        sys.stdout.write(plain.decode(encoding))
    sys.stdout.flush()


def number_text(value: float) -> str:
    """Return a metric as Keras prints it.

    >>> number_text(0.98854), number_text(0.00034)
    ('0.9885', '3.4000e-04')
    """
    return f"{value:.4f}" if abs(value) > 1e-3 else f"{value:.4e}"


def duration_text(seconds: float) -> str:
    """Return the time of one step as Keras prints it.

    >>> duration_text(2.4e-5), duration_text(0.0021), duration_text(3.0)
    ('24us', '2ms', '3s')
    """
    if seconds >= 1 or seconds == 0:
        return f"{seconds:.0f}s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.0f}ms"
    return f"{seconds * 1e6:.0f}us"


class Progbar:
    """The progress bar of Keras.

    Args:
        target: Number of steps expected, None if unknown.
        width: Number of characters of the bar.
        verbose: 0 silent, 1 a bar, 2 one line at the end.
        interval: Least time between two drawings, in seconds. Where there is no
            terminal, only the last update is printed; with 0, every one.
        stateful_metrics: Names whose values are running averages already, shown as
            they come; all others are averaged here.
        stateless_metrics: The other way round: the names to average here.
        unit_name: What a step is called.

    >>> bar = Progbar(8, verbose=2)
    >>> bar.update(8, [("loss", 0.25)])  # doctest: +ELLIPSIS
    8/8 - 0s - ...s/step - loss: 0.2500
    """

    def __init__(
        self,
        target: int | None,
        width: int = 20,
        verbose: int = 1,
        interval: float = 0.05,
        stateful_metrics: Iterable[str] | None = None,
        stateless_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
    ) -> None:
        if stateful_metrics is not None and stateless_metrics is not None:
            raise ValueError(
                "Only one of `stateful_metrics` (all other metrics are averaged) and "
                "`stateless_metrics` (only these are averaged) can be given."
            )
        self.target, self.width, self.verbose = target, width, verbose
        self.interval, self.unit_name = interval, unit_name
        self.stateful_metrics = set(stateful_metrics or ())
        self.stateless_metrics = (
            None if stateless_metrics is None else set(stateless_metrics)
        )
        self._animated = is_animated()
        self._coloured = self._animated and not os.environ.get("NO_COLOR")
        self._seen = 0
        # name: (sum, weight) of what is averaged, (value, 1) of what is shown as it is
        self._values: dict[str, tuple[float, int]] = {}
        self._start = _now()
        self._first_step_end: float | None = None
        self._last_drawn = -math.inf

    def update(
        self,
        current: int,
        values: Iterable[tuple[str, Any]] | None = None,
        finalize: bool | None = None,
    ) -> None:
        """Show that ``current`` steps are done; steps may come in jumps.

        Args:
            current: Number of steps done so far.
            values: Pairs of a metric's name and its value.
            finalize: Whether this is the last update; by default, once the target is
                reached.
        """
        if finalize is None:
            finalize = self.target is not None and current >= self.target
        self._take(current, values or (), finalize)
        now = _now()
        step_time = self._step_time(current, now)
        if self.verbose == 1:
            self._draw(current, now, step_time, finalize)
        elif self.verbose == 2 and finalize and self.target:
            line = f"{self._count(current)} - {now - self._start:.0f}s"
            line += f" - {duration_text(step_time)}/{self.unit_name}"
            print_message(line + self._metrics())

    def add(self, n: int, values: Iterable[tuple[str, Any]] | None = None) -> None:
        """Show that ``n`` more steps are done."""
        self.update(self._seen + n, values)

    def _take(
        self, current: int, values: Iterable[tuple[str, Any]], finalize: bool
    ) -> None:
        steps = max(current - self._seen, 1)
        for name, value in values:
            number = float(np.mean(value))
            if finalize or not self._is_averaged(name):
                self._values[name] = (number, 1)
            else:
                total, weight = self._values.get(name, (0.0, 0))
                self._values[name] = (total + number * steps, weight + steps)
        self._seen = current

    def _is_averaged(self, name: str) -> bool:
        if self.stateless_metrics is not None:
            return name in self.stateless_metrics
        return name not in self.stateful_metrics

    def _step_time(self, current: int, now: float) -> float:
        """Return seconds per step, leaving out the first, which often compiles."""
        if not current:
            return 0.0
        if self._first_step_end is not None and current > 1:
            return (now - self._first_step_end) / (current - 1)
        if current == 1:
            self._first_step_end = now
        return (now - self._start) / current

    def _draw(self, current: int, now: float, step_time: float, last: bool) -> None:
        # If a line cannot be redrawn, updates are printed only with an interval of 0.
        is_due = now - self._last_drawn >= self.interval
        if not last and not (is_due and (self._animated or self.interval == 0)):
            return
        self._last_drawn = now
        if last or not self.target:
            clock = f"{now - self._start:.0f}s"
        else:
            clock = eta_text(step_time * (self.target - current))
        head = self._bar(current) + f" {self._painted(_BOLD, clock)}"
        rest = f" {duration_text(step_time)}/{self.unit_name}" + self._metrics()
        if not self._animated:
            print_message(head + rest, drawn=True)
            return
        if not last:  # a line that wraps cannot be drawn over
            rest = rest[: max(_columns() - self._head_length(clock), 0)]
        end = "\n" if last else ""
        text = f"\r{head}{rest}{_ERASE_TO_END}{end}"
        print_message(text, line_break=False, drawn=True)

    def _bar(self, current: int) -> str:
        if not self.target:
            return f"{current:7d}/Unknown"
        done = min(int(self.width * current / self.target), self.width)
        bar = self._painted(_BOLD, self._count(current)) + " "
        if done:
            bar += self._painted(_GREEN, "━" * done)
        return bar + self._painted(_GREY, "━" * (self.width - done))

    def _head_length(self, clock: str) -> int:
        bar = len(str(self.target)) * 2 + 2 + self.width if self.target else 15
        return bar + 1 + len(clock)

    def _count(self, current: int) -> str:
        return f"{current:{len(str(self.target))}d}/{self.target}"

    def _painted(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._coloured else text

    def _metrics(self) -> str:
        return "".join(
            f" - {printable(name)}: {number_text(total / max(weight, 1))}"
            for name, (total, weight) in self._values.items()
        )


class StepLog:
    """One line an epoch: train / test of every metric, the epoch, its time.

    >>> logs = {"accuracy": 0.7719, "loss": 0.6688, "val_loss": 0.3229}
    >>> StepLog().line(1, logs, 1.75)
    'loss: 0.6688 / 0.3229    accuracy: 0.7719    step 1  1.75 sec'
    """

    def line(self, epoch: int, logs: Mapping[str, Any], seconds: float) -> str:
        """Return the line; epochs count from 1."""
        names = [name for name in logs if not name.startswith("val_")]
        names.sort(key=lambda name: name != "loss")
        groups = []
        for name in names:
            text = f"{printable(name)}: {number_text(logs[name])}"
            if f"val_{name}" in logs:
                text += f" / {number_text(logs[f'val_{name}'])}"
            groups.append(text)
        groups.append(f"step {epoch}  {seconds:.2f} sec")
        return "    ".join(groups)

    def epoch(self, epoch: int, logs: Mapping[str, Any], seconds: float) -> None:
        """Show the end of an epoch."""
        print_message(self.line(epoch, logs, seconds))


class JsonLog:
    """One JSON object a line: the epoch (from 1), all metrics, the seconds it took.

    Args:
        path: A file to append to; standard output by default.

    >>> JsonLog().line(1, {"loss": 0.5}, 1.25)
    '{"epoch": 1, "loss": 0.5, "seconds": 1.25}'
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = path

    def line(self, epoch: int, logs: Mapping[str, Any], seconds: float) -> str:
        """Return the line; numbers that are not finite become null, JSON has none."""
        entry: dict[str, Any] = {"epoch": epoch}
        entry.update({name: _json_value(value) for name, value in logs.items()})
        entry["seconds"] = round(seconds, 6)
        return json.dumps(entry, allow_nan=False)

    def epoch(self, epoch: int, logs: Mapping[str, Any], seconds: float) -> None:
        """Write the end of an epoch."""
        line = self.line(epoch, logs, seconds)
        if self.path is None:
            print_message(line)
            return
        # A log grows by a line: replacing the file atomically would rewrite all of it.
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def _json_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return list(map(_json_value, value.tolist()))
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def eta_text(seconds: float) -> str:
    """Return the time left as 5s, 1:05 or 1:02:05.

    >>> eta_text(5), eta_text(65), eta_text(3725)
    ('5s', '1:05', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    if seconds > 3600:
        return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}" if seconds > 60 else f"{int(seconds)}s"


def is_animated() -> bool:
    """Return whether a line can be drawn over: a terminal, a notebook, PyCharm."""
    is_notebook = "ipykernel" in sys.modules or "PYCHARM_HOSTED" in os.environ
    return is_interactive_logging_enabled() and (_on_terminal() or is_notebook)


def _on_terminal() -> bool:
    return bool(getattr(sys.stdout, "isatty", lambda: False)())


def _columns() -> int:
    """Return how wide an animated line may be; notebooks wrap by themselves."""
    return shutil.get_terminal_size().columns - 1 if _on_terminal() else 10_000


def _now() -> float:
    return time.monotonic()
