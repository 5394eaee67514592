"""The loop over time behind every recurrent layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganglion import ops, tree

Step = Callable[[Any, Any], tuple[Any, Any]]  # (x, states) -> (output, new states)


def swapped(x: Any) -> Any:
    """Return an array with its first two axes, batch and time, exchanged."""
    return ops.transpose(x, axes=(1, 0, *range(2, len(x.shape))))


def run_over_time(
    step: Step,
    xs: Any,
    states: Any,
    mask: Any = None,
    *,
    reverse: bool = False,
    zero_output_for_mask: bool = False,
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
    """Give the mask of a step (batch,) as many axes as what it chooses from."""
    return ops.reshape(is_valid, (-1, *[1] * (len(x.shape) - 1)))


def _repeated(outputs: Any, mask: Any, reverse: bool) -> Any:
    """Return outputs with those of masked steps replaced by the one before."""

    def body(previous: Any, slices: Any) -> tuple[Any, Any]:
        output, is_valid = slices
        output = ops.where(_spread(is_valid, output), output, previous)
        return output, output

    nothing = ops.zeros_like(outputs[0])
    return ops.scan(body, nothing, (outputs, mask), reverse=reverse)[1]
