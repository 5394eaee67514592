"""TensorFlow: variables and a tape in a `tf.function` that loops over the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.race.engines import (
    RivalTrainer,
    Task,
    Unavailable,
    averages,
    pixels,
    scaled,
    split,
    test_set,
    up_to_logits,
)
from ganglion.race.engines.tensorflow_layers import Network


def prepare(task: Task, form: str) -> TensorFlowTrainer:
    """Write the recipe with TensorFlow's functions; `form` names what XLA compiles."""
    set_up(task)
    return TensorFlowTrainer(task, form)


def set_up(task: Task) -> None:
    """Choose threads; refuse a device that TensorFlow does not see."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    tf.config.experimental.enable_tensor_float_32_execution(task.precision != "float32")
    if task.device == "cuda" and not tf.config.list_physical_devices("GPU"):
        raise Unavailable(
            f"TensorFlow {tf.__version__} sees no GPU; "
            "pip install 'tensorflow[and-cuda]'"
        )


class TensorFlowTrainer(RivalTrainer):
    """All steps of an epoch inside the graph; Python only starts it."""

    def __init__(self, task: Task, form: str) -> None:
        import tensorflow as tf

        layers, x = scaled(task)
        self._task, self.batch_size = task, task.batch_size
        self._x, self._y = tf.constant(x), tf.constant(task.y)
        self._test = [tuple(map(tf.constant, batch)) for batch in test_set(task)]
        network = self._network = Network(task, up_to_logits(task.recipe, layers))
        of_steps, of_loop = form == "loop of XLA steps", form == "XLA loop"

        def jitted(call: Callable[..., Any]) -> Any:
            return tf.function(call, jit_compile=True) if of_steps else call

        advance, learn = jitted(network.advance), jitted(network.learn)
        self._loop = tf.function(_looped(advance, task), jit_compile=of_loop)
        self._epoch = tf.function(_over_order(learn, task), jit_compile=of_loop)
        self._rest = tf.function(_gathered(learn), jit_compile=of_loop)
        uses_xla = of_steps or of_loop
        self._judge = tf.function(network.judge, jit_compile=uses_xla)
        self._outputs = tf.function(network.predict, jit_compile=uses_xla)

    def run(self, steps: int) -> float:
        import tensorflow as tf

        count = tf.constant(steps)  # a tensor: another number is no other graph
        started = time.perf_counter()
        total = self._loop(self._x, self._y, count).numpy()
        seconds = time.perf_counter() - started
        self._loss = total / steps
        return seconds

    def weights(self) -> list[np.ndarray]:
        return [weight.numpy() for weight in self._network.weights]

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order: a call, and another for the last batch."""
        import tensorflow as tf

        size, count = self.batch_size, len(order) // self.batch_size
        total = hits = 0.0
        if count:
            rows = np.zeros(len(self._x), "int32")  # a fixed length: a single graph
            rows[: len(order)] = order
            total, hits = self._epoch(
                self._x, self._y, tf.constant(rows), tf.constant(count)
            )
            total *= size
        if rest := len(order) % size:
            loss, right = self._rest(self._x, self._y, tf.constant(order[-rest:]))
            total, hits = total + loss * rest, hits + right
        return float(total) / len(order), float(hits) / len(order)

    def test(self) -> tuple[float, float]:
        return averages((*self._judge(x, y), len(x)) for x, y in self._test)

    def in_batches(self, x: np.ndarray, size: int) -> list[Any]:
        import tensorflow as tf

        return [tf.constant(part) for part in split(pixels(self._task, x), size)]

    def predict(self, batches: list[Any]) -> np.ndarray:
        return np.concatenate([self._outputs(x).numpy() for x in batches])

    def feed(self, images: np.ndarray) -> None:
        import tensorflow as tf

        self._x = None  # the old ones need not be there at the same time
        self._x = tf.constant(images)

    def reset(self) -> None:
        self._network.reset()


def _looped(advance: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a loop over batches in order, repeatedly."""
    import tensorflow as tf

    split = (task.batches, task.batch_size)

    def loop(x: Any, y: Any, steps: Any) -> Any:
        x, y = (
            tf.reshape(array[: math.prod(split)], (*split, *array.shape[1:]))
            for array in (x, y)
        )

        def body(step: Any, total: Any) -> Any:
            at = step % split[0]
            return step + 1, total + advance(x[at], y[at])

        return _while(steps, body, tf.zeros((), task.dtype))[0]

    return loop


def _over_order(learn: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a loop over the batches of an order: sums of losses and of hits."""
    import tensorflow as tf

    size, take = task.batch_size, _gathered(learn)

    def loop(x: Any, y: Any, order: Any, count: Any) -> Any:
        def body(step: Any, total: Any, hits: Any) -> Any:
            loss, right = take(x, y, tf.slice(order, [step * size], [size]))
            return step + 1, total + loss, hits + right

        return _while(count, body, tf.zeros((), task.dtype), tf.constant(0.0))

    return loop


def _while(count: Any, body: Callable[..., Any], *sums: Any) -> Any:
    """Return the sums after some steps; a body takes the step, from 0, and sums."""
    import tensorflow as tf

    def goes_on(step: Any, *sums: Any) -> Any:
        return step < count

    start = (tf.constant(0), *sums)
    return tf.while_loop(goes_on, body, start, parallel_iterations=1)[1:]


def _gathered(learn: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    return lambda x, y, rows: learn(tf.gather(x, rows), tf.gather(y, rows))
