"""The Optimizer: an `update_step` per variable, with clipping, decay and averages.

Everything happens inside of a scope: that of the step while a model is traced, else a
new one over plain arrays. There is one way through the code, without Python control
flow on values: what happens only at some steps is chosen by `ops.where`.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ganglion import config, initializers, keras2, ops
from ganglion.compiler.ir import graph
from ganglion.compiler.ir.graph import Constant, Node, ShapeError, Value
from ganglion.compiler.ir.origin import inside
from ganglion.compiler.ir.pointwise import stop_gradient
from ganglion.compiler.ir.shaping import broadcast
from ganglion.gradients import GradientTape
from ganglion.hyperparameters import Hyperparameter
from ganglion.optimizers.arguments import (
    number,
    optional_count,
    optional_number,
    refuse_unknown,
)
from ganglion.optimizers.graph_updates import (
    GraphUpdates,
    is_collecting,
    without_rate,
)
from ganglion.optimizers.schedules import LearningRateSchedule
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.variables import (
    Deferred,
    Scope,
    StatelessScope,
    Variable,
    current_scope,
    snake_case,
    unique_name,
    zip_values,
)

F = TypeVar("F", bound=Callable[..., None])
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")


class Optimizer(GraphUpdates):
    """Base class: moves variables along their gradients.

    A subclass makes its slots in `build` and overrides `update_step`.

    >>> import numpy as np
    >>> class Halving(Optimizer):
    ...     def update_step(self, gradient, variable, learning_rate):
    ...         self.assign_sub(variable, gradient * learning_rate / 2)
    >>> w = Variable(np.ones(2), name="w")
    >>> Halving(learning_rate=1.0).apply([np.array([1.0, -1.0])], [w])
    >>> w.numpy()
    array([0.5, 1.5], dtype=float32)
    """

    weight_decay = Hyperparameter()
    clipnorm = Hyperparameter()
    clipvalue = Hyperparameter()
    global_clipnorm = Hyperparameter()
    ema_momentum = Hyperparameter()
    # Old names that the constructor accepts besides its own.
    _keras2_arguments: tuple[str, ...] = ("lr", "decay")

    @without_rate
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
        if kwargs:
            known, old = inspect.signature(Optimizer), Optimizer._keras2_arguments
            refuse_unknown(type(self).__name__, kwargs, old, known)
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
        self._slots: dict[Variable, list[Variable]] = {}
        self._model_variables_moving_average: list[Variable] = []
        self._accumulated_gradients: list[Variable] = []
        self._never_decayed: set[Variable] = set()
        self._never_decayed_names: list[str] = []
        self.name = name or unique_name(snake_case(type(self).__name__))
        self._make_iterations()
        self._make_learning_rate(learning_rate, kwargs)

    def _check_one_clip(self) -> None:
        names = [name for name in _CLIPS if getattr(self, name) is not None]
        if len(names) > 1:
            raise ValueError(
                "Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set, "
                f"not {' and '.join(names)}."
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
        self.initial_decay = self.decay  # as Keras 2's optimizers called it
        self._learning_rate: Any = rate
        if callable(rate) or (rate is None and self._has_own_updates):
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
        """The number of updates so far."""
        if self.gradient_accumulation_steps:
            return ops.floor_divide(self._iterations, self.gradient_accumulation_steps)
        return self._iterations

    @iterations.setter
    def iterations(self, variable: Any) -> None:
        if not (self._has_own_updates and isinstance(variable, Variable)):
            raise AttributeError("`iterations` is set by `iterations.assign(number)`.")
        self._variables.remove(self._iterations)
        self._variables.insert(0, variable)
        self._iterations = variable

    @property
    def learning_rate(self) -> Any:
        """The learning rate: a variable, or the current value of the schedule.

        Assigning a number changes the variable, which needs no new compilation.
        """
        if isinstance(self._learning_rate, LearningRateSchedule):
            return self._learning_rate(self._iterations)
        if callable(self._learning_rate):
            return self._learning_rate()
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        is_of_step = is_collecting() and isinstance(rate, Value)
        if is_of_step or isinstance(rate, (Deferred, Variable)):
            self._learning_rate = rate
        elif callable(rate):
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
        held = dict.fromkeys(slot for slot in self._held() if slot not in known)
        return [*self._variables, *held]

    def _held(self) -> Iterator[Variable]:
        """Yield variables that a subclass keeps in its own attributes."""
        for value in vars(self).values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Variable):
                    yield item
        for inner in self.inner_optimizers():
            yield from inner.variables

    def inner_optimizers(self) -> Iterator[Optimizer]:
        """Yield the optimizers that an optimizer of a script wraps."""
        for value in list(vars(self).values()) if self._has_own_updates else ():
            if isinstance(value, Optimizer):
                yield value
                yield from value.inner_optimizers()

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots for these variables."""
        has_slots = type(self)._add_slots is not Optimizer._add_slots
        if self.built and has_slots:
            return
        self._trainable_variables = list(variables)
        self._indices = {variable: i for i, variable in enumerate(variables)}
        if self.use_ema:
            self._model_variables_moving_average = self.add_optimizer_variables(
                variables, "average"
            )
        if self.gradient_accumulation_steps:
            self._accumulated_gradients = self.add_optimizer_variables(
                variables, "gradient_accumulator"
            )
        self._add_slots(variables)
        for inner in self.inner_optimizers():
            inner.build(variables)
        self.built = True

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        """Make the slots: the state that an optimizer keeps for each variable."""

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
            variable = Variable(
                initializers.get(initializer),
                shape=tuple(shape),
                dtype=dtype,
                trainable=False,
                name=name,
            )
        self._variables.append(variable)
        return variable

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> Variable:
        """Make a slot: a variable of the shape and type of another."""
        slot = self.add_variable(
            reference_variable.shape,
            initializer=initializer,
            dtype=reference_variable.dtype,
            name=f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
        )
        self._slots.setdefault(reference_variable, []).append(slot)
        return slot

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
        lists: tuple[list[Variable], ...] = tuple([] for _ in names)
        for variable in trainable_variables:
            for slots, title, start in zip(lists, names, starts, strict=True):
                slot = self.add_variable_from_reference(variable, title, start)
                slots.append(slot)
        return lists[0] if isinstance(name, str) else lists

    def sibling(self) -> Any:
        """Return an equal optimizer without slots, for the weights of another model.

        Both count the same steps and have one learning rate, as when scripts for
        Keras 2 compile several models with one optimizer.
        """
        optimizer = type(self).from_config(self.get_config())
        optimizer._variables = [self._iterations]
        optimizer._iterations, optimizer._learning_rate = (
            self._iterations,
            self._learning_rate,
        )
        if isinstance(self._learning_rate, Variable):
            optimizer._variables.append(self._learning_rate)
        optimizer._never_decayed = self._never_decayed
        optimizer._never_decayed_names = self._never_decayed_names
        return optimizer

    def knows(self, variables: Sequence[Variable]) -> bool:
        """Return whether there are slots for all of these variables."""
        return self.built and all(variable in self._indices for variable in variables)

    def _get_variable_index(self, variable: Variable) -> int:
        return self._indices[variable]

    # --- Saving ----------------------------------------------------------------------

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of all state."""
        return [variable.numpy() for variable in self.variables]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set all state from arrays, in the order of `variables`."""
        if not self.built:
            raise ValueError(
                f"You are calling `set_weights()` on {self.name!r}, which has no slots "
                "yet: call `build(variables)` first."
            )
        if len(weights) != len(self.variables):
            raise ValueError(
                f"There are {len(self.variables)} variables, not {len(weights)}."
            )
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight)

    def save_own_variables(self, store: Any) -> None:
        """Put all state into a store of arrays, as `.keras` files name it."""
        for i, variable in enumerate(self.variables):
            store[str(i)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Take all state from a store of arrays."""
        if len(store.keys()) != len(self.variables):
            warnings.warn(
                f"The state of the optimizer {self.name!r} was not loaded: it has "
                f"{len(self.variables)} variables, the file {len(store.keys())}.",
                stacklevel=2,
            )
            return
        for i, variable in enumerate(self.variables):
            variable.assign(np.asarray(store[str(i)]))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal optimizer, without its state."""
        rate = self._learning_rate
        config: dict[str, Any] = {
            "name": self.name,
            "learning_rate": float(rate)
            if isinstance(rate, (Variable, Deferred))
            else serialize_keras_object(rate),
        }
        for name in _arguments(type(self)):
            if name in vars(self):
                config[name] = getattr(self, name)
        return config | ({"decay": self.decay} if self.decay else {})

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        """Make an optimizer from its configuration."""
        arguments = dict(config)
        if isinstance(arguments.get("learning_rate"), dict):
            rate = arguments["learning_rate"]
            arguments["learning_rate"] = deserialize_keras_object(rate, custom_objects)
        return cls(**arguments)

    # --- Updates ---------------------------------------------------------------------

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        """Update a variable; every optimizer implements this."""
        raise NotImplementedError(f"{type(self).__name__} has no `update_step`.")

    def assign(self, variable: Variable, value: Any) -> None:
        """Replace the value of a variable or slot."""
        variable.assign(value)

    def assign_add(self, variable: Variable, value: Any) -> None:
        """Add to a variable or slot."""
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: Any) -> None:
        """Subtract from a variable or slot."""
        variable.assign_sub(value)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Any:
        """Update variables from pairs of a gradient and a variable."""
        pairs = list(grads_and_vars)
        self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self._iterations

    def apply(
        self,
        grads: Sequence[Any],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Update variables by their gradients, in the same order.

        The first call builds the optimizer, if `build` was not called.
        """
        if len(grads) == 0:
            return
        variables = self._targets(trainable_variables)
        if len(grads) != len(variables):
            raise ValueError(
                f"{len(grads)} gradients were given for {len(variables)} variables."
            )
        pairs = _without_missing(grads, variables)
        if current_scope():
            self._apply(pairs)
            return
        with Scope(concrete=True) as scope:
            self._apply(pairs)
        scope.commit()

    def stateless_apply(
        self,
        optimizer_variables: Sequence[Any],
        grads: Sequence[Any],
        trainable_variables: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        """Return the new values of the variables and of the state, and change none."""
        if not self.built:
            raise ValueError(
                "`stateless_apply`: the optimizer has no state yet: call "
                "`optimizer.build(variables)` first."
            )
        own, trained = self.variables, self._trainable_variables
        mapping = [
            *zip_values("trainable_variables", trained, trainable_variables, self.name),
            *zip_values("optimizer_variables", own, optimizer_variables, self.name),
        ]
        with StatelessScope(mapping) as scope:
            self.apply(grads)
        return scope.current_values(trained), scope.current_values(own)

    def minimize(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """Take one step down a loss: a function, or a tensor and the tape of it."""
        variables = list(var_list() if callable(var_list) else var_list)
        if callable(loss):
            with GradientTape() as tape:
                loss = loss()
        elif tape is None:
            raise ValueError("`minimize` needs the `tape` that recorded the loss.")
        return self.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )

    def _targets(self, variables: Sequence[Variable] | None) -> list[Variable]:
        if variables is None:
            if not self.built:
                raise ValueError(
                    "The optimizer has no variables yet: pass them with the gradients, "
                    "or call `optimizer.build(variables)` first."
                )
            return self._trainable_variables
        if not self.built:
            self.build(list(variables))
        for variable in variables:
            if variable not in self._indices:
                raise ValueError(
                    f"This optimizer was built without the variable {variable.path!r}. "
                    "Make a new optimizer for a new set of variables."
                )
        return list(variables)

    def _apply(self, pairs: list[tuple[Any, Variable]]) -> None:
        with inside(self.name):
            grads = [_as_gradient(grad, variable) for grad, variable in pairs]
            variables = [variable for _, variable in pairs]
            if self._has_own_updates and not self._is_asked_for_updates:
                self.make_own_updates(grads, variables)
                return
            grads, variables = self._overwrite(grads, variables)
            if self.loss_scale_factor is not None:
                grads = [gradient / self.loss_scale_factor for gradient in grads]
            if not variables:
                pass
            elif self.gradient_accumulation_steps:
                self._accumulate(grads, variables)
            else:
                self._update(grads, variables)
            if self.use_ema:
                self._move_averages()
            for variable in variables:
                if variable.constraint is not None:
                    variable.assign(variable.constraint(variable))
            self._iterations.assign_add(1)

    def _overwrite(
        self, grads: list[Any], variables: list[Variable]
    ) -> tuple[list[Any], list[Variable]]:
        """Overwrite variables that take gradients as their values; return the others.

        Where gradients are accumulated, the largest of the steps is taken, as in Keras.
        """
        pairs = list(zip(grads, variables, strict=True))
        for gradient, variable in pairs:
            if not variable.overwrite_with_gradient:
                continue
            new = gradient
            if self.gradient_accumulation_steps:
                steps = self.gradient_accumulation_steps
                is_update = ops.equal((self._iterations + 1) % steps, 0)
                slot = self._accumulated_gradients[self._get_variable_index(variable)]
                largest = ops.maximum(gradient, slot)
                slot.assign(ops.where(is_update, ops.zeros_like(largest), largest))
                new = ops.where(is_update, largest, variable)
            variable.assign(new)
        rest = [pair for pair in pairs if not pair[1].overwrite_with_gradient]
        return [gradient for gradient, _ in rest], [variable for _, variable in rest]

    def _update(self, grads: list[Any], variables: list[Variable]) -> None:
        grads = self._clip_gradients(grads)
        self._apply_weight_decay(variables)
        self._update_variables(grads, variables, self._rate())

    def _update_variables(
        self, grads: list[Any], variables: list[Variable], rate: Any
    ) -> None:
        known: dict[Any, TracedUpdate] = {}  # by the types that the update depends on
        for gradient, variable in zip(grads, variables, strict=True):
            self._update_like(known, gradient, variable, rate)

    def _update_like(
        self,
        known: dict[Any, TracedUpdate],
        gradient: Any,
        variable: Variable,
        rate: Any,
    ) -> None:
        """Repeat the traced update of an earlier variable if possible, else trace."""
        scope = current_scope()
        if scope is None or scope.concrete or not self._is_elementwise():
            self.update_step(gradient, variable, rate)
            return
        updated = [variable, *self._slots.get(variable, ())]
        key = (gradient.dtype, *((v.dtype, v._value_dtype) for v in updated))
        if key not in known:
            known[key] = TracedUpdate(
                scope,
                gradient,
                updated,
                lambda: self.update_step(gradient, variable, rate),
            )
        elif known[key].can_repeat and variable.shape != ():
            known[key].repeat(scope, gradient, updated)
        else:
            self.update_step(gradient, variable, rate)

    def _is_elementwise(self) -> bool:
        """Return whether `update_step` is ours, and does the same to all elements."""
        is_ours = type(self).__module__.startswith("ganglion.")
        return is_ours and getattr(self.update_step, "is_elementwise", False)

    def _for_all(self, name: str, compute: Callable[[], Any], *facts: Any) -> Any:
        """Return a value of this step that all variables share, traced only once.

        It depends on the number of the step, on the optimizer's settings, and on facts.
        """
        scope = current_scope()
        if scope is None:
            return compute()
        key = (self, name, scope.read(self._iterations), *facts)
        if key not in scope.shared_values:
            scope.shared_values[key] = compute()
        return scope.shared_values[key]

    def _accumulate(self, grads: list[Any], variables: list[Variable]) -> None:
        """Add the gradients up, and keep an update only at every n-th step.

        The update is traced as it is, whatever variables it writes; afterwards each
        of them chooses between its new and its old value.
        """
        steps = self.gradient_accumulation_steps
        assert steps is not None
        scope = current_scope()
        assert scope is not None
        is_update = ops.equal((self._iterations + 1) % steps, 0)
        totals = {
            self._accumulated_gradients[self._get_variable_index(variable)]: gradient
            + self._accumulated_gradients[self._get_variable_index(variable)]
            for gradient, variable in zip(grads, variables, strict=True)
        }
        before = dict(scope.writes)
        self._update([total / steps for total in totals.values()], variables)
        for variable, new in list(scope.writes.items()):
            old = before.get(variable, scope.reads[variable])
            if new is not old:
                scope.writes[variable] = ops.where(is_update, new, old)
        for slot in self._accumulated_gradients:
            total = totals.get(slot, slot.value)
            slot.assign(ops.where(is_update, ops.zeros_like(total), total))

    def scale_loss(self, loss: Any) -> Any:
        """Multiply the loss by `loss_scale_factor`, which `apply` divides by again."""
        if self.loss_scale_factor is None:
            return loss
        return loss * self.loss_scale_factor

    # --- Clipping, weight decay, moving averages -------------------------------------

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        if self.clipnorm:
            return [self._clip_by_norm(gradient) for gradient in grads]
        if self.global_clipnorm:
            return clip_by_global_norm(grads, self.global_clipnorm)
        if self.clipvalue:
            return [
                ops.clip(gradient, -self.clipvalue, self.clipvalue)
                for gradient in grads
            ]
        return grads

    def _clip_by_norm(self, gradient: Any) -> Any:
        length = ops.sqrt(ops.sum(ops.square(gradient)))
        return gradient * self.clipnorm / ops.maximum(length, self.clipnorm)

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Exclude these variables from weight decay, or names with these parts."""
        if self.built:
            raise ValueError(
                "Call `exclude_from_weight_decay` before the optimizer is built."
            )
        self._never_decayed = set(var_list or ())
        self._never_decayed_names = list(var_names or ())

    def _use_weight_decay(self, variable: Variable) -> bool:
        if variable in self._never_decayed:
            return False
        return not any(
            re.search(part, variable.name) for part in self._never_decayed_names
        )

    def _apply_weight_decay(self, variables: Iterable[Variable]) -> None:
        if self.weight_decay is None:
            return
        for variable in variables:
            if self._use_weight_decay(variable):
                rate = ops.cast(self._rate(), variable.dtype)
                variable.assign(variable - variable * self.weight_decay * rate)

    def _move_averages(self) -> None:
        started = ops.not_equal(self.iterations, 0)
        for variable, average in self.averages():
            momentum = ops.cast(started, variable.dtype) * self.ema_momentum
            average.assign(momentum * average + (1.0 - momentum) * variable)
        if self.ema_overwrite_frequency:
            step = (self.iterations + 1) % self.ema_overwrite_frequency
            is_due = ops.equal(step, 0)
            for variable, average in self.averages():
                variable.assign(ops.where(is_due, average, variable))

    def averages(self) -> Iterator[tuple[Variable, Variable]]:
        """Yield each variable with its moving average (``use_ema=True``)."""
        return zip(
            self._trainable_variables, self._model_variables_moving_average, strict=True
        )

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Give the variables their moving averages, at the end of training."""
        if not self.use_ema:
            return
        if not self.built:
            raise ValueError("There are no moving averages yet: train first.")
        for variable in var_list:
            variable.assign(
                self._model_variables_moving_average[
                    self._get_variable_index(variable)
                ].value
            )


def _arguments(cls: type) -> Iterator[str]:
    """Yield the arguments of all constructors in the family, the oldest first."""
    for base in reversed(cls.__mro__):
        if issubclass(base, Optimizer) and "__init__" in vars(base):
            yield from inspect.signature(vars(base)["__init__"]).parameters


def _without_missing(
    grads: Sequence[Any], variables: Sequence[Variable]
) -> list[tuple[Any, Variable]]:
    """Leave out variables that have no gradient, with a warning that names them."""
    pairs = list(zip(grads, variables, strict=True))
    missing = [variable.path for grad, variable in pairs if grad is None]
    if len(missing) == len(pairs):
        raise ValueError(
            "No gradients provided for any variable. The loss does not depend on "
            f"{', '.join(missing)}."
        )
    if missing:
        warnings.warn(
            f"Gradients do not exist for variables {', '.join(missing)}: the loss does "
            "not depend on them, and they stay as they are.",
            stacklevel=4,
        )
    return [(grad, variable) for grad, variable in pairs if grad is not None]


def _as_gradient(gradient: Any, variable: Variable) -> Value:
    """Return a gradient as a value of its variable's type, refusing another shape."""
    if isinstance(gradient, Variable):
        gradient = gradient.value
    if not isinstance(gradient, Value):
        gradient = Constant(gradient, variable.dtype)
    if gradient.shape != variable.shape:
        raise ShapeError(
            f"The gradient of {variable.path!r} has the shape {gradient.shape}, the "
            f"variable {variable.shape}."
        )
    return ops.cast(gradient, variable.dtype)


def cast_to(dtype: str, *values: Any) -> list[Any]:
    """Return values as one type."""
    return [ops.cast(value, dtype) for value in values]


def clip_by_global_norm(grads: list[Any], clip_norm: float) -> list[Any]:
    """Scale gradients together, so that their common length is at most this.

    A length that is not finite makes all of them NaN, as in Keras.
    """
    squares = [ops.sum(ops.square(gradient)) for gradient in grads]
    length = ops.sqrt(ops.sum(ops.stack(squares)))
    scale = clip_norm * ops.minimum(1.0 / length, 1.0 / clip_norm)
    scale = scale + (length - length)
    return [gradient * scale for gradient in grads]


def with_common(function: F) -> F:
    """Give an `__init__` the arguments all optimizers share, after its own.

    They can be passed by position too, and `inspect.signature` shows them, as in Keras;
    an optimizer's own text holds only what is its own.
    """
    signature = _full_signature(function)

    @functools.wraps(function)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(self, *args, **kwargs).arguments
        rest = arguments.pop("kwargs", {})
        refuse_unknown(type(self).__name__, rest, self._keras2_arguments, signature)
        function(**arguments, **rest)

    checked.__signature__ = signature  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def _full_signature(function: Callable[..., None]) -> inspect.Signature:
    own = dict(inspect.signature(function).parameters)
    own.popitem()  # the shared ones, as type checkers see them
    # Keyword-only arguments come last, as in Keras' Muon.
    last = [p for p in own.values() if p.kind is p.KEYWORD_ONLY]
    first = [p for p in own.values() if p.kind is not p.KEYWORD_ONLY]
    shared = list(inspect.signature(Optimizer).parameters.values())
    rest = [p.replace(annotation=p.empty) for p in shared if p.name not in own]
    last = [p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in last]
    return inspect.Signature([*first, *rest[:-1], *last, rest[-1]])


# ---- updates that are made again -----------------------------------------------------
# Most optimizers do the same to every element of every variable. Then a single variable
# is traced, and its nodes are copied with other inputs for the rest.


def elementwise(update_step: F) -> F:
    """Mark an `update_step` that depends on a variable by its numbers alone.

    Its name and index must not matter. Its shape may: the traced nodes are inspected,
    and an update is only repeated if it treats every element by itself.
    """
    update_step.is_elementwise = True  # type: ignore[attr-defined]
    return update_step


class TracedUpdate:
    """The values that an update reads, computes and writes, by role.

    The first role is that of the variable, the others are those of its slots.
    """

    def __init__(
        self,
        scope: Scope,
        gradient: Value,
        variables: Sequence[Variable],
        update: Callable[[], None],
    ) -> None:
        before, known = dict(scope.writes), set(scope.reads)
        first = graph.next_number()
        update()
        roles = {variable: role for role, variable in enumerate(variables)}
        self._gradient = gradient
        self._shape = variables[0].shape
        self._read = [roles[v] for v in scope.reads if v in roles and v not in known]
        starts = [before.get(v, scope.reads.get(v)) for v in variables]
        self._starts: dict[Value, int] = {
            value: role for role, value in enumerate(starts) if value is not None
        }
        written = {v: x for v, x in scope.writes.items() if before.get(v) is not x}
        self._written = [(roles.get(v, -1), value) for v, value in written.items()]
        created = [
            value
            for value in graph.toposort(written.values(), ends=_Older(first))
            if isinstance(value, Node) and value.number > first
        ]
        self._created = [node for node in created if node.shape != ()]
        self._own = {gradient, *self._starts, *self._created}
        self._numbers: dict[tuple[Node, Any], Node] = {}  # broadcast, by their shape
        self.can_repeat = (
            self._shape != ()
            and all(role >= 0 for role, _ in self._written)
            and all(map(self._is_elementwise, created))
        )

    def _is_elementwise(self, node: Node) -> bool:
        """Return whether each element of a node depends on those at its index alone."""
        if node.shape == () or node.op is broadcast:  # a number that variables share
            return all(x.shape == () for x in node.inputs)
        return (
            node.op.kind == "pointwise"
            and node.shape == self._shape
            and self._own.issuperset(node.inputs)
        )

    def repeat(
        self, scope: Scope, gradient: Value, variables: Sequence[Variable]
    ) -> None:
        """Update other variables by another gradient."""
        for role in self._read:
            scope.read(variables[role])
        shape = variables[0].shape
        new: dict[Value, Value] = {
            start: scope.read(variables[role]) for start, role in self._starts.items()
        }
        new[self._gradient] = gradient
        for node in self._created:
            if node.op is broadcast:
                new[node] = self._number(node, shape)
                continue
            inputs = [new.get(value, value) for value in node.inputs]
            if node.op is stop_gradient:  # of an assignment, which makes its own
                new[node] = inputs[0]
            else:
                kind = (node.op, inputs, node.attrs)
                new[node] = Node(*kind, shape, node.dtype, node.origin)
        for role, value in self._written:
            scope.write(variables[role], new[value])

    def _number(self, node: Node, shape: tuple[int, ...]) -> Node:
        """Return a number, broadcast to another shape: variables of it share one."""
        key = node, shape
        if key not in self._numbers:
            attrs = {"shape": shape}
            self._numbers[key] = Node(
                broadcast, node.inputs, attrs, shape, node.dtype, node.origin
            )
        return self._numbers[key]


class _Older:
    """The set of all values that were created before a node of some number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Node) and value.number < self._number
