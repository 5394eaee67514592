"""Experiments that produce what they were shown: images, and text."""

from __future__ import annotations

from ganglion.datasets import python_text
from ganglion.recipes.records import PIXELS, LayerSpec, Published, Recipe, dense

_GLOROT = "glorot_uniform"
_NORM: LayerSpec = ("LayerNormalization", {"epsilon": 1e-5})


def transformer(
    vocabulary: int, length: int, width: int = 128, heads: int = 4, blocks: int = 4
) -> tuple[LayerSpec, ...]:
    """Return layers from tokens to the probabilities of each next one.

    >>> len(transformer(96, 128))
    12
    """
    sizes = {"num_heads": heads, "key_dim": width // heads}
    attention: list[LayerSpec] = [_NORM, ("CausalAttention", sizes)]
    wide = dense(4 * width, _GLOROT, "gelu")
    perceptron: list[LayerSpec] = [_NORM, wide, dense(width, _GLOROT)]
    block: tuple[LayerSpec, ...] = (
        ("Residual", {"layers": attention}),
        ("Residual", {"layers": perceptron}),
    )
    return (
        ("Embedding", {"input_dim": vocabulary, "output_dim": width}),
        ("Positions", {"input_dim": length, "output_dim": width}),
        *block * blocks,
        _NORM,
        dense(vocabulary, _GLOROT, "softmax"),
    )


VAE = Recipe(
    name="mnist-vae",
    title="784 → 512 relu → 2 + 2, sampled → 512 relu → 784 sigmoid",
    dataset="mnist",
    input_shape=(28, 28),
    layers=(
        PIXELS,
        ("Flatten", {}),
        dense(512, _GLOROT, "relu"),
        ("Sampling", {"units": 2, "weight": 2.0}),
        dense(512, _GLOROT, "relu"),
        dense(784, _GLOROT, "sigmoid"),
    ),
    loss="mean_squared_error",
    loss_weight=784.0,
    optimizer=("Adam", {"learning_rate": 0.001}),
    epochs=30,
    parameters=807_700,
    published=(
        Published("Keras CPU", 41.72, "11 s an epoch"),
        Published("Keras, after one epoch", 46.97, "11 s"),
    ),
    remark="Every engine samples with random numbers of its own: losses agree within "
    "some percent, not to rounding.",
    metrics=(),
    reconstructs=True,
)

GPT = Recipe(
    name="mini-gpt",
    title="characters of Python's documentation: 4 blocks of causal attention of 128",
    dataset="python_text",
    input_shape=(python_text.LENGTH,),
    layers=transformer(python_text.VOCABULARY, python_text.LENGTH),
    loss="sparse_categorical_crossentropy",
    optimizer=(
        "AdamW",
        {"learning_rate": 0.001, "weight_decay": 0.01, "epsilon": 1e-8},
    ),
    epochs=10,
    parameters=834_400,
    published=(),
    batch_size=32,
    classes=python_text.VOCABULARY,
    target_shape=(python_text.LENGTH,),
)
