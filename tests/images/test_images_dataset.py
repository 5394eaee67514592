"""`image_dataset_from_directory`: Keras' files, order, split and labels."""

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

import image_files
from PIL import Image

import ganglion
from ganglion.utils import image_dataset_from_directory

SMALL = {"image_size": (20, 16), "verbose": False}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))


@pytest.fixture
def photos(tmp_path):
    return image_files.folder(tmp_path / "photos", each=10)


def network(classes=3, shape=(20, 16, 3)):
    model = ganglion.Sequential(
        [
            ganglion.Input(shape),
            ganglion.layers.Rescaling(1 / 255),
            ganglion.layers.Flatten(),
            ganglion.layers.Dense(classes, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def test_batches_as_in_keras(photos, capsys):
    data = image_dataset_from_directory(photos, image_size=(20, 16), batch_size=8)
    assert "Found 30 files belonging to 3 classes." in capsys.readouterr().out
    assert data.class_names == ["blue", "green", "red"]
    assert len(data) == 4
    batches = list(data)
    assert [len(x) for x, _ in batches] == [8, 8, 8, 6]
    x, y = batches[0]
    assert (x.shape, x.dtype, y.dtype) == ((8, 20, 16, 3), np.float32, np.int32)
    assert not np.array_equal(x, next(iter(data))[0])  # another order in each pass


def test_fit_takes_the_rows(photos):
    train, test = image_dataset_from_directory(
        photos, validation_split=0.2, subset="both", seed=1, batch_size=8, **SMALL
    )
    model = network()
    history = model.fit(train, validation_data=test, epochs=3, verbose=0)
    assert len(history.history["val_loss"]) == 3
    loss, accuracy = model.evaluate(test, verbose=0)
    assert accuracy == history.history["val_accuracy"][-1]
    assert loss == pytest.approx(history.history["val_loss"][-1], rel=1e-5)
    predictions = model.predict(test, verbose=0)
    right = (predictions.argmax(axis=1) == test.y).mean()
    assert right == pytest.approx(accuracy)


def test_without_shuffling_rows_and_batches_train_alike(photos):
    data = image_dataset_from_directory(photos, shuffle=False, batch_size=8, **SMALL)
    own, other = network(), network()
    other.set_weights(own.get_weights())
    first = own.fit(data, epochs=2, verbose=0).history["loss"]
    by_batches = data.map(lambda x, y: (x, y))
    second = other.fit(by_batches, epochs=2, shuffle=False, verbose=0).history["loss"]
    assert first == pytest.approx(second, rel=1e-5)


def test_what_tutorials_do(photos):
    data = image_dataset_from_directory(photos, batch_size=8, seed=3, **SMALL)
    data = data.cache().shuffle(1000).prefetch(buffer_size=-1)
    for x, y in data.take(1):
        assert (len(x), len(y)) == (8, 8)
    scaled = data.map(lambda x, y: (x / 255.0, y), num_parallel_calls=2)
    x, _ = next(iter(scaled))
    assert x.max() <= 1
    twice = scaled.map(lambda x, y: (x * 2, y))
    assert 1 < next(iter(twice))[0].max() <= 2


@pytest.mark.parametrize("mode", ["int", "categorical", "binary", None])
def test_label_modes(tmp_path, mode):
    place = image_files.folder(tmp_path / "p", each=3, classes=("red", "blue"))
    data = image_dataset_from_directory(place, label_mode=mode, shuffle=False, **SMALL)
    if mode is None:
        assert next(iter(data)).shape == (6, 20, 16, 3)
        return
    y = next(iter(data))[1]
    wanted = {"int": (6,), "categorical": (6, 2), "binary": (6, 1)}[mode]
    assert y.shape == wanted
    assert y.dtype == (np.int32 if mode == "int" else np.float32)


def test_labels_by_hand_and_single_images(photos):
    numbers = list(range(30))
    data = image_dataset_from_directory(photos, numbers, batch_size=None, **SMALL)
    x, y = next(iter(data))
    assert x.shape == (20, 16, 3)
    assert np.ndim(y) == 0
    assert len(data.class_names) == 30
    with pytest.raises(ValueError, match="30 images"):
        image_dataset_from_directory(photos, [1, 2], **SMALL)


def test_channels_first(photos, monkeypatch):
    options = {"shuffle": False, "batch_size": 8, **SMALL}
    last = image_dataset_from_directory(photos, **options)
    first = image_dataset_from_directory(
        photos, data_format="channels_first", **options
    )
    for (x, _), (turned, _) in zip(last, first, strict=True):
        np.testing.assert_array_equal(np.moveaxis(x, -1, 1), turned)
    model = network(shape=(3, 20, 16))
    assert len(model.fit(first, verbose=0).history["loss"]) == 1
    monkeypatch.setitem(ganglion.config._choices, "image_data_format", "channels_first")
    assert next(iter(image_dataset_from_directory(photos, **options)))[0].shape[1] == 3


def test_unreadable_files_are_left_out_with_a_warning(photos):
    (photos / "red" / "000.png").write_text("words")
    with pytest.warns(UserWarning, match=r"1 of 30 files.*000.png: no image: it holds"):
        data = image_dataset_from_directory(photos, shuffle=False, **SMALL)
    assert len(data.x) == len(data.y) == len(data.file_paths) == 29
    assert all("red/000" not in path for path in data.file_paths)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"labels": "guess"}, "`labels` argument"),
        ({"label_mode": "floats"}, "label_mode"),
        ({"label_mode": "binary"}, "exactly 2 classes"),
        ({"color_mode": "pink"}, "`color_mode` must be one of"),
        ({"interpolation": "magic"}, "interpolation"),
        ({"image_size": (3, 4, 5)}, "image_size"),
        ({"validation_split": 2, "subset": "both"}, "between 0 and 1"),
        ({"validation_split": 0.1}, "subset"),
        ({"subset": "both"}, "validation_split"),
        ({"validation_split": 0.1, "subset": "training"}, "seed"),
        ({"class_names": ["pink"]}, "class_names"),
        ({"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True}, "Only one"),
        ({"data_format": "sideways"}, "channels_first"),
        ({"format": "csv"}, "format"),
    ],
)
def test_what_makes_no_sense_is_refused(photos, arguments, match):
    with pytest.raises(ValueError, match=match):
        image_dataset_from_directory(photos, **SMALL | arguments)


def test_empty_folders(tmp_path, photos):
    with pytest.raises(ValueError, match="There is no folder"):
        image_dataset_from_directory(tmp_path / "nowhere", **SMALL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="No images found"):
        image_dataset_from_directory(tmp_path / "empty", **SMALL)
    (photos / "violet").mkdir()
    with pytest.warns(UserWarning, match="violet holds no images"):
        data = image_dataset_from_directory(photos, **SMALL)
    assert len(data.class_names) == 4


def test_some_classes_in_another_order(photos):
    data = image_dataset_from_directory(
        photos, class_names=["red", "blue"], shuffle=False, **SMALL
    )
    assert data.class_names == ["red", "blue"]
    assert data.y.tolist() == [0] * 10 + [1] * 10
    assert "red" in data.file_paths[0]


@pytest.mark.rivals
@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle": False},
        {"seed": 5, "validation_split": 0.3, "subset": "both"},
        {"seed": 5, "validation_split": 0.3, "subset": "training", "shuffle": False},
        {"class_names": ["red", "green"], "seed": 2, "label_mode": "categorical"},
        {"color_mode": "grayscale", "shuffle": False},
    ],
)
def test_files_split_pixels_and_labels_equal_keras(keras, photos, arguments):
    deeper = photos / "red" / "a" / "b"
    deeper.mkdir(parents=True)
    Image.new("RGB", (16, 20), (1, 2, 3)).save(deeper / "x.png")
    ours = image_dataset_from_directory(str(photos), **SMALL | arguments)
    theirs = keras.utils.image_dataset_from_directory(str(photos), **SMALL | arguments)
    if not isinstance(theirs, list):
        ours, theirs = [ours], [theirs]
    for first, other in zip(ours, theirs, strict=True):
        assert first.class_names == other.class_names
        assert first.file_paths == other.file_paths
    last, other = ours[-1], theirs[-1]
    if arguments.get("shuffle") is False or len(ours) > 1:  # in the order of the files
        x = np.concatenate([x for x, _ in other.as_numpy_iterator()])
        y = np.concatenate([y for _, y in other.as_numpy_iterator()])
        assert np.abs(last.x - x).max() <= 1  # grey by other roundings
        assert np.array_equal(last.y, y)


@pytest.mark.rivals
def test_resized_images_are_near_those_of_keras(keras, photos):
    arguments = {"image_size": (40, 32), "shuffle": False, "verbose": False}
    ours = image_dataset_from_directory(str(photos), **arguments)
    theirs = keras.utils.image_dataset_from_directory(str(photos), **arguments)
    x = np.concatenate([x for x, _ in theirs.as_numpy_iterator()])
    assert np.abs(ours.x - x).max() <= 1  # ours are integers
