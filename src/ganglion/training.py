"""Training: compile, fit, evaluate and predict, the one loop behind them all."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import keras2, losses, metrics, ops, optimizers, tree
from ganglion.callbacks import CallbackList, History
from ganglion.compiled import CompiledLoss, CompiledMetrics
from ganglion.data import (
    Batches,
    Table,
    check_labels,
    checked_batch,
    class_weighted,
    is_stream,
)
from ganglion.ir import origin
from ganglion.outputs import Outputs
from ganglion.runner import Interrupt, Runner, joined
from ganglion.variables import Variable, current_scope, draw_seed, suspended

Logs = dict[str, float]


class Cursor:
    """Where training stands; not weights, so kept apart from them."""

    def __init__(self) -> None:
        self.position = _counter("position", 0)
        self.epoch = _counter("epoch", 0)
        self.first_bad_step = _counter("first_bad_step", -1)
        order = np.array([draw_seed(), 0], "uint32")
        self.order = Variable(order, trainable=False, name="order")


def _counter(name: str, start: int) -> Variable:
    return Variable(np.full((), start, "int32"), trainable=False, name=name)


class Trainer:
    """The part of a model that learns."""

    name: str

    def _start_training_state(self) -> None:
        self.optimizer: Any = None
        self.compiled = False
        self.stop_training = False
        self.history: History | None = None
        self.initial_epoch = 0
        self.loss: Any = None
        self._resume = False
        self.steps_done = 0  # of an epoch that was interrupted
        self._saved_metrics: dict[str, list[np.ndarray]] | None = None
        self._runner = Runner(self)
        self._loss: CompiledLoss | None = None
        self._metrics: CompiledMetrics | None = None
        self._compile_arguments: dict[str, Any] = {}
        self._frozen_choice: list[Variable] | None = None
        self._cursor = Cursor()

    @property
    def position(self) -> Variable:
        """The row of the data at which the next step starts."""
        return self._cursor.position

    @property
    def order(self) -> Variable:
        """The seed of shuffling and the number of the pass through the data."""
        return self._cursor.order

    @property
    def epoch(self) -> Variable:
        """The number of finished epochs."""
        return self._cursor.epoch

    @property
    def first_bad_step(self) -> Variable:
        """The first step whose loss was not finite, negative if there is none."""
        return self._cursor.first_bad_step

    # ---- compile -----------------------------------------------------------------

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: Any = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Choose how the model learns: the optimizer, the loss and the metrics.

        `steps_per_execution` and `jit_compile` are accepted for Keras' sake: Ganglion
        always compiles, and always runs many steps at a time.
        """
        if run_eagerly:
            raise ValueError(
                "`run_eagerly=True` is not supported: a model is always compiled. To "
                "look inside, call it on arrays: model(x)."
            )
        for one in tree.flatten(loss):
            if isinstance(one, str):
                losses.get(one)  # so that a misspelt name is refused here
        self.optimizer = optimizers.get(optimizer)
        self.loss = loss
        self._loss = CompiledLoss(loss, loss_weights, self._output_names())
        self._metrics = CompiledMetrics(
            metrics, weighted_metrics, self._output_names(), loss
        )
        self._compile_arguments = {
            "optimizer": self.optimizer,
            "loss": loss,
            "loss_weights": loss_weights,
            "metrics": metrics,
            "weighted_metrics": weighted_metrics,
            "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution,
            "jit_compile": jit_compile,
        }
        self._make_loss_tracker()
        self.compiled = True
        self.stop_training = False
        # As in Keras 2: what is trainable is decided here, not at the next step.
        self._frozen_choice = list(self.trainable_weights) if self.built else None
        self._forget_steps()

    def _make_loss_tracker(self) -> None:
        with suspended():
            self.loss_tracker = metrics.Mean(name="loss")

    def _output_names(self) -> list[str] | None:
        return getattr(self, "output_names", None)

    def _forget_steps(self) -> None:
        self._runner.forget()

    def _require_compiled(self, verb: str) -> None:
        if not self.compiled:
            raise ValueError(
                f"Call `compile(optimizer, loss)` before `{verb}`: the model "
                f'"{self.name}" does not know yet how to learn.'
            )

    def prepare_training(self) -> list[Variable]:
        """Return the weights to train, with the optimizer's slots made for them."""
        weights = self._frozen_choice
        if weights is None:
            weights = self._frozen_choice = list(self.trainable_weights)
        with suspended(), origin.inside("optimizer"):
            if not self.optimizer.built:
                self.optimizer.build(weights)
        return weights

    # ---- what a step is made of (subclasses may override `compute_loss`) ------------

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the loss to minimise: the compiled one and what layers add."""
        scope = current_scope()
        added = list(scope.losses) if scope else []
        added += [
            one.regularizer(one)
            for one in self._regularized()
            if one.regularizer is not None
        ]
        total = None
        if self._loss is not None and self.loss is not None:
            total = self._loss(y, y_pred, sample_weight)
        elif not added:
            raise ValueError(
                "There is no loss to minimise: give `compile` a loss, or call "
                "`add_loss` in a layer."
            )
        for one in added:
            one = ops.sum(one) if len(one.shape) else one
            total = one if total is None else total + one
        return total

    def _regularized(self) -> Sequence[Variable]:
        chosen = self._frozen_choice
        return self.trainable_weights if chosen is None else chosen

    def update_metrics(self, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Add a batch to the metrics."""
        if self._metrics is not None and y is not None:
            self._metrics.update_state(y, y_pred, sample_weight)

    @property
    def metrics(self) -> list[Any]:
        """The metrics that training reports, the loss first."""
        found = [self.loss_tracker] if self.compiled else []
        found += self._loss.metrics if self._loss else []
        found += self._metrics.metrics if self._metrics else []
        return found

    @property
    def metrics_names(self) -> list[str]:
        """The names of the metrics."""
        return [one.name for one in self.metrics]

    def reset_metrics(self) -> None:
        """Start the metrics from nothing."""
        for one in self.metrics:
            one.reset_state()

    def take_up_metrics(self) -> None:
        """Give the metrics the sums that were saved in the middle of an epoch."""
        saved, self._saved_metrics = self._saved_metrics, None
        if saved is None:
            return
        for number, metric in enumerate(self.metrics):
            values = saved.get(f"{number}/{metric.name}", [])
            for variable, value in zip(metric.variables, values, strict=False):
                if variable.shape == value.shape:
                    variable.assign(value)

    def get_metrics_result(self) -> Logs:
        """Return every metric's value, by name."""
        found: dict[str, Any] = {"loss": self.loss_tracker.result()}
        for one in self._loss.metrics if self._loss else []:
            found[one.name] = one.result()
        if self._metrics is not None:
            found.update(self._metrics.result())
        return {name: float(found[name]) for name in sorted(found)}

    # ---- fit ---------------------------------------------------------------------

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
        check: bool = False,
    ) -> History:
        """Train for a number of epochs.

        Arguments are Keras'. ``check=True`` looks through the data for NaN and
        infinity first and names the array and row.

        >>> import numpy as np, ganglion as keras
        >>> keras.utils.set_random_seed(1)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(np.eye(2), [0.0, 1.0], epochs=3, verbose=0)
        >>> len(history.history["loss"])
        3
        """
        self._require_compiled("fit")
        source, held_out = self._training_source(
            x, y, sample_weight, class_weight, validation_split, shuffle, batch_size
        )
        if validation_data is not None:
            held_out = self._validation_source(validation_data)
        for one in (source, held_out):
            if check and isinstance(one, Table):
                one.check_finite()
        size = checked_batch(batch_size, source.rows) if _is_table(source) else 0
        steps = steps_per_epoch
        if steps is None:
            steps = -(-source.rows // size) if _is_table(source) else source.length
        calls = CallbackList(
            callbacks,
            add_history=True,
            add_progbar=verbose != 0,
            verbose=1 if verbose == "auto" else verbose,
            epochs=epochs,
            steps=steps,
            model=self,
        )
        session = _Session(self, calls, source, size, bool(shuffle), steps)
        validation = _Validation(
            held_out, validation_batch_size or size or None, validation_steps,
            validation_freq,
        )
        with Interrupt() as interrupt:
            session.train(initial_epoch, epochs, validation, interrupt)
        assert calls.history is not None
        return calls.history

    def _training_source(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        class_weight: Any,
        split: float,
        shuffle: bool,
        batch_size: int | None,
    ) -> tuple[Any, Table | None]:
        if is_stream(x):
            _refuse_for_streams(y, sample_weight, split, batch_size)
            seed = int(self.order.array[0])
            stream = Batches(x, shuffle=shuffle, seed=seed)
            stream.class_weight = class_weight
            return stream, None
        if x is None:
            raise ValueError("`fit` needs data: arrays x and y, or a generator.")
        weights = class_weighted(y, sample_weight, class_weight)
        table = Table(self._arranged(x, "x"), self._arranged_targets(y), weights)
        self._check_targets(table)
        return table.split(split) if split else (table, None)

    def _validation_source(self, validation_data: Any) -> Any:
        if is_stream(validation_data):
            return Batches(validation_data)
        if not isinstance(validation_data, (tuple, list)) or not (
            2 <= len(validation_data) <= 3
        ):
            raise ValueError(
                "`validation_data` must be (x, y), (x, y, sample_weight) or a source "
                f"of batches, not {type(validation_data).__name__}."
            )
        x, y, *weight = validation_data
        return self._table(x, y, weight[0] if weight else None)

    def _table(self, x: Any, y: Any = None, sample_weight: Any = None) -> Table:
        table = Table(
            self._arranged(x, "x"), self._arranged_targets(y), sample_weight
        )
        if y is not None:
            self._check_targets(table)
        return table

    def _arranged(self, x: Any, what: str) -> Any:
        """Put inputs given by name into the order of the model's inputs."""
        names = getattr(self, "input_names", None) if self._is_functional() else None
        if isinstance(x, dict) and names and not isinstance(self.input, dict):
            if set(names) <= set(x):
                picked = [x[name] for name in names]
                return picked if len(picked) > 1 else picked[0]
        return x

    def _arranged_targets(self, y: Any) -> Any:
        names = self._output_names()
        if isinstance(y, dict) and names and set(names) <= set(y):
            if not isinstance(self.output, dict):
                picked = [y[name] for name in names]
                return picked if len(picked) > 1 else picked[0]
        return y

    def _is_functional(self) -> bool:
        return getattr(self, "_network", None) is not None

    def _check_targets(self, table: Table) -> None:
        """Refuse class numbers that are out of range before anything runs."""
        if not self._is_functional() or self.loss is None:
            return
        outputs = Outputs(self.output, self.output_names)
        given = outputs.assign(self.loss, "loss")
        labels = outputs.align(table.y, "labels", [one is not None for one in given])
        for loss, output, y in zip(given, outputs.leaves, labels, strict=True):
            classes = output.shape[-1]
            if _takes_class_numbers(loss) and y.dtype.kind in "iu" and classes:
                check_labels(y, classes, "y")

    def start_pass(self) -> None:
        """Go back to the first row, in a new order."""
        self.position.array[...] = 0
        self.order.array[1] += 1

    # ---- evaluate and predict ------------------------------------------------------

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the loss and the metrics on data, without learning."""
        in_fit = kwargs.pop("_in_fit", None)
        if kwargs:
            raise TypeError(f"`evaluate` does not know {', '.join(kwargs)}.")
        self._require_compiled("evaluate")
        source = x
        if not isinstance(x, (Table, Batches)):
            is_batches = is_stream(x)
            source = Batches(x) if is_batches else self._table(x, y, sample_weight)
        size = checked_batch(batch_size, source.rows) if _is_table(source) else 0
        total = -(-source.rows // size) if _is_table(source) else source.length
        calls = in_fit or CallbackList(
            callbacks,
            add_progbar=verbose != 0,
            verbose=1 if verbose == "auto" else verbose,
            epochs=1,
            steps=steps or total,
            model=self,
        )
        self.reset_metrics()
        calls.on_test_begin()
        logs: Logs = {}
        for done in self._each_chunk("test", source, size, steps, calls):
            logs = self.get_metrics_result()
            calls.on_test_batch_end(done - 1, logs)
        calls.on_test_end(logs)
        if return_dict:
            return logs
        return _as_list(logs, self.metrics_names)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Return the model's outputs for data."""
        source = Batches(x) if is_stream(x) else self._table(x)
        size = checked_batch(batch_size, source.rows) if _is_table(source) else 0
        total = -(-source.rows // size) if _is_table(source) else source.length
        calls = CallbackList(
            callbacks,
            add_progbar=verbose != 0,
            verbose=1 if verbose == "auto" else verbose,
            epochs=1,
            steps=steps or total,
            model=self,
        )
        calls.on_predict_begin()
        parts: list[Any] = []
        for done in self._each_chunk("predict", source, size, steps, calls, parts):
            calls.on_predict_batch_end(done - 1, {"outputs": parts[-1]})
        calls.on_predict_end()
        return joined(parts)

    def _each_chunk(
        self,
        kind: str,
        source: Any,
        size: int,
        steps: int | None,
        calls: CallbackList,
        parts: list[Any] | None = None,
    ) -> Any:
        """Run `test` or `predict` over a source; yield the number of steps done."""
        begin = getattr(calls, f"on_{kind}_batch_begin")
        if not _is_table(source):
            for done, (x, y, weight) in enumerate(source.batches(steps), 1):
                begin(done - 1)
                results = self._runner.once(kind, self._table(x, y, weight))
                if parts is not None:
                    parts.append(results)
                yield done
            source.end_epoch()
            return
        training_at = self.position.numpy(), self.order.numpy()
        self.position.array[...] = 0
        if steps is not None:
            steps = min(steps, -(-source.rows // size))
        try:
            for done, results in self._runner.epoch(
                kind,
                source,
                size,
                steps=steps,
                each_batch=calls.needs_batches_in(kind),
                before=begin,
            ):
                if parts is not None:
                    parts.append(results)
                yield done
        finally:
            self.position.array[...], self.order.array[...] = training_at

    # ---- one batch -----------------------------------------------------------------

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Take one step on one batch; return the loss and metrics of that batch."""
        self._require_compiled("train_on_batch")
        weights = class_weighted(y, sample_weight, class_weight)
        return self._one("train", x, y, weights, return_dict)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """Return the loss and metrics of one batch, without learning."""
        self._require_compiled("test_on_batch")
        return self._one("test", x, y, sample_weight, return_dict)

    def _one(self, kind: str, x: Any, y: Any, weight: Any, return_dict: bool) -> Any:
        self._saved_metrics = None
        self.reset_metrics()
        self._runner.once(kind, self._table(x, y, weight))
        logs = self.get_metrics_result()
        return logs if return_dict else _as_list(logs, self.metrics_names)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the model's outputs for one batch."""
        results = self._runner.once("predict", self._table(x))
        return tree.map_leaves(lambda one: one[0], results)

    # ---- Keras 2 -------------------------------------------------------------------

    def fit_generator(self, generator: Any, *args: Any, **kwargs: Any) -> History:
        """Keras 2's name for `fit` on a generator."""
        keras2.note("`fit_generator`", "`fit`")
        names = ("steps_per_epoch", "epochs", "verbose", "callbacks",
                 "validation_data", "validation_steps")
        kwargs.update(zip(names, args, strict=False))
        return self.fit(generator, **_without_workers(kwargs))

    def evaluate_generator(self, generator: Any, steps: Any = None, **kwargs: Any) -> Any:
        """Keras 2's name for `evaluate` on a generator."""
        keras2.note("`evaluate_generator`", "`evaluate`")
        kwargs.setdefault("verbose", 0)
        return self.evaluate(generator, steps=steps, **_without_workers(kwargs))

    def predict_generator(self, generator: Any, steps: Any = None, **kwargs: Any) -> Any:
        """Keras 2's name for `predict` on a generator."""
        keras2.note("`predict_generator`", "`predict`")
        kwargs.setdefault("verbose", 0)
        return self.predict(generator, steps=steps, **_without_workers(kwargs))


class _Validation:
    """What to evaluate on, and after which epochs."""

    def __init__(
        self, source: Any, size: int | None, steps: int | None, frequency: Any
    ) -> None:
        self.source, self.size, self.steps = source, size, steps
        self._frequency = frequency

    def due(self, epoch: int) -> bool:
        """Tell whether to evaluate after this epoch (from 0)."""
        if self.source is None:
            return False
        if isinstance(self._frequency, int):
            return (epoch + 1) % self._frequency == 0
        return epoch + 1 in self._frequency


class _Session:
    """One call of `fit`."""

    def __init__(
        self,
        model: Any,
        calls: CallbackList,
        source: Any,
        size: int,
        shuffle: bool,
        steps: int | None,
    ) -> None:
        self._model, self._calls, self._source = model, calls, source
        self._size, self._shuffle, self._steps = size, shuffle, steps

    def train(
        self, first: int, epochs: int, validation: _Validation, interrupt: Interrupt
    ) -> None:
        """Run the epochs, with validation and callbacks around them."""
        model, calls = self._model, self._calls
        model.stop_training = False
        model.first_bad_step.array[...] = -1
        logs: Logs = {}
        calls.on_train_begin()  # a callback may load a checkpoint here
        first, model.initial_epoch = first or model.initial_epoch, 0
        if not (model._resume and int(model.epoch.array) == first):
            model.steps_done, model._saved_metrics = 0, None
            if int(model.position.array):
                model.start_pass()
        model._resume = False
        for epoch in range(first, epochs):
            model.epoch.array[...] = epoch
            logs = self._epoch(epoch, interrupt)
            model.epoch.array[...] = epoch + 1
            model.steps_done = 0
            if validation.due(epoch):
                logs |= self._validate(validation)
                interrupt.check()
            calls.on_epoch_end(epoch, logs)
            interrupt.check()
            if model.stop_training:
                break
        calls.on_train_end(logs)

    def _epoch(self, epoch: int, interrupt: Interrupt) -> Logs:
        model, calls = self._model, self._calls
        done = model.steps_done
        if not done:
            model._saved_metrics = None
            model.reset_metrics()
        elif _is_table(self._source):  # there may be no step left to run
            model._runner.prepare("train", self._source, self._size, self._shuffle)
        calls.on_epoch_begin(epoch)
        logs: Logs = {}
        for count in self._chunks(done):
            model.steps_done = count
            logs = model.get_metrics_result()
            self._tell_of_nan(epoch)
            calls.on_train_batch_end(count - 1, logs)
            interrupt.check()
            if model.stop_training:
                break
        return logs or model.get_metrics_result()

    def _chunks(self, done: int) -> Any:
        model, calls, source = self._model, self._calls, self._source
        begin = calls.on_train_batch_begin
        if not _is_table(source):
            source.pass_number = int(model.order.array[1])
            for count, (x, y, weight) in enumerate(source.batches(self._steps), 1):
                if count <= done:
                    continue
                begin(count - 1)
                weight = class_weighted(y, weight, source.class_weight)
                model._runner.once("train", model._table(x, y, weight))
                yield count
            source.end_epoch()
            model.start_pass()
            return
        for count, _ in model._runner.epoch(
            "train",
            source,
            self._size,
            shuffle=self._shuffle,
            steps=self._steps,
            each_batch=calls.needs_batches_in("train"),
            before=begin,
            done=done,
        ):
            yield count

    def _validate(self, validation: _Validation) -> Logs:
        size = validation.size
        if size is not None and _is_table(validation.source):
            size = min(size, validation.source.rows)
        found = self._model.evaluate(
            validation.source,
            batch_size=size,
            steps=validation.steps,
            return_dict=True,
            _in_fit=self._calls,
        )
        return {f"val_{name}": value for name, value in found.items()}

    def _tell_of_nan(self, epoch: int) -> None:
        bad = self._model.first_bad_step.array
        if int(bad) > 0:
            warnings.warn(
                f"The loss stopped being a finite number at step {int(bad)} (epoch "
                f"{epoch + 1}). Lower the learning rate, or look for NaN in the data "
                "with fit(..., check=True).",
                RuntimeWarning,
                stacklevel=2,
            )
            bad[...] = 0  # said once


def _is_table(source: Any) -> bool:
    return isinstance(source, Table)


def _as_list(logs: Logs, names: list[str]) -> Any:
    """Return the values in the order of the metrics, a lone loss as a number."""
    ordered = [name for name in names if name in logs]
    ordered += [name for name in logs if name not in ordered]
    values = [logs[name] for name in ordered]
    return values[0] if len(values) == 1 else values


def _takes_class_numbers(loss: Any) -> bool:
    name = getattr(loss, "name", None) or getattr(loss, "__name__", loss)
    return name == "sparse_categorical_crossentropy"


def _refuse_for_streams(y: Any, sample_weight: Any, split: float, size: Any) -> None:
    given = {
        "y": y is not None,
        "sample_weight": sample_weight is not None,
        "validation_split": bool(split),
        "batch_size": size is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise ValueError(
                f"`{name}` cannot be given with a generator: its batches hold x, y and "
                "sample weights."
            )


def _without_workers(kwargs: dict[str, Any]) -> dict[str, Any]:
    dropped = ("workers", "use_multiprocessing", "max_queue_size", "pickle_safe")
    return {name: one for name, one in kwargs.items() if name not in dropped}


