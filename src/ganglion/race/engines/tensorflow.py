"""TensorFlow: variables and a tape in one `tf.function` that loops over the steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.race.engines import (
    Rival,
    Task,
    Unavailable,
    scaled,
    test_set,
    up_to_logits,
)
from ganglion.race.engines.tensorflow_layers import Network


def prepare(task: Task, form: str) -> TensorFlowTrainer:
    """Write the recipe with TensorFlow's functions; the form says what XLA compiles."""
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


class TensorFlowTrainer(Rival):
    """All steps of an epoch inside the graph; Python only starts it."""

    def __init__(self, task: Task, form: str) -> None:
        import tensorflow as tf

        layers, x = scaled(task)
        self.batch_size = task.batch_size
        self._x, self._y = tf.constant(x), tf.constant(task.y)
        self._test = [tuple(map(tf.constant, one)) for one in test_set(task)]
        self._net = Network(task, up_to_logits(task.recipe, layers))
        step = form == "loop of XLA steps"
        whole = form == "XLA loop"

        def jitted(call: Callable[..., Any], xla: bool) -> Any:
            return tf.function(call, jit_compile=True) if xla else call

        advance, learn = (
            jitted(one, step) for one in (self._net.advance, self._net.learn)
        )
        self._loop = tf.function(_looped(advance, task), jit_compile=whole)
        self._epoch = tf.function(_over_order(learn, task), jit_compile=whole)
        self._rest = tf.function(_gathered(learn), jit_compile=whole)
        self._judge = tf.function(self._net.judge, jit_compile=step or whole)
        self._loss: Any = float("nan")

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took."""
        import tensorflow as tf

        count = tf.constant(steps)  # a tensor: another number is no other graph
        started = time.perf_counter()
        total = self._loop(self._x, self._y, count).numpy()
        seconds = time.perf_counter() - started
        self._loss = total / steps
        return seconds

    def loss(self) -> float:
        """Return the mean loss over the last run."""
        return float(self._loss)

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now."""
        return [one.numpy() for one in self._net.weights]

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order: one call, one more for the last batch."""
        import tensorflow as tf

        size, count = self.batch_size, len(order) // self.batch_size
        total = hits = 0.0
        if count:
            rows = np.zeros(len(self._x), "int32")  # one length: one graph
            rows[: len(order)] = order
            total, hits = self._epoch(
                self._x, self._y, tf.constant(rows), tf.constant(count)
            )
            total *= size
        if rest := len(order) % size:
            loss, found = self._rest(self._x, self._y, tf.constant(order[-rest:]))
            total, hits = total + loss * rest, hits + found
        return float(total) / len(order), float(hits) / len(order)

    def test(self) -> tuple[float, float]:
        """Return loss and accuracy on the test set."""
        rows, total, hits = 0, 0.0, 0.0
        for x, y in self._test:
            loss, found = self._judge(x, y)
            total, hits, rows = total + loss * len(x), hits + found, rows + len(x)
        return float(total) / rows, float(hits) / rows

    def feed(self, images: np.ndarray) -> None:
        """Take these images in place of the task's."""
        import tensorflow as tf

        self._x = None  # the old ones need not be there at the same time
        self._x = tf.constant(images)

    def reset(self) -> None:
        """Go back to the first weights and a fresh optimizer."""
        self._net.reset()


def _looped(advance: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a loop over batches as they lie, around and around."""
    import tensorflow as tf

    size, batches = task.batch_size, task.batches

    def loop(x: Any, y: Any, steps: Any) -> Any:
        cut = (batches, size)
        x = tf.reshape(x[: batches * size], (*cut, *x.shape[1:]))
        y = tf.reshape(y[: batches * size], (*cut, *y.shape[1:]))

        def body(step: Any, total: Any) -> Any:
            at = step % batches
            return step + 1, total + advance(x[at], y[at])

        start = (tf.constant(0), tf.zeros((), x.dtype))
        going = lambda step, total: step < steps  # noqa: E731 (a condition, not a name)
        return tf.while_loop(going, body, start, parallel_iterations=1)[1]

    return loop


def _over_order(learn: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a loop over the batches of an order: sums of losses and of hits."""
    import tensorflow as tf

    size, take = task.batch_size, _gathered(learn)

    def loop(x: Any, y: Any, order: Any, count: Any) -> Any:
        def body(step: Any, total: Any, hits: Any) -> Any:
            loss, found = take(x, y, tf.slice(order, [step * size], [size]))
            return step + 1, total + loss, hits + found

        start = (tf.constant(0), tf.zeros((), x.dtype), tf.constant(0.0))
        going = lambda step, *sums: step < count  # noqa: E731
        return tf.while_loop(going, body, start, parallel_iterations=1)[1:]

    return loop


def _gathered(learn: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    return lambda x, y, rows: learn(tf.gather(x, rows), tf.gather(y, rows))
