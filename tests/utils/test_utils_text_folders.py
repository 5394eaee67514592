"""A folder of texts as data: files, order and split as in Keras."""

from itertools import chain

import numpy as np
import pytest

import ganglion
from ganglion import layers, utils
from ganglion.utils import text_dataset_from_directory


@pytest.fixture
def folder(tmp_path):
    for name, count in (("praise", 7), ("blame", 6)):
        (tmp_path / name / "deep").mkdir(parents=True)
        for number in range(count):
            inner = "deep" if number % 3 == 2 else "."
            path = tmp_path / name / inner / f"{number}.txt"
            path.write_text(f"{name} {number}", encoding="utf-8")
    (tmp_path / "praise" / "notes.md").write_text("not a text")
    return tmp_path


def rows(data):
    texts, labels = [], []
    for batch in data:
        x, y = batch if isinstance(batch, tuple) else (batch, None)
        texts += [getattr(text, "decode", lambda text=text: text)() for text in x]
        labels += [] if y is None else np.asarray(y).tolist()
    return texts, labels


def keras_rows(data):
    batches = []
    for batch in data:
        parts = batch if isinstance(batch, tuple) else (batch,)
        parts = tuple(part.numpy() for part in parts)
        batches.append(parts if len(parts) > 1 else parts[0])
    return rows(batches)


@pytest.mark.parametrize(
    "settings",
    [
        {"shuffle": False},
        {"shuffle": False, "label_mode": "binary", "batch_size": 4},
        {"shuffle": False, "label_mode": "categorical"},
        {"shuffle": False, "labels": None},
        {"shuffle": False, "label_mode": None, "max_length": 3},
        {"shuffle": False, "class_names": ["praise", "blame"], "max_length": 5},
        {"shuffle": False, "labels": list(range(13))},
        {"validation_split": 0.3, "subset": "validation", "seed": 4},
    ],
    ids=str,
)
def test_texts_are_keras(keras, folder, settings):
    ours = text_dataset_from_directory(folder, verbose=False, **settings)
    other = keras.utils.text_dataset_from_directory(folder, verbose=False, **settings)
    assert ours.class_names == other.class_names
    got, wanted = rows(ours), keras_rows(other)
    if settings.get("shuffle", True):  # in each epoch, too
        got, wanted = (sorted(zip(*data, strict=True)) for data in (got, wanted))
    assert got == wanted


def test_both_subsets(folder, capsys):
    train, valid = text_dataset_from_directory(
        str(folder), validation_split=0.25, subset="both", seed=3, batch_size=5
    )
    assert "Found 13 files belonging to 2 classes." in capsys.readouterr().out
    assert (len(train.x), len(valid.x)) == (10, 3)
    assert set(train.file_paths).isdisjoint(valid.file_paths)
    x, y = next(iter(train))
    assert (x.dtype, x.shape, y.dtype) == (object, (5,), np.int32)
    words = train.map(lambda x, y: [text.split()[0] for text in x])
    assert set(chain(*words)) == {"praise", "blame"}


def test_a_text_is_not_cut_within_a_character(tmp_path):
    (tmp_path / "a").mkdir()
    for number, text in enumerate(["grün", "\ufeffmit Marke", "", "Wörter 🙂"]):
        (tmp_path / "a" / f"{number}.txt").write_text(text, encoding="utf-8")
    data = text_dataset_from_directory(tmp_path, shuffle=False, verbose=False)
    assert rows(data)[0] == ["grün", "mit Marke", "", "Wörter 🙂"]
    for length, wanted in [(3, "gr"), (4, "grü"), (100, "grün")]:
        data = text_dataset_from_directory(
            tmp_path, shuffle=False, verbose=False, max_length=length
        )
        assert rows(data)[0][0] == wanted
    data = text_dataset_from_directory(
        tmp_path, shuffle=False, verbose=False, max_length=11
    )
    assert rows(data)[0][3] == "Wörter "


@pytest.mark.parametrize("length", [None, 4])
def test_other_encodings_are_refused_by_name(folder, length):
    (folder / "blame" / "1.txt").write_bytes("Käse".encode("latin-1"))
    (folder / "praise" / "2.txt").write_bytes("Käse".encode("utf-16"))
    with pytest.raises(ValueError, match=r"2 of 14 files are not in UTF-8") as caught:
        text_dataset_from_directory(folder, verbose=False, max_length=length)
    message = str(caught.value)
    assert f"{folder / 'blame' / '1.txt'} (byte 0xe4 at 1)" in message
    assert "Write them anew in UTF-8" in message


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"labels": [1, 2]}, "number of files in .*: 2 labels, 13 text files"),
        ({"labels": "guessed"}, "`labels` argument should be 'inferred'"),
        ({"label_mode": "float"}, "`label_mode` argument must be"),
        ({"label_mode": "binary", "class_names": ["praise"]}, "exactly 2 classes"),
        ({"validation_split": 0.2}, "`subset` must be either"),
        ({"validation_split": 2, "subset": "both"}, "between 0 and 1"),
        ({"validation_split": 0.01, "subset": "both", "seed": 1}, "No texts are left"),
        ({"format": "csv"}, "'tf' or 'grain'"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(folder, settings, match):
    with pytest.raises(ValueError, match=match):
        text_dataset_from_directory(folder, verbose=False, **settings)


def test_folders_without_texts_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"There is no folder .*nowhere"):
        text_dataset_from_directory(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"No text files found in .* end in \.txt"):
        text_dataset_from_directory(tmp_path)
    (tmp_path / "a").mkdir()
    with (
        pytest.warns(UserWarning, match="a holds no text files"),
        pytest.raises(ValueError, match=r"No text files found in .* end in \.txt"),
    ):
        utils.text_dataset_from_directory(tmp_path)


def test_from_a_folder_to_a_trained_model(folder):
    train, valid = text_dataset_from_directory(
        folder, validation_split=0.3, subset="both", seed=1, batch_size=4, verbose=False
    )
    words = layers.TextVectorization(output_sequence_length=2)
    words.adapt(train.map(lambda x, y: x))
    model = ganglion.Sequential(
        [
            ganglion.Input((), dtype="string"),
            words,
            layers.Embedding(words.vocabulary_size(), 2),
            layers.Flatten(),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    adam = ganglion.optimizers.Adam(0.1)
    model.compile(adam, "binary_crossentropy", metrics=["accuracy"])
    model.fit(train, epochs=10, verbose=0)
    assert model.evaluate(valid, verbose=0)[1] == 1
