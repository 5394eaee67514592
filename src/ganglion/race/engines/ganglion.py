"""Ganglion as its users run it: `fit` on the images as they come."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from ganglion import config, recipes
from ganglion.compiler import registry
from ganglion.race.engines import TEST_BATCH, Task, Unavailable, last_accuracy
from ganglion.race.engines.augmented import set_states


def prepare(task: Task, form: str) -> GanglionTrainer:
    """Build the recipe's model; the form "numpy" takes the reference backend."""
    backend = "numpy" if form == "numpy" else task.device
    if backend not in config.BACKENDS:
        raise Unavailable(f"Ganglion has no backend for {backend} here")
    if reason := registry.unavailable_reason(backend):
        raise Unavailable(reason)
    config.set_backend(backend)
    config.set_threads(task.threads)
    config.set_precision(task.precision)
    config.set_floatx(task.dtype)
    return GanglionTrainer(task)


def _freeze(array: Any) -> None:
    """Make an array read-only, and the arrays that it is a view of."""
    while isinstance(array, np.ndarray):
        array.setflags(write=False)
        array = array.base


class GanglionTrainer:
    """`model.fit`, all of it inside the clock: callbacks, metrics, scaled pixels."""

    def __init__(self, task: Task) -> None:
        self._task = task
        for array in (task.x, task.y, task.x_test, task.y_test):
            _freeze(array)  # so it stays on a GPU, as that of the rivals does
        self._model = recipes.build(task.recipe)
        self._model.set_weights(task.weights)
        self._optimizer: list[np.ndarray] | None = None
        rows = 0 if task.x_test is None else len(task.x_test)
        self._test_batch = min(TEST_BATCH, rows)
        self._loss = float("nan")

    def run(self, steps: int) -> float:
        task = self._task
        batches = -(-len(task.x) // task.batch_size)
        passes, rest = divmod(steps, batches)
        losses: list[float] = []
        started = time.perf_counter()
        # An epoch ends with its data: so many complete epochs, and part of another.
        if passes:
            losses += self._fit(epochs=passes, shuffle=False)["loss"]
        if rest:
            losses += self._fit(steps_per_epoch=rest, shuffle=False)["loss"]
        seconds = time.perf_counter() - started
        counts = [batches] * passes + [rest] * bool(rest)
        self._loss = float(np.average(losses, weights=counts))
        return seconds

    def loss(self) -> float:
        return float(self._loss)

    def weights(self) -> list[np.ndarray]:
        return [np.array(weight) for weight in self._model.get_weights()]

    def _fit(self, **options: Any) -> dict[str, list[float]]:
        task = self._task
        options = {"shuffle": task.recipe.shuffle, "verbose": 0} | options
        history = self._model.fit(task.x, task.y, batch_size=task.batch_size, **options)
        return history.history

    # The race. Ganglion shuffles inside its compiled step; its rivals receive the same
    # order as an array.

    def warm_up(self, order: np.ndarray) -> None:
        """Compile the step for full batches and for the last batch, and the test."""
        state = self._model.training_state
        self.reset()
        self._fit(steps_per_epoch=1)
        if rest := len(order) % self._task.batch_size:
            self.reset()
            state.position.array[...] = len(order) - rest
            state.was_loaded = True  # so that `fit` starts at this position
            self._fit(steps_per_epoch=1)
        self.test()
        self.reset()

    def steps(self, order: np.ndarray, count: int) -> list[float]:
        """Train on the first batches; return the loss of each: single-step epochs."""
        return list(map(float, self._fit(steps_per_epoch=1, epochs=count)["loss"]))

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on as many rows as are in the order, which is the model's own."""
        size = self._task.batch_size
        count = None if len(order) == len(self._task.x) else len(order) // size
        history = self._fit(steps_per_epoch=count)
        return history["loss"][-1], last_accuracy(history)

    def test(self) -> tuple[float, float]:
        task = self._task
        scores = self._model.evaluate(
            task.x_test,
            task.y_test,
            batch_size=self._test_batch,
            verbose=0,
            return_dict=True,
        )
        return scores["loss"], scores.get("accuracy", math.nan)

    def in_batches(self, x: np.ndarray, size: int) -> tuple[np.ndarray, int]:
        return x, size

    def predict(self, batches: tuple[np.ndarray, int]) -> np.ndarray:
        x, size = batches
        outputs: np.ndarray = self._model.predict(x, batch_size=size, verbose=0)
        return outputs

    def feed(self, images: np.ndarray) -> None:
        """Refuse: Ganglion augments images itself, while it is timed."""
        raise NotImplementedError("Ganglion receives the images unchanged.")

    def reset(self) -> None:
        """Go back to the first weights, a fresh optimizer and the first order."""
        self._model.set_weights(self._task.weights)
        if self._task.states is not None:
            set_states(self._model, self._task.states)
        for variable, value in zip(*self._fresh_optimizer(), strict=True):
            variable.assign(value)
        state = self._model.training_state
        state.order.array[...] = self._task.order_seed, 0
        state.position.array[...] = state.epoch.array[...] = 0

    def _fresh_optimizer(self) -> tuple[list[Any], list[np.ndarray]]:
        """Return the optimizer's variables and their initial values."""
        optimizer = self._model.optimizer
        if self._optimizer is None:
            optimizer.build(self._model.trainable_variables)
            self._optimizer = [np.array(variable) for variable in optimizer.variables]
        return optimizer.variables, self._optimizer
