"""What a layer holds: its weights, the layers below it, and which of them train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion import keras2
from ganglion.layers.tracking import Tracker
from ganglion.random import SeedGenerator
from ganglion.variables import Variable, current_scope


class WeightHolder:
    """The part of a `Layer` that knows its weights.

    They are what `add_weight` made and what the attributes hold: see `tracking`.
    """

    name: str
    built: bool
    _tracker: Tracker
    # What a class keeps for itself, and finds in its own way or not at all.
    _untracked: frozenset[str] = frozenset(
        {
            "_tracker",
            "created",
            "_init_values",
            "input_spec",
            "input_hint",
            "_calls",
            "_initial_weights",
            "_losses",
            "_build_shape",
            "_trainable",
            "trainable",
            "trainable_weights",
        }
    )
    _trainable: bool
    _losses: list[Any]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._untracked:
            value = self._track(value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        value = getattr(self, name)
        super().__delattr__(name)
        if isinstance(value, Variable):
            self._tracker.untrack(value)

    def _track(self, value: Any) -> Any:
        """Take up a variable, a layer or whatever holds some; return what to keep."""
        value = self._tracker.track(value)
        if isinstance(value, Variable) and not getattr(self, "_trainable", True):
            value.trainable = False
        return value

    def _layers_below(self) -> list[Any]:
        """Return the layers directly below this one, in order, each once."""
        return self._tracker.layers

    def _flatten_layers(
        self, include_self: bool = True, recursive: bool = True
    ) -> Iterator[Any]:
        """Yield this layer and all below it, each once."""
        if not recursive:
            yield from [*([self] if include_self else []), *self._layers_below()]
            return
        seen: set[int] = set()
        stack: list[Any] = [self]
        while stack:
            layer = stack.pop()
            if id(layer) not in seen:
                seen.add(id(layer))
                if layer is not self or include_self:
                    yield layer
                stack.extend(reversed(layer._layers_below()))

    def _own_variables(self) -> list[Variable]:
        """Return the variables of this layer alone, in the order of Keras' files."""
        return self._tracker.variables

    @property
    def weights(self) -> list[Variable]:
        """All weights, of this layer and of those below."""
        found: dict[Variable, None] = {}
        for layer in self._flatten_layers():
            found.update(dict.fromkeys(layer._own_variables()))
        return list(found)

    @property
    def variables(self) -> list[Variable]:
        """The weights and the states of random generators."""
        found: dict[Variable, None] = {}
        for layer in self._flatten_layers():
            found.update(dict.fromkeys(layer._own_variables()))
            found.update((one.state, None) for one in layer._tracker.seeds)
        return list(found)

    def _seed_generators(self) -> list[SeedGenerator]:
        """Return the random generators of this layer and of those below."""
        found = [
            one for layer in self._flatten_layers() for one in layer._tracker.seeds
        ]
        return list({id(one): one for one in found}.values())

    @property
    def metrics(self) -> list[Any]:
        """The metrics kept in attributes, of this layer and of those below."""
        found = [m for layer in self._flatten_layers() for m in layer._tracker.metrics]
        return list({id(one): one for one in found}.values())

    @property
    def metrics_variables(self) -> list[Variable]:
        """The variables of all metrics."""
        return [variable for one in self.metrics for variable in one.variables]

    @property
    def trainable(self) -> bool:
        """Whether training changes this layer's weights."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        for variable in self._tracker.trainable:
            variable.trainable = self._trainable
        for layer in self._layers_below():
            layer.trainable = value

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that training changes."""
        if not self.trainable:
            return []
        return [one for one in self.weights if one.trainable]

    @trainable_weights.setter
    def trainable_weights(self, variables: list[Variable]) -> None:
        keras2.note("`self.trainable_weights = [...]`", "`add_weight`")
        for one in variables:
            self._track(one)

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
        """What `call` added to the loss, here and below, and the weights' penalties.

        Outside of training, it is what the last call on arrays added.
        """
        layers = list(self._flatten_layers())
        scope = current_scope()
        if scope is not None:
            added = [loss for layer in layers for loss in scope.losses_of(layer)]
        else:
            added = [loss for layer in layers for loss in layer._losses]
        return added + [
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
