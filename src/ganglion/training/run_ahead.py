"""Several epochs in one native call, for a training that nobody watches in between.

Small models have epochs of a millisecond. What `fit` does between two of them takes
Python about half as long, and keeps other threads from doing the same for their models.
If no callback needs to see an epoch before the next one begins, many are run at once,
and reported afterwards: bit for bit as if they had been run one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import config
from ganglion.compiler import registry
from ganglion.training.data_adapters import Table
from ganglion.training.state import Cursor, Logs

if TYPE_CHECKING:
    from ganglion.metrics import Metric
    from ganglion.training.fit_loop import ChunkSizer, FitLoop


class RunAhead:
    """Runs as many epochs of a `fit` at once as nobody needs to see in between."""

    def __init__(self, loop: FitLoop, sizer: ChunkSizer) -> None:
        self._loop, self._sizer = loop, sizer
        self._is_possible = self.is_possible(loop)

    @staticmethod
    def is_possible(loop: FitLoop) -> bool:
        """Return whether nobody needs to see an epoch before the next one begins."""
        model, held_out = loop.model, loop.validation.source
        if not isinstance(loop.source, Table) or not loop.callbacks.may_lag:
            return False
        if model.run_eagerly or model.has_own_steps or model.overrides_loss:
            return False
        if held_out is not None and not isinstance(held_out, Table):
            return False
        if held_out is not None and (loop.validation.frequency != 1):
            return False
        steps = -(-loop.source.rows // loop.size)
        is_limited = loop.validation.steps or config.max_steps_per_epoch()
        return loop.steps in (None, steps) and not is_limited

    def took(self, seconds: float) -> None:
        """Learn how long an epoch takes from one that was run alone."""
        self._sizer.took(1, seconds)

    def epochs(self, left: int) -> int:
        """Return how many epochs to run at once now."""
        state = self._loop.model.training_state
        at_start = not int(state.position.array) and not state.steps_done
        is_ready = self._is_possible and at_start and state.epoch_logs is None
        return min(self._sizer.steps, left) if is_ready else 1

    def run(self, most: int) -> list[tuple[Logs, Logs | None]]:
        """Run epochs; return the logs of each, and those of its validation.

        There are fewer if the loss was not a number any more, and none if these
        programs cannot be run so.
        """
        loop = self._loop
        with loop.cache.lock:
            cursor = loop.cache.take_cursor()
            try:
                started = time.perf_counter()
                logs = list(self._run(most, cursor))
                seconds = time.perf_counter() - started
            finally:
                loop.cache.return_cursor(cursor)
        self._is_possible = bool(logs)
        if logs:
            self._sizer.took(len(logs), seconds)
        return logs

    def _run(self, most: int, cursor: Cursor) -> Iterator[tuple[Logs, Logs | None]]:
        loop = self._loop
        model, state, held_out = loop.model, loop.model.training_state, loop.validation
        metrics = model.metrics
        if not all(map(_is_ours, (model, *metrics))):
            return
        if isinstance(held_out.source, Table):
            _, padded_from = loop.cache.padded("test", held_out.source)
            if padded_from is not None:
                return
        with registry.script() as script:
            if script is None:
                return
            model.reset_metrics()
            sums = _sums(metrics)
            start = [array.copy() for array in sums]
            training = state.cursor

            def add_pass(kind: str, table: Any, size: int, at: Cursor) -> bool:
                for target, numbers in zip(sums, start, strict=True):
                    script.assign(target, numbers)
                script.assign(at.position, np.zeros_like(at.position))
                shuffle = loop.shuffle and kind == "train"
                runs = loop.cache.runs(kind, table, size, shuffle, at)
                can_run = all(script.run(*run) for run in runs)
                for array in sums:
                    script.record(array)
                return can_run

            can_run = add_pass("train", loop.source, loop.size, training)
            script.assign(training.position, np.zeros_like(training.position))
            script.increase(training.order[1:])
            if held_out.source is not None:
                can_run &= add_pass("test", held_out.source, held_out.size or 0, cursor)
            script.end_if_positive(state.first_bad_step.array)
            if not can_run:
                return
            rounds, records = script.execute(most)
        ends = [records[n : n + len(sums)] for n in range(0, len(records), len(sums))]
        for number in range(rounds):
            logs = []
            for end in ends:
                for target, rows in zip(sums, end, strict=True):
                    target[...] = rows[number]
                logs.append(model.logs_of(metrics))
            yield logs[0], logs[1] if len(logs) > 1 else None


def _is_ours(thing: Any) -> bool:
    """Return whether a model or metric does nothing at an epoch's end but what is here.

    One of the user's own may override how metrics are reset, or what they are.
    """
    return type(thing).__module__.startswith("ganglion.")


def _sums(metrics: list[Metric]) -> list[np.ndarray]:
    variables = [v for metric in metrics for v in metric.variables]
    return [variable.array for variable in dict.fromkeys(variables)]
