"""Keras 2's text utilities: words become numbers, texts become rows of them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ganglion import keras2
from ganglion.system import budget
from ganglion.system.terminal import lines

FILTERS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'
MODES = ("binary", "count", "tfidf", "freq")
Analyzer = Callable[[str], list[str]]
_SETTINGS = ("num_words", "filters", "lower", "split", "char_level", "oov_token",
             "document_count")  # fmt: skip
_TABLES = ("word_counts", "word_docs", "index_docs", "index_word", "word_index")


def text_to_word_sequence(
    input_text: str, filters: str = FILTERS, lower: bool = True, split: str = " "
) -> list[str]:
    """Split a text into words, without punctuation.

    >>> text_to_word_sequence("The cat, the mat.")
    ['the', 'cat', 'the', 'mat']
    """
    if not isinstance(input_text, str):
        kind = type(input_text).__name__
        raise TypeError(f"A text is a string, not {kind}: {input_text!r:.60}.")
    text = input_text.lower() if lower else input_text
    text = text.translate({ord(mark): split for mark in filters})
    return [word for word in text.split(split) if word]


def one_hot(
    input_text: str,
    n: int,
    filters: str = FILTERS,
    lower: bool = True,
    split: str = " ",
    analyzer: Analyzer | None = None,
) -> list[int]:
    """Give each word a number from 1 to n - 1 by a hash; words may share one."""
    return hashing_trick(input_text, n, None, filters, lower, split, analyzer)


def hashing_trick(
    text: str,
    n: int,
    hash_function: Callable[[str], int] | str | None = None,
    filters: str = FILTERS,
    lower: bool = True,
    split: str = " ",
    analyzer: Analyzer | None = None,
) -> list[int]:
    """Give each word a number from 1 to n - 1 by a hash, the same in every run.

    Args:
        text: The text.
        n: One more than the largest number.
        hash_function: "md5", a function of a word, or None for a hash of our own;
            Keras takes Python's, which differs from run to run.
        filters: Marks that are left out.
        lower: Whether case does not matter.
        split: The separator of words.
        analyzer: Splits a text into words instead.
    """
    if n < 2:
        raise ValueError(f"Numbers go from 1 to n - 1, so `n` is at least 2, not {n}.")
    number_of = _HASHES.get(hash_function, hash_function)
    if not callable(number_of):
        raise ValueError(f"`hash_function` is 'md5' or a function, not {number_of!r}.")
    if analyzer is None:
        words = text_to_word_sequence(text, filters, lower, split)
    else:
        words = analyzer(text)
    return [number_of(word) % (n - 1) + 1 for word in words]


def _md5(word: str) -> int:
    digest = hashlib.md5(word.encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16)


_HASHES: dict[Any, Callable[[str], int]] = {
    None: lambda word: zlib.crc32(word.encode()),
    "md5": _md5,
}


class Tokenizer:
    """Numbers words by how often they are used, the most frequent first, from 1.

    >>> tokenizer = Tokenizer(num_words=3)
    >>> tokenizer.fit_on_texts(["the cat", "the mat the cat saw"])
    >>> tokenizer.texts_to_sequences(["the cat on the mat"])
    [[1, 2, 1]]
    """

    def __init__(
        self,
        num_words: int | None = None,
        filters: str = FILTERS,
        lower: bool = True,
        split: str = " ",
        char_level: bool = False,
        oov_token: str | None = None,
        analyzer: Analyzer | None = None,
        **kwargs: Any,
    ) -> None:
        if "nb_words" in kwargs:
            keras2.note("`nb_words`", "`num_words`", changes_defaults=False)
            num_words = kwargs.pop("nb_words")
        self.document_count: int = kwargs.pop("document_count", 0)
        if kwargs:
            raise TypeError(f"Tokenizer does not know {', '.join(sorted(kwargs))}.")
        self.num_words, self.filters, self.lower = num_words, filters, lower
        self.split, self.char_level, self.oov_token = split, char_level, oov_token
        self.analyzer = analyzer
        self.word_counts: Counter[str] = Counter()
        self.word_docs: Counter[str] = Counter()
        self.index_docs: Counter[int] = Counter()
        self.word_index: dict[str, int] = {}
        self.index_word: dict[int, str] = {}

    def _words(self, text: Any) -> list[str]:
        if self.char_level or isinstance(text, (list, tuple)):
            return [word.lower() if self.lower else word for word in text]
        if self.analyzer is not None:
            return self.analyzer(text)
        return text_to_word_sequence(text, self.filters, self.lower, self.split)

    def _known(self, number: int | None) -> int | None:
        """Return a word's number; that of unknown words, or None, if it is rare."""
        if number is None or (self.num_words and number >= self.num_words):
            return self.word_index.get(self.oov_token) if self.oov_token else None
        return number

    def fit_on_texts(self, texts: Iterable[Any]) -> None:
        """Count the words of texts and number them."""
        for text in texts:
            words = self._words(text)
            self.document_count += 1
            self.word_counts.update(words)
            self.word_docs.update(set(words))
        names = [word for word, _ in self.word_counts.most_common()]
        if self.oov_token is not None:
            names.insert(0, self.oov_token)
        self.word_index = {word: i for i, word in enumerate(names, 1)}
        self.index_word = {i: word for word, i in self.word_index.items()}
        self.index_docs = Counter(
            {self.word_index[word]: n for word, n in self.word_docs.items()}
        )

    def fit_on_sequences(self, sequences: Iterable[Iterable[int]]) -> None:
        """Count in how many sequences each number is found (for "tfidf")."""
        for sequence in sequences:
            self.document_count += 1
            self.index_docs.update(set(sequence))

    def texts_to_sequences(self, texts: Iterable[Any]) -> list[list[int]]:
        """Turn texts into lists of numbers."""
        return list(self.texts_to_sequences_generator(texts))

    def texts_to_sequences_generator(self, texts: Iterable[Any]) -> Iterator[list[int]]:
        """Yield the numbers of each text; unknown words are left out."""
        for text in texts:
            numbers = (
                self._known(self.word_index.get(word)) for word in self._words(text)
            )
            yield [number for number in numbers if number is not None]

    def sequences_to_texts(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """Turn lists of numbers back into texts."""
        return list(self.sequences_to_texts_generator(sequences))

    def sequences_to_texts_generator(
        self, sequences: Iterable[Iterable[int]]
    ) -> Iterator[str]:
        """Yield the text of each list of numbers; unknown ones are left out."""
        for row in sequences:
            numbers = (self._known(i if i in self.index_word else None) for i in row)
            yield " ".join(self.index_word[i] for i in numbers if i is not None)

    def texts_to_matrix(self, texts: Iterable[Any], mode: str = "binary") -> np.ndarray:
        """Turn texts into one row each, with a column for each word."""
        return self.sequences_to_matrix(self.texts_to_sequences(texts), mode)

    def sequences_to_matrix(
        self, sequences: Iterable[Iterable[int]], mode: str = "binary"
    ) -> np.ndarray:
        """Turn lists of numbers into one row each, with a column for each number."""
        columns = self.num_words or (len(self.word_index) + 1 if self.word_index else 0)
        if not columns:
            raise ValueError("Give `num_words`, or call `fit_on_texts` first.")
        if mode not in MODES:
            raise ValueError(f"Unknown mode {mode!r}: one of {', '.join(MODES)}.")
        if mode == "tfidf" and not self.document_count:
            raise ValueError('The mode "tfidf" needs `fit_on_texts` first.')
        rows = [list(sequence) for sequence in sequences]
        matrix = np.zeros((len(rows), columns))
        for row, sequence in zip(matrix, rows, strict=True):
            counts = Counter(i for i in sequence if i < columns)
            for i, count in counts.items():
                row[i] = self._weight(mode, i, count, len(sequence))
        return matrix

    def _weight(self, mode: str, i: int, count: int, length: int) -> float:
        if mode == "count":
            return count
        if mode == "freq":
            return count / length
        if mode == "binary":
            return 1.0
        rarity = np.log(1 + self.document_count / (1 + self.index_docs.get(i, 0)))
        return float((1 + np.log(count)) * rarity)

    def get_config(self) -> dict[str, Any]:
        """Return the settings, and the tables of words as texts of JSON."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        return settings | {name: json.dumps(getattr(self, name)) for name in _TABLES}

    def to_json(self, **kwargs: Any) -> str:
        """Return the tokenizer as a text that `tokenizer_from_json` reads.

        Args:
            **kwargs: Arguments of `json.dumps`.
        """
        config = {"class_name": type(self).__name__, "config": self.get_config()}
        return json.dumps(config, **kwargs)


def tokenizer_from_json(json_string: str) -> Tokenizer:
    """Return the tokenizer that `Tokenizer.to_json`, ours or Keras', wrote.

    Args:
        json_string: The text.

    >>> tokenizer = Tokenizer()
    >>> tokenizer.fit_on_texts(["the cat"])
    >>> tokenizer_from_json(tokenizer.to_json()).word_index
    {'the': 1, 'cat': 2}
    """
    with budget.reading(len(json_string)):
        try:
            config = budget.parsed_json(json_string)["config"]
            tables = {name: budget.parsed_json(config[name]) for name in _TABLES}
            settings = {name: config[name] for name in _SETTINGS}
            index_docs = {int(i): n for i, n in tables["index_docs"].items()}
            index_word = {int(i): str(w) for i, w in tables["index_word"].items()}
            _check_numbers(tables["word_counts"], tables["word_docs"])
            _check_numbers(tables["word_index"], index_docs)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"This is not the text of a Tokenizer ({lines(error)}): it must be "
                "what `Tokenizer.to_json` returns."
            ) from error
    tokenizer = Tokenizer(**settings)
    tokenizer.word_counts = Counter(tables["word_counts"])
    tokenizer.word_docs = Counter(tables["word_docs"])
    tokenizer.index_docs = Counter(index_docs)
    tokenizer.word_index, tokenizer.index_word = tables["word_index"], index_word
    return tokenizer


def _check_numbers(*tables: dict[Any, Any]) -> None:
    for table in tables:
        if not all(type(number) is int for number in table.values()):
            raise ValueError("a table of words holds something else than integers")


__all__ = [
    "Tokenizer",
    "hashing_trick",
    "one_hot",
    "text_to_word_sequence",
    "tokenizer_from_json",
]
