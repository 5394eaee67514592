"""`get_updates`: an optimizer's step in Keras 2, ours or written by a script.

An optimizer returned assignments, each a variable with its new value, all of them
computed from the values before the step. Ours returns a `Descent`, which `K.function`
makes; one that a script wrote is called for its list whenever a step is traced.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from ganglion import keras2
from ganglion.variables import Variable, current_scope, suspended

F = TypeVar("F", bound=Callable[..., None])
_TAPE = "`GradientTape` and `apply_gradients`"


class Assignment(NamedTuple):
    """A variable and its new value."""

    variable: Variable
    value: Any


class Descent(NamedTuple):
    """A step of an optimizer down a loss, to be made by `K.function(updates=)`."""

    optimizer: Any
    loss: Any
    variables: Sequence[Variable]


class GivenLoss(NamedTuple):
    """The loss of a step whose gradients are known already."""

    slopes: dict[Variable, Any]


class _Collecting(threading.local):
    slots: list[Variable] | None = None  # of the optimizer that computes updates
    used = 0


_collecting = _Collecting()


def is_collecting() -> bool:
    """Return whether an optimizer of a script is computing its updates."""
    return _collecting.slots is not None


def are_handed_over() -> bool:
    """Return whether assignments are passed to their caller.

    This is so in `get_updates`, and in Keras 2 in the `call` of a layer, whose
    `add_update` takes them: they are made in steps that train.
    """
    scope = current_scope()
    is_in_call = keras2.is_own and scope is not None and scope.depth > 0
    return is_collecting() or is_in_call


def recalled(make: Callable[[], Variable]) -> Variable:
    """Return a new variable; in `get_updates`, the one that was made there first."""
    slots = _collecting.slots
    if slots is None:
        return make()
    if _collecting.used == len(slots):
        with suspended():
            slots.append(make())
    _collecting.used += 1
    return slots[_collecting.used - 1]


@contextmanager
def _collected(slots: list[Variable]) -> Iterator[None]:
    before = _collecting.slots, _collecting.used
    _collecting.slots, _collecting.used = slots, 0
    try:
        yield
    finally:
        _collecting.slots, _collecting.used = before


def without_rate(initialize: F) -> F:
    """Allow an optimizer of a script to omit the rate, which it manages itself."""

    @functools.wraps(initialize)
    def initialized(self: GraphUpdates, *args: Any, **kwargs: Any) -> None:
        if self._has_own_steps:
            raise NotImplementedError(
                f"{type(self).__name__} has Keras 2's `_resource_apply_dense`, which "
                "nothing calls: write `update_step(self, gradient, variable, "
                "learning_rate)`, with slots made in `build`."
            )
        if self._has_own_updates and not args:
            kwargs.setdefault("learning_rate", None)
        initialize(self, *args, **kwargs)

    return initialized  # type: ignore[return-value]


class GraphUpdates:
    """The part of an `Optimizer` that Keras 2 called it by."""

    _has_own_updates = False  # of a script
    _has_own_steps = False  # in TensorFlow's operations
    _is_asked_for_updates = False  # of the class it is derived from, by these
    _own_slots: list[Variable]
    updates: list[Any]
    _own_weights: list[Variable] | None = None

    @property
    def variables(self) -> list[Variable]:
        """All state: iterations, learning rate, slots."""
        raise NotImplementedError

    def inner_optimizers(self) -> Iterator[GraphUpdates]:
        """Yield the optimizers that an optimizer of a script wraps."""
        raise NotImplementedError

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for these variables."""
        raise NotImplementedError

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        raise NotImplementedError

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Update variables by their gradients."""
        raise NotImplementedError

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "get_updates" in vars(cls):
            cls._has_own_updates = True
        if "_resource_apply_dense" in vars(cls) and "update_step" not in vars(cls):
            cls._has_own_steps = True

    def get_updates(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return what one step down a loss does, for `K.function`.

        The arguments are `loss, params`, or those of Keras 1: `params, constraints,
        loss`.
        """
        keras2.note("`optimizer.get_updates`", _TAPE)
        names = ("params", "constraints", "loss") if _is_keras1(args) else _ARGUMENTS
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        loss, variables = arguments["loss"], list(arguments["params"])
        if is_collecting():
            return self._assignments(loss, variables)
        return [Descent(self, loss, variables)]

    def _assignments(self, loss: Any, variables: list[Variable]) -> list[Assignment]:
        """Return the assignments of a step, without making them."""
        scope = current_scope()
        assert scope is not None
        before = dict(scope.writes)
        self._is_asked_for_updates = True
        try:
            self.apply(self.get_gradients(loss, variables), variables)
        finally:
            self._is_asked_for_updates = False
        changed = {
            variable: value
            for variable, value in scope.writes.items()
            if before.get(variable) is not value
        }
        scope.writes.clear()
        scope.writes.update(before)
        first = self.variables[0]  # the number of steps
        # By its name, as wrappers put a function of their own in its place.
        update = importlib.import_module("ganglion.backend").update
        return [
            update(variable, changed[variable])
            for variable in sorted(changed, key=lambda variable: variable is not first)
        ]

    def get_gradients(self, loss: Any, params: Sequence[Variable]) -> list[Any]:
        """Return the gradients of a loss in `get_updates`, clipped."""
        if isinstance(loss, GivenLoss):
            return self._clip_gradients([loss.slopes[variable] for variable in params])
        raise ValueError(
            f"`optimizer.get_gradients` works inside of `get_updates`. Use {_TAPE}, or "
            "`K.gradients(loss, variables)`."
        )

    def make_own_updates(self, grads: list[Any], variables: list[Variable]) -> None:
        """Make the updates that the `get_updates` of a script returns."""
        loss = GivenLoss(dict(zip(variables, grads, strict=True)))
        for optimizer in (self, *self.inner_optimizers()):
            if vars(optimizer).get("updates"):
                optimizer.updates = []  # those of another trace
        with _collected(vars(self).setdefault("_own_slots", [])):
            updates = self.get_updates(loss=loss, params=variables)
        for update in updates:
            if not isinstance(update, tuple) or len(update) != 2:
                raise ValueError(
                    f"{type(self).__name__}.get_updates: an update is what `K.update` "
                    "and its kin return, or a pair of a variable and its new value, "
                    f"not {update!r:.80}."
                )
            variable, value = update
            variable.assign(value)

    @property
    def weights(self) -> list[Variable]:
        """Keras 2's name of `variables`."""
        return self.variables if self._own_weights is None else self._own_weights

    @weights.setter
    def weights(self, weights: list[Variable]) -> None:
        self._own_weights = weights


_ARGUMENTS = ("loss", "params")


def _is_keras1(arguments: Sequence[Any]) -> bool:
    return len(arguments) > 2 or isinstance(arguments[0] if arguments else None, list)
