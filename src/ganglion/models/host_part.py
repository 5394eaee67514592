"""The part of a functional model that runs on the host, before the compiled step.

Layers for text (`HostLayer`) compute in NumPy. All calls before one of them
run there, too; the rest of the graph is compiled, with the results of this part as its
inputs. A model inside of a model is divided in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import tree
from ganglion.layers import Layer
from ganglion.layers.preprocessing.host import HostLayer, HostOutputs
from ganglion.layers.preprocessing.words import is_text
from ganglion.symbolic import TEXT, Call, KerasTensor
from ganglion.system import uncompiled

if TYPE_CHECKING:
    from ganglion.models.functional import Network

# Rows are computed in blocks, so that the words of all texts are never there at once.
_BLOCK = 4096


def host_part_of(network: Network) -> HostPart | None:
    """Return the part of a graph that runs on the host, None if there is none."""
    starts = [call for call in network.calls if _is_on_host(call)]
    nested = [call for call in network.calls if _inner_part(call) is not None]
    if not starts and not nested:
        return None
    needed = {tensor for call in starts for tensor in call.inputs}
    needed |= {tensor for call in nested for tensor in call.inputs}
    calls = []
    for call in reversed(network.calls):
        if call in starts or needed & set(tree.flatten(call.outputs)):
            calls.append(call)
            needed |= set(call.inputs)
    return HostPart(network, calls[::-1])


def _is_on_host(call: Call) -> bool:
    return isinstance(call.operation, HostLayer)


def _inner_part(call: Call) -> HostPart | None:
    inner = getattr(call.operation, "_network", None)
    return None if inner is None else inner.host_part


class HostPart:
    """Some calls of a graph, and the tensors that cross over to the compiled step."""

    def __init__(self, network: Network, calls: list[Call]) -> None:
        self._network = network
        self.calls = calls
        on_host = set(calls)
        rest = [call for call in network.calls if call not in on_host]
        # Models that have a host part of their own, and are compiled after it.
        self.nested = [call for call in rest if _inner_part(call) is not None]
        used = [tensor for call in rest if call not in self.nested
                for tensor in call.inputs]  # fmt: skip
        known = {tensor for call in calls for tensor in tree.flatten(call.outputs)}
        known |= set(network.flat_inputs)
        crossing = [tensor for tensor in [*used, *network.flat_outputs]
                    if tensor in known]  # fmt: skip
        self.outputs = list(dict.fromkeys(crossing))

    @property
    def crossing(self) -> list[KerasTensor]:
        """The tensors that pass to the compiled part, nested models included."""
        inner = [_part(call).crossing for call in self.nested]
        return [*self.outputs, *(tensor for part in inner for tensor in part)]

    @property
    def reason_against_steps(self) -> str | None:
        """The reason why no step can be compiled after this part, None if it can be."""
        for call in self.calls:
            layer = call.operation
            is_layer = isinstance(layer, Layer)
            if is_layer and (layer.trainable_weights or layer._seed_generators):
                return (
                    f'Layer "{layer.name}" lies before a layer that runs on the host '
                    "(for text, a lookup or a hash), where nothing is trained or "
                    "drawn: move it behind that layer."
                )
        if any(tensor.dtype == TEXT for tensor in self.outputs):
            return (
                "The model gives text, which has no loss: train the model that ends "
                "before its last lookup."
            )
        return None

    def row_bytes(self) -> float:
        """Return how much memory the numbers of a row take; infinity if they differ."""
        shapes = [tensor.shape[1:] for tensor in self.crossing]
        sizes = [[math.inf if n is None else n for n in shape] for shape in shapes]
        return 4.0 * sum(map(math.prod, sizes))

    # ---- on the host -------------------------------------------------------------

    def run(self, inputs: Any) -> HostOutputs:
        """Return the numbers that cross over, for inputs as arrays."""
        reason = self.reason_against_steps
        if reason is not None:
            raise ValueError(reason)
        arrays = self._network.standard(inputs)
        for tensor, array in zip(self._network.flat_inputs, arrays, strict=True):
            _check_kind(tensor, array)
        for call in self.calls:
            name = getattr(call.operation, "name", None) or call.operation.__name__
            uncompiled.note("calls of layers on the host", name)
        rows = len(arrays[0]) if arrays[0].ndim else 0
        if rows <= _BLOCK or self.row_bytes() == math.inf:
            return self._run(arrays)
        blocks = [
            self._run([array[start : start + _BLOCK] for array in arrays])
            for start in range(0, rows, _BLOCK)
        ]
        return HostOutputs(map(np.concatenate, zip(*blocks, strict=True)))

    def _run(self, arrays: Sequence[np.ndarray]) -> HostOutputs:
        known: dict[KerasTensor, Any] = dict(
            zip(self._network.flat_inputs, arrays, strict=True)
        )
        for call in self.calls:
            results = call.replay(known)
            known.update(zip(tree.flatten(call.outputs), results, strict=True))
        outputs = [known[tensor] for tensor in self.outputs]
        for call in self.nested:
            args, _ = call.arguments(known)
            outputs += _part(call).run(args[0])
        return HostOutputs(outputs)

    # ---- in the step -------------------------------------------------------------

    def known(self, inputs: HostOutputs) -> tuple[dict[Any, Any], dict[Call, Any]]:
        """Return the values of tensors, and what nested models are called on."""
        values = iter(inputs)
        known = {tensor: next(values) for tensor in self.outputs}
        nested = {
            call: HostOutputs(next(values) for _ in _part(call).crossing)
            for call in self.nested
        }
        return known, nested


def _part(call: Call) -> HostPart:
    part = _inner_part(call)
    assert part is not None
    return part


def _check_kind(tensor: KerasTensor, array: Any) -> None:
    name = tensor.call.operation.name if tensor.call is not None else tensor.name
    if tensor.dtype != TEXT and is_text(array):
        raise TypeError(
            f'Input "{name}" takes numbers, but the data is text: declare it by '
            "Input(shape, dtype='string'), or turn the data into numbers."
        )
    if tensor.dtype == TEXT and not is_text(array):
        raise TypeError(
            f'Input "{name}" takes text, but the data is {array.dtype}: turn it into '
            "text with .astype(str)."
        )
