"""The settings of a set of models: what each is built from, and trained on.

A setting is a dictionary. A name that the builder takes goes to the builder; one that
`fit` takes goes to `fit`; these few are for the set itself.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ganglion.callbacks import History
from ganglion.config import closest
from ganglion.many.model_set import Member, is_shown
from ganglion.training import fit_loop
from ganglion.variables import draw_seed

Setting = Mapping[str, Any]

# For the set itself, not for the builder or `fit`.
OWN = {
    "name": "what the model is called in results",
    "seed": "of all its random numbers: weights, order, dropout",
    "rows": "which rows it is trained on: indices, in any order and number, or a mask",
    "validation_rows": "which rows it is validated on",
    "target": "which column of `y` it learns: a number, or a list of numbers",
    "fold": "a number of a fold, for the table of results",
}
# Arguments of `fit` that may differ from model to model.
OF_FIT = (
    "batch_size", "epochs", "class_weight", "sample_weight", "shuffle",
    "initial_epoch", "steps_per_epoch", "validation_split", "validation_batch_size",
    "validation_steps", "validation_freq",
)  # fmt: skip


@dataclass(frozen=True)
class ModelPlan:
    """How a model of a set is built and trained."""

    index: int
    name: str
    setting: dict[str, Any]  # as it was given
    seed: int | None  # None for a model that exists already
    count: int = 1  # of models in the set
    for_builder: dict[str, Any] = field(default_factory=dict)
    for_fit: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def has_data_of_all(self) -> bool:
        """Whether `fit` gets the data and the arguments of the whole set."""
        of_data = ("rows", "validation_rows", "target")
        return not self.for_fit and not any(name in self.own for name in of_data)

    def __str__(self) -> str:
        shown = {k: v for k, v in self.setting.items() if is_shown(k, v)}
        text = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"model {self.index} ({text or self.name})"

    def member(self, model: Any, history: History, seconds: float) -> Member:
        """Return the model of this plan, trained."""
        return Member(
            self.index, self.name, self.setting, self.seed, model, history, seconds
        )


def plans_for(
    build: Callable[..., Any] | None,
    settings: Sequence[Setting],
    seeds: Sequence[int] | None = None,
) -> list[ModelPlan]:
    """Return a plan for every setting; refuse names that nothing takes.

    Args:
        build: The builder; None for models that exist already.
        settings: A dictionary for each model.
        seeds: Seeds for the settings that have none; drawn by default.
    """
    if not settings:
        raise ValueError(
            "There are no settings, so there is no model to train: give a list with a "
            "dictionary for each, such as [{'seed': 0}, {'seed': 1}]."
        )
    names = _names(settings)
    takes = _taken_by(build) if build is not None else {}
    plans = []
    for index, setting in enumerate(settings):
        for_builder, for_fit, own = _divided(index, setting, build, takes)
        seed = None
        if build is not None:
            default = draw_seed() if seeds is None else seeds[index]
            seed = _checked_seed(index, own.get("seed", default))
        if "seed" in takes and "seed" in setting:
            for_builder["seed"] = setting["seed"]
        _check_missing(index, for_builder, takes)
        if "epochs" in for_fit:
            fit_loop.check_epochs(for_fit["epochs"], for_fit.get("initial_epoch", 0))
        plans.append(
            ModelPlan(
                index,
                names[index],
                dict(setting),
                seed,
                len(settings),
                for_builder,
                for_fit,
                own,
            )
        )
    return plans


def _divided(
    index: int,
    setting: Any,
    build: Callable[..., Any] | None,
    takes: Mapping[str, inspect.Parameter],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the arguments of the builder, of `fit`, and those for the set itself."""
    if not isinstance(setting, Mapping):
        raise TypeError(
            f"Setting {index} is {setting!r:.60}, not a dictionary of names and values."
        )
    if build is None and "seed" in setting:
        raise ValueError(
            f"Setting {index} has a `seed`, but its model is built already: give "
            "`fit_many` a function that builds it instead."
        )
    takes_any = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    for_builder, for_fit, own = {}, {}, {}
    for name, value in setting.items():
        if name in OWN:
            own[name] = value
        elif name in takes or (takes_any and name not in OF_FIT):
            for_builder[name] = value
        elif name in OF_FIT:
            for_fit[name] = value
        else:
            known = [n for n, p in takes.items() if p.kind is not p.VAR_KEYWORD]
            function = "The builder" if build is not None else "`fit`"
            raise ValueError(
                f"Setting {index} has {name!r}, which nothing takes. {function} does "
                f"not have such an argument. {closest(name, (*known, *OF_FIT, *OWN))}"
            )
    return for_builder, for_fit, own


def _taken_by(build: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        parameters = inspect.signature(build).parameters
    except ValueError:  # some built-in functions have no signature
        parameters = inspect.signature(lambda **kwargs: None).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY)
    }


def _check_missing(
    index: int, for_builder: dict[str, Any], takes: Mapping[str, inspect.Parameter]
) -> None:
    missing = [
        name
        for name, parameter in takes.items()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_KEYWORD
        and name not in for_builder
    ]
    if missing:
        raise ValueError(
            f"Setting {index} lacks {', '.join(missing)}, which the builder needs."
        )


def _checked_seed(index: int, seed: Any) -> int:
    is_whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not is_whole or not 0 <= seed < 2**32:
        raise ValueError(
            f"The seed of setting {index} must be an integer from 0 to 2**32 - 1, "
            f"got {seed!r}."
        )
    return int(seed)


def _names(settings: Sequence[Setting]) -> list[str]:
    """Return the names of the models; refuse a name that occurs twice."""
    width = len(str(len(settings) - 1))
    names: dict[str, int] = {}
    for index, setting in enumerate(settings):
        own = setting.get("name") if isinstance(setting, Mapping) else None
        name = str(own) if own is not None else f"{index:0{width}d}"
        if name in names:
            raise ValueError(
                f"Settings {names[name]} and {index} have the same name, {name!r}: "
                "names tell the models of a set apart."
            )
        names[name] = index
    return list(names)


# ---- making settings -----------------------------------------------------------------


def grid(**values: Any) -> list[dict[str, Any]]:
    """Return a setting for every combination of values.

    Args:
        **values: The values of each name: a list, a range, or a single one.

    >>> grid(rate=[0.1, 0.01], seed=range(2), units=8)[1]
    {'rate': 0.1, 'seed': 1, 'units': 8}
    """
    columns = [_listed(value) for value in values.values()]
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*columns)]


def _listed(value: Any) -> list[Any]:
    is_single = isinstance(value, (str, bytes, Mapping)) or not isinstance(
        value, Iterable
    )
    return [value] if is_single else list(value)


def folds(rows: int, count: int, seed: int | None = None) -> list[dict[str, Any]]:
    """Return settings for cross-validation: each fold is left out once.

    Args:
        rows: How many rows the data has.
        count: How many folds.
        seed: To shuffle the rows first; without it, folds are in order.

    >>> [len(setting["rows"]) for setting in folds(10, 3)]
    [6, 7, 7]
    """
    if not 2 <= count <= rows:
        raise ValueError(
            f"There must be at least 2 folds and at most as many as rows ({rows}), got "
            f"{count}."
        )
    order = np.arange(rows)
    if seed is not None:
        order = np.random.default_rng(seed).permutation(rows)
    parts = np.array_split(order, count)
    return [
        {
            "fold": number,
            "rows": np.concatenate(parts[:number] + parts[number + 1 :]),
            "validation_rows": part,
        }
        for number, part in enumerate(parts)
    ]


def crossed(*groups: Sequence[Setting]) -> list[dict[str, Any]]:
    """Return every combination of settings, with a setting of each group.

    >>> crossed(grid(seed=[0, 1]), [{"name": "a"}])
    [{'seed': 0, 'name': 'a'}, {'seed': 1, 'name': 'a'}]
    """
    combined = []
    for parts in itertools.product(*groups):
        merged: dict[str, Any] = {}
        for part in parts:
            merged.update(part)
        combined.append(merged)
    return combined
