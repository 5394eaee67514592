"""`tf.summary`: numbers, pictures and histograms for TensorBoard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion.callbacks.event_file import EventFile
from ganglion.compat.tensorflow.arrays import known


class _Current(threading.local):
    writer: Writer | None = None
    step: Any = None


_current = _Current()


class Writer:
    """Writes events into a folder: those of blocks inside `as_default`."""

    def __init__(self, logdir: Any) -> None:
        self.events = EventFile(str(logdir))

    @contextmanager
    def as_default(self, step: Any = None) -> Iterator[Writer]:
        """Send the events of a block to this file."""
        before = _current.writer, _current.step
        _current.writer, _current.step = self, before[1] if step is None else step
        try:
            yield self
        finally:
            _current.writer, _current.step = before
            self.flush()

    def set_as_default(self, step: Any = None) -> None:
        """Send everything from here on to this file."""
        _current.writer, _current.step = self, step

    def flush(self) -> None:
        """Write pending events."""
        self.events.flush()

    close = flush


def create_file_writer(
    logdir: Any,
    max_queue: int | None = None,
    flush_millis: int | None = None,
    name: str | None = None,
) -> Writer:
    """Return a writer of events into a folder."""
    return Writer(logdir)


def _events(step: Any) -> tuple[EventFile, int] | None:
    if _current.writer is None:
        return None
    number = _current.step if step is None else step
    if number is None:
        raise ValueError("No step set: pass `step=` to tf.summary's functions.")
    return _current.writer.events, int(number)


def scalar(name: str, data: Any, step: Any = None) -> bool:
    """Write a number."""
    events = _events(step)
    if events is not None:
        events[0].scalar(name, float(known(data, "summary.scalar")), events[1])
    return events is not None


def histogram(name: str, data: Any, step: Any = None) -> bool:
    """Write how numbers are distributed."""
    events = _events(step)
    if events is not None:
        events[0].histogram(name, known(data, "summary.histogram"), events[1])
    return events is not None


def image(
    name: str,
    data: Any,
    step: Any = None,
    max_outputs: int = 3,
) -> bool:
    """Write pictures: whole numbers up to 255, or floats from 0 to 1."""
    events = _events(step)
    if events is not None:
        pictures = known(data, "summary.image")[:max_outputs]
        if pictures.dtype.kind == "f":
            pictures = np.clip(pictures * 255, 0, 255)
        events[0].image(name, pictures.astype(np.uint8), events[1])
    return events is not None
