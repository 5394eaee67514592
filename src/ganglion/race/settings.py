"""The settings of a race: completed, checked, and read back.

A sweep is a race at several points: every combination of some values of some settings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ganglion import config, recipes
from ganglion.config import PRECISIONS, closest
from ganglion.images import networks
from ganglion.race import machine
from ganglion.race.engines import ON_GPU, RIVALS, engine
from ganglion.race.results import DEVICES, Race
from ganglion.recipes import Recipe

DEFAULT_ENGINES = ("ganglion", *RIVALS)
GPU_ENGINES = ("ganglion", *ON_GPU)
GPU_PRECISIONS = ("tf32", "bf16")
Values = dict[str, list[Any]]  # of each key of a sweep
_FIXED = ("recipe", "engines", "runs", "epochs", "batch_size", "threads", "device",
          "seed", "sweep")  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """One race: the same training for every engine.

    >>> settings = choose("mnist-mlp", engines="ganglion,torch", epochs=3, threads=2)
    >>> settings.engines, settings.batch_size, settings.runs
    (('ganglion', 'torch'), 128, 1)
    """

    recipe: str
    engines: tuple[str, ...]
    runs: int
    epochs: int
    batch_size: int
    threads: int
    device: str
    seed: int
    limit: float | None = None  # seconds a run may take; by first measurements if None
    memory: int | None = None  # bytes of address space a run may take
    sweep: Values = field(default_factory=dict)
    point: dict[str, Any] = field(default_factory=dict)  # of a sweep
    optimizer: dict[str, float] = field(default_factory=dict)  # other than the recipe's
    on: str = ""  # a cluster; this machine if empty
    custom: Recipe | None = None  # from a folder of images; else the one of the name
    dtype: str = "float32"  # of the engines; a lockstep may be more precise
    precision: str = "float32"  # of products; on a GPU, a sweep has others

    def __post_init__(self) -> None:
        if isinstance(self.custom, dict):  # it has travelled as plain data
            object.__setattr__(self, "custom", recipes.from_data(self.custom))

    @property
    def full_recipe(self) -> Recipe:
        """The recipe."""
        return self.custom or recipes.get(self.recipe)

    @property
    def label(self) -> str:
        """The point of a sweep as a part of a file's name, "" outside of a sweep."""
        return "".join(f"-{key}-{value}" for key, value in self.point.items())

    @property
    def learning_rate(self) -> float:
        """The rate of the recipe, or of the point of a sweep."""
        return float(
            recipes.tuned(self.full_recipe, self.optimizer).optimizer[1][
                "learning_rate"
            ]
        )

    def seed_of(self, number: int) -> int:
        """Return the seed of a run (from 1): equal for all engines."""
        return self.seed + number - 1


def choose(
    recipe: str | Recipe,
    *,
    engines: str | None = None,
    runs: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    threads: int | None = None,
    device: str | None = None,
    seed: int | None = None,
    limit: float | None = None,
    memory: int | None = None,
    sweep: Values | None = None,
    on: str | None = None,
) -> Settings:
    """Return the settings of a new race: what is not given is the recipe's own."""
    custom = None if isinstance(recipe, str) else recipe
    chosen = custom or recipes.get(str(recipe))
    default = GPU_ENGINES if device == "cuda" else DEFAULT_ENGINES
    names = default if engines is None else split_names(engines)
    for name in names:
        engine(name)  # refuses what is unknown
    device = device or "cpu"
    if device not in DEVICES:
        raise ValueError(f"Unknown device {device!r}: choose {' or '.join(DEVICES)}.")
    sweep = _with_precisions(sweep or {}, device)
    fixed = {"epochs": epochs, "batch-size": batch_size, "threads": threads,
             "seed": seed}  # fmt: skip
    _check_sweep(sweep, chosen, fixed)
    first = {name: values[0] for name, values in sweep.items()}
    threads = threads or first.get("threads") or config.threads()
    if not on:  # the nodes of a cluster may have more cores
        _check_threads(max([threads, *sweep.get("threads", ())]))
    return Settings(
        recipe=chosen.name,
        engines=names,
        runs=runs or 1,
        epochs=epochs or first.get("epochs") or chosen.epochs,
        batch_size=batch_size or first.get("batch-size") or chosen.batch_size,
        threads=threads,
        device=device,
        seed=seed or first.get("seed") or 0,
        limit=limit,
        memory=memory,
        sweep=sweep,
        on=on or "",
        custom=custom,
    )


def _check_sweep(sweep: Values, recipe: Recipe, fixed: Mapping[str, Any]) -> None:
    """Refuse a sweep over what the recipe lacks, or over an option that is set."""
    if "momentum" in sweep and recipe.optimizer[0] != "SGD":
        raise ValueError(
            f"--sweep momentum: {recipe.name} is trained by {recipe.optimizer[0]}, "
            "which has none; sweep over lr."
        )
    for name, value in fixed.items():
        if value is not None and name in sweep:
            raise ValueError(f"--{name} is swept over: leave --{name} {value} out.")


def _check_threads(most: int) -> None:
    """Refuse more threads than this machine has cores."""
    if most > machine.cores():
        raise ValueError(
            f"--threads {most}: this machine has {machine.cores()} cores to use, "
            "and more threads than cores would only measure their contention."
        )


def _with_precisions(sweep: Values, device: str) -> Values:
    """Return a sweep with the precisions of a device, each in rows of its own."""
    if device == "cuda":
        return {"precision": list(GPU_PRECISIONS)} | sweep
    if "precision" in sweep:
        raise ValueError("--sweep precision goes with --device cuda: CPUs use float32.")
    return sweep


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in a text with commas, each once.

    >>> split_names("torch, jax,torch")
    ('torch', 'jax')
    """
    names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not names:
        raise ValueError("--engines names no engine.")
    return names


def of_race(
    race: Race,
    folder: Path,
    options: dict[str, Any],
    *,
    limit: float | None = None,
    memory: int | None = None,
    on: str = "",
) -> Settings:
    """Return the settings of a race that is resumed; refuse contradicting options.

    Limits and the cluster do not change what is measured: they may be changed.
    """
    refuse_others(race, folder, options)
    return Settings(
        **{name: getattr(race, name) for name in _FIXED},
        limit=limit or race.limit or None,
        memory=memory or race.memory or None,
        on=on or race.on,
        custom=networks.of_source(race.images) if race.images else None,
    )


def refuse_others(race: Race, folder: Path, options: dict[str, Any]) -> None:
    """Refuse options that contradict a race that is resumed; None was not given."""
    for name, value in options.items():
        begun = getattr(race, name)
        if value is not None and value != begun:
            option = "RECIPE" if name == "recipe" else f"--{name.replace('_', '-')}"
            text = ",".join(begun) if isinstance(begun, tuple) else begun
            if name == "sweep":
                text = " ".join(map(_shown, begun.items())) or "of nothing"
            raise ValueError(
                f"{folder} holds a race with {option} {text}: leave {option} out, or "
                "start another race with another --out."
            )


def _shown(swept: tuple[str, list[Any]]) -> str:
    return f"{swept[0]}={','.join(map(str, swept[1]))}"


# ---- sweeps --------------------------------------------------------------------------


class Key(NamedTuple):
    """Something to sweep over: the field that it sets, and which values it takes."""

    field: str
    kind: type[int] | type[float] | type[str]
    fits: Callable[[Any], bool]
    takes: str
    of_optimizer: bool = False


_COUNT = "integers of at least 1"
KEYS: dict[str, Key] = {
    "lr": Key("learning_rate", float, lambda v: v > 0, "numbers above 0", True),
    "momentum": Key(
        "momentum", float, lambda v: 0 <= v < 1, "numbers from 0 to below 1", True
    ),
    "batch-size": Key("batch_size", int, lambda v: v >= 1, _COUNT),
    "epochs": Key("epochs", int, lambda v: v >= 1, _COUNT),
    "threads": Key("threads", int, lambda v: v >= 1, _COUNT),
    "seed": Key("seed", int, lambda v: v >= 0, "integers of at least 0"),
    "precision": Key(
        "precision", str, lambda v: v in PRECISIONS, f"names {', '.join(PRECISIONS)}"
    ),
}


def parse_sweep(
    texts: Iterable[str], option: str = "--sweep", keys: Mapping[str, Key] = KEYS
) -> Values:
    """Return the values of each key; refuse what no race can have.

    >>> parse_sweep(["lr=0.1,0.5", "batch-size=64,128"])
    {'lr': [0.1, 0.5], 'batch-size': [64, 128]}
    """
    swept: Values = {}
    for text in texts:
        name, words = split_values(text, option, f" Keys: {', '.join(keys)}.")
        if name not in keys:
            raise ValueError(
                f"{option} {text}: unknown key {name!r}. {closest(name, keys)} "
                f"A sweep goes over {', '.join(keys)}."
            )
        if name in swept:
            raise ValueError(
                f"{option} {name} is there twice: put all of its values into one."
            )
        if not words:
            takes = keys[name].takes
            raise ValueError(f"{option} {name}: no value; {name} takes {takes}.")
        swept[name] = list(
            dict.fromkeys(_value(name, word, option, keys) for word in words)
        )
    return swept


def split_values(text: str, option: str, hint: str = "") -> tuple[str, list[str]]:
    """Return a key and its values, which have commas between them.

    >>> split_values("lr=0.1, 0.5", "--sweep")
    ('lr', ['0.1', '0.5'])
    """
    name, sign, rest = text.partition("=")
    if not sign:
        raise ValueError(
            f"{option} {text}: write a key and its values, as in lr=0.1,0.5.{hint}"
        )
    return name.strip(), list(filter(None, map(str.strip, _split(rest))))


def _split(text: str) -> list[str]:
    """Return the parts of a text between commas that no bracket or quote holds.

    >>> _split("(64, 64),[8],'a,b'")
    ['(64, 64)', '[8]', "'a,b'"]
    """
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth <= 0:
            parts.append("")
            continue
        parts[-1] += sign
    return parts


def _value(name: str, word: str, option: str, keys: Mapping[str, Key]) -> Any:
    key = keys[name]
    try:
        value: Any = key.kind(word)
    except ValueError:
        value = math.nan
    is_endless = isinstance(value, float) and not math.isfinite(value)
    if is_endless or not key.fits(value):
        raise ValueError(f"{option} {name}: {word!r} is none of the {key.takes}.")
    return value


def points(settings: Settings) -> list[Settings]:
    """Return the settings of every point; a race without a sweep is one point.

    >>> sweep = parse_sweep(["lr=0.1,0.5", "seed=3"])
    >>> swept = choose("mnist-mlp", threads=1, sweep=sweep)
    >>> [(one.point, one.optimizer, one.seed) for one in points(swept)][1]
    ({'lr': 0.5, 'seed': 3}, {'learning_rate': 0.5}, 3)
    """
    combined = itertools.product(*settings.sweep.values())
    chosen = (dict(zip(settings.sweep, values, strict=True)) for values in combined)
    return [_at(settings, point) for point in chosen]


def _at(settings: Settings, point: dict[str, Any]) -> Settings:
    fields: dict[bool, dict[str, Any]] = {True: {}, False: {}}
    for name, value in point.items():
        fields[KEYS[name].of_optimizer][KEYS[name].field] = value
    optimizer, others = fields[True], fields[False]
    return replace(settings, sweep={}, point=point, optimizer=optimizer, **others)


def sweep_options(sweep: Values) -> list[str]:
    """Return a sweep as it is written on a command line.

    >>> sweep_options({"lr": [0.1, 0.5]})
    ['--sweep lr=0.1,0.5']
    """
    return [f"--sweep {_shown(swept)}" for swept in sweep.items()]
