"""Keras 2's Tokenizer and its kin; numbers as Keras 2.3.1 gave them."""

import numpy as np
import pytest

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
        "freq": [[0, 2 / 3, 1 / 3, 0], [0, 0, 0, 1]],
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
