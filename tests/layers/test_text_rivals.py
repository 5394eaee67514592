"""Layers for text and categories beside Keras on TensorFlow: values and configs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ganglion import layers
from ganglion.layers.preprocessing.fingerprints import (
    fingerprint64,
    fingerprint_cat64,
    siphash64,
)
from ganglion.serialization import deserialize_keras_object, serialize_keras_object

pytestmark = pytest.mark.rivals

WORDS = ["cat", "dog", "Émile", "mat"]
TEXTS = ["The cat, the dog!", "émile's  Mat_1", "", "a b\tc\na", "É dog dog dog"]
NUMBERS = np.array([[1, 5, 5, 7], [-3, 12, 5, 2**40]])


def case(layer: str, inputs: Any, adapt: Any = None, **arguments: Any) -> Any:
    shown = ",".join(f"{key}={value}" for key, value in arguments.items())
    return pytest.param(layer, inputs, adapt, arguments, id=f"{layer}({shown})"[:90])


def text(**arguments: Any) -> Any:
    return case("TextVectorization", TEXTS, TEXTS, **arguments)


def string(inputs: Any, adapt: Any = None, **arguments: Any) -> Any:
    return case("StringLookup", inputs, adapt, **arguments)


def integer(inputs: Any, adapt: Any = None, **arguments: Any) -> Any:
    return case("IntegerLookup", inputs, adapt, **arguments)


WORD_ROWS = [["cat", "cow", "dog", "dog"], ["mat", "", "ox", "[UNK]"]]
COLUMN = [["cat"], ["cow"], ["Émile"]]

CASES = [
    text(),
    text(max_tokens=6),
    text(standardize=None),
    text(standardize="lower", split="character"),
    text(standardize="strip_punctuation", ngrams=2),
    text(ngrams=(3, 1), output_sequence_length=5),
    text(output_sequence_length=2),
    text(split=None),
    text(output_mode="multi_hot"),
    text(output_mode="binary", max_tokens=20, pad_to_max_tokens=True),
    text(output_mode="count", max_tokens=4),
    text(output_mode="tf-idf"),
    text(output_mode="tf_idf", max_tokens=20, pad_to_max_tokens=True, ngrams=2),
    case("TextVectorization", "the cat", vocabulary=["cat"]),
    case("TextVectorization", [["the cat"], ["dog"]], vocabulary=["cat", "dog"]),
    case("TextVectorization", WORD_ROWS, split=None, vocabulary=WORDS),
    case("TextVectorization", WORD_ROWS, split=None, ngrams=2, vocabulary=WORDS),
    case(
        "TextVectorization",
        WORD_ROWS,
        split=None,
        vocabulary=WORDS,
        output_mode="one_hot",
    ),
    case(
        "TextVectorization",
        TEXTS,
        vocabulary=WORDS,
        idf_weights=[1.0, 2.0, 0.5, 0.25],
        output_mode="tf_idf",
    ),
    string(WORD_ROWS, vocabulary=WORDS),
    string("cat", vocabulary=WORDS),
    string(["cat", "cow"], vocabulary=np.array(WORDS), mask_token=""),
    string(WORD_ROWS, vocabulary=WORDS, num_oov_indices=3, mask_token=""),
    string(WORD_ROWS, vocabulary=WORDS, num_oov_indices=3, salt=[133, 137]),
    string(WORD_ROWS, vocabulary=["", "[UNK]", *WORDS], mask_token=""),
    string(WORD_ROWS, WORD_ROWS),
    string(WORD_ROWS, WORD_ROWS, max_tokens=3, mask_token=""),
    string(WORD_ROWS, ["cat", "dog", "cat"], output_mode="tf_idf"),
    string([[1, 3, 0], [4, 9, 2]], vocabulary=WORDS, invert=True),
    string([[1, 3, 0], [4, 9, 2]], vocabulary=WORDS, invert=True, mask_token=""),
    *(
        string(inputs, vocabulary=WORDS, output_mode=mode, mask_token="")
        for mode in ("one_hot", "multi_hot", "count")
        for inputs in ("cat", ["cat", "cow"], COLUMN, WORD_ROWS, [WORD_ROWS])
    ),
    integer(NUMBERS, vocabulary=[5, 7, 2**40]),
    integer(5, vocabulary=[5, 7]),
    integer(np.array([5.0, 7.9, -1.0]), vocabulary=[5, 7], mask_token=-1),
    integer(NUMBERS, vocabulary=[5, 7], num_oov_indices=2),
    integer(NUMBERS, vocabulary=[5, 7], num_oov_indices=2, oov_method="farmhash"),
    integer(
        NUMBERS, vocabulary=[5, 7], num_oov_indices=3, oov_method="farmhash", salt=9
    ),
    integer(NUMBERS, NUMBERS),
    integer(
        NUMBERS, NUMBERS, output_mode="tf_idf", max_tokens=9, pad_to_max_tokens=True
    ),
    integer(NUMBERS, NUMBERS, output_mode="multi_hot", max_tokens=3),
    integer([[1, 3, 0], [4, 9, 2]], vocabulary=[5, 7, 9], invert=True),
    case("Hashing", [["A"], ["B"], ["Émile"], [""]], num_bins=3),
    case("Hashing", "A", num_bins=30, dtype="int32"),
    case("Hashing", [["A"], ["B"], [""]], num_bins=3, mask_value=""),
    case("Hashing", [["A"], ["B"]], num_bins=3, salt=133),
    case("Hashing", NUMBERS, num_bins=1000, salt=(133, 137), mask_value=5),
    case("Hashing", NUMBERS, num_bins=7, output_mode="multi_hot"),
    case("Hashing", NUMBERS[:, :1], num_bins=7, output_mode="one_hot"),
    case("Hashing", NUMBERS.astype("float32"), num_bins=7, output_mode="count"),
    case("HashedCrossing", (WORDS, [1, 2, 3, -4]), num_bins=11),
    case("HashedCrossing", (np.array(WORDS)[:, None],) * 3, num_bins=11),
    case(
        "HashedCrossing", (WORDS, [1, 2, 3, -4]), num_bins=11, output_mode="one_hot"
    ),
    *(
        case("CategoryEncoding", inputs, num_tokens=4, output_mode=mode)
        for mode in ("one_hot", "multi_hot", "count")
        for inputs in (2, [0, 3], [[1], [2]], [[1, 3, 3], [0, 1, 9]])
    ),
    case("Discretization", [[-1.5, 1.0, 3.4, 0.5]], bin_boundaries=[0.0, 1.0, 2.0]),
    case("Discretization", np.arange(6.0), np.arange(99.0) ** 2, num_bins=4),
    case(
        "Discretization",
        np.arange(6.0).reshape(3, 2),
        np.arange(999.0) % 7,
        num_bins=5,
        epsilon=0.1,
        output_mode="multi_hot",
    ),
]  # fmt: skip


def adapted(module: Any, layer: str, adapt: Any, arguments: dict[str, Any]) -> Any:
    instance = getattr(module, layer)(**arguments, name="layer")
    if adapt is not None:
        instance.adapt(adapt)
    return instance


def plain(outputs: Any) -> np.ndarray:
    outputs = np.asarray(outputs)
    is_text = outputs.dtype.kind == "O"
    return np.vectorize(bytes.decode, otypes=[str])(outputs) if is_text else outputs


@pytest.mark.parametrize(("layer", "inputs", "adapt", "arguments"), CASES)
def test_values_and_configurations_are_keras_own(
    keras: Any, layer: str, inputs: Any, adapt: Any, arguments: dict[str, Any]
) -> None:
    ours = adapted(layers, layer, adapt, arguments)
    theirs = adapted(keras.layers, layer, adapt, arguments)
    expected = plain(theirs(inputs))
    outputs = np.asarray(ours(inputs))
    assert outputs.shape == expected.shape
    if expected.dtype.kind == "U":
        assert outputs.astype(str).tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(outputs, expected, rtol=1e-6)
    if hasattr(ours, "get_vocabulary"):
        assert ours.get_vocabulary() == theirs.get_vocabulary()
        assert ours.vocabulary_size() == theirs.vocabulary_size()
        for special in (True, False):
            known = ours.get_vocabulary(include_special_tokens=special)
            assert known == theirs.get_vocabulary(include_special_tokens=special)
    assert ours.get_config() == theirs.get_config()
    entry = json.loads(json.dumps(keras.saving.serialize_keras_object(theirs)))
    our_copy = deserialize_keras_object(entry)
    entry = json.loads(json.dumps(serialize_keras_object(ours)))
    their_copy = keras.saving.deserialize_keras_object(entry)
    assert our_copy.get_config() == their_copy.get_config()


def test_hashes_are_tensorflows(keras: Any) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    lengths = [*range(140), 1000, 4096]
    words = [rng.integers(0, 256, n, "uint8").tobytes() for n in lengths]
    bins = 2**62 - 57
    fast = tf.strings.to_hash_bucket_fast(words, bins).numpy()
    np.testing.assert_array_equal(fingerprint64(words) % np.uint64(bins), fast)
    strong = tf.strings.to_hash_bucket_strong(words, bins, key=[1, 2**63 - 5]).numpy()
    hashes = siphash64(words, [1, 2**63 - 5])
    np.testing.assert_array_equal(hashes % np.uint64(bins), strong)
    column = tf.constant([[word] for word in words])
    crossed = tf.sparse.to_dense(tf.sparse.cross_hashed([column, column], bins))
    prints = fingerprint64(words)
    key = np.full(len(words), 0xDECAFCAFFE, np.uint64)
    hashes = fingerprint_cat64(fingerprint_cat64(key, prints), prints)
    np.testing.assert_array_equal(hashes % np.uint64(bins), crossed.numpy()[:, 0])


def test_functions_of_tensorflow_standardize_and_split(keras: Any) -> None:
    import tensorflow as tf

    def standardize(texts: Any) -> Any:
        return tf.strings.regex_replace(tf.strings.lower(texts), "[aeiou]", "*")

    def split(texts: Any) -> Any:
        return tf.strings.split(texts, sep="*")

    arguments = {"standardize": standardize, "split": split}
    ours = adapted(layers, "TextVectorization", TEXTS, arguments)
    theirs = adapted(keras.layers, "TextVectorization", TEXTS, arguments)
    assert ours.get_vocabulary() == theirs.get_vocabulary()
    np.testing.assert_array_equal(ours(TEXTS), theirs(TEXTS))


def test_data_sets_are_adapted_to_batch_by_batch(keras: Any) -> None:
    import tensorflow as tf

    for name, mode in (("StringLookup", "tf_idf"), ("TextVectorization", "tf_idf")):
        data = tf.data.Dataset.from_tensor_slices(TEXTS).batch(2)
        ours = adapted(layers, name, data, {"output_mode": mode})
        theirs = adapted(keras.layers, name, data, {"output_mode": mode})
        assert ours.get_vocabulary() == theirs.get_vocabulary()
        np.testing.assert_allclose(ours(TEXTS), theirs(TEXTS), rtol=1e-6)
        ours, theirs = getattr(layers, name)(), getattr(keras.layers, name)()
        ours.adapt(data.repeat(), steps=2)
        theirs.adapt(data.repeat(), steps=2)
        assert ours.get_vocabulary() == theirs.get_vocabulary()
