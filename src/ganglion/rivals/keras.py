"""Keras on TensorFlow: `fit` over batches in memory, many steps an execution."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ganglion.rivals import Task, scaled

STEPS_PER_EXECUTION = 32  # Keras' own way to leave Python out of most steps


def prepare(task: Task, form: str) -> KerasTrainer:
    """Build the recipe's model; the form says whether XLA compiles it."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    return KerasTrainer(task, form == "XLA")


class KerasTrainer:
    """`model.fit`; the clock runs from the beginning of an epoch to its end."""

    def __init__(self, task: Task, xla: bool) -> None:
        import keras
        import tensorflow as tf

        layers, x = scaled(task)
        stack: list[Any] = [keras.layers.Input(task.recipe.input_shape)]
        stack += [getattr(keras.layers, kind)(**given) for kind, given in layers]
        self._model = keras.Sequential(stack)
        kind, given = task.recipe.optimizer
        self._model.compile(
            getattr(keras.optimizers, kind)(**given),
            loss=task.recipe.loss,
            metrics=list(task.recipe.metrics),
            jit_compile=xla,
            steps_per_execution=1,
        )
        self._model.set_weights(task.weights)
        # Batches cut once: cheaper a step than the gather that `fit` does on arrays.
        rows = task.batches * task.batch_size
        shape = (task.batches, task.batch_size)
        batches = tf.data.Dataset.from_tensor_slices(
            (
                x[:rows].reshape(*shape, *x.shape[1:]),
                task.y[:rows].reshape(*shape, *task.y.shape[1:]),
            )
        )
        self._data = batches.repeat().prefetch(2)
        self._clock = _clock(keras)
        self._loss = float("nan")

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took."""
        together = min(steps, STEPS_PER_EXECUTION)
        if self._model.steps_per_execution != together:
            self._model.steps_per_execution = together
            self._model.train_function = None
        history = self._model.fit(
            self._data, steps_per_epoch=steps, verbose=0, callbacks=[self._clock]
        )
        self._loss = history.history["loss"][-1]
        return self._clock.seconds

    def loss(self) -> float:
        """Return the mean loss over the last run."""
        return float(self._loss)

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now."""
        return [np.array(one) for one in self._model.get_weights()]


def _clock(keras: Any) -> Any:
    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        """Times an epoch, without what `fit` does before and after."""

        seconds = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.seconds = -time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds += time.perf_counter()

    return Clock()
