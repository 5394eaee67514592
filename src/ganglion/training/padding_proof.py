"""Proofs that the results of a model do not depend on padding.

Steps are added at the end of a batch, with the number that a `Masking` or an
`Embedding(mask_zero=True)` masks. They change no result if every later layer either
computes each step by itself or leaves masked steps out, and if losses and metrics count
by the step and by the mask. Layers that are known to do so are in a table, by their
exact class; any other layer with such a step as its input ends the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ganglion import layers, losses, tree
from ganglion.losses.base import Loss, LossFunctionWrapper
from ganglion.metrics.base import MeanMetricWrapper
from ganglion.system.records import record
from ganglion.training.compile_utils import Outputs, get_loss, get_metric, is_structured

KEEPS, DROPS = "keeps", "drops"  # whether the outputs of a layer still have the steps


class _State(NamedTuple):
    """Whether a tensor has padded steps, and whether these are masked.

    `source` is the number of an input, which has no mask yet.
    """

    has_steps: bool = False
    source: int | None = None


_UNPADDED, _MASKED = _State(), _State(has_steps=True)


class _SeenError(Exception):
    """A result may depend on the padding."""


@record(guarded=True)
class PaddingRule:
    """The number to pad each input with (None: no steps), and which outputs have steps.

    The flags follow the flat order of the model's outputs.
    """

    numbers: tuple[float | None, ...]
    has_steps: tuple[bool, ...]


# ---- layers --------------------------------------------------------------------------


def _with_own_activation(layer: Any) -> str | None:
    """Activations of Ganglion work on each number, or along the last axis."""
    module = getattr(layer.activation, "__module__", None) or "ganglion."
    return KEEPS if module.startswith("ganglion.") else None


def _on_last_axis(layer: Any) -> str | None:
    return KEEPS if layer.axis in (-1, [-1], (-1,)) else None


def _without_noise_shape(layer: Any) -> str | None:
    return KEEPS if layer.noise_shape is None else None


_CELLS = (layers.SimpleRNNCell, layers.LSTMCell, layers.GRUCell)
_RECURRENT = (layers.RNN, layers.SimpleRNN, layers.LSTM, layers.GRU)


def _recurrent(layer: Any) -> str | None:
    """Masked steps change neither the states nor the outputs of other steps.

    In reverse, the sequence of outputs begins with the last step, its mask does not.
    """
    if not _has_own_cells(layer):
        return None
    if layer.return_sequences:
        return None if layer.go_backwards else KEEPS
    return None if layer.zero_output_for_mask else DROPS


def _bidirectional(layer: Any) -> str | None:
    """The outputs of the reverse layer are reversed again, as the mask expects."""
    directions = (layer.forward_layer, layer.backward_layer)
    is_known = all(
        type(direction) in _RECURRENT
        and direction.activity_regularizer is None
        and _has_own_cells(direction)
        for direction in directions
    )
    if not is_known or layer.merge_mode is None:
        return None
    return KEEPS if layer.return_sequences else DROPS


def _has_own_cells(layer: Any) -> bool:
    cells = getattr(layer.cell, "cells", [layer.cell])
    return not layer.time_major and all(type(cell) in _CELLS for cell in cells)


def _time_distributed(wrapper: Any) -> str | None:
    layer = wrapper.layer
    if type(layer) not in (layers.Dense, layers.Activation):
        return None
    return None if layer.activity_regularizer else _with_own_activation(layer)


_RULES: dict[type, Callable[[Any], str | None]] = {
    layers.Dense: _with_own_activation,
    layers.Activation: _with_own_activation,
    layers.LayerNormalization: _on_last_axis,
    layers.UnitNormalization: _on_last_axis,
    layers.BatchNormalization: _on_last_axis,
    layers.Concatenate: _on_last_axis,
    layers.Dropout: _without_noise_shape,
    layers.AlphaDropout: _without_noise_shape,
    layers.GlobalAveragePooling1D: lambda _: DROPS,
    layers.Bidirectional: _bidirectional,
    layers.TimeDistributed: _time_distributed,
    **dict.fromkeys(_RECURRENT, _recurrent),
    **dict.fromkeys(
        (
            layers.Identity,
            layers.ReLU,
            layers.LeakyReLU,
            layers.ELU,
            layers.SpatialDropout1D,
            layers.GaussianDropout,
            layers.GaussianNoise,
            layers.Add,
            layers.Subtract,
            layers.Multiply,
            layers.Average,
            layers.Maximum,
            layers.Minimum,
        ),
        lambda _: KEEPS,
    ),
}


class _Proof:
    """A walk through the calls of a model, with the state of each tensor."""

    def __init__(self) -> None:
        self.numbers: dict[int, float] = {}  # of each input that has steps

    def outputs(self, network: Any, inputs: list[_State]) -> list[_State]:
        """Return the states of the outputs of a graph."""
        known = dict(zip(network.step_inputs, inputs, strict=True))
        for call in network.step_calls:
            if any(tensor not in known for tensor in call.inputs):
                raise _SeenError  # a model inside of this one begins on the host
            states = [known[tensor] for tensor in call.inputs]
            tensors = tree.flatten(call.outputs)
            after = [_UNPADDED] * len(tensors)
            if any(state.has_steps for state in states):
                after = self._behind(call, states, len(tensors))
            known.update(zip(tensors, after, strict=True))
        return [known[tensor] for tensor in network.flat_outputs]

    def _behind(self, call: Any, states: list[_State], count: int) -> list[_State]:
        layer = call.operation
        is_plain = len(call.args) == 1 and not call.kwargs.keys() - {"training"}
        if not is_plain or not all(state.has_steps for state in states):
            raise _SeenError
        network = getattr(layer, "_network", None)
        if network is not None:
            if isinstance(network.inputs, dict) or isinstance(call.args[0], dict):
                raise _SeenError
            check_model(layer)
            return self.outputs(network, states)
        if getattr(layer, "activity_regularizer", None) is not None:
            raise _SeenError
        if any(state.source is not None for state in states):
            self._begin(layer, call.inputs, states)
            return [_MASKED]
        rule = _RULES.get(type(layer), lambda _: None)(layer)
        if rule is None:
            raise _SeenError
        # Behind the first output there are states, without an axis of steps.
        first = _MASKED if rule == KEEPS else _UNPADDED
        return [first, *[_UNPADDED] * (count - 1)]

    def _begin(self, layer: Any, tensors: list[Any], states: list[_State]) -> None:
        """Note the number that a layer masks in the input it reads."""
        number = None
        if type(layer) is layers.Embedding and layer.mask_zero and tensors[0].ndim == 2:
            number = 0.0
        elif type(layer) is layers.Masking and tensors[0].ndim == 3:
            number = float(layer.mask_value)
        source = states[0].source
        if number is None or source is None:
            raise _SeenError
        if self.numbers.setdefault(source, number) != number:
            raise _SeenError


def check_model(model: Any) -> None:
    """Refuse a model that does more than replay the calls of its graph."""
    replays = getattr(model, "_replays", None)
    if replays is None or not replays() or model._symbolic_losses:
        raise _SeenError


def padding_rule(model: Any) -> PaddingRule | None:
    """Return how a model's batches may be made longer, None if it is not certain."""
    network = model._network
    if network is None:
        return None
    inputs = [
        _State(True, number) if _may_have_steps(network, tensor) else _UNPADDED
        for number, tensor in enumerate(network.step_inputs)
    ]
    proof = _Proof()
    try:
        check_model(model)
        outputs = proof.outputs(network, inputs)
    except _SeenError:
        return None
    if not proof.numbers or any(state.source is not None for state in outputs):
        return None
    numbers = tuple(proof.numbers.get(number) for number in range(len(inputs)))
    return PaddingRule(numbers, tuple(state.has_steps for state in outputs))


def _may_have_steps(network: Any, tensor: Any) -> bool:
    is_sequence = tensor.ndim in (2, 3)
    return is_sequence and (tensor.shape[1] is None or network.any_size)


# ---- losses and metrics --------------------------------------------------------------

# They combine steps; all other built-in ones give a number per step.
_OVER_STEPS = (losses.dice, losses.tversky)


def counts_by_step(model: Any, rule: PaddingRule, y: Any) -> bool:
    """Return whether losses and metrics leave masked steps of the outputs out."""
    if model.overrides_loss:
        return False
    network = model._network
    outputs = Outputs(network.outputs, network.output_names)
    if is_structured(model.loss, outputs):
        return False
    try:
        labels = outputs.align(y, "labels", [False] * len(outputs))
        chosen = outputs.assign(model.loss, "loss")
        lists = [
            outputs.assign_metrics(argument)
            for argument in model._compile_metrics.arguments
        ]
    except (KeyError, ValueError):  # the step itself reports the error
        return False
    for number, has_steps in enumerate(rule.has_steps):
        label, output = labels[number], outputs.leaves[number]
        if not has_steps or label is None:
            continue
        measures: list[Any] = []
        if chosen[number] is not None:
            measures.append(get_loss(chosen[number], label, output))
        measures += [
            get_metric(identifier, label, output, chosen[number])
            for each in lists
            for identifier in each[number]
        ]
        if not all(map(_is_by_step, measures)):
            return False
    return True


def _is_by_step(measure: Any) -> bool:
    """Return whether a loss or a metric gives a number per step, and supports masks."""
    if not type(measure).__module__.startswith("ganglion."):
        return False
    if isinstance(measure, LossFunctionWrapper):
        function = measure.fn
    elif isinstance(measure, MeanMetricWrapper):
        function = measure._fn
    else:
        return False
    if isinstance(function, Loss):
        return False
    return (
        getattr(function, "__module__", "").startswith("ganglion.")
        and function not in _OVER_STEPS
        and measure._fn_kwargs.get("axis", -1) == -1
    )
