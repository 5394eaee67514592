"""The Optimizer: an `update_step` per variable, written in ops, and what surrounds it.

Everything happens inside of a scope: the step graph's when a model is traced, else one
of its own over plain arrays. There is one way through the code, without Python control
flow on values: what happens only at some steps is chosen by `ops.where`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ganglion import ops
from ganglion.compiler.ir.graph import Constant, ShapeError, Value
from ganglion.compiler.ir.origin import inside
from ganglion.optimizers.state import State
from ganglion.variables import Scope, Variable, current_scope


class Optimizer(State):
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

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        """Move one variable; every optimizer says how."""
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
        for one in variables:
            if one not in self._indices:
                raise ValueError(
                    f"This optimizer was built without the variable {one.path!r}. Make "
                    "a new optimizer for a new set of variables."
                )
        return list(variables)

    def _apply(self, pairs: list[tuple[Any, Variable]]) -> None:
        with inside(self.name):
            grads = [_as_gradient(grad, variable) for grad, variable in pairs]
            variables = [variable for _, variable in pairs]
            grads, variables = self._overwrite(grads, variables)
            if self.loss_scale_factor is not None:
                grads = [one / self.loss_scale_factor for one in grads]
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
        """Put gradients in place of the variables that ask for it; return the rest.

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
                slot = self._accumulated[self._get_variable_index(variable)]
                largest = ops.maximum(gradient, slot)
                slot.assign(ops.where(is_update, ops.zeros_like(largest), largest))
                new = ops.where(is_update, largest, variable)
            variable.assign(new)
        rest = [one for one in pairs if not one[1].overwrite_with_gradient]
        return [gradient for gradient, _ in rest], [variable for _, variable in rest]

    def _update(self, grads: list[Any], variables: list[Variable]) -> None:
        grads = self._clip_gradients(grads)
        self._apply_weight_decay(variables)
        self._update_variables(grads, variables, self._rate())

    def _update_variables(
        self, grads: list[Any], variables: list[Variable], rate: Any
    ) -> None:
        for gradient, variable in zip(grads, variables, strict=True):
            self.update_step(gradient, variable, rate)

    def _accumulate(self, grads: list[Any], variables: list[Variable]) -> None:
        """Add the gradients up, and keep an update only at every n-th step.

        The update is traced as it stands, whatever variables it writes; afterwards each
        of them chooses between its new and its old value.
        """
        steps = self.gradient_accumulation_steps
        assert steps is not None
        scope = current_scope()
        assert scope is not None
        is_update = ops.equal((self._iterations + 1) % steps, 0)
        totals = {
            self._accumulated[self._get_variable_index(variable)]: gradient
            + self._accumulated[self._get_variable_index(variable)]
            for gradient, variable in zip(grads, variables, strict=True)
        }
        before = dict(scope.writes)
        self._update([total / steps for total in totals.values()], variables)
        for variable, new in list(scope.writes.items()):
            old = before.get(variable, scope.reads[variable])
            if new is not old:
                scope.writes[variable] = ops.where(is_update, new, old)
        for slot in self._accumulated:
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
            return [self._clip_by_norm(one) for one in grads]
        if self.global_clipnorm:
            return clip_by_global_norm(grads, self.global_clipnorm)
        if self.clipvalue:
            return [ops.clip(one, -self.clipvalue, self.clipvalue) for one in grads]
        return grads

    def _clip_by_norm(self, gradient: Any) -> Any:
        length = ops.sqrt(ops.sum(ops.square(gradient)))
        return gradient * self.clipnorm / ops.maximum(length, self.clipnorm)

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Let no weight decay act on these variables, or on names with these parts."""
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
        return zip(self._trainable_variables, self._averages, strict=True)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Give the variables their moving averages, at the end of training."""
        if not self.use_ema:
            return
        if not self.built:
            raise ValueError("There are no moving averages yet: train first.")
        for variable in var_list:
            variable.assign(self._averages[self._get_variable_index(variable)].value)


def _without_missing(
    grads: Sequence[Any], variables: Sequence[Variable]
) -> list[tuple[Any, Variable]]:
    """Leave out variables that have no gradient, with a warning that names them."""
    pairs = list(zip(grads, variables, strict=True))
    missing = [variable.path for grad, variable in pairs if grad is None]
    if len(missing) == len(pairs):
        raise ValueError(
            f"None of the variables has a gradient: {', '.join(missing)}. The loss "
            "does not depend on them."
        )
    if missing:
        warnings.warn(
            f"No gradient reaches the variables {', '.join(missing)}: the loss does "
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


def clip_by_global_norm(grads: list[Any], clip_norm: float) -> list[Any]:
    """Scale gradients together, so that their common length is at most this.

    A length that is not finite makes all of them NaN, as in Keras.
    """
    squares = [ops.sum(ops.square(one)) for one in grads]
    length = ops.sqrt(ops.sum(ops.stack(squares)))
    scale = clip_norm * ops.minimum(1.0 / length, 1.0 / clip_norm)
    scale = scale + (length - length)
    return [one * scale for one in grads]
