"""From a recipe to a model, in Ganglion and, from the same lines, in Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from ganglion.recipes.records import LayerSpec, Recipe


def build(recipe: Recipe) -> Any:
    """Return the recipe's model, compiled and ready to train.

    >>> from ganglion import recipes
    >>> build(recipes.get("mnist-cnn")).count_params()
    430666
    """
    import ganglion

    model = network(ganglion, recipe, (*recipe.augment, *recipe.layers))
    kind, arguments = recipe.optimizer
    model.compile(
        optimizer=getattr(ganglion.optimizers, kind)(**arguments),
        loss=recipe.loss,
        loss_weights=loss_weights(recipe),
        metrics=list(recipe.metrics),
    )
    return model


def custom_objects() -> dict[str, Any]:
    """Return what a saved model of a recipe may need to be loaded."""
    import ganglion

    return _own(ganglion)


def loss_weights(recipe: Recipe) -> list[float] | None:
    """Return the weight of a recipe's loss as `compile` takes it."""
    return None if recipe.loss_weight == 1 else [recipe.loss_weight]


def network(keras: Any, recipe: Recipe, layers: Iterable[LayerSpec]) -> Any:
    """Return a recipe's network; `keras` is Ganglion or Keras itself."""
    layers = tuple(layers)
    name = recipe.name
    dtype = "int32" if recipe.takes_tokens else None
    inputs = keras.Input(recipe.input_shape, dtype=dtype)
    if not any(kind in PARTS for kind, _ in layers):
        stack = [layer(keras, spec) for spec in layers]
        return keras.Sequential([inputs, *stack], name=name)
    return keras.Model(inputs, _stacked(keras, layers, inputs), name=name)


def layer(keras: Any, spec: LayerSpec) -> Any:
    """Return a layer of Keras, and the layer that it wraps, if any."""
    kind, arguments = spec
    built = {name: _argument(keras, value) for name, value in arguments.items()}
    return getattr(keras.layers, kind)(**built)


def _argument(keras: Any, value: Any) -> Any:
    """Return an argument of a layer: a wrapped layer or our own activation."""
    if value == KERAS2_HARD_SIGMOID:
        return _own(keras)[value]
    if isinstance(value, dict) and hasattr(keras.layers, value.get("class_name", "")):
        return layer(keras, (value["class_name"], value["config"]))
    return value


def _stacked(keras: Any, specs: Iterable[LayerSpec], x: Any) -> Any:
    for kind, arguments in specs:
        if kind in PARTS:
            x = PARTS[kind](keras, x, **arguments)
        else:
            x = layer(keras, (kind, arguments))(x)
    return x


# ---- parts that are several layers, or have several inputs ---------------------------


def _residual(
    keras: Any,
    x: Any,
    layers: Iterable[LayerSpec],
    shortcut: Iterable[LayerSpec] = (),
) -> Any:
    """Add what some layers make of x to it, or to what a shortcut makes of it."""
    return _stacked(keras, layers, x) + _stacked(keras, shortcut, x)


def _skip(keras: Any, x: Any, layers: Iterable[LayerSpec]) -> Any:
    """Append the outputs of some layers to x, as more channels."""
    return keras.layers.Concatenate()([x, _stacked(keras, layers, x)])


def _causal_attention(keras: Any, x: Any, **sizes: int) -> Any:
    """Let every step attend to itself and to those before."""
    attention = keras.layers.MultiHeadAttention(**sizes)
    return attention(x, x, use_causal_mask=True)


def _positions(keras: Any, x: Any, input_dim: int, output_dim: int) -> Any:
    """Add a vector that is learned for each position."""
    # Of one row: the positions are the same in all, and are learned once.
    counted = keras.ops.ones_like(x[:1, :, 0], dtype="int32")
    positions = keras.ops.cumsum(counted, axis=1) - 1
    return x + keras.layers.Embedding(input_dim, output_dim)(positions)


def _sampling(
    keras: Any, x: Any, units: int, weight: float, stddev: float = 1.0
) -> Any:
    """Draw from the normal distribution whose mean and variance two layers compute."""
    mean = keras.layers.Dense(units, name="mean")(x)
    log_variance = keras.layers.Dense(units, name="log_variance")(x)
    sample = _own(keras)["Sampling"](weight, stddev, name="sample")
    return sample([mean, log_variance])


PARTS: dict[str, Callable[..., Any]] = {
    "Residual": _residual,
    "Skip": _skip,
    "CausalAttention": _causal_attention,
    "Positions": _positions,
    "Sampling": _sampling,
}
KERAS2_HARD_SIGMOID = "keras2_hard_sigmoid"


@cache
def _own(keras: Any) -> dict[str, Any]:
    """Return a layer and an activation that Keras does not have, from its own ops."""
    ops = keras.ops
    registered: Callable[[Any], Any] = keras.saving.register_keras_serializable(
        package="ganglion.recipes"
    )

    @registered
    def keras2_hard_sigmoid(x: Any) -> Any:
        """Return clip(0.2 x + 0.5, 0, 1), as Keras 2 had it."""
        return ops.clip(0.2 * x + 0.5, 0.0, 1.0)

    @registered
    class Sampling(keras.layers.Layer):  # type: ignore[misc]
        """Draws samples, and adds their divergence from N(0, 1) to the loss."""

        def __init__(self, weight: float, stddev: float = 1.0, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.weight, self.stddev = weight, stddev
            self.seed_generator = keras.random.SeedGenerator()

        def call(self, inputs: Any) -> Any:
            """Return mean + deviation × a normal number, drawn in every call."""
            mean, log_variance = inputs
            terms = 1.0 + log_variance - ops.square(mean) - ops.exp(log_variance)
            divergence = -0.5 * ops.mean(ops.sum(terms, axis=-1))
            self.add_loss(self.weight * divergence)
            noise = keras.random.normal(
                ops.shape(mean), stddev=self.stddev, seed=self.seed_generator
            )
            return mean + ops.exp(0.5 * log_variance) * noise

        def get_config(self) -> dict[str, Any]:
            """Return the parts of the layer."""
            more = {"weight": self.weight, "stddev": self.stddev}
            return {**super().get_config(), **more}

    return {KERAS2_HARD_SIGMOID: keras2_hard_sigmoid, "Sampling": Sampling}
