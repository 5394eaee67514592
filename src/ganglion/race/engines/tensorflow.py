"""TensorFlow: variables and a tape in one `tf.function` that loops over the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ganglion.race.engines import (
    Layers,
    RivalTrainer,
    Task,
    Unavailable,
    averages,
    scaled,
    sgd,
    test_set,
    translation,
    up_to_logits,
)


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


class TensorFlowTrainer(RivalTrainer):
    """All steps of an epoch inside the graph; Python only starts it."""

    def __init__(self, task: Task, form: str) -> None:
        import tensorflow as tf

        layers, x = scaled(task)
        self.batch_size = task.batch_size
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
        self._judge = tf.function(network.judge, jit_compile=of_steps or of_loop)

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
            loss, right = self._rest(self._x, self._y, tf.constant(order[-rest:]))
            total, hits = total + loss * rest, hits + right
        return float(total) / len(order), float(hits) / len(order)

    def test(self) -> tuple[float, float]:
        return averages((*self._judge(x, y), len(x)) for x, y in self._test)

    def feed(self, images: np.ndarray) -> None:
        import tensorflow as tf

        self._x = None  # the old ones need not be there at the same time
        self._x = tf.constant(images)

    def reset(self) -> None:
        self._network.reset()


def _looped(advance: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a loop over batches as they lie, around and around."""
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

        return _while(steps, body, tf.zeros((), x.dtype))[0]

    return loop


def _over_order(learn: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a loop over the batches of an order: sums of losses and of hits."""
    import tensorflow as tf

    size, take = task.batch_size, _gathered(learn)

    def loop(x: Any, y: Any, order: Any, count: Any) -> Any:
        def body(step: Any, total: Any, hits: Any) -> Any:
            loss, right = take(x, y, tf.slice(order, [step * size], [size]))
            return step + 1, total + loss, hits + right

        return _while(count, body, tf.zeros((), x.dtype), tf.constant(0.0))

    return loop


def _while(count: Any, body: Callable[..., Any], *sums: Any) -> Any:
    """Return the sums after so many steps; a body takes the step, from 0, and sums."""
    import tensorflow as tf

    def goes_on(step: Any, *sums: Any) -> Any:
        return step < count

    start = (tf.constant(0), *sums)
    return tf.while_loop(goes_on, body, start, parallel_iterations=1)[1:]


def _gathered(learn: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    return lambda x, y, rows: learn(tf.gather(x, rows), tf.gather(y, rows))


# ---- the recipe over variables -------------------------------------------------------


class Network:
    """The recipe's layers, loss and optimizer over variables."""

    def __init__(self, task: Task, layers: Layers) -> None:
        import tensorflow as tf

        self._layers, self._mixed = layers, task.precision == "bf16"
        self._criterion = _criterion(task.recipe.loss)
        self._rate, self._momentum, self._nesterov = sgd(task.recipe)
        self._one_hot = task.recipe.one_hot
        self._start = task.weights
        self.weights = [tf.Variable(weight) for weight in task.weights]
        self._trainable = _trainable(layers, self.weights)
        self._velocities = [
            tf.Variable(tf.zeros_like(weight))
            for weight in self._trainable
            if self._momentum
        ]

    def advance(self, x: Any, y: Any) -> Any:
        """Train for one step; return the loss."""
        return self.learn(x, y)[0]

    def learn(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Train for one step; return the loss and how many rows were right."""
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._trainable)
            outputs = self._outputs(x, True)
            loss = self._criterion(outputs, y)
        self._update(tape.gradient(loss, self._trainable))
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

    def _update(self, gradients: Any) -> None:
        if not self._momentum:
            for weight, gradient in zip(self._trainable, gradients, strict=True):
                weight.assign_sub(self._rate * gradient)
            return
        parts = zip(self._trainable, self._velocities, gradients, strict=True)
        for weight, velocity, gradient in parts:
            new = velocity.assign(self._momentum * velocity - self._rate * gradient)
            nesterov_step = self._momentum * new - self._rate * gradient
            weight.assign_add(nesterov_step if self._nesterov else new)

    def _hits(self, outputs: Any, y: Any) -> Any:
        import tensorflow as tf

        classes = tf.argmax(y, -1, tf.int32) if self._one_hot else y
        is_right = tf.argmax(outputs, -1, tf.int32) == classes
        return tf.reduce_sum(tf.cast(is_right, tf.float32))

    def _outputs(self, x: Any, training: bool) -> Any:
        import tensorflow as tf

        weights = iter(self.weights)
        x = tf.cast(x, tf.bfloat16) if self._mixed else x
        for kind, arguments in self._layers:
            if kind == "BatchNormalization":
                x = _norm(arguments, weights, x, training)
            else:
                x = translation(_LAYERS, "the layer", kind)(arguments, weights, x)
            if arguments.get("activation"):
                x = getattr(tf.nn, arguments["activation"])(x)
        return tf.cast(x, self.weights[0].dtype)


def _trainable(layers: Layers, weights: list[Any]) -> list[Any]:
    """Return the weights that have gradients: no moving averages."""
    trainable, left = [], iter(weights)
    for kind, _ in layers:
        if kind in ("Dense", "Conv2D", "BatchNormalization"):
            trainable += [next(left), next(left)]
        if kind == "BatchNormalization":
            next(left), next(left)
    return trainable


def _criterion(name: str) -> Callable[[Any, Any], Any]:
    import tensorflow as tf

    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    losses = {
        "mean_squared_error": lambda out, y: tf.reduce_mean(
            tf.math.squared_difference(out, y)
        ),
        "sparse_categorical_crossentropy": lambda out, y: tf.reduce_mean(
            cross_entropy(labels=y, logits=out)
        ),
    }
    return translation(losses, "the loss", name)


def _dense(arguments: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    kernel, bias = (tf.cast(next(weights), x.dtype) for _ in range(2))
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def _conv(arguments: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    padding = arguments.get("padding", "valid").upper()
    kernel, bias = (tf.cast(next(weights), x.dtype) for _ in range(2))
    return tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, padding), bias)


def _norm(arguments: Any, weights: Iterator[Any], x: Any, training: bool) -> Any:
    """Normalise, and move the averages while training."""
    gamma, beta, *moving = (next(weights) for _ in range(4))
    y, *values = _normalised(x, gamma, beta, None if training else moving)
    if training:
        for average, value in zip(moving, values, strict=True):
            change = (1 - arguments.get("momentum", 0.99)) * (value - average)
            average.assign_add(change)
    return y


def _normalised(x: Any, gamma: Any, beta: Any, averages: Any) -> Any:
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


def _pool(arguments: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.max_pool2d(x, arguments["pool_size"], arguments["pool_size"], "VALID")


def _flatten(arguments: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.reshape(x, (-1, math.prod(x.shape[1:])))


def _average(arguments: Any, weights: Iterator[Any], x: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(x, (1, 2))


_LAYERS: dict[str, Callable[..., Any]] = {
    "Dense": _dense,
    "Conv2D": _conv,
    "MaxPooling2D": _pool,
    "Flatten": _flatten,
    "GlobalAveragePooling2D": _average,
    "Activation": lambda arguments, weights, x: x,
}
