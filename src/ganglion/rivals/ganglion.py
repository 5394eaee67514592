"""Ganglion as its users run it: `fit` on the images as they come."""

from __future__ import annotations

import time

import numpy as np

from ganglion import config, recipes
from ganglion.rivals import Task


def prepare(task: Task, form: str) -> GanglionTrainer:
    """Build the recipe's model with the weights given."""
    return GanglionTrainer(task)


class GanglionTrainer:
    """`model.fit`, all of it inside the clock: callbacks, metrics, scaled pixels."""

    def __init__(self, task: Task) -> None:
        config.set_backend("cpu")
        config.set_threads(task.threads)
        self._task = task
        self._model = recipes.build(task.recipe)
        self._model.set_weights(task.weights)
        self._loss = float("nan")

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took."""
        started = time.perf_counter()
        history = self._model.fit(
            self._task.x,
            self._task.y,
            batch_size=self._task.batch_size,
            steps_per_epoch=steps,
            shuffle=False,
            verbose=0,
        )
        seconds = time.perf_counter() - started
        self._loss = history.history["loss"][-1]
        return seconds

    def loss(self) -> float:
        """Return the mean loss over the last run."""
        return float(self._loss)

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now."""
        return [np.array(one) for one in self._model.get_weights()]
