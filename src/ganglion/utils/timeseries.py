"""Keras' `timeseries_dataset_from_array`: windows of a series as data to train on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.system.records import record
from ganglion.utils.row_dataset import RowDataset

_IN_MEMORY = 256 << 20  # bytes of windows that `fit` gets as rows, not as batches


@record(guarded=True)
class Windows:
    """Windows of a series, which is not copied until some of them are read."""

    series: np.ndarray
    starts: np.ndarray
    steps: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            return replace(self, starts=self.starts[rows])
        return self.series[self.starts[rows][:, np.newaxis] + self.steps]

    @property
    def nbytes(self) -> int:
        """The bytes of all windows."""
        row = self.series[:1].nbytes
        return len(self.starts) * len(self.steps) * row


class TimeseriesDataset(RowDataset):
    """Windows of a series in batches."""

    def as_rows(self) -> dict[str, Any] | None:
        """Return all windows if they are not too many, so that `fit` is fast."""
        rows = super().as_rows()
        if rows is None or self.x.nbytes > _IN_MEMORY:
            return None
        return {**rows, "x": self.x[np.arange(len(self.x))]}


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "tf",  # noqa: A002 (Keras' name)
) -> TimeseriesDataset:
    """Return windows of a series as data for `fit`.

    Args:
        data: The series; its first axis is time.
        targets: What belongs to the window that begins at each step, or None.
        sequence_length: Steps a window.
        sequence_stride: From the start of a window to that of the next.
        sampling_rate: From a step within a window to the next.
        batch_size: Windows a batch; None for single windows.
        shuffle: Whether to mix the windows.
        seed: Of the mixing.
        start_index: The first step that is used.
        end_index: The first step that is not.
        format: Accepted; the data is our own.

    >>> data = timeseries_dataset_from_array(np.arange(6), None, 3, batch_size=2)
    >>> [batch.tolist() for batch in data]
    [[[0, 1, 2], [1, 2, 3]], [[2, 3, 4], [3, 4, 5]]]
    """
    if format not in ("tf", "grain"):
        raise ValueError(f"`format` should be 'tf' or 'grain', got {format!r}.")
    first, end = _range(len(data), start_index, end_index)
    series = np.asarray(data[first:end])
    wanted = None if targets is None else np.asarray(targets[first:end])
    counts = {
        "sequence_length": sequence_length,
        "sequence_stride": sequence_stride,
        "sampling_rate": sampling_rate,
    }
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be 1 or more, got {count}.")
    span = (sequence_length - 1) * sampling_rate + 1
    if span > len(series):
        raise ValueError(
            f"A window of {sequence_length} steps, one in {sampling_rate}, spans "
            f"{span} steps, and the series has {len(series)} from {first} to {end}: "
            "choose a smaller `sequence_length` or `sampling_rate`."
        )
    count = len(series) - span + 1
    if wanted is not None:
        count = min(count, len(wanted))
        if not count:
            raise ValueError(f"`targets` has no values from {first} to {end}.")
    starts = np.arange(0, count, sequence_stride)
    seed = int(np.random.randint(1_000_000)) if seed is None else seed
    if shuffle:  # also here, as Keras does: the result of `take` is shuffled, too
        np.random.RandomState(seed).shuffle(starts)
    windows = Windows(series, starts, np.arange(0, span, sampling_rate))
    y = None if wanted is None else wanted[starts]
    return TimeseriesDataset(windows, y, batch_size, shuffle, seed)


def _range(length: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last = start or 0, length if end is None else end
    if not 0 <= first < length:
        raise ValueError(
            f"`start_index` must be from 0 to below {length}, the length of the data, "
            f"got {start}."
        )
    if not first < last <= length:
        raise ValueError(
            f"`end_index` must be above start_index={first} and at most {length}, the "
            f"length of the data, got {end}."
        )
    return first, last
