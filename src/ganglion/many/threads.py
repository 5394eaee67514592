"""Python threads that share tasks; the compiled steps of each use their own threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ganglion import config
from ganglion.training.fit_loop import Interrupt, Supervisor, supervised

T = TypeVar("T")
R = TypeVar("R")
POLL_SECONDS = 0.1


def workers_for(tasks: int, threads: int | None) -> tuple[int, int]:
    """Return the number of workers and the number of threads each may use.

    >>> workers_for(100, 2), workers_for(1, 4), workers_for(3, 8)
    ((2, 1), (1, 4), (3, 2))
    """
    total = (
        config.threads() if threads is None else config.threads_of(threads, "threads")
    )
    workers = max(1, min(tasks, total))
    return workers, max(1, total // workers)


class Workers:
    """Threads that take tasks until none is left, a task fails, or Ctrl-C."""

    def __init__(self, count: int, threads_each: int) -> None:
        self._count, self._threads_each = count, threads_each
        self._error: BaseException | None = None
        self.interrupt = Interrupt()

    @property
    def is_stopped(self) -> bool:
        """Whether no new task is to be taken."""
        return self._error is not None or self.interrupt.requested

    def run(self, work: Callable[[], None], wait: Callable[[], None]) -> None:
        """Run `work` in every thread, and `wait` here until all are done.

        An error in a thread stops the others after their chunk of steps, and is
        raised here.
        """
        threads = [
            threading.Thread(
                target=self._run, args=(work,), name=f"ganglion-many-{n}", daemon=True
            )
            for n in range(self._count)
        ]
        with self.interrupt:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(POLL_SECONDS)
                    wait()
        if self._error is not None:
            raise self._error

    def _run(self, work: Callable[[], None]) -> None:
        supervisor = Supervisor(self.interrupt, warned)
        try:
            with config.limited_threads(self._threads_each), supervised(supervisor):
                work()
        except KeyboardInterrupt:
            self.interrupt.requested = True
        except BaseException as error:
            self._error = self._error or error
            self.interrupt.requested = True


def warned(model: Any, message: str) -> None:
    """Warn as `fit` would: of a model that is none of the set's own."""
    warnings.warn(f"{model.name}: {message}", RuntimeWarning, stacklevel=2)


@contextmanager
def noted(text: str) -> Iterator[None]:
    """Make errors of this block name the model that they come from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened in {text}.")
        raise


def mapped(
    function: Callable[[T], R], arguments: Sequence[T], threads: int | None = None
) -> list[R]:
    """Return the results of a function for all arguments, computed in threads."""
    results: list[Any] = [None] * len(arguments)
    waiting = iter(range(len(arguments)))
    lock = threading.Lock()
    workers = Workers(*workers_for(len(arguments), threads))

    def work() -> None:
        while not workers.is_stopped:
            with lock:
                index = next(waiting, None)
            if index is None:
                return
            results[index] = function(arguments[index])

    workers.run(work, wait=lambda: None)
    if workers.interrupt.requested:
        raise KeyboardInterrupt
    return results
