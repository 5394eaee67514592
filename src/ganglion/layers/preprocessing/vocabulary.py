"""Word lists: read from files with the line of what is wrong, and tables over them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.layers.preprocessing.words import as_text

Token = bytes | int


def read_word_list(path: str | os.PathLike[str], as_token: Callable[[str], Any]) -> Any:
    """Return the words of a file, a word in each line, as tokens.

    An empty file, a word that occurs twice and bytes that are no UTF-8 are refused,
    with the file and the line.
    """
    if not os.path.isfile(path):
        raise ValueError(f"Vocabulary file {path} does not exist.")
    return parsed_word_list(Path(path).read_bytes(), str(path), as_token)


def parsed_word_list(
    data: bytes,
    name: str,
    as_token: Callable[[str], Any],
    special: Sequence[Any] = (),
) -> Any:
    """Return the tokens of a word list after its leading special ones."""
    rows = data.split(b"\n")
    while rows and not rows[-1]:
        rows.pop()
    if not rows and not special:
        raise ValueError(f"The vocabulary file {name} is empty: it holds no word.")
    tokens: dict[Any, int] = {}
    front = [as_text(token).encode() for token in special]
    start = len(front) if rows[: len(front)] == front else 0
    for line, row in enumerate(rows[start:], start + 1):
        where = f"{name}, line {line}"
        try:
            token = as_token(row.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{where}: byte {error.start + 1} is not UTF-8. Save the word list as "
                "UTF-8."
            ) from None
        except ValueError:
            raise ValueError(
                f"{where}: {as_text(row)!r:.40} is not an integer."
            ) from None
        if token in tokens:
            raise ValueError(
                f"{where}: the word {as_text(row)!r:.40} stands in line "
                f"{tokens[token]} already. Every word must be there once."
            )
        tokens[token] = line
    return list(tokens)


def word_list(words: Sequence[Any], name: str) -> bytes:
    """Return words as the bytes of a file, a word in each line."""
    texts = [as_text(word) for word in words]
    for text in texts:
        if "\n" in text:
            raise ValueError(
                f'The word {text!r:.40} of layer "{name}" holds a line break, and a '
                "file has a line for each word: give the words as `vocabulary=`."
            )
    return "\n".join(texts).encode()


def refuse_repeated(tokens: Iterable[Token]) -> None:
    """Refuse a vocabulary in which a word occurs twice."""
    repeated = [token for token, count in Counter(tokens).items() if count > 1]
    if repeated:
        examples = ", ".join(repr(as_text(token)) for token in repeated[:5])
        raise ValueError(
            "The passed vocabulary has at least one repeated term. Every word must be "
            f"there once: {examples}."
        )


class _Places(dict[bytes, int]):
    """The index of each word, -1 for a word that is not there."""

    def __missing__(self, word: bytes) -> int:
        return -1


class WordTable:
    """The index of each word of a vocabulary.

    >>> WordTable([b"cat", b"dog"], [1, 2]).find([b"dog", b"cow"])
    array([ 2, -1])
    """

    def __init__(self, words: Sequence[bytes], indices: Sequence[int]) -> None:
        self._places = _Places(zip(words, indices, strict=True))

    def find(self, words: Sequence[bytes]) -> np.ndarray:
        """Return the index of each word, -1 where there is none."""
        positions = map(self._places.__getitem__, words)
        return np.fromiter(positions, np.int64, len(words))


class NumberTable:
    """The index of each number of a vocabulary."""

    def __init__(self, numbers: Sequence[int], indices: Sequence[int]) -> None:
        order = np.argsort(np.asarray(numbers, np.int64), kind="stable")
        self._numbers = np.asarray(numbers, np.int64)[order]
        self._indices = np.asarray(indices, np.int64)[order]

    def find(self, numbers: np.ndarray) -> np.ndarray:
        """Return the index of each number, -1 where there is none."""
        if not self._numbers.size:
            return np.full(numbers.shape, -1, np.int64)
        at = np.searchsorted(self._numbers, numbers).clip(max=self._numbers.size - 1)
        return np.where(self._numbers[at] == numbers, self._indices[at], -1)
