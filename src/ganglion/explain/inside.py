"""The tensors inside of a model, nested models included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ganglion import tree
from ganglion.models import Model
from ganglion.models.functional import Network
from ganglion.symbolic import Call, KerasTensor, is_symbolic


class Inside:
    """The tensors of a network, including those of inner models."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._same: dict[KerasTensor, KerasTensor] = {}
        for call, inner in _calls(network):
            if inner is not None:
                outputs = tree.flatten(call.outputs)
                self._same.update(zip(outputs, inner.flat_outputs, strict=True))
                self._same.update(zip(inner.flat_inputs, call.inputs, strict=True))

    def source(self, tensor: KerasTensor) -> KerasTensor:
        """Return the tensor of a layer's output, for another tensor that equals it."""
        while tensor in self._same:
            tensor = self._same[tensor]
        return tensor

    def maker(self, tensor: KerasTensor) -> tuple[Any, list[KerasTensor]]:
        """Return the layer that made a tensor, and what it was made from."""
        call = self.source(tensor).call
        if call is None:
            return None, []
        return call.operation, [self.source(tensor) for tensor in call.inputs]

    def tensors(self) -> Iterator[tuple[Any, KerasTensor]]:
        """Yield each layer with its first output, in the order of computing."""
        for call, inner in _calls(self.network):
            if inner is None:
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


def _calls(network: Network) -> Iterator[tuple[Call, Network | None]]:
    """Yield all calls in order; a model's before those inside of it."""
    for call in network.calls:
        inner = _inner(call)
        yield call, inner
        if inner is not None:
            yield from _calls(inner)


def _replay(
    network: Network, inputs: list[Any], known: dict[KerasTensor, Any]
) -> list[Any]:
    known.update(zip(network.flat_inputs, inputs, strict=True))
    for call in network.calls:
        inner = _inner(call)
        if inner is None:
            results = call.replay(known)
        else:
            values = filter(is_symbolic, tree.flatten((call.args, call.kwargs)))
            results = _replay(inner, [known[tensor] for tensor in values], known)
        known.update(zip(tree.flatten(call.outputs), results, strict=True))
    return [known[output] for output in network.flat_outputs]
