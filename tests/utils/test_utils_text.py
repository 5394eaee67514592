"""Keras 2's Tokenizer and its kin; numbers as Keras 2.3.1 gave them."""

import json

import numpy as np
import pytest

from ganglion import keras2, utils
from ganglion.utils import sequence, text
from ganglion.utils.text import (
    Tokenizer,
    hashing_trick,
    one_hot,
    text_to_word_sequence,
)

TEXTS = ["The cat sat on the mat.", "The dog, the cat!", "A bird"]


def test_words_by_how_often_they_are_used():
    tokenizer = Tokenizer()
    tokenizer.fit_on_texts(TEXTS)
    assert list(tokenizer.word_index)[:2] == ["the", "cat"]
    assert tokenizer.word_counts["the"] == 4
    assert tokenizer.word_docs["the"] == 2
    assert tokenizer.document_count == 3
    assert tokenizer.texts_to_sequences(["the cat flew"]) == [[1, 2]]
    assert tokenizer.sequences_to_texts([[1, 2]]) == ["the cat"]


def test_limits_and_unknown_words():
    tokenizer = Tokenizer(num_words=3, oov_token="<?>")
    tokenizer.fit_on_texts(TEXTS)
    assert tokenizer.word_index["<?>"] == 1
    assert tokenizer.texts_to_sequences(["the cat flew"]) == [[2, 1, 1]]


def test_matrices():
    tokenizer = Tokenizer(num_words=4)
    rows = [[1, 1, 2, 9], [3]]
    wanted = {
        "binary": [[0, 1, 1, 0], [0, 0, 0, 1]],
        "count": [[0, 2, 1, 0], [0, 0, 0, 1]],
        "freq": [[0, 2 / 4, 1 / 4, 0], [0, 0, 0, 1]],
    }
    for mode, matrix in wanted.items():
        np.testing.assert_allclose(tokenizer.sequences_to_matrix(rows, mode), matrix)
    tokenizer.fit_on_sequences(rows)
    weighted = tokenizer.sequences_to_matrix(rows, "tfidf")
    assert weighted[0, 1] == pytest.approx((1 + np.log(2)) * np.log(1 + 2 / 2))
    with pytest.raises(ValueError, match="Unknown mode 'sum'"):
        tokenizer.sequences_to_matrix(rows, "sum")
    with pytest.raises(ValueError, match="num_words"):
        Tokenizer().sequences_to_matrix(rows)


def test_characters_and_hashes():
    tokenizer = Tokenizer(char_level=True)
    tokenizer.fit_on_texts(["abba"])
    assert tokenizer.texts_to_sequences(["ab"]) == [[1, 2]]
    assert text_to_word_sequence("A-b c", lower=False) == ["A", "b", "c"]
    numbers = one_hot("the cat the", 50)
    assert numbers[0] == numbers[2]
    assert all(0 < number < 50 for number in numbers)
    assert hashing_trick("a b", 10, len) == [2, 2]


# Beside Keras -------------------------------------------------------------------------

SETTINGS = [
    {},
    {"num_words": 4},
    {"num_words": 4, "oov_token": "<?>"},
    {"oov_token": "cat"},
    {"lower": False, "filters": "t"},
    {"char_level": True, "num_words": 9},
    {"split": "a", "num_words": 5},
    {"analyzer": lambda text: text[::-1].split()},
]
NEW_TEXTS = ["the cat flew on a mat", "", "Dog CAT cat cat zebra", "bird."]


@pytest.fixture(scope="module")
def theirs(keras):
    from keras.src.legacy.preprocessing import text

    return text


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(settings))
def test_a_tokenizer_is_keras(theirs, settings):
    pair = [module.Tokenizer(**settings) for module in (text, theirs)]
    for tokenizer in pair:
        tokenizer.fit_on_texts(TEXTS)
        tokenizer.fit_on_texts([["the", "Bird"]])
    ours, keras_s = pair
    assert ours.word_index == keras_s.word_index
    rows = ours.texts_to_sequences(NEW_TEXTS)
    assert rows == keras_s.texts_to_sequences(NEW_TEXTS)
    rows = [*rows, [1, 50, 2], []]
    assert ours.sequences_to_texts(rows) == keras_s.sequences_to_texts(rows)
    for mode in ("binary", "count", "tfidf", "freq"):
        np.testing.assert_array_equal(
            ours.sequences_to_matrix(rows, mode),
            keras_s.sequences_to_matrix(rows, mode),
        )
        np.testing.assert_array_equal(
            ours.texts_to_matrix(NEW_TEXTS, mode),
            keras_s.texts_to_matrix(NEW_TEXTS, mode),
        )
    config, other = ours.get_config(), keras_s.get_config()
    tables = [name for name in config if name.startswith(("word_", "index_"))]
    assert {n: json.loads(config.pop(n)) for n in tables} == {
        n: json.loads(other.pop(n)) for n in tables
    }
    assert config == other


def test_tokenizers_are_read_both_ways(theirs):
    pair = [module.Tokenizer(num_words=5, oov_token="?") for module in (text, theirs)]
    for tokenizer in pair:
        tokenizer.fit_on_texts(TEXTS)
    read = text.tokenizer_from_json(pair[1].to_json())
    back = theirs.tokenizer_from_json(pair[0].to_json(indent=1))
    wanted = pair[1].texts_to_matrix(NEW_TEXTS, "tfidf")
    for tokenizer in (read, back):
        np.testing.assert_array_equal(
            tokenizer.texts_to_matrix(NEW_TEXTS, "tfidf"), wanted
        )
    read.fit_on_texts(["more words"])
    assert read.document_count == 4


@pytest.mark.parametrize(
    "damaged",
    ["", "[]", "{}", '{"config": {}}', '{"config": 3}', "[" * 10_000],
)
def test_a_damaged_tokenizer_is_refused(damaged):
    with pytest.raises(ValueError, match=r"not the text of a Tokenizer .*to_json"):
        text.tokenizer_from_json(damaged)


def test_a_table_of_other_things_than_numbers_is_refused():
    tokenizer = Tokenizer()
    tokenizer.fit_on_texts(TEXTS)
    config = json.loads(tokenizer.to_json())
    config["config"]["word_index"] = '{"the": "one"}'
    with pytest.raises(ValueError, match="else than integers"):
        text.tokenizer_from_json(json.dumps(config))


def test_hashes_are_keras(theirs):
    for number in (5, 97):
        assert hashing_trick(TEXTS[0], number, "md5") == theirs.hashing_trick(
            TEXTS[0], number, "md5"
        )
        assert hashing_trick(TEXTS[0], number, len) == theirs.hashing_trick(
            TEXTS[0], number, len
        )
    assert one_hot("a b", 9, analyzer=str.split) == one_hot("A b!", 9)


def test_bad_arguments_of_texts_are_named():
    with pytest.raises(ValueError, match="at least 2, not 1"):
        one_hot("the cat", 1)
    with pytest.raises(ValueError, match="'md5' or a function, not 'sha'"):
        hashing_trick("the cat", 9, "sha")
    with pytest.raises(TypeError, match="A text is a string, not float: nan"):
        Tokenizer().fit_on_texts(["the cat", float("nan")])
    with pytest.raises(TypeError, match="does not know words"):
        Tokenizer(words=3)
    with pytest.warns(keras2.Keras2Warning, match="num_words"):
        assert Tokenizer(nb_words=3).num_words == 3


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_old_paths():
    from ganglion.preprocessing.sequence import TimeseriesGenerator, skipgrams
    from ganglion.preprocessing.text import Tokenizer as OldTokenizer

    assert OldTokenizer is Tokenizer
    assert (skipgrams, TimeseriesGenerator) == (
        sequence.skipgrams,
        sequence.TimeseriesGenerator,
    )
    from ganglion.preprocessing import text_dataset_from_directory

    assert text_dataset_from_directory is utils.text_dataset_from_directory
