"""Reuters: 11,228 newswires of 1987 as word numbers, in 46 topics (Lewis)."""

import functools

import numpy as np

from ganglion.datasets import sequences
from ganglion.datasets.keras_files import KerasFile
from ganglion.datasets.loading import load
from ganglion.datasets.sequences import Choice, Texts, TextSplit, as_split

TOPICS = """cocoa grain veg-oil earn acq wheat copper housing money-supply coffee sugar
trade reserves ship cotton carcass crude nat-gas cpi money-fx interest gnp meal-feed
alum oilseed gold tin strategic-metal livestock retail ipi iron-steel rubber heat jobs
lei bop zinc orange pet-chem dlr gas silver wpi hog lead"""

FILE = KerasFile(
    name="reuters.npz",
    digest="d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916",
    record=Texts,
    decode=functools.partial(sequences.from_keras, members=[("x", "y")]),
)
DATA_SET = FILE.data_set("reuters", "Reuters", shapes=((8_982,), (2_246,)))
WORD_INDEX = sequences.word_index(
    "reuters_word_index", "Reuters' word index", "4d44cc38712099c9e383dc6e5f11a921"
)


def load_data(
    path: str = FILE.name,
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    test_split: float = 0.2,
    seed: int | None = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int = 3,
) -> tuple[TextSplit, TextSplit]:
    """Load Reuters as Keras does; fetched on first use, then kept in the cache.

    The newswires are lists of word numbers in arrays, the labels topics from 0 to 45.
    The pickled lists of Keras' file are read without running anything in it.

    Args:
        path: Where the data is kept, relative to the cache folder or absolute.
        num_words: Numbers from here on, of rare words, become `oov_char`.
        skip_top: Numbers up to here, of the most frequent words, become `oov_char`.
        maxlen: Newswires of this length or more are left out.
        test_split: The share of the test data.
        seed: Of the mixing before the split.
        start_char: The number before each newswire; None for none.
        oov_char: The number of words that are left out; None to drop them.
        index_from: The number that is added to the index of each word.

    >>> (x_train, y_train), (x_test, y_test) = load_data()  # doctest: +SKIP
    """
    if not 0 <= test_split <= 1:
        raise ValueError(
            f"`test_split` is the share of the test data, from 0 to 1, not "
            f"{test_split}."
        )
    choice = Choice(num_words, skip_top, maxlen, start_char, oov_char, index_from)
    texts = load(DATA_SET, path)
    order = np.arange(len(texts.labels))
    np.random.RandomState(seed).shuffle(order)
    rows = texts.rows()
    numbered = choice.numbered([rows[number] for number in order])
    kept, labels = choice.short_enough(numbered, texts.labels[order])
    known = choice.known_words(kept)
    count = int(len(known) * (1 - test_split))
    return as_split(known[:count], labels[:count]), as_split(
        known[count:], labels[count:]
    )


def get_word_index(path: str = "reuters_word_index.json") -> dict[str, int]:
    """Return the number of each word; `load_data` adds `index_from` to it.

    Args:
        path: Where the table is kept, relative to the cache folder or absolute.
    """
    table: dict[str, int] = load(WORD_INDEX, path).table()
    return table


def get_label_names() -> tuple[str, ...]:
    """Return the names of the topics, in the order of the labels.

    >>> get_label_names()[:3]
    ('cocoa', 'grain', 'veg-oil')
    """
    return tuple(TOPICS.split())
