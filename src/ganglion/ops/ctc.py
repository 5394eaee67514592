"""Connectionist temporal classification: its loss, and decoding.

A model gives scores of classes for each time step; a label is what is left when
repeated classes are merged and blanks removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.compiler.ir.host import Typed, host_record, items
from ganglion.ops import reduction
from ganglion.ops.activation import log_softmax
from ganglion.ops.control import scan
from ganglion.ops.creation import one_hot
from ganglion.ops.dispatch import astype, common_type, floating, op
from ganglion.ops.indexing import take_along_axis
from ganglion.ops.joining import concatenate, pad
from ganglion.ops.numpy import logaddexp, where
from ganglion.ops.shapes import broadcast_to, expand_dims, reshape, transpose
from ganglion.variables import read

__all__ = ["ctc_decode", "ctc_loss"]

IMPOSSIBLE = -1e5  # the logarithm of a probability that plays no part


def _scores(name: str, output: Any) -> Value:
    value = floating(output)
    if value.ndim != 3:
        raise ShapeError(
            f"{name}: expected scores of shape (batch, steps, classes), got "
            f"{value.shape}"
        )
    return astype(value, common_type([value, read(np.float32(0))]))


@op
def ctc_loss(
    target: Any,
    output: Any,
    target_length: Any,
    output_length: Any,
    mask_index: int = 0,
) -> Any:
    """Return minus the log of the probability of each label, over all alignments."""
    scores = _scores("ctc_loss", output)
    labels = astype(target, "int32")
    if labels.ndim != 2 or labels.shape[0] != scores.shape[0]:
        raise ShapeError(
            f"ctc_loss: expected labels of shape ({scores.shape[0]}, length), got "
            f"{labels.shape}"
        )
    batch, steps, _ = scores.shape
    dtype = scores.dtype
    logarithms = log_softmax(scores)
    # States: blank, first class, blank, second class, ..., blank.
    blanks = broadcast_to(read(np.int32(mask_index)), (batch, labels.shape[1], 1))
    pairs = concatenate([blanks, expand_dims(labels, -1)], axis=-1)
    flat = reshape(pairs, (batch, 2 * labels.shape[1]))
    states = pad(flat, [(0, 0), (0, 1)], constant_values=np.int32(mask_index))
    count = states.shape[1]
    emitted = take_along_axis(
        logarithms, broadcast_to(expand_dims(states, 1), (batch, steps, count)), axis=-1
    )
    skips = _may_skip(states)
    first = where(read(np.arange(count) < 2), 0.0, IMPOSSIBLE)
    start = astype(broadcast_to(first, (batch, count)), dtype)
    lengths = expand_dims(astype(output_length, "int32"), -1)

    def step(before: Any, inputs: Any) -> tuple[Any, Any]:
        emission, number = inputs
        moved = logaddexp(before, _shifted(before, 1))
        moved = where(skips, logaddexp(moved, _shifted(before, 2)), moved)
        reached = where(number == 0, before, moved) + emission
        after = where(number < lengths, reached, before)
        return after, after

    numbers = read(np.arange(steps, dtype="int32"))
    last, _ = scan(step, start, (transpose(emitted, (1, 0, 2)), numbers))
    end = 2 * astype(target_length, "int32")
    at_end = one_hot(end, count, dtype="bool")
    before_end = one_hot(end - 1, count, dtype="bool")
    return -_log_of_sum(last, at_end, before_end)


def _may_skip(states: Any) -> Any:
    """Return where a state may follow the one two before it: other classes.

    Every second state is a class, also where a label names the blank among its classes.
    """
    count = states.shape[1]
    before = pad(states, [(0, 0), (2, 0)], constant_values=np.int32(-1))
    return (states != before[:, :count]) & read(np.arange(count) % 2 == 1)


def _shifted(logarithms: Any, by: int) -> Any:
    width = logarithms.shape[1]
    padded = pad(logarithms, [(0, 0), (by, 0)], constant_values=IMPOSSIBLE)
    return padded[:, :width]


def _log_of_sum(last: Any, *wanted: Any) -> Any:
    """Return the logarithm of the probability of ending in one of some states."""
    parts = [
        reduction.max(where(states, last, IMPOSSIBLE), axis=-1) for states in wanted
    ]
    return logaddexp(*parts)


# ---- decoding ------------------------------------------------------------------------


def _greedy(
    scores: np.ndarray, lengths: np.ndarray, merge: bool, blank: int
) -> tuple[np.ndarray, np.ndarray]:
    batch, steps, _ = scores.shape
    best = scores.argmax(axis=-1)
    inside = np.arange(steps) < lengths[:, None]
    labels = np.where(inside, best, blank)
    keeps = labels != blank
    if merge:
        keeps[:, 1:] &= labels[:, 1:] != labels[:, :-1]
    decoded = np.full((1, batch, steps), -1, "int32")
    for row in range(batch):
        kept = labels[row, keeps[row]]
        decoded[0, row, : len(kept)] = kept
    total = np.where(inside, scores.max(axis=-1), 0).sum(axis=1, keepdims=True)
    return decoded, (-total).astype(scores.dtype)


def _searched(
    logarithms: np.ndarray, length: int, width: int, blank: int
) -> list[tuple[tuple[int, ...], float]]:
    """Return the best labels of one row with their log probabilities, best first.

    For each label that is still in the beam we have the probability of all alignments
    that end in a blank, and of those that end in its last class.
    """
    beam: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -np.inf)}
    for step in logarithms[:length]:
        reached: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-np.inf] * 2)
        for label, (in_blank, in_class) in beam.items():
            both = np.logaddexp(in_blank, in_class)
            new = reached[label]
            new[0] = np.logaddexp(new[0], both + step[blank])
            if label:
                new[1] = np.logaddexp(new[1], in_class + step[label[-1]])
            for class_, score in enumerate(step):
                if class_ != blank:
                    repeated = label[-1:] == (class_,)
                    longer = reached[(*label, class_)]
                    before = in_blank if repeated else both
                    longer[1] = np.logaddexp(longer[1], before + score)
        best = sorted(reached.items(), key=lambda item: -_total(item[1]))
        beam = {label: (both[0], both[1]) for label, both in best[:width]}
    return [(label, _total(both)) for label, both in beam.items()]


def _total(logarithms: Sequence[float]) -> float:
    in_blank, in_class = logarithms
    return float(np.logaddexp(in_blank, in_class))


def _beam_search(
    scores: np.ndarray, lengths: np.ndarray, width: int, paths: int, blank: int
) -> tuple[np.ndarray, np.ndarray]:
    batch, steps, _ = scores.shape
    peak = scores.max(axis=-1, keepdims=True)
    total = np.log(np.exp(scores - peak).sum(axis=-1, keepdims=True))
    logarithms = scores - peak - total
    decoded = np.full((paths, batch, steps), -1, "int32")
    values = np.full((batch, paths), -np.inf, scores.dtype)
    for row in range(batch):
        best = _searched(logarithms[row], int(lengths[row]), width, blank)
        for number, (label, value) in enumerate(best[:paths]):
            decoded[number, row, : len(label)] = label
            values[row, number] = value
    return decoded, values


def _decode_types(scores: Value, lengths: Value, paths: int, **_: Any) -> list[Typed]:
    batch, steps, _classes = scores.shape
    return [
        ((paths, batch, steps), np.dtype("int32")),
        ((batch, paths), scores.dtype),
    ]


def _decoded(
    scores: np.ndarray,
    lengths: np.ndarray,
    paths: int,
    width: int,
    merge: bool,
    blank: int,
) -> tuple[np.ndarray, np.ndarray]:
    if width:
        return _beam_search(scores, lengths, width, paths, blank)
    return _greedy(scores, lengths, merge, blank)


_decode = host_record("ctc_decode", _decode_types, _decoded)


@op
def ctc_decode(
    inputs: Any,
    sequence_lengths: Any,
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: int = 0,
) -> Any:
    """Return the most likely labels, filled up with -1, and their scores."""
    if strategy not in ("greedy", "beam_search"):
        raise ValueError(
            f"Invalid strategy {strategy!r}. Supported values are 'greedy' and "
            "'beam_search'."
        )
    scores = _scores("ctc_decode", inputs)
    searches = strategy == "beam_search"
    record = _decode(
        scores,
        astype(sequence_lengths, "int32"),
        paths=top_paths if searches else 1,
        width=beam_width if searches else 0,
        merge=merge_repeated,
        blank=scores.shape[-1] - 1 if mask_index is None else mask_index,
    )
    return items(record)
