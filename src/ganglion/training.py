"""Training: compile, fit, evaluate and predict, the one loop behind them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import feeding, keras2, losses, metrics, ops, optimizers, tree
from ganglion.callbacks import CallbackList, History
from ganglion.compiled import CompiledLoss, CompiledMetrics
from ganglion.data import Table, checked_batch, class_weighted
from ganglion.ir import origin
from ganglion.layers import Layer
from ganglion.runner import Runner, joined
from ganglion.session import Session, Validation
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


class Trainer(Layer):
    """The part of a model that learns."""

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
        found: list[Any] = [self.loss_tracker] if self.compiled else []
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
        source = feeding.training_source(
            self,
            x,
            y,
            sample_weight,
            class_weight,
            bool(shuffle),
            {
                "y": y is not None,
                "sample_weight": sample_weight is not None,
                "validation_split": bool(validation_split),
                "batch_size": batch_size is not None,
            },
        )
        held_out = None
        if validation_data is not None:
            held_out = feeding.validation_source(self, validation_data)
        elif validation_split and isinstance(source, Table):
            source, held_out = source.split(validation_split)
        for one in (source, held_out):
            if check and isinstance(one, Table):
                one.check_finite()
        size, total = _size_and_steps(source, batch_size)
        calls = self._callbacks(
            callbacks, verbose, steps_per_epoch or total, epochs, add_history=True
        )
        Session(
            self,
            calls,
            source,
            size,
            bool(shuffle),
            steps_per_epoch or total,
            Validation(
                held_out,
                validation_batch_size or size or None,
                validation_steps,
                validation_freq,
            ),
        ).train(initial_epoch, epochs)
        assert calls.history is not None
        return calls.history

    def _callbacks(
        self,
        callbacks: Any,
        verbose: Any,
        steps: int | None,
        epochs: int = 1,
        add_history: bool = False,
    ) -> CallbackList:
        return CallbackList(
            callbacks,
            add_history=add_history,
            add_progbar=verbose != 0,
            verbose=1 if verbose == "auto" else verbose,
            epochs=epochs,
            steps=steps,
            model=self,
        )

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
        if kwargs:
            raise TypeError(f"`evaluate` does not know {', '.join(kwargs)}.")
        self._require_compiled("evaluate")
        source = feeding.source(self, x, y, sample_weight)
        size, total = _size_and_steps(source, batch_size)
        calls = self._callbacks(callbacks, verbose, steps or total)
        logs = self._evaluate(source, size, steps, calls)
        return logs if return_dict else _as_list(logs, self.metrics_names)

    def _evaluate(
        self, source: Any, size: int | None, steps: int | None, calls: CallbackList
    ) -> Logs:
        self.reset_metrics()
        calls.on_test_begin()
        logs: Logs = {}
        for done in self._each_chunk("test", source, size or 0, steps, calls):
            logs = self.get_metrics_result()
            calls.on_test_batch_end(done - 1, logs)
        calls.on_test_end(logs)
        return logs

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Return the model's outputs for data."""
        source = feeding.source(self, x)
        size, total = _size_and_steps(source, batch_size)
        calls = self._callbacks(callbacks, verbose, steps or total)
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
        if not isinstance(source, Table):
            for done, (x, y, weight) in enumerate(source.batches(steps), 1):
                begin(done - 1)
                results = self._runner.once(kind, feeding.table(self, x, y, weight))
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
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Return the loss and metrics of one batch, without learning."""
        self._require_compiled("test_on_batch")
        return self._one("test", x, y, sample_weight, return_dict)

    def _one(self, kind: str, x: Any, y: Any, weight: Any, return_dict: bool) -> Any:
        self._saved_metrics = None
        self.reset_metrics()
        self._runner.once(kind, feeding.table(self, x, y, weight))
        logs = self.get_metrics_result()
        return logs if return_dict else _as_list(logs, self.metrics_names)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the model's outputs for one batch."""
        results = self._runner.once("predict", feeding.table(self, x))
        return tree.map_leaves(lambda one: one[0], results)

    # ---- Keras 2 -------------------------------------------------------------------

    def fit_generator(self, generator: Any, *args: Any, **kwargs: Any) -> History:
        """Keras 2's name for `fit` on a generator."""
        keras2.note("`fit_generator`", "`fit`")
        names = (
            "steps_per_epoch",
            "epochs",
            "verbose",
            "callbacks",
            "validation_data",
            "validation_steps",
        )
        kwargs.update(zip(names, args, strict=False))
        return self.fit(generator, **_without_workers(kwargs))

    def evaluate_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `evaluate` on a generator."""
        keras2.note("`evaluate_generator`", "`evaluate`")
        kwargs.setdefault("verbose", 0)
        return self.evaluate(generator, steps=steps, **_without_workers(kwargs))

    def predict_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `predict` on a generator."""
        keras2.note("`predict_generator`", "`predict`")
        kwargs.setdefault("verbose", 0)
        return self.predict(generator, steps=steps, **_without_workers(kwargs))


def _size_and_steps(source: Any, batch_size: int | None) -> tuple[int, int | None]:
    """Return the batch size and the number of steps; 0 and what is known of streams."""
    if not isinstance(source, Table):
        return 0, source.length
    size = checked_batch(batch_size, source.rows)
    return size, -(-source.rows // size)


def _as_list(logs: Logs, names: list[str]) -> Any:
    """Return the values in the order of the metrics, a lone loss as a number."""
    ordered = [name for name in names if name in logs]
    ordered += [name for name in logs if name not in ordered]
    values = [logs[name] for name in ordered]
    return values[0] if len(values) == 1 else values


def _without_workers(kwargs: dict[str, Any]) -> dict[str, Any]:
    dropped = ("workers", "use_multiprocessing", "max_queue_size", "pickle_safe")
    return {name: one for name, one in kwargs.items() if name not in dropped}
