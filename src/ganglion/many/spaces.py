"""What `search` chooses from: ranges and lists, trials that draw, KerasTuner's `hp`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion.config import closest

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
        if self.step is not None and self.step <= 0:
            raise ValueError(f"The step of a range must be above 0, not {self.step}.")
        if self.log and self.low <= 0:
            raise ValueError(f"A logarithmic range begins above 0, not at {self.low}.")

    @property
    def is_whole(self) -> bool:
        """Whether these are integers."""
        ends = (self.low, self.high, 1 if self.step is None else self.step)
        return self.step is not None and all(isinstance(end, int) for end in ends)

    def powers(self) -> list[Any]:
        """Return the numbers from `low` to `high`, each `step` times the previous."""
        if self.step is None or self.step <= 1 or self.low <= 0:
            raise ValueError(
                f"A logarithmic range from {self.low} in steps of {self.step}: steps "
                "are factors above 1, and it begins above 0."
            )
        count = math.floor(math.log(self.high / self.low, self.step) + 1e-9)
        return [self.low * self.step**n for n in range(count + 1)]

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
    """Return a range of integers to search, both ends included."""
    for number in (low, high, step):
        if int(number) != number:
            raise ValueError(f"A range of integers, but {number} is none.")
    return Uniform(int(low), int(high), int(step), log)


def chosen(space: Mapping[str, Any], trial: Any) -> dict[str, Any]:
    """Return a value for every name, as a trial chooses them."""
    return {
        name: values.chosen_by(trial, name)
        if isinstance(values, Uniform)
        else trial.suggest_categorical(name, list(values))
        for name, values in space.items()
    }


def check_space(space: Mapping[str, Any]) -> None:
    """Refuse a space of which nothing can be chosen."""
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
        """Draw an integer."""
        if log:
            ends = math.log(low - 0.5), math.log(high + 0.5)
            drawn = round(math.exp(self._draws.uniform(*ends)))
            return int(self._kept(name, min(max(drawn, low), high)))
        count = (high - low) // step
        return int(self._kept(name, low + step * int(self._draws.integers(count + 1))))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Draw a value from some values."""
        return self._kept(name, choices[int(self._draws.integers(len(choices)))])


class GridTrial(RandomTrial):
    """A trial at a point of a grid."""

    def __init__(self, number: int, point: Mapping[str, Any]) -> None:
        super().__init__(number, 0)
        self.params = dict(point)


class HyperParameters:
    """The `hp` that KerasTuner passes to builders: `hp.Int`, `hp.Choice`.

    A value whose condition does not hold (`parent_name`, `conditional_scope`) is None,
    and is not searched.

    >>> hp = HyperParameters(RandomTrial(0, seed=0))
    >>> 8 <= hp.Int("units", 8, 64, step=8) <= 64, hp.Fixed("epochs", 3)
    (True, 3)
    >>> with hp.conditional_scope("epochs", [5]):
    ...     print(hp.Int("patience", 1, 4))
    None
    """

    def __init__(self, trial: Any) -> None:
        self._trial = trial
        self._fixed: dict[str, Any] = {}
        self._scopes: list[str] = []
        self._conditions: list[tuple[str, Sequence[Any]]] = []

    @property
    def values(self) -> dict[str, Any]:
        """The values by name."""
        return {**self._trial.params, **self._fixed}

    def get(self, name: str) -> Any:
        """Return a value that was chosen before; `hp[name]` is the same."""
        full = self._full(name)
        if full not in self.values:
            raise KeyError(f"{full} is not chosen yet. {closest(full, self.values)}")
        return self.values[full]

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def __contains__(self, name: str) -> bool:
        return self._full(name) in self.values

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Put `name/` before the names of values that are chosen in this block."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def conditional_scope(self, parent_name: str, parent_values: Any) -> Iterator[None]:
        """Choose values in this block only if another one is among some."""
        self._conditions.append(self._condition(parent_name, parent_values))
        try:
            yield
        finally:
            self._conditions.pop()

    def _full(self, name: str) -> str:
        return "/".join((*self._scopes, name))

    def _condition(self, name: str, values: Any) -> tuple[str, Sequence[Any]]:
        return self._full(name), values if isinstance(values, (list, tuple)) else [
            values
        ]

    def _if_active(
        self,
        name: str,
        parent_name: str | None,
        parent_values: Any,
        choose: Callable[[str], Any],
    ) -> Any:
        """Return a value, None if any of its conditions does not hold."""
        conditions = list(self._conditions)
        if parent_name is not None:
            conditions.append(self._condition(parent_name, parent_values))
        known = self.values
        if all(known.get(parent) in allowed for parent, allowed in conditions):
            return choose(self._full(name))
        return None

    def _number(
        self, space: Uniform, name: str, sampling: str, parent: tuple[Any, Any]
    ) -> Any:
        """Choose a number; with a step and `sampling="log"`, steps are factors."""
        if sampling not in ("linear", "log"):
            raise ValueError(
                f"`hp` does not know sampling={sampling!r} of {name!r}: use 'linear' "
                "or 'log'."
            )
        if sampling == "log" and space.step not in (None, 1):
            choices = space.powers()
            return self.Choice(name, choices, None, None, *parent)
        space = Uniform(space.low, space.high, space.step, log=sampling == "log")
        return self._if_active(
            name, *parent, lambda full: space.chosen_by(self._trial, full)
        )

    def Int(  # noqa: N802 (KerasTuner's name)
        self,
        name: str,
        min_value: int,
        max_value: int,
        step: int | None = None,
        sampling: str = "linear",
        default: int | None = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Choose an integer."""
        space = integer(min_value, max_value, 1 if step is None else step)
        return self._number(space, name, sampling, (parent_name, parent_values))

    def Float(  # noqa: N802
        self,
        name: str,
        min_value: float,
        max_value: float,
        step: float | None = None,
        sampling: str = "linear",
        default: float | None = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Choose a number."""
        step = None if step is None else float(step)
        space = Uniform(float(min_value), float(max_value), step)
        return self._number(space, name, sampling, (parent_name, parent_values))

    def Choice(  # noqa: N802
        self,
        name: str,
        values: Sequence[Any],
        ordered: Any = None,
        default: Any = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Choose among some values."""
        return self._if_active(
            name,
            parent_name,
            parent_values,
            lambda full: self._trial.suggest_categorical(full, list(values)),
        )

    def Boolean(  # noqa: N802
        self,
        name: str,
        default: bool = False,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Choose yes or no."""
        return self.Choice(name, [False, True], None, None, parent_name, parent_values)

    def Fixed(  # noqa: N802
        self,
        name: str,
        value: Any,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Keep a value under a name."""
        return self._if_active(
            name,
            parent_name,
            parent_values,
            lambda full: self._fixed.setdefault(full, value),
        )
