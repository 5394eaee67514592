"""Looks inside of a model: which tensor is which, and its value in a trace.

Models inside of models are looked through: their tensors count as the outer model's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ganglion import tree
from ganglion.models import Model
from ganglion.models.functional import Network
from ganglion.symbolic import Call, KerasTensor, is_symbolic


def network_of(model: Any) -> Network:
    """Return the graph of calls of a model, which must have one."""
    network = getattr(model, "_network", None)
    if network is None:
        raise ValueError(
            f"The model {getattr(model, 'name', model)!r} has no graph of layers to "
            "look into: make it with `Sequential([Input(...), ...])` or with the "
            "functional API, or call it on data first."
        )
    return network


class Inside:
    """The tensors of a network, those of inner models among them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._same: dict[KerasTensor, KerasTensor] = {}
        for call, inner in _inner_calls(network):
            outputs = tree.flatten(call.outputs)
            self._same.update(zip(outputs, inner.flat_outputs, strict=True))
            self._same.update(zip(inner.flat_inputs, call.inputs, strict=True))

    def source(self, tensor: KerasTensor) -> KerasTensor:
        """Return the tensor that a layer made, for one that stands for it."""
        while tensor in self._same:
            tensor = self._same[tensor]
        return tensor

    def maker(self, tensor: KerasTensor) -> tuple[Any, list[KerasTensor]]:
        """Return the layer that made a tensor, and what it was made from."""
        call = self.source(tensor).call
        if call is None:
            return None, []
        return call.operation, [self.source(one) for one in call.inputs]

    def tensors(self) -> Iterator[tuple[Any, KerasTensor]]:
        """Yield each layer with its first output, in the order of computing."""
        for call in _flat_calls(self.network):
            yield call.operation, tree.flatten(call.outputs)[0]

    def values(self, inputs: list[Any]) -> dict[KerasTensor, Any]:
        """Compute all tensors for some inputs."""
        known: dict[KerasTensor, Any] = {}
        _replay(self.network, inputs, known)
        return known


def _inner(call: Call) -> Network | None:
    if isinstance(call.operation, Model):
        return getattr(call.operation, "_network", None)
    return None


def _inner_calls(network: Network) -> Iterator[tuple[Call, Network]]:
    for call in network.calls:
        inner = _inner(call)
        if inner is not None:
            yield call, inner
            yield from _inner_calls(inner)


def _flat_calls(network: Network) -> Iterator[Call]:
    for call in network.calls:
        inner = _inner(call)
        if inner is None:
            yield call
        else:
            yield from _flat_calls(inner)


def _replay(
    network: Network, inputs: list[Any], known: dict[KerasTensor, Any]
) -> list[Any]:
    known.update(zip(network.flat_inputs, inputs, strict=True))
    for call in network.calls:
        inner = _inner(call)
        if inner is None:
            results = call.replay(known)
        else:
            given = tree.flatten((call.args, call.kwargs))
            results = _replay(inner, [known[x] for x in given if is_symbolic(x)], known)
        known.update(zip(tree.flatten(call.outputs), results, strict=True))
    return [known[one] for one in network.flat_outputs]
