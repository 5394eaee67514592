"""The layers, losses and optimizers of recipes over TensorFlow's variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ganglion.race.engines import (
    Layers,
    Sgd,
    Task,
    leaves_softmax,
    optimizer,
    translation,
    untranslated,
)


class Pass:
    """One pass through the layers: weights in order, and penalties."""

    def __init__(self, weights: list[Any], dtype: Any, is_training: bool) -> None:
        self._weights: Iterator[Any] = iter(weights)
        self.dtype, self.is_training = dtype, is_training
        self.penalty: Any = 0.0  # added to the loss by layers

    def take(self, count: int, dtype: Any = None) -> list[Any]:
        """Return the next weights."""
        import tensorflow as tf

        weights = [next(self._weights) for _ in range(count)]
        return [tf.cast(weight, dtype) for weight in weights] if dtype else weights


class Network:
    """The recipe's layers, loss and optimizer over variables."""

    def __init__(self, task: Task, layers: Layers) -> None:
        import tensorflow as tf

        self._layers, self._recipe = layers, task.recipe
        self._mixed = task.precision == "bf16"
        self._criterion = _criterion(task.recipe.loss)
        self._optimizer: Any = optimizer(task.recipe)
        self._start = task.weights
        self.weights = [tf.Variable(weight) for weight in task.weights]
        is_plain = isinstance(self._optimizer, Sgd)
        count = bool(self._optimizer[1]) if is_plain else 2
        self._slots = [
            [tf.Variable(tf.zeros_like(weight)) for _ in range(count)]
            for weight in self.weights
        ]
        self._step = tf.Variable(0, trainable=False)

    def advance(self, x: Any, y: Any) -> Any:
        """Train for a step; return the loss."""
        return self.learn(x, y)[0]

    def learn(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Train for a step; return the loss and how many rows were right."""
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.weights)
            loss, outputs = self._loss(x, y, True)
        self._update(tape.gradient(loss, self.weights))
        return loss, self._hits(outputs, y)

    def judge(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return the loss and how many rows are right, without learning."""
        loss, outputs = self._loss(x, y, False)
        return loss, self._hits(outputs, y)

    def predict(self, x: Any) -> Any:
        """Return the outputs for a batch."""
        import tensorflow as tf

        outputs, _ = self._outputs(x, False)
        return tf.nn.softmax(outputs) if leaves_softmax(self._recipe) else outputs

    def reset(self) -> None:
        """Go back to the first weights, and to a fresh optimizer."""
        import tensorflow as tf

        for weight, value in zip(self.weights, self._start, strict=True):
            weight.assign(value)
        for slots in self._slots:
            for slot in slots:
                slot.assign(tf.zeros_like(slot))
        self._step.assign(0)

    def _loss(self, x: Any, y: Any, is_training: bool) -> tuple[Any, Any]:
        """Return the loss of a batch, and the outputs."""
        import tensorflow as tf

        outputs, penalty = self._outputs(x, is_training)
        loss = self._recipe.loss_weight * self._criterion(outputs, y)
        return loss + tf.cast(penalty, loss.dtype), outputs

    def _outputs(self, x: Any, is_training: bool) -> tuple[Any, Any]:
        """Return the outputs of a batch, and the penalties of layers."""
        import tensorflow as tf

        dtype = tf.bfloat16 if self._mixed else self.weights[0].dtype
        x = x if self._recipe.takes_tokens else tf.cast(x, dtype)
        walk = Pass(self.weights, dtype, is_training)
        outputs = tf.cast(_through(self._layers, walk, x), self.weights[0].dtype)
        return outputs, walk.penalty

    def _update(self, gradients: Any) -> None:
        is_plain = isinstance(self._optimizer, Sgd)
        change = self._descend if is_plain else self._adapt
        for weight, slots, gradient in zip(
            self.weights, self._slots, gradients, strict=True
        ):
            if gradient is not None:  # a moving average has none
                change(weight, slots, gradient)
        self._step.assign_add(1)

    def _descend(self, weight: Any, slots: list[Any], gradient: Any) -> None:
        import tensorflow as tf

        rate, momentum, is_nesterov = self._optimizer
        gradient = tf.convert_to_tensor(gradient)  # of an embedding, it is of rows
        if not momentum:
            weight.assign_sub(rate * gradient)
            return
        new = slots[0].assign(momentum * slots[0] - rate * gradient)
        weight.assign_add(momentum * new - rate * gradient if is_nesterov else new)

    def _adapt(self, weight: Any, slots: list[Any], gradient: Any) -> None:
        import tensorflow as tf

        rate, beta_1, beta_2, epsilon, decay = self._optimizer
        gradient = tf.convert_to_tensor(gradient)
        count = tf.cast(self._step + 1, weight.dtype)
        beta_1, beta_2 = (tf.constant(b, weight.dtype) for b in (beta_1, beta_2))
        mean = slots[0].assign_add((gradient - slots[0]) * (1 - beta_1))
        square = slots[1].assign_add((gradient * gradient - slots[1]) * (1 - beta_2))
        scale = rate * tf.sqrt(1 - beta_2**count) / (1 - beta_1**count)
        change = rate * decay * weight if decay else 0.0
        weight.assign_sub(change + scale * mean / (tf.sqrt(square) + epsilon))

    def _hits(self, outputs: Any, y: Any) -> Any:
        """Return how many rows are right; of rows of steps, which share of them."""
        import tensorflow as tf

        if self._recipe.score == "loss":
            return tf.constant(math.nan)
        classes = tf.argmax(y, -1, tf.int32) if self._recipe.one_hot else y
        is_right = tf.argmax(outputs, -1, tf.int32) == classes
        steps = math.prod(y.shape[1:]) if not self._recipe.one_hot else 1
        return tf.reduce_sum(tf.cast(is_right, tf.float32)) / steps


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


# ---- layers --------------------------------------------------------------------------


def _through(layers: Layers, walk: Pass, x: Any) -> Any:
    for kind, arguments in layers:
        x = translation(_LAYERS, "the layer", kind)(arguments, walk, x)
        if kind not in _RECURRENT and arguments.get("activation"):
            x = _activation(arguments["activation"])(x)
    return x


def _activation(name: str) -> Callable[[Any], Any]:
    import tensorflow as tf

    functions = {
        "relu": tf.nn.relu,
        "sigmoid": tf.nn.sigmoid,
        "tanh": tf.nn.tanh,
        "gelu": tf.nn.gelu,
        "keras2_hard_sigmoid": lambda x: tf.clip_by_value(0.2 * x + 0.5, 0, 1),
    }
    return translation(functions, "the activation", name)


def _product(x: Any, kernel: Any, bias: Any) -> Any:
    """Return x @ kernel + bias: the rows of all steps are a single product."""
    import tensorflow as tf

    rows = tf.reshape(x, (-1, x.shape[-1]))
    product = tf.nn.bias_add(tf.matmul(rows, kernel), bias)
    return tf.reshape(product, (-1, *x.shape[1:-1], kernel.shape[-1]))


def _dense(arguments: Any, walk: Pass, x: Any) -> Any:
    return _product(x, *walk.take(2, x.dtype))


def _conv(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    (kernel,) = walk.take(1, x.dtype)
    outputs = tf.nn.convolution(x, kernel, *_steps_and_padding(arguments))
    return _biased(arguments, walk, outputs)


def _depthwise(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    (kernel,) = walk.take(1, x.dtype)
    step, padding = _steps_and_padding(arguments)
    outputs = tf.nn.depthwise_conv2d(x, kernel, (1, step, step, 1), padding)
    return _biased(arguments, walk, outputs)


def _conv_transposed(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    (kernel,) = walk.take(1, x.dtype)
    step, padding = _steps_and_padding(arguments)
    if padding != "SAME" and arguments["kernel_size"] != step:
        raise untranslated("a transposed convolution with the padding", padding)
    sizes = (tf.shape(x)[0], *(step * size for size in x.shape[1:-1]))
    outputs = tf.nn.conv_transpose(x, kernel, (*sizes, kernel.shape[-2]), step, padding)
    return _biased(arguments, walk, outputs)


def _steps_and_padding(arguments: Any) -> tuple[int, str]:
    return arguments.get("strides", 1), arguments.get("padding", "valid").upper()


def _biased(arguments: Any, walk: Pass, outputs: Any) -> Any:
    import tensorflow as tf

    if not arguments.get("use_bias", True):
        return outputs
    return tf.nn.bias_add(outputs, walk.take(1, outputs.dtype)[0])


def _dropout(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    rate = arguments["rate"]
    return tf.nn.dropout(x, rate) if walk.is_training and rate else x


def _norm(arguments: Any, walk: Pass, x: Any) -> Any:
    """Normalise, and move the averages while training."""
    gamma, beta, *moving = walk.take(4)
    y, *values = _normalised(x, gamma, beta, None if walk.is_training else moving)
    if walk.is_training:
        for average, value in zip(moving, values, strict=True):
            change = (1 - arguments.get("momentum", 0.99)) * (value - average)
            average.assign_add(change)
    return y


def _normalised(x: Any, gamma: Any, beta: Any, averages: Any) -> Any:
    """Return x normalised, by its own mean and variance if none are given, and those.

    TensorFlow's fused kernel takes only images, and not in float64.
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


def _layer_norm(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    gamma, beta = walk.take(2)
    values = tf.cast(x, gamma.dtype)
    moments = tf.nn.moments(values, -1, keepdims=True)
    epsilon = arguments["epsilon"]
    y = tf.nn.batch_normalization(values, *moments, beta, gamma, epsilon)
    return tf.cast(y, x.dtype)


def _pool(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.max_pool(x, arguments["pool_size"], arguments["pool_size"], "VALID")


def _flatten(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    return tf.reshape(x, (-1, math.prod(x.shape[1:])))


def _average(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(x, list(range(1, x.shape.rank - 1)))


def _embedding(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    return tf.gather(walk.take(1, walk.dtype)[0], x)


def _positions(arguments: Any, walk: Pass, x: Any) -> Any:
    return x + walk.take(1, x.dtype)[0]


def _residual(arguments: Any, walk: Pass, x: Any) -> Any:
    inner = _through(arguments["layers"], walk, x)
    return inner + _through(arguments.get("shortcut", ()), walk, x)


def _skip(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    return tf.concat([x, _through(arguments["layers"], walk, x)], -1)


def _attention(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    steps, width = x.shape[1:]
    heads, size = arguments["num_heads"], arguments["key_dim"]

    def project() -> Any:
        kernel, bias = walk.take(2, x.dtype)
        kernel, bias = tf.reshape(kernel, (width, -1)), tf.reshape(bias, (-1,))
        product = tf.reshape(_product(x, kernel, bias), (-1, steps, heads, size))
        return tf.transpose(product, (0, 2, 1, 3))

    query, key, value = (project() for _ in range(3))
    scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(size)
    before = tf.linalg.band_part(tf.ones((steps, steps), tf.bool), -1, 0)
    scores = tf.where(before, scores, scores.dtype.min)
    attended = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), (0, 2, 1, 3))
    kernel, bias = walk.take(2, x.dtype)
    merged = tf.reshape(attended, (-1, steps, heads * size))
    return _product(merged, tf.reshape(kernel, (heads * size, width)), bias)


def _sampling(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    mean, log_variance = (_dense(arguments, walk, x) for _ in range(2))
    terms = 1 + log_variance - mean**2 - tf.exp(log_variance)
    divergence = -0.5 * tf.reduce_mean(tf.reduce_sum(terms, -1))
    walk.penalty += arguments["weight"] * divergence
    stddev = arguments.get("stddev", 1.0)
    noise = tf.random.normal(tf.shape(mean), stddev=stddev, dtype=mean.dtype)
    return mean + tf.exp(0.5 * log_variance) * noise


# ---- recurrent layers ----------------------------------------------------------------


def _recurrent(
    kind: str, arguments: Any, walk: Pass, x: Any, back: bool = False
) -> Any:
    """Run over time, unrolled: TensorFlow's loops cost more than their bodies here."""
    import tensorflow as tf

    kernel, recurrent, bias = walk.take(3, x.dtype)
    step, states = _RECURRENT[kind]
    inside = _activation(arguments.get("activation", "tanh"))
    gates = _activation(arguments.get("recurrent_activation", "sigmoid"))
    two = len(bias.shape) == 2  # a GRU has one of the state, too
    own_bias = bias[1] if two else None
    products = tf.unstack(_product(x, kernel, bias[0] if two else bias), axis=1)
    carried: Any = (tf.zeros((tf.shape(x)[0], recurrent.shape[0]), x.dtype),) * states
    outputs = []
    for product in reversed(products) if back else products:
        carried = step(inside, gates, recurrent, own_bias, carried, product)
        outputs.append(carried[0])
    if arguments.get("return_sequences"):
        return tf.stack(outputs, axis=1)
    return carried[0]


def _simple_step(
    inside: Any, gates: Any, recurrent: Any, bias: Any, carried: Any, product: Any
) -> Any:
    import tensorflow as tf

    return (inside(product + tf.matmul(carried[0], recurrent)),)


def _lstm_step(
    inside: Any, gates: Any, recurrent: Any, bias: Any, carried: Any, product: Any
) -> Any:
    import tensorflow as tf

    state, cell = carried
    sums = product + tf.matmul(state, recurrent)
    write, keep, new, read = tf.split(sums, 4, axis=-1)
    cell = gates(keep) * cell + gates(write) * inside(new)
    return gates(read) * inside(cell), cell


def _gru_step(
    inside: Any, gates: Any, recurrent: Any, bias: Any, carried: Any, product: Any
) -> Any:
    import tensorflow as tf

    (state,) = carried
    products = tf.split(product, 3, axis=-1)
    own = tf.split(tf.nn.bias_add(tf.matmul(state, recurrent), bias), 3, axis=-1)
    update, reset = (gates(products[i] + own[i]) for i in range(2))
    new = inside(products[2] + reset * own[2])
    return (update * state + (1 - update) * new,)


def _bidirectional(arguments: Any, walk: Pass, x: Any) -> Any:
    import tensorflow as tf

    inner = arguments["layer"]
    if set(arguments) != {"layer"} or inner["config"].get("return_sequences"):
        raise untranslated("the layer", f"Bidirectional with {arguments}")
    ways = [
        _recurrent(inner["class_name"], inner["config"], walk, x, back)
        for back in (False, True)
    ]
    return tf.concat(ways, -1)


# The step of each, and how many states it carries.
_RECURRENT: dict[str, tuple[Callable[..., Any], int]] = {
    "SimpleRNN": (_simple_step, 1),
    "LSTM": (_lstm_step, 2),
    "GRU": (_gru_step, 1),
}
_LAYERS: dict[str, Callable[..., Any]] = {
    "Dense": _dense,
    "Conv1D": _conv,
    "Conv2D": _conv,
    "Conv2DTranspose": _conv_transposed,
    "DepthwiseConv2D": _depthwise,
    "Dropout": _dropout,
    "BatchNormalization": _norm,
    "LayerNormalization": _layer_norm,
    "MaxPooling1D": _pool,
    "MaxPooling2D": _pool,
    "Flatten": _flatten,
    "GlobalAveragePooling1D": _average,
    "GlobalAveragePooling2D": _average,
    "Activation": lambda arguments, walk, x: x,
    "Embedding": _embedding,
    "Positions": _positions,
    "Residual": _residual,
    "Skip": _skip,
    "CausalAttention": _attention,
    "Sampling": _sampling,
    "Bidirectional": _bidirectional,
    **{kind: partial(_recurrent, kind) for kind in _RECURRENT},
}
