"""`ganglion sweep`: an experiment over settings, seeds and folds, and its results.

An experiment is a recipe, or a script with the functions `build` and `data`. Its models
are one set; those that differ only in seeds and folds form a group, of which the mean
and the spread are reported.
"""

from __future__ import annotations

import ast
import json
import math
import re
import runpy
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config, files, recipes, tree
from ganglion.many.fitting import Interrupted, fit_many
from ganglion.many.model_set import Member, ModelSet, is_shown
from ganglion.many.progress import Progress
from ganglion.many.set_file import plain
from ganglion.many.settings import crossed, folds, grid
from ganglion.race import machine
from ganglion.race.settings import KEYS, parse_sweep, split_values
from ganglion.recipes import Recipe

FILE, FORMAT = "results.json", 1
# What a recipe can be swept over, beside seeds.
RECIPE_KEYS = {name: KEYS[name] for name in ("lr", "momentum", "batch-size", "epochs")}
_NOT_A_GROUP = ("seed", "fold", "rows", "validation_rows", "name")
MOST_SEEDS = 1_000_000
NOT_SET = {"seed": "--seeds", "fold": "--folds"}  # what has an option of its own


@dataclass(frozen=True)
class Experiment:
    """A builder, its data, and the metric that its models are judged by."""

    name: str
    title: str
    build: Callable[..., Any]
    training: tuple[Any, Any]
    testing: tuple[Any, Any] | None
    epochs: int
    arguments: dict[str, Any] = field(default_factory=dict)  # of `fit`
    score: str | None = None  # the metric that models are judged by
    published: tuple[recipes.Published, ...] = ()
    remark: str = ""


# ---- experiments and their settings --------------------------------------------------


def parse_seeds(text: str) -> list[int]:
    """Return seeds from a text of numbers and ranges.

    >>> parse_seeds("0-3,7")
    [0, 1, 2, 3, 7]
    """
    seeds: dict[int, None] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (int(n or match[1]) for n in match.groups()) if match else (1, 0)
        if first > last or last >= 2**32:
            raise ValueError(
                f"--seeds {part}: give integers from 0 to 2**32 - 1 and ranges of "
                "them, as in 0-9,17."
            )
        if last - first >= MOST_SEEDS:
            raise ValueError(
                f"--seeds {part}: {last - first + 1:,} models are too many."
            )
        seeds |= dict.fromkeys(range(first, last + 1))
    if not seeds:
        raise ValueError("--seeds: no seed; give some, as in 0-9.")
    return list(seeds)


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each argument of a script's builder.

    >>> parse_values(["units=8,16", "activation=relu,tanh"])
    {'units': [8, 16], 'activation': ['relu', 'tanh']}
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, words = split_values(text, "--set")
        if name in NOT_SET:
            raise ValueError(f"--set {text}: write {NOT_SET[name]} instead.")
        if not words or name in values:
            problem = "is there twice" if name in values else "has no value"
            raise ValueError(f"--set {text}: {name} {problem}.")
        values[name] = list(map(_literal, words))
    return values


def _literal(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def of_recipe(recipe: Recipe) -> Experiment:
    """Return a recipe as an experiment; it is judged on its test set."""

    def build(**optimizer: float) -> Any:
        return recipes.build(recipes.tuned(recipe, optimizer))

    training, testing, remark = recipes.load(recipe)
    return Experiment(
        name=recipe.name,
        title=recipe.title,
        build=build,
        training=training,
        testing=testing,
        epochs=recipe.epochs,
        arguments={
            "batch_size": recipe.batch_size,
            "shuffle": recipe.shuffle,
            "validation_batch_size": 1000,
        },
        score=f"val_{recipe.score}",
        published=recipe.published,
        remark=remark or "",
    )


def recipe_values(recipe: Recipe, texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values that a recipe is swept over, by the names of its fields."""
    values = parse_sweep(texts, "--set", RECIPE_KEYS)
    if "momentum" in values and recipe.optimizer[0] != "SGD":
        raise ValueError(
            f"--set momentum: {recipe.name} is trained by {recipe.optimizer[0]}, which "
            "has none; set lr."
        )
    return {RECIPE_KEYS[name].field: chosen for name, chosen in values.items()}


def of_script(script: Path, words: Sequence[str] = ()) -> Experiment:
    """Return a script as an experiment; `words` are the arguments in its `sys.argv`.

    It defines `build(...)`, which returns a compiled model, and `data()`, which returns
    (x, y), or ((x, y), (x_test, y_test)). It may define `fit`, a dictionary of
    arguments for `fit_many`, and `monitor`, the metric to judge by.
    """
    if not script.is_file():
        raise ValueError(f"there is no file {str(script)!r}.")
    names = _names_of(script, words)
    for name in ("build", "data"):
        if not callable(names.get(name)):
            raise ValueError(
                f"{script} defines no function `{name}`: a sweep needs `build(...)`, "
                "which returns a compiled model, and `data()`, which returns x and y."
            )
    arguments = dict(names.get("fit", {}))
    training, testing = _arrays(script, names["data"]())
    return Experiment(
        name=script.stem,
        title=(names.get("__doc__") or "").strip().partition("\n")[0],
        build=names["build"],
        training=training,
        testing=testing,
        epochs=int(arguments.pop("epochs", 1)),
        arguments=arguments,
        score=names.get("monitor"),
    )


def _names_of(script: Path, words: Sequence[str]) -> dict[str, Any]:
    """Run a script, with its own arguments and with its folder on the path."""
    sys.argv = [str(script), *words]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        return runpy.run_path(str(script), run_name="ganglion_sweep")
    except SystemExit as end:
        if end.code:
            raise
        raise ValueError(
            f"{script} ends by itself, before a sweep can call its `build`: put what "
            "follows its functions under `if __name__ == '__main__':`."
        ) from None


def _arrays(script: Path, data: Any) -> tuple[tuple[Any, Any], tuple[Any, Any] | None]:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(
            f"`data()` of {script} must return (x, y), or ((x, y), (x_test, y_test))."
        )
    first, second = data
    if all(isinstance(part, (tuple, list)) and len(part) == 2 for part in data):
        return tuple(first), tuple(second)
    return (first, second), None


# ---- running it ----------------------------------------------------------------------


def settings_of(
    experiment: Experiment,
    values: dict[str, list[Any]],
    seeds: Sequence[int],
    fold_count: int | None,
) -> list[dict[str, Any]]:
    """Return the settings of all models, those of a group side by side."""
    groups: list[Any] = [grid(**values)]
    if fold_count is not None:
        leaves = tree.flatten(experiment.training[0])
        rows = len(next(leaf for leaf in leaves if leaf is not None))
        groups.append(folds(rows, fold_count, seed=0))
    return crossed(*groups, grid(seed=list(seeds)))


def run(
    experiment: Experiment,
    settings: list[dict[str, Any]],
    *,
    epochs: int | None = None,
    threads: int | None = None,
    save: Path | None = None,
    on: str | None = None,
    progress: Progress | None = None,
    command: str = "",
) -> tuple[Results, bool]:
    """Train all models; return the results, and whether all of them finished."""
    arguments = dict(experiment.arguments)
    if any("fold" in setting for setting in settings):
        arguments["validation_data"] = None
    elif experiment.testing is not None:
        arguments["validation_data"] = experiment.testing
    chosen: dict[str, Any] = {"epochs": epochs or experiment.epochs, "threads": threads}
    chosen |= {"resume": save, "on": on}
    arguments |= {name: value for name, value in chosen.items() if value is not None}
    began, started = time.perf_counter(), datetime.now().astimezone()
    try:
        trained = fit_many(
            experiment.build,
            settings,
            *experiment.training,
            progress=progress or Progress(0),
            **arguments,
        )
    except Interrupted as stopped:
        trained = stopped.finished
    if not trained:
        raise KeyboardInterrupt
    score, remark = score_of(experiment, trained)
    results = Results(
        name=experiment.name,
        title=experiment.title,
        score=score,
        larger_is_better=grows(trained, score),
        epochs=epochs or experiment.epochs,
        total=len(settings),
        threads=threads or config.threads(),
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - began, 3),
        command=command,
        machine=machine.facts(),
        published=[asdict(figure) for figure in experiment.published],
        remark=" ".join(filter(None, (experiment.remark, remark))),
        models=[model_record(member) for member in trained],
    )
    return results, len(trained) == len(settings)


def grows(trained: ModelSet, score: str) -> bool:
    """Return whether a larger score is better."""
    try:
        return trained.larger_is_better(score)
    except ValueError:  # an unknown metric: what should shrink is usually a loss
        return True


def score_of(experiment: Experiment, trained: ModelSet) -> tuple[str, str]:
    """Return the metric that models are judged by, and a note on it."""
    default, wanted = default_score(trained), experiment.score
    known = trained[0].history.history
    name = held_out(wanted, known)
    if name is not None or wanted is None:
        return name or default, ""
    return default, (
        f"There is no metric {wanted!r}, the script's `monitor`: models are judged by "
        f"{default!r}. {config.closest(wanted, known)}"
    )


def held_out(score: str | None, known: Collection[str]) -> str | None:
    """Return the name of a metric on data that is held out, if any is.

    >>> held_out("mae", ["mae", "val_mae"]), held_out("val_mae", ["mae"])
    ('val_mae', 'mae')
    """
    name = (score or "").removeprefix("val_")
    return next((each for each in (f"val_{name}", name) if each in known), None)


def default_score(trained: ModelSet) -> str:
    """Return the metric that models are judged by if the experiment names none."""
    known = list(trained[0].history.history)
    names = ("val_accuracy", "val_loss", "accuracy", "loss", *known)
    return next((name for name in names if name in known), "loss")


def model_record(member: Member) -> dict[str, Any]:
    """Return a model as plain data."""
    shown = {k: v for k, v in member.setting.items() if is_shown(k, v)}
    setting = {name: plain(value) for name, value in shown.items()}
    return {
        "index": member.index,
        "setting": {k: v for k, v in setting.items() if k not in _NOT_A_GROUP},
        "seed": member.seed,
        "fold": setting.get("fold"),
        "seconds": round(member.seconds, 3),
        "message": member.message,
        "history": {k: _numbers(v) for k, v in member.history.history.items()},
    }


def _numbers(values: Sequence[Any]) -> list[float | None]:
    """Return values for JSON, which has neither NaN nor infinities: null for these."""
    return [float(v) if np.ndim(v) == 0 and math.isfinite(v) else None for v in values]


# ---- results -------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """The results of a sweep, as plain data."""

    name: str
    title: str
    score: str
    larger_is_better: bool
    epochs: int
    total: int
    threads: int
    started: str
    seconds: float
    command: str
    machine: dict[str, str]
    published: list[dict[str, Any]]
    remark: str
    models: list[dict[str, Any]]

    @property
    def groups(self) -> list[Group]:
        """The models by their settings, whatever their seeds and folds."""
        return groups_of(self.models, self.score, self.larger_is_better)

    def save(self, folder: Path) -> Path:
        """Write `results.json` into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        data = {"format": FORMAT, **asdict(self)}
        data["groups"] = [group.row() for group in self.groups]
        text = json.dumps(data, indent=1, allow_nan=False)
        return files.write_file(folder / FILE, text.encode())


def groups_of(
    models: Sequence[dict[str, Any]], score: str, larger_is_better: bool
) -> list[Group]:
    """Return models by their settings, whatever their seeds and folds."""
    by_setting: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        by_setting.setdefault(_words(model["setting"]), []).append(model)
    return [
        Group(words, own, score, larger_is_better) for words, own in by_setting.items()
    ]


def _words(setting: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items())


@dataclass(frozen=True)
class Group:
    """Models that differ only in their seeds and folds."""

    words: str
    models: list[dict[str, Any]]
    score: str
    larger_is_better: bool

    @property
    def label(self) -> str:
        """The settings in words, "all" if they are those of the experiment."""
        return self.words or "all"

    def curve(self, model: dict[str, Any]) -> list[float | None]:
        """Return the score of a model after every epoch."""
        return list(model["history"].get(self.score, []))

    @property
    def scores(self) -> list[float]:
        """The last scores of the models that have one."""
        ends = [curve[-1] for curve in map(self.curve, self.models) if curve]
        return [score for score in ends if score is not None]

    @property
    def mean(self) -> float | None:
        """The average of the last scores."""
        return float(np.mean(self.scores)) if self.scores else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation of the last scores."""
        return float(np.std(self.scores, ddof=1)) if len(self.scores) > 1 else None

    @property
    def best(self) -> float | None:
        """The best of the last scores."""
        choose = max if self.larger_is_better else min
        return choose(self.scores, default=None)

    @property
    def worst(self) -> float | None:
        """The worst of the last scores."""
        choose = min if self.larger_is_better else max
        return choose(self.scores, default=None)

    @property
    def failed(self) -> int:
        """How many models ended without a finite score."""
        return len(self.models) - len(self.scores)

    def row(self) -> dict[str, Any]:
        """Return the figures of the group as plain data."""
        return {
            "setting": self.models[0]["setting"],
            "models": len(self.models),
            "failed": self.failed,
            "mean": self.mean,
            "deviation": self.deviation,
            "best": self.best,
            "worst": self.worst,
        }
