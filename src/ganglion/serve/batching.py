"""Requests that arrive together, answered by one `predict`.

While the model computes, requests gather; then all that fit are one batch. A request
that arrives alone does not wait. Batches are padded to a power of two, so that a model
is compiled for a few sizes alone, and memory stays what it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion.serve.refusal import Refused

Arrays = list[np.ndarray]
Compute = Callable[[Arrays], Arrays]
MOST_WAITING = 64  # batches; more requests than these are refused, not kept


@dataclass
class Job:
    """The rows of a request, and who waits for what the model says of them."""

    kind: str  # what to compute of them
    arrays: Arrays
    done: asyncio.Future[Arrays]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.arrays[0])

    @property
    def fits_with(self) -> Any:
        """What jobs of one batch have in common."""
        return self.kind, [array.shape[1:] for array in self.arrays]


class Batcher:
    """Computes the rows of many requests together, in a thread of its own.

    Args:
        compute: What to do with rows, by the name of it; called with an array an
            input, gives an array an output.
        batch_size: Rows that are computed at once, at most.
        watch: Called with the number of requests and rows of every batch.
    """

    def __init__(
        self,
        compute: Mapping[str, Compute],
        batch_size: int,
        watch: Callable[[int, int], None] = lambda requests, rows: None,
    ) -> None:
        self._compute, self.batch_size, self._watch = compute, batch_size, watch
        self._jobs: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "ganglion-serve")
        self._task: asyncio.Task[None] | None = None
        self.rows_waiting = 0

    def start(self) -> None:
        """Begin to answer; runs inside of the event loop."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End after what is being computed; jobs that still wait are refused."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in self._jobs:
            job.done.set_exception(Refused(503, "The server is shutting down.", 1))
        self._jobs.clear()
        self._thread.shutdown()

    async def __call__(self, kind: str, arrays: Arrays) -> Arrays:
        """Return what the model says of some rows."""
        rows = len(arrays[0])
        most = MOST_WAITING * self.batch_size
        if self.rows_waiting and self.rows_waiting + rows > most:
            raise Refused(
                503, f"{self.rows_waiting} rows wait to be computed; try again.", 1
            )
        job = Job(kind, arrays, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self.rows_waiting += rows
        self._arrived.set()
        return await job.done

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._jobs:
                await self._answer(self._taken())

    def _taken(self) -> list[Job]:
        """Take the next jobs that fit together, in the order they came."""
        first = self._jobs.popleft()
        taken, rows = [first], first.rows
        left: deque[Job] = deque()
        for job in self._jobs:
            fits = job.fits_with == first.fits_with
            if fits and rows + job.rows <= self.batch_size:
                taken.append(job)
                rows += job.rows
            else:
                left.append(job)
        self._jobs = left
        self.rows_waiting -= rows
        return taken

    async def _answer(self, jobs: list[Job]) -> None:
        arrays = [
            np.concatenate(parts) if len(parts) > 1 else parts[0]
            for parts in zip(*(job.arrays for job in jobs), strict=True)
        ]
        self._watch(len(jobs), len(arrays[0]))
        loop = asyncio.get_running_loop()
        try:
            outputs = await loop.run_in_executor(
                self._thread, self._run, jobs[0].kind, arrays
            )
        except Exception as error:
            # One bad request must not spoil the others of its batch.
            if len(jobs) > 1:
                for job in jobs:
                    await self._answer([job])
            elif not jobs[0].done.done():
                jobs[0].done.set_exception(error)
            return
        first = 0
        for job in jobs:
            part = [output[first : first + job.rows] for output in outputs]
            first += job.rows
            if not job.done.done():
                job.done.set_result(part)

    def _run(self, kind: str, arrays: Arrays) -> Arrays:
        """Compute any number of rows in batches of a few sizes."""
        parts = []
        for first in range(0, len(arrays[0]), self.batch_size):
            batch = [array[first : first + self.batch_size] for array in arrays]
            rows = len(batch[0])
            outputs = self._compute[kind]([padded(array) for array in batch])
            parts.append([output[:rows] for output in outputs])
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]

    def warm_up(self, kind: str, row: Arrays) -> None:
        """Compile for every size of a batch, by one row repeated."""
        for size in sizes(self.batch_size):
            self._run(kind, [np.repeat(array, size, axis=0) for array in row])


def sizes(batch_size: int) -> Sequence[int]:
    """Return the sizes that batches are padded to.

    >>> sizes(6)
    [1, 2, 4, 8]
    """
    return [1 << power for power in range((batch_size - 1).bit_length() + 1)]


def padded(array: np.ndarray) -> np.ndarray:
    """Return an array whose rows are a power of two; the last one is repeated.

    >>> padded(np.arange(3)).tolist()
    [0, 1, 2, 2]
    """
    rows = len(array)
    missing = (1 << (rows - 1).bit_length()) - rows
    if not missing:
        return array
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
