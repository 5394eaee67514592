"""JAX: pure functions, jitted; all steps in one loop, with the state donated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
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

Weights = list[Any]


def prepare(task: Task, form: str) -> JaxTrainer:
    """Write the recipe as a function; the form says what is jitted."""
    set_up(task)
    return JaxTrainer(task, form)


def set_up(task: Task) -> None:
    """Let there be float64 if it is asked for; refuse a device that JAX has not."""
    import jax

    jax.config.update("jax_enable_x64", task.dtype == "float64")
    if task.device == "cuda" and task.precision == "float32":  # else JAX takes TF32
        jax.config.update("jax_default_matmul_precision", "highest")
    if task.device == "cuda" and jax.default_backend() != "gpu":
        raise Unavailable(
            f"JAX {jax.__version__} sees no GPU; pip install 'jax[cuda12]'"
        )


class JaxTrainer(RivalTrainer):
    """The state is (weights, velocities); a step maps it to the next one."""

    def __init__(self, task: Task, form: str) -> None:
        import jax
        import jax.numpy as jnp

        layers, x = scaled(task)
        layers = up_to_logits(task.recipe, layers)
        self.batch_size, self._start = task.batch_size, task.weights
        self._count = task.batches
        self._x: Any = jnp.asarray(x)
        self._y = jnp.asarray(task.y)
        self._test = [tuple(map(jnp.asarray, batch)) for batch in test_set(task)]
        self._state: Any = None
        self.reset()
        self._in_one, self._on_gpu = form == "scan", task.device == "cuda"
        advance = training_step(task, layers)
        take, size = partial(_take, advance), task.batch_size
        self._step = jax.jit(advance, donate_argnums=0)
        self._take = jax.jit(take, donate_argnums=(0, 1))
        # A GPU goes through a loop of known length without asking the processor.
        known = (4,) if self._on_gpu else ()
        self._loop = jax.jit(
            partial(_loop, take, size), static_argnums=known, donate_argnums=(0, 1)
        )
        self._scan = jax.jit(
            partial(_scan, advance, task), static_argnums=3, donate_argnums=0
        )
        self._judge = jax.jit(test_step(task, layers))
        self._compiled: dict[int, Any] = {}
        self._batches: list[Any] = []
        self._losses: Any = [jnp.zeros(1)]

    def run(self, steps: int) -> float:
        import jax

        if self._in_one:  # another number of steps is compiled outside of the clock
            lengths = self._lengths(steps)
            data = (self._x, self._y)
            for length in set(lengths) - set(self._compiled):
                lowered = self._scan.lower(self._state, *data, length)
                self._compiled[length] = lowered.compile()
            started, losses = time.perf_counter(), []
            for length in lengths:
                self._state, chunk_losses = self._compiled[length](self._state, *data)
                losses.append(chunk_losses)
        else:
            batches = self._split()
            started, losses = time.perf_counter(), []
            for step in range(steps):
                batch = batches[step % self._count]
                self._state, (loss, _) = self._step(self._state, batch)
                losses.append(loss)
        self._losses = jax.block_until_ready(losses)
        jax.block_until_ready(self._state)
        return time.perf_counter() - started

    def _lengths(self, steps: int) -> list[int]:
        """Return loops for some steps; a GPU's wait in a queue, so an epoch each."""
        if not self._on_gpu:
            return [steps]
        epochs, rest = divmod(steps, self._count)
        return [self._count] * epochs + [1] * rest

    def _split(self) -> list[Any]:
        if not self._batches:
            size = self.batch_size
            starts = range(0, self._count * size, size)
            self._batches = [
                (self._x[at : at + size], self._y[at : at + size]) for at in starts
            ]
        return self._batches

    def loss(self) -> float:
        return float(np.mean(np.concatenate([np.ravel(loss) for loss in self._losses])))

    def weights(self) -> list[np.ndarray]:
        return [np.array(weight) for weight in self._state[0]]

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order: a loop in JAX, or a step at a time."""
        size, count = self.batch_size, len(order) // self.batch_size
        data, sums = (self._x, self._y), tuple(np.zeros(2, self._x.dtype))
        if self._in_one and count:
            rows = np.zeros(len(self._x), "int32")  # one length: compiled once
            rows[: len(order)] = order
            self._state, sums = self._loop(self._state, sums, data, rows, count)
            parts = [order[count * size :]]
        else:
            parts = [order[at : at + size] for at in range(0, len(order), size)]
        for part in parts:
            if len(part):
                self._state, sums = self._take(self._state, sums, data, part)
        total, hits = map(float, sums)  # waits for all of it
        return total / len(order), hits / len(order)

    def warm_up(self, order: np.ndarray) -> None:
        """Compile everything; on a GPU, the loop of a whole epoch, too."""
        super().warm_up(order)
        if self._on_gpu:
            self.epoch(order)
            self.reset()

    def test(self) -> tuple[float, float]:
        weights = self._state[0]
        return averages((*self._judge(weights, x, y), len(x)) for x, y in self._test)

    def feed(self, images: np.ndarray) -> None:
        import jax.numpy as jnp

        self._x = None  # the old ones need not be there at the same time
        self._x = jnp.array(images)

    def reset(self) -> None:
        import jax.numpy as jnp

        weights = [jnp.array(weight) for weight in self._start]
        self._state = (weights, [jnp.zeros_like(weight) for weight in weights])


def _scan(
    advance: Callable[..., Any], task: Task, state: Any, x: Any, y: Any, steps: int
) -> Any:
    """Train on batches as they lie, around and around; return the losses."""
    import jax

    split = (task.batches, task.batch_size)
    rows = task.batches * task.batch_size
    x, y = (array[:rows].reshape(*split, *array.shape[1:]) for array in (x, y))

    def body(state: Any, step: Any) -> Any:
        state, (loss, _) = advance(state, (x[step % len(x)], y[step % len(x)]))
        return state, loss

    return jax.lax.scan(body, state, jax.numpy.arange(steps))


def _take(
    advance: Callable[..., Any], state: Any, sums: Any, data: Any, rows: Any
) -> Any:
    """Gather a batch, train on it, and add to the sums of loss and hits."""
    state, (loss, hits) = advance(state, tuple(array[rows] for array in data))
    return state, (sums[0] + loss * len(rows), sums[1] + hits)


def _loop(
    take: Callable[..., Any],
    size: int,
    state: Any,
    sums: Any,
    data: Any,
    order: Any,
    count: Any,
) -> Any:
    """Train on the first batches of an order; their number is no part of the code."""
    import jax

    def body(at: Any, carried: Any) -> Any:
        return take(*carried, data, jax.lax.dynamic_slice(order, (at * size,), (size,)))

    return jax.lax.fori_loop(0, count, body, (state, sums))


# ---- the recipe as pure functions ----------------------------------------------------


def training_step(task: Task, layers: Layers) -> Callable[..., Any]:
    """Return the training step: (state, batch) -> (state, (loss, hits))."""
    import jax

    criterion = _criterion(task.recipe.loss)
    rate, momentum, nesterov = sgd(task.recipe)

    def loss_of(weights: Weights, x: Any, y: Any) -> Any:
        outputs, moving = _forward(task, layers, weights, x, True)
        return criterion(outputs, y), (moving, _hits(task, outputs, y))

    def update(weight: Any, velocity: Any, gradient: Any) -> Any:
        if not momentum:
            return weight - rate * gradient, velocity
        velocity = momentum * velocity - rate * gradient
        change = momentum * velocity - rate * gradient if nesterov else velocity
        return weight + change, velocity

    def advance(state: Any, batch: Any) -> Any:
        (loss, (moving, hits)), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            state[0], *batch
        )
        updated = [update(*parts) for parts in zip(*state, gradients, strict=True)]
        weights = [moving.get(i, weight) for i, (weight, _) in enumerate(updated)]
        return (weights, [velocity for _, velocity in updated]), (loss, hits)

    return advance


def test_step(task: Task, layers: Layers) -> Callable[..., Any]:
    """Return the test of a batch: (weights, x, y) -> (loss, hits)."""
    criterion = _criterion(task.recipe.loss)

    def judge(weights: Weights, x: Any, y: Any) -> Any:
        outputs, _ = _forward(task, layers, weights, x, False)
        return criterion(outputs, y), _hits(task, outputs, y)

    return judge


def _hits(task: Task, outputs: Any, y: Any) -> Any:
    classes = y.argmax(-1) if task.recipe.one_hot else y
    return (outputs.argmax(-1) == classes).sum()


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


def _forward(
    task: Task, layers: Layers, weights: Weights, x: Any, training: bool
) -> tuple[Any, dict[int, Any]]:
    """Return the outputs, and new moving averages by their index in the weights.

    With bf16 everything between the layers is kept so, too; weights and sums are not.
    """
    import jax
    import jax.numpy as jnp

    x = x.astype(jnp.bfloat16) if task.precision == "bf16" else x
    indices = iter(range(len(weights)))
    moving: dict[int, Any] = {}
    for kind, arguments in layers:
        if kind == "BatchNormalization":
            x = _norm(arguments, weights, indices, moving if training else None, x)
        else:
            layer = translation(_LAYERS, "the layer", kind)
            x = layer(arguments, weights, indices, x)
        if arguments.get("activation"):
            x = getattr(jax.nn, arguments["activation"])(x)
    return x.astype(weights[0].dtype), moving


def _dense(arguments: Any, weights: Weights, indices: Iterator[int], x: Any) -> Any:
    kernel, bias = (weights[next(indices)].astype(x.dtype) for _ in range(2))
    return x @ kernel + bias


def _conv(arguments: Any, weights: Weights, indices: Iterator[int], x: Any) -> Any:
    import jax

    padding = arguments.get("padding", "valid").upper()
    order = ("NHWC", "HWIO", "NHWC")
    kernel, bias = (weights[next(indices)].astype(x.dtype) for _ in range(2))
    outputs = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), padding, dimension_numbers=order
    )
    return outputs + bias


def _norm(
    arguments: Any,
    weights: Weights,
    indices: Iterator[int],
    moving: dict[int, Any] | None,
    x: Any,
) -> Any:
    """Normalise by the batch and note new averages; in a test, by the old averages."""
    import jax
    import jax.numpy as jnp

    gamma, beta = weights[next(indices)], weights[next(indices)]
    dtype, x = x.dtype, x.astype(gamma.dtype)
    if moving is None:
        mean, variance = weights[next(indices)], weights[next(indices)]
    else:
        axes = tuple(range(x.ndim - 1))
        mean = jnp.mean(x, axes)
        variance = jnp.mean(x * x, axes) - mean * mean  # in one pass, which XLA fuses
        momentum = arguments.get("momentum", 0.99)
        for value in (mean, variance):
            index = next(indices)
            new = (1 - momentum) * jax.lax.stop_gradient(value)
            moving[index] = momentum * weights[index] + new
    factor = gamma * jax.lax.rsqrt(variance + 1e-3)
    return (x * factor + (beta - mean * factor)).astype(dtype)


def _pool(arguments: Any, weights: Weights, indices: Iterator[int], x: Any) -> Any:
    """Return the maxima by a reshape: XLA is slow at the gradient of `reduce_window`.

    Where several are largest, it shares the gradient among them; after ReLU those are
    zeros, which pass none on.
    """
    size = arguments["pool_size"]
    n, height, width, channels = x.shape
    rows, columns = height // size, width // size
    x = x[:, : rows * size, : columns * size]
    return x.reshape(n, rows, size, columns, size, channels).max((2, 4))


_LAYERS: dict[str, Callable[..., Any]] = {
    "Dense": _dense,
    "Conv2D": _conv,
    "MaxPooling2D": _pool,
    "Flatten": lambda arguments, weights, indices, x: x.reshape(len(x), -1),
    "GlobalAveragePooling2D": lambda arguments, weights, indices, x: x.mean((1, 2)),
    "Activation": lambda arguments, weights, indices, x: x,
}
