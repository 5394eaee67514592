"""A small language model of any size, from the layers of the recipe `mini-gpt`."""

from dataclasses import replace

from ganglion import recipes
from ganglion.recipes.generative import transformer


def mini_gpt(keras, vocabulary, length, **sizes):
    """Return the model, from tokens to logits; `keras` is Ganglion or Keras itself."""
    *layers, (kind, last) = transformer(vocabulary, length, **sizes)
    recipe = replace(
        recipes.get("mini-gpt"), input_shape=(length,), target_shape=(length,)
    )
    return recipes.network(
        keras, recipe, (*layers, (kind, last | {"activation": None}))
    )
