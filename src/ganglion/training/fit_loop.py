"""One call of `fit`: epochs, validation, callbacks, and a stop that loses nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ganglion.callbacks import CallbackList
from ganglion.training.data_adapters import Table, class_weighted
from ganglion.training.model_data import table
from ganglion.training.step_cache import Interrupt, Runner

Logs = dict[str, float]


@dataclass(frozen=True)
class Validation:
    """What to evaluate on, and after which epochs."""

    source: Any
    size: int | None
    steps: int | None
    frequency: Any

    def due(self, epoch: int) -> bool:
        """Return whether to evaluate after this epoch (from 0)."""
        if self.source is None:
            return False
        if isinstance(self.frequency, int):
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in self.frequency


@dataclass(frozen=True)
class Session:
    """A model, its data and its callbacks, for the time of one `fit`."""

    model: Any
    runner: Runner
    calls: CallbackList
    source: Any
    size: int
    shuffle: bool
    steps: int | None
    validation: Validation

    def train(self, first: int, epochs: int) -> None:
        """Run the epochs, with validation and callbacks around them.

        Ctrl-C waits for the end of a chunk of steps: the model can be saved and the
        run resumed.
        """
        with self.runner.turns.session(fits=True):
            self._train(first, epochs)

    def _train(self, first: int, epochs: int) -> None:
        model, calls, state = self.model, self.calls, self.model.training_state
        model.stop_training = False
        state.first_bad_step.array[...] = -1
        state.callbacks = None
        logs: Logs = {}
        with Interrupt() as interrupt:
            calls.on_train_begin()  # a callback may load a checkpoint here
            first, model.initial_epoch = first or model.initial_epoch, 0
            before = state.start_epoch(first)
            state.callbacks = calls
            if before is not None:
                calls.set_state(before)
                if model.stop_training:  # a callback had ended this run
                    epochs = first
            for epoch in range(first, epochs):
                state.epoch.array[...] = epoch
                found = self._epoch(epoch, interrupt)
                if found is None:  # the generator is at its end, and has said so
                    break
                logs = state.epoch_logs = found
                if self.validation.due(epoch):
                    logs = logs | self._validate()
                state.end_epoch(epoch)
                calls.on_epoch_end(epoch, logs)
                self._renew_data()
                interrupt.check()
                if model.stop_training:
                    break
            model.optimizer.finalize_variable_values(model.trainable_weights)
            calls.on_train_end(logs)
            state.callbacks = None  # a later `fit` is another run

    def _renew_data(self) -> None:
        """Take up what a callback may have changed in place."""
        if not self.calls.has_foreign:
            return
        for one in (self.source, self.validation.source):
            if isinstance(one, Table):
                one.renew()

    def _epoch(self, epoch: int, interrupt: Interrupt) -> Logs | None:
        """Run one epoch and return its metrics, None if there was no data left."""
        model, calls, state = self.model, self.calls, self.model.training_state
        if state.epoch_logs is not None:  # interrupted after its last step
            calls.on_epoch_begin(epoch)
            return state.epoch_logs
        done = state.steps_done
        if not done:
            state.saved_metrics = None
            model.reset_metrics()
        elif isinstance(self.source, Table):  # there may be no step left to run
            self.runner.prepare("train", self.source, self.size, self.shuffle)
        calls.on_epoch_begin(epoch)
        heard = calls.hears_batches_in("train")
        for count in self._chunks(done, heard):
            state.steps_done = count
            self._tell_of_nan(epoch)
            if heard:
                calls.on_train_batch_end(count - 1, model.get_metrics_result())
            interrupt.check()
            if model.stop_training:
                break
        if not state.steps_done:
            return None
        return dict(model.get_metrics_result())

    def _chunks(self, done: int, heard: bool) -> Iterator[int]:
        """Run one epoch; yield the number of steps done so far.

        It is `heard` if a callback does something within an epoch.
        """
        if not isinstance(self.source, Table):
            yield from self._stream(done)
            return
        for count, _ in self.runner.epoch(
            "train",
            self.source,
            self.size,
            cursor=self.model.training_state.cursor,
            shuffle=self.shuffle,
            steps=self.steps,
            each_batch=self.calls.needs_batches_in("train"),
            before=self.calls.on_train_batch_begin if heard else None,
            done=done,
        ):
            yield count

    def _stream(self, done: int) -> Iterator[int]:
        model, stream = self.model, self.source
        place, order = model.training_state.position, model.training_state.order
        stream.pass_number, stream.seen = int(order.array[1]), int(place.array)
        batches = stream.batches(self.steps, done)
        for count, (x, y, weight) in enumerate(batches, done + 1):
            self.calls.on_train_batch_begin(count - 1)
            weight = class_weighted(y, weight, stream.class_weight)
            self.runner.once("train", table(model, x, y, weight))
            place.array[...] = stream.seen
            yield count
        order.array[1], place.array[...] = stream.pass_number, stream.seen
        stream.end_epoch()

    def _validate(self) -> Logs:
        given = self.validation
        found = self.model.evaluate_source(
            given.source, given.size, given.steps, self.calls
        )
        return {f"val_{name}": value for name, value in found.items()}

    def _tell_of_nan(self, epoch: int) -> None:
        bad = self.model.training_state.first_bad_step.array
        if int(bad) > 0:
            warnings.warn(
                f"The loss stopped being a finite number at step {int(bad)} (epoch "
                f"{epoch + 1}). Lower the learning rate, or look for NaN in the data "
                "with fit(..., check=True).",
                RuntimeWarning,
                stacklevel=2,
            )
            bad[...] = 0  # said once
