"""The recipes with sequences, autoencoder and text, small enough for a moment."""

from dataclasses import replace

import numpy as np

from ganglion import recipes

STEPS, FEATURES, LETTERS = 6, 4, 11
_SIZES = {
    "units": {128: 8, 256: 8, 512: 16, 784: STEPS * FEATURES, 96: LETTERS},
    "input_dim": {96: LETTERS, 128: STEPS},
    "output_dim": {128: 8},
    "num_heads": {4: 2},
    "key_dim": {32: 4},
}
NAMES = ("mnist-rnn", "mnist-birnn", "mnist-lstm", "mnist-vae", "mini-gpt", "gru2")
ROWS, BATCH = 70, 16  # the last batch has six rows


def small(name):
    """Return a recipe with small layers, and without random numbers."""
    recipe = recipes.get(name)
    layers = tuple(_shrunk(spec) for spec in recipe.layers)
    shape = (STEPS,) if recipe.takes_tokens else (STEPS, FEATURES)
    classes = LETTERS if recipe.takes_tokens else recipe.classes
    labels = (STEPS,) if recipe.target_shape else ()
    recipe = replace(
        recipe, layers=layers, input_shape=shape, classes=classes, target_shape=labels
    )
    model = recipes.build(recipe)
    return replace(recipe, name=f"small-{name}", parameters=model.count_params())


def _shrunk(spec):
    kind, arguments = spec
    if kind == "Residual":
        return kind, {"layers": [_shrunk(inner) for inner in arguments["layers"]]}
    if kind == "Bidirectional":
        inner = arguments["layer"]
        _, config = _shrunk((inner["class_name"], inner["config"]))
        return kind, {"layer": inner | {"config": config}}
    sizes = {
        name: _SIZES[name].get(value, value) if name in _SIZES else value
        for name, value in arguments.items()
    }
    return kind, sizes | ({"stddev": 0.0} if kind == "Sampling" else {})


def weights_of(recipe):
    """Return weights to start from, none of them zero: biases count, too."""
    rng = np.random.default_rng(0)
    return [
        weight + rng.normal(0, 0.1, weight.shape).astype("float32")
        for weight in recipes.build(recipe).get_weights()
    ]
