"""JAX: pure functions, jitted; all steps in one scan, with the state donated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ganglion.recipes import LayerSpec
from ganglion.rivals import Task, scaled, untranslated, up_to_logits

Weights = list[Any]


def prepare(task: Task, form: str) -> JaxTrainer:
    """Write the recipe as a function; the form says what is jitted."""
    return JaxTrainer(task, form)


class JaxTrainer:
    """The state is (weights, velocities); a step maps it to the next one."""

    def __init__(self, task: Task, form: str) -> None:
        import jax
        import jax.numpy as jnp

        layers, x = scaled(task)
        layers = up_to_logits(task.recipe, layers)
        rows, shape = task.batches * task.batch_size, (task.batches, task.batch_size)
        self._x = jnp.asarray(x[:rows].reshape(*shape, *x.shape[1:]))
        self._y = jnp.asarray(task.y[:rows].reshape(*shape, *task.y.shape[1:]))
        weights = [jnp.asarray(one) for one in task.weights]
        self._state = (weights, [jnp.zeros_like(one) for one in weights])
        advance = _step(task, layers)
        self._count = task.batches
        self._in_one = form == "scan"
        if self._in_one:
            self._jitted = jax.jit(
                partial(_scan, advance), static_argnums=3, donate_argnums=0
            )
        else:
            self._batches = list(zip(self._x, self._y, strict=True))
            self._jitted = jax.jit(advance, donate_argnums=0)
        self._made: dict[int, Any] = {}
        self._losses: Any = jnp.zeros(1)

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took."""
        import jax

        if self._in_one:  # another number of steps is compiled outside of the clock
            given = (self._state, self._x, self._y)
            made = self._compiled(given, steps)
            started = time.perf_counter()
            self._state, losses = made(*given)
        else:
            started, losses = time.perf_counter(), []
            for step in range(steps):
                batch = self._batches[step % self._count]
                self._state, loss = self._jitted(self._state, batch)
                losses.append(loss)
        self._losses = jax.block_until_ready(losses)
        jax.block_until_ready(self._state)
        return time.perf_counter() - started

    def _compiled(self, given: Any, steps: int) -> Any:
        if steps not in self._made:
            self._made[steps] = self._jitted.lower(*given, steps).compile()
        return self._made[steps]

    def loss(self) -> float:
        """Return the mean loss over the last run."""
        return float(np.mean(np.asarray(self._losses)))

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now."""
        return [np.array(one) for one in self._state[0]]


def _scan(advance: Callable[..., Any], state: Any, x: Any, y: Any, steps: int) -> Any:
    import jax

    def body(state: Any, step: Any) -> Any:
        return advance(state, (x[step % len(x)], y[step % len(x)]))

    return jax.lax.scan(body, state, jax.numpy.arange(steps))


def _step(task: Task, layers: tuple[LayerSpec, ...]) -> Callable[..., Any]:
    """Return the training step: (state, batch) -> (state, loss)."""
    import jax

    criterion = _criterion(task.recipe.loss)
    kind, given = task.recipe.optimizer
    if kind != "SGD":
        raise untranslated("the optimizer", kind)
    rate, momentum = given["learning_rate"], given.get("momentum", 0.0)
    ahead = given.get("nesterov", False)

    def loss_of(weights: Weights, x: Any, y: Any) -> Any:
        outputs, averages = _forward(layers, weights, x)
        return criterion(outputs, y), averages

    def update(weight: Any, velocity: Any, slope: Any) -> Any:
        if not momentum:
            return weight - rate * slope, velocity
        velocity = momentum * velocity - rate * slope
        way = momentum * velocity - rate * slope if ahead else velocity
        return weight + way, velocity

    def advance(state: Any, batch: Any) -> Any:
        (loss, averages), slopes = jax.value_and_grad(loss_of, has_aux=True)(
            state[0], *batch
        )
        moved = [update(*one) for one in zip(*state, slopes, strict=True)]
        weights = [averages.get(i, one[0]) for i, one in enumerate(moved)]
        return (weights, [one[1] for one in moved]), loss

    return advance


def _criterion(name: str) -> Callable[[Any, Any], Any]:
    import jax
    import jax.numpy as jnp

    def cross_entropy(logits: Any, labels: Any) -> Any:
        chosen = jax.nn.one_hot(labels, logits.shape[-1])
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * chosen, axis=-1))

    known = {
        "mean_squared_error": lambda outputs, wanted: jnp.mean((outputs - wanted) ** 2),
        "sparse_categorical_crossentropy": cross_entropy,
    }
    if name not in known:
        raise untranslated("the loss", name)
    return known[name]


def _forward(
    layers: tuple[LayerSpec, ...], weights: Weights, x: Any
) -> tuple[Any, dict[int, Any]]:
    """Return the outputs, and new moving averages by their place in the weights."""
    import jax

    place = iter(range(len(weights)))
    averages: dict[int, Any] = {}
    for kind, given in layers:
        if kind == "BatchNormalization":
            x = _norm(weights, place, averages, x)
        elif kind in _LAYERS:
            x = _LAYERS[kind](given, weights, place, x)
        else:
            raise untranslated("the layer", kind)
        if given.get("activation"):
            x = getattr(jax.nn, given["activation"])(x)
    return x, averages


def _dense(given: Any, weights: Weights, place: Iterator[int], x: Any) -> Any:
    return x @ weights[next(place)] + weights[next(place)]


def _conv(given: Any, weights: Weights, place: Iterator[int], x: Any) -> Any:
    import jax

    padding = given.get("padding", "valid").upper()
    order = ("NHWC", "HWIO", "NHWC")
    kernel, bias = weights[next(place)], weights[next(place)]
    made = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), padding, dimension_numbers=order
    )
    return made + bias


def _norm(
    weights: Weights, place: Iterator[int], averages: dict[int, Any], x: Any
) -> Any:
    import jax
    import jax.numpy as jnp

    gamma, beta = weights[next(place)], weights[next(place)]
    axes = tuple(range(x.ndim - 1))
    mean = jnp.mean(x, axes)
    variance = jnp.mean(x * x, axes) - mean * mean  # one pass, as XLA likes it
    for value in (mean, variance):
        at = next(place)
        averages[at] = 0.99 * weights[at] + 0.01 * jax.lax.stop_gradient(value)
    factor = gamma * jax.lax.rsqrt(variance + 1e-3)
    return x * factor + (beta - mean * factor)


def _pool(given: Any, weights: Weights, place: Iterator[int], x: Any) -> Any:
    """Return the maxima by a reshape: XLA is slow at the gradient of `reduce_window`.

    Where several are largest, it shares the gradient among them; after ReLU those are
    zeros, which pass none on.
    """
    size = given["pool_size"]
    n, height, width, channels = x.shape
    rows, columns = height // size, width // size
    x = x[:, : rows * size, : columns * size]
    return x.reshape(n, rows, size, columns, size, channels).max((2, 4))


_LAYERS: dict[str, Any] = {
    "Dense": _dense,
    "Conv2D": _conv,
    "MaxPooling2D": _pool,
    "Flatten": lambda given, weights, place, x: x.reshape(len(x), -1),
    "GlobalAveragePooling2D": lambda given, weights, place, x: x.mean((1, 2)),
    "Activation": lambda given, weights, place, x: x,
}
