"""The command line on a few hundred drawn digits, as a program of its own."""

import os
import sys

import numpy as np

from ganglion import recipes
from ganglion.cli import app, train
from ganglion.datasets import glyphs


def small(recipe):
    rows = int(os.environ.get("SMALL_ROWS", "600"))
    (x, y), (x_test, y_test) = glyphs.load_data(
        train=min(rows, 600), test=min(rows, 200)
    )
    again = np.arange(rows) % len(x)  # to draw many takes longer than to learn them
    x, y = x[again], y[again]
    if recipe.input_shape == (32, 32, 3):
        x, x_test = in_colour(x), in_colour(x_test)
    return (
        recipes.prepared(recipe, x, y),
        recipes.prepared(recipe, x_test, y_test),
        None,
    )


def in_colour(x):
    framed = np.pad(x, ((0, 0), (2, 2), (2, 2)))
    return np.repeat(framed[..., None], 3, axis=-1)


def shorten():
    """Let a race and a bench try and measure for moments."""
    from ganglion.race import lockstep, run_race
    from ganglion.race.bench import steps

    run_race.PAUSE = steps.PAUSE = 0.0
    lockstep.TRIALS, lockstep.TRIAL_SECONDS = 1, 0.05
    steps.ROUND_SECONDS = 0.1


if __name__ == "__main__":
    recipes.load = small
    if sys.argv[1] in ("race", "bench"):
        shorten()
    seconds = os.environ.get("SMALL_SAVE_SECONDS", train.SAVE_SECONDS)
    train.SAVE_SECONDS = float(seconds)
    app.main()
