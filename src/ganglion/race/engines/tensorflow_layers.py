"""The layers, loss and optimizer of a recipe over TensorFlow's variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ganglion.race.engines import Task, untranslated
from ganglion.recipes import LayerSpec


class Network:
    """The recipe's layers, loss and optimizer over variables."""

    def __init__(self, task: Task, layers: tuple[LayerSpec, ...]) -> None:
        import tensorflow as tf

        self._layers, self._mixed = layers, task.precision == "bf16"
        self._criterion = _criterion(task.recipe.loss)
        kind, given = task.recipe.optimizer
        if kind != "SGD":
            raise untranslated("the optimizer", kind)
        self._rate, self._momentum = given["learning_rate"], given.get("momentum", 0.0)
        self._ahead = given.get("nesterov", False)
        self._one_hot = task.recipe.one_hot
        self._start = task.weights
        self.weights = [tf.Variable(one) for one in task.weights]
        self._learning = _learning(layers, self.weights)
        self._velocities = [
            tf.Variable(tf.zeros_like(one)) for one in self._learning if self._momentum
        ]

    def advance(self, x: Any, y: Any) -> Any:
        """Train for one step; return the loss."""
        return self.learn(x, y)[0]

    def learn(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Train for one step; return the loss and how many rows were right."""
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._learning)
            outputs = self._outputs(x, True)
            loss = self._criterion(outputs, y)
        slopes = tape.gradient(loss, self._learning)
        self._update(slopes)
        return loss, self._hits(outputs, y)

    def judge(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return the loss and how many rows are right, without learning."""
        outputs = self._outputs(x, False)
        return self._criterion(outputs, y), self._hits(outputs, y)

    def reset(self) -> None:
        """Go back to the first weights; velocities to zero."""
        import tensorflow as tf

        for weight, value in zip(self.weights, self._start, strict=True):
            weight.assign(value)
        for velocity in self._velocities:
            velocity.assign(tf.zeros_like(velocity))

    def _update(self, slopes: Any) -> None:
        if not self._momentum:
            for weight, slope in zip(self._learning, slopes, strict=True):
                weight.assign_sub(self._rate * slope)
            return
        parts = zip(self._learning, self._velocities, slopes, strict=True)
        for weight, velocity, slope in parts:
            new = velocity.assign(self._momentum * velocity - self._rate * slope)
            ahead = self._momentum * new - self._rate * slope
            weight.assign_add(ahead if self._ahead else new)

    def _hits(self, outputs: Any, y: Any) -> Any:
        import tensorflow as tf

        classes = tf.argmax(y, -1, tf.int32) if self._one_hot else y
        found = tf.argmax(outputs, -1, tf.int32) == classes
        return tf.reduce_sum(tf.cast(found, tf.float32))

    def _outputs(self, x: Any, learning: bool) -> Any:
        import tensorflow as tf

        weights = iter(self.weights)
        x = tf.cast(x, tf.bfloat16) if self._mixed else x
        for kind, given in self._layers:
            if kind == "BatchNormalization":
                x = _norm(given, weights, x, learning)
            elif kind in _LAYERS:
                x = _LAYERS[kind](given, weights, x)
            else:
                raise untranslated("the layer", kind)
            if given.get("activation"):
                x = getattr(tf.nn, given["activation"])(x)
        return tf.cast(x, self.weights[0].dtype)


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

    kernel, bias = (tf.cast(next(weights), x.dtype) for _ in range(2))
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def _conv(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    padding = given.get("padding", "valid").upper()
    kernel, bias = (tf.cast(next(weights), x.dtype) for _ in range(2))
    return tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, padding), bias)


def _norm(given: Any, weights: Iterator[Any], x: Any, learning: bool) -> Any:
    """Normalise, and move the averages while learning."""
    gamma, beta, *averages = (next(weights) for _ in range(4))
    y, *values = _normal(x, gamma, beta, None if learning else averages)
    if learning:
        for average, value in zip(averages, values, strict=True):
            average.assign_add((1 - given.get("momentum", 0.99)) * (value - average))
    return y


def _normal(x: Any, gamma: Any, beta: Any, averages: Any) -> Any:
    """Return x normalised, by its own mean and variance if none are given, and those.

    TensorFlow's fused kernel wants images, and knows no float64.
    """
    import tensorflow as tf

    if x.dtype == tf.float64:
        values = averages or tf.nn.moments(x, list(range(x.shape.rank - 1)))
        return tf.nn.batch_normalization(x, *values, beta, gamma, 1e-3), *values
    image = x if x.shape.rank == 4 else x[:, None, None, :]
    known = dict(zip(("mean", "variance"), averages or (), strict=False))
    y, *values = tf.compat.v1.nn.fused_batch_norm(
        image, gamma, beta, epsilon=1e-3, is_training=averages is None, **known
    )
    return (y if x.shape.rank == 4 else y[:, 0, 0, :]), *values


def _pool(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.max_pool2d(x, given["pool_size"], given["pool_size"], "VALID")


def _flatten(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.reshape(x, (-1, math.prod(x.shape[1:])))


def _average(given: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(x, (1, 2))


_LAYERS: dict[str, Any] = {
    "Dense": _dense,
    "Conv2D": _conv,
    "MaxPooling2D": _pool,
    "Flatten": _flatten,
    "GlobalAveragePooling2D": _average,
    "Activation": lambda given, weights, x: x,
}
