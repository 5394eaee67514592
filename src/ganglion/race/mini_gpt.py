"""A small language model: predicts each next character of a text."""

from __future__ import annotations

from typing import Any


def mini_gpt(
    keras: Any,
    vocabulary: int,
    length: int = 128,
    width: int = 128,
    heads: int = 4,
    blocks: int = 4,
) -> Any:
    """Return the model, from tokens (batch, length) to logits of each next one.

    `keras` is Ganglion or Keras itself: both build it from the same lines.

    >>> import ganglion
    >>> mini_gpt(ganglion, 65, length=16, width=8, heads=2, blocks=1).output.shape
    (None, 16, 65)
    """
    layers, ops = keras.layers, keras.ops
    tokens = keras.Input((length,), dtype="int32")
    # Of one row: the positions are the same in all, and are learned once.
    positions = ops.cumsum(ops.ones_like(tokens[0])) - 1
    x = layers.Embedding(vocabulary, width)(tokens)
    x = x + layers.Embedding(length, width)(positions)
    for _ in range(blocks):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(
            y, y, use_causal_mask=True
        )
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        x = x + layers.Dense(width)(y)
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    return keras.Model(tokens, layers.Dense(vocabulary)(x))
