"""What runs in Python beside compiled steps: files, texts, devices and checks."""

from __future__ import annotations

import glob
import io
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ganglion import config, ops, tree, utils
from ganglion.compat.tensorflow.arrays import is_known, known
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.compat.tensorflow.objects import InvalidArgumentError
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


def py_function(func: Callable[..., Any], inp: Any, Tout: Any) -> Any:  # noqa: N803
    """Call a Python function on tensors that are known."""
    for part in inp:
        known(part, "py_function")
    result = func(*inp)
    types = Tout if isinstance(Tout, (list, tuple)) else [Tout]
    leaves = result if isinstance(Tout, (list, tuple)) else [result]
    typed = [
        as_array(leaf) if str(kind) == "string" else ops.cast(leaf, str(kind))
        for leaf, kind in zip(leaves, types, strict=True)
    ]
    return typed if isinstance(Tout, (list, tuple)) else typed[0]


def set_seed(seed: int) -> None:
    """Fix all random numbers from here on."""
    utils.set_random_seed(int(seed))


# ---- files -------------------------------------------------------------------------


def _path(filename: Any) -> str:
    name = filename if isinstance(filename, (str, os.PathLike)) else _item(filename)
    return name.decode() if isinstance(name, bytes) else os.fspath(name)


def _item(x: Any) -> Any:
    return np.asarray(x).item()


def read_file(filename: Any) -> np.ndarray:
    """Return what a file holds."""
    return np.array(Path(_path(filename)).read_bytes(), dtype=object)


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


GFile = open


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


# ---- texts -------------------------------------------------------------------------


def _over_texts(
    function: Callable[[bytes], Any], texts: Any, kind: Any = object
) -> np.ndarray:
    array = as_array(texts)
    if array.dtype.kind != "O":
        raise TypeError(f"tf.strings needs texts, got numbers of type {array.dtype}.")
    return np.vectorize(function, otypes=[kind])(array)


def lower(input: Any) -> np.ndarray:  # noqa: A002 (TensorFlow's name)
    """Return texts in small letters."""
    return _over_texts(bytes.lower, input)


def upper(input: Any) -> np.ndarray:  # noqa: A002
    """Return texts in capital letters."""
    return _over_texts(bytes.upper, input)


def strip(input: Any) -> np.ndarray:  # noqa: A002
    """Return texts without white space around them."""
    return _over_texts(bytes.strip, input)


def regex_replace(
    input: Any,  # noqa: A002
    pattern: str,
    rewrite: str,
    replace_global: bool = True,
) -> np.ndarray:
    """Return texts with what fits a pattern replaced."""
    expression = re.compile(pattern.encode())
    count = 0 if replace_global else 1
    new = rewrite.encode()
    return _over_texts(lambda text: expression.sub(new, text, count=count), input)


def length(input: Any, unit: str = "BYTE") -> Any:  # noqa: A002
    """Return how long texts are, in bytes or characters."""
    is_bytes = unit == "BYTE"
    lengths = _over_texts(
        lambda text: len(text if is_bytes else text.decode()), input, np.int32
    )
    return ops.convert_to_tensor(lengths)


def substr(input: Any, pos: int, len: int) -> np.ndarray:  # noqa: A002
    """Return a part of texts, by bytes."""
    return _over_texts(lambda text: text[int(pos) : int(pos) + int(len)], input)


def join_texts(inputs: Any, separator: str = "") -> np.ndarray:
    """Return texts joined, element by element."""
    parts = np.broadcast_arrays(*map(as_array, inputs))
    joined = np.vectorize(
        lambda *texts: separator.encode().join(texts), otypes=[object]
    )
    return joined(*parts)


def split_texts(input: Any, sep: str | None = None) -> np.ndarray:  # noqa: A002
    """Return the words of texts, which must have as many words each."""
    separator = sep.encode() if sep else None
    return _parts_of_texts(input, "split", lambda text: text.split(separator))


def unicode_split(input: Any, input_encoding: str = "UTF-8") -> np.ndarray:  # noqa: A002
    """Return the characters of texts, which must be of one length."""

    def characters(text: bytes) -> list[bytes]:
        return [letter.encode() for letter in text.decode(input_encoding)]

    return _parts_of_texts(input, "unicode_split", characters)


def _parts_of_texts(
    texts: Any, name: str, parts_of: Callable[[bytes], list[bytes]]
) -> np.ndarray:
    array = as_array(texts)
    parts = [parts_of(text) for text in array.ravel().tolist()]
    if len({len(each) for each in parts}) > 1:
        raise NotImplementedError(
            f"tf.strings.{name}: these texts have parts of many lengths, and arrays "
            "here are regular. Take one text at a time, or use `TextVectorization`."
        )
    result = np.empty((len(parts), len(parts[0]) if parts else 0), object)
    for row, each in zip(result, parts, strict=True):
        row[:] = each
    return result.reshape(*array.shape, -1)


def reduce_join(inputs: Any, axis: int | None = None, separator: str = "") -> Any:
    """Return texts joined along an axis, or all of them."""
    array, between = as_array(inputs), separator.encode()
    if axis is None:
        return as_tensor(np.array(between.join(array.ravel().tolist()), object))
    joined = np.apply_along_axis(
        lambda row: np.array([between.join(row.tolist())], object), axis, array
    )
    return as_tensor(np.squeeze(joined, axis))


def as_string(input: Any) -> np.ndarray:  # noqa: A002
    """Return numbers as texts."""
    return np.vectorize(lambda x: str(x).encode(), otypes=[object])(np.asarray(input))


def to_number(input: Any, out_type: Any = "float32") -> Any:  # noqa: A002
    """Return texts as numbers."""
    return ops.cast(_over_texts(float, input, np.float64), str(out_type))


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
    """Return the logger of TensorFlow's name, through which nothing is said here."""
    return logging.getLogger("tensorflow")


# ---- checks ------------------------------------------------------------------------


def _checked(
    name: str, holds: Callable[..., Any], message: str | None, *tensors: Any
) -> None:
    arrays = [known(tensor, f"debugging.{name}") for tensor in tensors]
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


def assert_non_negative(x: Any, message: str | None = None) -> None:
    """Refuse numbers below zero."""
    _checked("assert_non_negative", lambda a: a >= 0, message, x)


def assert_positive(x: Any, message: str | None = None) -> None:
    """Refuse numbers that are not above zero."""
    _checked("assert_positive", lambda a: a > 0, message, x)


def assert_rank(x: Any, rank: int, message: str | None = None) -> None:
    """Refuse tensors with another number of axes; it is known while tracing, too."""
    if len(x.shape) != int(rank):
        raise ValueError(
            f"tf.debugging.assert_rank: {message or ''} {len(x.shape)} axes, "
            f"not {rank}."
        )


def check_numerics(tensor: Any, message: str) -> Any:
    """Return a tensor; refuse one with NaN or infinity."""
    _checked("check_numerics", np.isfinite, message, *tree.flatten(tensor))
    return tensor
