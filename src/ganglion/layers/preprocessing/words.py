"""Texts as NumPy and Python hold them, as flat lists of bytes.

TensorFlow's strings are bytes, and so are the words here: what is lowered, stripped and
split are the ASCII characters alone, and equal bytes are equal words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_TEXT = "OSUT"  # NumPy's kinds of arrays that may hold text


def is_text(x: Any) -> bool:
    """Return whether this is a text, or an array or a list of texts.

    >>> is_text(["a"]), is_text(np.array([1])), is_text(np.array(["a"], object))
    (True, False, True)
    """
    while isinstance(x, (list, tuple)) and len(x):
        x = x[0]
    if isinstance(x, (str, bytes)):
        return True
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    if kind is None or kind not in _TEXT:
        return getattr(getattr(x, "dtype", None), "name", "") == "string"
    array = np.asarray(x)  # also of a column of a frame
    return kind != "O" or (array.size > 0 and isinstance(array.flat[0], (str, bytes)))


def as_text_array(x: Any, name: str) -> np.ndarray:
    """Return texts as an array of Python's or NumPy's strings or bytes.

    >>> as_text_array([["a"], ["b c"]], "x").shape
    (2, 1)
    """
    if hasattr(x, "numpy"):  # a tensor of TensorFlow
        x = x.numpy()
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(
            f"{name} is not a regular array of texts: its rows have different lengths. "
            "Join the words of a row into one text, or fill the rows with ''."
        ) from None
    if array.dtype.kind not in _TEXT and array.size:
        raise TypeError(
            f"{name} must be text, got numbers of type {array.dtype}. Turn them into "
            "text with .astype(str), or use IntegerLookup or Hashing."
        )
    return array


def as_bytes(array: np.ndarray, name: str) -> list[bytes]:
    """Return the texts of an array, in order, as bytes (text becomes UTF-8)."""
    flat: list[Any] = array.reshape(-1).tolist()
    if array.dtype.kind in "UT":
        return [text.encode() for text in flat]
    if array.dtype.kind != "O":
        return flat
    try:
        return [text if type(text) is bytes else text.encode() for text in flat]
    except AttributeError:
        pass
    for number, text in enumerate(flat):
        if not isinstance(text, (str, bytes)):
            where = np.unravel_index(number, array.shape) if array.ndim else ()
            row = f" in row {where[0]}" if where else ""
            raise TypeError(
                f"{name} must hold texts, but{row} there is {text!r:.40} "
                f"({type(text).__name__}). Missing texts can be filled with ''."
            )
    raise AssertionError("unreachable")


def as_text(word: Any, encoding: str = "utf-8") -> str:
    """Return a word as Python's text."""
    return word.decode(encoding, "replace") if isinstance(word, bytes) else str(word)


def text_array(words: list[bytes], shape: tuple[int, ...], encoding: str) -> np.ndarray:
    """Return words as an array of Python's texts."""
    array = np.empty(len(words), object)
    array[:] = [as_text(word, encoding) for word in words]
    return array.reshape(shape)
