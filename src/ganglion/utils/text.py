"""Keras 2's text utilities: words become numbers, texts become rows of them."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

FILTERS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'
MODES = ("binary", "count", "tfidf", "freq")


def text_to_word_sequence(
    text: str, filters: str = FILTERS, lower: bool = True, split: str = " "
) -> list[str]:
    """Split a text into words, without punctuation.

    >>> text_to_word_sequence("The cat, the mat.")
    ['the', 'cat', 'the', 'mat']
    """
    text = text.lower() if lower else text
    text = text.translate({ord(mark): split for mark in filters})
    return [word for word in text.split(split) if word]


def one_hot(
    text: str, n: int, filters: str = FILTERS, lower: bool = True, split: str = " "
) -> list[int]:
    """Give each word a number from 1 to n - 1 by a hash; words may share one."""
    return hashing_trick(text, n, None, filters, lower, split)


def hashing_trick(
    text: str,
    n: int,
    hash_function: Callable[[str], int] | str | None = None,
    filters: str = FILTERS,
    lower: bool = True,
    split: str = " ",
) -> list[int]:
    """Give each word a number from 1 to n - 1 by a hash, the same in every run."""
    chosen = hash_function if callable(hash_function) else _stable_hash
    words = text_to_word_sequence(text, filters, lower, split)
    return [chosen(word) % (n - 1) + 1 for word in words]


def _stable_hash(word: str) -> int:
    return zlib.crc32(word.encode())


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
        document_count: int = 0,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(f"Tokenizer does not know {', '.join(sorted(kwargs))}.")
        self.num_words, self.filters, self.lower = num_words, filters, lower
        self.split, self.char_level, self.oov_token = split, char_level, oov_token
        self.document_count = document_count
        self.word_counts: Counter[str] = Counter()
        self.word_docs: Counter[str] = Counter()
        self.index_docs: Counter[int] = Counter()
        self.word_index: dict[str, int] = {}
        self.index_word: dict[int, str] = {}

    def _words(self, text: Any) -> list[str]:
        if self.char_level or not isinstance(text, str):
            return [word.lower() if self.lower else word for word in text]
        return text_to_word_sequence(text, self.filters, self.lower, self.split)

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
        unknown = self.word_index.get(self.oov_token) if self.oov_token else None
        for text in texts:
            numbers = []
            for word in self._words(text):
                i = self.word_index.get(word)
                is_rare = i is None or (self.num_words and i >= self.num_words)
                numbers.append(unknown if is_rare else i)
            yield [i for i in numbers if i is not None]

    def sequences_to_texts(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """Turn lists of numbers back into texts."""
        words = self.index_word
        return [" ".join(words[i] for i in row if i in words) for row in sequences]

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
        rows = list(sequences)
        matrix = np.zeros((len(rows), columns))
        for row, sequence in zip(matrix, rows, strict=True):
            counts = Counter(i for i in sequence if i < columns)
            for i, count in counts.items():
                row[i] = self._weight(mode, i, count, counts)
        return matrix

    def _weight(self, mode: str, i: int, count: int, counts: Counter[int]) -> float:
        if mode == "count":
            return count
        if mode == "freq":
            return count / counts.total()
        if mode == "binary":
            return 1.0
        rarity = np.log(1 + self.document_count / (1 + self.index_docs.get(i, 0)))
        return float((1 + np.log(count)) * rarity)


__all__ = ["Tokenizer", "hashing_trick", "one_hot", "text_to_word_sequence"]
