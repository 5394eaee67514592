"""Layers for text and categories: what they take, learn, keep and refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers
from ganglion.layers import (
    CategoryEncoding,
    Discretization,
    HashedCrossing,
    Hashing,
    IntegerLookup,
    StringLookup,
    TextVectorization,
)

TEXTS = ["the cat", "the dog, the mat"]


# ---- what they take ------------------------------------------------------------------


@pytest.mark.parametrize(
    "inputs",
    [
        ["cat", "dog"],
        ("cat", b"dog"),
        np.array(["cat", "dog"]),
        np.array([b"cat", b"dog"]),
        np.array(["cat", "dog"], object),
        np.array([b"cat", "dog"], object),
        np.array(["cat", "dog"], np.dtypes.StringDType()),
    ],
)
def test_texts_come_in_many_forms(inputs: Any) -> None:
    assert StringLookup(vocabulary=["dog", "cat"])(inputs).tolist() == [2, 1]
    adapted = StringLookup()
    adapted.adapt(inputs)
    assert adapted.get_vocabulary() == ["[UNK]", "dog", "cat"]


def test_functions_standardize_and_split_arrays_of_texts() -> None:
    layer = TextVectorization(
        standardize=lambda texts: np.char.replace(texts, "-", " "),
        split=lambda texts: [text.split(";") for text in texts],
        vocabulary=["a b", "c"],
    )
    assert layer(["a-b;c", "x"]).tolist() == [[2, 3], [1, 0]]


def test_iterables_of_batches_are_adapted_to() -> None:
    layer = TextVectorization()
    layer.adapt(batch for batch in (["a b"], ["a"], ["c"]))
    assert layer.get_vocabulary() == ["", "[UNK]", "a", "c", "b"]
    layer.adapt((batch for batch in (["a b"], ["a"], ["c"])), steps=2)
    assert layer.get_vocabulary() == ["", "[UNK]", "a", "b"]
    numbers = IntegerLookup()
    numbers.update_state([3, 3])
    numbers.update_state([4])
    numbers.finalize_state()
    assert numbers.get_vocabulary() == [-1, 3, 4]
    with pytest.raises(ValueError, match="data and labels"):
        layer.adapt(iter([(["a"], [1])]))


def test_one_hot_texts_are_filled_with_zeros() -> None:
    layer = TextVectorization(vocabulary=["a", "b"], output_mode="one_hot")
    outputs = layer(["a", "b a"])
    assert outputs.tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 0, 1], [0, 1, 0]]]


@pytest.mark.parametrize(
    ("layer", "x", "shape"),
    [
        (TextVectorization(vocabulary=["a"]), ["a b"], (None,)),
        (
            TextVectorization(vocabulary=["a"], output_mode="count"),
            [["a b"]],
            (None, 1),
        ),
        (
            TextVectorization(vocabulary=["a"], output_sequence_length=3),
            ["a"],
            (None,),
        ),
        (StringLookup(vocabulary=["a"], output_mode="one_hot"), [["a"]], (None, 1)),
        (StringLookup(vocabulary=["a"], output_mode="one_hot"), [["a"] * 2], (None, 2)),
        (Hashing(5, output_mode="multi_hot"), [["a"] * 2], (None, 2)),
        (Hashing(5), [["a"] * 2], (None, 2)),
    ],
)
def test_symbolic_shapes_are_those_of_the_values(
    layer: Any, x: Any, shape: Any
) -> None:
    symbol = layer(ganglion.KerasTensor(shape, "string"))
    outputs = layer(x)
    assert symbol.shape[0] is None
    assert len(symbol.shape) == outputs.ndim
    for size, real in zip(symbol.shape[1:], outputs.shape[1:], strict=True):
        assert size in (None, real)
    assert symbol.dtype == outputs.dtype.name
    assert layer.compute_output_shape(shape) == symbol.shape


# ---- what they keep ------------------------------------------------------------------


def test_a_vocabulary_goes_to_a_folder_and_back(tmp_path: Path) -> None:
    layer = TextVectorization(output_mode="tf_idf")
    layer.adapt(TEXTS)
    layer.save_assets(tmp_path)
    store: dict[str, Any] = {}
    layer.save_own_variables(store)
    again = TextVectorization.from_config(layer.get_config())
    again.load_own_variables(store)
    again.load_assets(tmp_path)
    assert again.get_vocabulary() == layer.get_vocabulary()
    np.testing.assert_array_equal(again(TEXTS), layer(TEXTS))


def test_a_word_with_a_line_break_is_kept_in_no_file(tmp_path: Path) -> None:
    layer = StringLookup()
    layer.adapt(["a\nb"])
    with pytest.raises(ValueError, match="line break"):
        layer.save_assets(tmp_path)


def test_several_indices_of_unknown_words_are_kept(tmp_path: Path) -> None:
    layer = StringLookup(num_oov_indices=3, mask_token="")
    layer.adapt(["a\x85b", "c\u2028d"])  # of which Python's `splitlines` makes four
    layer.save_assets(tmp_path)
    again = StringLookup.from_config(layer.get_config())
    again.load_assets(tmp_path)
    assert again.get_vocabulary() == layer.get_vocabulary()
    assert again.vocabulary_size() == 6


def test_files_of_words_are_vocabularies(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("cat\r\nÉmile\n\n", "utf-8")
    layer = StringLookup(vocabulary=str(words))
    assert layer.get_vocabulary() == ["[UNK]", "cat", "Émile"]
    assert layer.get_config()["vocabulary"] is None  # it goes with the model
    assert TextVectorization(vocabulary=words)(["cat"]).tolist() == [[2]]
    words.write_text("12\n-4")
    assert IntegerLookup(vocabulary=str(words))([-4, 12]).tolist() == [2, 1]


# ---- what they refuse ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "words.txt is empty"),
        (b"\n\n", "words.txt is empty"),
        (b"cat\nd\xffg\n", r"words.txt, line 2: byte 2 is not UTF-8"),
        (b"cat\ndog\ncat\n", r"words.txt, line 3: the word 'cat' stands in line 1"),
    ],
)
def test_a_damaged_word_list_is_named_with_its_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        StringLookup(vocabulary=str(path))
    with pytest.raises(ValueError, match=message):
        TextVectorization().set_vocabulary(str(path))


def test_a_word_list_of_numbers_holds_numbers(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("1\ncat\n")
    with pytest.raises(ValueError, match="line 2: 'cat' is not an integer"):
        IntegerLookup(vocabulary=str(path))
    with pytest.raises(ValueError, match="does not exist"):
        IntegerLookup(vocabulary=str(path) + ".gone")


def with_words(**arguments: Any) -> Any:
    return StringLookup(vocabulary=["a", "b"], **arguments)


REFUSED = {
    "empty vocabulary": lambda: StringLookup(vocabulary=[]),
    "repeated term.*'a'": lambda: StringLookup(vocabulary=["a", "b", "a"]),
    "reserved mask token": lambda: StringLookup(vocabulary=["a", ""], mask_token=""),
    "reserved OOV token.*'.UNK.'": lambda: StringLookup(
        vocabulary=["a", "[UNK]"], invert=True
    ),
    "has 3 entries .* `max_tokens` is 2": lambda: with_words(max_tokens=2),
    "`max_tokens` must be greater": lambda: StringLookup(max_tokens=1),
    "must set `max_tokens`": lambda: StringLookup(pad_to_max_tokens=True),
    "`num_oov_indices` must be": lambda: StringLookup(num_oov_indices=-1),
    "`num_oov_indices=0`.*'z'": lambda: with_words(num_oov_indices=0)(["z"]),
    "argument `output_mode`.*hot": lambda: StringLookup(output_mode="hot"),
    "`invert` is true.*'count'": lambda: with_words(invert=True, output_mode="count"),
    "needs its `idf_weights`": lambda: with_words(output_mode="tf_idf"),
    "only be set if `output_mode` is": lambda: with_words(idf_weights=[1, 2]),
    "one for each word": lambda: with_words(output_mode="tf_idf", idf_weights=[1]),
    "3 numbers for 2 words": lambda: with_words(
        output_mode="tf_idf", idf_weights=[1, 2, 3]
    ),
    "StringLookup does not support `sparse=True`": lambda: with_words(
        sparse=True, output_mode="count"
    ),
    "given its vocabulary": lambda: with_words().adapt(["a"]),
    "`adapt` got no data": lambda: StringLookup().adapt([]),
    "or only empty texts": lambda: TextVectorization().adapt(["", " "]),
    "`adapt` got no data, ": lambda: TextVectorization().adapt(iter([])),
    "the vocabulary must be known": lambda: StringLookup(output_mode="count")(["a"]),
    "`salt` needs": lambda: IntegerLookup(vocabulary=[1], salt=3),
    "a tuple of size 2": lambda: Hashing(3, salt="pepper"),
    "`vocabulary_dtype` is 'int64'": lambda: IntegerLookup(vocabulary_dtype="int32"),
    "`ragged=True`: rows are padded": lambda: TextVectorization(ragged=True),
    "TextVectorization does not support `sparse": lambda: TextVectorization(
        sparse=True
    ),
    "standardize=upper": lambda: TextVectorization(standardize="upper"),
    "split=lines": lambda: TextVectorization(split="lines"),
    "`ngrams` is an integer": lambda: TextVectorization(ngrams=0),
    "must not be set if `output_mode`": lambda: TextVectorization(
        output_mode="count", output_sequence_length=3
    ),
    "argument `output_sequence_length`": lambda: TextVectorization(
        output_sequence_length=0
    ),
    "splits texts, one in each row": lambda: TextVectorization()([["a", "b"]]),
    "not a regular array of texts": lambda: with_words()([["a"], ["a", "b"]]),
    "`num_bins` for `Hashing` cannot be": lambda: Hashing(0),
    "`dtype` should be an integer type": lambda: Hashing(3, dtype="float32"),
    "at least two inputs": lambda: HashedCrossing(3)(["a"]),
    "inputs of one shape": lambda: HashedCrossing(3)((["a"], [1, 2])),
    "num_tokens must be set": lambda: CategoryEncoding(),
    "`num_tokens` must be >= 1": lambda: CategoryEncoding(0),
    "`count_weights` is not used": lambda: CategoryEncoding(3)([1], count_weights=[2]),
    "have an integer or string": lambda: HashedCrossing(3)((["a"], [1.5])),
    "set either `num_bins`": lambda: Discretization(),
    "must rise": lambda: Discretization([2.0, 1.0]),
    "given its `bin_boundaries`": lambda: Discretization([1.0]).adapt(np.ones(3)),
    "You need to give layer": lambda: Discretization(num_bins=3)([1.0]),
    "Layer .*: `adapt` got no data": lambda: Discretization(num_bins=3).adapt([]),
    "names a vocabulary file": lambda: StringLookup.from_config(
        {"vocabulary": "/etc/passwd"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused(message: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=message):
        REFUSED[message]()


WRONG_TYPES = {
    "must be text, got numbers of type int64": lambda: with_words()([1, 2]),
    "in row 1 there is None": lambda: with_words()(np.array(["a", None], object)),
    "takes integers, got <U1": lambda: IntegerLookup(vocabulary=[1])(["a"]),
    "must hold texts, got 3": lambda: StringLookup(vocabulary=["a", 3]),
    "must hold integers, got 'a'": lambda: IntegerLookup(vocabulary=["a"]),
    "takes numbers, got text": lambda: CategoryEncoding(3)(["a"]),
    "needs numbers, got <U1": lambda: Discretization(num_bins=2).adapt(np.array(["a"])),
    "holds text, which only layers": lambda: layers.Dense(2)(
        ganglion.Input((1,), dtype="string")
    ),
}


@pytest.mark.parametrize("message", WRONG_TYPES)
def test_what_is_of_the_wrong_type_is_refused(message: str) -> None:
    with pytest.raises(TypeError, match=message):
        WRONG_TYPES[message]()


def test_a_vocabulary_of_another_size_is_refused_where_sizes_are_fixed() -> None:
    layer = StringLookup(vocabulary=["a", "b"], output_mode="count")
    with pytest.raises(RuntimeError, match="rows of 3 numbers"):
        layer.set_vocabulary(["a", "b", "c"])
    padded = StringLookup(
        vocabulary=["a"], output_mode="count", max_tokens=5, pad_to_max_tokens=True
    )
    padded.set_vocabulary(["a", "b", "c"])
    assert padded(["c"]).tolist() == [0, 0, 0, 1, 0]


def test_a_column_of_a_frame_is_text():
    """As pandas gives it: an array of its own kind, which becomes NumPy's."""

    class Column:
        dtype = np.dtype(object)

        def __array__(self, dtype=None, copy=None):
            return np.array(["b", "a", "b"], object)

    lookup = StringLookup(vocabulary=["a", "b"])
    np.testing.assert_array_equal(lookup(Column()), [2, 1, 2])
