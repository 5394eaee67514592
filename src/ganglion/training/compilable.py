"""How a model is to learn: its optimizer, loss and metrics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import keras2, ops, optimizers
from ganglion.callbacks import History
from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import Value
from ganglion.layers import Layer
from ganglion.metrics import Mean, Metric
from ganglion.optimizers import Optimizer
from ganglion.optimizers.loss_scale import LossScaleOptimizer
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.training.compile_utils import CompiledLoss, CompiledMetrics
from ganglion.training.data_adapters import count
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


class Compilable(Layer):
    """The part of a model that knows how it is to learn."""

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
        # Plain data that goes into the model's file and comes back: class names, say.
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
    ) -> None:
        """Choose how the model learns: the optimizer, the loss and the metrics.

        `steps_per_execution` says after how many steps callbacks are called; Ganglion
        runs many steps at a time anyway, and compiles them whatever `jit_compile` says.
        With `run_eagerly` it does not: each step runs in Python, on the reference
        backend, so that prints and breakpoints see numbers. That is slow. The loss of a
        "mixed_float16" model is scaled, unless `auto_scale_loss` is False.
        """
        steps_per_execution = count(steps_per_execution, "steps_per_execution") or 1
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
        # As in Keras 2: what is trainable is decided here, not at the next step.
        self._chosen_weights = list(self.trainable_weights) if self.built else None
        self._step_cache.clear()

    def _scales_loss(self) -> bool:
        """Return whether gradients may vanish in float16, and nothing is done yet."""
        is_plain = not isinstance(self.optimizer, (LossScaleOptimizer, type(None)))
        return is_plain and self.dtype_policy.name == "mixed_float16"

    def between_steps(self) -> AbstractContextManager[None]:
        """Keep other threads from using this model, in the middle of no step."""
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
        """Return the weights to train, with the optimizer's slots made for them."""
        weights = self._chosen_weights
        if weights is None:
            weights = self._chosen_weights = list(self.trainable_weights)
        with suspended(), origin.inside("optimizer"):
            if self.optimizer.built and not self.optimizer.knows(weights):
                # It trains another model, or trained other layers of this one.
                self.optimizer = self.optimizer.sibling()
                self._compile_arguments["optimizer"] = self.optimizer
            if not self.optimizer.built:
                self.optimizer.build(weights)
        return weights

    @property
    def chosen_weights(self) -> list[Variable] | None:
        """The weights that `compile` chose to train, None as long as there are none."""
        return self._chosen_weights

    def choose_weights(self, weights: list[Variable]) -> None:
        """Train these weights, with an optimizer whose slots are made for them."""
        if weights == self._chosen_weights:
            return
        self._chosen_weights = weights
        plain = serialize_keras_object(self.optimizer)
        self.optimizer = deserialize_keras_object(plain)
        self._compile_arguments["optimizer"] = self.optimizer
        self.prepare_training()

    @property
    def chosen_loss(self) -> Any:
        """The loss that `compile` chose; a name alone is the loss that it means."""
        return None if self._compile_loss is None else self._compile_loss.loss

    def build_losses(self, y: Any, y_pred: Any) -> None:
        """Make the losses and metrics for labels and outputs of these shapes.

        The first step does so by itself, if it was not done before.
        """
        if self._compile_loss is not None and self.loss is not None:
            self._compile_loss.build(y, y_pred)
        if self._compile_metrics is not None:
            self._compile_metrics.build(y, y_pred)

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
        """Return what `call` added to the loss, here and in the layers below."""
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
        return type(self).compute_loss is not Compilable.compute_loss

    @property
    def has_own_steps(self) -> bool:
        """Whether a step was overridden, which takes data of any kind."""
        return any(is_own(self, kind) for kind in ("train", "test", "predict"))

    def refuse_own_function(self, kind: str) -> None:
        """Refuse a `make_..._function` of the user's own, which nothing would call."""
        name = f"make_{kind}_function"
        if not is_default(self, name):
            raise NotImplementedError(
                f"{type(self).__name__} overrides `{name}`, which Ganglion does not "
                f"call, as many steps run at a time: override `{kind}_step`."
            )

    @property
    def compiled_loss(self) -> Callable[..., Any]:
        """Keras 2's function of targets and predictions: the loss, which it tracks."""
        keras2.note("`compiled_loss`", "`compute_loss`", changes_defaults=False)
        return self._loss_of_keras2

    def _loss_of_keras2(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        regularization_losses: Any = None,
    ) -> Any:
        if self._compile_loss is None:
            raise ValueError("`compiled_loss` needs a loss: give `compile` one.")
        total = self._compile_loss(y_true, y_pred, sample_weight)
        for loss in regularization_losses or ():
            total = total + ops.sum(loss)
        self._loss_tracker.update_state(total)
        return total

    @property
    def compiled_metrics(self) -> Any:
        """Keras 2's metrics of `compile` as one: `update_state(y_true, y_pred)`."""
        keras2.note(
            "`compiled_metrics`", "a loop over `self.metrics`", changes_defaults=False
        )
        return _MetricsOfCompile(self)

    def update_metrics(self, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Add a batch to the metrics."""
        if self._compile_metrics is not None and y is not None:
            self._compile_metrics.update_state(y, y_pred, sample_weight)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics that training reports, the loss first.

        After those of `compile` come those in attributes: of this model, and of the
        layers below that are no models themselves.
        """
        reported: list[Metric] = [self._loss_tracker] if self.compiled else []
        reported += self._compile_loss.metrics if self._compile_loss else []
        compiled = self._compile_metrics
        if compiled and self.is_in_own_step and not compiled.built:
            # A loop over `self.metrics` makes them.
            reported += [compiled] if any(compiled.arguments) else []
        reported += compiled.metrics if compiled else []
        reported += self._tracker.metrics
        for layer in self._flatten_layers(include_self=False):
            if not isinstance(layer, Compilable):
                reported += layer._tracker.metrics
        return list({id(metric): metric for metric in reported}.values())

    @property
    def metrics_names(self) -> list[str]:
        """The names of the metrics, with those of their outputs, as in the logs."""
        compiled = self._compile_metrics
        pairs = compiled.named() if compiled and compiled.built else ()
        names = {id(metric): name for name, metric in pairs}
        return [names.get(id(metric), metric.name) for metric in self.metrics]

    def reset_metrics(self) -> None:
        """Start the metrics from nothing."""
        with self.between_steps():
            for metric in self.metrics:
                metric.reset_state()

    def restore_metrics(self) -> None:
        """Give the metrics the sums that were saved in the middle of an epoch."""
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
        """Return the value of every one of `metrics`, by name, outside of any step."""
        results = self._metric_results(metrics)
        return {name: _number(results[name]) for name in sorted(results)}

    def batch_logs(self, results: Any) -> Logs:
        """Return the logs of the last of some steps.

        They are what a step of the user's own returned, else all metrics.
        """
        return self.get_metrics_result() if results is None else last_logs(results)

    def epoch_logs(self, results: Any) -> Logs:
        """Return the logs of an epoch from its last steps, as Keras has them.

        Metrics are asked again; what is reported under other names stays as it is.
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
        if compiled is not None and theirs & set(map(id, reported)):
            results.update(compiled.result())  # with the names of the outputs
        return results


def _are_metrics(values: Any) -> bool:
    """Return whether these are names or functions, no numbers."""
    values = values if isinstance(values, (list, tuple)) else [values]
    return any(isinstance(v, (str, Metric)) or callable(v) for v in values)


def _number(result: Any) -> Any:
    """Return a metric's value: a number, or an array with one for each class."""
    array = np.asarray(result)
    return float(array.reshape(())) if array.size == 1 else array


@dataclass(frozen=True)
class _MetricsOfCompile:
    """The metrics of a model's `compile`, as scripts for Keras 2 update them."""

    model: Compilable

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch to all of them."""
        self.model.update_metrics(y_true, y_pred, sample_weight)
