"""The loop of `fit`: epochs in chunks of steps, validation, callbacks, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from ganglion import config
from ganglion.callbacks import CallbackList
from ganglion.system.records import record
from ganglion.training import data_adapters
from ganglion.training.data_adapters import Source, Table, count
from ganglion.training.run_ahead import RunAhead
from ganglion.training.state import Cursor, Logs, TrainableModel
from ganglion.training.step import StepCache
from ganglion.training.streams import warn_of_end

CHUNK_SECONDS = 0.2  # long enough to cost nothing, short enough to answer Ctrl-C


# ---- chunks of steps ---------------------------------------------------------------


class ChunkSizer:
    """Chooses how many steps to run at a time, by how long the last ones took."""

    def __init__(self, each_batch: bool, steps: int = 1) -> None:
        self._each_batch = each_batch
        self.steps = steps

    def chunk(self, most: int) -> int:
        """Return how many steps to run next."""
        return 1 if self._each_batch else max(1, min(self.steps, most))

    def took(self, chunk: int, seconds: float) -> None:
        """Learn from how long a chunk of steps took."""
        wanted = int(chunk * CHUNK_SECONDS / max(seconds, 1e-9))
        # The first steps are slower than the rest: grow, but not all at once.
        self.steps = max(1, min(wanted, chunk * 16))


def run_epoch(
    cache: StepCache,
    kind: str,
    table: Table,
    size: int,
    *,
    cursor: Cursor,
    shuffle: bool = False,
    steps: int | None,
    each_batch: bool,
    before: Callable[[int], None] | None,
    done: int = 0,
) -> Iterator[tuple[int, Any]]:
    """Run an epoch in chunks; yield the steps done so far and the chunk's results.

    Starts at the cursor; at the end of the rows the epoch is over, as in
    Keras, and the next one begins with the first row, in a new order.
    """
    if int(cursor.position) >= table.rows:
        raise ValueError(
            f"The run was saved at row {int(cursor.position)} of its data, which now "
            f"has {table.rows} rows: go on with the same data, or with the next epoch "
            "(`initial_epoch`)."
        )
    steps = -(-table.rows // size) if steps is None else steps
    key = (kind, size, table.rows, config.backend_choice())
    sizer = ChunkSizer(each_batch, cache.chunk_sizes.get(key, 1))
    watched = each_batch or before is not None  # by code that may change the model
    compiled, compiled_for = None, 0
    # An epoch that was interrupted at the end of the rows is over, too.
    is_over = done > 0 and int(cursor.position) == 0
    while done < steps and not is_over:
        left = table.rows - int(cursor.position)
        rows = min(size, left)
        chunk = sizer.chunk(min(left // rows, steps - done))
        if before is not None:
            before(done)
        with cache.lock:
            if compiled is None or watched or rows != compiled_for:
                signature = table.signature(rows, table.rows, shuffle)
                compiled = cache.step(kind, table, signature)  # outside of the timing
                compiled_for = rows
            started = time.perf_counter()
            results = cache.run(compiled, table, chunk, cursor)
            sizer.took(chunk, time.perf_counter() - started)
        done += chunk
        if rows == size:
            cache.chunk_sizes[key] = sizer.steps
        is_over = int(cursor.position) >= table.rows
        if is_over:
            cursor.start_pass()
        yield done, results
    if done < steps:
        warn_of_end(done, steps)


class Interrupt:
    """Defers Ctrl-C to the end of a chunk, so that no step is left incomplete.

    A second Ctrl-C does not wait.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: Any) -> None:
        self.check()
        self.requested = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.requested:
            raise KeyboardInterrupt


# ---- supervision -------------------------------------------------------------------


@record(guarded=True)
class Supervisor:
    """Controls every `fit` of a thread, as `fit_many` does."""

    interrupt: Interrupt  # Ctrl-C, which only the main thread receives
    warn: Callable[[Any, str], None]  # receives a model and a warning of its `fit`
    # Takes over a loop, with its first and last epoch, to train it with others.
    take: Callable[[FitLoop, int, int], None] | None = None


class _ThreadLocal(threading.local):
    supervisor: Supervisor | None = None


_current = _ThreadLocal()


@contextmanager
def supervised(supervisor: Supervisor) -> Iterator[None]:
    """Let a supervisor control every `fit` of this thread inside this block."""
    before, _current.supervisor = _current.supervisor, supervisor
    try:
        yield
    finally:
        _current.supervisor = before


def _interruptible() -> AbstractContextManager[Interrupt]:
    supervisor = _current.supervisor
    return Interrupt() if supervisor is None else nullcontext(supervisor.interrupt)


def _warn(model: Any, message: str) -> None:
    if _current.supervisor is not None:
        _current.supervisor.warn(model, message)
    else:
        warnings.warn(message, RuntimeWarning, stacklevel=3)


# ---- fit ---------------------------------------------------------------------------


def check_epochs(epochs: Any, initial_epoch: Any) -> None:
    """Raise for epochs that are not a count, and for a start beyond the end."""
    if not isinstance(epochs, (int, np.integer)):
        raise TypeError(f"`epochs` must be an integer, got {epochs!r}.")
    count(epochs, "epochs", least=0)
    if initial_epoch is None:
        raise ValueError("`initial_epoch` must be an integer, got None.")
    count(initial_epoch, "initial_epoch", least=0)
    if initial_epoch > epochs:
        raise ValueError(
            f"`initial_epoch` {initial_epoch} lies beyond the last one: `epochs` is "
            f"{epochs}, the number of the last epoch, not how many more to train."
        )


def check_split(share: Any) -> None:
    """Raise for a `validation_split` that is not a fraction of the rows."""
    is_number = isinstance(share, (int, float, np.number))
    if share is not None and not (is_number and 0 <= share < 1):
        raise ValueError(f"`validation_split` must lie in [0, 1), got {share!r}.")


def checked_frequency(value: Any) -> int | Collection[int]:
    """Return the period of validation, or the epochs after which to validate."""
    if not isinstance(value, (int, str)) and isinstance(value, Collection):
        return value
    epochs = count(value, "validation_freq")
    if epochs is None:
        raise ValueError("`validation_freq` must be a number or a list of epochs.")
    return epochs


@record(guarded=True)
class Validation:
    """The data of validation, how to evaluate it, and after which epochs."""

    evaluate: Callable[..., Logs]  # `Trainer.evaluate_source`
    source: Source | None
    size: int | None
    steps: int | None
    frequency: int | Collection[int]

    def is_due(self, epoch: int) -> bool:
        """Return whether to evaluate after this epoch (from 0)."""
        if self.source is None:
            return False
        if isinstance(self.frequency, int):
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in self.frequency

    def run(self, callbacks: CallbackList) -> Logs:
        """Return the loss and the metrics, with Keras' prefix."""
        return _prefixed(self.evaluate(self.source, self.size, self.steps, callbacks))


def _prefixed(logs: Logs) -> Logs:
    return {f"val_{name}": value for name, value in logs.items()}


@record(guarded=True)
class FitLoop:
    """A model, its data and its callbacks, during a `fit`."""

    model: TrainableModel
    cache: StepCache
    callbacks: CallbackList
    source: Source
    size: int
    shuffle: bool
    steps: int | None
    validation: Validation

    def of_equal(self, model: Any, callbacks: CallbackList) -> FitLoop:
        """Return the loop of an equal model on the same data."""
        known = self.validation
        validation = Validation(
            model.evaluate_source, known.source, known.size, known.steps,
            known.frequency,
        )  # fmt: skip
        return FitLoop(
            model, model._step_cache, callbacks, self.source, self.size, self.shuffle,
            self.steps, validation,
        )  # fmt: skip

    def train(self, first: int, epochs: int) -> None:
        """Run the epochs, with validation and callbacks around them.

        Ctrl-C waits for the end of a chunk of steps: the model can be saved and the
        run resumed.
        """
        supervisor = _current.supervisor
        if supervisor is not None and supervisor.take is not None:
            supervisor.take(self, first, epochs)
            return
        with self.cache.lock.own_metrics(fits=True), _interruptible() as interrupt:
            self._train(first, epochs, interrupt)

    def _train(self, first: int, epochs: int, interrupt: Interrupt) -> None:
        model, callbacks, state = self.model, self.callbacks, self.model.training_state
        model.stop_training = False
        state.first_bad_step.array[...] = -1
        state.callbacks = None
        logs: Logs = {}
        callbacks.on_train_begin()  # a callback may load a checkpoint here
        first, model.initial_epoch = first or model.initial_epoch, 0
        saved = state.start_epoch(first)
        state.callbacks = callbacks
        if saved is not None:
            callbacks.set_state(saved)
            if model.stop_training:  # a callback had ended this run
                epochs = first
        is_one = epochs - first <= 1
        ahead = None if is_one else RunAhead(self, ChunkSizer(each_batch=False))
        epoch = first
        while epoch < epochs:
            several = ahead.epochs(epochs - epoch) if ahead else 1
            past = ahead.run(several) if ahead and several > 1 else []
            for number, of_epoch in enumerate(past, 1):
                logs = self._report(epoch, *of_epoch, is_last=number == len(past))
                epoch += 1
            if not past:
                started = time.perf_counter()
                epoch_logs = self._one_epoch(epoch, interrupt)
                if epoch_logs is None:  # the generator has ended, with a warning
                    break
                logs, epoch = epoch_logs, epoch + 1
                if ahead:
                    ahead.took(time.perf_counter() - started)
            interrupt.check()
            if model.stop_training:
                break
        model.optimizer.finalize_variable_values(model.chosen_weights or [])
        callbacks.on_train_end(logs)
        state.callbacks = None  # a later `fit` is another run

    def _one_epoch(self, epoch: int, interrupt: Interrupt) -> Logs | None:
        """Run an epoch and its validation; return all metrics, None without data."""
        state, callbacks = self.model.training_state, self.callbacks
        state.epoch.array[...] = epoch
        logs = self._epoch(epoch, interrupt)
        if logs is None:
            return None
        state.epoch_logs = logs
        if self.validation.is_due(epoch):
            logs = logs | self.validation.run(callbacks)
        state.end_epoch(epoch)
        callbacks.on_epoch_end(epoch, logs)
        self._renew_data()
        return logs

    def _report(
        self, epoch: int, logs: Logs, validation_logs: Logs | None, is_last: bool
    ) -> Logs:
        """Report to callbacks an epoch that was run with others; return all metrics."""
        callbacks = self.callbacks
        callbacks.on_epoch_begin(epoch)
        if is_last:  # a loss that is not finite ends a run of epochs
            self.warn_of_nan(epoch)
        if validation_logs is not None:
            callbacks.on_test_begin()
            callbacks.on_test_end(validation_logs)
            logs = logs | _prefixed(validation_logs)
        self.model.training_state.end_epoch(epoch)
        callbacks.on_epoch_end(epoch, logs)
        return logs

    def _renew_data(self) -> None:
        """Read the data again that a callback may have changed in place."""
        if self.callbacks.has_foreign:
            for source in (self.source, self.validation.source):
                if isinstance(source, Table):
                    source.renew()

    def _epoch(self, epoch: int, interrupt: Interrupt) -> Logs | None:
        """Run an epoch and return its metrics, None if there was no data left."""
        model, callbacks, state = self.model, self.callbacks, self.model.training_state
        if state.epoch_logs is not None:  # interrupted after its last step
            callbacks.on_epoch_begin(epoch)
            return state.epoch_logs
        done = state.steps_done
        if not done:
            state.saved_metrics = None
            model.reset_metrics()
        elif isinstance(self.source, Table):  # there may be no step left to run
            self.cache.prepare("train", self.source, self.size, self.shuffle)
        callbacks.on_epoch_begin(epoch)
        # Whether a callback acts within an epoch.
        hears_batches = callbacks.hears_batches_in("train")
        results: Any = None
        for steps, results in self._chunks(done, hears_batches):
            state.steps_done = steps
            self.warn_of_nan(epoch)
            if results is not None:
                self._warn_of_logs(epoch, steps, model.batch_logs(results))
            if hears_batches:
                callbacks.on_train_batch_end(steps - 1, model.batch_logs(results))
            interrupt.check()
            if model.stop_training:
                break
        if not state.steps_done:
            return None
        return dict(model.epoch_logs(results))

    def _chunks(self, done: int, hears_batches: bool) -> Iterator[tuple[int, Any]]:
        """Run an epoch; yield the number of steps done so far, and their results."""
        if not isinstance(self.source, Table):
            yield from self._stream(done)
            return
        yield from run_epoch(
            self.cache,
            "train",
            self.source,
            self.size,
            cursor=self.model.training_state.cursor,
            shuffle=self.shuffle,
            steps=self.steps,
            each_batch=self.callbacks.needs_batches_in("train"),
            before=self.callbacks.on_train_batch_begin if hears_batches else None,
            done=done,
        )

    def _stream(self, done: int) -> Iterator[tuple[int, Any]]:
        model, stream = self.model, self.source
        assert not isinstance(stream, Table)
        position, order = model.training_state.position, model.training_state.order
        stream.pass_number, stream.seen = int(order.array[1]), int(position.array)
        tables = data_adapters.tables(model, stream, self.steps, done)
        for steps, (batch, seen) in enumerate(tables, done + 1):
            self.callbacks.on_train_batch_begin(steps - 1)
            results = self.cache.run_batch("train", batch)
            position.array[...] = seen
            yield steps, results
        order.array[1], position.array[...] = stream.pass_number, stream.seen
        stream.end_epoch()

    def warn_of_nan(self, epoch: int) -> None:
        """Warn once if the loss has become NaN or infinite."""
        bad = self.model.training_state.first_bad_step.array
        if int(bad) > 0:
            _warn(
                self.model,
                f"The loss stopped being a finite number at step {int(bad)} (epoch "
                f"{epoch + 1}). Lower the learning rate, or look for NaN in the data "
                "with fit(..., check=True).",
            )
            bad[...] = 0  # warned once

    def _warn_of_logs(self, epoch: int, steps: int, logs: Logs) -> None:
        """Warn once of logs of a user's own step that are not finite."""
        bad = self.model.training_state.first_bad_step.array
        names = [name for name, value in logs.items() if not np.all(np.isfinite(value))]
        if names and int(bad) < 0:
            _warn(
                self.model,
                f"What `train_step` returned as {', '.join(names)} is not a finite "
                f"number any more, at step {steps} of epoch {epoch + 1} or before. "
                "Lower the learning rate, or look for NaN in the data with "
                "fit(..., check=True).",
            )
            bad[...] = 0
