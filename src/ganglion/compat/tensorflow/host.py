"""Functions that run in Python beside compiled steps: files, devices and checks."""

from __future__ import annotations

import csv
import glob
import io
import logging
import os
import shutil
import sys
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ganglion import config, files, ops, tree, utils
from ganglion.compat.tensorflow.arrays import is_known, known
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.compat.tensorflow.draws import forget_seeds
from ganglion.compat.tensorflow.objects import InvalidArgumentError
from ganglion.system.terminal import tell_once
from ganglion.tensors import as_tensor

# ---- printing and Python functions -------------------------------------------------


def print_tensors(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int | None = None,
    sep: str = " ",
    end: str = "\n",
) -> None:
    """Print tensors to standard error, as TensorFlow does; traced ones by name."""
    shown = [part if not _is_traced(part) else f"<traced {part}>" for part in inputs]
    limit = sys.maxsize if summarize == -1 else (summarize or 3) * 2
    with np.printoptions(threshold=limit, edgeitems=summarize or 3):
        texts = [str(np.asarray(x)) if hasattr(x, "shape") else str(x) for x in shown]
    stream = sys.stderr if output_stream is None else output_stream
    print(*texts, sep=sep, end=end, file=stream)


def _is_traced(x: Any) -> bool:
    return not is_known(x)


def py_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: Any = None,  # noqa: N803
) -> Any:
    """Call a Python function on tensors that are known; or decorate it."""
    if func is None:
        return lambda inner: lambda *parts: py_function(inner, parts, Tout)
    return _called(func, inp, Tout, _as_seen)


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: Any = None,  # noqa: N803
    stateful: bool = True,
) -> Any:
    """Call a Python function on the arrays of known tensors; or decorate it."""
    if func is None:
        return lambda inner: lambda *parts: numpy_function(inner, parts, Tout)
    return _called(func, inp, Tout, lambda x: as_array(x)[()])


def _as_seen(x: Any) -> Any:
    return x if hasattr(x, "numpy") else as_tensor(as_array(x))


def _called(
    func: Callable[..., Any],
    inp: Any,
    Tout: Any,  # noqa: N803
    seen: Callable[[Any], Any],
) -> Any:
    for part in inp:
        known(part, "py_function")
    result = func(*map(seen, inp))
    if Tout is None or (isinstance(Tout, (list, tuple)) and not Tout):
        return None
    types = Tout if isinstance(Tout, (list, tuple)) else [Tout]
    leaves = result if isinstance(Tout, (list, tuple)) else [result]
    typed = [
        as_tensor(as_array(leaf))
        if str(_type_of(kind)) == "string"
        else ops.cast(leaf, str(_type_of(kind)))
        for leaf, kind in zip(leaves, types, strict=True)
    ]
    return typed if isinstance(Tout, (list, tuple)) else typed[0]


def _type_of(kind: Any) -> Any:
    return getattr(kind, "dtype", kind)  # of a `TensorSpec`, or the type itself


def set_seed(seed: int) -> None:
    """Fix all random numbers from here on."""
    forget_seeds()
    utils.set_random_seed(int(seed))


# ---- files -------------------------------------------------------------------------


def _path(filename: Any) -> str:
    name = filename if isinstance(filename, (str, os.PathLike)) else _item(filename)
    return name.decode() if isinstance(name, bytes) else os.fspath(name)


def _item(x: Any) -> Any:
    return np.asarray(x).item()


def read_file(filename: Any) -> Any:
    """Return what a file holds."""
    return as_tensor(np.array(Path(_path(filename)).read_bytes(), dtype=object))


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


def write_file(filename: Any, contents: Any) -> None:
    """Write a text or bytes into a file."""
    path = Path(_path(filename))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(path, as_array(contents).item())


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


GFile = open


def remove(path: Any) -> None:
    """Remove a file."""
    os.remove(_path(path))


def rmtree(path: Any) -> None:
    """Remove a folder and everything in it."""
    shutil.rmtree(_path(path))


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copy a file."""
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"There is a file {_path(dst)} already.")
    with files.open_file(_path(src)) as source:
        files.write_file(_path(dst), lambda file: shutil.copyfileobj(source, file))


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Give a file another name."""
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"There is a file {_path(dst)} already.")
    os.replace(_path(src), _path(dst))


def mkdir(path: Any) -> None:
    """Make a folder."""
    os.mkdir(_path(path))


def join_paths(path: Any, *paths: Any) -> str:
    """Return the parts of a path as one."""
    return os.path.join(_path(path), *map(_path, paths))


def walk(top: Any, topdown: bool = True) -> Any:
    """Return the folders below a folder, with the contents of each."""
    return os.walk(_path(top), topdown)


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Return a text as bytes."""
    is_text = isinstance(bytes_or_text, str)
    return bytes_or_text.encode(encoding) if is_text else bytes(bytes_or_text)


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Return bytes as a text."""
    is_bytes = isinstance(bytes_or_text, bytes)
    return bytes_or_text.decode(encoding) if is_bytes else str(bytes_or_text)


def timestamp() -> Any:
    """Return the seconds since 1970."""
    return as_tensor(np.array(time.time()))


def get_static_value(tensor: Any) -> Any:
    """Return the numbers of a tensor, None of one that is being traced."""
    return np.asarray(tensor) if is_known(tensor) else None


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is: the compiler decides what a step keeps."""
    return f


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose gradient is that of the identity."""
    return lambda x: x + ops.stop_gradient(f(x) - x)


def matching_files(pattern: Any) -> Any:
    """Return the names of files that fit a pattern, in order."""
    return as_tensor(as_array(sorted(glob_files(pattern))))


def exists(path: Any) -> bool:
    """Return whether there is such a file or folder."""
    return os.path.exists(_path(path))


def isdir(path: Any) -> bool:
    """Return whether there is such a folder."""
    return os.path.isdir(_path(path))


def listdir(path: Any) -> list[str]:
    """Return the names in a folder."""
    return os.listdir(_path(path))


def makedirs(path: Any) -> None:
    """Make a folder and those above it."""
    os.makedirs(_path(path), exist_ok=True)


def glob_files(pattern: Any) -> list[str]:
    """Return the files that fit a pattern."""
    patterns = [pattern] if isinstance(pattern, str) else pattern
    return [name for part in patterns for name in glob.glob(part)]


# ---- devices -----------------------------------------------------------------------


class PhysicalDevice(NamedTuple):
    """A processor: its name and its kind."""

    name: str
    device_type: str


def has_gpu(*args: Any, **kwargs: Any) -> bool:
    """Return whether programs can be compiled for a GPU and run here."""
    from ganglion.compiler import registry

    return registry.unavailable_reason("cuda") is None


def devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the processor and the GPU that Ganglion can use here."""
    kinds = ["CPU", *(["GPU"] if device_type != "CPU" and has_gpu() else [])]
    return [
        PhysicalDevice(f"/physical_device:{kind}:0", kind)
        for kind in kinds
        if device_type in (None, kind)
    ]


def as_needed(device: Any, enable: bool = True) -> None:
    """Take memory of a GPU as it is needed, which is always so."""


def set_threads(num_threads: int) -> None:
    """Choose how many threads a compiled step has; 0 leaves it as it is."""
    if num_threads:
        config.set_threads(num_threads)


def one_op_at_a_time(num_threads: int) -> None:
    """Accept how many ops may run side by side: a step is one program."""


def always_deterministic() -> None:
    """Accept the wish for equal results of equal runs: they always are."""


def get_logger() -> logging.Logger:
    """Return the logger of TensorFlow's name, which receives no messages here."""
    return logging.getLogger("tensorflow")


# ---- checks ------------------------------------------------------------------------


def _checked(
    name: str, holds: Callable[..., Any], message: str | None, *tensors: Any
) -> None:
    if not is_known(*tensors):
        tell_once(f"ganglion: tf.debugging.{name} is not checked inside of a program.")
        return
    arrays = [np.asarray(tensor) for tensor in tensors]
    if not np.all(holds(*arrays)):
        shown = ", ".join(f"{array!r:.120}" for array in arrays)
        raise InvalidArgumentError(f"tf.debugging.{name}: {message or ''} {shown}")


def _comparison(name: str, holds: Callable[..., Any]) -> Callable[..., None]:
    def check(x: Any, y: Any, message: str | None = None) -> None:
        _checked(name, holds, message, x, y)

    check.__name__ = name
    return check


assert_equal = _comparison("assert_equal", np.equal)
assert_greater = _comparison("assert_greater", np.greater)
assert_greater_equal = _comparison("assert_greater_equal", np.greater_equal)
assert_less = _comparison("assert_less", np.less)
assert_less_equal = _comparison("assert_less_equal", np.less_equal)
assert_none_equal = _comparison("assert_none_equal", np.not_equal)


def assert_true(condition: Any, data: Any = None) -> None:
    """Refuse a condition that does not hold."""
    _checked("Assert", lambda holds: holds, None, condition)


def assert_near(
    x: Any,
    y: Any,
    rtol: float | None = None,
    atol: float | None = None,
    message: str | None = None,
) -> None:
    """Refuse numbers that differ."""
    near = 10 * float(np.finfo(np.float32).eps)
    share, least = (near if limit is None else limit for limit in (rtol, atol))
    _checked("assert_near", lambda a, b: np.isclose(a, b, share, least), message, x, y)


def _sign(name: str, holds: Callable[..., Any]) -> Callable[..., None]:
    def check(x: Any, message: str | None = None) -> None:
        _checked(name, holds, message, x)

    check.__name__ = name
    return check


assert_negative = _sign("assert_negative", lambda x: x < 0)
assert_non_negative = _sign("assert_non_negative", lambda x: x >= 0)
assert_non_positive = _sign("assert_non_positive", lambda x: x <= 0)
assert_positive = _sign("assert_positive", lambda x: x > 0)


def _refuse(name: str, message: str | None, actual: Any, expected: Any) -> None:
    # Shapes and types are known while tracing, too.
    raise ValueError(
        f"tf.debugging.{name}: {message or ''} expected {expected}, found {actual}."
    )


def assert_rank(x: Any, rank: int, message: str | None = None) -> None:
    """Refuse tensors with another number of axes."""
    if len(x.shape) != int(rank):
        _refuse("assert_rank", message, f"{len(x.shape)} axes", rank)


def assert_rank_at_least(x: Any, rank: int, message: str | None = None) -> None:
    """Refuse tensors with fewer axes."""
    if len(x.shape) < int(rank):
        _refuse("assert_rank_at_least", message, f"{len(x.shape)} axes", rank)


def assert_rank_in(x: Any, ranks: Any, message: str | None = None) -> None:
    """Refuse tensors with a number of axes that is not among some."""
    if len(x.shape) not in [int(rank) for rank in ranks]:
        _refuse("assert_rank_in", message, f"{len(x.shape)} axes", ranks)


def assert_scalar(tensor: Any, message: str | None = None) -> Any:
    """Return a single number; refuse other tensors."""
    if len(tensor.shape):
        _refuse("assert_scalar", message, tensor.shape, "one number")
    return tensor


def assert_type(tensor: Any, tf_type: Any, message: str | None = None) -> None:
    """Refuse tensors of another type."""
    if str(tensor.dtype) != str(tf_type):
        raise TypeError(
            f"tf.debugging.assert_type: {message or ''} expected {tf_type}, found "
            f"{tensor.dtype}."
        )


def assert_integer(x: Any, message: str | None = None) -> None:
    """Refuse tensors that are not of integers."""
    if "int" not in str(x.dtype):
        raise TypeError(
            f"tf.debugging.assert_integer: {message or ''} expected integers, "
            f"found {x.dtype}."
        )


def assert_shapes(
    shapes: Any, data: Any = None, summarize: Any = None, message: str | None = None
) -> None:
    """Refuse tensors whose axes differ where they have one name, or a number."""
    pairs = shapes.items() if isinstance(shapes, dict) else shapes
    sizes: dict[Any, Any] = {}
    for tensor, axes in pairs:
        names = list(axes) if isinstance(axes, (list, tuple, str)) else [axes]
        shape = list(tensor.shape)
        if Ellipsis in names or "*" in names:  # any axes
            start = next(n for n, name in enumerate(names) if name in (Ellipsis, "*"))
            end = len(names) - start - 1
            shape = shape[:start] + shape[len(shape) - end :]
            names = names[:start] + names[start + 1 :]
        if len(shape) != len(names):
            _refuse("assert_shapes", message or data, tensor.shape, axes)
        for size, name in zip(shape, names, strict=True):
            is_size = isinstance(name, (int, np.integer)) or str(name).isdigit()
            expected = int(name) if is_size else sizes.setdefault(name, size)
            if None not in (size, expected, name) and size != expected:
                _refuse("assert_shapes", message or data, tensor.shape, axes)


def check_numerics(tensor: Any, message: str) -> Any:
    """Return a tensor; refuse one with NaN or infinity."""
    _checked("check_numerics", np.isfinite, message, *tree.flatten(tensor))
    return tensor
