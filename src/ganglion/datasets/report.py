"""What a fetch tells the person who waits: a bar on a terminal, else a single line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ganglion.system.terminal import lines

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Report:
    """Where sources say how far they are; silent unless it holds a bar."""

    def __init__(self, bar: "Progress | None" = None) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def begin(self, what: str, total: int | None = None) -> None:
        """Start over with a new task; ``total`` bytes when the size is known."""
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(lines(what), total=total)

    def advance(self, count: int) -> None:
        """Count ``count`` more bytes."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, count)


def say(line: str) -> None:
    """Print a line for the person at the terminal, where there is one."""
    if sys.stderr is not None:
        print(lines(f"ganglion: {line}"), file=sys.stderr, flush=True)


@contextmanager
def fetching(title: str) -> Iterator[Report]:
    """Show a progress bar while a data set is fetched.

    >>> with fetching("MNIST") as report:  # doctest: +SKIP
    ...     report.begin("mnist.npz", total=100)
    ...     report.advance(40)
    """
    if sys.stderr is None or not sys.stderr.isatty():
        # A log gets one line, from the caller, once it is known how the fetch ended.
        yield Report()
        return
    with _bar() as bar:
        yield Report(bar)


def _bar() -> "Progress":
    # Rich costs a tenth of a second to import, and only a real fetch needs it.
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Size(progress.DownloadColumn):
        def render(self, task: progress.Task) -> Text:
            """Nothing for npm and apt, which do not say how far they are."""
            return super().render(task) if task.completed else Text()

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        Size(),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
