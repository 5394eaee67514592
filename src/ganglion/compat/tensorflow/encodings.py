"""`tf.io` and `tf.audio`: pictures, sounds, tables and texts to bytes and back."""

from __future__ import annotations

import csv
import io
import wave
from typing import Any, NamedTuple

import numpy as np

from ganglion import ops
from ganglion.compat.tensorflow.arrays import known
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.tensors import as_tensor


def _item(x: Any) -> Any:
    return np.asarray(x).item()


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = "uint8",
    expand_animations: bool = True,
) -> Any:
    """Return the pixels of a PNG, JPEG, BMP or GIF file that was read."""
    from PIL import Image

    modes = {1: "L", 3: "RGB", 4: "RGBA"}
    data = contents if isinstance(contents, bytes) else _item(contents)
    with Image.open(io.BytesIO(data)) as image:
        if channels:
            pixels = np.asarray(image.convert(modes[channels]))
        else:
            is_plain = image.mode in modes.values()
            pixels = np.asarray(image if is_plain else image.convert("RGB"))
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    from ganglion.compat.tensorflow.pictures import convert_image_dtype

    return convert_image_dtype(ops.convert_to_tensor(pixels), str(dtype))


def _encoded(image: Any, kind: str, **options: Any) -> Any:
    from PIL import Image

    pixels = known(image, f"io.encode_{kind.lower()}")
    plain = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    buffer = io.BytesIO()
    Image.fromarray(plain.astype(np.uint8)).save(buffer, kind, **options)
    return as_tensor(np.array(buffer.getvalue(), object))


def encode_png(image: Any, compression: int = -1) -> Any:
    """Return a picture as a PNG file."""
    return _encoded(image, "PNG")


def encode_jpeg(image: Any, format: str = "", quality: int = 95) -> Any:  # noqa: A002
    """Return a picture as a JPEG file."""
    return _encoded(image, "JPEG", quality=int(quality))


def decode_raw(input_bytes: Any, out_type: Any) -> Any:
    """Return bytes as numbers."""
    return as_tensor(np.frombuffer(as_array(input_bytes).item(), str(out_type)).copy())


def decode_csv(
    records: Any,
    record_defaults: Any,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Any = None,
) -> list[Any]:
    """Return the columns of lines, with defaults for what is empty."""
    texts = as_array(records)
    lines = [text.decode() for text in texts.ravel().tolist()]
    quoting: Any = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    rows = list(csv.reader(lines, delimiter=field_delim, quoting=quoting))
    chosen = range(len(record_defaults)) if select_cols is None else select_cols
    columns = []
    for number, default in zip(chosen, record_defaults, strict=True):
        filler = as_array(default)
        is_type = filler.dtype.kind == "O" and isinstance(default, str)
        kind = str(default) if is_type else filler.dtype
        cells = [_cell(row[number], na_value, filler) for row in rows]
        column = (
            as_array(cells)
            if kind == "string" or filler.dtype.kind == "O"
            else np.array(cells, kind)
        )
        columns.append(as_tensor(column.reshape(texts.shape)))
    return columns


def _cell(text: str, missing: str, filler: np.ndarray) -> Any:
    if text not in ("", missing):
        return text
    return filler.ravel()[0] if filler.size else text


def decode_wav(
    contents: Any, desired_channels: int = -1, desired_samples: int = -1
) -> Any:
    """Return the sound of a WAV file of 16 bits, from -1 to 1, and its rate."""
    with wave.open(io.BytesIO(as_array(contents).item())) as file:
        if file.getsampwidth() != 2:
            raise ValueError("tf.audio.decode_wav reads files of 16 bits.")
        rate, channels = file.getframerate(), file.getnchannels()
        raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    sound = raw.reshape(-1, channels).astype(np.float32) / 32768.0
    if desired_channels > 0:  # those that are missing are copies of the last one
        sound = sound[:, np.minimum(np.arange(desired_channels), channels - 1)]
    if desired_samples > 0:
        sound = sound[:desired_samples]
        sound = np.pad(sound, [(0, desired_samples - len(sound)), (0, 0)])
    return Wave(as_tensor(sound), as_tensor(np.array(rate, np.int32)))


def encode_wav(audio: Any, sample_rate: Any) -> Any:
    """Return the bytes of a WAV file of 16 bits, of a sound from -1 to 1."""
    sound = as_array(audio).astype(np.float32)
    if sound.ndim != 2:
        raise ValueError(
            "tf.audio.encode_wav: a sound has a row a sample and a column a channel, "
            f"not the shape {sound.shape}."
        )
    scaled = sound * 32768.0
    away_from_zero = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    contents = io.BytesIO()
    with wave.open(contents, "wb") as file:
        file.setnchannels(sound.shape[1])
        file.setsampwidth(2)
        file.setframerate(int(as_array(sample_rate)))
        file.writeframes(np.clip(away_from_zero, -32768, 32767).astype("<i2").tobytes())
    return as_tensor(np.array(contents.getvalue(), object))


class Wave(NamedTuple):
    """A sound, one column a channel, and how many rows are a second."""

    audio: Any
    sample_rate: Any


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Return a text as bytes."""
    is_text = isinstance(bytes_or_text, str)
    return bytes_or_text.encode(encoding) if is_text else bytes(bytes_or_text)


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Return bytes as a text."""
    is_bytes = isinstance(bytes_or_text, bytes)
    return bytes_or_text.decode(encoding) if is_bytes else str(bytes_or_text)
