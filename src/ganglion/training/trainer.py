"""Compile, fit, evaluate and predict."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ganglion import config, keras2, ops, optimizers, tree
from ganglion.callbacks import CallbackList, History
from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import Value
from ganglion.layers import Layer
from ganglion.metrics import Mean, Metric
from ganglion.optimizers import Optimizer
from ganglion.optimizers.loss_scale import LossScaleOptimizer
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.training import data_adapters, fit_loop
from ganglion.training.compile_utils import CompiledLoss, CompiledMetrics
from ganglion.training.data_adapters import Source, Table, as_rows, count
from ganglion.training.fit_loop import FitLoop, Validation
from ganglion.training.own_steps import last_logs
from ganglion.training.state import (
    FunctionalGraph,
    Logs,
    TrainingState,
    is_default,
    is_own,
)
from ganglion.training.step import StepCache
from ganglion.variables import Variable, current_scope, suspended


class Trainer(Layer):
    """A layer that can be compiled, trained, evaluated and used for predictions."""

    _untracked = Layer._untracked | {
        "history", "loss", "training_state", "notes", "_step_cache", "_compile_loss",
        "_compile_metrics", "_compile_arguments", "_loss_tracker", "_chosen_weights",
        "stop_training", "stop_evaluating", "stop_predicting", "initial_epoch",
    }  # fmt: skip

    _network: FunctionalGraph | None = None

    def _start_training_state(self) -> None:
        self.optimizer: Optimizer = None  # type: ignore[assignment]  # until `compile`
        self.compiled = False
        # Callbacks set these to end `fit`, `evaluate` and `predict` early.
        self.stop_training = self.stop_evaluating = self.stop_predicting = False
        self.steps_per_execution, self.jit_compile = 1, "auto"
        self.run_eagerly = self.is_in_own_step = False
        self.history: History | None = None
        self.initial_epoch = 0
        self.loss: Any = None
        self._step_cache = StepCache(self)
        self._compile_loss: CompiledLoss | None = None
        self._compile_metrics: CompiledMetrics | None = None
        self._compile_arguments: dict[str, Any] = {}
        self._chosen_weights: list[Variable] | None = None
        self.training_state = TrainingState()
        # Plain data that is saved with the model, such as class names.
        self.notes: dict[str, Any] = {}

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
        **kwargs: Any,
    ) -> None:
        """Set the optimizer, the loss and the metrics.

        Callbacks are called after every `steps_per_execution` steps; Ganglion runs many
        steps at a time anyway, and compiles them whatever `jit_compile` is. With
        `run_eagerly` each step runs in Python instead, on the reference backend, so
        that prints and breakpoints see numbers. That is slow. The loss of a
        "mixed_float16" model is scaled, unless `auto_scale_loss` is False.
        """
        steps_per_execution = count(steps_per_execution, "steps_per_execution") or 1
        _refuse_unknown("compile", _without_old_modes(kwargs))
        if metrics is None and _are_metrics(loss_weights):
            old = "`compile(optimizer, loss, metrics)`"
            keras2.note(old, "`metrics=`", changes_defaults=False)
            loss_weights, metrics = None, loss_weights
        self.optimizer = optimizers.get(optimizer)
        if auto_scale_loss and self._scales_loss():
            self.optimizer = LossScaleOptimizer(
                self.optimizer, name="loss_scale_optimizer"
            )
        self.steps_per_execution, self.jit_compile = steps_per_execution, jit_compile
        self.run_eagerly = bool(run_eagerly)
        self.loss = loss
        names = getattr(self, "output_names", None)
        self._compile_loss = CompiledLoss(loss, loss_weights, names)
        self._compile_metrics = CompiledMetrics(metrics, weighted_metrics, names, loss)
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
        if not auto_scale_loss:
            self._compile_arguments["auto_scale_loss"] = False
        with suspended():
            self._loss_tracker = Mean(name="loss")
        self.compiled = True
        self.stop_training = False
        # As in Keras 2: trainable weights are determined here, not at the next step.
        self._chosen_weights = list(self.trainable_weights) if self.built else None
        self._step_cache.clear()

    def _scales_loss(self) -> bool:
        """Return whether to scale the loss, so that gradients do not underflow."""
        is_plain = not isinstance(self.optimizer, (LossScaleOptimizer, type(None)))
        return is_plain and self.dtype_policy.name == "mixed_float16"

    def between_steps(self) -> AbstractContextManager[None]:
        """Keep other threads from using this model; waits for the end of their step."""
        return self._step_cache.lock

    def get_weights(self) -> list[np.ndarray]:
        with self.between_steps():
            return super().get_weights()

    def set_weights(self, weights: list[Any]) -> None:
        with self.between_steps():
            super().set_weights(weights)

    def _require_compiled(self, verb: str) -> None:
        if not self.compiled:
            raise ValueError(
                f"Call `compile(optimizer, loss)` before `{verb}`: the model "
                f'"{self.name}" does not know yet how to learn.'
            )

    def prepare_training(self) -> list[Variable]:
        """Return the weights to train, with the optimizer's slots for them created."""
        weights = self._chosen_weights
        if weights is None:
            weights = self._chosen_weights = list(self.trainable_weights)
        with suspended(), origin.inside("optimizer"):
            if self.optimizer.built and not self.optimizer.knows(weights):
                # It trains another model, or trained other layers of this model.
                self.optimizer = self.optimizer.sibling()
                self._compile_arguments["optimizer"] = self.optimizer
            if not self.optimizer.built:
                self.optimizer.build(weights)
        return weights

    @property
    def chosen_weights(self) -> list[Variable] | None:
        """The weights that `compile` chose to train, None before that."""
        return self._chosen_weights

    def choose_weights(self, weights: list[Variable]) -> None:
        """Train these weights, with an optimizer whose slots for them are created."""
        if weights == self._chosen_weights:
            return
        self._chosen_weights = weights
        plain = serialize_keras_object(self.optimizer)
        self.optimizer = deserialize_keras_object(plain)
        self._compile_arguments["optimizer"] = self.optimizer
        self.prepare_training()

    @property
    def chosen_loss(self) -> Any:
        """The loss that `compile` chose; a name is resolved to its loss."""
        return None if self._compile_loss is None else self._compile_loss.loss

    def build_losses(self, y: Any, y_pred: Any) -> None:
        """Create the losses and metrics for labels and outputs of these shapes.

        The first step does so by itself, if it was not done before.
        """
        if self._compile_loss is not None and self.loss is not None:
            self._compile_loss.build(y, y_pred)
        if self._compile_metrics is not None:
            self._compile_metrics.build(y, y_pred)

    # ---- parts of a step (subclasses may override `compute_loss`) --------------------

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the loss to minimise: that of `compile` and those that layers add."""
        added = self._added_losses()
        chosen = self._chosen_weights
        weights = self.trainable_weights if chosen is None else chosen
        added += [w.regularizer(w) for w in weights if w.regularizer is not None]
        total = None
        if self._compile_loss is not None and self.loss is not None:
            total = self._compile_loss(y, y_pred, sample_weight)
        elif not added:
            raise ValueError(
                "There is no loss to minimise: give `compile` a loss, or call "
                "`add_loss` in a layer."
            )
        for loss in added:
            loss = ops.sum(loss)  # a regularizer may return a Python number
            total = loss if total is None else total + loss
        return total

    def _added_losses(self) -> list[Any]:
        """Return the losses that `call` added, here and in the layers below."""
        scope = current_scope()
        layers = self._flatten_layers()
        if scope is None:
            added = [loss for layer in layers for loss in layer._losses]
        else:
            own = set(map(id, layers))
            pairs = zip(scope.loss_owners, scope.losses, strict=True)
            added = [loss for owner, loss in pairs if id(owner) in own]
        return added + [loss() for layer in layers for loss in layer._loss_functions]

    @property
    def overrides_loss(self) -> bool:
        """Whether the model computes its loss itself, from labels of any shape."""
        return type(self).compute_loss is not Trainer.compute_loss

    @property
    def has_own_steps(self) -> bool:
        """Whether a step was overridden, which takes data of any kind."""
        return any(is_own(self, kind) for kind in ("train", "test", "predict"))

    def refuse_own_function(self, kind: str) -> None:
        """Raise for a `make_..._function` of the user's, which nothing would call."""
        name = f"make_{kind}_function"
        if not is_default(self, name):
            raise NotImplementedError(
                f"{type(self).__name__} overrides `{name}`, which Ganglion does not "
                f"call, as many steps run at a time: override `{kind}_step`."
            )

    def update_metrics(self, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Add a batch to the metrics."""
        if self._compile_metrics is not None and y is not None:
            self._compile_metrics.update_state(y, y_pred, sample_weight)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics that training reports, the loss first.

        After those of `compile` come those in attributes: of this model, and of the
        layers below that are not models themselves.
        """
        reported: list[Metric] = [self._loss_tracker] if self.compiled else []
        reported += self._compile_loss.metrics if self._compile_loss else []
        compiled = self._compile_metrics
        if compiled and self._reports_as_one(compiled):
            reported += [compiled] if any(compiled.arguments) else []
        else:
            reported += compiled.metrics if compiled else []
        reported += self._tracker.metrics
        for layer in self._flatten_layers(include_self=False):
            if not isinstance(layer, Trainer):
                reported += layer._tracker.metrics
        return list({id(metric): metric for metric in reported}.values())

    def _reports_as_one(self, compiled: CompiledMetrics) -> bool:
        """Return whether a step of the user's own gets all compiled metrics as one.

        That one has the output of each, and which of them take sample weights.
        """
        return self.is_in_own_step and not (compiled.built and keras2.active())

    @property
    def metrics_names(self) -> list[str]:
        """The names of the metrics in the logs, in the order of `evaluate`.

        In Keras 3 the metrics of several outputs, whose names the outputs' begin, come
        last, sorted.
        """
        names = self.names_of(self.metrics)
        if keras2.active():
            return names
        compiled = self._compile_metrics
        pairs = [*compiled.named()] if compiled and compiled.built else []
        own = [name for name, metric in pairs if name == metric.name]
        of_outputs = {name for name, _ in pairs}
        rest = [name for name in names[1:] if name not in of_outputs]
        return [*names[:1], *own, *rest, *sorted(of_outputs - {*own})]

    def names_of(self, metrics: list[Metric]) -> list[str]:
        """Return the names under which the logs have some metrics."""
        compiled = self._compile_metrics
        pairs = compiled.named() if compiled and compiled.built else ()
        names = {id(metric): name for name, metric in pairs}
        return [names.get(id(metric), metric.name) for metric in metrics]

    def reset_metrics(self) -> None:
        """Reset all metrics."""
        with self.between_steps():
            for metric in self.metrics:
                metric.reset_state()

    def restore_metrics(self) -> None:
        """Restore the sums of metrics that were saved in the middle of an epoch."""
        state = self.training_state
        saved, state.saved_metrics = state.saved_metrics, None
        if saved is None:
            return
        for number, metric in enumerate(self.metrics):
            values = saved.get(f"{number}/{metric.name}", [])
            for variable, value in zip(metric.variables, values, strict=False):
                if variable.shape == value.shape:
                    variable.assign(value)

    def get_metrics_result(self) -> Logs:
        """Return the value of every metric in `metrics`, by name."""
        with self.between_steps():
            results = self._metric_results(self.metrics)
        if any(isinstance(value, Value) for value in results.values()):
            return results  # inside of a step that is traced
        return {name: _number(results[name]) for name in sorted(results)}

    def logs_of(self, metrics: list[Metric]) -> Logs:
        """Return the value of each of `metrics`, by name, outside of any step."""
        results = self._metric_results(metrics)
        return {name: _number(results[name]) for name in sorted(results)}

    def batch_logs(self, results: Any) -> Logs:
        """Return the logs of the last of some steps.

        They are what a step of the user's own returned, else all metrics.
        """
        return self.get_metrics_result() if results is None else last_logs(results)

    def epoch_logs(self, results: Any) -> Logs:
        """Return the logs of an epoch from its last steps, as Keras has them.

        Metrics are computed again; values under other names are left unchanged.
        """
        metrics = self.get_metrics_result()
        logs = metrics if results is None else last_logs(results)
        return metrics if metrics.keys() == logs.keys() else logs

    def _metric_results(self, reported: list[Metric]) -> dict[str, Any]:
        compiled = self._compile_metrics
        theirs = set(map(id, compiled.metrics)) if compiled else set()
        results: dict[str, Any] = {}
        for metric in reported:
            if id(metric) not in theirs and metric is not compiled:
                value = metric.result()
                results |= value if isinstance(value, dict) else {metric.name: value}
        seen = set(map(id, reported))
        if compiled is not None and compiled.built and seen & {*theirs, id(compiled)}:
            results.update(compiled.result())  # with the names of the outputs
        return results

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
        **kwargs: Any,
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
        self._step_cache.lock.refuse_training("fit")
        self.refuse_own_function("train")
        if "nb_epoch" in kwargs:
            keras2.note("`nb_epoch=`", "`epochs=`")
            epochs = kwargs.pop("nb_epoch")
        _refuse_unknown("fit", kwargs)
        fit_loop.check_epochs(epochs, initial_epoch)
        fit_loop.check_split(validation_split)
        frequency = fit_loop.checked_frequency(validation_freq)
        steps_per_epoch = count(steps_per_epoch, "steps_per_epoch")
        validation_steps = count(validation_steps, "validation_steps")
        count(batch_size, "batch_size")
        count(validation_batch_size, "validation_batch_size")
        data = (x, y, sample_weight, class_weight, batch_size, shuffle)
        split = (validation_data, validation_split, validation_batch_size)
        source, held_out, batch_size, shuffle = self._training_data(*data, *split)
        for rows in (source, held_out):
            if check and isinstance(rows, Table):
                rows.check_finite()
        size, total = _size_and_steps(source, batch_size, stacklevel=4)
        epochs = _limited("epochs", epochs, config.max_epochs()) or 0
        steps_per_epoch = _limited_steps(steps_per_epoch, total)
        steps = steps_per_epoch or total
        called = self._callbacks(callbacks, verbose, steps, epochs, add_history=True)
        if keras2.is_own:
            more = self._params_of_keras2(source, size, epochs, held_out is not None)
            called.set_params({**(called.params or {}), **more})
        if isinstance(held_out, Table):
            called.set_validation_data(held_out.as_keras2_list())
        validation = Validation(
            self.evaluate_source,
            held_out,
            _validation_size(held_out, validation_batch_size or batch_size),
            validation_steps,
            frequency,
        )
        cache = self._step_cache
        loop = FitLoop(self, cache, called, source, size, shuffle, steps, validation)
        loop.train(initial_epoch, epochs)
        assert called.history is not None
        return called.history

    def _training_data(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        class_weight: Any,
        batch_size: int | None,
        shuffle: bool,
        validation_data: Any,
        validation_split: float,
        validation_batch_size: int | None,
    ) -> tuple[Source, Source | None, int | None, bool]:
        """Return the data to train on and to validate on, the batch size, `shuffle`."""
        x, y, batch_size, shuffles = as_rows(x, y, batch_size)
        shuffle = bool(shuffle if shuffles is None else shuffles)
        source = data_adapters.training_source(
            self,
            x,
            y,
            sample_weight,
            class_weight,
            shuffle,
            refused_for_streams={
                "y": y is not None,
                "sample_weight": sample_weight is not None,
                "validation_split": bool(validation_split),
            },
            batch_size=batch_size,
            held_out=validation_split if validation_data is None else 0.0,
        )
        if isinstance(source, Table) and source.shuffle is not None:
            shuffle = source.shuffle
        held_out = None
        if validation_data is not None:
            size = validation_batch_size or batch_size
            held_out = data_adapters.validation_source(self, validation_data, size)
        elif validation_split:
            source, held_out = source.split(validation_split)
        return source, held_out, batch_size, shuffle

    def _params_of_keras2(
        self, source: Source, size: int, epochs: int, validates: bool
    ) -> dict[str, Any]:
        """Return the further `params` that Keras 2 and 1 set on callbacks."""
        names = self.metrics_names
        rows = source.rows if isinstance(source, Table) else None
        held_out = [f"val_{name}" for name in names] if validates else []
        params = {"batch_size": size, "samples": rows, "do_validation": validates}
        old = {"nb_epoch": epochs, "nb_sample": rows}
        return {**params, **old, "metrics": [*names, *held_out]}

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
        _refuse_unknown("evaluate", kwargs)
        self._require_compiled("evaluate")
        self.refuse_own_function("test")
        source, size, steps, called = self._prepared(
            x, y, sample_weight, batch_size, steps, callbacks, verbose
        )
        logs = self.evaluate_source(source, size, steps, called)
        return logs if return_dict else self._as_list(logs)

    def evaluate_source(
        self,
        source: Source,
        size: int | None,
        steps: int | None,
        callbacks: CallbackList,
    ) -> Logs:
        """Return the loss and the metrics on a table or stream, by name."""
        total = -(-source.rows // size) if isinstance(source, Table) and size else None
        steps = _limited_steps(steps, total)
        hears_batches = callbacks.hears_batches_in("test")
        done, results = 0, None
        with self._step_cache.lock.own_metrics():
            self.reset_metrics()
            self.stop_evaluating = False
            callbacks.on_test_begin()
            for done, results in self._chunks(
                "test", source, size or 0, steps, callbacks
            ):
                if hears_batches:
                    callbacks.on_test_batch_end(done - 1, self.batch_logs(results))
                if self.stop_evaluating:
                    break
            logs = self.epoch_logs(results) if done else {}
            callbacks.on_test_end(logs)
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
        self.refuse_own_function("predict")
        is_plain = verbose == 0 and not callbacks and steps is None
        if is_plain and _is_one_batch(x, batch_size):
            outputs = self._step_cache.predictions.run(x)
            if outputs is not None:
                if self.stop_predicting:
                    self.stop_predicting = False
                return outputs
        source, size, steps, called = self._prepared(
            x, None, None, batch_size, steps, callbacks, verbose
        )
        self.stop_predicting = False
        called.on_predict_begin()
        parts: list[Any] = []
        for done, outputs in self._chunks("predict", source, size, steps, called):
            parts.append(outputs)
            last = tree.map_leaves(lambda rows: rows[-1], outputs)  # of the steps
            called.on_predict_batch_end(done - 1, {"outputs": last})
            if self.stop_predicting:
                break
        called.on_predict_end()
        return _joined(parts)

    def _prepared(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        batch_size: int | None,
        steps: int | None,
        callbacks: Any,
        verbose: Any,
    ) -> tuple[Source, int, int | None, CallbackList]:
        steps = count(steps, "steps")
        count(batch_size, "batch_size")
        x, y, batch_size, _ = as_rows(x, y, batch_size)
        source = data_adapters.source(self, x, y, sample_weight, batch_size)
        size, total = _size_and_steps(source, batch_size, stacklevel=5)
        steps = _limited_steps(steps, total)
        return source, size, steps, self._callbacks(callbacks, verbose, steps or total)

    def _chunks(
        self,
        kind: str,
        source: Source,
        size: int,
        steps: int | None,
        callbacks: CallbackList,
    ) -> Iterator[tuple[int, Any]]:
        """Run `test` or `predict` over a source; yield steps done and results."""
        begin = getattr(callbacks, f"on_{kind}_batch_begin")
        cache = self._step_cache
        if isinstance(source, Table):
            if source.is_one_batch(size, steps):
                begin(0)
                yield 1, cache.run_batch(kind, source)
                return
            each = callbacks.needs_batches_in(kind)
            source, length = cache.padded(kind, source)
            cursor = cache.take_cursor()
            try:
                for done, results in fit_loop.run_epoch(
                    cache,
                    kind,
                    source,
                    size,
                    cursor=cursor,
                    steps=steps,
                    each_batch=each,
                    before=begin,
                ):
                    yield done, cache.buckets.cut(results, length)
            finally:
                cache.return_cursor(cursor)
            return
        source.restart()
        if kind == "predict" and data_adapters.is_never_compiled(self):
            for done, (x, _, _) in enumerate(source.batches(steps), 1):
                begin(done - 1)
                # Copies, because a model may return what it is given.
                yield done, tree.map_leaves(lambda rows: np.array([rows]), self(x))
            return
        batches = data_adapters.tables(self, source, steps)
        for done, (batch, _) in enumerate(batches, 1):
            begin(done - 1)
            yield done, cache.run_batch(kind, batch)
        source.end_epoch()

    # ---- a single batch ------------------------------------------------------------

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Take a step on a batch; return the loss and metrics of that batch."""
        self._require_compiled("train_on_batch")
        weights = data_adapters.class_weighted(y, sample_weight, class_weight)
        return self._on_batch("train", x, y, weights, return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Return the loss and metrics of a batch, without learning."""
        self._require_compiled("test_on_batch")
        return self._on_batch("test", x, y, sample_weight, return_dict)

    def _on_batch(
        self, kind: str, x: Any, y: Any, weight: Any, return_dict: bool
    ) -> Any:
        batch = data_adapters.table(self, x, y, weight, is_batch=True)
        with self.between_steps():
            if kind == "train":
                self._step_cache.lock.refuse_training("train_on_batch")
            self.training_state.saved_metrics = None
            self.reset_metrics()
            logs = self.batch_logs(self._step_cache.run_batch(kind, batch))
        return logs if return_dict else self._as_list(logs)

    def _as_list(self, logs: Logs) -> Any:
        """Return the values in the order of the metrics, a lone loss as a number."""
        if len(logs) == 1:
            return next(iter(logs.values()))
        ordered = dict.fromkeys(n for n in self.metrics_names if n in logs)
        rest = dict.fromkeys(logs if keras2.active() else sorted(logs))
        return [logs[name] for name in ordered | rest]

    def predict_on_batch(self, x: Any) -> Any:
        """Return the model's outputs for a batch."""
        outputs = self._step_cache.predictions.run(x)
        if outputs is not None:
            return outputs
        results = self._step_cache.run_batch("predict", data_adapters.table(self, x))
        return tree.map_leaves(lambda steps: steps[0], results)


def _are_metrics(values: Any) -> bool:
    """Return whether these are names or functions, not numbers."""
    values = values if isinstance(values, (list, tuple)) else [values]
    return any(isinstance(v, (str, Metric)) or callable(v) for v in values)


def _number(result: Any) -> Any:
    """Return a metric's value: a number, or an array with a number for each class."""
    array = np.asarray(result)
    return float(array.reshape(())) if array.size == 1 else array


def _is_one_batch(x: Any, batch_size: int | None) -> bool:
    """Return whether this is an array of no more rows than a batch has."""
    if type(x) is not np.ndarray or not x.ndim:
        return False
    if batch_size is None:
        return len(x) <= data_adapters.DEFAULT_BATCH
    return type(batch_size) is int and len(x) == batch_size


def _size_and_steps(
    source: Source, batch_size: int | None, stacklevel: int
) -> tuple[int, int | None]:
    """Return the batch size (0 for a stream) and the number of steps, if known."""
    if not isinstance(source, Table):
        return 0, source.length
    size = source.batch_size
    if not size:
        size = data_adapters.checked_batch(batch_size, source.rows, stacklevel)
    return size, -(-source.rows // size)


def _limited_steps(steps: int | None, total: int | None) -> int | None:
    """Return the requested steps, or the limit of `config`."""
    most = config.max_steps_per_epoch()
    is_below = most is None or (steps or total or most + 1) <= most
    return steps if is_below else _limited("steps_per_epoch", steps, most)


def _limited(name: str, value: int | None, most: int | None) -> int | None:
    """Return a number of epochs or steps, or the limit with a warning."""
    if not most or (value is not None and value <= most):
        return value
    warnings.warn(f"Limiting {name} to {most}", stacklevel=4)
    return most


def _validation_size(held_out: Source | None, batch_size: int | None) -> int | None:
    """Return the batch size of validation, None for a stream, which has its own."""
    if not isinstance(held_out, Table):
        return None
    size = held_out.batch_size or batch_size or data_adapters.DEFAULT_BATCH
    return min(size, held_out.rows)


def _joined(parts: list[Any]) -> Any:
    """Join the results of chunks, each (steps, batch, ...), into rows."""
    if len(parts) == 1:
        return tree.map_leaves(_as_rows, parts[0])
    columns = zip(*map(tree.flatten, parts), strict=True)
    return tree.pack(parts[0], [_concatenated(chunks) for chunks in columns])


def _concatenated(chunks: Iterable[np.ndarray]) -> np.ndarray:
    rows = [_as_rows(chunk) for chunk in chunks]
    if len(shapes := {part.shape[1:] for part in rows}) > 1:
        raise ValueError(
            "predict: batches give rows of different shapes, "
            f"{' and '.join(map(str, sorted(shapes)))}, which are no one array: call "
            "`predict_on_batch` on each, or pad the inputs to one size."
        )
    return np.concatenate(rows)


def _as_rows(results: np.ndarray) -> np.ndarray:
    steps, batch, *row = results.shape
    return results.reshape(steps * batch, *row)  # not by -1: rows may be empty


_WORKERS = (  # by all their names since Keras 1
    "workers",
    "nb_worker",
    "use_multiprocessing",
    "pickle_safe",
    "max_queue_size",
    "max_q_size",
)


def without_workers(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without those on threads, which `PyDataset` has now."""
    return {name: value for name, value in kwargs.items() if name not in _WORKERS}


_OLD_MODES = {  # of `compile`, with what decides today
    "sample_weight_mode": "the shape of `sample_weight`",
    "experimental_run_tf_function": "`run_eagerly=`",
}


def _without_old_modes(kwargs: dict[str, Any]) -> dict[str, Any]:
    for name in kwargs.keys() & _OLD_MODES.keys():
        keras2.note(f"`compile({name}=)`", _OLD_MODES[name], changes_defaults=False)
    return {name: kwargs[name] for name in kwargs.keys() - _OLD_MODES.keys()}


def _refuse_unknown(verb: str, kwargs: dict[str, Any]) -> None:
    unknown = without_workers(kwargs)
    if unknown != kwargs:
        keras2.note("`workers=`", "an argument of `PyDataset`", changes_defaults=False)
    if unknown:
        raise TypeError(f"`{verb}` does not know {', '.join(unknown)}.")
