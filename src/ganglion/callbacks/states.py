"""The state of callbacks between epochs, as plain data in a checkpoint.

A callback that has such a state returns it from `get_state` and takes it back in
`set_state`, which `fit` calls after `on_train_begin` when it resumes a run that
was interrupted. A checkpoint may be written in the middle of the end of an epoch, by
one callback of several: those after it are then called when the run is resumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Logs = dict[str, Any]

# Exceptions of code that gets data of another structure than expected.
_SYMPTOMS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class EpochEnd:
    """The last end of an epoch, and how many callbacks have been called for it."""

    epoch: int
    logs: Logs
    called: int = 0


def states_of(callbacks: list[Any], ended: EpochEnd | None) -> dict[str, Any]:
    """Return the states of callbacks by name, and which have yet to see an epoch's end.

    `ended` is the last end of an epoch, None before the first.
    """
    states: dict[str, Any] = {}
    waiting = []
    for number, (name, callback) in enumerate(_named(callbacks)):
        state = callback.get_state()
        if state is None:
            continue
        states[name] = state
        if ended is not None and number >= ended.called:
            waiting.append(name)
    saved: dict[str, Any] = {"states": states, "waiting": waiting}
    if ended is not None:
        # The part that can be kept in a file: a callback may have added anything.
        kinds = (int, float, np.ndarray)
        logs = {name: v for name, v in ended.logs.items() if isinstance(v, kinds)}
        saved |= {"epoch": ended.epoch, "logs": logs}
    return saved


def take_up(callbacks: list[Any], saved: dict[str, Any]) -> bool:
    """Give callbacks the states that `states_of` returned.

    Return whether there is a callback for each of them. One without a state in the
    file starts from scratch.
    """
    known = dict(_named(callbacks))
    states = _dictionary(saved.get("states"))
    for name, state in states.items():
        if name not in known:
            continue
        try:
            known[name].set_state(state)
        except _SYMPTOMS as error:
            raise ValueError(
                f"The saved state of the callback {name} does not fit it "
                f"({type(error).__name__}: {error}). Give `fit` the callbacks that it "
                "had, or another `initial_epoch` to start them anew."
            ) from error
    waiting = saved.get("waiting")
    epoch, logs = saved.get("epoch"), _dictionary(saved.get("logs"))
    for name in waiting if isinstance(waiting, list) else ():
        if name in known and name in states and isinstance(epoch, int):
            known[name].on_epoch_end(epoch, logs)
    return all(name in known for name in states)


def _named(callbacks: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the callbacks that have states, with names that another run has, too."""
    seen: Counter[str] = Counter()
    for callback in callbacks:
        name = type(callback).__name__
        monitor = getattr(callback, "monitor", None)
        if isinstance(monitor, str):  # another metric's best is none of this one's
            name += f" of {monitor}"
        seen[name] += 1
        named = name if seen[name] == 1 else f"{name}, {seen[name]}"
        yield named, callback if hasattr(callback, "get_state") else _Stateless()


class _Stateless:
    """Replaces a callback of another library, which has no `get_state`."""

    def get_state(self) -> None:
        """Return None: there is no state."""

    def set_state(self, state: Any) -> None:
        """Leave it."""


def _dictionary(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- helpers of `set_state` ------------------------------------------------------


def whole_number(state: dict[str, Any], name: str) -> int:
    """Return an integer of a state; refuse anything else."""
    value = state[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name!r} is {value!r}, not an integer")
    return value


def weights_or_none(
    state: dict[str, Any], name: str, model: Any
) -> list[np.ndarray] | None:
    """Return weights of a state that fit a model, or None; refuse anything else."""
    value = state[name]
    if value is None:
        return None
    shapes = [np.shape(weight) for weight in model.get_weights()]
    if [np.shape(weight) for weight in value] != shapes:
        raise ValueError(f"{name!r} are not weights of this model")
    return [np.asarray(weight) for weight in value]


def best_of(state: dict[str, Any]) -> float | None:
    """Return the best value in a state, a number or None; refuse anything else."""
    return None if state["best"] is None else number(state, "best")


def number(state: dict[str, Any], name: str) -> float:
    """Return a number of a state; refuse anything else."""
    value = state[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name!r} is {value!r}, not a number")
    return value
