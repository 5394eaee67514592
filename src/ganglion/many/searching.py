"""`search`: the best settings of a model, by a grid, at random, or by Optuna.

Trials are drawn in batches, and the models of a batch are trained at once. Optuna, an
optional dependency, may choose the trials; its pruners end them after an epoch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ganglion import config
from ganglion.callbacks import Callback
from ganglion.many.callbacks import callbacks_for
from ganglion.many.fitting import fit_many
from ganglion.many.model_set import Member, ModelSet, larger_is_better

LARGEST_GRID = 1_000_000


# ---- the space -----------------------------------------------------------------------


@dataclass(frozen=True)
class Uniform:
    """Numbers from `low` to `high`, in steps; with `log`, spread evenly by ratio."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"A range from {self.low} to {self.high} is empty.")
        if self.log and self.low <= 0:
            raise ValueError(f"A logarithmic range begins above 0, not at {self.low}.")

    @property
    def is_whole(self) -> bool:
        """Whether these are whole numbers."""
        ends = (self.low, self.high, 1 if self.step is None else self.step)
        return self.step is not None and all(isinstance(end, int) for end in ends)

    def chosen_by(self, trial: Any, name: str) -> Any:
        """Return the number that a trial chooses."""
        if self.is_whole:
            step = 1 if self.log else int(self.step or 1)
            return trial.suggest_int(
                name, int(self.low), int(self.high), step=step, log=self.log
            )
        between = None if self.log else self.step
        return trial.suggest_float(
            name, self.low, self.high, step=between, log=self.log
        )


def uniform(low: float, high: float, log: bool = False) -> Uniform:
    """Return a range of numbers to search; with `log`, of learning rates, say."""
    return Uniform(float(low), float(high), None, log)


def integer(low: int, high: int, step: int = 1, log: bool = False) -> Uniform:
    """Return a range of whole numbers to search, both ends included."""
    return Uniform(int(low), int(high), int(step), log)


def _chosen(space: Mapping[str, Any], trial: Any) -> dict[str, Any]:
    return {
        name: values.chosen_by(trial, name)
        if isinstance(values, Uniform)
        else trial.suggest_categorical(name, list(values))
        for name, values in space.items()
    }


def _check_space(space: Mapping[str, Any]) -> None:
    if not space:
        raise ValueError("The space is empty: there is nothing to search.")
    for name, values in space.items():
        is_list = isinstance(values, (list, tuple, range)) and len(values) > 0
        if not is_list and not isinstance(values, Uniform):
            raise TypeError(
                f"The space of {name!r} is {values!r:.60}: give a list of values, "
                "many.uniform(low, high) or many.integer(low, high)."
            )


# ---- trials --------------------------------------------------------------------------


class RandomTrial:
    """A trial that draws its values; it has the methods of Optuna's trials."""

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.params: dict[str, Any] = {}
        self._draws = np.random.default_rng([seed, number])

    def _kept(self, name: str, value: Any) -> Any:
        return self.params.setdefault(name, value)

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
    ) -> float:
        """Draw a number."""
        if log:
            drawn = math.exp(self._draws.uniform(math.log(low), math.log(high)))
            return float(self._kept(name, min(max(drawn, low), high)))
        if step is not None:
            count = int((high - low) / step + 1e-9)
            return float(self._kept(name, low + step * self._draws.integers(count + 1)))
        return float(self._kept(name, self._draws.uniform(low, high)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Draw a whole number."""
        if log:
            ends = math.log(low - 0.5), math.log(high + 0.5)
            drawn = round(math.exp(self._draws.uniform(*ends)))
            return int(self._kept(name, min(max(drawn, low), high)))
        count = (high - low) // step
        return int(self._kept(name, low + step * int(self._draws.integers(count + 1))))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Draw one of some values."""
        return self._kept(name, choices[int(self._draws.integers(len(choices)))])


class GridTrial(RandomTrial):
    """A trial at one point of a grid."""

    def __init__(self, number: int, point: Mapping[str, Any]) -> None:
        super().__init__(number, 0)
        self.params = dict(point)


class HyperParameters:
    """The `hp` that KerasTuner passes to builders: `hp.Int`, `hp.Choice`.

    >>> hp = HyperParameters(RandomTrial(0, seed=0))
    >>> 8 <= hp.Int("units", 8, 64, step=8) <= 64, hp.Fixed("epochs", 3)
    (True, 3)
    """

    def __init__(self, trial: Any) -> None:
        self._trial = trial
        self._fixed: dict[str, Any] = {}

    @property
    def values(self) -> dict[str, Any]:
        """The values by name."""
        return {**self._trial.params, **self._fixed}

    def get(self, name: str) -> Any:
        """Return a value that was chosen before."""
        return self.values[name]

    def Int(  # noqa: N802 (KerasTuner's name)
        self,
        name: str,
        min_value: int,
        max_value: int,
        step: int | None = None,
        sampling: str = "linear",
        default: int | None = None,
        **kwargs: Any,
    ) -> int:
        """Choose a whole number."""
        log = sampling != "linear"
        step = 1 if step is None or log else step
        return int(
            self._trial.suggest_int(name, min_value, max_value, step=step, log=log)
        )

    def Float(  # noqa: N802
        self,
        name: str,
        min_value: float,
        max_value: float,
        step: float | None = None,
        sampling: str = "linear",
        default: float | None = None,
        **kwargs: Any,
    ) -> float:
        """Choose a number."""
        log = sampling != "linear"
        step = None if log else step
        return float(
            self._trial.suggest_float(name, min_value, max_value, step=step, log=log)
        )

    def Choice(  # noqa: N802
        self, name: str, values: Sequence[Any], ordered: Any = None, **kwargs: Any
    ) -> Any:
        """Choose one of some values."""
        return self._trial.suggest_categorical(name, list(values))

    def Boolean(self, name: str, default: bool = False, **kwargs: Any) -> bool:  # noqa: N802
        """Choose yes or no."""
        return bool(self._trial.suggest_categorical(name, [False, True]))

    def Fixed(self, name: str, value: Any, **kwargs: Any) -> Any:  # noqa: N802
        """Keep a value under a name."""
        return self._fixed.setdefault(name, value)


# ---- choosing trials -----------------------------------------------------------------


class _Chooser:
    """Returns trials and receives their results; at random, or along a grid."""

    study: Any = None

    def __init__(self, trials: list[Any]) -> None:
        self._trials = trials

    def ask(self, count: int) -> list[Any]:
        """Return the next trials; fewer, then none, at the end."""
        asked, self._trials = self._trials[:count], self._trials[count:]
        return asked

    def tell(self, trial: Any, value: float | None, was_pruned: bool) -> None:
        """Receive the result of a trial."""

    def should_prune(self, trial: Any, value: float, epoch: int) -> bool:
        """Return whether a trial is not worth another epoch."""
        return False


class _OptunaChooser(_Chooser):
    def __init__(self, study: Any, trials: int) -> None:
        self.study, self._left = study, trials

    def ask(self, count: int) -> list[Any]:
        count = min(count, self._left)
        self._left -= count
        return [self.study.ask() for _ in range(count)]

    def tell(self, trial: Any, value: float | None, was_pruned: bool) -> None:
        from optuna.trial import TrialState

        if value is None:
            self.study.tell(trial, state=TrialState.FAIL)
        elif was_pruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, value)

    def should_prune(self, trial: Any, value: float, epoch: int) -> bool:
        trial.report(value, epoch)
        return bool(trial.should_prune())


def _chooser(
    sampler: Any,
    space: Mapping[str, Any] | None,
    trials: int | None,
    seed: int,
    study: dict[str, Any],
) -> _Chooser:
    if sampler == "grid":
        return _Chooser(_grid_trials(space, trials))
    if sampler in (None, "random"):
        if any(study[name] is not None for name in ("pruner", "storage", "study_name")):
            raise ValueError(
                "`pruner`, `storage` and `study_name` are Optuna's: pass "
                "sampler='optuna', or one of its samplers."
            )
        return _Chooser([RandomTrial(n, seed) for n in range(trials or 20)])
    if isinstance(sampler, str) and sampler != "optuna":
        raise ValueError(
            f"Unknown sampler {sampler!r}. "
            f"{config.closest(sampler, ('grid', 'random', 'optuna'))}"
        )
    try:
        import optuna
    except ImportError:
        raise ImportError(
            "This search needs Optuna (pip install optuna); sampler='random' and "
            "sampler='grid' do not."
        ) from None
    if sampler == "optuna":
        sampler = optuna.samplers.TPESampler(seed=seed)
    new_study = optuna.create_study(sampler=sampler, load_if_exists=True, **study)
    return _OptunaChooser(new_study, trials or 20)


def _grid_trials(space: Mapping[str, Any] | None, trials: int | None) -> list[Any]:
    if space is None or any(isinstance(v, Uniform) for v in space.values()):
        raise ValueError(
            "A grid needs a space of lists: the ranges of many.uniform and of `hp` "
            "have no points to list. Use sampler='random'."
        )
    if math.prod(map(len, space.values())) > LARGEST_GRID:
        raise ValueError("The grid has more than a million points: search at random.")
    points = itertools.product(*space.values())
    all_trials = [
        GridTrial(number, dict(zip(space, point, strict=True)))
        for number, point in enumerate(points)
    ]
    return all_trials[:trials]


# ---- the search ----------------------------------------------------------------------


@dataclass
class SearchResult:
    """The result of a search: its trials in order, and their models.

    >>> SearchResult("val_loss", larger_is_better=False).trials
    []
    """

    monitor: str
    larger_is_better: bool
    study: Any = None
    trials: list[dict[str, Any]] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)

    @property
    def models(self) -> ModelSet:
        """The models of all trials, including those that were pruned."""
        return ModelSet(self.members)

    @property
    def best_trial(self) -> dict[str, Any]:
        """The trial with the best final value."""
        ended = [t for t in self.trials if t["state"] == "complete"]
        if not ended:
            raise ValueError("No trial finished with a number.")
        choose = max if self.larger_is_better else min
        return choose(ended, key=lambda trial: trial["value"])

    @property
    def best_params(self) -> dict[str, Any]:
        """The values of the best trial."""
        return dict(self.best_trial["params"])

    @property
    def best_model(self) -> Any:
        """The model of the best trial."""
        return self.members[self.trials.index(self.best_trial)].model


class _Pruner(Callback):
    """Reports a trial's value after each epoch, and stops it if it is pruned."""

    def __init__(self, chooser: _Chooser, trial: Any, monitor: str) -> None:
        super().__init__()
        self._chooser, self._trial, self._monitor = chooser, trial, monitor
        self.has_pruned = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        value = (logs or {}).get(self._monitor)
        if value is None or not math.isfinite(value):
            return
        if self._chooser.should_prune(self._trial, float(value), epoch):
            self.has_pruned = True
            self.model.stop_training = True


def search(
    build: Callable[..., Any],
    space: Mapping[str, Any] | None,
    x: Any,
    y: Any = None,
    *,
    trials: int | None = None,
    sampler: Any = None,
    pruner: Any = None,
    batch: int | None = None,
    monitor: str | None = None,
    mode: str = "auto",
    seed: int = 0,
    storage: Any = None,
    study_name: str | None = None,
    **arguments: Any,
) -> SearchResult:
    """Search for the best settings of a model; a batch of trials is trained at once.

    Args:
        build: A function of the values in `space` that returns a compiled model; with
            `space=None`, one of `hp`, as KerasTuner has them.
        space: A list of values for each name, or `many.uniform`, `many.integer`.
        x: Inputs.
        y: Targets.
        trials: How many; 20, or the whole grid, by default.
        sampler: "random", "grid", "optuna", or a sampler of Optuna.
        pruner: A pruner of Optuna.
        batch: How many trials are trained at once; four for each thread by default.
        monitor: The metric to judge by; the loss of validation if there is one.
        mode: Whether the smallest ("min") or the largest ("max") value is best; "auto"
            goes by the name of the metric.
        seed: The seed of the choices; trial n trains its model with `seed + n`.
        storage: Where Optuna keeps its results, for its dashboard.
        study_name: The name of the study there; an existing one is continued.
        **arguments: Other arguments of `fit_many`.

    >>> import numpy as np, ganglion as keras
    >>> def build(rate):
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     model.compile(keras.optimizers.SGD(rate), "mse")
    ...     return model
    >>> found = search(build, {"rate": [0.1, 0.0]}, np.eye(2), np.ones((2, 1)),
    ...     sampler="grid", epochs=5, verbose=0)
    >>> found.best_params
    {'rate': 0.1}
    """
    if arguments.get("on") is not None:
        raise ValueError(
            "`search` trains on this machine: after each epoch of a trial it decides "
            "whether the trial goes on, by the results of the others. `fit_many` "
            "takes `on`."
        )
    if mode not in ("auto", "min", "max"):
        raise ValueError(f"`mode` must be 'auto', 'min' or 'max', not {mode!r}.")
    if space is not None:
        _check_space(space)
    has_validation = any(
        arguments.get(name) is not None and arguments.get(name) != 0.0
        for name in ("validation_data", "validation_split")
    )
    monitor = monitor or ("val_loss" if has_validation else "loss")
    is_growing = larger_is_better(monitor, mode)
    direction = "maximize" if is_growing else "minimize"
    study = {"pruner": pruner, "storage": storage, "study_name": study_name}
    chooser = _chooser(sampler, space, trials, seed, study | {"direction": direction})
    result = SearchResult(monitor, is_growing, chooser.study)
    size = batch or 4 * config.threads()
    while asked := chooser.ask(size):
        _run_batch(asked, chooser, result, build, space, seed, (x, y), arguments)
    return result


def _run_batch(
    batch: list[Any],
    chooser: _Chooser,
    result: SearchResult,
    build: Callable[..., Any],
    space: Mapping[str, Any] | None,
    seed: int,
    data: tuple[Any, Any],
    arguments: dict[str, Any],
) -> None:
    def built(trial: int) -> Any:
        if space is None:
            return build(HyperParameters(batch[trial]))
        return build(**_chosen(space, batch[trial]))

    pruners = [_Pruner(chooser, trial, result.monitor) for trial in batch]
    own_callbacks = arguments.get("callbacks")

    def callbacks(index: int) -> list[Any]:
        own = callbacks_for(own_callbacks, batch[index].number, True)
        return [*own, pruners[index]]

    settings = [
        {"trial": n, "seed": (seed + trial.number) % 2**32, "name": str(trial.number)}
        for n, trial in enumerate(batch)
    ]
    rest = {name: value for name, value in arguments.items() if name != "callbacks"}
    trained = fit_many(built, settings, *data, callbacks=callbacks, **rest)
    for trial, pruner, member in zip(batch, pruners, trained, strict=True):
        _tell(chooser, result, trial, pruner, member)


def _tell(
    chooser: _Chooser, result: SearchResult, trial: Any, pruner: _Pruner, member: Member
) -> None:
    if result.monitor not in member.history.history:
        known = ", ".join(map(repr, member.history.history))
        raise ValueError(f"There is no metric {result.monitor!r}; there are: {known}.")
    value = float(member.logs[result.monitor])
    is_number = math.isfinite(value) and member.message is None
    chooser.tell(trial, value if is_number else None, pruner.has_pruned)
    state = "pruned" if pruner.has_pruned else "complete"
    result.trials.append(
        {
            "number": trial.number,
            "params": dict(trial.params),
            "value": value,
            "epochs": len(member.history.epoch),
            "state": state if is_number else "failed",
        }
    )
    result.members.append(member)
