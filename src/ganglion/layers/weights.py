"""What a layer holds: its weights, the layers below it, and which of them train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion import keras2
from ganglion.random import SeedGenerator
from ganglion.variables import Variable


class WeightHolder:
    """The part of a `Layer` that knows its weights.

    Weights are those made by `add_weight` or kept as attributes; the layers below are
    those found in the attributes.
    """

    name: str
    built: bool
    _weights: list[Variable]
    _trainable: bool

    def sublayers(self) -> Iterator[Any]:
        """Yield the layers found in the attributes, in order, each once."""
        seen: set[int] = set()
        for name, value in vars(self).items():
            if name in ("_init_values", "_calls"):
                continue
            for one in _layers_in(value):
                if id(one) not in seen:
                    seen.add(id(one))
                    yield one

    def walk(self) -> Iterator[Any]:
        """Yield this layer and all below it, each once."""
        seen: set[int] = set()
        stack: list[Any] = [self]
        while stack:
            layer = stack.pop()
            if id(layer) not in seen:
                seen.add(id(layer))
                yield layer
                stack.extend(reversed(list(layer.sublayers())))

    def own_variables(self) -> list[Variable]:
        """Return the variables made by `add_weight` or kept as attributes."""
        found = list(self._weights)
        for value in vars(self).values():
            if isinstance(value, Variable) and value not in found:
                found.append(value)
        return found

    @property
    def weights(self) -> list[Variable]:
        """All weights, of this layer and of those below."""
        found: dict[Variable, None] = {}
        for layer in self.walk():
            found.update(dict.fromkeys(layer.own_variables()))
        return list(found)

    @property
    def variables(self) -> list[Variable]:
        """The weights and the states of random generators."""
        return [*self.weights, *(one.state for one in self.seed_generators())]

    def seed_generators(self) -> list[SeedGenerator]:
        """Return the random generators of this layer and of those below."""
        return [
            value
            for layer in self.walk()
            for value in vars(layer).values()
            if isinstance(value, SeedGenerator)
        ]

    @property
    def trainable(self) -> bool:
        """Whether training changes this layer's weights."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        for layer in self.sublayers():
            layer.trainable = value

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that training changes."""
        if not self.trainable:
            return []
        found = {one: None for one in self.own_variables() if one.trainable}
        for layer in self.sublayers():
            found.update(dict.fromkeys(layer.trainable_weights))
        return list(found)

    @trainable_weights.setter
    def trainable_weights(self, variables: list[Variable]) -> None:
        keras2.note("`self.trainable_weights = [...]`", "`add_weight`")
        self._weights.extend(one for one in variables if one not in self._weights)

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The weights that training leaves alone."""
        changed = set(self.trainable_weights)
        return [one for one in self.weights if one not in changed]

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training changes."""
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that gradients do not change."""
        changed = set(self.trainable_weights)
        return [one for one in self.variables if one not in changed]

    @property
    def losses(self) -> list[Any]:
        """The regularisation losses of the weights, as they are now."""
        return [
            one.regularizer(one)
            for one in self.trainable_weights
            if one.regularizer is not None
        ]

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of all weights."""
        return [one.numpy() for one in self.weights]

    def set_weights(self, weights: list[Any]) -> None:
        """Replace all weights, in the order of `get_weights`."""
        own = self.weights
        if len(own) != len(weights):
            raise ValueError(
                f'Layer "{self.name}" has {len(own)} weights, but {len(weights)} '
                "arrays were given."
            )
        arrays = [np.asarray(one) for one in weights]
        for variable, array in zip(own, arrays, strict=True):
            if variable.shape != array.shape:
                raise ValueError(
                    f'Layer "{self.name}", weight {variable.path!r}: expected shape '
                    f"{variable.shape}, got {array.shape}."
                )
        for variable, array in zip(own, arrays, strict=True):
            variable.assign(array)

    def count_params(self) -> int:
        """Return the number of elements of all weights."""
        if not self.built:
            raise ValueError(
                f'Layer "{self.name}" has no weights yet: call it on data or give the '
                "model an Input first."
            )
        return sum(one.size for one in self.weights)


def _layers_in(value: Any) -> Iterator[Any]:
    if isinstance(value, WeightHolder):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _layers_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _layers_in(one)
