"""Requests that arrive together, answered by a single `predict`.

While the model computes, requests queue up; then all that fit form a batch. A request
that arrives alone does not wait. Batches are padded to a power of two, so that a model
is compiled for only a few sizes and memory does not grow.
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
MOST_WAITING = 64  # batches in the queue; further requests are refused


@dataclass
class Job:
    """The rows of a request, and the future that receives the model's outputs."""

    kind: str  # of computation
    arrays: Arrays
    done: asyncio.Future[Arrays]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.arrays[0])

    @property
    def key(self) -> Any:
        """Equal for jobs that can share a batch."""
        return self.kind, [array.shape[1:] for array in self.arrays]


class Batcher:
    """Computes the rows of many requests together, in a separate thread.

    Args:
        compute: Functions by the kind of their computation; each takes an array per
            input and returns an array per output.
        batch_size: Rows that are computed at once, at most.
        most_numbers: The largest answer, which may be far larger than its request.
        watch: Called with the number of rows of every batch.
    """

    def __init__(
        self,
        compute: Mapping[str, Compute],
        batch_size: int,
        most_numbers: int,
        watch: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._compute, self.batch_size, self._watch = compute, batch_size, watch
        self._most_numbers = most_numbers
        self._jobs: deque[Job] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "ganglion-serve")
        self._task: asyncio.Task[None] | None = None
        self.rows_waiting = 0

    def start(self) -> None:
        """Start answering; must be called inside the event loop."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Stop after the current batch; refuse the jobs that still wait."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in self._jobs:
            job.done.set_exception(Refused(503, "The server is shutting down.", 1))
        self._jobs.clear()
        self._thread.shutdown()

    async def __call__(self, kind: str, arrays: Arrays) -> Arrays:
        """Return the model's outputs for some rows."""
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
            if job.key == first.key and rows + job.rows <= self.batch_size:
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
        self._watch(len(arrays[0]))
        loop = asyncio.get_running_loop()
        try:
            outputs = await loop.run_in_executor(
                self._thread, self._run, jobs[0].kind, arrays
            )
        except Exception as error:
            # A bad request must not make the others of its batch fail.
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
        parts, numbers = [], 0
        for first in range(0, len(arrays[0]), self.batch_size):
            batch = [array[first : first + self.batch_size] for array in arrays]
            rows = len(batch[0])
            outputs = self._compute[kind]([padded(array) for array in batch])
            parts.append([output[:rows] for output in outputs])
            numbers += sum(output.size for output in parts[-1])
            if numbers > self._most_numbers:
                raise Refused(
                    413,
                    f"The answer has more than {self._most_numbers:,} numbers; send "
                    "fewer rows, or start the server with another --max-mb.",
                )
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]

    def warm_up(self, kind: str, row: Arrays) -> None:
        """Compile for every size of a batch, with a row repeated."""
        for size in sizes(self.batch_size):
            self._compute[kind]([np.repeat(array, size, axis=0) for array in row])


def sizes(batch_size: int) -> Sequence[int]:
    """Return the sizes that batches are padded to.

    >>> sizes(6)
    [1, 2, 4, 8]
    """
    return [1 << power for power in range((batch_size - 1).bit_length() + 1)]


def padded(array: np.ndarray) -> np.ndarray:
    """Return an array padded to a power of two rows by repeating the last row.

    >>> padded(np.arange(3)).tolist()
    [0, 1, 2, 2]
    """
    rows = len(array)
    missing = (1 << (rows - 1).bit_length()) - rows
    if not missing:
        return array
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
