"""The layers, losses and the training step of a recipe as pure functions of JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ganglion.race.engines import Task, untranslated
from ganglion.recipes import LayerSpec

Weights = list[Any]


def learning(task: Task, layers: tuple[LayerSpec, ...]) -> Callable[..., Any]:
    """Return the training step: (state, batch) -> (state, (loss, hits))."""
    import jax

    criterion = _criterion(task.recipe.loss)
    kind, given = task.recipe.optimizer
    if kind != "SGD":
        raise untranslated("the optimizer", kind)
    rate, momentum = given["learning_rate"], given.get("momentum", 0.0)
    ahead = given.get("nesterov", False)

    def loss_of(weights: Weights, x: Any, y: Any) -> Any:
        outputs, averages = _forward(task, layers, weights, x, True)
        return criterion(outputs, y), (averages, _hits(task, outputs, y))

    def update(weight: Any, velocity: Any, slope: Any) -> Any:
        if not momentum:
            return weight - rate * slope, velocity
        velocity = momentum * velocity - rate * slope
        way = momentum * velocity - rate * slope if ahead else velocity
        return weight + way, velocity

    def advance(state: Any, batch: Any) -> Any:
        (loss, (averages, hits)), slopes = jax.value_and_grad(loss_of, has_aux=True)(
            state[0], *batch
        )
        moved = [update(*one) for one in zip(*state, slopes, strict=True)]
        weights = [averages.get(i, one[0]) for i, one in enumerate(moved)]
        return (weights, [one[1] for one in moved]), (loss, hits)

    return advance


def judging(task: Task, layers: tuple[LayerSpec, ...]) -> Callable[..., Any]:
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

    known = {
        "mean_squared_error": lambda outputs, wanted: jnp.mean((outputs - wanted) ** 2),
        "sparse_categorical_crossentropy": cross_entropy,
    }
    if name not in known:
        raise untranslated("the loss", name)
    return known[name]


def _forward(
    task: Task, layers: tuple[LayerSpec, ...], weights: Weights, x: Any, learning: bool
) -> tuple[Any, dict[int, Any]]:
    """Return the outputs, and new moving averages by their place in the weights.

    With bf16 everything between the layers is kept so, too; weights and sums are not.
    """
    import jax
    import jax.numpy as jnp

    x = x.astype(jnp.bfloat16) if task.precision == "bf16" else x
    place = iter(range(len(weights)))
    averages: dict[int, Any] = {}
    for kind, given in layers:
        if kind == "BatchNormalization":
            x = _norm(given, weights, place, averages if learning else None, x)
        elif kind in _LAYERS:
            x = _LAYERS[kind](given, weights, place, x)
        else:
            raise untranslated("the layer", kind)
        if given.get("activation"):
            x = getattr(jax.nn, given["activation"])(x)
    return x.astype(weights[0].dtype), averages


def _dense(given: Any, weights: Weights, place: Iterator[int], x: Any) -> Any:
    kernel, bias = (weights[next(place)].astype(x.dtype) for _ in range(2))
    return x @ kernel + bias


def _conv(given: Any, weights: Weights, place: Iterator[int], x: Any) -> Any:
    import jax

    padding = given.get("padding", "valid").upper()
    order = ("NHWC", "HWIO", "NHWC")
    kernel, bias = (weights[next(place)].astype(x.dtype) for _ in range(2))
    made = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), padding, dimension_numbers=order
    )
    return made + bias


def _norm(
    given: Any,
    weights: Weights,
    place: Iterator[int],
    averages: dict[int, Any] | None,
    x: Any,
) -> Any:
    """Normalise by the batch and note new averages; without a place for them, test."""
    import jax
    import jax.numpy as jnp

    gamma, beta = weights[next(place)], weights[next(place)]
    kept_as, x = x.dtype, x.astype(gamma.dtype)
    if averages is None:
        mean, variance = weights[next(place)], weights[next(place)]
    else:
        axes = tuple(range(x.ndim - 1))
        mean = jnp.mean(x, axes)
        variance = jnp.mean(x * x, axes) - mean * mean  # one pass, as XLA likes it
        kept = given.get("momentum", 0.99)
        for value in (mean, variance):
            at = next(place)
            new = (1 - kept) * jax.lax.stop_gradient(value)
            averages[at] = kept * weights[at] + new
    factor = gamma * jax.lax.rsqrt(variance + 1e-3)
    return (x * factor + (beta - mean * factor)).astype(kept_as)


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
