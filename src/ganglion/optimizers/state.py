"""What an optimizer keeps: learning rate, iterations, slots, and how it is saved."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ganglion import config, initializers, keras2, ops
from ganglion.compiler.ir.graph import Value
from ganglion.compiler.ir.origin import inside
from ganglion.optimizers.arguments import (
    number,
    optional_count,
    optional_number,
    refuse_unknown,
)
from ganglion.optimizers.schedules import LearningRateSchedule
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.variables import Variable, snake_case, unique_name

_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")


class State:
    """The half of an `Optimizer` that remembers; the other half updates."""

    # Old names that the constructor understands beside its own.
    _keras2_arguments: tuple[str, ...] = ("lr", "decay")

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(
            type(self).__name__,
            kwargs,
            State._keras2_arguments,
            inspect.signature(State),
        )
        self.weight_decay = optional_number("weight_decay", weight_decay)
        self.clipnorm = optional_number("clipnorm", clipnorm)
        self.clipvalue = optional_number("clipvalue", clipvalue)
        self.global_clipnorm = optional_number("global_clipnorm", global_clipnorm)
        self._check_one_clip()
        self.use_ema = bool(use_ema)
        self.ema_momentum = number("ema_momentum", ema_momentum, high=1.0)
        self.ema_overwrite_frequency = optional_count(
            "ema_overwrite_frequency", ema_overwrite_frequency, 1
        )
        self.loss_scale_factor = optional_number(
            "loss_scale_factor", loss_scale_factor, open_low=True
        )
        self.gradient_accumulation_steps = optional_count(
            "gradient_accumulation_steps", gradient_accumulation_steps, 2
        )
        self.built = False
        self._variables: list[Variable] = []
        self._trainable_variables: list[Variable] = []
        self._indices: dict[Variable, int] = {}
        self._averages: list[Variable] = []
        self._accumulated: list[Variable] = []
        self._never_decayed: set[Variable] = set()
        self._never_decayed_names: list[str] = []
        self.name = name or unique_name(snake_case(type(self).__name__))
        self._make_iterations()
        self._make_learning_rate(learning_rate, kwargs)

    def _check_one_clip(self) -> None:
        given = [name for name in _CLIPS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(
                f"Only one of {', '.join(_CLIPS)} can be set, not "
                f"{' and '.join(given)}."
            )

    def _make_iterations(self) -> None:
        with inside(self.name):
            self._iterations = Variable(
                0, dtype="int64", trainable=False, name="iteration"
            )
        self._variables.append(self._iterations)

    def _make_learning_rate(self, rate: Any, old: dict[str, Any]) -> None:
        self.decay = 0.0
        if "lr" in old:
            keras2.note("lr=", "learning_rate=")
            rate = old["lr"]
        if old.get("decay") is not None:
            keras2.note("decay=", "a schedule such as InverseTimeDecay")
            self.decay = number("decay", old["decay"])
        self._learning_rate: Any = rate
        if callable(rate):
            return
        rate = number("learning_rate", keras2.chosen(rate))
        with inside(self.name):
            self._learning_rate = Variable(
                rate, dtype=config.floatx(), trainable=False, name="learning_rate"
            )
        self._variables.append(self._learning_rate)

    # --- The state -------------------------------------------------------------------

    @property
    def iterations(self) -> Any:
        """How many updates were made."""
        if self.gradient_accumulation_steps:
            return ops.floor_divide(self._iterations, self.gradient_accumulation_steps)
        return self._iterations

    @property
    def learning_rate(self) -> Any:
        """The learning rate: a variable, or what the schedule says now.

        Assigning a number changes the variable, which needs no new compilation.
        """
        if isinstance(self._learning_rate, LearningRateSchedule):
            return self._learning_rate(self._iterations)
        if callable(self._learning_rate):
            return self._learning_rate()
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        if callable(rate):
            if isinstance(self._learning_rate, Variable):
                self._variables.remove(self._learning_rate)
            self._learning_rate = rate
        elif callable(self._learning_rate):
            raise TypeError(
                "The learning rate of this optimizer comes from a schedule and cannot "
                "be set: make the optimizer with a number to change it later."
            )
        else:
            if not isinstance(rate, Value):
                rate = number("learning_rate", rate)
            self._learning_rate.assign(rate)

    @property
    def lr(self) -> Any:
        """Keras 2's name of `learning_rate`."""
        keras2.note("optimizer.lr", "optimizer.learning_rate")
        return self.learning_rate

    @lr.setter
    def lr(self, rate: Any) -> None:
        keras2.note("optimizer.lr", "optimizer.learning_rate")
        self.learning_rate = rate

    def _rate(self) -> Any:
        """Return the learning rate of this step, with Keras 2's `decay`."""
        if not self.decay:
            return self.learning_rate
        done = ops.cast(self._iterations, config.floatx())
        return self.learning_rate / (1.0 + self.decay * done)

    @property
    def variables(self) -> list[Variable]:
        """All state in the order of Keras' files: iterations, learning rate, slots."""
        known = {*self._variables, *self._trainable_variables}
        return self._variables + [one for one in self._held() if one not in known]

    def _held(self) -> Iterator[Variable]:
        """Yield variables that a subclass keeps in attributes of its own."""
        for value in vars(self).values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Variable):
                    yield one

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for these variables."""
        self._trainable_variables = list(variables)
        self._indices = {one: i for i, one in enumerate(variables)}
        if self.use_ema:
            self._averages = self.add_optimizer_variables(variables, "average")
        if self.gradient_accumulation_steps:
            self._accumulated = self.add_optimizer_variables(
                variables, "gradient_accumulator"
            )
        self.built = True

    def add_variable(
        self,
        shape: Sequence[int],
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: str = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> Variable:
        """Make a variable of the optimizer, saved with it."""
        if layout is not None:
            raise ValueError("`layout` is not supported: there is one device.")
        with inside(self.name):
            made = Variable(
                initializers.get(initializer),
                shape=tuple(shape),
                dtype=dtype,
                trainable=False,
                name=name,
            )
        self._variables.append(made)
        return made

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> Variable:
        """Make a slot: a variable of the shape and type of another."""
        return self.add_variable(
            reference_variable.shape,
            initializer=initializer,
            dtype=reference_variable.dtype,
            name=f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
        )

    def add_optimizer_variables(
        self,
        trainable_variables: Sequence[Variable],
        name: Any,
        initializer: Any = "zeros",
    ) -> Any:
        """Make one slot per variable; for a list of names, one list of slots each."""
        names = [name] if isinstance(name, str) else list(name)
        several = isinstance(initializer, (list, tuple))
        starts = list(initializer) if several else [initializer] * len(names)
        if len(starts) != len(names):
            raise ValueError(f"{len(names)} names need as many initializers: {starts}.")
        made: tuple[list[Variable], ...] = tuple([] for _ in names)
        for variable in trainable_variables:
            for slots, one, start in zip(made, names, starts, strict=True):
                slot = self.add_variable_from_reference(variable, one, start)
                slots.append(slot)
        return made[0] if isinstance(name, str) else made

    def sibling(self) -> Any:
        """Return an equal optimizer without slots, for the weights of another model.

        Both count the same steps and have one learning rate, as when scripts for
        Keras 2 compile several models with one optimizer.
        """
        made = type(self).from_config(self.get_config())
        made._variables = [self._iterations]
        made._iterations, made._learning_rate = self._iterations, self._learning_rate
        if isinstance(self._learning_rate, Variable):
            made._variables.append(self._learning_rate)
        made._never_decayed = self._never_decayed
        made._never_decayed_names = self._never_decayed_names
        return made

    def knows(self, variables: Sequence[Variable]) -> bool:
        """Return whether there are slots for all of these variables."""
        return self.built and all(one in self._indices for one in variables)

    def _get_variable_index(self, variable: Variable) -> int:
        return self._indices[variable]

    # --- Saving ----------------------------------------------------------------------

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of all state."""
        return [one.numpy() for one in self.variables]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set all state from arrays, in the order of `variables`."""
        if not self.built:
            raise ValueError(
                "The optimizer has no slots yet: call `build(variables)` first."
            )
        if len(weights) != len(self.variables):
            raise ValueError(
                f"There are {len(self.variables)} variables, not {len(weights)}."
            )
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight)

    def save_own_variables(self, store: Any) -> None:
        """Put all state into a store of arrays, as `.keras` files name it."""
        for i, one in enumerate(self.variables):
            store[str(i)] = one.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Take all state from a store of arrays."""
        if len(store.keys()) != len(self.variables):
            warnings.warn(
                f"The state of the optimizer {self.name!r} was not loaded: it has "
                f"{len(self.variables)} variables, the file {len(store.keys())}.",
                stacklevel=2,
            )
            return
        for i, one in enumerate(self.variables):
            one.assign(np.asarray(store[str(i)]))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal optimizer, without its state."""
        rate = self._learning_rate
        made: dict[str, Any] = {
            "name": self.name,
            "learning_rate": float(rate)
            if isinstance(rate, Variable)
            else serialize_keras_object(rate),
        }
        for name in _arguments(type(self)):
            if name in vars(self):
                made[name] = getattr(self, name)
        return made | ({"decay": self.decay} if self.decay else {})

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        """Make an optimizer from its configuration."""
        made = dict(config)
        if isinstance(made.get("learning_rate"), dict):
            rate = made["learning_rate"]
            made["learning_rate"] = deserialize_keras_object(rate, custom_objects)
        return cls(**made)


def _arguments(cls: type) -> Iterator[str]:
    """Yield the arguments of all constructors in the family, the oldest first."""
    for one in reversed(cls.__mro__):
        if issubclass(one, State) and "__init__" in vars(one):
            yield from inspect.signature(vars(one)["__init__"]).parameters
