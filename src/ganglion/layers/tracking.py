"""The contents of a layer's attributes: variables, layers, metrics and random seeds.

They are tracked wherever they are, as in Keras: in an attribute or in lists, tuples,
dictionaries and sets, nested, also when they are appended later. `Tracker.track` is the
one place that looks; a layer calls it for whatever is set as an attribute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from ganglion import keras2
from ganglion.layers.tracked_containers import TRACKED
from ganglion.metrics.base import Metric
from ganglion.random import SeedGenerator
from ganglion.variables import Variable, current_scope

_STATE = ("trainable", "fixed", "layers")
_LOCKED = (
    "You cannot add new elements of state (variables or sub-layers) to a layer that is "
    "already built: it would get new ones at every call. Make them in `__init__()` or "
    "in `build()`."
)


class Tracker:
    """The things that belong to a layer, without duplicates, in order of assignment."""

    def __init__(self, layer_type: type) -> None:
        self._layer_type = layer_type
        self._stores: dict[str, list[Any]] = {
            "trainable": [],  # variables, by what they were when they came
            "fixed": [],
            "layers": [],
            "metrics": [],
            "seeds": [],
        }
        self._known: set[int] = set()
        self._watched: list[Any] = []  # containers that cannot report their changes
        self.is_locked = False  # during a `call`: refuses new variables

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": None}  # a copy's things have other numbers

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._known = {id(item) for store in self._stores.values() for item in store}

    # ---- contents ----------------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """The variables; first those that were trainable when they were added."""
        return [*self._now("trainable"), *self._stores["fixed"]]

    @property
    def fixed(self) -> list[Variable]:
        """The variables that never train."""
        return self._now("fixed")

    @property
    def trainable(self) -> list[Variable]:
        """The variables that train as long as the layer does."""
        return self._now("trainable")

    @property
    def layers(self) -> list[Any]:
        """The layers."""
        return self._now("layers")

    @property
    def metrics(self) -> list[Metric]:
        """The metrics."""
        return self._now("metrics")

    @property
    def seeds(self) -> list[SeedGenerator]:
        """The random generators."""
        return self._now("seeds")

    def _now(self, kind: str) -> list[Any]:
        for container in self._watched:
            for content in _contents(container):
                self.track(content)
        return list(self._stores[kind])

    # ---- additions and removals --------------------------------------------------

    def track(self, value: Any) -> Any:
        """Track a value's contents; return it, with containers that report changes."""
        kind = self._kind(value)
        if kind is not None:
            if id(value) not in self._known:
                if self.is_locked and kind in _STATE and not keras2.active():
                    raise ValueError(_LOCKED)
                self._known.add(id(value))
                self._stores[kind].append(value)
            return value
        if type(value) in TRACKED:
            return TRACKED[type(value)](value, self)
        if isinstance(value, tuple):
            return self._track_tuple(value)
        if isinstance(value, (list, dict, set, deque)):
            self.watch(value)
        return value

    def watch(self, value: Any) -> None:
        """Track the contents of a value, now and later, without replacing it."""
        if not isinstance(value, (list, dict, set, deque)):
            self.track(value)
        elif not any(container is value for container in self._watched):
            self._watched.append(value)
            for content in _contents(value):
                self.watch(content)

    def _track_tuple(self, value: tuple[Any, ...]) -> Any:
        parts = [self.track(item) for item in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        is_named = hasattr(value, "_fields")
        return type(value)(*parts) if is_named else type(value)(parts)

    def _kind(self, value: Any) -> str | None:
        if isinstance(value, Variable):
            return "trainable" if value.trainable else "fixed"
        if isinstance(value, self._layer_type):
            return "layers"
        if isinstance(value, Metric):
            return "metrics"
        return "seeds" if isinstance(value, SeedGenerator) else None

    def untrack(self, value: Any) -> None:
        """Stop tracking an object that was removed from its container."""
        if id(value) in self._known:
            self._known.discard(id(value))
            for store in self._stores.values():
                store[:] = [item for item in store if item is not value]


class WeightHolder:
    """The part of a `Layer` that holds its weights.

    They are those created by `add_weight` and those held in attributes.
    """

    name: str
    built: bool
    _tracker: Tracker
    # Attributes of the class itself, which are not searched for variables.
    _untracked: frozenset[str] = frozenset(
        {
            "_tracker",
            "created",
            "_init_values",
            "input_spec",
            "input_hint",
            "_calls",
            "_was_called",
            "_initial_weights",
            "_losses",
            "_loss_functions",
            "_build_shape",
            "_trainable",
            "trainable",
            "trainable_weights",
        }
    )
    _trainable: bool
    _losses: list[Any]
    _loss_functions: list[Any]

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
        """Track a variable, a layer or a container; return the object to store."""
        value = self._tracker.track(value)
        if isinstance(value, Variable) and not getattr(self, "_trainable", True):
            value.trainable = False
        return value

    def _untrack_variable(self, variable: Variable) -> None:
        """Stop tracking a variable; return None, to be set in its place."""
        self._tracker.untrack(variable)

    @property
    def _layers(self) -> list[Any]:
        return self._layers_below()

    @property
    def _trainable_variables(self) -> list[Variable]:
        """The variables of this layer alone that train as long as the layer does."""
        return self._tracker.trainable

    @property
    def _non_trainable_variables(self) -> list[Variable]:
        return self._tracker.fixed

    def _layers_below(self) -> list[Any]:
        """Return the layers directly below this layer, in order, without duplicates."""
        return self._tracker.layers

    def _flatten_layers(
        self, include_self: bool = True, recursive: bool = True
    ) -> list[Any]:
        """Return this layer and all below it, each once."""
        if not recursive:
            return [*([self] if include_self else []), *self._layers_below()]
        layers: list[Any] = []
        seen: set[int] = set()
        stack: list[Any] = [self]
        while stack:
            layer = stack.pop()
            if id(layer) not in seen:
                seen.add(id(layer))
                if layer is not self or include_self:
                    layers.append(layer)
                stack.extend(reversed(layer._layers_below()))
        return layers

    def _own_variables(self) -> list[Variable]:
        """Return the variables of this layer alone, in the order of Keras' files."""
        return self._tracker.variables

    @property
    def weights(self) -> list[Variable]:
        """All weights, of this layer and of those below."""
        return _unique(layer._tracker.variables for layer in self._flatten_layers())

    @property
    def variables(self) -> list[Variable]:
        """The weights and the states of random generators."""
        return _unique(
            [*layer._tracker.variables, *(seed.state for seed in layer._tracker.seeds)]
            for layer in self._flatten_layers()
        )

    @property
    def _seed_generators(self) -> list[SeedGenerator]:
        """The random generators of this layer and of those below."""
        return _unique(layer._tracker.seeds for layer in self._flatten_layers())

    @property
    def metrics(self) -> list[Any]:
        """The metrics kept in attributes, of this layer and of those below."""
        return _unique(layer._tracker.metrics for layer in self._flatten_layers())

    @property
    def metrics_variables(self) -> list[Variable]:
        """The variables of all metrics."""
        return [variable for metric in self.metrics for variable in metric.variables]

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
        return [weight for weight in self.weights if weight.trainable]

    @trainable_weights.setter
    def trainable_weights(self, variables: list[Variable]) -> None:
        keras2.note("`self.trainable_weights = [...]`", "`add_weight`")
        for variable in variables:
            self._track(variable)

    @property
    def _trainable_weights(self) -> list[Variable]:
        """Keras 2's list of a layer's weights; variables added to it are tracked."""
        return self._own_weights_of_keras2(True)

    @_trainable_weights.setter
    def _trainable_weights(self, variables: list[Variable]) -> None:
        self._own_weights_of_keras2(True).extend(variables)

    @property
    def _non_trainable_weights(self) -> list[Variable]:
        """Keras 2's list of a layer's own weights that training leaves alone."""
        return self._own_weights_of_keras2(False)

    @_non_trainable_weights.setter
    def _non_trainable_weights(self, variables: list[Variable]) -> None:
        self._own_weights_of_keras2(False).extend(variables)

    def _own_weights_of_keras2(self, trainable: bool) -> list[Variable]:
        known = [weight for weight in self.weights if weight.trainable == trainable]
        return _OwnWeights(known, self, trainable)

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The weights that training leaves alone."""
        changed = set(self.trainable_weights)
        return [weight for weight in self.weights if weight not in changed]

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training changes."""
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that gradients do not change."""
        changed = set(self.trainable_weights)
        return [variable for variable in self.variables if variable not in changed]

    @property
    def losses(self) -> list[Any]:
        """The losses that `call` added, here and below, and the weights' penalties.

        Outside of training, it is what the last call on arrays added.
        """
        layers = self._flatten_layers()
        scope = current_scope()
        if scope is not None:
            added = [loss for layer in layers for loss in scope.losses_of(layer)]
        else:
            added = [loss for layer in layers for loss in layer._losses]
        added += [function() for layer in layers for function in layer._loss_functions]
        return added + [
            weight.regularizer(weight)
            for weight in self.trainable_weights
            if weight.regularizer is not None
        ]

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of all weights."""
        return [weight.numpy() for weight in self.weights]

    def set_weights(self, weights: list[Any]) -> None:
        """Replace all weights, in the order of `get_weights`."""
        own = self.weights
        if len(own) != len(weights):
            raise ValueError(
                f'Layer "{self.name}" has {len(own)} weights, but {len(weights)} '
                "arrays were given."
            )
        arrays = [np.asarray(weight) for weight in weights]
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
        return sum(weight.size for weight in self.weights)


def _unique(groups: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the members of all groups, each once and in order."""
    return list({id(item): item for group in groups for item in group}.values())


def _contents(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


class _OwnWeights(list[Variable]):
    """The weights of a layer: what is appended to this list, the layer tracks."""

    def __init__(
        self, weights: Iterable[Variable], holder: WeightHolder, trainable: bool
    ) -> None:
        super().__init__(weights)
        self._holder, self._trainable = holder, trainable

    def append(self, weight: Variable) -> None:
        self.extend([weight])

    def extend(self, weights: Iterable[Variable]) -> None:
        for weight in weights:
            if not any(known is weight for known in self):
                weight.trainable = self._trainable
                self._holder._track(weight)
                super().append(weight)

    def __iadd__(self, weights: Iterable[Variable]) -> Self:  # type: ignore[override, misc]
        self.extend(weights)
        return self
