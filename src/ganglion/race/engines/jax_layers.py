"""The layers, losses and optimizers of recipes as pure functions of JAX."""

from __future__ import annotations

from collections.abc import Callable
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

Weights = list[Any]


class Pass:
    """One pass through the layers: weights in order, moving averages and penalties."""

    def __init__(
        self, weights: Weights, dtype: Any, key: Any, is_training: bool
    ) -> None:
        self.weights, self.dtype = weights, dtype
        self.key, self.is_training = key, is_training
        self.moving: dict[int, Any] = {}  # new averages by their index in the weights
        self.penalty: Any = 0.0  # added to the loss by layers
        self._index = 0

    def next_index(self) -> int:
        """Return the index of the next weight."""
        self._index += 1
        return self._index - 1

    def take(self, count: int, dtype: Any = None) -> list[Any]:
        """Return the next weights."""
        weights = [self.weights[self.next_index()] for _ in range(count)]
        return [weight.astype(dtype) for weight in weights] if dtype else weights


def training_step(task: Task, layers: Layers) -> Callable[..., Any]:
    """Return the training step: (state, batch) -> (state, (loss, hits))."""
    import jax

    update = _update(task)

    def loss_of(weights: Weights, step: Any, x: Any, y: Any) -> Any:
        loss, outputs, moving = _loss(task, layers, weights, step, x, y, True)
        return loss, (moving, _hits(task, outputs, y))

    def advance(state: Any, batch: Any) -> Any:
        weights, slots, step = state
        compute = jax.value_and_grad(loss_of, has_aux=True)
        (loss, (moving, hits)), gradients = compute(weights, step, *batch)
        parts = zip(weights, slots, gradients, strict=True)
        updated = [update(step, *part) for part in parts]
        weights = [moving.get(i, weight) for i, (weight, _) in enumerate(updated)]
        slots = [slot for _, slot in updated]
        return (weights, slots, step + 1), (loss, hits)

    return advance


def test_step(task: Task, layers: Layers) -> Callable[..., Any]:
    """Return the test of a batch: (weights, step, x, y) -> (loss, hits)."""

    def judge(weights: Weights, step: Any, x: Any, y: Any) -> Any:
        loss, outputs, _ = _loss(task, layers, weights, step, x, y, False)
        return loss, _hits(task, outputs, y)

    return judge


def prediction(task: Task, layers: Layers) -> Callable[..., Any]:
    """Return the prediction of a batch: (weights, step, x) -> outputs."""
    import jax

    def predict(weights: Weights, step: Any, x: Any) -> Any:
        outputs, _ = _outputs(task, layers, weights, step, x, False)
        return jax.nn.softmax(outputs) if leaves_softmax(task.recipe) else outputs

    return predict


def _loss(
    task: Task,
    layers: Layers,
    weights: Weights,
    step: Any,
    x: Any,
    y: Any,
    is_training: bool,
) -> tuple[Any, Any, dict[int, Any]]:
    """Return the loss of a batch, the outputs, and new moving averages."""
    recipe = task.recipe
    outputs, walk = _outputs(task, layers, weights, step, x, is_training)
    loss = recipe.loss_weight * _criterion(recipe.loss)(outputs, y)
    return loss + walk.penalty, outputs, walk.moving


def _outputs(
    task: Task, layers: Layers, weights: Weights, step: Any, x: Any, is_training: bool
) -> tuple[Any, Pass]:
    """Return the outputs of a batch, and the pass that made them.

    With bf16 everything between the layers is kept so, too; weights and sums are not.
    """
    import jax
    import jax.numpy as jnp

    recipe, key = task.recipe, None
    if recipe.is_noisy:
        key = jax.random.fold_in(jax.random.key(task.order_seed), step)
    dtype = jnp.bfloat16 if task.precision == "bf16" else weights[0].dtype
    x = x if recipe.takes_tokens else x.astype(dtype)
    walk = Pass(weights, dtype, key, is_training)
    return _through(layers, walk, x).astype(weights[0].dtype), walk


def _hits(task: Task, outputs: Any, y: Any) -> Any:
    """Return how many rows are right; of rows of steps, which share of them."""
    import jax.numpy as jnp

    if task.recipe.score == "loss":
        return jnp.nan
    classes = y.argmax(-1) if task.recipe.one_hot else y
    is_right = outputs.argmax(-1) == classes
    return is_right.sum() / (is_right.size // len(is_right))


def _criterion(name: str) -> Callable[[Any, Any], Any]:
    import jax
    import jax.numpy as jnp

    def cross_entropy(logits: Any, labels: Any) -> Any:
        chosen = jax.nn.one_hot(labels, logits.shape[-1])
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * chosen, axis=-1))

    losses = {
        "mean_squared_error": lambda outputs, y: jnp.mean((outputs - y) ** 2),
        "sparse_categorical_crossentropy": cross_entropy,
    }
    return translation(losses, "the loss", name)


# ---- optimizers ----------------------------------------------------------------------


def first_state(task: Task) -> Any:
    """Return the weights of a task, the slots of a fresh optimizer, and step 0."""
    import jax.numpy as jnp

    numbers = optimizer(task.recipe)
    count = bool(numbers.momentum) if isinstance(numbers, Sgd) else 2
    weights = [jnp.array(weight) for weight in task.weights]
    slots = [tuple(jnp.zeros_like(weight) for _ in range(count)) for weight in weights]
    return weights, slots, jnp.zeros((), "int32")


def _update(task: Task) -> Callable[..., Any]:
    """Return the update: (step, weight, slots, gradient) -> (weight, slots)."""
    import jax.numpy as jnp

    numbers: Any = optimizer(task.recipe)

    def descend(step: Any, weight: Any, slots: Any, gradient: Any) -> Any:
        rate, momentum, is_nesterov = numbers
        if not momentum:
            return weight - rate * gradient, slots
        velocity = momentum * slots[0] - rate * gradient
        change = momentum * velocity - rate * gradient if is_nesterov else velocity
        return weight + change, (velocity,)

    def adapt(step: Any, weight: Any, slots: Any, gradient: Any) -> Any:
        rate, beta_1, beta_2, epsilon, decay = numbers
        count = (step + 1).astype(weight.dtype)
        weight = weight * (1 - rate * decay)
        mean = slots[0] + (gradient - slots[0]) * (1 - beta_1)
        square = slots[1] + (gradient * gradient - slots[1]) * (1 - beta_2)
        scale = rate * jnp.sqrt(1 - beta_2**count) / (1 - beta_1**count)
        return weight - scale * mean / (jnp.sqrt(square) + epsilon), (mean, square)

    return descend if isinstance(numbers, Sgd) else adapt


# ---- layers --------------------------------------------------------------------------


def _through(layers: Layers, walk: Pass, x: Any) -> Any:
    for kind, arguments in layers:
        x = translation(_LAYERS, "the layer", kind)(arguments, walk, x)
        if kind not in _RECURRENT and arguments.get("activation"):
            x = _activation(arguments["activation"])(x)
    return x


def _activation(name: str) -> Callable[[Any], Any]:
    import jax
    import jax.numpy as jnp

    functions: dict[str, Callable[[Any], Any]] = {
        "relu": jax.nn.relu,
        "sigmoid": jax.nn.sigmoid,
        "tanh": jnp.tanh,
        "gelu": partial(jax.nn.gelu, approximate=False),
        "keras2_hard_sigmoid": lambda x: jnp.clip(0.2 * x + 0.5, 0, 1),
    }
    return translation(functions, "the activation", name)


def _dense(arguments: Any, walk: Pass, x: Any) -> Any:
    kernel, bias = walk.take(2, x.dtype)
    return x @ kernel + bias


def _conv(arguments: Any, walk: Pass, x: Any, groups: int = 1) -> Any:
    import jax

    (kernel,) = walk.take(1, x.dtype)
    if groups > 1:  # each channel has its own filters
        kernel = kernel.reshape(*kernel.shape[:-2], 1, -1)
    outputs = jax.lax.conv_general_dilated(
        x,
        kernel,
        *_steps_and_padding(arguments, x),
        dimension_numbers=_ORDERS[x.ndim],
        feature_group_count=groups,
    )
    return _biased(arguments, walk, outputs)


def _conv_transposed(arguments: Any, walk: Pass, x: Any) -> Any:
    import jax

    (kernel,) = walk.take(1, x.dtype)
    outputs = jax.lax.conv_transpose(
        x,
        kernel,
        *_steps_and_padding(arguments, x),
        dimension_numbers=_ORDERS[x.ndim],
        transpose_kernel=True,
    )
    return _biased(arguments, walk, outputs)


_ORDERS = {3: ("NWC", "WIO", "NWC"), 4: ("NHWC", "HWIO", "NHWC")}  # by the rank


def _steps_and_padding(arguments: Any, x: Any) -> tuple[tuple[int, ...], str]:
    strides = (arguments.get("strides", 1),) * (x.ndim - 2)
    return strides, arguments.get("padding", "valid").upper()


def _biased(arguments: Any, walk: Pass, outputs: Any) -> Any:
    if not arguments.get("use_bias", True):
        return outputs
    return outputs + walk.take(1, outputs.dtype)[0]


def _norm(arguments: Any, walk: Pass, x: Any) -> Any:
    """Normalise by the batch and note new averages; in a test, by the old averages."""
    import jax
    import jax.numpy as jnp

    gamma, beta = walk.take(2)
    dtype, x = x.dtype, x.astype(gamma.dtype)
    if not walk.is_training:
        mean, variance = walk.take(2)
    else:
        axes = tuple(range(x.ndim - 1))
        mean = jnp.mean(x, axes)
        variance = jnp.mean(x * x, axes) - mean * mean  # in one pass, which XLA fuses
        momentum = arguments.get("momentum", 0.99)
        for value in (mean, variance):
            index = walk.next_index()
            new = (1 - momentum) * jax.lax.stop_gradient(value)
            walk.moving[index] = momentum * walk.weights[index] + new
    factor = gamma * jax.lax.rsqrt(variance + 1e-3)
    return (x * factor + (beta - mean * factor)).astype(dtype)


def _layer_norm(arguments: Any, walk: Pass, x: Any) -> Any:
    import jax

    gamma, beta = walk.take(2)
    values = x.astype(gamma.dtype)
    mean = values.mean(-1, keepdims=True)
    variance = values.var(-1, keepdims=True)
    factor = gamma * jax.lax.rsqrt(variance + arguments["epsilon"])
    return ((values - mean) * factor + beta).astype(x.dtype)


def _pool(arguments: Any, walk: Pass, x: Any) -> Any:
    """Return the maxima by a reshape: XLA is slow at the gradient of `reduce_window`.

    Where several are largest, it shares the gradient among them; after ReLU those are
    zeros, which pass none on.
    """
    size = arguments["pool_size"]
    counts = [length // size for length in x.shape[1:-1]]
    x = x[:, *(slice(count * size) for count in counts)]
    windows = [number for count in counts for number in (count, size)]
    x = x.reshape(len(x), *windows, x.shape[-1])
    return x.max(tuple(range(2, x.ndim - 1, 2)))


def _average(arguments: Any, walk: Pass, x: Any) -> Any:
    return x.mean(tuple(range(1, x.ndim - 1)))


def _dropout(arguments: Any, walk: Pass, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    rate = arguments["rate"]
    if not walk.is_training or not rate:
        return x
    walk.key, key = jax.random.split(walk.key)
    is_kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(is_kept, x / (1 - rate), 0)


def _embedding(arguments: Any, walk: Pass, x: Any) -> Any:
    return walk.take(1, walk.dtype)[0][x]


def _positions(arguments: Any, walk: Pass, x: Any) -> Any:
    return x + walk.take(1, x.dtype)[0]


def _residual(arguments: Any, walk: Pass, x: Any) -> Any:
    inner = _through(arguments["layers"], walk, x)
    return inner + _through(arguments.get("shortcut", ()), walk, x)


def _skip(arguments: Any, walk: Pass, x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.concatenate([x, _through(arguments["layers"], walk, x)], -1)


def _attention(arguments: Any, walk: Pass, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def project() -> Any:
        kernel, bias = walk.take(2, x.dtype)
        return jnp.einsum("btf,fhd->bthd", x, kernel) + bias

    heads = [project() for _ in range(3)]
    attended = jax.nn.dot_product_attention(*heads, is_causal=True)
    kernel, bias = walk.take(2, x.dtype)
    return jnp.einsum("bthd,hdf->btf", attended, kernel) + bias


def _sampling(arguments: Any, walk: Pass, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    mean, log_variance = (_dense(arguments, walk, x) for _ in range(2))
    terms = 1 + log_variance - mean**2 - jnp.exp(log_variance)
    walk.penalty += arguments["weight"] * -0.5 * jnp.mean(jnp.sum(terms, -1))
    if walk.key is None:
        return mean
    noise = jax.random.normal(walk.key, mean.shape, mean.dtype)
    deviation = arguments.get("stddev", 1.0) * jnp.exp(0.5 * log_variance)
    return mean + deviation * noise


# ---- recurrent layers ----------------------------------------------------------------


def _recurrent(
    kind: str, arguments: Any, walk: Pass, x: Any, back: bool = False
) -> Any:
    """Run over time: the products of the inputs at once, the rest in a scan."""
    import jax
    import jax.numpy as jnp

    kernel, recurrent, bias = walk.take(3, x.dtype)
    step, states = _RECURRENT[kind]
    inside = _activation(arguments.get("activation", "tanh"))
    gates = _activation(arguments.get("recurrent_activation", "sigmoid"))
    biases = bias if bias.ndim == 2 else (bias, None)  # a GRU has one of the state, too
    products = jnp.swapaxes(x @ kernel + biases[0], 0, 1)

    def body(carried: Any, product: Any) -> Any:
        carried = step(inside, gates, recurrent, biases[1], carried, product)
        return carried, carried[0]

    zeros = jnp.zeros((len(x), len(recurrent)), x.dtype)
    carried, outputs = jax.lax.scan(body, (zeros,) * states, products, reverse=back)
    if arguments.get("return_sequences"):
        return jnp.swapaxes(outputs, 0, 1)
    return carried[0]


def _simple_step(
    inside: Any, gates: Any, recurrent: Any, bias: Any, carried: Any, product: Any
) -> Any:
    return (inside(product + carried[0] @ recurrent),)


def _lstm_step(
    inside: Any, gates: Any, recurrent: Any, bias: Any, carried: Any, product: Any
) -> Any:
    import jax.numpy as jnp

    state, cell = carried
    write, keep, new, read = jnp.split(product + state @ recurrent, 4, axis=-1)
    cell = gates(keep) * cell + gates(write) * inside(new)
    return gates(read) * inside(cell), cell


def _gru_step(
    inside: Any, gates: Any, recurrent: Any, bias: Any, carried: Any, product: Any
) -> Any:
    import jax.numpy as jnp

    (state,) = carried
    products = jnp.split(product, 3, axis=-1)
    own = jnp.split(state @ recurrent + bias, 3, axis=-1)
    update, reset = (gates(products[i] + own[i]) for i in range(2))
    new = inside(products[2] + reset * own[2])
    return (update * state + (1 - update) * new,)


def _bidirectional(arguments: Any, walk: Pass, x: Any) -> Any:
    import jax.numpy as jnp

    inner = arguments["layer"]
    if set(arguments) != {"layer"} or inner["config"].get("return_sequences"):
        raise untranslated("the layer", f"Bidirectional with {arguments}")
    ways = [
        _recurrent(inner["class_name"], inner["config"], walk, x, back)
        for back in (False, True)
    ]
    return jnp.concatenate(ways, -1)


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
    "DepthwiseConv2D": lambda arguments, walk, x: _conv(
        arguments, walk, x, x.shape[-1]
    ),
    "BatchNormalization": _norm,
    "LayerNormalization": _layer_norm,
    "MaxPooling1D": _pool,
    "MaxPooling2D": _pool,
    "Flatten": lambda arguments, walk, x: x.reshape(len(x), -1),
    "GlobalAveragePooling1D": _average,
    "GlobalAveragePooling2D": _average,
    "Dropout": _dropout,
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
