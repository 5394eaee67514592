"""Loss scaling: gradients of float16 are kept from vanishing, within the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganglion import initializers, ops
from ganglion.optimizers.base import Optimizer
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    serialize_keras_object,
)
from ganglion.variables import Variable, current_scope

# Arguments of all optimizers, which belong to the inner one; older files have them.
_OF_INNER: dict[str, Any] = {
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}


@export("keras.optimizers")
class LossScaleOptimizer(Optimizer):
    """Multiplies the loss by a scale that it adapts, and gradients by its inverse.

    A step with gradients that are not finite changes no weight and halves the scale;
    after `dynamic_growth_steps` steps without any the scale doubles.

    >>> from ganglion.optimizers import SGD
    >>> float(LossScaleOptimizer(SGD(), initial_scale=4.0).scale_loss(0.5))
    2.0
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        for argument, default in _OF_INNER.items():
            if kwargs.pop(argument, default) != default:
                raise ValueError(
                    f"LossScaleOptimizer does not support `{argument}`. Instead, set "
                    f"`{argument}` on the `inner_optimizer`."
                )
        if not kwargs.pop("dynamic", True):  # Keras 2's argument
            raise ValueError(
                "LossScaleOptimizer does not support `dynamic=False`: for a fixed "
                "scale, set `loss_scale_factor` on the optimizer itself."
            )
        if kwargs:
            names = "`, `".join(kwargs)
            raise ValueError(
                f"LossScaleOptimizer does not support arguments: `{names}`."
            )
        self.inner_optimizer = inner_optimizer
        super().__init__(learning_rate=0.0, name=name)
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = dynamic_growth_steps
        inner_optimizer.loss_scale_factor = None  # gradients are scaled once

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self.step_counter = self.add_variable((), dtype="int64", name="step_counter")
        self.dynamic_scale = self.add_variable(
            (),
            initializers.Constant(self.initial_scale),
            dtype="float32",
            name="dynamic_scale",
        )
        self.inner_optimizer.build(variables)

    @property
    def variables(self) -> list[Variable]:
        return self._variables + self.inner_optimizer.variables

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the inner optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        self.inner_optimizer.learning_rate = rate

    @property
    def iterations(self) -> Any:
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Any) -> None:
        self.inner_optimizer.iterations = variable

    def scale_loss(self, loss: Any) -> Any:
        """Multiply the loss by the scale, which `apply` divides by again."""
        scale = self.dynamic_scale if self.built else self.initial_scale
        return ops.multiply(loss, scale)

    def check_finite(self, grads: Sequence[Any]) -> Any:
        """Return whether all gradients are finite."""
        finite = [ops.all(ops.isfinite(grad)) for grad in grads if grad is not None]
        return ops.all(ops.stack(finite))

    def _apply(self, pairs: list[tuple[Any, Variable]]) -> None:
        scope = current_scope()
        assert scope is not None
        is_finite = self.check_finite([grad for grad, _ in pairs])
        before = dict(scope.writes)
        self.inner_optimizer._apply(
            [
                (grad if v.overwrite_with_gradient else grad / self.dynamic_scale, v)
                for grad, v in pairs
            ]
        )
        for variable, new in list(scope.writes.items()):
            old = before.get(variable, scope.reads[variable])
            if new is not old:
                scope.writes[variable] = ops.where(is_finite, new, old)
        self._adapt(is_finite)

    def _adapt(self, is_finite: Any) -> None:
        grows = ops.equal(self.step_counter, self.dynamic_growth_steps - 1)
        counts = ops.logical_and(is_finite, ops.logical_not(grows))
        factor = ops.where(is_finite, ops.where(grows, 2.0, 1.0), 0.5)
        self.step_counter.assign(ops.where(counts, self.step_counter + 1, 0))
        self.dynamic_scale.assign(self.dynamic_scale * factor)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    def sibling(self) -> Any:
        config = {
            **self.get_config(),
            "inner_optimizer": self.inner_optimizer.sibling(),
        }
        return type(self)(**config)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inner_optimizer": serialize_keras_object(self.inner_optimizer),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        inner = deserialize_keras_object(config["inner_optimizer"], custom_objects)
        return cls(**{**config, "inner_optimizer": inner})
