"""Keras 2's `keras.preprocessing.sequence`: windows of series, pairs of words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion.utils.data import PyDataset, pad_sequences

_EULER_GAMMA = 0.577


class TimeseriesGenerator(PyDataset):
    """Windows of a series, each with the target of the step after it.

    Args:
        data: The series; its first axis is time.
        targets: A target for each step.
        length: How many steps a window spans.
        sampling_rate: From a step within a window to the next.
        stride: From a window to the next.
        start_index: The first step that is used.
        end_index: The last step whose target is used; by default, the last.
        shuffle: Whether batches are drawn at random.
        reverse: Whether windows run backwards in time.
        batch_size: Windows a batch.
        **kwargs: Arguments of `PyDataset`.

    >>> series = np.arange(6)
    >>> generator = TimeseriesGenerator(series, series, length=2, batch_size=3)
    >>> windows, targets = generator[0]
    >>> windows.tolist(), targets.tolist()
    ([[0, 1], [1, 2], [2, 3]], [2, 3, 4])
    """

    def __init__(
        self,
        data: Any,
        targets: Any,
        length: int,
        sampling_rate: int = 1,
        stride: int = 1,
        start_index: int = 0,
        end_index: int | None = None,
        shuffle: bool = False,
        reverse: bool = False,
        batch_size: int = 128,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(data) != len(targets):
            raise ValueError(
                f"`data` has {len(data)} steps and `targets` has {len(targets)}: each "
                "step needs a target."
            )
        counts = {
            "length": length,
            "sampling_rate": sampling_rate,
            "stride": stride,
            "batch_size": batch_size,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"`{name}` is 1 or more, not {count}.")
        self.data, self.targets, self.length = data, targets, length
        self.sampling_rate, self.stride, self.batch_size = (
            sampling_rate,
            stride,
            batch_size,
        )
        self.shuffle, self.reverse = shuffle, reverse
        self.start_index = start_index + length
        self.end_index = len(data) - 1 if end_index is None else end_index
        if self.start_index > self.end_index:
            raise ValueError(
                f"A window of {length} steps from step {start_index} on leaves no step "
                f"up to {self.end_index} as a target: choose a smaller `length`."
            )

    def __len__(self) -> int:
        steps = self.end_index - self.start_index + 1
        return -(-steps // (self.batch_size * self.stride))

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if self.shuffle:
            bounds = self.start_index, self.end_index + 1
            rows = np.random.randint(*bounds, size=self.batch_size)
        else:
            first = self.start_index + self.batch_size * self.stride * index
            last = min(first + self.batch_size * self.stride, self.end_index + 1)
            rows = np.arange(first, last, self.stride)
        samples = np.array(
            [self.data[row - self.length : row : self.sampling_rate] for row in rows]
        )
        targets = np.array([self.targets[row] for row in rows])
        return (samples[:, ::-1] if self.reverse else samples), targets


def make_sampling_table(size: int, sampling_factor: float = 1e-5) -> np.ndarray:
    """Return how likely the word of each rank is kept: frequent ones are less so.

    Args:
        size: How many ranks.
        sampling_factor: As in word2vec; smaller for fewer frequent words.

    >>> make_sampling_table(3).round(5)
    array([0.00315, 0.00315, 0.00548])
    """
    if size < 1:
        raise ValueError(f"`size` is 1 or more, not {size}.")
    rank = np.arange(size)
    rank[0] = 1
    # By Zipf's law, one over the frequency of the word of a rank.
    rarity = rank * (np.log(rank) + _EULER_GAMMA) + 0.5 - 1.0 / (12.0 * rank)
    return np.minimum(1.0, np.sqrt(sampling_factor * rarity))


def skipgrams(
    sequence: Sequence[int],
    vocabulary_size: int,
    window_size: int = 4,
    negative_samples: float = 1.0,
    shuffle: bool = True,
    categorical: bool = False,
    sampling_table: Any = None,
    seed: int | None = None,
) -> tuple[list[list[int]], list[Any]]:
    """Return pairs of words that stand close to each other, and pairs drawn at random.

    Draws are from Python's `random`, as in Keras: `set_random_seed` makes them repeat.

    Args:
        sequence: Word numbers; 0 is no word.
        vocabulary_size: The largest word number, and one.
        window_size: How far apart words may stand.
        negative_samples: Random pairs for each pair found.
        shuffle: Whether to mix the pairs.
        categorical: Whether labels are [0, 1] and [1, 0] instead of 1 and 0.
        sampling_table: How likely the word of each number is looked at.
        seed: Of the mixing.

    >>> skipgrams([1, 2], 3, negative_samples=0, shuffle=False)
    ([[1, 2], [2, 1]], [1, 1])
    """
    couples = []
    for place, word in enumerate(sequence):
        if not word:
            continue
        if sampling_table is not None and sampling_table[word] < random.random():
            continue
        before = sequence[max(0, place - window_size) : place]
        after = sequence[place + 1 : place + 1 + window_size]
        couples += [[word, other] for other in (*before, *after) if other]
    close, apart = ([0, 1], [1, 0]) if categorical else (1, 0)
    labels: list[Any] = [close] * len(couples)
    if negative_samples > 0:
        words = [word for word, _ in couples]
        random.shuffle(words)
        count = int(len(labels) * negative_samples)
        couples += [
            [words[i % len(words)], random.randint(1, vocabulary_size - 1)]
            for i in range(count)
        ]
        labels += [apart] * count
    if shuffle:
        seed = random.randint(0, 10_000_000) if seed is None else seed
        random.Random(seed).shuffle(couples)
        random.Random(seed).shuffle(labels)
    return couples, labels


__all__ = ["TimeseriesGenerator", "make_sampling_table", "pad_sequences", "skipgrams"]
