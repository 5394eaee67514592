"""Utilities: arrays, seeds, data sets, files, images and pictures of models."""

import gc
import hashlib
import io
import os
import random
import tarfile
import weakref
import zipfile

import numpy as np
import pytest

import ganglion
from ganglion import utils
from ganglion.compiler.cpu import backend
from ganglion.compiler.cpu.backend import CompiledProgram
from ganglion.utils import plotting

# ---- arrays -------------------------------------------------------------------------


def test_to_categorical_shapes():
    assert utils.to_categorical([[0], [1]]).shape == (2, 2)
    assert utils.to_categorical([[0, 1, 2]]).shape == (1, 3, 3)
    np.testing.assert_array_equal(utils.to_categorical(1, 3), [0, 1, 0])


@pytest.mark.parametrize(("labels", "bad"), [([0, 3], 3), ([0, -1], -1)])
def test_to_categorical_names_what_is_no_class(labels, bad):
    with pytest.raises(ValueError, match=f"Label {bad} at position 1 .* 0 to 2"):
        utils.to_categorical(labels, 3)


def test_tensors_stay_tensors():
    labels = ganglion.ops.convert_to_tensor([0, 2])
    rows = utils.to_categorical(labels, 3)
    unit = utils.normalize(ganglion.ops.convert_to_tensor([[3.0, 4.0]]))
    assert ganglion.ops.is_tensor(rows)
    assert ganglion.ops.is_tensor(unit)
    np.testing.assert_array_equal(rows, [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(unit, [[0.6, 0.8]])


def test_to_categorical_of_nothing():
    with pytest.raises(ValueError, match="needs `num_classes`"):
        utils.to_categorical([])
    assert utils.to_categorical([], 3).shape == (0, 3)


def test_normalize_inside_of_a_compiled_step():
    unit = ganglion.function(lambda x: utils.normalize(x, axis=1))
    rows = np.float32([[3.0, 4.0], [0.0, 0.0]])
    assert unit(rows) == pytest.approx(utils.normalize(rows, axis=1))


def test_normalize_works_along_any_axis():
    x = np.arange(6.0).reshape(2, 3)
    for axis in (0, 1, -1):
        normalized = utils.normalize(x, axis=axis, order=1)
        sums = normalized.sum(axis)
        np.testing.assert_allclose(sums, np.ones_like(sums), rtol=1e-15)


def test_pad_sequences_sides():
    sequences = [[1], [2, 3, 4], []]
    pad = utils.pad_sequences
    np.testing.assert_array_equal(pad(sequences), [[0, 0, 1], [2, 3, 4], [0, 0, 0]])
    padded = pad(sequences, 2, padding="post", truncating="post", value=9)
    np.testing.assert_array_equal(padded, [[1, 9], [2, 3], [9, 9]])
    assert pad(sequences, 0).shape == (3, 0)
    assert pad([["a"], ["b", "c"]], dtype=object, value="-").tolist() == [
        ["-", "a"],
        ["b", "c"],
    ]


def test_pad_sequences_refuses_by_name():
    with pytest.raises(ValueError, match="`padding` is 'pre' or 'post', not 'left'"):
        utils.pad_sequences([[1]], padding="left")
    with pytest.raises(ValueError, match="Sequence 1 holds elements of shape"):
        utils.pad_sequences([[[1, 2]], [[1]]])
    with pytest.raises(ValueError, match="has no length"):
        utils.pad_sequences([1, 2])
    with pytest.raises(ValueError, match="dtype=object"):
        utils.pad_sequences([[1]], value="x")


# ---- seeds and names ----------------------------------------------------------------


def test_a_seed_fixes_all_random_numbers():
    drawn = []
    for _ in range(2):
        utils.set_random_seed(3)
        drawn.append(
            (
                random.random(),
                np.random.rand(),
                ganglion.random.uniform((2,)).tolist(),
                ganglion.initializers.GlorotUniform()((2, 2)).tolist(),
            )
        )
    assert drawn[0] == drawn[1]
    with pytest.raises(ValueError, match=r"integer, not 1\.5"):
        utils.set_random_seed(1.5)


def test_names_start_again():
    utils.clear_session()
    names = [ganglion.layers.Dense(1).name for _ in range(2)]
    utils.clear_session()
    assert [*names, ganglion.layers.Dense(1).name] == ["dense", "dense_1", "dense"]


def small_model():
    layers = [ganglion.layers.Dense(32, "relu"), ganglion.layers.Dense(4)]
    model = ganglion.Sequential([ganglion.Input((8,)), *layers])
    model.compile("sgd", "mse")
    return model


def test_clear_session_frees_what_nobody_uses(monkeypatch):
    """A dropped model with its program; and the memory that all programs share."""
    monkeypatch.setenv("GANGLION_BACKEND", "cpu")
    x = np.ones((256, 8), "float32")
    model, dropped = small_model(), small_model()
    before = model.predict(x, verbose=0)
    dropped.fit(x, np.ones((256, 4)), verbose=0)
    programs = weakref.WeakSet(
        held for held in gc.get_objects() if isinstance(held, CompiledProgram)
    )
    count, model_is_there = len(programs), weakref.ref(dropped)
    gc.disable()  # or it might have come by itself
    try:
        del dropped
        utils.clear_session(free_memory=False)
        assert model_is_there() is not None
        assert backend.ARENAS._free
        utils.clear_session()
    finally:
        gc.enable()
    assert model_is_there() is None
    assert len(programs) < count
    assert not backend.ARENAS._free
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)


def test_the_old_clear_session_does_the_same():
    from ganglion import backend

    backend.clear_session()
    assert backend.get_uid("one") == 1
    first = ganglion.random.uniform((3,), seed=None)
    backend.clear_session(free_memory=False)
    assert backend.get_uid("one") == 1
    assert ganglion.layers.Dense(1).name == "dense"
    assert first.shape == (3,)


# ---- data sets ----------------------------------------------------------------------


class Batches(utils.Sequence):
    """Written as for Keras 2: without calling its parent's `__init__`."""

    def __init__(self, count):
        self.count = count
        self.epochs_ended = 0

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = np.full((4, 3), index, "float32")
        return x, x[:, :1]

    def on_epoch_end(self):
        self.epochs_ended += 1


def test_data_sets_are_trained_on():
    data = Batches(3)
    assert data.num_batches == 3
    assert data.workers == 1
    assert [int(x[0, 0]) for x, _ in data] == [0, 1, 2]
    model = ganglion.Sequential([ganglion.Input((3,)), ganglion.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(data, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
    assert data.epochs_ended == 2
    assert int(model.optimizer.iterations) == 6


def test_a_data_set_must_say_its_length():
    class Endless(utils.PyDataset):
        num_batches = None

        def __getitem__(self, index):
            return index

    class Neither(utils.PyDataset):
        pass

    class Silent(utils.PyDataset):
        def __getitem__(self, index):
            return index

    class Counted(Silent):  # Keras 2's `Sequence` had no such property
        def __init__(self):
            self.num_batches = 2

    assert list(Counted()) == [0, 1]
    endless = iter(Endless(workers=2))
    assert [next(endless) for _ in range(3)] == [0, 1, 2]
    silent = iter(Silent())  # to `fit` it must say so, to a loop of one's own not
    assert [next(silent) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(NotImplementedError, match="Neither needs a `__len__`"):
        _ = Neither().num_batches
    with pytest.raises(NotImplementedError, match="`__getitem__`"):
        Neither()[0]


# ---- files --------------------------------------------------------------------------


@pytest.fixture
def web(tmp_path):
    """A folder that stands for the web, and the address of a file in it."""
    folder = tmp_path / "web"
    folder.mkdir()

    def publish(name, data):
        (folder / name).write_bytes(data)
        return (folder / name).as_uri()

    return publish


def tar_of(**members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_get_file_fetches_once(web, tmp_path, capsys):
    origin = web("words.txt", b"one")
    path = utils.get_file(origin=origin, cache_dir=tmp_path / "cache")
    assert path == str(tmp_path / "cache" / "datasets" / "words.txt")
    web("words.txt", b"two")
    assert utils.get_file("words.txt", origin, cache_dir=tmp_path / "cache") == path
    with open(path, "rb") as file:
        assert file.read() == b"one"
    assert capsys.readouterr().out == f"Downloading data from {origin}\n"
    utils.get_file("words.txt", origin, cache_dir=tmp_path / "cache", force_download=1)
    with open(path, "rb") as file:
        assert file.read() == b"two"


def test_get_file_uses_the_home_of_ganglion(web, tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))
    path = utils.get_file(origin=web("a.txt", b"a"), cache_subdir="texts")
    assert path == str(tmp_path / "home" / "files" / "texts" / "a.txt")


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_get_file_checks_what_it_fetched_and_what_it_kept(web, tmp_path, algorithm):
    origin = web("a.bin", b"right")
    wanted = hashlib.new(algorithm, b"right").hexdigest()
    options = {"cache_dir": tmp_path / "cache", "file_hash": wanted}
    path = utils.get_file("a.bin", origin, **options)
    with open(path, "wb") as file:
        file.write(b"damaged")
    utils.get_file("a.bin", origin, **options)
    with open(path, "rb") as file:
        assert file.read() == b"right"
    web("a.bin", b"changed")
    os.remove(path)
    with pytest.raises(ValueError, match="Incomplete or corrupted file"):
        utils.get_file("a.bin", origin, **options)
    assert os.listdir(tmp_path / "cache" / "datasets") == []
    with pytest.raises(ValueError, match="SHA-256"):
        utils.get_file("a.bin", origin, cache_dir=tmp_path, file_hash="12")


def test_get_file_unpacks(web, tmp_path):
    origin = web("data.tar.gz", tar_of(folder__a=b"A"))
    options = {"cache_dir": tmp_path / "cache"}
    folder = utils.get_file("data.tar.gz", origin, untar=True, **options)
    assert os.path.basename(folder) == "data_extracted"
    with open(os.path.join(folder, "folder", "a"), "rb") as file:
        assert file.read() == b"A"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("b/c.txt", "C")
    origin = web("more.zip", buffer.getvalue())
    folder = utils.get_file(origin=origin, extract=True, **options)
    assert os.listdir(os.path.join(folder, "b")) == ["c.txt"]
    left = sorted(os.listdir(tmp_path / "cache" / "datasets"))
    assert left == ["data.tar.gz", "data_extracted", "more.zip", "more.zip_archive"]


def test_get_file_refuses_archives_that_lead_out(web, tmp_path):
    outside = web("out.tar.gz", tar_of(**{"..__evil": b"x"}))
    with pytest.raises(ValueError, match="leads out of its folder"):
        utils.get_file("out.tar.gz", outside, extract=True, cache_dir=tmp_path)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("/etc/evil", "x")
    outside = web("out.zip", buffer.getvalue())
    with pytest.raises(ValueError, match="leads out of its folder"):
        utils.get_file("out.zip", outside, extract=True, cache_dir=tmp_path)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    outside = web("link.tar", buffer.getvalue())
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        utils.get_file("link.tar", outside, extract=True, cache_dir=tmp_path)
    plain = web("plain.txt", b"text")
    with pytest.raises(ValueError, match="it is not a zip or tar file"):
        utils.get_file("plain.txt", plain, extract=True, cache_dir=tmp_path)
    assert not (tmp_path / "evil").exists()
    assert not list((tmp_path / "datasets").glob("*_extracted"))


def test_get_file_refuses_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="pass `origin`"):
        utils.get_file("a")
    with pytest.raises(ValueError, match="http, https or file"):
        utils.get_file(origin="ftp://host/a", cache_dir=tmp_path)
    with pytest.raises(ValueError, match="a name, not a path"):
        utils.get_file("../a", "http://host/a", cache_dir=tmp_path)
    with pytest.raises(ValueError, match="names no file"):
        utils.get_file(origin="http://host/", cache_dir=tmp_path)


# ---- images -------------------------------------------------------------------------


def test_images_without_pillow_say_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"ganglion-nn\[images\]"):
        utils.array_to_img(np.zeros((2, 2, 1)))


def test_images_to_arrays():
    grey = np.arange(6, dtype="uint8").reshape(2, 3)
    assert utils.img_to_array(grey).shape == (2, 3, 1)
    assert utils.img_to_array(grey).dtype == "float32"
    assert utils.img_to_array(grey, data_format="channels_first").shape == (1, 2, 3)
    with pytest.raises(ValueError, match="two or three axes"):
        utils.img_to_array(np.zeros(3))
    with pytest.raises(ValueError, match="has three axes"):
        utils.array_to_img(grey)
    with pytest.raises(ValueError, match="1, 3 or 4 channels, not 2"):
        utils.array_to_img(np.zeros((2, 2, 2)))


def test_images_are_saved_and_loaded(tmp_path):
    pytest.importorskip(
        "PIL", reason="Pillow, of ganglion-nn[images], is not installed"
    )
    colours = np.arange(48).reshape(4, 4, 3)
    path = tmp_path / "image.png"
    utils.save_img(path, colours, scale=False)
    back = utils.img_to_array(utils.load_img(path))
    np.testing.assert_array_equal(back, colours)
    grey = utils.load_img(path, color_mode="grayscale", target_size=(2, 3))
    assert utils.img_to_array(grey).shape == (2, 3, 1)
    kept = utils.load_img(path, target_size=(2, 4), keep_aspect_ratio=True)
    assert kept.size == (4, 2)


# ---- pictures -----------------------------------------------------------------------


def branched():
    utils.clear_session(free_memory=False)
    x = ganglion.Input((4,), name="x")
    a = ganglion.layers.Dense(2, activation="relu", name="a")(x)
    b = ganglion.layers.Dense(2, name="b")(x)
    return ganglion.Model(x, ganglion.layers.Add(name="sum")([a, b]))


def test_a_model_as_graphviz_text(tmp_path):
    path = utils.plot_model(
        branched(),
        tmp_path / "model.dot",
        show_shapes=True,
        show_layer_names=True,
        show_layer_activations=True,
        show_dtype=True,
        show_trainable=True,
    )
    text = path.read_text()
    for edge in ("x -> a", "x -> b", "a -> sum", "b -> sum"):
        source, target = edge.split(" -> ")
        assert f'"{source}" -> "{target}";' in text
    assert "a (Dense)\\nactivation: relu|output: (None, 2)|type: float32" in text


def test_a_chain_as_graphviz_text():
    stack = [ganglion.layers.Dense(2, name="a"), ganglion.layers.Dense(2, name="b")]
    assert '"a" -> "b";' in utils.model_to_dot(ganglion.Sequential(stack))


def test_without_graphviz_the_text_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(plotting.shutil, "which", lambda name: None)
    with pytest.warns(UserWarning, match="needs Graphviz's `dot` program"):
        path = utils.plot_model(branched(), tmp_path / "model.png")
    assert path == tmp_path / "model.dot"
    assert path.read_text().startswith("digraph model {")


def test_the_program_draws(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "$1" > "$3"; cat >> "$3"\n')
    program.chmod(0o755)
    monkeypatch.setattr(plotting.shutil, "which", lambda name: str(program))
    path = utils.plot_model(branched(), tmp_path / "model.svg")
    assert path.read_text().startswith("-Tsvg\ndigraph model {")
    program.write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    with pytest.raises(RuntimeError, match="Graphviz failed: broken"):
        utils.plot_model(branched(), tmp_path / "model.svg")


def test_pictures_refuse_by_name():
    with pytest.raises(ValueError, match="`expand_nested` is not supported"):
        utils.model_to_dot(branched(), expand_nested=True)
    with pytest.raises(TypeError, match=r"does not know the argument.* colour"):
        utils.plot_model(branched(), colour=1)


# ---- the same as Keras --------------------------------------------------------------


@pytest.mark.rivals
def test_arrays_are_those_of_keras(keras):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 5, (6, 1))
    ours, theirs = utils.to_categorical(labels), keras.utils.to_categorical(labels)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype
    x = draw.normal(size=(4, 3))
    for order in (1, 2, np.inf):
        np.testing.assert_array_equal(
            utils.normalize(x, 1, order), keras.utils.normalize(x, 1, order)
        )
    sequences = [draw.integers(1, 9, n).tolist() for n in (0, 3, 7)]
    for padding in ("pre", "post"):
        for truncating in ("pre", "post"):
            for maxlen in (None, 2, 9):
                args = (sequences, maxlen, "int32", padding, truncating, 5)
                padded = utils.pad_sequences(*args), keras.utils.pad_sequences(*args)
                np.testing.assert_array_equal(*padded)
                assert padded[0].dtype == padded[1].dtype
