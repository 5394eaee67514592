"""Functional models: layer calls on Keras tensors, replayed on real values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from ganglion import ops, tree
from ganglion.layers import InputLayer, Layer
from ganglion.symbolic import Call, Function, KerasTensor, is_symbolic


class Network:
    """The calls between some inputs and some outputs, in order.

    Shared layers appear in several calls; layers of a call that no output needs do
    not appear at all.
    """

    def __init__(self, inputs: Any, outputs: Any, any_size: bool = False) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.any_size = any_size  # the sizes of the inputs are only those seen first
        self.flat_inputs: list[KerasTensor] = tree.flatten(inputs)
        self.flat_outputs: list[KerasTensor] = tree.flatten(outputs)
        _check_tensors("inputs", self.flat_inputs)
        _check_tensors("outputs", self.flat_outputs)
        self.calls = _ordered_calls(self.flat_outputs, set(self.flat_inputs))
        self.operations = _in_keras_order(
            self.calls, self.flat_outputs, self.flat_inputs
        )
        _check_names(self.operations)
        self.layers: list[Layer] = [
            one for one in self.operations if not isinstance(one, Function)
        ]

    @property
    def input_names(self) -> list[str]:
        """The name of each input, by which a dictionary may feed it."""
        return [_operation_name(one) for one in self.flat_inputs]

    @property
    def output_names(self) -> list[str]:
        """The name of each output: that of the layer which makes it."""
        return [_operation_name(one) for one in self.flat_outputs]

    def run(self, inputs: Any, extra: list[KerasTensor]) -> tuple[Any, list[Any]]:
        """Replay the calls; return the outputs and the values of extra tensors."""
        known: dict[KerasTensor, Any] = dict(
            zip(self.flat_inputs, self._standard(inputs), strict=True)
        )
        calls = self.calls
        if extra:
            wanted = [*self.flat_outputs, *extra]
            calls = _ordered_calls(wanted, set(self.flat_inputs))
        for call in calls:
            results = call.replay(known)
            known.update(zip(tree.flatten(call.outputs), results, strict=True))
        outputs = tree.map_leaves(lambda tensor: known[tensor], self.outputs)
        return outputs, [known[tensor] for tensor in extra]

    def _standard(self, inputs: Any) -> list[Any]:
        """Match what was given with the inputs: by position, or by name."""
        if isinstance(self.inputs, dict):
            given = tree.flatten(self.matched(inputs))
        elif isinstance(inputs, dict):
            given = self._by_name(inputs)
        else:
            given = tree.flatten(inputs)
        if len(given) != len(self.flat_inputs):
            raise ValueError(
                f"The model has {len(self.flat_inputs)} inputs "
                f"({', '.join(self.input_names)}), but {len(given)} were given."
            )
        pairs = zip(given, self.flat_inputs, strict=True)
        return [_fit(value, tensor, self.any_size) for value, tensor in pairs]

    def matched(self, given: Any) -> Any:
        """Return data under the keys of the inputs, where these are a dictionary."""
        return _matched(self.inputs, given) if isinstance(self.inputs, dict) else given

    def _by_name(self, inputs: dict[str, Any]) -> list[Any]:
        names = [
            one.name if one.name in inputs else _operation_name(one)
            for one in self.flat_inputs
        ]
        missing = [name for name in names if name not in inputs]
        if missing:
            raise ValueError(
                f"No data for the input(s) {', '.join(missing)}; got "
                f"{', '.join(sorted(map(str, inputs)))}."
            )
        return [inputs[name] for name in names]


def _matched(wanted: dict[str, Any], given: Any) -> Any:
    """Return what is given for inputs that are a dictionary, by the same keys.

    As in Keras, keys that the model does not have are left out with a warning, and a
    list takes the place of a dictionary only where the order of the keys is no guess.
    """
    keys = ", ".join(map(repr, wanted))
    if not isinstance(given, dict):
        if list(wanted) != sorted(wanted):
            raise ValueError(
                f"The inputs of the model are a dictionary with the keys {keys}: give "
                f"a dictionary, not {_kind_of(given)}, whose order is not theirs."
            )
        if len(tree.flatten(given)) == len(tree.flatten(wanted)):
            _warn_of_structure(keys, _kind_of(given))
        return given
    missing = [key for key in wanted if key not in given]
    got = ", ".join(map(repr, given))
    if missing:
        raise ValueError(
            f"No data for the input(s) {', '.join(map(repr, missing))}: the model "
            f"takes a dictionary with the keys {keys}, but got {got}."
        )
    if len(given) > len(wanted):
        _warn_of_structure(keys, f"a dictionary with the keys {got}")
    return {
        key: _matched(part, given[key]) if isinstance(part, dict) else given[key]
        for key, part in wanted.items()
    }


def _kind_of(given: Any) -> str:
    if isinstance(given, (list, tuple)):
        return f"a {type(given).__name__} of {len(given)}"
    return "an array"


def _warn_of_structure(keys: str, got: str) -> None:
    warnings.warn(
        "The structure of `inputs` doesn't match the expected structure: a dictionary "
        f"with the keys {keys} is expected, but got {got}.",
        stacklevel=4,
    )


def _fit(value: Any, tensor: KerasTensor, any_size: bool) -> Any:
    """Add or remove a last axis of one, as Keras does, and check the shape.

    Another number of rows than `Input(batch_size=...)` says is no mistake in Keras.
    """
    shape = tuple(value.shape)
    if len(shape) == tensor.ndim - 1 and tensor.shape[-1] == 1:
        value = ops.expand_dims(value, -1)
    elif len(shape) == tensor.ndim + 1 and shape[-1] == 1:
        value = ops.squeeze(value, -1)
    got = tuple(value.shape)
    fits = len(got) == tensor.ndim and all(
        any_size or want is None or want == have
        for want, have in zip(tensor.shape[1:], got[1:], strict=True)
    )
    if not fits:
        raise ValueError(
            f'Input "{_operation_name(tensor)}" expects shape {tensor.shape}, but the '
            f"data has shape {(None, *shape[1:])}."
        )
    return value


def _operation_name(tensor: KerasTensor) -> str:
    return tensor.call.operation.name if tensor.call is not None else tensor.name


def _check_tensors(what: str, tensors: list[Any]) -> None:
    for one in tensors:
        if not is_symbolic(one):
            raise ValueError(
                f"`{what}` of a Model must be Keras tensors (made by `Input` and layer "
                f"calls), not {type(one).__name__}."
            )


def _check_names(operations: list[Any]) -> None:
    seen: set[str] = set()
    for one in operations:
        if one.name in seen:
            raise ValueError(
                f'The name "{one.name}" is used twice in this model: files and '
                "`get_layer` need a name of its own for each layer (name=...)."
            )
        seen.add(one.name)


def _ordered_calls(outputs: list[KerasTensor], inputs: set[KerasTensor]) -> list[Call]:
    """Return the calls needed for the outputs, inputs first (iterative)."""
    order: list[Call] = []
    seen: set[Call] = set()
    stack: list[tuple[KerasTensor, bool]] = [(one, False) for one in reversed(outputs)]
    while stack:
        tensor, inputs_done = stack.pop()
        call = tensor.call
        if tensor in inputs:
            continue
        if call is None or not call.inputs:
            raise ValueError(
                f"The graph is not connected: {tensor} is needed for the outputs but "
                "cannot be reached from the inputs."
            )
        if inputs_done:
            if call not in seen:
                seen.add(call)
                order.append(call)
        elif call not in seen:
            stack.append((tensor, True))
            stack.extend((one, False) for one in reversed(call.inputs))
    return order


def _in_keras_order(
    calls: list[Call], outputs: list[KerasTensor], inputs: list[KerasTensor]
) -> list[Any]:
    """Return layers and ops, each once: the farthest from the outputs first.

    Equally far ones stand in the order in which a walk from the outputs meets them.
    Weights are listed, and numbered in files, in this order.
    """
    entries = [one.call for one in inputs if one.call is not None and _is_entry(one)]
    far_calls: dict[Call, int] = {}
    far: dict[int, int] = {}
    for call in [*reversed(calls), *entries]:
        operation = id(call.operation)
        depth = max(far_calls.get(call, 0), far.get(operation, 0))
        far[operation] = far_calls[call] = depth
        for tensor in call.inputs:
            if tensor.call is not None:
                before = far_calls.get(tensor.call, 0)
                far_calls[tensor.call] = max(before, depth + 1)
    met = _first_met(outputs, inputs)
    found = {id(call.operation): call.operation for call in [*entries, *calls]}
    return sorted(found.values(), key=lambda one: (-far[id(one)], met.get(id(one), -1)))


def _first_met(outputs: list[KerasTensor], inputs: list[KerasTensor]) -> dict[int, int]:
    """Number the operations in the order of a walk from the outputs (iterative)."""
    met: dict[int, int] = {}
    seen: set[Call] = set()
    ends = {one for one in inputs if not _is_entry(one)}
    stack = list(reversed(outputs))
    while stack:
        tensor = stack.pop()
        if tensor.call is None or tensor.call in seen or tensor in ends:
            continue
        seen.add(tensor.call)
        met.setdefault(id(tensor.call.operation), len(met))
        stack.extend(reversed(tensor.call.inputs))
    return met


def _is_entry(tensor: KerasTensor) -> bool:
    return tensor.call is not None and isinstance(tensor.call.operation, InputLayer)


def operations(network: Network) -> Iterator[Any]:
    """Yield layers and op calls, inputs first, each once."""
    yield from network.operations
