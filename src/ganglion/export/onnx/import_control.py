"""If, Loop and Scan unrolled: a single branch, or the body once for each step.

Conditions and numbers of steps must be known while the model is built: our graphs have
loops over time, but none whose length depends on data. The steps of a loop share their
weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import ops
from ganglion.export.onnx.parsing import OnnxGraph, OnnxNode
from ganglion.system import budget

if TYPE_CHECKING:
    from ganglion.export.onnx.importer import Importer


def _constant(value: Any, what: str) -> Any:
    """Return a number that is known; refuse a number that depends on the data."""
    array = getattr(value, "array", None)
    if array is None or array.size != 1:
        raise ValueError(
            f"{what} depends on the data, and models here have no branches or loops "
            "that do: export it with a fixed one"
        )
    return array.reshape(()).item()


def branch(f: Importer, node: OnnxNode, values: Sequence[Any]) -> Any:
    """Build the branch of an If that is taken."""
    is_true = bool(_constant(values[0], "its condition"))
    return f.inlined(_body(node, "then_branch" if is_true else "else_branch"), [])


def loop(f: Importer, node: OnnxNode, values: Sequence[Any]) -> Any:
    """Build the body of a Loop as often as it runs."""
    body, (most, going, *carried) = _body(node, "body"), values
    if most is None:
        raise ValueError("it has no number of steps, only a condition")
    steps = int(_constant(most, "its number of steps"))
    going = True if going is None else bool(_constant(going, "its condition"))
    stacked: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    step = 0
    while going and step < steps:
        budget.count("steps of loops")
        counters = [f.constant(np.int64(step)), f.constant(np.bool_(going))]
        still, *results = f.inlined(body, [*counters, *carried])
        going = bool(_constant(still, "its condition"))
        carried = results[: len(carried)]
        for parts, part in zip(stacked, results[len(carried) :], strict=True):
            parts.append(part)
        step += 1
    return [*carried, *(_stacked(f, parts, 0) for parts in stacked)]


def scan(f: Importer, node: OnnxNode, values: Sequence[Any]) -> Any:
    """Build the body of a Scan for each part of what it runs over."""
    if f.opset < 9:
        raise ValueError("it is of opset 8: convert it with onnx.version_converter")
    body, count = _body(node, "body"), node.attrs["num_scan_inputs"]
    states = list(values[: len(values) - count])
    scanned = values[len(states) :]
    axes = node.attrs.get("scan_input_axes", (0,) * count)
    backwards = node.attrs.get("scan_input_directions", (0,) * count)
    lengths = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1 or None in lengths:
        raise ValueError("how many steps it takes is not known")
    (steps,) = lengths
    more = len(body.outputs) - len(states)
    stacked: list[list[Any]] = [[] for _ in range(more)]
    for step in range(steps):
        budget.count("steps of loops")
        parts = [
            _part(f, x, steps - 1 - step if back else step, axis)
            for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = f.inlined(body, [*states, *parts])
        states = list(results[: len(states)])
        for collected, part in zip(stacked, results[len(states) :], strict=True):
            collected.append(part)
    axes = node.attrs.get("scan_output_axes", (0,) * more)
    reversed_outputs = node.attrs.get("scan_output_directions", (0,) * more)
    return [
        *states,
        *(
            _stacked(f, parts[::-1] if back else parts, axis)
            for parts, axis, back in zip(stacked, axes, reversed_outputs, strict=True)
        ),
    ]


def _body(node: OnnxNode, name: str) -> OnnxGraph:
    body = node.attrs.get(name)
    if not isinstance(body, OnnxGraph):
        raise ValueError(f"it has no graph `{name}`")
    return body


def _part(f: Importer, value: Any, step: int, axis: int) -> Any:
    if hasattr(value, "array"):
        return f.constant(np.take(value.array, step, axis))
    return ops.take(value, step, axis=axis)


def _stacked(f: Importer, parts: Sequence[Any], axis: int) -> Any:
    if not parts:
        raise ValueError("it takes no step, so that what it collects has no shape")
    return ops.stack([f.tensor(part) for part in parts], axis=axis)


CONTROL = {"If": branch, "Loop": loop, "Scan": scan}
