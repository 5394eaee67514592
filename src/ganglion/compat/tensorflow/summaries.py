"""`tf.summary`: numbers, histograms, pictures, texts, sounds for TensorBoard."""

from __future__ import annotations

import io
import threading
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion.callbacks.event_file import EventFile
from ganglion.compat.tensorflow.arrays import known
from ganglion.compat.tensorflow.data.elements import as_array


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
        """Write all summaries from now on to this file."""
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
    """Write pictures: integers up to 255, or floats from 0 to 1."""
    events = _events(step)
    if events is not None:
        pictures = known(data, "summary.image")[:max_outputs]
        if pictures.dtype.kind == "f":
            pictures = np.clip(pictures * 255, 0, 255)
        events[0].image(name, pictures.astype(np.uint8), events[1])
    return events is not None


def text(name: str, data: Any, step: Any = None) -> bool:
    """Write texts, which are shown as Markdown."""
    events = _events(step)
    if events is not None:
        texts = np.ravel(as_array(data)).tolist()
        events[0].texts(name, texts, events[1])
    return events is not None


def audio(
    name: str,
    data: Any,
    sample_rate: int,
    step: Any = None,
    max_outputs: int = 3,
    encoding: Any = None,
) -> bool:
    """Write sounds, (number, steps, channels) from -1 to 1, as WAV files."""
    if encoding not in (None, "wav"):
        raise ValueError(f"tf.summary.audio writes encoding='wav', not {encoding!r}.")
    events = _events(step)
    if events is not None:
        sounds = known(data, "summary.audio")[:max_outputs]
        files = [_as_wav(sound, int(sample_rate)) for sound in sounds]
        events[0].sounds(name, files, events[1])
    return events is not None


def _as_wav(sound: np.ndarray, rate: int) -> bytes:
    samples = np.clip(np.rint(sound * 32767), -32768, 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(sound.shape[-1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()
