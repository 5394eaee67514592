"""Methods of layers for scripts that were written for Keras 2 or PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ganglion import keras2, tensors
from ganglion.compiler.ir.graph import call_function
from ganglion.layers.construction import OldShape
from ganglion.layers.tracking import WeightHolder
from ganglion.metrics.base import Mean
from ganglion.symbolic import Call
from ganglion.variables import current_scope, suspended


class _ReportedMean(Mean):
    """The mean of what a layer passes to `add_metric`."""


class CompatMethods(WeightHolder):
    """The methods of a `Layer` that are not in the API of Keras 3."""

    _calls: list[Call]

    # ---- Keras 2 ---------------------------------------------------------------

    input_shape: Any = OldShape("input")
    output_shape: Any = OldShape("output")

    def get_output_at(self, node_index: int) -> Any:
        """Return the output of a call of a shared layer, as in Keras 2."""
        keras2.note(
            "`layer.get_output_at`", "what the call returned", changes_defaults=False
        )
        return self._calls[node_index].outputs

    def add_metric(
        self, value: Any, name: str | None = None, aggregation: str | None = None
    ) -> None:
        """Report the mean of a value, as in Keras 2; for use in `call`.

        Keras 3 has metrics in attributes instead: `self.metric.update_state(value)`.
        """
        new = "a metric in an attribute and its `update_state`"
        keras2.note("`add_metric`", new, changes_defaults=False)
        if aggregation not in (None, "mean"):
            raise ValueError(f"`aggregation` is 'mean' or None, not {aggregation!r}.")
        if name is None:
            raise ValueError("`add_metric` needs a `name` for what is reported.")
        known = {metric.name: metric for metric in self._tracker.metrics}
        if name not in known:
            with suspended():
                known[name] = self._tracker.track(_ReportedMean(name=name))
        # A metric in an attribute, whose result this is, reports it itself.
        if isinstance(known[name], _ReportedMean):
            known[name].update_state(value)

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Make assignments in steps that train, as in Keras 2; for use in `call`.

        They are what `K.update` and `K.moving_average_update` return there, pairs of a
        variable and its new value, and functions that assign.
        """
        keras2.note("`add_update`", "`variable.assign`", changes_defaults=False)
        if inputs is not None:
            keras2.note("`add_update(inputs=)`", "left out", changes_defaults=False)
        scope = current_scope()
        if scope is None or not scope.training or not self.trainable:
            return
        for update in updates if isinstance(updates, list) else [updates]:
            if callable(update):
                update()
            elif isinstance(update, tuple):
                variable, value = update
                variable.assign(value)

    @property
    def updates(self) -> list[Any]:
        """Return an empty list: layers make their assignments as they are called."""
        return []

    # ---- PyTorch ---------------------------------------------------------------

    def zero_grad(self) -> None:
        """Forget the gradients of `loss.backward()`, as in PyTorch."""
        call_function("zero_grad", self.trainable_variables)

    def to(self, device: Any) -> Self:
        """Return the layer itself for any of PyTorch's devices; refuse other types."""
        tensors.check_devices(type(self).__name__, device)
        return self

    def parameters(self, recurse: bool = True) -> Any:
        """Refuse: optimizers of PyTorch would take the weights from here."""
        raise NotImplementedError(
            f"{type(self).__name__}.parameters: optimizers of PyTorch do not train "
            "models of Ganglion. Use one of `keras.optimizers`: `loss.backward()`, "
            "then `optimizer.apply([v.value.grad for v in model.trainable_weights], "
            "model.trainable_weights)`."
        )

    def train(self, mode: bool = True) -> Self:
        """Return the layer itself, as Keras' layers do: `training=` says how to run."""
        return self

    def eval(self) -> Self:
        """Return the layer itself, as Keras' layers do: `training=` says how to run."""
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the weights by path, for `torch.save`."""
        import torch

        return {path: torch.tensor(np.array(v)) for path, v in self._by_path().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Assign weights by path, all of them."""
        weights = self._by_path()
        if weights.keys() != state_dict.keys():
            odd = sorted(weights.keys() ^ state_dict.keys())
            raise ValueError(
                f"`load_state_dict`: {odd[0]!r} is only in the layer or only among the "
                "values. They are those that `state_dict` gave, by path."
            )
        for path, value in state_dict.items():
            weights[path].assign(np.asarray(value))

    def _by_path(self) -> dict[str, Any]:
        weights = {weight.path: weight for weight in self.weights}
        if len(weights) < len(self.weights):
            raise ValueError(
                "`state_dict`: several weights have the same path; give the layers "
                "names of their own, or use `save_weights`."
            )
        return weights
