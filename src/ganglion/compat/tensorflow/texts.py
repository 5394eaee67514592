"""Texts, which Python handles outside of compiled steps: `tf.strings`, and `tf.concat`.

`ON_TEXTS` are those functions on tensors that TensorFlow has for texts, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops, tree
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.layers.preprocessing import fingerprints
from ganglion.tensors import as_tensor

# ---- tf.strings ----------------------------------------------------------------------


# RE2's names for sets of characters, which `re` would read as single characters.
_SETS = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r"\t ", "digit": "0-9",
    "lower": "a-z", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


def _over_texts(
    function: Callable[..., Any], texts: Any, *others: Any, kind: Any = object
) -> Any:
    array = as_array(texts)
    if array.dtype.kind != "O":
        raise TypeError(f"tf.strings needs texts, got numbers of type {array.dtype}.")
    return as_tensor(np.vectorize(function, otypes=[kind])(array, *others))


def _compiled(pattern: str) -> re.Pattern[bytes]:
    """Return an expression of RE2 as one of Python's."""
    named = re.sub(r"\[:(\w+):\]", lambda m: _SETS.get(m[1], m[0]), pattern)
    return re.compile(named.encode())


def lower(input: Any) -> Any:  # noqa: A002 (TensorFlow's name)
    """Return texts in small letters."""
    return _over_texts(bytes.lower, input)


def upper(input: Any) -> Any:  # noqa: A002
    """Return texts in capital letters."""
    return _over_texts(bytes.upper, input)


def strip(input: Any) -> Any:  # noqa: A002
    """Return texts without white space around them."""
    return _over_texts(bytes.strip, input)


def regex_replace(
    input: Any,  # noqa: A002
    pattern: str,
    rewrite: str,
    replace_global: bool = True,
) -> Any:
    r"""Return texts with matches of a pattern replaced; `\0` is all of a match."""
    expression, count = _compiled(pattern), 0 if replace_global else 1
    new = re.sub(r"\\(\d)", r"\\g<\1>", rewrite).encode()
    return _over_texts(lambda text: expression.sub(new, text, count=count), input)


def length(input: Any, unit: str = "BYTE") -> Any:  # noqa: A002
    """Return how long texts are, in bytes or characters."""
    is_bytes = unit == "BYTE"
    lengths = _over_texts(
        lambda text: len(text if is_bytes else text.decode()), input, kind=np.int32
    )
    return ops.convert_to_tensor(lengths)


def substr(input: Any, pos: Any, len: Any) -> Any:  # noqa: A002
    """Return a part of texts, by bytes; a negative position counts from the end."""
    return _over_texts(lambda text, at, count: text[at:][:count], input, pos, len)


def join_texts(inputs: Any, separator: str = "") -> Any:
    """Return texts joined, element by element."""
    parts = np.broadcast_arrays(*map(as_array, inputs))
    joined = np.vectorize(
        lambda *texts: separator.encode().join(texts), otypes=[object]
    )
    return as_tensor(joined(*parts))


def split_texts(input: Any, sep: str | None = None) -> Any:  # noqa: A002
    """Return the words of texts, which must have as many words each."""
    separator = sep.encode() if sep else None
    return _parts_of_texts(input, "split", lambda text: text.split(separator))


def unicode_split(input: Any, input_encoding: str = "UTF-8") -> Any:  # noqa: A002
    """Return the characters of texts, which must be of one length."""

    def characters(text: bytes) -> list[bytes]:
        return [letter.encode() for letter in text.decode(input_encoding)]

    return _parts_of_texts(input, "unicode_split", characters)


def _parts_of_texts(
    texts: Any, name: str, parts_of: Callable[[bytes], list[Any]]
) -> Any:
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
    return as_tensor(result.reshape(*array.shape, -1))


def reduce_join(inputs: Any, axis: int | None = None, separator: str = "") -> Any:
    """Return texts joined along an axis, or all of them."""
    array, between = as_array(inputs), separator.encode()
    if axis is None:
        return as_tensor(np.array(between.join(array.ravel().tolist()), object))
    joined = np.apply_along_axis(
        lambda row: np.array([between.join(row.tolist())], object), axis, array
    )
    return as_tensor(np.squeeze(joined, axis))


def as_string(input: Any) -> Any:  # noqa: A002
    """Return numbers as texts, floats with six digits behind the point."""
    numbers = as_array(input)
    is_float = numbers.dtype.kind == "f"
    shown = "{:f}".format if is_float else lambda x: str(x).lower()
    texts = np.vectorize(lambda x: shown(x).encode(), otypes=[object])
    return as_tensor(texts(numbers))


def to_number(input: Any, out_type: Any = "float32") -> Any:  # noqa: A002
    """Return texts as numbers."""
    numbers = _over_texts(float, input, kind=np.float64)
    return ops.cast(np.asarray(numbers), str(out_type))


def regex_full_match(input: Any, pattern: str) -> Any:  # noqa: A002
    """Return which texts match a pattern as a whole."""
    matches = _compiled(pattern).fullmatch
    return _over_texts(lambda text: matches(text) is not None, input, kind=bool)


def bytes_split(input: Any) -> Any:  # noqa: A002
    """Return the bytes of texts, which must be of one length."""
    return _parts_of_texts(
        input, "bytes_split", lambda text: [bytes([byte]) for byte in text]
    )


def ngrams(data: Any, ngram_width: Any, separator: str = " ") -> Any:
    """Return neighbouring words of each row joined."""
    array, between = as_array(data), separator.encode()
    widths = ngram_width if isinstance(ngram_width, (list, tuple)) else [ngram_width]

    def joined(row: np.ndarray) -> np.ndarray:
        words = row.tolist()
        texts = [
            between.join(words[start : start + width])
            for width in widths
            for start in range(len(words) - width + 1)
        ]
        return np.array([*texts, None], object)[:-1]

    return as_tensor(np.apply_along_axis(joined, -1, array))


def unicode_decode(input: Any, input_encoding: str) -> Any:  # noqa: A002
    """Return the code points of texts, which must be of one length."""

    def points_of(text: bytes) -> list[int]:
        return [ord(letter) for letter in text.decode(input_encoding)]

    points = _parts_of_texts(input, "unicode_decode", points_of)
    return as_tensor(np.asarray(points).astype(np.int32))


def unicode_encode(input: Any, output_encoding: str) -> Any:  # noqa: A002
    """Return the texts of code points along the last axis."""
    points = np.asarray(input)
    rows = ["".join(map(chr, row)) for row in points.reshape(-1, points.shape[-1])]
    texts = np.empty(len(rows), object)
    texts[:] = [row.encode(output_encoding) for row in rows]
    return as_tensor(texts.reshape(points.shape[:-1]))


def format_texts(template: str, inputs: Any, placeholder: str = "{}") -> Any:
    """Return a text with tensors in the places of a placeholder."""
    parts = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    text = template
    for part in parts:
        text = text.replace(placeholder, str(np.asarray(part)), 1)
    return as_tensor(np.array(text.encode(), object))


def to_hash_bucket_fast(input: Any, num_buckets: int) -> Any:  # noqa: A002
    """Return the bucket of each text, by TensorFlow's FarmHash."""
    array = as_array(input)
    hashes = fingerprints.buckets(array.ravel().tolist(), int(num_buckets), None)
    return as_tensor(np.asarray(hashes, np.int64).reshape(array.shape))


# ---- functions on tensors, for texts -------------------------------------------------


def has_texts(arguments: Any) -> bool:
    """Return whether there are texts among the arguments of a call."""
    return any(map(_is_text, tree.flatten(arguments)))


def _is_text(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind in "OSUT"
    return isinstance(leaf, (str, bytes))


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def on_texts(x: Any, *args: Any, **kwargs: Any) -> Any:
        plain = tree.map_leaves(_plain, (args, kwargs))
        return as_tensor(function(as_array(x), *plain[0], **plain[1]))

    return on_texts


def _plain(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, np.ndarray) else x


def _several(function: Callable[..., Any]) -> Callable[..., Any]:
    def on_texts(values: Any, axis: Any = 0) -> Any:
        return as_tensor(function([as_array(x) for x in values], int(axis)))

    return on_texts


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: as_tensor(function(as_array(x), as_array(y)))


def _slice(input_: Any, begin: Any, size: Any) -> Any:
    pairs = zip(np.asarray(begin).tolist(), np.asarray(size).tolist(), strict=True)
    parts = [slice(a, None if count == -1 else a + count) for a, count in pairs]
    return as_tensor(as_array(input_)[tuple(parts)])


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    return as_tensor(np.where(np.asarray(condition), as_array(x), as_array(y)))


def _filled(dims: Any, value: Any) -> Any:
    shape, text = tuple(np.asarray(dims).tolist()), as_array(value).item()
    return as_tensor(np.full(shape, text, object))


# What TensorFlow's functions do where they are given texts, by their names.
ON_TEXTS: dict[str, Callable[..., Any]] = {
    "add": _compared(np.add),
    "boolean_mask": _unary(lambda x, mask: x[np.asarray(mask, bool)]),
    "concat": _several(np.concatenate),
    "convert_to_tensor": _unary(lambda x, dtype=None: x),
    "equal": _compared(np.equal),
    "expand_dims": _unary(np.expand_dims),
    "fill": _filled,
    "gather": _unary(lambda x, indices, axis=0: np.take(x, indices, axis or 0)),
    "identity": _unary(lambda x: x),
    "not_equal": _compared(np.not_equal),
    "repeat": _unary(np.repeat),
    "reshape": _unary(lambda x, shape: np.reshape(x, tuple(np.asarray(shape)))),
    "reverse": _unary(lambda x, axis: np.flip(x, tuple(np.ravel(axis).tolist()))),
    "slice": _slice,
    "squeeze": _unary(np.squeeze),
    "stack": _several(np.stack),
    "tile": _unary(np.tile),
    "transpose": _unary(np.transpose),
    "unstack": lambda value, num=None, axis=0: [
        as_tensor(part) for part in np.moveaxis(as_array(value), axis, 0)
    ],
    "where": _where,
}
