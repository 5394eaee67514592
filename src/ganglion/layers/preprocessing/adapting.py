"""The data that `adapt` reads, and the counts that it keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np


def is_iterable_of_batches(data: Any) -> bool:
    """Return whether data is a source of batches, no array and no list of values."""
    is_array = hasattr(data, "__array__") or hasattr(data, "numpy")
    is_value = isinstance(data, (list, tuple, str, bytes))
    if is_array or is_value:
        return False
    return hasattr(data, "__iter__") or hasattr(data, "__getitem__")


def batches_of(data: Any, steps: int | None = None) -> Iterator[Any]:
    """Yield the batches of a data set; refuse batches with labels."""
    for batch in islice(iter(data), steps):
        if isinstance(batch, tuple):
            raise ValueError(
                f"`adapt` got batches of {len(batch)} parts, data and labels: give it "
                "the data alone, as in layer.adapt(x for x, y in batches)."
            )
        yield batch


class TokenCounts:
    """The number of occurrences of each token, and of documents that have it."""

    def __init__(self) -> None:
        self.tokens: Counter[Any] = Counter()
        self._documents: Counter[Any] = Counter()
        self._rows = 0

    def add(self, tokens: Sequence[Any], lengths: np.ndarray, documents: bool) -> None:
        """Count the tokens of some rows, one after the other in a flat sequence."""
        if isinstance(tokens, np.ndarray):
            tokens = tokens.tolist()
        self.tokens.update(tokens)
        if documents:
            start = 0
            for length in lengths.tolist():
                self._documents.update(set(tokens[start : start + length]))
                start += length
            self._rows += len(lengths)

    def most_common(self, without: Collection[Any]) -> list[Any]:
        """Return the tokens by how often they occur, then by their order, downward."""
        counts = self.tokens
        known = [token for token in counts if token not in without]
        return sorted(known, key=lambda token: (counts[token], token), reverse=True)

    def rarity(self, tokens: Sequence[Any]) -> np.ndarray:
        """Return the inverse document frequency of tokens."""
        documents = np.array([self._documents[token] for token in tokens])
        return np.log(1 + self._rows / (1 + documents))
