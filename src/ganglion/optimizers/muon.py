"""Muon: steps along orthogonalized momentum for matrices, AdamW for all the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from ganglion import ops
from ganglion.hyperparameters import Hyperparameter
from ganglion.optimizers.arguments import Shared, below_one, number, small
from ganglion.optimizers.base import Optimizer, cast_to, with_common
from ganglion.serialization import export
from ganglion.variables import Variable


@export("keras.optimizers", "muon")
class Muon(Optimizer):
    """Steps whose singular values are all about one, by Newton and Schulz's iteration.

    That is for matrices; embeddings, variables whose path an expression of
    `exclude_layers` matches, and all that is no matrix move as by AdamW.

    >>> import numpy as np
    >>> w = Variable(np.ones((2, 2)), name="w")
    >>> Muon(learning_rate=0.5).apply([np.array([[3.0, -0.1], [1.0, 1.0]])], [w])
    >>> w.numpy().round(2)
    array([[0.89, 1.04],
           [0.97, 0.86]], dtype=float32)
    """

    adam_beta_1 = Hyperparameter()
    adam_beta_2 = Hyperparameter()
    adam_weight_decay = Hyperparameter()
    adam_lr_ratio = Hyperparameter()
    epsilon = Hyperparameter()
    momentum = Hyperparameter()
    rms_rate = Hyperparameter()

    @with_common
    def __init__(
        self,
        learning_rate: Any = 0.001,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_weight_decay: float | None = 0.004,
        epsilon: float = 1e-7,
        weight_decay: float | None = 0.004,
        *,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.7750,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1,
        momentum: float = 0.95,
        ns_steps: int = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
        **common: Unpack[Shared],
    ) -> None:
        super().__init__(learning_rate, weight_decay, **common)
        self.adam_beta_1 = below_one("adam_beta_1", adam_beta_1)
        self.adam_beta_2 = below_one("adam_beta_2", adam_beta_2)
        self.adam_weight_decay = adam_weight_decay
        self.epsilon = small(epsilon)
        self.exclude_layers = list(exclude_layers or ())
        self.exclude_embeddings = bool(exclude_embeddings)
        self.muon_a, self.muon_b, self.muon_c = muon_a, muon_b, muon_c
        self.adam_lr_ratio = adam_lr_ratio
        self.momentum = number("momentum", momentum, high=1.0)
        self.ns_steps, self.nesterov = int(ns_steps), bool(nesterov)
        self.rms_rate = rms_rate

    def _should_use_adamw(self, variable: Variable) -> bool:
        if len(variable.shape) != 2:
            return True
        if self.exclude_embeddings and "embedding" in variable.path.lower():
            return True
        return any(re.search(part, variable.path) for part in self.exclude_layers)

    def _add_slots(self, variables: Sequence[Variable]) -> None:
        self._momentums: dict[Variable, Variable] = {}
        self._velocities: dict[Variable, Variable] = {}
        for variable in variables:
            slot = self.add_variable_from_reference(variable, "momentum")
            self._momentums[variable] = slot
            if self._should_use_adamw(variable):
                slot = self.add_variable_from_reference(variable, "velocity")
                self._velocities[variable] = slot

    def update_step(
        self, gradient: Any, variable: Variable, learning_rate: Any
    ) -> None:
        rate, gradient = cast_to(variable.dtype, learning_rate, gradient)
        m, v = self._momentums[variable], self._velocities.get(variable)
        if v is not None:
            self._adam_step(gradient, variable, rate * self.adam_lr_ratio, m, v)
            return
        self.assign_add(m, gradient + m * (self.momentum - 1))
        direction = gradient + self.momentum * m if self.nesterov else m
        update = self.zeropower_via_newtonschulz5(direction, self.ns_steps)
        self.assign_sub(variable, self.lr_adjust(rate * update))

    def _adam_step(
        self, gradient: Any, variable: Variable, rate: Any, m: Variable, v: Variable
    ) -> None:
        step = ops.cast(self.iterations + 1, variable.dtype)
        beta_1, beta_2 = cast_to(variable.dtype, self.adam_beta_1, self.adam_beta_2)
        corrected = ops.sqrt(1 - ops.power(beta_2, step))
        alpha = rate * corrected / (1 - ops.power(beta_1, step))
        self.assign_add(m, (gradient - m) * (1 - self.adam_beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.adam_beta_2))
        self.assign_sub(variable, m * alpha / (ops.sqrt(v) + self.epsilon))

    def lr_adjust(self, x: Any) -> Any:
        """Scale an update so that the learning rate of Adam fits, too."""
        if self.rms_rate is None:
            return x
        return x * (max(x.shape) ** 0.5) * self.rms_rate

    def zeropower_via_newtonschulz5(self, x: Any, steps: int) -> Any:
        """Bring the singular values of a matrix near one, in `steps` iterations."""
        shape = tuple(x.shape)
        if len(shape) < 2:
            raise ValueError(
                f"Only matrices have singular values, got an array of shape {shape}."
            )
        is_tall = shape[-2] > shape[-1]
        x = ops.swapaxes(x, -2, -1) if is_tall else x
        length = ops.sqrt(ops.sum(ops.square(x), axis=(-2, -1), keepdims=True))
        x = x / (length + 1e-7)  # the largest singular value is now at most one
        for _ in range(steps):
            square = ops.matmul(x, ops.swapaxes(x, -2, -1))
            fourth = ops.matmul(self.muon_c * square, square)
            x = self.muon_a * x + ops.matmul(self.muon_b * square + fourth, x)
        return ops.swapaxes(x, -2, -1) if is_tall else x

    def _apply_weight_decay(self, variables: Iterable[Variable]) -> None:
        for variable in variables:
            is_adam = self._should_use_adamw(variable)
            decay = self.adam_weight_decay if is_adam else self.weight_decay
            if decay is not None and self._use_weight_decay(variable):
                rate = ops.cast(self._rate(), variable.dtype)
                variable.assign(variable - variable * decay * rate)
