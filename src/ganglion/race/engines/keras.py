"""Keras: `fit` over batches in memory, many steps an execution."""

from __future__ import annotations

import math
import time
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np

from ganglion import recipes
from ganglion.race.engines import (
    TEST_BATCH,
    RivalTrainer,
    Task,
    last_accuracy,
    leaves_softmax,
    pixels,
    scaled,
    split,
    translation,
    up_to_logits,
)
from ganglion.race.engines.augmented import parts

STEPS_PER_EXECUTION = 32  # Keras' own way to leave Python out of most steps


def prepare(task: Task, form: str) -> KerasTrainer:
    """Build the recipe's model; `form` names whether XLA compiles it.

    The environment variable KERAS_BACKEND chooses what Keras runs on.
    """
    import keras

    keras.config.set_floatx(task.dtype)
    mixed = task.precision == "bf16"
    keras.config.set_dtype_policy("mixed_bfloat16" if mixed else task.dtype)
    chosen = keras.backend.backend()
    if chosen == "tensorflow":
        from ganglion.race.engines import tensorflow

        tensorflow.set_up(task)
        return KerasOnTensorFlow(task, form == "XLA")
    if chosen == "torch":
        from ganglion.race.engines import torch

        torch.set_up(task)
    else:
        from ganglion.race.engines import jax

        jax.set_up(task)
    if task.dtype == "float64":
        _keep_float64()
    return KerasTrainer(task, "auto")


def _keep_float64() -> None:
    """Let a promotion of float64 be float64: on JAX and PyTorch, Keras rounds there."""
    from keras.src.backend.common import dtypes

    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"


class KerasTrainer(RivalTrainer):
    """`model.fit` and `model.evaluate` on arrays."""

    def __init__(self, task: Task, xla: bool | str) -> None:
        import keras

        self._task, self.batch_size, self._xla = task, task.batch_size, xla
        self._x: Any
        layers, self._x = scaled(task)
        self._test_x = None if task.x_test is None else pixels(task, task.x_test)
        layers = up_to_logits(task.recipe, layers)
        if task.augments:
            layers = (*task.recipe.augment, *layers)
        self._model = recipes.network(keras, task.recipe, layers)
        kind, arguments = task.recipe.optimizer
        self._model.compile(
            getattr(keras.optimizers, kind)(**arguments),
            loss=_criterion(keras, task.recipe.loss),
            loss_weights=recipes.loss_weights(task.recipe),
            metrics=list(task.recipe.metrics),
            jit_compile=xla,
        )
        self._model.set_weights(task.weights)
        optimizer = self._model.optimizer
        optimizer.build(self._model.trainable_variables)
        self._slots = [
            keras.ops.convert_to_numpy(variable) for variable in optimizer.variables
        ]
        self._clock = _clock(keras)

    def run(self, steps: int) -> float:
        self._together(steps)
        history = self._model.fit(
            self._around(), steps_per_epoch=steps, verbose=0, callbacks=[self._clock]
        )
        self._loss = history.history["loss"][-1]
        return self._clock.seconds

    def _around(self) -> Any:
        """Return the batches in order, without end."""
        size, x, y = self.batch_size, self._x, self._task.y
        starts = range(0, self._task.batches * size, size)
        return cycle([(x[at : at + size], y[at : at + size]) for at in starts])

    def _together(self, steps: int) -> None:
        """Run several steps in an execution, where Keras can do that."""
        import keras

        together = min(steps, STEPS_PER_EXECUTION)
        if keras.backend.backend() == "torch":
            return
        if self._model.steps_per_execution != together:
            self._model.steps_per_execution = together
            self._model.train_function = None

    def weights(self) -> list[np.ndarray]:
        return [np.array(weight) for weight in self._model.get_weights()]

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        self._together(STEPS_PER_EXECUTION)
        history = self._fit(order).history
        return history["loss"][-1], last_accuracy(history)

    def _fit(self, order: np.ndarray) -> Any:
        """Fit on the rows put in order; if they are in order, as they are."""
        x, y = self._x, self._task.y
        if not _is_in_order(order, len(x)):
            x, y = x[order], y[order]
        return self._model.fit(
            x, y, batch_size=self.batch_size, shuffle=False, verbose=0
        )

    def test(self) -> tuple[float, float]:
        scores = self._model.evaluate(**self._tested(), verbose=0, return_dict=True)
        return scores["loss"], scores.get("accuracy", math.nan)

    def _tested(self) -> dict[str, Any]:
        return {"x": self._test_x, "y": self._task.y_test, "batch_size": TEST_BATCH}

    def in_batches(self, x: np.ndarray, size: int) -> list[Any]:
        import keras

        batches = split(pixels(self._task, x), size)
        return [keras.ops.convert_to_tensor(batch) for batch in batches]

    def predict(self, batches: list[Any]) -> np.ndarray:
        """Predict batch by batch: `Model.predict` makes a data set of them first."""
        predictor = self._predictor
        return np.concatenate([predictor.predict_on_batch(x) for x in batches])

    @cached_property
    def _predictor(self) -> Any:
        """The model with the softmax that its loss took over, of the same weights."""
        import keras

        if not leaves_softmax(self._task.recipe):
            return self._model
        (outputs,) = self._model.outputs
        shares = keras.layers.Softmax()(outputs)
        predictor = keras.Model(self._model.inputs, shares)
        predictor.compile(jit_compile=self._xla)
        return predictor

    def feed(self, images: np.ndarray) -> None:
        for rows, part in parts(images):
            self._x[rows] = part

    def reset(self) -> None:
        self._model.set_weights(self._task.weights)
        variables = self._model.optimizer.variables
        for variable, value in zip(variables, self._slots, strict=True):
            variable.assign(value)


class KerasOnTensorFlow(KerasTrainer):
    """The same with TensorFlow's data sets, which prepare a batch during the last."""

    def __init__(self, task: Task, xla: bool) -> None:
        import tensorflow as tf

        super().__init__(task, xla)
        changes = task.recipe.augment and not task.augments
        keep = (lambda x: tf.Variable(x, trainable=False)) if changes else tf.constant
        self._x, self._y = keep(self._x), tf.constant(task.y)
        self._order = tf.Variable(tf.range(len(task.x)), trainable=False)
        self._rows = tf.Variable(len(task.x), trainable=False)
        size = self.batch_size

        def batch(at: Any) -> Any:
            rows = self._order[at * size : tf.minimum((at + 1) * size, self._rows)]
            return tf.gather(self._x, rows), tf.gather(self._y, rows)

        self._batch = batch
        self._datasets: dict[int, Any] = {}
        if self._test_x is not None:
            pair = (self._test_x, task.y_test)
            tests = tf.data.Dataset.from_tensor_slices(pair)
            self._tests = tests.batch(TEST_BATCH).cache().prefetch(2)

    def feed(self, images: np.ndarray) -> None:
        for rows, part in parts(images):
            self._x[rows].assign(part)

    def _around(self) -> Any:
        """Return batches split once: cheaper a step than to gather their rows."""
        import tensorflow as tf

        if 0 not in self._datasets:
            split = (self._task.batches, self.batch_size)
            rows = split[0] * split[1]
            parts = (self._x[:rows], self._y[:rows])
            parts = tuple(tf.reshape(part, (*split, *part.shape[1:])) for part in parts)
            batches = tf.data.Dataset.from_tensor_slices(parts)
            self._datasets[0] = batches.repeat().prefetch(2)
        return self._datasets[0]

    def _fit(self, order: np.ndarray) -> Any:
        import tensorflow as tf

        self._order[: len(order)].assign(order)
        self._rows.assign(len(order))
        count = -(-len(order) // self.batch_size)
        if count not in self._datasets:
            indices = tf.data.Dataset.range(count, output_type=tf.int32)
            self._datasets[count] = indices.map(self._batch).prefetch(2)
        return self._model.fit(self._datasets[count], verbose=0)

    def _tested(self) -> dict[str, Any]:
        return {"x": self._tests}


def _criterion(keras: Any, name: str) -> Any:
    """Return the loss, of logits where there are some.

    After a softmax Keras clips probabilities at 1e-7 on JAX and PyTorch, and not on
    TensorFlow; from logits it computes the same on all three, and in fewer passes.
    """
    losses = {
        "mean_squared_error": keras.losses.MeanSquaredError,
        "sparse_categorical_crossentropy": lambda: (
            keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        ),
    }
    return translation(losses, "the loss", name)()


def _is_in_order(order: np.ndarray, rows: int) -> bool:
    return len(order) == rows and bool((np.diff(order) == 1).all())


def _clock(keras: Any) -> Any:
    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        """Times an epoch, without what `fit` does before and after."""

        seconds = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.seconds = -time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds += time.perf_counter()

    return Clock()
