"""Downloads over HTTP: quick to give up on a dead host, patient with a slow one.

Progress goes to a bar on a terminal, else to a single line in a log.
"""

import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ganglion.system.terminal import lines

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from rich.progress import Progress, TaskID

OPEN_SECONDS = 4.0
STALL_SECONDS = 10.0
LEAST_BYTES_PER_STALL = 8192
PIECE = 1 << 18


class SourceError(Exception):
    """A source could not give its data; the text is the reason, in one line."""


class Report:
    """The progress of sources; silent unless it holds a bar."""

    def __init__(self, bar: "Progress | None" = None) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def begin(self, task: str, total: int | None = None) -> None:
        """Start over with a new task; ``total`` bytes when the size is known."""
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(lines(task), total=total)

    def advance(self, count: int) -> None:
        """Count ``count`` more bytes."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, count)


def say(line: str) -> None:
    """Print a line for the person at the terminal, where there is one."""
    if sys.stderr is not None:
        print(lines(f"ganglion: {line}"), file=sys.stderr, flush=True)


@contextmanager
def fetching() -> Iterator[Report]:
    """Show a progress bar while a data set is fetched.

    >>> with fetching() as report:  # doctest: +SKIP
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
            """Nothing for npm and apt, which do not report progress."""
            return super().render(task) if task.completed else Text()

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        Size(),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def download(url: str, report: Report) -> bytes:
    """Fetch a URL into memory.

    >>> download("https://example.org/mnist.npz", Report())  # doctest: +SKIP
    """
    from http.client import HTTPException

    data = bytearray()
    try:
        with _opened(url) as response:
            total = response.length
            report.begin(url.rsplit("/", 1)[-1], total)
            mark, mark_size = time.monotonic(), 0
            while piece := response.read1(PIECE):
                data += piece
                report.advance(len(piece))
                if time.monotonic() - mark > STALL_SECONDS:
                    if len(data) - mark_size < LEAST_BYTES_PER_STALL:
                        raise TimeoutError
                    mark, mark_size = time.monotonic(), len(data)
    except TimeoutError as error:
        raise SourceError(f"stalled after {len(data):,} bytes") from error
    except (OSError, HTTPException) as error:
        raise SourceError(f"broke off after {len(data):,} bytes") from error
    if total is not None and len(data) != total:
        raise SourceError(f"broke off after {len(data):,} of {total:,} bytes")
    return bytes(data)


def _opened(url: str) -> "HTTPResponse":
    """Open a URL within ``OPEN_SECONDS``, looking up its name included.

    A timeout of the socket does not cover the name server, which can take half a
    minute to fail where there is no network. Hence a thread, left behind if late.
    """
    answers: queue.SimpleQueue[HTTPResponse | SourceError] = queue.SimpleQueue()
    abandoned = threading.Event()

    def ask() -> None:
        answer = _ask(url)
        if abandoned.is_set() and not isinstance(answer, SourceError):
            answer.close()
        answers.put(answer)

    threading.Thread(target=ask, name="ganglion-download", daemon=True).start()
    try:
        answer = answers.get(timeout=OPEN_SECONDS)
    except queue.Empty:
        abandoned.set()
        raise SourceError(f"no answer within {OPEN_SECONDS:g} s") from None
    if isinstance(answer, SourceError):
        raise answer
    return answer


def _ask(url: str) -> "HTTPResponse | SourceError":
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    request = Request(url, headers={"User-Agent": "ganglion-datasets"})
    try:
        response: HTTPResponse = urlopen(request, timeout=STALL_SECONDS)
    except HTTPError as error:
        error.close()
        return SourceError(f"HTTP {error.code} {error.reason}")
    except URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        return SourceError(f"no connection: {reason}")
    except (OSError, HTTPException, ValueError) as error:
        return SourceError(f"no connection: {error or type(error).__name__}")
    return response
