"""Several epochs in a single native call, for training without observers in between.

Small models have epochs of a millisecond. The work of `fit` between two epochs takes
Python about half as long, and holds the GIL that other models' threads need.
If no callback needs to see an epoch before the next one begins, many are run at once,
and reported afterwards: bit for bit as if they had been run one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import config
from ganglion.compiler import registry
from ganglion.metrics import Mean, Metric
from ganglion.training.data_adapters import Table
from ganglion.training.state import Cursor, Logs, TrainableModel
from ganglion.training.structure import is_ours
from ganglion.variables import Variable

if TYPE_CHECKING:
    from ganglion.training.fit_loop import ChunkSizer, FitLoop


class RunAhead:
    """Runs several epochs of a `fit` at once if no callback must see each of them."""

    def __init__(self, loop: FitLoop, sizer: ChunkSizer) -> None:
        self._loop, self._sizer = loop, sizer
        self._is_possible = self.is_possible(loop)
        if self._is_possible:  # an equal model may have been trained already
            self._learned, self._key = loop.cache.epochs_at_once, self._time_key()
            sizer.steps = self._learned.get(self._key, 1)

    def _time_key(self) -> tuple[Any, ...]:
        """Return a key of everything that the time of an epoch depends on."""
        loop, held_out = self._loop, self._loop.validation
        rows = [t.rows for t in (loop.source, held_out.source) if isinstance(t, Table)]
        sizes = tuple(weight.shape for weight in loop.model.chosen_weights or ())
        return (*rows, loop.size, held_out.size, sizes, config.backend_choice())

    @staticmethod
    def is_possible(loop: FitLoop) -> bool:
        """Return whether no callback needs to see an epoch before the next begins."""
        model, held_out = loop.model, loop.validation.source
        if not isinstance(loop.source, Table) or not loop.callbacks.may_lag:
            return False
        if model.run_eagerly or model.has_own_steps or model.overrides_loss:
            return False
        if held_out is not None and not isinstance(held_out, Table):
            return False
        if held_out is not None and loop.validation.frequency != 1:
            return False
        steps = -(-loop.source.rows // loop.size)
        is_limited = loop.validation.steps or config.max_steps_per_epoch()
        return loop.steps in (None, steps) and not is_limited

    def took(self, seconds: float) -> None:
        """Learn the time of an epoch from an epoch that was run alone."""
        self._took(1, seconds)

    def _took(self, epochs: int, seconds: float) -> None:
        self._sizer.took(epochs, seconds)
        if self._is_possible:
            self._learned[self._key] = self._sizer.steps

    def epochs(self, left: int) -> int:
        """Return how many epochs to run at once."""
        state = self._loop.model.training_state
        at_start = not int(state.position.array) and not state.steps_done
        is_ready = self._is_possible and at_start and state.epoch_logs is None
        return min(self._sizer.steps, left) if is_ready else 1

    def run(self, most: int) -> list[tuple[Logs, Logs | None]]:
        """Run epochs; return the logs of each, and those of its validation.

        There are fewer if the loss became NaN or infinite, and none if these programs
        cannot be run this way.
        """
        loop = self._loop
        assert isinstance(loop.source, Table)
        with loop.cache.lock:
            # Outside of the timing; the first step creates the metrics.
            loop.cache.prepare("train", loop.source, loop.size, loop.shuffle)
            cursor = loop.cache.take_cursor()
            try:
                started = time.perf_counter()
                logs = list(self._run(most, cursor))
                seconds = time.perf_counter() - started
            finally:
                loop.cache.return_cursor(cursor)
        self._is_possible = bool(logs)
        if logs:
            self._took(len(logs), seconds)
        return logs

    def _run(self, most: int, cursor: Cursor) -> Iterator[tuple[Logs, Logs | None]]:
        loop = self._loop
        model, state, held_out = loop.model, loop.model.training_state, loop.validation
        metrics = model.metrics
        # A subclass may override how metrics are reset or computed.
        if not all(is_ours(type(owner)) for owner in (model, *metrics)):
            return
        if isinstance(held_out.source, Table):
            _, padded_from = loop.cache.padded("test", held_out.source)
            if padded_from is not None:
                return
        with registry.script() as script:
            if script is None:
                return
            for metric in metrics:
                metric.reset_state()
            variables = sums_of(metrics)
            sums = [variable.array for variable in variables]
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
        passes = [
            logs_of(model, metrics, dict(zip(variables, records[n:], strict=False)))
            for n in range(0, len(records), len(sums))
        ]
        for number in range(rounds):
            logs = [{name: each[number] for name, each in p.items()} for p in passes]
            yield logs[0], logs[1] if len(logs) > 1 else None


def sums_of(metrics: Iterable[Metric]) -> list[Variable]:
    """Return the variables of metrics' sums, without duplicates."""
    return list(dict.fromkeys(v for metric in metrics for v in metric.variables))


def logs_of(
    model: TrainableModel, metrics: list[Metric], sums: Mapping[Variable, np.ndarray]
) -> dict[str, list[Any]]:
    """Return the values of every metric by name, for each row of its sums."""
    logs = means_of(model, metrics, sums)
    if logs is not None:
        return logs
    every = []
    for rows in zip(*sums.values(), strict=True):
        for variable, row in zip(sums, rows, strict=True):
            variable.array[...] = row
        every.append(model.logs_of(metrics))
    return {name: [logs[name] for logs in every] for name in every[0]}


def means_of(
    model: TrainableModel, metrics: list[Metric], sums: Mapping[Variable, np.ndarray]
) -> dict[str, list[Any]] | None:
    """Return metrics that divide sums by counts, for arrays of these of any shape.

    None if any of them computes something else.
    """
    logs = {}
    if not all(type(metric).result is Mean.result for metric in metrics):
        return None
    for name, metric in zip(model.names_of(metrics), metrics, strict=True):
        assert isinstance(metric, Mean)
        total, count = sums[metric.total], sums[metric.count]
        means = np.zeros(total.shape, total.dtype)
        np.divide(total, count, out=means, where=count != 0)
        logs[name] = means.astype(metric.dtype).astype(float).tolist()
    return {name: logs[name] for name in sorted(logs)}
