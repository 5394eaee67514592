"""The steps as methods, for subclasses to override and to call.

If they are not overridden, a step is traced without them (see `tracing`), to the same
effect.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ganglion import tree
from ganglion.gradients import GradientTape
from ganglion.training.data_adapters import Batch
from ganglion.training.state import Logs, default
from ganglion.training.streams import unpack
from ganglion.training.tracing import loss_of
from ganglion.training.trainer import Trainer
from ganglion.variables import StatelessScope, zip_values


class StepMethods(Trainer):
    """The steps of `fit`, `evaluate` and `predict`."""

    @default
    def train_step(self, data: Any) -> Logs:
        """Learn from a batch; return the metrics.

        >>> import ganglion as keras
        >>> class Twice(keras.Sequential):
        ...     def train_step(self, data):
        ...         super().train_step(data)
        ...         return super().train_step(data)
        """
        x, y, weight = unpack(data)
        with GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self._tracked_loss(Batch(x, y, weight), y_pred, training=True)
            scaled = self.optimizer.scale_loss(loss)
        weights = self.prepare_training()
        if weights:
            self.optimizer.apply(tape.gradient(scaled, weights), weights)
        else:
            warnings.warn("The model has no trainable weights.", stacklevel=2)
        return self.compute_metrics(x, y, y_pred, sample_weight=weight)

    @default
    def test_step(self, data: Any) -> Logs:
        """Measure the loss and the metrics on a batch; return them."""
        x, y, weight = unpack(data)
        y_pred = self(x, training=False)
        self._tracked_loss(Batch(x, y, weight), y_pred, training=False)
        return self.compute_metrics(x, y, y_pred, sample_weight=weight)

    @default
    def predict_step(self, data: Any) -> Any:
        """Return the outputs for a batch."""
        x, _, _ = unpack(data)
        return self(x, training=False)

    @default
    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> Logs:
        """Add a batch to the metrics of `compile`; return the value of every metric."""
        self.update_metrics(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def _tracked_loss(self, batch: Batch, y_pred: Any, training: bool) -> Any:
        loss = loss_of(self, batch, y_pred, training)
        rows = next(leaf for leaf in tree.flatten(batch.x) if leaf is not None)
        self._loss_tracker.update_state(loss, sample_weight=rows.shape[0])
        return loss

    def _compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Call `compute_loss` with or without `training`, as its signature says."""
        return loss_of(self, Batch(x, y, sample_weight), y_pred, training)

    # ---- JAX's way -----------------------------------------------------------------

    def stateless_compute_loss(
        self,
        trainable_variables: Sequence[Any],
        non_trainable_variables: Sequence[Any],
        metrics_variables: Sequence[Any],
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the loss and the new values of all variables, without side effects."""
        trained, fixed = self.trainable_variables, self.non_trainable_variables
        sums = self.metrics_variables
        mapping = [
            *zip_values("trainable_variables", trained, trainable_variables, self.name),
            *zip_values(
                "non_trainable_variables", fixed, non_trainable_variables, self.name
            ),
            *zip_values("metrics_variables", sums, metrics_variables, self.name),
        ]
        with StatelessScope(mapping) as scope:
            loss = self._compute_loss(x, y, y_pred, sample_weight, training)
        return loss, (
            trainable_variables,
            scope.current_values(fixed),
            scope.current_values(sums),
        )

    def build_losses_and_metrics(self, batch: Batch, y_pred: Any) -> None:
        """Create the losses and metrics of `compile`, whose variables a step takes."""
        if self._compile_loss is not None and self.loss is not None:
            self._compile_loss(batch.y, y_pred, batch.sample_weight)
        self.update_metrics(batch.y, y_pred, batch.sample_weight)

    # ---- methods of Keras' trainers --------------------------------------------------

    @default
    def make_train_function(self, force: bool = False) -> Any:
        """Return a function that takes an iterator's next batch and learns from it."""
        return self._on_next("train_on_batch")

    @default
    def make_test_function(self, force: bool = False) -> Any:
        """Return a function that takes an iterator's next batch and measures it."""
        return self._on_next("test_on_batch")

    @default
    def make_predict_function(self, force: bool = False) -> Any:
        """Return a function that takes an iterator's next batch and predicts it."""
        return lambda iterator: self.predict_on_batch(unpack(next(iterator))[0])

    def _on_next(self, method: str) -> Any:
        def function(iterator: Any) -> Any:
            x, y, weight = unpack(next(iterator))
            return getattr(self, method)(x, y, weight, return_dict=True)

        return function
