"""Functional models: layer calls on Keras tensors, replayed on real values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ganglion import ops, tree
from ganglion.compiler.ir.graph import Value
from ganglion.compiler.ir.shaping import is_float
from ganglion.layers import InputLayer, Layer
from ganglion.layers.preprocessing.host import HostLayer, HostOutputs
from ganglion.layers.preprocessing.words import as_text_array, is_text
from ganglion.models.host_part import HostPart, host_part_of
from ganglion.symbolic import TEXT, Call, Function, KerasTensor, is_symbolic
from ganglion.tensors import get_keras_mask, set_keras_mask
from ganglion.variables import MOST_CALLS, current_scope, too_many_calls


class Network:
    """The calls between some inputs and some outputs, in order.

    Shared layers appear in several calls; layers of a call that no output needs do
    not appear at all.
    """

    def __init__(self, inputs: Any, outputs: Any, any_size: bool = False) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.any_size = any_size  # the sizes are those of the first inputs only
        self.flat_inputs: list[KerasTensor] = tree.flatten(inputs)
        _check_tensors("inputs", self.flat_inputs)
        _check_tensors("outputs", tree.flatten(outputs))
        starts = set(self.flat_inputs)
        try:
            self.calls = _ordered_calls(tree.flatten(outputs), starts)
        except ValueError:
            self.outputs = outputs = tree.map_leaves(
                lambda tensor: _of_a_call(tensor, starts), outputs
            )
            _name_disconnected(outputs, starts)
            self.calls = _ordered_calls(tree.flatten(outputs), starts)
        self.flat_outputs: list[KerasTensor] = tree.flatten(outputs)
        self.operations = _in_keras_order(
            self.calls, self.flat_outputs, self.flat_inputs
        )
        _check_names(self.operations)
        self.layers: list[Layer] = [
            operation
            for operation in self.operations
            if not isinstance(operation, Function)
        ]
        self._warned_of_structure = False
        # The outputs for inputs of some shapes.
        self._inferred: dict[Any, list[KerasTensor]] = {}

    @cached_property
    def stand_ins(self) -> dict[KerasTensor, InputLayer]:
        """The inputs of a model that starts in the middle of another."""
        return {
            tensor: InputLayer(
                batch_shape=tensor.shape, dtype=tensor.dtype, name=f"{tensor.name}CLONE"
            )
            for tensor in self.flat_inputs
            if not _is_entry(tensor)
        }

    @property
    def input_names(self) -> list[str]:
        """The name of each input, by which a dictionary may feed it."""
        return [_operation_name(tensor) for tensor in self.flat_inputs]

    @property
    def output_names(self) -> list[str]:
        """The name of each output: that of the layer which makes it."""
        return [_operation_name(tensor) for tensor in self.flat_outputs]

    def run(
        self, inputs: Any, extra: list[KerasTensor], mask: Any = None
    ) -> tuple[Any, list[Any]]:
        """Replay the calls; return the outputs and the values of extra tensors."""
        calls = self.calls
        if extra:
            wanted = [*self.flat_outputs, *extra]
            calls = _ordered_calls(wanted, set(self.flat_inputs))
        known: dict[KerasTensor, Any]
        nested: dict[Call, Any] = {}
        if isinstance(inputs, HostOutputs):
            assert self.host_part is not None
            known, nested = self.host_part.known(inputs)
            on_host = set(self.host_part.calls)
            calls = [call for call in calls if call not in on_host]
        else:
            values = self.standard(inputs)
            for value, of_input in zip(values, tree.flatten(mask), strict=False):
                if of_input is not None:
                    set_keras_mask(value, of_input)
            known = dict(zip(self.flat_inputs, values, strict=True))
        scope = current_scope()
        if scope is not None and not scope.keras_tensors:
            scope.keras_tensors = known  # the outermost model's: it begins first
        for call in calls:
            if call in nested:
                results = tree.flatten(call.operation(nested[call]))
            else:
                results = call.replay(known)
            known.update(zip(tree.flatten(call.outputs), results, strict=True))
        outputs = tree.map_leaves(lambda tensor: known[tensor], self.outputs)
        return outputs, [known[tensor] for tensor in extra]

    def infer(self, inputs: Any) -> Any:
        """Return the Keras tensors that a call on some gives, None if unknown.

        Nested models are not unfolded: each answers for itself, and once.
        """
        tensors = tree.flatten(inputs)
        types = [tensor.dtype for tensor in self.flat_inputs]
        if isinstance(inputs, dict) or [tensor.dtype for tensor in tensors] != types:
            return None
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._inferred:
            if shapes == tuple(tensor.shape for tensor in self.flat_inputs):
                self._inferred[shapes] = self.flat_outputs
            elif any(map(_network_of, self.operations)):
                self._inferred[shapes] = self._infer_by_calls(inputs)
            else:
                return None
        known = self._inferred[shapes]
        new = [KerasTensor(tensor.shape, tensor.dtype) for tensor in known]
        return tree.pack(self.outputs, new)

    def _infer_by_calls(self, inputs: Any) -> list[KerasTensor]:
        known = dict(zip(self.flat_inputs, self.standard(inputs), strict=True))
        for call in self.calls:
            outputs = call.infer(known)
            known.update(zip(tree.flatten(call.outputs), outputs, strict=True))
        return [known[tensor] for tensor in self.flat_outputs]

    @cached_property
    def host_part(self) -> HostPart | None:
        """The part that runs on the host: layers for text, and all before them."""
        may_have_one = any(map(_may_run_on_host, self.operations))
        return host_part_of(self) if may_have_one else None

    @property
    def step_inputs(self) -> list[KerasTensor]:
        """The tensors that a compiled step begins with."""
        return self.flat_inputs if self.host_part is None else self.host_part.crossing

    @property
    def step_calls(self) -> list[Call]:
        """The calls of a compiled step."""
        if self.host_part is None:
            return self.calls
        on_host = set(self.host_part.calls)
        return [call for call in self.calls if call not in on_host]

    @cached_property
    def is_plain(self) -> bool:
        """Whether all classes are Ganglion's own: equal calls have equal results."""
        return all(map(_is_plain, self.operations))

    @cached_property
    def unfolded_calls(self) -> int:
        """The calls of layers that a call leads to, at least: equal ones count once."""
        total = 0
        seen: set[Any] = set()
        for call in self.calls:
            inner = _network_of(call.operation)
            key = (id(call.operation), *map(id, call.inputs))
            if inner is None:
                total += 1
            elif key not in seen or not inner.is_plain:
                total += 1 + inner.unfolded_calls
            seen.add(key)
        return total

    def refuse_too_many_calls(self, name: str) -> None:
        """Refuse, before tracing, nested models that are too large to be unfolded."""
        if self.unfolded_calls > MOST_CALLS:
            raise too_many_calls(name)

    def standard(self, inputs: Any) -> list[Any]:
        """Match the arguments with the inputs: by position, or by name."""
        is_traced = isinstance(inputs, Value)  # and so no text
        if len(self.flat_inputs) == 1 and not is_traced and is_text(inputs):
            inputs = as_text_array(inputs, "The input of the model")
        if isinstance(self.inputs, dict):
            values = tree.flatten(self.matched(inputs))
        elif isinstance(inputs, dict):
            values = self._by_name(inputs)
        else:
            values = tree.flatten(inputs)
        if len(values) != len(self.flat_inputs):
            raise ValueError(
                f"The model expects {len(self.flat_inputs)} "
                f"{self._names_in_words}, but {len(values)} were given."
            )
        pairs = zip(values, self.flat_inputs, strict=True)
        return [self._fitted(value, tensor) for value, tensor in pairs]

    def _fitted(self, value: Any, tensor: KerasTensor) -> Any:
        """Add or remove a last axis of size 1, as Keras does, and check the shape.

        Another number of rows than `Input(batch_size=...)` says is no mistake in Keras.
        """
        if value is None:
            if is_optional(tensor):
                return None
            raise ValueError(
                f'The input "{_operation_name(tensor)}" is not optional, but got None: '
                "give its data, or make it by Input(..., optional=True)."
            )
        _check_is_array(value, tensor)
        shape, mask = tuple(value.shape), get_keras_mask(value)
        if len(shape) == tensor.ndim - 1 and tensor.shape[-1] == 1:
            is_array = isinstance(value, np.ndarray)  # perhaps of text
            value = value[..., None] if is_array else ops.expand_dims(value, -1)
        elif len(shape) == tensor.ndim + 1 and shape[-1] == 1:
            is_array = isinstance(value, np.ndarray)
            value = value[..., 0] if is_array else ops.squeeze(value, -1)
        got = tuple(value.shape)
        fits = len(got) == tensor.ndim and all(
            self.any_size or want is None or want == have
            for want, have in zip(tensor.shape[1:], got[1:], strict=True)
        )
        if not fits:
            raise ValueError(
                f"The data of the input with name {_operation_name(tensor)!r} and path "
                f"{_path_of(tensor, self.inputs)!r} does not fit: expected shape="
                f"{tensor.shape}, found shape={shape}."
            )
        if isinstance(value, Value) and is_float(value.dtype) and tensor.dtype != TEXT:
            value = ops.cast(value, tensor.dtype)
        if mask is not None:
            set_keras_mask(value, mask)
        return value

    @property
    def _names_in_words(self) -> str:
        if isinstance(self.inputs, dict):
            return f"named input(s) with keys {list(self.inputs)}"
        return f"input(s) ({', '.join(self.input_names)})"

    def matched(self, data: Any) -> Any:
        """Return data under the keys of the inputs, where these are a dictionary.

        Data of another structure is warned of, once a model.
        """
        if not isinstance(self.inputs, dict):
            return data
        return _matched(self.inputs, data, self._warn_of_structure)

    def _warn_of_structure(self, keys: str, got: str) -> None:
        if self._warned_of_structure:
            return
        self._warned_of_structure = True
        warnings.warn(
            "The structure of `inputs` doesn't match the expected structure: a "
            f"dictionary with the keys {keys} is expected, but got {got}.",
            stacklevel=5,
        )

    def _by_name(self, inputs: dict[str, Any]) -> list[Any]:
        names = [
            tensor.name if tensor.name in inputs else _operation_name(tensor)
            for tensor in self.flat_inputs
        ]
        missing = [name for name in names if name not in inputs]
        if missing:
            raise ValueError(
                f"No data for the input(s) {', '.join(missing)}; got "
                f"{', '.join(sorted(map(str, inputs)))}."
            )
        return [inputs[name] for name in names]


def _matched(
    wanted: dict[str, Any], data: Any, warn: Callable[[str, str], None]
) -> Any:
    """Return the data of inputs that are a dictionary, by the same keys.

    As in Keras, keys that the model does not have are left out with a warning, and a
    list takes the place of a dictionary only where the order of the keys is no guess.
    """
    keys = ", ".join(map(repr, wanted))
    if not isinstance(data, dict):
        is_list = isinstance(data, (list, tuple))
        kind = f"a {type(data).__name__} of {len(data)}" if is_list else "an array"
        if list(wanted) != sorted(wanted):
            raise ValueError(
                "The structure of `inputs` doesn't match the expected structure: the "
                f"inputs of the model are a dictionary with the keys {keys}; give a "
                f"dictionary, not {kind}, whose order is not theirs."
            )
        if len(tree.flatten(data)) == len(tree.flatten(wanted)):
            warn(keys, kind)
        return data
    missing = [key for key in wanted if key not in data]
    got = ", ".join(map(repr, data))
    if missing:
        raise ValueError(
            f"No data for the input(s) {', '.join(map(repr, missing))}: the model "
            f"takes a dictionary with the keys {keys}, but got {got}."
        )
    if len(data) > len(wanted):
        warn(keys, f"a dictionary with the keys {got}")
    return {
        key: _matched(part, data[key], warn) if isinstance(part, dict) else data[key]
        for key, part in wanted.items()
    }


def _network_of(operation: Any) -> Network | None:
    return getattr(operation, "_network", None)


def _may_run_on_host(operation: Any) -> bool:
    return isinstance(operation, HostLayer) or _network_of(operation) is not None


def _is_plain(operation: Any) -> bool:
    """Return whether an operation is code of Ganglion, with all that it holds."""
    if isinstance(operation, Function):
        return True
    if not type(operation).__module__.startswith("ganglion."):
        return False
    inner = _network_of(operation)
    if inner is not None:
        return inner.is_plain
    return all(
        _is_plain(layer)
        for value in vars(operation).values()
        for layer in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(layer, Layer)
    )


def shared(
    network: Network, call: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    """Return the outputs of a call, or those of an equal call before.

    A call that assigns or draws something, or adds a loss, is never left out; neither
    is one after that.
    """
    scope = current_scope()
    assert scope is not None
    plain = network.is_plain and all(
        isinstance(leaf, (Value, bool, type(None)))
        for leaf in tree.flatten((args, kwargs))
    )
    if not plain:
        return call(args, kwargs)
    named = {name: tree.map_leaves(_identity, value) for name, value in kwargs.items()}
    names = tree.map_leaves(_identity, args), named
    key = (id(network), scope.training, scope.training_is_set, repr(names))
    before = scope.changes
    known_before, outputs, *_ = scope.shared_calls.get(key, (None, None))
    if known_before != before:
        outputs = call(args, kwargs)
        if scope.changes == before:  # the arguments are kept: so are their identities
            scope.shared_calls[key] = before, outputs, args, kwargs
    return tree.map_leaves(lambda leaf: leaf, outputs)


def _identity(leaf: Any) -> Any:
    return (id(leaf), id(get_keras_mask(leaf))) if isinstance(leaf, Value) else leaf


def _path_of(tensor: KerasTensor, structure: Any) -> str:
    """Return the keys and indices that lead to a tensor, for messages."""
    paths = tree.flatten_with_path(structure)
    path = next(path for path, leaf in paths if leaf is tensor)
    return ".".join(map(str, path))


def is_optional(tensor: KerasTensor) -> bool:
    """Return whether an input may be None: `Input(..., optional=True)`."""
    return tensor.call is not None and getattr(tensor.call.operation, "optional", False)


def _operation_name(tensor: KerasTensor) -> str:
    return tensor.call.operation.name if tensor.call is not None else tensor.name


def _check_tensors(argument: str, tensors: list[Any]) -> None:
    for tensor in tensors:
        if not is_symbolic(tensor):
            raise ValueError(
                f"All `{argument}` values must be KerasTensors (made by `Input` and "
                f"layer calls), got {type(tensor).__name__}."
            )


def _of_a_call(tensor: KerasTensor, inputs: set[KerasTensor]) -> KerasTensor:
    """Return what the end of a Sequential is where that was called on the inputs.

    `output` of a Sequential is its own, and in Keras, once it was called, that call's.
    """
    if tensor.end_of is None:
        return tensor
    reference, number = tensor.end_of
    model = reference()
    for call in () if model is None else model._calls:
        output: KerasTensor = tree.flatten(call.outputs)[number]
        if _is_connected(output, inputs) and not _is_connected(tensor, inputs):
            return output
    return tensor


def _is_connected(tensor: KerasTensor, inputs: set[KerasTensor]) -> bool:
    try:
        _ordered_calls([tensor], inputs)
    except ValueError:
        return False
    return True


def _name_disconnected(outputs: Any, inputs: set[KerasTensor]) -> None:
    """Refuse the output that needs something else than the inputs, by its path."""
    for path, tensor in tree.flatten_with_path(outputs):
        try:
            _ordered_calls([tensor], inputs)
        except ValueError as error:
            name = ".".join(map(str, path))
            raise ValueError(
                f"Output with path `{name}` is not connected to `inputs`: {error}"
            ) from None


def _check_names(operations: list[Any]) -> None:
    seen: set[str] = set()
    for operation in operations:
        if operation.name in seen:
            raise ValueError(
                f'The name "{operation.name}" is used twice in this model: files and '
                "`get_layer` need a name of its own for each layer (name=...)."
            )
        seen.add(operation.name)


def _ordered_calls(outputs: list[KerasTensor], inputs: set[KerasTensor]) -> list[Call]:
    """Return the calls needed for the outputs, inputs first (iterative)."""
    order: list[Call] = []
    seen: set[Call] = set()
    stack = [(tensor, False) for tensor in reversed(outputs)]
    while stack:
        tensor, inputs_done = stack.pop()
        call = tensor.call
        if tensor in inputs:
            continue
        if call is None or not call.inputs:
            raise ValueError(
                f"The graph is not connected: Output {tensor} is not connected to "
                "`inputs`, but needed for the outputs."
            )
        if inputs_done:
            if call not in seen:
                seen.add(call)
                order.append(call)
        elif call not in seen:
            stack.append((tensor, True))
            stack.extend((operand, False) for operand in reversed(call.inputs))
    return order


def _in_keras_order(
    calls: list[Call], outputs: list[KerasTensor], inputs: list[KerasTensor]
) -> list[Any]:
    """Return layers and ops, each once: the farthest from the outputs first.

    Those at equal depth are in the order in which a walk from the outputs reaches them.
    Weights are listed, and numbered in files, in this order.
    """
    entries = [tensor.call for tensor in inputs if tensor.call and _is_entry(tensor)]
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
    met = _visit_order(outputs, inputs)
    each = {id(call.operation): call.operation for call in [*entries, *calls]}
    order = sorted(each, key=lambda key: (-far[key], met.get(key, -1)))
    return [each[key] for key in order]


def _visit_order(
    outputs: list[KerasTensor], inputs: list[KerasTensor]
) -> dict[int, int]:
    """Number the operations in the order of a walk from the outputs (iterative)."""
    met: dict[int, int] = {}
    seen: set[Call] = set()
    ends = {tensor for tensor in inputs if not _is_entry(tensor)}
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


def _check_is_array(value: Any, tensor: KerasTensor) -> None:
    if not hasattr(value, "shape"):
        raise ValueError(
            f'The input "{_operation_name(tensor)}" got {value!r:.80}: a model '
            "takes arrays and tensors, so wrap it in `np.array(...)`."
        )
