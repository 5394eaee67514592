"""`search`: the best settings of a model, by a grid, at random, or by Optuna.

Trials are drawn in batches, and the models of a batch are trained at once. Optuna, an
optional dependency, may choose the trials; its pruners end them after an epoch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ganglion import config
from ganglion.callbacks import Callback
from ganglion.many.callbacks import OfTrials
from ganglion.many.fitting import Interrupted, fit_many
from ganglion.many.model_set import Member, ModelSet, larger_is_better
from ganglion.many.spaces import (
    GridTrial,
    HyperParameters,
    RandomTrial,
    Uniform,
    check_space,
    chosen,
)
from ganglion.training.data_adapters import count

LARGEST_GRID = 1_000_000
TRIALS = 20  # by default


# ---- choosing trials -----------------------------------------------------------------


class _Chooser:
    """Returns trials and receives their results; at random, or along a grid."""

    study: Any = None

    def __init__(self, trials: list[Any]) -> None:
        self._trials, self.total = trials, len(trials)

    def ask(self, count: int) -> list[Any]:
        """Return the next trials; fewer, then none, at the end."""
        batch, self._trials = self._trials[:count], self._trials[count:]
        return batch

    def tell(self, trial: Any, value: float | None, was_pruned: bool) -> None:
        """Receive the result of a trial."""

    def should_prune(self, trial: Any, value: float, epoch: int) -> bool:
        """Return whether a trial is not worth another epoch."""
        return False


class _OptunaChooser(_Chooser):
    def __init__(self, study: Any, trials: int) -> None:
        self.study, self._left, self.total = study, trials, trials

    def ask(self, count: int) -> list[Any]:
        count = min(count, self._left)
        self._left -= count
        return [self.study.ask() for _ in range(count)]

    def tell(self, trial: Any, value: float | None, was_pruned: bool) -> None:
        from optuna.trial import TrialState

        state = TrialState.COMPLETE
        if value is None:
            state = TrialState.FAIL
        elif was_pruned:
            state = TrialState.PRUNED
        values = value if state is TrialState.COMPLETE else None
        try:
            self.study.tell(trial, values, state)
        except RuntimeError as error:
            if "Study.stop" not in str(error):
                raise
            # The trial is reported; its sampler, of a grid for example, has no more.
            self._left = 0

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
        return _Chooser([RandomTrial(n, seed) for n in range(trials or TRIALS)])
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
    for name, part, method in (
        ("sampler", sampler, "sample_relative"), ("pruner", study["pruner"], "prune")
    ):  # fmt: skip
        if part is not None and not hasattr(part, method):
            raise TypeError(
                f"`{name}` must be a {name} of Optuna, an object of a class in "
                f"optuna.{name}s, not {part!r:.60}."
            )
    new_study = optuna.create_study(sampler=sampler, load_if_exists=True, **study)
    directions = [direction.name.lower() for direction in new_study.directions]
    if directions != [study["direction"]]:
        raise ValueError(
            f"The study {study['study_name']!r} is there already, to "
            f"{' and '.join(directions)}; this search would {study['direction']}. "
            "Choose another `study_name`, or `monitor` and `mode` as they were."
        )
    return _OptunaChooser(new_study, trials or TRIALS)


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
        space: A list of values for each name, or `many.uniform`, `many.integer`. As in
            settings, names that the builder does not take may be those of `fit`.
        x: Inputs.
        y: Targets.
        trials: How many; 20, or the whole grid, by default. A study that is continued
            has as many more.
        sampler: "random", "grid", "optuna", or a sampler of Optuna.
        pruner: A pruner of Optuna.
        batch: How many trials are trained at once; four for each thread by default.
        monitor: The metric to judge by; the loss of validation if there is one.
        mode: Whether the smallest ("min") or the largest ("max") value is best; "auto"
            goes by the name of the metric.
        seed: The seed of the choices; trial n trains its model with `seed + n`.
        storage: Where Optuna keeps its results, for its dashboard.
        study_name: The name of the study there; an existing one is continued.
        **arguments: Other arguments of `fit_many`. With `resume`, all trials are one
            batch, at random or of a grid. Callbacks know the number of their trial as
            `model_index`.

    Ctrl-C raises `Interrupted`, whose `finished` has the models of finished trials.

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
    trials, batch = count(trials, "trials"), count(batch, "batch")
    if space is not None:
        check_space(space)
    elif not callable(build) and hasattr(build, "build"):
        build = build.build  # a HyperModel of KerasTuner
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
    if arguments.get("resume") is not None:
        if chooser.study is not None:
            raise ValueError(
                "`resume` is for trials that are known beforehand: of a grid, or at "
                "random. With Optuna, `storage` and `study_name` keep the results, and "
                "the same call goes on with more trials."
            )
        size = chooser.total
    while drawn := chooser.ask(size):
        _Batch(drawn, chooser, result, seed).run(build, space, (x, y), arguments)
    return result


class _Batch:
    """Some trials, which are trained at once."""

    def __init__(
        self, trials: list[Any], chooser: _Chooser, result: SearchResult, seed: int
    ) -> None:
        self._trials, self._chooser, self._result = trials, chooser, result
        self._pruners = [_Pruner(chooser, trial, result.monitor) for trial in trials]
        self._own = [
            {"seed": (seed + trial.number) % 2**32, "name": str(trial.number)}
            for trial in trials
        ]

    def run(
        self,
        build: Callable[..., Any],
        space: Mapping[str, Any] | None,
        data: tuple[Any, Any],
        arguments: dict[str, Any],
    ) -> None:
        """Train the trials, and report their results; also of a part, after Ctrl-C."""
        numbers = [trial.number for trial in self._trials]
        callbacks = OfTrials(arguments.get("callbacks"), numbers, self._pruners)
        rest = {name: value for name, value in arguments.items() if name != "callbacks"}

        def tuned(trial: int) -> Any:
            return build(HyperParameters(self._trials[trial]))

        if space is None:
            settings = [{"trial": n, **own} for n, own in enumerate(self._own)]
        else:
            settings = [
                {**own, **chosen(space, trial)}
                for own, trial in zip(self._own, self._trials, strict=True)
            ]
        function = tuned if space is None else build
        trained: Sequence[Member] = ()
        try:
            trained = fit_many(function, settings, *data, callbacks=callbacks, **rest)
        except Interrupted as stopped:
            trained = stopped.finished
        finally:
            self._tell(trained)
        if len(trained) < len(self._trials):
            raise self._interrupted(rest)

    def _tell(self, trained: Sequence[Member]) -> None:
        """Report the results of some trials, and that the others have none."""
        ended = {member.index: member for member in trained}
        for index, trial in enumerate(self._trials):
            if index in ended:
                self._tell_of(trial, self._pruners[index].has_pruned, ended[index])
            else:
                self._chooser.tell(trial, None, False)

    def _tell_of(self, trial: Any, has_pruned: bool, member: Member) -> None:
        result = self._result
        if result.monitor not in member.history.history:
            known = ", ".join(map(repr, member.history.history))
            raise ValueError(
                f"There is no metric {result.monitor!r}; there are: {known}."
            )
        value = float(member.logs[result.monitor])
        is_number = math.isfinite(value) and member.message is None
        self._chooser.tell(trial, value if is_number else None, has_pruned)
        state = "pruned" if has_pruned else "complete"
        result.trials.append(
            {
                "number": trial.number,
                "params": dict(trial.params),
                "value": value,
                "epochs": len(member.history.epoch),
                "state": state if is_number else "failed",
            }
        )
        setting = {k: v for k, v in member.setting.items() if k != "trial"}
        setting = {**trial.params, **setting}
        index = len(result.members)
        result.members.append(replace(member, index=index, setting=setting))

    def _interrupted(self, arguments: Mapping[str, Any]) -> Interrupted:
        result = self._result
        text = (
            f"{len(result.trials)} of {self._chooser.total} trials are finished: their "
            "models are in the `finished` of this exception."
        )
        if arguments.get("resume") is not None:
            text += " The same call goes on with the others."
        elif result.study is None:
            text += " With resume='set.zip', a call that is stopped goes on."
        else:
            text += (
                " With `storage` and `study_name`, Optuna keeps their results, and the "
                "same call goes on with more trials."
            )
        return Interrupted(text, result.models)
