"""A race at several points: every combination of some values of some settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ganglion.config import PRECISIONS, closest
from ganglion.race.settings import Settings

Values = dict[str, list[Any]]


@dataclass(frozen=True)
class Key:
    """Something to sweep over: the field that it sets, and which values it takes."""

    field: str
    kind: type[int] | type[float] | type[str]
    fits: Callable[[Any], bool]
    takes: str
    of_optimizer: bool = False


_COUNT = "whole numbers of at least 1"
KEYS: dict[str, Key] = {
    "lr": Key("learning_rate", float, lambda v: v > 0, "numbers above 0", True),
    "momentum": Key(
        "momentum", float, lambda v: 0 <= v < 1, "numbers from 0 to below 1", True
    ),
    "batch-size": Key("batch_size", int, lambda v: v >= 1, _COUNT),
    "epochs": Key("epochs", int, lambda v: v >= 1, _COUNT),
    "threads": Key("threads", int, lambda v: v >= 1, _COUNT),
    "seed": Key("seed", int, lambda v: v >= 0, "whole numbers of at least 0"),
    "precision": Key(
        "precision", str, lambda v: v in PRECISIONS, f"names {', '.join(PRECISIONS)}"
    ),
}


def parse(texts: Iterable[str]) -> Values:
    """Return the values of each key; refuse what no race can have.

    >>> parse(["lr=0.1,0.5", "batch-size=64,128"])
    {'lr': [0.1, 0.5], 'batch-size': [64, 128]}
    """
    found: Values = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        name = name.strip()
        if not sign:
            raise ValueError(
                f"--sweep {text}: write a key and its values, as in lr=0.1,0.5. "
                f"Keys: {', '.join(KEYS)}."
            )
        if name not in KEYS:
            raise ValueError(
                f"--sweep {text}: unknown key {name!r}. {closest(name, KEYS)} "
                f"A sweep goes over {', '.join(KEYS)}."
            )
        if name in found:
            raise ValueError(
                f"--sweep {name} is there twice: put all of its values into one."
            )
        found[name] = _values(name, rest)
    return found


def _values(name: str, text: str) -> list[Any]:
    words = [one.strip() for one in text.split(",") if one.strip()]
    if not words:
        raise ValueError(f"--sweep {name}: no value; {name} takes {KEYS[name].takes}.")
    return list(dict.fromkeys(_value(name, word) for word in words))


def _value(name: str, word: str) -> Any:
    key = KEYS[name]
    try:
        value: Any = key.kind(word)
    except ValueError:
        value = math.nan
    endless = isinstance(value, float) and not math.isfinite(value)
    if endless or not key.fits(value):
        raise ValueError(f"--sweep {name}: {word!r} is none of the {key.takes}.")
    return value


def points(settings: Settings) -> list[Settings]:
    """Return the settings of every point; a race without a sweep is one point.

    >>> from ganglion.race.settings import choose
    >>> swept = choose("mnist-mlp", threads=1, sweep=parse(["lr=0.1,0.5", "seed=3"]))
    >>> [(one.point, one.optimizer, one.seed) for one in points(swept)][1]
    ({'lr': 0.5, 'seed': 3}, {'learning_rate': 0.5}, 3)
    """
    combined = itertools.product(*settings.sweep.values())
    chosen = (dict(zip(settings.sweep, values, strict=True)) for values in combined)
    return [_at(settings, point) for point in chosen]


def _at(settings: Settings, point: dict[str, Any]) -> Settings:
    optimizer = {
        KEYS[name].field: value
        for name, value in point.items()
        if KEYS[name].of_optimizer
    }
    others = {
        KEYS[name].field: value
        for name, value in point.items()
        if not KEYS[name].of_optimizer
    }
    return replace(settings, sweep={}, point=point, optimizer=optimizer, **others)


def options(sweep: Values) -> list[str]:
    """Return a sweep as it is written on a command line.

    >>> options({"lr": [0.1, 0.5]})
    ['--sweep lr=0.1,0.5']
    """
    return [
        f"--sweep {name}={','.join(map(str, values))}" for name, values in sweep.items()
    ]
