"""TensorFlow: variables and a tape in one `tf.function` that loops over the steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ganglion.recipes import LayerSpec
from ganglion.rivals import Task, scaled, untranslated, up_to_logits


def prepare(task: Task, form: str) -> TensorFlowTrainer:
    """Write the recipe with TensorFlow's functions; the form says what XLA compiles."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    return TensorFlowTrainer(task, form)


class TensorFlowTrainer:
    """All steps of a run inside the graph; Python only starts it."""

    def __init__(self, task: Task, form: str) -> None:
        import tensorflow as tf

        layers, x = scaled(task)
        rows, shape = task.batches * task.batch_size, (task.batches, task.batch_size)
        self._x = tf.constant(x[:rows].reshape(*shape, *x.shape[1:]))
        self._y = tf.constant(task.y[:rows].reshape(*shape, *task.y.shape[1:]))
        self._net = Network(task, up_to_logits(task.recipe, layers))
        advance = self._net.advance
        if form == "loop of XLA steps":
            advance = tf.function(advance, jit_compile=True)
        self._loop = tf.function(
            _looped(advance, task.batches), jit_compile=form == "XLA loop"
        )
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


def _looped(advance: Callable[..., Any], batches: int) -> Callable[..., Any]:
    import tensorflow as tf

    def loop(x: Any, y: Any, steps: Any) -> Any:
        def body(step: Any, total: Any) -> Any:
            at = step % batches
            return step + 1, total + advance(x[at], y[at])

        start = (tf.constant(0), tf.constant(0.0))
        going = lambda step, total: step < steps  # noqa: E731 (a condition, not a name)
        return tf.while_loop(going, body, start, parallel_iterations=1)[1]

    return loop


class Network:
    """The recipe's layers, loss and optimizer over variables."""

    def __init__(self, task: Task, layers: tuple[LayerSpec, ...]) -> None:
        import tensorflow as tf

        self._layers = layers
        self._criterion = _criterion(task.recipe.loss)
        kind, given = task.recipe.optimizer
        if kind != "SGD":
            raise untranslated("the optimizer", kind)
        self._rate, self._momentum = given["learning_rate"], given.get("momentum", 0.0)
        self._ahead = given.get("nesterov", False)
        self.weights = [tf.Variable(one) for one in task.weights]
        self._learning = _learning(layers, self.weights)
        self._velocities = [
            tf.Variable(tf.zeros_like(one)) for one in self._learning if self._momentum
        ]

    def advance(self, x: Any, y: Any) -> Any:
        """Train for one step; return the loss."""
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._learning)
            loss = self._criterion(self._outputs(x), y)
        slopes = tape.gradient(loss, self._learning)
        if not self._momentum:
            for weight, slope in zip(self._learning, slopes, strict=True):
                weight.assign_sub(self._rate * slope)
            return loss
        parts = zip(self._learning, self._velocities, slopes, strict=True)
        for weight, velocity, slope in parts:
            new = velocity.assign(self._momentum * velocity - self._rate * slope)
            ahead = self._momentum * new - self._rate * slope
            weight.assign_add(ahead if self._ahead else new)
        return loss

    def _outputs(self, x: Any) -> Any:
        import tensorflow as tf

        weights = iter(self.weights)
        for kind, given in self._layers:
            if kind not in _LAYERS:
                raise untranslated("the layer", kind)
            x = _LAYERS[kind](given, weights, x)
            if given.get("activation"):
                x = getattr(tf.nn, given["activation"])(x)
        return x


def _learning(layers: tuple[LayerSpec, ...], weights: list[Any]) -> list[Any]:
    """Return the weights that have gradients: no moving averages."""
    found, left = [], iter(weights)
    for kind, _ in layers:
        if kind in ("Dense", "Conv2D", "BatchNormalization"):
            found += [next(left), next(left)]
        if kind == "BatchNormalization":
            next(left), next(left)
    return found


def _criterion(name: str) -> Callable[[Any, Any], Any]:
    import tensorflow as tf

    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    known = {
        "mean_squared_error": lambda out, y: tf.reduce_mean(
            tf.math.squared_difference(out, y)
        ),
        "sparse_categorical_crossentropy": lambda out, y: tf.reduce_mean(
            cross_entropy(labels=y, logits=out)
        ),
    }
    if name not in known:
        raise untranslated("the loss", name)
    return known[name]


def _dense(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.bias_add(tf.matmul(x, next(weights)), next(weights))


def _conv(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    padding = given.get("padding", "valid").upper()
    return tf.nn.bias_add(tf.nn.conv2d(x, next(weights), 1, padding), next(weights))


def _norm(given: Any, weights: Iterator[Any], x: Any) -> Any:
    """Normalise with TensorFlow's fused kernel, which wants images."""
    import tensorflow as tf

    gamma, beta = next(weights), next(weights)
    image = x if x.shape.rank == 4 else x[:, None, None, :]
    y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
        image, gamma, beta, epsilon=1e-3, is_training=True
    )
    for value in (mean, variance):
        average = next(weights)
        average.assign_add(0.01 * (value - average))
    return y if x.shape.rank == 4 else y[:, 0, 0, :]


def _pool(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.max_pool2d(x, given["pool_size"], given["pool_size"], "VALID")


def _flatten(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.reshape(x, (x.shape[0], -1))


def _average(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(x, (1, 2))


_LAYERS: dict[str, Any] = {
    "Dense": _dense,
    "Conv2D": _conv,
    "BatchNormalization": _norm,
    "MaxPooling2D": _pool,
    "Flatten": _flatten,
    "GlobalAveragePooling2D": _average,
    "Activation": lambda given, weights, x: x,
}
