"""Keras' `audio_dataset_from_directory`: a folder of WAV files as data to train on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import files
from ganglion.utils.folders import (
    FileKind,
    Listing,
    check_arguments,
    list_files,
    split_files,
)
from ganglion.utils.row_dataset import RowDataset

_SOUNDS = FileKind("audio files", (".wav",), lambda name: name.lower().endswith(".wav"))


class SoundDataset(RowDataset):
    """Sounds in batches; shorter ones are filled with zeros at the end."""

    def _inputs(self, rows: np.ndarray) -> np.ndarray:
        return _joined([self.x[row] for row in rows])

    def as_rows(self) -> dict[str, Any] | None:
        """Return the rows if all sounds are of one length, None otherwise."""
        known = super().as_rows()
        if known is None or len({sound.shape for sound in self.x}) > 1:
            return None
        return known | {"x": _joined(list(self.x))}


def audio_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    sampling_rate: int | None = None,
    output_sequence_length: int | None = None,
    ragged: bool = False,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    verbose: bool = True,
) -> Any:
    """Return the sounds of a folder as data for `fit`, read once.

    Files, order and split are Keras'. A sound has the shape (samples, channels), in
    floats from -1 to 1.

    Args:
        directory: Holds a folder a class, with WAV files of 8, 16, 24 or 32 bits.
        labels: "inferred" (from the folders), None, or a list of class numbers.
        label_mode: "int", "categorical", "binary" or None.
        class_names: The order of the classes, or some of them.
        batch_size: Sounds a batch; None for single sounds.
        sampling_rate: The rate that all files must have; none is resampled.
        output_sequence_length: Samples of each, by truncation or padding.
            None fills those of a batch to the longest of them.
        ragged: Only False: there are no ragged tensors.
        shuffle: Whether to mix the sounds; by name otherwise.
        seed: Of the mixing.
        validation_split: The share to hold out.
        subset: "training", "validation" or "both", if there is a share to hold out.
        follow_links: Whether to look into linked folders.
        verbose: Whether to print what was found.
    """
    check_arguments(
        labels, label_mode, class_names, validation_split, subset, shuffle, seed
    )
    _check_audio_arguments(ragged, output_sequence_length, sampling_rate)
    if labels is None or label_mode is None:
        labels = label_mode = None
    seed = int(np.random.randint(1_000_000)) if seed is None else seed
    listing = list_files(
        directory, labels, label_mode, class_names, follow_links, verbose, _SOUNDS
    )

    def dataset(part: Listing, mixed: bool) -> SoundDataset:
        if not part.files:
            raise ValueError(f"No audio files of {directory} are left for this subset.")
        sounds = np.empty(len(part.files), object)
        for number, path in enumerate(part.files):
            sounds[number] = _read(path, sampling_rate, output_sequence_length)
        data = SoundDataset(sounds, part.labels(label_mode), batch_size, mixed, seed)
        data.class_names, data.file_paths = part.names, part.files
        return data

    return split_files(
        listing, dataset, shuffle, seed, validation_split, subset, verbose
    )


def _check_audio_arguments(ragged: Any, length: Any, rate: Any) -> None:
    if ragged and length is not None:
        raise ValueError("Cannot set both `ragged` and `output_sequence_length`.")
    if ragged:
        raise ValueError(
            "`ragged=True` is not supported: sounds are filled with zeros to the "
            "longest of a batch, or cut by `output_sequence_length`."
        )
    if rate is not None and not isinstance(rate, int):
        raise ValueError(
            f"`sampling_rate` should have an integer value. Received: {rate!r}"
        )
    if rate is not None and rate <= 0:
        raise ValueError(f"`sampling_rate` should be higher than 0. Received: {rate}")


def _read(path: str, rate: int | None, length: int | None) -> np.ndarray:
    """Return the samples of a WAV file, (samples, channels), from -1 to 1."""
    import wave

    try:
        with wave.open(io.BytesIO(files.read_file(path))) as sound:
            if rate is not None and sound.getframerate() != rate:
                raise ValueError(
                    f"{path} has {sound.getframerate()} samples a second, not {rate}: "
                    "files are not resampled. Convert them, or leave `sampling_rate` "
                    "out."
                )
            channels, width = sound.getnchannels(), sound.getsampwidth()
            data = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(
            f"{path} is not a WAV file of plain samples: {error}."
        ) from error
    samples = _as_floats(data[: len(data) // width * width], width)
    samples = samples[: len(samples) // channels * channels].reshape(-1, channels)
    return samples if length is None else _fitted(samples, length)


def _as_floats(data: bytes, width: int) -> np.ndarray:
    if width == 1:  # the only ones without a sign
        return (np.frombuffer(data, "uint8").astype("float32") - 128) / 128
    if width == 3:  # the upper bytes of 32 bits
        wide = np.zeros((len(data) // 3, 4), "uint8")
        wide[:, 1:] = np.frombuffer(data, "uint8").reshape(-1, 3)
        data, width = wide.tobytes(), 4
    samples = np.frombuffer(data, f"<i{width}")
    return (samples / 2.0 ** (8 * width - 1)).astype("float32")


def _fitted(sound: np.ndarray, length: int) -> np.ndarray:
    missing = max(length - len(sound), 0)
    return np.pad(sound[:length], ((0, missing), (0, 0)))


def _joined(sounds: list[np.ndarray]) -> np.ndarray:
    longest = max(len(sound) for sound in sounds)
    channels = {sound.shape[1] for sound in sounds}
    if len(channels) > 1:
        raise ValueError(f"A batch has sounds of {sorted(channels)} channels.")
    return np.stack([_fitted(sound, longest) for sound in sounds])
