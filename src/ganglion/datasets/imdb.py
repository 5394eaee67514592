"""IMDB: 50,000 reviews of films as word numbers, praise or not (Maas and others)."""

import functools
from typing import Any

import numpy as np

from ganglion import keras2
from ganglion.datasets import sequences
from ganglion.datasets.keras_files import KerasFile
from ganglion.datasets.loading import load
from ganglion.datasets.sequences import Choice, Texts, TextSplit, Words, as_split

FILE = KerasFile(
    name="imdb.npz",
    digest="69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f",
    record=Texts,
    decode=functools.partial(
        sequences.from_keras, members=[("x_train", "y_train"), ("x_test", "y_test")]
    ),
)
DATA_SET = FILE.data_set("imdb", "IMDB", shapes=((25_000,), (25_000,)))
WORD_INDEX = sequences.word_index(
    "imdb_word_index", "IMDB's word index", "bfafd718b763782e994055a2d397834f"
)


def load_data(
    path: str = FILE.name,
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int | None = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
    **kwargs: Any,
) -> tuple[TextSplit, TextSplit]:
    """Load IMDB as Keras does; fetched on first use, then kept in the cache.

    The reviews are lists of word numbers in arrays of 25,000, the labels 1 for praise.
    The pickled lists of Keras' file are read without running anything in it.

    Args:
        path: Where the data is kept, relative to the cache folder or absolute.
        num_words: Numbers from here on, of rare words, become `oov_char`.
        skip_top: Numbers up to here, of the most frequent words, become `oov_char`.
        maxlen: Reviews of this length or more are left out.
        seed: Of the mixing.
        start_char: The number before each review; None for none.
        oov_char: The number of words that are left out; None to drop them.
        index_from: The number that is added to the index of each word.
        **kwargs: Keras 2's `nb_words`, which is `num_words` today.

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    if "nb_words" in kwargs:
        keras2.note("`nb_words`", "`num_words`", changes_defaults=False)
        num_words = kwargs.pop("nb_words")
    if kwargs:
        raise TypeError(f"load_data does not know {', '.join(sorted(kwargs))}.")
    choice = Choice(num_words, skip_top, maxlen, start_char, oov_char, index_from)
    texts = load(DATA_SET, path)
    rows, random = texts.rows(), np.random.RandomState(seed)
    words: list[Words] = []
    splits = []
    first = 0
    for size in texts.parts.tolist():
        order = np.arange(size)
        random.shuffle(order)
        order += first
        first += size
        numbered = choice.numbered([rows[number] for number in order])
        kept, labels = choice.short_enough(numbered, texts.labels[order])
        words += kept
        splits.append((len(kept), labels))
    known = choice.known_words(words)
    (count, y_train), (_, y_test) = splits
    return as_split(known[:count], y_train), as_split(known[count:], y_test)


def get_word_index(path: str = "imdb_word_index.json") -> dict[str, int]:
    """Return the number of each word; `load_data` adds `index_from` to it.

    Args:
        path: Where the table is kept, relative to the cache folder or absolute.
    """
    table: dict[str, int] = load(WORD_INDEX, path).table()
    return table
