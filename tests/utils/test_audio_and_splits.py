"""`split_dataset` and `audio_dataset_from_directory` beside Keras."""

import wave
from functools import partial

import numpy as np
import pytest
from keras_programs import errors_of

import ganglion
from ganglion.utils import audio_dataset_from_directory, split_dataset


def plain(dataset):
    """Return the elements of a data set as lists."""
    elements = []
    for element in dataset:
        parts = element if isinstance(element, tuple) else (element,)
        elements.append([np.asarray(part).tolist() for part in parts])
    return elements


A, B = np.arange(10.0), np.arange(20.0).reshape(10, 2)
SPLITS = [
    (A, {"left_size": 0.8}),
    (A, {"right_size": 3}),
    (A, {"left_size": 4, "right_size": 2}),
    (B, {"left_size": 0.55}),
    ([A, B], {"left_size": 0.3, "right_size": 0.7}),
    ((A, B, A), {"right_size": 0.25}),
    (A, {"left_size": 0.5, "shuffle": True, "seed": 7}),
    ([B, A], {"left_size": 0.5, "shuffle": True, "seed": 7}),
]
REFUSED = [
    (A, {}),
    (A, {"left_size": 0}),
    (A, {"left_size": 10}),
    (A, {"left_size": 1.5}),
    (A, {"left_size": -0.1}),
    (A, {"right_size": 11}),
    (A, {"left_size": 0.7, "right_size": 0.7}),
    (A, {"left_size": 7, "right_size": 7}),
    (A, {"left_size": "1"}),
    (A, {"left_size": 0.01}),
    ([], {"left_size": 0.5}),
    ([A, B[:3]], {"left_size": 0.5}),
    ([A, [1]], {"left_size": 0.5}),
    ("text", {"left_size": 0.5}),
    (3, {"left_size": 0.5}),
]


@pytest.mark.rivals
@pytest.mark.parametrize("number", range(len(SPLITS)))
def test_splits_as_keras(keras, number):
    data, options = SPLITS[number]
    theirs = keras.utils.split_dataset(data, **options)
    for ours, their in zip(split_dataset(data, **options), theirs, strict=True):
        assert plain(ours) == plain(their)
        assert len(ours) == ours.cardinality() == int(their.cardinality())


@pytest.mark.rivals
def test_a_data_set_of_tensorflow(keras):
    import tensorflow as tf

    for data in (
        tf.data.Dataset.from_tensor_slices((A, {"b": B})),
        tf.data.Dataset.from_tensor_slices(A).batch(3),
    ):
        left, _ = split_dataset(data, left_size=0.6)
        theirs, _ = keras.utils.split_dataset(data, left_size=0.6)
        assert len(left) == int(theirs.cardinality())
        for our, their in zip(left, theirs, strict=True):
            flat = zip(
                ganglion.tree.flatten(our), keras.tree.flatten(their), strict=True
            )
            for part, other in flat:
                np.testing.assert_array_equal(part, other)


@pytest.mark.rivals
def test_refused_splits_as_keras(keras):
    for data, options in REFUSED:
        splits = (split_dataset, keras.utils.split_dataset)
        ours, theirs = errors_of(partial(split, data, **options) for split in splits)
        assert ours is theirs, (data, options)


def test_a_split_trains():
    model = ganglion.Sequential([ganglion.Input((2,)), ganglion.layers.Dense(1)])
    model.compile("sgd", "mse")
    left, right = split_dataset((B / 20, A), left_size=0.8)
    history = model.fit(left.batch(4), validation_data=right.batch(2), verbose=0)
    assert {"loss", "val_loss"} <= history.history.keys()


# ---- sounds --------------------------------------------------------------------------


@pytest.fixture
def sounds(tmp_path):
    rng = np.random.default_rng(0)
    for number, name in enumerate(["a", "a", "b", "b", "b"]):
        (tmp_path / name).mkdir(exist_ok=True)
        samples = rng.integers(-(2**15), 2**15, (20 + 3 * number, 2)).astype("<i2")
        with wave.open(str(tmp_path / name / f"{number}.wav"), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(samples.tobytes())
    return tmp_path


@pytest.mark.rivals
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"output_sequence_length": 25},
        {"label_mode": "categorical", "batch_size": 2},
        {"label_mode": "binary"},
        {"label_mode": None},
        {"labels": None},
        {"labels": [3, 1, 2, 1, 0]},
        {"validation_split": 0.4, "subset": "validation"},
        {"validation_split": 0.4, "subset": "training", "batch_size": None},
        {"class_names": ["b", "a"]},
    ],
)
def test_sounds_as_keras(keras, sounds, options):
    options = {"shuffle": False, "verbose": False} | options
    ours = audio_dataset_from_directory(sounds, **options)
    theirs = keras.utils.audio_dataset_from_directory(sounds, **options)
    assert ours.class_names == theirs.class_names
    for our, their in zip(ours, theirs, strict=True):
        our = our if isinstance(our, tuple) else (our,)
        their = their if isinstance(their, tuple) else (their,)
        for part, other in zip(our, their, strict=True):
            np.testing.assert_allclose(part, other, atol=1e-6)
            assert np.asarray(part).dtype == np.asarray(other).dtype


REFUSED_SOUNDS = [
    {"label_mode": "other"},
    {"labels": "other"},
    {"ragged": True, "output_sequence_length": 3},
    {"sampling_rate": 2.5},
    {"sampling_rate": 0},
    {"validation_split": 2.0, "subset": "training"},
    {"validation_split": 0.2},
    {"class_names": ["c"]},
    {"labels": [1]},
]


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore")  # Keras leaves its pool of threads open
def test_refused_sounds_as_keras(keras, sounds):
    for options in REFUSED_SOUNDS:
        for library in (ganglion, keras):
            with pytest.raises(ValueError):  # noqa: PT011 - both say it in their words
                library.utils.audio_dataset_from_directory(
                    sounds, verbose=False, **options
                )


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_widths_of_samples(tmp_path, width):
    values = [-1.0, -0.5, 0.0, 0.5]
    scaled = [int(value * 2 ** (8 * width - 1)) for value in values]
    data = b"".join(
        (128 + each).to_bytes(1, "little")
        if width == 1
        else each.to_bytes(width, "little", signed=True)
        for each in scaled
    )
    with wave.open(str(tmp_path / "x.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(8000)
        file.writeframes(data)
    (batch,) = audio_dataset_from_directory(tmp_path, labels=None, verbose=False)
    assert batch[0, :, 0].tolist() == values


def test_what_cannot_be_read_says_so(sounds):
    (sounds / "a" / "bad.wav").write_bytes(b"RIFF of nothing")
    with pytest.raises(ValueError, match=r"bad\.wav is not a WAV file"):
        audio_dataset_from_directory(sounds, verbose=False)
    (sounds / "a" / "bad.wav").unlink()
    with pytest.raises(ValueError, match="8000 samples a second, not 16000"):
        audio_dataset_from_directory(sounds, sampling_rate=16000, verbose=False)


def test_parts_are_tensors():
    x, y = np.ones((4, 2)), np.arange(4)
    first, _ = split_dataset((x, y), left_size=2)
    row, label = next(iter(first))
    assert (row.numpy().shape, int(label.numpy())) == ((2,), 0)
    _, labels = next(iter(first.batch(2)))
    assert labels.numpy().tolist() == [0, 1]
