"""The loop over time of all recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops, tree

Step = Callable[[Any, Any], tuple[Any, Any]]  # (x, states) -> (output, new states)


def swapped(x: Any) -> Any:
    """Return an array with its first two axes, batch and time, exchanged."""
    return ops.transpose(x, axes=(1, 0, *range(2, len(x.shape))))


def run_over_time(
    step: Step,
    xs: Any,
    states: Any,
    mask: Any,
    *,
    reverse: bool,
    zero_output_for_mask: bool,
    returns_state: bool = False,
) -> tuple[Any, Any, Any]:
    """Return the last output, all outputs and the last states; time comes first.

    A masked step keeps the states; its output is zero, or the one before. Where a cell
    `returns_state`, which begins with zeros, that is the state kept. All outputs are in
    the order of `xs`, also in reverse.
    """

    def body(states: Any, slices: Any) -> tuple[Any, Any]:
        if mask is None:
            output, new = step(slices, states)
            return new, output
        x, is_valid = slices
        output, new = step(x, states)
        new = tree.pack(states, _where_valid(is_valid, new, states))
        if zero_output_for_mask:
            output = ops.where(_spread(is_valid, output), output, 0)
        elif returns_state:
            output = tree.flatten(new)[0]
        return new, output

    stacked = xs if mask is None else (xs, mask)
    last, outputs = ops.scan(body, states, stacked, reverse=reverse)
    if mask is not None and not zero_output_for_mask and not returns_state:
        outputs = _repeated(outputs, mask, reverse)
    if returns_state and not zero_output_for_mask:
        return tree.flatten(last)[0], outputs, last
    return outputs[0 if reverse else -1], outputs, last


def _where_valid(is_valid: Any, new: Any, old: Any) -> list[Any]:
    pairs = zip(tree.flatten(new), tree.flatten(old), strict=True)
    return [ops.where(_spread(is_valid, a), a, b) for a, b in pairs]


def _spread(is_valid: Any, x: Any) -> Any:
    """Give the mask of a step (batch,) as many axes as the values it chooses from."""
    return ops.reshape(is_valid, (-1, *[1] * (len(x.shape) - 1)))


def _repeated(outputs: Any, mask: Any, reverse: bool) -> Any:
    """Return outputs with those of masked steps replaced by the previous ones."""

    def body(previous: Any, slices: Any) -> tuple[Any, Any]:
        output, is_valid = slices
        output = ops.where(_spread(is_valid, output), output, previous)
        return output, output

    nothing = ops.zeros_like(outputs[0])
    return ops.scan(body, nothing, (outputs, mask), reverse=reverse)[1]


def rnn(
    step_function: Callable[[Any, list[Any]], tuple[Any, Any]],
    inputs: Any,
    initial_states: Any,
    go_backwards: bool = False,
    mask: Any = None,
    constants: Any = None,
    unroll: bool = False,
    input_length: Any = None,
    time_major: bool = False,
    zero_output_for_mask: bool = False,
    return_all_outputs: bool = True,
) -> tuple[Any, Any, Any]:
    """Keras' `backend.rnn`: call ``step_function(x, states + constants)`` step by step.

    Returns the last output, all outputs in the order they were computed, and the last
    states. An `input_length` for each sequence masks the steps after it.
    """
    xs = inputs if time_major else tree.map_leaves(swapped, inputs)
    length = tree.flatten(xs)[0].shape[0]
    if mask is None and np.ndim(input_length):
        mask = ops.expand_dims(ops.arange(length), -1) < ops.cast(input_length, "int32")
    elif mask is not None:
        mask = ops.reshape(ops.cast(mask, "bool"), tuple(mask.shape[:2]))
        mask = mask if time_major else swapped(mask)

    def step(x: Any, states: Any) -> tuple[Any, Any]:
        return step_function(x, [*states, *(constants or [])])

    last, outputs, states = run_over_time(
        step,
        xs,
        list(initial_states),
        mask,
        reverse=go_backwards,
        zero_output_for_mask=zero_output_for_mask,
    )
    outputs = ops.flip(outputs, axis=0) if go_backwards else outputs
    outputs = outputs if return_all_outputs else ops.expand_dims(last, 0)
    return last, outputs if time_major else swapped(outputs), states
