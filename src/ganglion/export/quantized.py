"""int8: weights rounded per channel, activations by their ranges in a sample.

Products are then of integers, which float32 adds up exactly; so a file holds a
byte per weight, and results do not depend on the machine that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files, tree
from ganglion.compiler import registry
from ganglion.compiler.ir import pointwise
from ganglion.compiler.ir.graph import (
    Constant,
    Graph,
    Node,
    Value,
    rebuild,
    rewritten,
)
from ganglion.compiler.ir.shaping import broadcast
from ganglion.export.c_text import UnsupportedError
from ganglion.export.inference import Inference, inference_of
from ganglion.export.wide_floats import in_float32

ROWS = 32  # that are computed at once
LARGEST = 127  # of a weight, or of a number with a sign
LARGEST_UNSIGNED = 255  # of values that are never negative, as after ReLU
_PRODUCTS = ("conv", "matmul")


@dataclass(frozen=True)
class Sample:
    """Rows like those to predict: an array per input, and labels if known."""

    inputs: tuple[np.ndarray, ...]
    labels: np.ndarray | None = None

    @staticmethod
    def of(sample: Any, inference: Inference) -> Sample:
        """Return a sample from a file, from arrays, or from arrays and labels."""
        if isinstance(sample, (str, Path)):
            return _read(Path(sample), inference)
        x, y = (
            sample if isinstance(sample, tuple) and len(sample) == 2 else (sample, None)
        )
        is_text = inference.inputs[0].is_text and len(inference.inputs) == 1
        arrays = [np.asarray(x)] if is_text else tree.flatten(x)  # of a list of texts
        return _checked(arrays, y, inference)


def _read(path: Path, inference: Inference) -> Sample:
    """Read an .npy file of rows, or an .npz file of x (or each input's name) and y."""
    files.refuse_special(path)
    try:
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a .npy or .npz file of numbers.") from error
    if isinstance(loaded, np.ndarray):
        return _checked([loaded], None, inference)
    with loaded:
        names = [port.name for port in inference.inputs]
        names = ["x"] if "x" in loaded else names
        missing = [name for name in names if name not in loaded]
        if missing:
            raise ValueError(
                f"{path} has no array {', '.join(missing)}: it has "
                f"{', '.join(loaded.files)}. Save it with np.savez(path, x=..., y=...)."
            )
        labels = loaded["y"] if "y" in loaded.files else None
        return _checked([loaded[name] for name in names], labels, inference)


def _checked(arrays: Sequence[Any], labels: Any, inference: Inference) -> Sample:
    ports = inference.inputs
    if len(arrays) != len(ports):
        raise ValueError(
            f"The sample has {len(arrays)} inputs, the model {len(ports)}."
        )
    rows = tuple(
        np.ascontiguousarray(array, port.dtype)
        for array, port in zip(arrays, ports, strict=True)
    )
    for array, port in zip(rows, ports, strict=True):
        if array.shape[1:] != port.shape or not len(array):
            raise ValueError(
                f'The sample has the shape {array.shape}, the input "{port.name}" is '
                f"of rows of shape {port.shape}."
            )
    labels = None if labels is None else np.asarray(labels)
    if labels is not None and len(labels) != len(rows[0]):
        raise ValueError(
            f"The sample has {len(rows[0])} rows and {len(labels)} labels."
        )
    return Sample(rows, labels)


@dataclass(frozen=True)
class Calibration:
    """The range of the inputs of each product in a sample."""

    ranges: tuple[tuple[float, float], ...]
    effect: str  # of rounding, in words

    def rounded(self, inference: Inference) -> Inference:
        """Return a forward pass with its products in int8."""
        return _rounded(inference, self.ranges)


def calibrated(model: Any, sample: Any, input_signature: Any = None) -> Calibration:
    """Return the calibration of a model by a sample of rows."""
    inference = in_float32(inference_of(model, ROWS, input_signature))
    if sample is None:
        raise ValueError(
            "int8 needs a sample of rows, by which activations are scaled: "
            "sample=x or (x, y), or --sample FILE (.npy, or .npz of x and y)."
        )
    rows = _numbers_of(model, Sample.of(sample, inference), inference)
    ranges, before = _observed(inference, rows)
    if not ranges:
        raise UnsupportedError(
            f'The model "{inference.name}" has no products outside of loops over '
            "time: there is nothing to round to int8."
        )
    rounded = _rounded(inference, ranges)
    runs = _runs(rounded, rounded.program.graph, rows)
    after = np.concatenate([results["output/0"][:count] for results, count in runs])
    return Calibration(tuple(ranges), _comparison(before, after, rows.labels))


def calibration_if(
    int8: bool, model: Any, sample: Any, input_signature: Any
) -> Calibration | None:
    """Return the calibration if int8 is requested, otherwise None."""
    if int8:
        return calibrated(model, sample, input_signature)
    if sample is not None:
        raise ValueError("A sample is for int8: pass int8=True, or --int8.")
    return None


def _numbers_of(model: Any, sample: Sample, inference: Inference) -> Sample:
    """Return a sample as the data of the program, after the front."""
    front = inference.front
    if front is None:
        return sample
    if not front.is_plain:
        raise UnsupportedError(
            f'The model "{inference.name}" has a layer that encodes words or '
            "categories as ones or counts, which int8 does not go with: let it give "
            "indices, and encode them with a CategoryEncoding."
        )
    network = model._network
    inputs = list(sample.inputs)
    numbers = network.host_part.run(inputs if len(inputs) > 1 else inputs[0])
    pairs = zip(numbers, inference.numbers, strict=True)
    arrays = tuple(np.asarray(array, port.dtype) for array, port in pairs)
    return replace(sample, inputs=arrays)


# ---- ranges --------------------------------------------------------------------------


def _is_product(node: Node) -> bool:
    return (
        node.op.name in _PRODUCTS
        and node.dtype == np.float32
        and isinstance(node.inputs[1], Constant)
        and node.inputs[1].shape[-1] == node.shape[-1]
    )


def _observed(
    inference: Inference, rows: Sample
) -> tuple[list[tuple[float, float]], np.ndarray]:
    """Return the range of each product's inputs, in order, and the first output."""
    graph = inference.program.graph
    read = [node.inputs[0] for node in graph.nodes if _is_product(node)]
    names = [f"read/{number}" for number in range(len(read))]
    outputs = {**graph.outputs, **dict(zip(names, read, strict=True))}
    ranges = dict.fromkeys(names, (np.inf, -np.inf))
    parts: list[np.ndarray] = []
    for results, count in _runs(
        inference, Graph.of(graph.name, graph.inputs, outputs), rows
    ):
        parts.append(results["output/0"][:count])
        for name, (low, high) in ranges.items():
            array = results[name]  # rows that fill a batch up are those of the sample
            ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
    return list(ranges.values()), np.concatenate(parts)


def _runs(
    inference: Inference, graph: Graph, rows: Sample
) -> Iterator[tuple[Mapping[str, np.ndarray], int]]:
    """Yield the results of a graph for some rows at a time, and how many those are."""
    program = replace(inference.program, graph=graph, results=tuple(graph.outputs))
    executable = registry.backend("cpu").compile(program)
    names = [port.name for port in inference.numbers]
    for start in range(0, len(rows.inputs[0]), ROWS):
        parts = [array[start : start + ROWS] for array in rows.inputs]
        count = len(parts[0])
        padded = [np.resize(part, (ROWS, *part.shape[1:])) for part in parts]
        data = dict(zip(names, padded, strict=True))
        results = executable.run(data, {}, 1)
        yield {name: array[0] for name, array in results.items()}, count


# ---- rounding ------------------------------------------------------------------------


def _rounded(inference: Inference, ranges: Sequence[tuple[float, float]]) -> Inference:
    """Return the forward pass with the operands of its products rounded."""
    left = iter(ranges)

    def change(node: Node, new: Node) -> Value:
        return _in_int8(new, *next(left)) if _is_product(node) else new

    graph = rewritten(inference.program.graph, change)
    graph = replace(graph, inputs=inference.program.graph.inputs)
    return replace(inference, program=replace(inference.program, graph=graph))


def _in_int8(node: Node, low: float, high: float) -> Value:
    x, weights = node.inputs
    assert isinstance(weights, Constant)
    least, most = (0, LARGEST_UNSIGNED) if low >= 0 else (-LARGEST, LARGEST)
    step = max(high / most, -low / LARGEST) or 1.0
    axes = tuple(range(len(weights.shape) - 1))
    steps = np.abs(weights.array).max(axis=axes) / LARGEST
    steps = np.where(steps > 0, steps, 1).astype(np.float32)
    integers = Constant(np.rint(weights.array / steps).astype(np.float32))
    product = rebuild(node, (_on_grid(x, step, least, most), integers))
    scale = Constant((steps * np.float32(step)).astype(np.float32))
    return pointwise.multiply(product, broadcast(scale, shape=node.shape))


def _on_grid(x: Value, step: float, least: int, most: int) -> Value:
    """Return a value as an integer number of steps."""

    def filled(number: float) -> Value:
        return broadcast(Constant(np.float32(number)), shape=x.shape)

    counted = pointwise.round(pointwise.multiply(x, filled(1 / step)))
    return pointwise.minimum(pointwise.maximum(counted, filled(least)), filled(most))


def _comparison(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray | None
) -> str:
    """Describe the effect of rounding, by the labels if there are any."""
    rows = len(before)
    is_chosen = before.ndim == 2 and before.shape[1] > 1
    largest = float(np.abs(before - after).max())
    if not is_chosen:
        return f"int8: outputs change by {largest:.3g} at most, on {rows:,} rows."
    first, second = before.argmax(axis=1), after.argmax(axis=1)
    if labels is None:
        share = float((first == second).mean())
        return (
            f"int8: {share:.4f} of {rows:,} rows keep their class; outputs change by "
            f"{largest:.3g} at most."
        )
    known = (
        labels.argmax(axis=1) if labels.ndim == 2 and labels.shape[1] > 1 else labels
    )
    known = known.reshape(-1)
    accuracy = [float((chosen == known).mean()) for chosen in (first, second)]
    return (
        f"int8: accuracy {accuracy[0]:.4f} before, {accuracy[1]:.4f} after, on "
        f"{rows:,} rows."
    )
