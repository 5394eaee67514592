"""Options that several commands share, their checks and their completions.

A value that cannot be meant is refused where it is read, by the name of its option: no
option is taken and then passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ganglion import config
from ganglion import recipes as recipe_book

Names = Callable[[], Iterable[str]]
Check = Callable[[Any], Any]
LARGEST_SEED = 2**32 - 1  # of NumPy


def checked(check: Check) -> Callable[[Any], Any]:
    """Return a callback of an option: it refuses what a check raises a `ValueError` at.

    The value stays what it was; options that are not given are not checked.
    """

    def callback(value: Any) -> Any:
        if value is not None:
            try:
                check(value)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
        return value

    return callback


def one_of(*names: str) -> Callable[[Any], Any]:
    """Return a callback that takes one of some names."""
    *most, last = names

    def check(value: str) -> None:
        if value not in names:
            raise ValueError(f"{value!r}; choose {', '.join(most)} or {last}.")

    return checked(check)


def above_zero(value: float) -> None:
    """Refuse numbers that are not above zero, or without an end."""
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{value:g} is not above 0.")


def count_or_share(value: float) -> None:
    """Refuse what neither counts images nor is a share of them."""
    if not (value >= 0 and math.isfinite(value)) or (value >= 1 and value % 1):
        raise ValueError(f"{value:g}: give an integer, or a share between 0 and 1.")


def parse_size(text: str | None) -> int | tuple[int, int] | None:
    """Return a size of images from the command line.

    >>> parse_size("64"), parse_size("64x48"), parse_size(None)
    (64, (64, 48), None)
    """
    if text is None:
        return None
    parts = text.lower().replace("×", "x").split("x")
    if not all(part.isdigit() and int(part) for part in parts) or len(parts) > 2:
        raise typer.BadParameter(f"--size {text}: give 64, or 64x48 (rows, columns).")
    return int(parts[0]) if len(parts) == 1 else (int(parts[0]), int(parts[1]))


# ---- completion ----------------------------------------------------------------------


def completed(names: Names) -> Callable[[str], list[str]]:
    """Return how a shell completes one of some names.

    >>> completed(lambda: ("cpu", "cuda", "numpy"))("c")
    ['cpu', 'cuda']
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def completed_list(names: Names) -> Callable[[str], list[str]]:
    """Return how a shell completes names with commas between.

    >>> completed_list(lambda: ("jax", "torch"))("jax,t")
    ['jax,torch']
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [
            f"{before}{comma}{name}"
            for name in names()
            if name.startswith(last) and name not in taken
        ]

    return complete


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return list(recipe_book.RECIPES)


def timed_names() -> list[str]:
    """Return the names of all that `bench` can time: recipes, probes, networks."""
    others = (*recipe_book.PROBES, *recipe_book.NETWORKS)
    return [*recipe_names(), *(recipe.name for recipe in others)]


def engine_names() -> list[str]:
    """Return the names of all engines."""
    from ganglion.race.engines import ENGINES

    return list(ENGINES)


def sweep_keys() -> list[str]:
    """Return what a race can be swept over, up to the values."""
    from ganglion.race.settings import KEYS

    return [f"{name}=" for name in KEYS]


def dataset_names() -> list[str]:
    """Return the names of all data sets."""
    from ganglion import datasets

    return list(datasets.NAMES)


def choice(*names: str, **more: Any) -> Any:
    """Return an option that takes one of some names, and completes them."""
    return typer.Option(
        callback=one_of(*names), autocompletion=completed(lambda: names), **more
    )


# ---- options that several commands have ----------------------------------------------

RECIPE = "A recipe; `ganglion recipes` lists them."
FITS = ("crop", "resize", "pad")
RecipeName = Annotated[
    str, typer.Argument(help=RECIPE, autocompletion=completed(recipe_names))
]
RecipeOrNone = Annotated[
    str | None, typer.Argument(help=RECIPE, autocompletion=completed(recipe_names))
]
ModelFile = Annotated[Path, typer.Argument(help="A model file (.keras).")]
Threads = Annotated[
    int | None,
    typer.Option(
        help="How many threads; all cores by default.",
        callback=checked(config.threads_of),
    ),
]
BatchSize = Annotated[
    int | None, typer.Option(help="Images a step; 128 by default.", min=1)
]
Size = Annotated[
    str | None,
    typer.Option(
        help="With --images: 64 or 64x48; by the images if not given.",
        callback=checked(parse_size),
    ),
]


def seed_option(text: str) -> Any:
    """Return the option of a seed."""
    return typer.Option(help=text, min=0, max=LARGEST_SEED)


def share_option(text: str) -> Any:
    """Return an option that counts images, or takes a share of them."""
    return typer.Option(help=f"With --images: {text}", callback=checked(count_or_share))
