"""Messages of commands at work, and how a command ends after Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ganglion.system import terminal

INTERRUPTED = 130  # a shell's status of a program that Ctrl-C ended


def say(text: str) -> None:
    """Print a message to standard error; results go to standard output."""
    if text:
        print(terminal.lines(text), file=sys.stderr, flush=True)


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None] | None]:
    """Show the progress of decoding on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("decoding images", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something is at work."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(terminal.printable(what)):
        yield
