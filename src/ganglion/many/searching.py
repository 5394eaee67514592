"""`search`: the best settings of a model, by a grid, at random, or by Optuna.

Trials of a grid, or at random, are a set of models. Optuna, an optional dependency, may
choose the trials instead, by the results of those that have ended; its pruners end them
after an epoch.
"""

from __future__ import annotations

import functools
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
from ganglion.many.settings import ModelPlan, plans_for
from ganglion.many.spaces import (
    GridTrial,
    HyperParameters,
    RandomTrial,
    Uniform,
    check_space,
    chosen,
)
from ganglion.many.threads import workers_for
from ganglion.many.turns import TrialFitting, Turns
from ganglion.training.data_adapters import count

LARGEST_GRID = 1_000_000
TRIALS = 20  # by default
TOGETHER = 8  # trials in training by default, on up to four threads


# ---- choosing trials -----------------------------------------------------------------


class _Study:
    """A study of Optuna that chooses trials and receives their results."""

    def __init__(self, study: Any, prunes: bool) -> None:
        self.study, self.prunes = study, prunes
        self._has_more = True

    def ask(self) -> Any:
        """Return a new trial, None if the sampler has no more."""
        return self.study.ask() if self._has_more else None

    def tell(self, trial: Any, value: float | None, was_pruned: bool) -> None:
        """Pass on the result of a trial, None if it has none."""
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
            self._has_more = False


def _known_trials(
    sampler: Any,
    space: Mapping[str, Any] | None,
    trials: int | None,
    seed: int,
    study: dict[str, Any],
) -> list[Any] | None:
    """Return the trials of a grid, or at random; None if Optuna chooses them."""
    if sampler == "grid":
        return _grid_trials(space, trials)
    if sampler in (None, "random"):
        if any(study[name] is not None for name in ("pruner", "storage", "study_name")):
            raise ValueError(
                "`pruner`, `storage` and `study_name` are Optuna's: pass "
                "sampler='optuna', or one of its samplers."
            )
        return [RandomTrial(n, seed) for n in range(trials or TRIALS)]
    if isinstance(sampler, str) and sampler != "optuna":
        raise ValueError(
            f"Unknown sampler {sampler!r}. "
            f"{config.closest(sampler, ('grid', 'random', 'optuna'))}"
        )
    return None


def _study_of(sampler: Any, seed: int, study: dict[str, Any]) -> _Study:
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
    pruner = study["pruner"] or optuna.pruners.NopPruner()  # not Optuna's default
    study = {**study, "sampler": sampler, "pruner": pruner}
    if study["storage"] is None and study["study_name"] is None:
        study["study_name"] = "search"  # Hyperband decides by it, which is random else
    new_study = optuna.create_study(load_if_exists=True, **study)
    directions = [direction.name.lower() for direction in new_study.directions]
    if directions != [study["direction"]]:
        raise ValueError(
            f"The study {study['study_name']!r} is there already, to "
            f"{' and '.join(directions)}; this search would {study['direction']}. "
            "Choose another `study_name`, or `monitor` and `mode` as they were."
        )
    return _Study(new_study, not isinstance(pruner, optuna.pruners.NopPruner))


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


class _Reporter(Callback):
    """Reports a trial's value after each epoch, for Optuna's dashboard."""

    may_lag = True
    has_pruned = False

    def __init__(self, trial: Any, monitor: str) -> None:
        super().__init__()
        self._trial, self._monitor = trial, monitor

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        value = (logs or {}).get(self._monitor)
        if value is not None and math.isfinite(value):
            self._report(float(value), epoch)

    def _report(self, value: float, epoch: int) -> None:
        self._trial.report(value, epoch)


class _Pruner(_Reporter):
    """Reports when it is the trial's turn, and stops a trial that is pruned."""

    def __init__(self, trial: Any, monitor: str, turns: Turns) -> None:
        super().__init__(trial, monitor)
        self._turns = turns

    def _report(self, value: float, epoch: int) -> None:
        self._turns.stop_training()
        super()._report(value, epoch)
        if self._trial.should_prune():
            self.has_pruned = self.model.stop_training = True
        self._turns.train()


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
    """Search for the best settings of a model; many trials are trained at once.

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
        pruner: A pruner of Optuna; without one, no trial ends early.
        batch: Of Optuna, how many trials are in training together, epoch by epoch; as
            soon as one ends, a new one is drawn. Eight by default, or two for each
            thread if that is more, which keeps all threads busy; the more there are,
            the less each knows of the others.
        monitor: The metric to judge by; the loss of validation if there is one.
        mode: Whether the smallest ("min") or the largest ("max") value is best; "auto"
            goes by the name of the metric.
        seed: The seed of the choices; trial n trains its model with `seed + n`.
        storage: Where Optuna keeps its results, for its dashboard.
        study_name: The name of the study there; an existing one is continued.
        **arguments: Other arguments of `fit_many`; `resume` is for trials at random or
            of a grid. Callbacks know the number of their trial as `model_index`.

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
    study |= {"direction": direction}
    known = _known_trials(sampler, space, trials, seed, study)
    chosen_by = None if known is not None else _study_of(sampler, seed, study)
    if chosen_by is not None and arguments.get("resume") is not None:
        raise ValueError(
            "`resume` is for trials that are known beforehand: of a grid, or at "
            "random. With Optuna, `storage` and `study_name` keep the results, and "
            "the same call goes on with more trials."
        )
    result = SearchResult(monitor, is_growing, chosen_by and chosen_by.study)
    parts = (build, space, seed, result)
    if chosen_by is None:
        _Trials(*parts).run(known or [], (x, y), arguments)
    else:
        total = trials or TRIALS
        workers, _ = workers_for(total, arguments.get("threads"))
        together = batch or max(TOGETHER, 2 * workers)
        drawn = _DrawnTrials(chosen_by, together, *parts)
        drawn.run([None] * total, (x, y), arguments)
    return result


class _Trials:
    """The trials of a search: how each is built, and what became of it."""

    def __init__(
        self,
        build: Callable[..., Any],
        space: Mapping[str, Any] | None,
        seed: int,
        result: SearchResult,
    ) -> None:
        self._build, self._space, self._seed = build, space, seed
        self._result = result
        self._trials: list[Any] = []  # by their index in the set

    def run(
        self, trials: Sequence[Any], data: tuple[Any, Any], arguments: dict[str, Any]
    ) -> None:
        """Train the trials, and add their results; also of a part, after Ctrl-C."""
        settings = list(map(self._setting, trials))
        build = self._tuned if self._space is None else self._build
        try:
            trained = fit_many(build, settings, *data, **arguments)
        except Interrupted as stopped:
            self._add(stopped.finished)
            text = (
                f"{len(stopped.finished)} of {len(trials)} trials are finished: their "
                f"models are in the `finished` of this exception. {self._advice}"
            )
            raise Interrupted(text, self._result.models) from None
        self._add(trained)

    @property
    def _advice(self) -> str:
        return "With resume='set.zip', the same call goes on with the others."

    def _setting(self, trial: Any) -> dict[str, Any]:
        """Add a trial; return its setting."""
        self._trials.append(trial)
        setting = {"seed": (self._seed + trial.number) % 2**32}
        setting |= {"name": str(trial.number)}
        if self._space is None:
            return setting | {"trial": len(self._trials) - 1}
        return setting | chosen(self._space, trial)

    def _tuned(self, trial: int) -> Any:
        return self._build(HyperParameters(self._trials[trial]))

    def _value(self, member: Member) -> float | None:
        """Return the value that a trial is judged by, None if it failed."""
        monitor, logs = self._result.monitor, member.logs
        if monitor not in logs:
            known = ", ".join(map(repr, logs))
            raise ValueError(f"There is no metric {monitor!r}; there are: {known}.")
        is_number = math.isfinite(logs[monitor]) and member.message is None
        return float(logs[monitor]) if is_number else None

    def _state(self, member: Member) -> str:
        return "failed" if self._value(member) is None else "complete"

    def _add(self, trained: Sequence[Member]) -> None:
        result = self._result
        for index, member in enumerate(trained):
            trial = self._trials[member.index]
            state = self._state(member)
            result.trials.append(
                {
                    "number": trial.number,
                    "params": dict(trial.params),
                    "value": float(member.logs[result.monitor]),
                    "epochs": len(member.history.epoch),
                    "state": state,
                }
            )
            setting = {k: v for k, v in member.setting.items() if k != "trial"}
            setting = {**trial.params, **setting}
            result.members.append(replace(member, index=index, setting=setting))


class _DrawnTrials(_Trials):
    """Trials that Optuna draws when there is a place for another one."""

    turns: Turns
    _advice = (
        "With `storage` and `study_name`, Optuna keeps their results, and the same "
        "call goes on with more trials."
    )

    def __init__(self, chooser: _Study, at_once: int, *parts: Any) -> None:
        super().__init__(*parts)
        self._chooser, self.at_once = chooser, at_once
        self._reporters: list[_Reporter] = []
        self._training: set[int] = set()

    def run(
        self, trials: Sequence[Any], data: tuple[Any, Any], arguments: dict[str, Any]
    ) -> None:
        """Draw trials and train them, and tell Optuna of those that did not end."""
        users = arguments.pop("callbacks", None)
        callbacks = OfTrials(users, self._trials, self._reporters)
        fitting = functools.partial(TrialFitting, self)
        given = {**arguments, "callbacks": callbacks, "fitting": fitting}
        try:
            super().run(trials, data, given)
        finally:
            for index in sorted(self._training):
                self._chooser.tell(self._trials[index], None, False)

    def _setting(self, trial: Any) -> dict[str, Any]:
        if trial is not None:
            return super()._setting(trial)
        space = {} if self._space is None else self._space
        values = [of.low if isinstance(of, Uniform) else of[0] for of in space.values()]
        setting = dict(zip(space, values, strict=True)) | {"seed": 0}
        return setting if self._space is not None else setting | {"trial": 0}

    def draw(self, plan: ModelPlan) -> ModelPlan | None:
        """Return a plan with the values of a new trial, None if there is no more."""
        if plan.index < len(self._trials):  # memory did not suffice before
            return plan
        trial = self._chooser.ask()
        if trial is None:
            return None
        self._training.add(plan.index)
        build = self._tuned if self._space is None else self._build
        (drawn,) = plans_for(build, [self._setting(trial)])
        monitor = self._result.monitor
        self._reporters.append(
            _Pruner(trial, monitor, self.turns)
            if self._chooser.prunes
            else _Reporter(trial, monitor)
        )
        return replace(drawn, index=plan.index, count=plan.count)

    def tell(self, member: Member) -> None:
        """Tell Optuna of a trial that has ended."""
        index = member.index
        has_pruned = self._reporters[index].has_pruned
        self._chooser.tell(self._trials[index], self._value(member), has_pruned)
        self._training.remove(index)

    def _state(self, member: Member) -> str:
        state = super()._state(member)
        has_pruned = self._reporters[member.index].has_pruned
        return "pruned" if has_pruned and state == "complete" else state
