"""Progress of a race: plain lines, or a live table in a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from ganglion.race.figures import settings_text
from ganglion.race.results import Epoch, Run
from ganglion.system import terminal
from ganglion.system.terminal import cell, lines

REFRESHES = 2  # a second; drawing takes time from the engines


class Watch:
    """Shows everything in plain lines on standard error; the base of live watches."""

    score = "accuracy"  # what a test is judged by

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def says(self, engine: str, text: str) -> None:
        """Show something about an engine, or about the race ("")."""
        lead = f"{engine}: " if engine else ""
        print(lines(f"{lead}{text}"), file=sys.stderr, flush=True)

    def training(self, engine: str, run: int, epoch: int, epochs: int) -> None:
        """Show that an epoch begins."""

    def tested(self, engine: str, run: int, epoch: Epoch) -> None:
        """Show the results of an epoch."""
        tested = f"test {self.score} {epoch.tested(self.score):.4f}"
        self.says(
            engine,
            f"run {run}, epoch {epoch.number}: loss {epoch.train_loss:.4f}, {tested}, "
            f"{epoch.train_seconds:.2f} s + {epoch.test_seconds:.2f} s",
        )

    def at_work(self, engine: str, tasks: list[str]) -> None:
        """Show what an engine is doing on a cluster; plain lines have shown it."""

    def finished(self, run: Run) -> None:
        """Show that a run is over."""
        if run.done:
            ending = (
                f"{run.seconds:.2f} s, test {self.score} {run.tested(self.score):.4f}"
            )
        else:
            ending = f"failed: {run.reason}"
        point = f" ({settings_text(run.settings)})" if run.settings else ""
        where = f" on {run.where}" if run.where else ""
        self.says(run.engine, f"run {run.number}{point}: {ending}{where}")


class Quiet(Watch):
    """Shows nothing."""

    def says(self, engine: str, text: str) -> None:
        pass


class _Row:
    """The line of an engine in the live table."""

    def __init__(self) -> None:
        self.state, self.began = "waits", 0.0
        self.ended: list[str] = []

    def text(self) -> str:
        """Return the state, with its seconds so far if it is still going on."""
        if not self.began:
            return self.state
        return f"{self.state} {time.monotonic() - self.began:.0f} s"


class LiveWatch(Watch):
    """A table with a line for each engine, redrawn as things happen."""

    def __init__(self, engines: tuple[str, ...], runs: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self._rows = {name: _Row() for name in engines}
        self._runs = runs
        self._console = Console(stderr=True)
        self._live = Live(
            console=self._console,
            refresh_per_second=REFRESHES,
            get_renderable=self._table,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.stop()

    def _table(self) -> Any:
        from rich.table import Table

        table = Table("engine", "runs", "now", box=None, pad_edge=False)
        for name, row in self._rows.items():
            table.add_row(*map(cell, (name, "  ".join(row.ended), row.text())))
        terminal.fit(table, self._console.width)
        return table

    def says(self, engine: str, text: str) -> None:
        if engine not in self._rows:
            line = f"{engine}: {text}" if engine else text
            self._console.print(lines(line), markup=False)
            return
        row = self._rows[engine]
        row.state = text
        is_over = text.startswith(("agrees", "left out"))
        row.began = 0.0 if is_over else time.monotonic()

    def at_work(self, engine: str, tasks: list[str]) -> None:
        if engine in self._rows and tasks:
            self._rows[engine].state = "\n".join(tasks)
            self._rows[engine].began = 0.0

    def training(self, engine: str, run: int, epoch: int, epochs: int) -> None:
        result = self._rows[engine].state.partition("; ")[2] if epoch > 1 else ""
        text = f"run {run} of {self._runs}, epoch {epoch} of {epochs}"
        self.says(engine, f"{text}; {result}" if result else text)

    def tested(self, engine: str, run: int, epoch: Epoch) -> None:
        row = self._rows[engine]
        row.state = f"run {run}; test {self.score} {epoch.tested(self.score):.4f}"

    def finished(self, run: Run) -> None:
        row = self._rows[run.engine]
        row.ended.append(f"{run.seconds:.2f} s" if run.done else "failed")
        row.state, row.began = ("waits" if run.done else run.reason), 0.0
        if run.number == self._runs and run.done:
            row.state = f"done; test {self.score} {run.tested(self.score):.4f}"


def watch_for(engines: tuple[str, ...], runs: int, score: str) -> Watch:
    """Return a live table on a terminal, else plain lines."""
    watch = LiveWatch(engines, runs) if sys.stderr.isatty() else Watch()
    watch.score = score
    return watch
