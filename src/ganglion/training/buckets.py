"""Length buckets: batches of many lengths, padded to a few, each compiled once.

For its first length a model is compiled as it is. From the second length on, its
batches are padded to the next bucket, if `padding_proof` shows that no result depends
on the padding; labels and weights per step are padded too, and predictions are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.system.terminal import tell_once
from ganglion.training.data_adapters import PADDING, Table
from ganglion.training.padding_proof import PaddingRule, counts_by_step, padding_rule

_LEAST = 8


def bucket(length: int) -> int:
    """Return the next power of two, or three quarters of it.

    >>> [bucket(length) for length in (1, 8, 9, 13, 17, 100)]
    [8, 8, 12, 16, 24, 128]
    """
    power = max(_LEAST, 1 << (length - 1).bit_length())
    return power * 3 // 4 if power > _LEAST and length <= power * 3 // 4 else power


class LengthBuckets:
    """The lengths that a model has seen, and how its batches are padded."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.clear()

    def clear(self) -> None:
        """Forget all lengths; called when the model or its training changes."""
        self._first: dict[str, int] = {}  # of each kind of step
        self._is_padding: set[str] = set()
        self._rule: tuple[Any, PaddingRule | None] = (None, None)
        self._counts_by_step: bool | None = None

    @property
    def may_pad(self) -> bool:
        """Whether batches of the model may be padded."""
        return self._current_rule() is not None

    def padded(self, kind: str, table: Table) -> tuple[Table, int | None]:
        """Return a table to run, and the length that it had if it was padded."""
        rule = self._current_rule()
        if rule is None:
            return table, None
        length = _common_length(rule, tree.flatten(table.parts.x))
        if length is None or not self._is_due(kind, length):
            return table, None
        if kind != "predict":
            if self._counts_by_step is None:
                self._counts_by_step = counts_by_step(self._model, rule, table.parts.y)
            if not self._counts_by_step:
                return table, None
        longer = _longer(rule, table, length, bucket(length))
        if longer is None:
            return table, None
        tell_once(
            f'ganglion: the batches of "{self._model.name}" have different lengths: '
            "each is padded to the next of 8, 12, 16, 24, 32, ... steps and compiled "
            "once a size. Masks leave the padding out of all results."
        )
        return longer, length

    def cut(self, results: Any, length: int | None) -> Any:
        """Return predictions of shape (steps, rows, ...) without the padding."""
        rule = self._current_rule()
        if rule is None or length is None or results is None:
            return results
        leaves = [
            leaf[:, :, :length] if has_steps else leaf
            for leaf, has_steps in zip(
                tree.flatten(results), rule.has_steps, strict=True
            )
        ]
        return tree.pack(results, leaves)

    def _current_rule(self) -> PaddingRule | None:
        network = self._model._network
        if self._rule[0] is not network:
            self._rule = network, padding_rule(self._model)
        return self._rule[1]

    def _is_due(self, kind: str, length: int) -> bool:
        """Return whether lengths differ; in training also if they did before a save."""
        state = self._model.training_state
        is_other = self._first.setdefault(kind, length) != length
        if kind == "train":
            state.pads_batches |= is_other
            return bool(state.pads_batches)
        if is_other:
            self._is_padding.add(kind)
        return kind in self._is_padding


def _common_length(rule: PaddingRule, arrays: list[Any]) -> int | None:
    """Return the length of all inputs that have steps, None if they differ."""
    if len(arrays) != len(rule.numbers):
        return None
    lengths = set()
    for array, number in zip(arrays, rule.numbers, strict=True):
        if number is None:
            continue
        if array.ndim < 2 or array.dtype.type(number) != number:
            return None
        lengths.add(array.shape[1])
    return lengths.pop() if len(lengths) == 1 and 0 not in lengths else None


def _longer(rule: PaddingRule, table: Table, length: int, size: int) -> Table | None:
    """Return a table with steps added, None if its labels or weights do not fit."""

    def extended(array: Any, number: float) -> np.ndarray:
        borders = [(0, size - length if axis == 1 else 0) for axis in range(array.ndim)]
        return np.pad(array, borders, constant_values=array.dtype.type(number))

    x, y, weight = table.parts
    inputs = [
        array if number is None else extended(array, number)
        for array, number in zip(tree.flatten(x), rule.numbers, strict=True)
    ]
    labels, weights = tree.flatten(y), tree.flatten(weight)
    if not _fit(rule.has_steps, labels, length, least_ndim=2):
        return None
    if not _fit(rule.has_steps, weights, length, least_ndim=1):
        return None
    if len(weights) != len(rule.has_steps) and len(set(rule.has_steps)) > 1:
        return None  # one array of weights for outputs with and without steps
    new_y = _each(extended, rule.has_steps, labels)
    new_weight = _each(extended, rule.has_steps, weights)
    longer = Table(
        tree.pack(x, inputs), tree.pack(y, new_y), tree.pack(weight, new_weight)
    )
    longer.batch_size, longer.shuffle = table.batch_size, table.shuffle
    share = np.full(table.rows, size / length, "float32")
    longer.columns.append((PADDING, share))
    return longer


def _fit(
    flags: Sequence[bool], arrays: list[Any], length: int, least_ndim: int
) -> bool:
    """Return whether there is one array for each output, with steps where it has any.

    Weights may be one array for all outputs, and one number a row.
    """
    if all(array is None for array in arrays):
        return True
    if len(arrays) == 1 and least_ndim == 1:
        flags = flags[:1]
    if len(arrays) != len(flags):
        return False
    return all(
        array is None
        or not has_steps
        or (array.ndim == 1 == least_ndim)
        or (array.ndim > 1 and array.shape[1] == length)
        for array, has_steps in zip(arrays, flags, strict=True)
    )


def _each(extended: Any, flags: Sequence[bool], arrays: list[Any]) -> list[Any]:
    def padded(array: Any, has_steps: bool) -> Any:
        is_left = array is None or array.ndim == 1 or not has_steps
        return array if is_left else extended(array, 0)

    return [padded(*pair) for pair in zip(arrays, flags, strict=False)]
