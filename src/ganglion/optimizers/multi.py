"""Several optimizers at once, each for the variables that a map gives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from ganglion.optimizers.base import Optimizer
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    serialize_keras_object,
)
from ganglion.variables import Variable


def _checked(optimizer: Any) -> Optimizer:
    """Return an optimizer that may be one of several; refuse what wraps others."""
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"{optimizer!r} is not an Optimizer.")
    name = type(optimizer).__name__
    if isinstance(optimizer, MultiOptimizer) or name == "LossScaleOptimizer":
        raise ValueError(
            f"One optimizer of several: an optimizer cannot be {name}. {name} cannot "
            "be used inside an MultiOptimizer."
        )
    return optimizer


@export("keras.optimizers")
class OptimizerMap(MutableMapping[str, Optimizer]):
    """Optimizers by the path of a variable, or by an expression that matches it.

    >>> from ganglion import optimizers
    >>> several = OptimizerMap(optimizers.SGD())
    >>> several["encoder/.*"] = optimizers.Adam()
    >>> type(several["encoder/dense/kernel"]).__name__, type(several["head"]).__name__
    ('Adam', 'SGD')
    """

    def __init__(
        self,
        default_optimizer: Optimizer,
        optimizer_map: dict[str, Optimizer] | None = None,
    ) -> None:
        if not isinstance(default_optimizer, Optimizer):
            raise TypeError(
                f"`default_optimizer` must be an Optimizer, got {default_optimizer!r}."
            )
        if optimizer_map is not None and not isinstance(optimizer_map, dict):
            raise TypeError(
                f"`optimizer_map` must be a dictionary, got {optimizer_map!r}."
            )
        self._default_optimizer = default_optimizer
        self._optimizer_map = dict(optimizer_map or {})

    @property
    def default_optimizer(self) -> Optimizer:
        """The optimizer of all variables that no key matches."""
        return self._default_optimizer

    def __getitem__(self, key: str) -> Optimizer:
        if key in self._optimizer_map:
            return self._optimizer_map[key]
        matching = [known for known in self._optimizer_map if re.fullmatch(known, key)]
        if len(matching) > 1:
            raise ValueError(
                f"Several keys match the variable {key!r}: {', '.join(matching)}."
            )
        return self._optimizer_map[matching[0]] if matching else self.default_optimizer

    def __setitem__(self, key: str, optimizer: Optimizer) -> None:
        if key in self._optimizer_map:
            raise ValueError(
                f"The key {key!r} has an optimizer already: {self._optimizer_map[key]}."
            )
        if not isinstance(key, str):
            raise ValueError(f"A key must be a string, got {key!r}.")
        self._optimizer_map[key] = _checked(optimizer)

    def __delitem__(self, key: str) -> None:
        del self._optimizer_map[key]

    def __len__(self) -> int:
        return len(self._optimizer_map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._optimizer_map)

    def __call__(self, variable: Variable) -> Optimizer:
        """Return the optimizer of a variable."""
        return self[variable.path]

    def get_config(self) -> dict[str, Any]:
        """Return plain data that rebuilds the map."""
        return {
            "default_optimizer": serialize_keras_object(self._default_optimizer),
            "optimizer_map": serialize_keras_object(self._optimizer_map),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        """Make a map from its configuration."""
        return cls(
            *(
                deserialize_keras_object(config[name], custom_objects)
                for name in ("default_optimizer", "optimizer_map")
            )
        )


@export("keras.optimizers")
class MultiOptimizer(Optimizer):
    """Updates every variable by the optimizer that a map or a function gives for it.

    >>> from ganglion import optimizers
    >>> by_path = OptimizerMap(optimizers.SGD(), {"head/.*": optimizers.Adam()})
    >>> [type(each).__name__ for each in MultiOptimizer(by_path).optimizers]
    ['Adam', 'SGD']
    """

    def __init__(
        self,
        optimizer_map: OptimizerMap | Callable[[Variable], Optimizer],
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ) -> None:
        self._inner_optimizers: list[Optimizer] = []
        super().__init__(0.0, loss_scale_factor=loss_scale_factor, name=name)
        self._optimizer_map = optimizer_map
        self._optimizer_of: dict[Variable, Optimizer] = {}
        if isinstance(optimizer_map, OptimizerMap):
            for optimizer in (*optimizer_map.values(), optimizer_map.default_optimizer):
                self._take(optimizer)

    def _take(self, optimizer: Optimizer) -> None:
        if not any(known is optimizer for known in self._inner_optimizers):
            optimizer.loss_scale_factor = self.loss_scale_factor
            self._inner_optimizers.append(optimizer)

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers that share the variables."""
        return self._inner_optimizers

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self._optimizer_of[variable] = _checked(self._optimizer_map(variable))
            self._take(self._optimizer_of[variable])
        for optimizer in self._inner_optimizers:
            own = [each for each in variables if self._optimizer_of[each] is optimizer]
            if own:
                optimizer.build(own)

    @property
    def variables(self) -> list[Variable]:
        inner = (each.variables for each in self._inner_optimizers)
        return self._variables + [variable for each in inner for variable in each]

    @property
    def learning_rate(self) -> Any:
        """Refuse: each of the optimizers has its own."""
        raise AttributeError(
            "A MultiOptimizer has no learning rate of its own: read those of its "
            "`optimizers`."
        )

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        raise AttributeError(
            "A MultiOptimizer has no learning rate of its own: set those of its "
            "`optimizers`."
        )

    @property
    def loss_scale_factor(self) -> float | None:
        """The factor of the loss, common to all of the optimizers."""
        return self._loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._loss_scale_factor = value
        for optimizer in self._inner_optimizers:
            optimizer.loss_scale_factor = value

    def _apply(self, pairs: list[tuple[Any, Variable]]) -> None:
        for optimizer in self._inner_optimizers:
            own = [pair for pair in pairs if self._optimizer_of[pair[1]] is optimizer]
            if own:
                optimizer._apply(own)
        self._iterations.assign_add(1)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        for optimizer in self._inner_optimizers:
            own = [each for each in var_list if self._optimizer_of[each] is optimizer]
            if own:
                optimizer.finalize_variable_values(own)

    def get_config(self) -> dict[str, Any]:
        return {
            "optimizer_map": serialize_keras_object(self._optimizer_map),
            "loss_scale_factor": self.loss_scale_factor,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        by_path = deserialize_keras_object(config["optimizer_map"], custom_objects)
        return cls(**{**config, "optimizer_map": by_path})
