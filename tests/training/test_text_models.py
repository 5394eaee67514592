"""Models that begin with text: the host computes words, the step begins behind."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers, ops
from ganglion.system.prefetch import prefetched
from ganglion.training import data_adapters

TEXTS = np.array(["the cat sat", "the dog ran", "a cat ran off", "dog dog"] * 6)
LABELS = np.array([1, 0, 1, 0] * 6, "float32")
TABLE = {
    "word": np.array(["x", "y", "z"] * 4),
    "size": np.linspace(0, 1, 36).reshape(12, 3),
    "id": np.array([2**40, 7, 1] * 4),
}


def classifier(keras: Any = ganglion, mask_zero: bool = False, **arguments: Any) -> Any:
    """Return a model of words, with weights that are equal for all."""
    words = keras.layers.TextVectorization(**arguments)
    words.adapt(TEXTS)
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="string"),
            words,
            keras.layers.Embedding(words.vocabulary_size(), 3, mask_zero=mask_zero),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    rng = np.random.default_rng(0)
    shapes = [weight.shape for weight in model.get_weights()]
    model.set_weights([rng.normal(size=shape) for shape in shapes])
    model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy")
    return model


def mixed() -> Any:
    """Return a model of a word, numbers and a number that is looked up."""
    word = ganglion.Input((1,), dtype="string", name="word")
    size = ganglion.Input((3,), name="size")
    number = ganglion.Input((1,), dtype="int64", name="id")
    marks = layers.StringLookup(
        vocabulary=["x", "y"], output_mode="one_hot", name="word_marks"
    )(word)
    index = layers.IntegerLookup(vocabulary=[2**40, 7])(number)
    parts = [marks, size, layers.Flatten()(layers.Embedding(5, 2)(index))]
    outputs = layers.Dense(1)(layers.Concatenate()(parts))
    model = ganglion.Model({"word": word, "size": size, "id": number}, outputs)
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("length", [5, None])
def test_text_is_trained_on_and_predicted(length: int | None) -> None:
    model = classifier(output_sequence_length=length)
    history = model.fit(
        TEXTS, LABELS, batch_size=8, epochs=8, validation_split=0.25, verbose=0
    ).history
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    assert history["val_loss"][-1] < history["val_loss"][0]
    expected = model(TEXTS)
    outputs = model.predict(TEXTS, batch_size=len(TEXTS), verbose=0)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)
    loss = model.evaluate(TEXTS, LABELS, verbose=0)
    assert loss == pytest.approx(model.test_on_batch(TEXTS, LABELS), rel=0.1)
    for text in (["the cat"], [["the cat"]], np.array(["the cat"], object)):
        outputs = model.predict(text, verbose=0)
        np.testing.assert_allclose(outputs, model(text), rtol=1e-6)


def test_batches_computed_ahead_are_those_of_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trained() -> Any:
        ganglion.utils.set_random_seed(3)
        model = classifier(output_sequence_length=5)
        model.fit(TEXTS, LABELS, batch_size=10, epochs=3, verbose=0)
        return model.get_weights()

    at_once = trained()
    monkeypatch.setattr(data_adapters, "MOST_BYTES", 0)
    for weight, other in zip(at_once, trained(), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-6)


def test_texts_of_many_lengths_share_a_program() -> None:
    ragged = np.array([" ".join(["cat", "the"] * n) for n in range(1, 8)])
    for mask, programs in ((False, 7), (True, 4)):
        model = classifier(mask_zero=mask)
        for text in ragged:
            expected = model([text])
            outputs = model.predict([text], verbose=0)
            np.testing.assert_allclose(outputs, expected, rtol=1e-5)
        assert len(model._step_cache._steps) == programs


def test_generators_of_text_are_streams() -> None:
    model = classifier()

    def batches() -> Any:
        for start in range(0, len(TEXTS), 8):
            yield TEXTS[start : start + 8], LABELS[start : start + 8]

    model.fit(batches(), verbose=0)
    assert model.evaluate(batches(), verbose=0) > 0
    assert model.predict((x for x, _ in batches()), verbose=0).shape == (24, 1)


def test_an_error_on_the_host_ends_the_epoch() -> None:
    model = classifier()

    def batches() -> Any:
        yield TEXTS[:8], LABELS[:8]
        yield np.arange(8), LABELS[:8]

    with pytest.raises(TypeError, match="takes text, but the data is int64"):
        model.fit(batches(), verbose=0)


def test_working_ahead_ends_with_its_consumer() -> None:
    drawn = []

    def items() -> Any:
        for number in range(100):
            drawn.append(number)
            yield number

    ahead = prefetched(map(str, items()))
    assert next(ahead) == "0"
    ahead.close()
    assert len(drawn) <= 4


def test_text_and_numbers_by_name() -> None:
    model = mixed()
    target = np.linspace(0, 1, 12)
    history = model.fit(TABLE, target, epochs=30, verbose=0).history["loss"]
    assert history[-1] < 0.6 * history[0]
    expected = model(TABLE)
    for table in (TABLE, {name: column.tolist() for name, column in TABLE.items()}):
        outputs = model.predict(table, verbose=0)
        np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


def test_a_sequential_without_an_input_begins_with_its_data() -> None:
    words = layers.TextVectorization(vocabulary=["cat", "dog"], output_mode="count")
    model = ganglion.Sequential([words, layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(TEXTS, LABELS, verbose=0)
    assert model.input_shape == (None,)
    again = ganglion.Sequential([words, layers.Dense(1)])
    assert again(TEXTS).shape == (24, 1)


def test_a_model_of_text_inside_of_a_model() -> None:
    inner = classifier()
    entry = ganglion.Input((1,), dtype="string")
    model = ganglion.Model(entry, layers.Dense(2)(inner(entry)))
    model.compile("sgd", "mse")
    before = inner.get_weights()
    model.fit(TEXTS, np.zeros((24, 2)), verbose=0)
    assert any((a != b).any() for a, b in zip(before, inner.get_weights(), strict=True))
    outputs = model.predict(TEXTS, batch_size=24, verbose=0)
    np.testing.assert_allclose(outputs, model(TEXTS), rtol=1e-5)


def test_words_alone_are_predicted() -> None:
    words = layers.TextVectorization(vocabulary=["cat", "dog"])
    model = ganglion.Sequential([ganglion.Input((1,), dtype="string"), words])
    assert model.predict(["cat dog", "cow"], verbose=0).tolist() == [[2, 3], [1, 0]]


def test_numbers_become_words_at_the_end() -> None:
    entry = ganglion.Input((2,))
    best = ganglion.ops.argmax(layers.Dense(2, kernel_initializer="ones")(entry), -1)
    names = layers.StringLookup(
        vocabulary=["no", "yes"], num_oov_indices=0, invert=True
    )
    model = ganglion.Model(entry, names(best))
    outputs = model.predict(np.eye(2), batch_size=1, verbose=0)
    assert outputs.tolist() == ["no", "no"] == model(np.eye(2)).tolist()
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match='Layer "dense" lies before'):
        model.fit(np.eye(2), [0.0, 1.0], verbose=0)


# ---- files ---------------------------------------------------------------------------


def test_a_vocabulary_is_saved_with_the_model(tmp_path: Path) -> None:
    model = classifier()
    model.fit(TEXTS, LABELS, verbose=0)
    model.save(tmp_path / "words.keras")
    again = ganglion.models.load_model(tmp_path / "words.keras")
    assert again.layers[0].get_vocabulary() == model.layers[0].get_vocabulary()
    for other in (again, copy.deepcopy(model)):
        np.testing.assert_array_equal(other(TEXTS), model(TEXTS))
        other.fit(TEXTS, LABELS, verbose=0)


def test_old_files_hold_given_vocabularies_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format has no place"):
        classifier().save(tmp_path / "words.h5")
    mixed().save(tmp_path / "words.h5")
    again = ganglion.models.load_model(tmp_path / "words.h5")
    lookup = again.get_layer("word_marks")
    assert lookup.get_vocabulary() == ["[UNK]", "x", "y"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda data: data.replace(b"dog", b"d\xffg"),
            "vocabulary.txt, line 3: byte 2",
        ),
        (lambda data: data.replace(b"dog", b"cat"), "the word 'cat' stands in line 3"),
    ],
)
def test_a_damaged_vocabulary_in_a_file_is_named(
    tmp_path: Path, damage: Any, message: str
) -> None:
    import zipfile

    classifier().save(tmp_path / "good.keras")
    with (
        zipfile.ZipFile(tmp_path / "good.keras") as good,
        zipfile.ZipFile(tmp_path / "bad.keras", "w") as bad,
    ):
        for name in good.namelist():
            data = good.read(name)
            bad.writestr(name, damage(data) if name.endswith(".txt") else data)
    with pytest.raises(ValueError, match=message):
        ganglion.models.load_model(tmp_path / "bad.keras")


# ---- what is refused -----------------------------------------------------------------


class Own(ganglion.Model):
    """A model with a `call` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lookup = layers.IntegerLookup(vocabulary=[1, 2])
        self.dense = layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(ganglion.ops.cast(self.lookup(inputs), "float32"))


def test_models_with_a_call_of_their_own_take_numbers() -> None:
    model = Own()
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match="has a `call` of its own"):
        model.fit(TEXTS, LABELS)
    with pytest.raises(RuntimeError, match="runs on the host and cannot be part"):
        model.fit(np.ones((4, 1)), np.ones(4), verbose=0)
    assert model(np.ones((4, 1))).shape == (4, 1)


def test_data_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(TypeError, match='"id" takes numbers, but the data is text'):
        mixed().predict({**TABLE, "id": TABLE["word"]}, verbose=0)
    with pytest.raises(TypeError, match='"word" takes text, but the data is int64'):
        mixed().predict({**TABLE, "word": TABLE["id"]}, verbose=0)
    with pytest.raises(ValueError, match="is empty"):
        classifier().fit(np.array([], str), np.array([]))
    plain = ganglion.Sequential([ganglion.Input((1,)), layers.Dense(1)])
    with pytest.raises(TypeError, match="dtype='string'"):
        plain.predict(TEXTS, verbose=0)


# ---- beside Keras --------------------------------------------------------------------


@pytest.mark.rivals
@pytest.mark.parametrize("length", [5, None])
@pytest.mark.parametrize("mask", [False, True])
def test_training_on_text_is_keras_own(
    keras: Any, tmp_path: Path, length: int | None, mask: bool
) -> None:
    import tensorflow as tf

    ours = classifier(mask_zero=mask, output_sequence_length=length)
    theirs = classifier(keras, mask_zero=mask, output_sequence_length=length)
    batches = tf.data.Dataset.from_tensor_slices((TEXTS[:, None], LABELS)).batch(10)
    expected = theirs.fit(batches, epochs=4, verbose=0).history["loss"]
    options = {"batch_size": 10, "epochs": 4, "shuffle": False, "verbose": 0}
    losses = ours.fit(TEXTS, LABELS, **options).history["loss"]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    x = tf.constant(TEXTS[:, None])
    np.testing.assert_allclose(ours(x.numpy()), theirs(x), rtol=1e-5)
    ours.save(tmp_path / "ours.keras")
    np.testing.assert_allclose(
        keras.models.load_model(tmp_path / "ours.keras")(x), theirs(x), rtol=1e-5
    )
    theirs.save(tmp_path / "theirs.keras")
    loaded = ganglion.models.load_model(tmp_path / "theirs.keras")
    np.testing.assert_allclose(loaded(x.numpy()), theirs(x), rtol=1e-5)
    assert loaded.layers[0].get_vocabulary() == theirs.layers[0].get_vocabulary()


@pytest.mark.rivals
def test_files_of_lookups_go_both_ways(keras: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    def model_of(module: Any) -> Any:
        lookup = module.layers.StringLookup(
            output_mode="tf_idf", num_oov_indices=2, name="lookup"
        )
        lookup.adapt([["a", "b"], ["a", "c"]])
        entry = module.Input((3,), dtype="string")
        return module.Model(entry, module.layers.Rescaling(2.0)(lookup(entry)))

    words = [["a", "x", "b"], ["y", "c", "c"]]
    ours, theirs = model_of(ganglion), model_of(keras)
    expected = theirs(tf.constant(words))
    np.testing.assert_allclose(ours(np.array(words)), expected, rtol=1e-6)
    ours.save(tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_allclose(loaded(tf.constant(words)), expected, rtol=1e-6)
    theirs.save(tmp_path / "theirs.keras")
    loaded = ganglion.models.load_model(tmp_path / "theirs.keras")
    np.testing.assert_allclose(loaded(np.array(words)), expected, rtol=1e-6)


def test_the_guides_examples_run(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guide.md"
    text = guide.read_text(encoding="utf-8").split("## Text and categories")[1]
    blocks = text.split("## What is supported")[0].split("```python\n")[1:]
    programs = [block.split("```")[0] for block in blocks]
    assert len(programs) == 2
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(programs), "guide.md", "exec"), {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("[[0.")
    assert second == "(1, 1)"


def test_texts_are_moved_on_their_way_to_a_lookup(tmp_path):
    first, second = (ganglion.Input((), dtype="string", name=n) for n in "ab")
    both = ops.stack([ops.expand_dims(first, -1), ops.expand_dims(second, -1)], 1)
    lookup = layers.StringLookup(vocabulary=["x", "y", "z"], num_oov_indices=1)
    numbers = lookup(ops.reshape(both, (-1, 2)))
    outputs = layers.Embedding(5, 3)(numbers)
    model = ganglion.Model([first, second], outputs)
    data = [np.array(["x", "z", "?"]), np.array(["y", "y", "x"])]
    known = ganglion.Model(model.inputs, numbers).predict(data, verbose=0)
    assert known.tolist() == [[1, 2], [3, 2], [0, 1]]
    model.save(tmp_path / "texts.keras")
    again = ganglion.models.load_model(tmp_path / "texts.keras")
    expected = model.predict(data, verbose=0)
    np.testing.assert_array_equal(again.predict(data, verbose=0), expected)
    with pytest.raises(TypeError, match="holds text, which only layers"):
        ops.add(first, 1)
