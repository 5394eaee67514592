"""Folders of images: what is found, split, kept in the cache, and refused."""

import json
import os
import shutil
import types
import warnings

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

import image_files
from PIL import Image

from ganglion import config, images, recipes
from ganglion.images import (
    ImagesError,
    cache,
    find,
    loading,
    networks,
    stratified,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def photos(tmp_path):
    return image_files.folder(tmp_path / "photos")


def entries(home):
    place = home / "images"
    return sorted(os.listdir(place)) if place.is_dir() else []


# ---- finding ---------------------------------------------------------------------


def test_a_folder_a_class(photos):
    (photos / "notes.txt").write_text("not a class")
    (photos / ".hidden").mkdir()
    (photos / "red" / "list.txt").write_text("no image")
    deeper = photos / "red" / "deeper"
    deeper.mkdir()
    (deeper / "X.PNG").write_bytes((photos / "red" / "000.png").read_bytes())
    result = find(photos)
    assert result.classes == ("blue", "green", "red")
    part = result.parts["all"]
    assert np.bincount(part.labels).tolist() == [8, 8, 9]
    assert [file.parent.name for file in part.files[-2:]] == ["red", "deeper"]
    assert result.others == 1


def test_train_and_test_folders(tmp_path):
    image_files.folder(tmp_path / "d" / "train", each=6)
    image_files.folder(tmp_path / "d" / "Test", each=2, classes=("red", "blue"))
    image_files.folder(tmp_path / "d" / "val", each=1)
    held = images.load(tmp_path / "d")
    assert (len(held.train), len(held.validation), len(held.test)) == (18, 3, 4)
    assert held.test.y.tolist() == [0, 0, 2, 2]
    with pytest.raises(ImagesError, match="test/ of its own"):
        images.load(tmp_path / "d", test=3)


def test_classes_may_be_called_train_and_test(tmp_path):
    image_files.folder(tmp_path / "d", each=2, classes=("red", "blue"))
    (tmp_path / "d" / "red").rename(tmp_path / "d" / "train")
    assert find(tmp_path / "d").classes == ("blue", "train")
    (tmp_path / "d" / "blue").rename(tmp_path / "d" / "test")
    assert find(tmp_path / "d").classes == ("test", "train")


def test_train_alone_is_split(tmp_path):
    image_files.folder(tmp_path / "d" / "train", each=4)
    held = images.load(tmp_path / "d", test=3)
    assert (len(held.train), len(held.test)) == (9, 3)


def refused(folder, match):
    with pytest.raises(ImagesError, match=match) as error:
        images.load(folder)
    assert "\n" not in str(error.value)


def test_no_folder_at_all(tmp_path):
    refused(tmp_path / "nowhere", "There is no folder .*nowhere")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "is a file")


def test_a_folder_without_images(tmp_path, home):
    (tmp_path / "d").mkdir()
    refused(tmp_path / "d", "holds no images: a folder a class was expected")
    (tmp_path / "d" / "a").mkdir()
    (tmp_path / "d" / "b").mkdir()
    refused(tmp_path / "d", "holds no images")
    assert entries(home) == []


def test_images_without_class_folders(tmp_path):
    (tmp_path / "d").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "d" / "a.png")
    refused(tmp_path / "d", "1 images, but no folders")


def test_an_empty_class_folder(photos, home):
    (photos / "violet").mkdir()
    refused(photos, "no images in the folder of the class 'violet'.*remove")
    assert entries(home) == []


def test_one_class_only(tmp_path, home):
    image_files.folder(tmp_path / "d", classes=("red",))
    refused(tmp_path / "d", "one class only, 'red'")
    assert entries(home) == []


def test_classes_that_differ_by_case(photos, home):
    (photos / "Red").mkdir()
    if len(list(photos.iterdir())) == 3:
        pytest.skip("this file system does not tell case apart")
    Image.new("RGB", (4, 4)).save(photos / "Red" / "a.png")
    refused(photos, "'Red', 'red' differ only by case.*rename")
    assert entries(home) == []


def test_a_class_to_test_on_that_nothing_is_learned_of(tmp_path):
    image_files.folder(tmp_path / "d" / "train", classes=("red", "blue"))
    image_files.folder(tmp_path / "d" / "test", classes=("red", "green"))
    refused(tmp_path / "d", "class 'green', which is not among.*blue, red")


def test_classes_of_a_model(photos):
    result = find(photos, ("red", "green", "violet", "blue"))
    assert np.bincount(result.parts["all"].labels).tolist() == [8, 8, 0, 8]
    with pytest.raises(ImagesError, match="class 'blue'"):
        find(photos, ("red", "green"))


# ---- unreadable files ------------------------------------------------------------


def test_unreadable_files_are_named_and_skipped(photos):
    image_files.damage(photos / "red" / "001.png")
    (photos / "blue" / "002.png").write_text("only words")
    jpeg = photos / "green" / "big.jpg"
    Image.fromarray(image_files.pixels((1, 2, 3), size=(64, 64))).save(jpeg)
    image_files.damage(jpeg)
    bomb = photos / "green" / "bomb.png"
    bomb.write_bytes(image_files.png_that_claims(20_000, 20_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        held = images.load(photos, test=6, size=16)
    names = [path.name for path, _ in held.skipped]
    assert names == ["002.png", "big.jpg", "bomb.png", "001.png"]
    reasons = dict(zip(names, (why for _, why in held.skipped), strict=True))
    assert "text" in reasons["002.png"]
    assert "too large" in reasons["bomb.png"]
    assert (len(held.train), len(held.test)) == (16, 6)
    assert np.bincount(held.test.y).tolist() == [2, 2, 2]
    again = images.load(photos, test=6, size=16)  # from the cache
    assert again.skipped == held.skipped
    assert np.array_equal(again.train.x, held.train.x)


def test_a_class_that_is_lost_whole(photos):
    for path in (photos / "green").iterdir():
        path.write_text("words")
    refused(photos, "None of the 8 images of the class 'green'.*000.png: .*text")
    for path in photos.rglob("*.png"):
        path.write_text("words")
    refused(photos, "None of the 24 images")


# ---- size and colour -------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((20, 16), 32), ((50, 90), 48), ((100, 70), 64), ((9999, 2), 32)],
)
def test_the_size_follows_the_shorter_sides(tmp_path, size, wanted):
    place = image_files.folder(
        tmp_path / "d", each=2, size=size, classes=("red", "blue")
    )
    assert images.load(place, test=0).form.size == (wanted, wanted)


def test_grey_images_stay_grey(tmp_path):
    for name in "ab":
        (tmp_path / "d" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("L", (33, 33), 10 * i).save(tmp_path / "d" / name / f"{i}.png")
    held = images.load(tmp_path / "d", test=0)
    assert held.train.x.shape == (6, 32, 32, 1)
    assert images.load(tmp_path / "d", test=0, color="rgb").train.x.shape[-1] == 3


# ---- splitting -------------------------------------------------------------------


def test_every_class_has_its_share_held_out():
    labels = np.repeat([0, 1, 2], [600, 150, 50])
    kept, held = stratified(labels, 192)
    assert np.bincount(labels[held]).tolist() == [144, 36, 12]
    assert sorted([*kept, *held]) == list(range(800))
    again = stratified(labels, 192)
    assert np.array_equal(held, again[1])
    assert not np.array_equal(held, stratified(labels, 192, seed=1)[1])


def test_small_classes_are_tested_too_and_never_used_up():
    labels = np.repeat([0, 1, 2], [96, 2, 2])
    _, held = stratified(labels, 10)
    assert np.bincount(labels[held]).tolist() == [8, 1, 1]
    kept, _ = stratified(labels, 97)
    assert np.bincount(labels[kept]).tolist() == [1, 1, 1]
    with pytest.raises(ImagesError, match=r"98 of 100 images cannot.*at most 97"):
        stratified(labels, 98)


@pytest.mark.parametrize("count", range(0, 28))
def test_any_count_is_met_exactly(count):
    labels = np.repeat([0, 1, 2, 3], [17, 9, 4, 1])
    kept, held = stratified(labels, count)
    assert len(held) == count
    assert len(set(labels[kept])) == 4


def test_shares_and_numbers(photos):
    held = images.load(photos, test=0.25, validation=3)
    assert (len(held.train), len(held.validation), len(held.test)) == (15, 3, 6)
    files = [set(part.files) for part in (held.train, held.validation, held.test)]
    assert len(set.union(*files)) == 24
    assert images.load(photos, test=0).test is None
    assert len(images.load(photos).test) == 5  # a fifth
    for bad in (-1, 2.5, 24, 1000):
        with pytest.raises(ImagesError, match="cannot be held out"):
            images.load(photos, test=bad)


def test_pixels_labels_and_files_belong_together(photos):
    held = images.load(photos, test=6, size=16)
    for part in (held.train, held.test):
        for x, y, path in zip(part.x, part.y, part.files, strict=True):
            assert path.parent.name == held.classes[y]
            assert np.array_equal(x, images.decode(path, held.form))


def test_threads_change_nothing(photos, monkeypatch):
    many = images.load(photos, test=0).train.x
    monkeypatch.setenv("GANGLION_HOME", str(photos / "elsewhere"))
    config.set_threads(1)
    assert np.array_equal(images.load(photos, test=0).train.x, many)


# ---- the cache -------------------------------------------------------------------


def counted(monkeypatch):
    calls = []
    real = loading.decode

    def decode(path, form):
        calls.append(path)
        return real(path, form)

    monkeypatch.setattr(loading, "decode", decode)
    return calls


def test_images_are_decoded_once(photos, home, monkeypatch):
    calls = counted(monkeypatch)
    first = images.load(photos)
    assert len(calls) == 24
    again = images.load(photos, test=3)  # another split of the same pixels
    assert len(calls) == 24
    assert len(entries(home)) == 1
    assert len(again.train) == 21
    assert first.fingerprint == again.fingerprint


def test_another_file_time_or_form_is_decoded_anew(photos, home, monkeypatch):
    calls = counted(monkeypatch)
    images.load(photos)
    os.utime(photos / "red" / "000.png", ns=(1, 1))
    images.load(photos)
    assert len(calls) == 48
    images.load(photos, size=16)
    assert len(calls) == 72
    image = Image.fromarray(image_files.pixels((1, 1, 1)))
    image.save(photos / "red" / "new.png")
    images.load(photos)
    assert len(calls) == 97
    assert len(entries(home)) == 4


@pytest.mark.parametrize("what", ["pixels", "index", "cut", "gone", "pickle"])
def test_a_damaged_entry_is_made_again(photos, home, what):
    wanted = images.load(photos).train.x
    (entry,) = (home / "images").iterdir()
    pixels, index = entry / "pixels.npy", entry / "index.json"
    if what == "pixels":
        data = bytearray(pixels.read_bytes())
        data[-1] ^= 255
        pixels.write_bytes(data)
    elif what == "index":
        index.write_text("{")
    elif what == "cut":
        pixels.write_bytes(pixels.read_bytes()[:-100])
    elif what == "gone":
        pixels.unlink()
    else:
        np.save(pixels, np.array([{}], dtype=object), allow_pickle=True)
    assert np.array_equal(images.load(photos).train.x, wanted)
    assert len(entries(home)) == 1
    assert np.load(pixels).shape == (24, 32, 32, 3)


def test_an_entry_under_another_s_name_is_made_again(photos, home, tmp_path):
    """As many images of the same size, whole and sound: only the name is another's."""
    wanted = images.load(photos).train.x
    (entry,) = (home / "images").iterdir()
    shutil.copytree(photos, tmp_path / "others")
    for path in (tmp_path / "others").rglob("*.png"):
        Image.fromarray(np.zeros((32, 32, 3), "uint8")).save(path)
    images.load(tmp_path / "others")
    (other,) = (path for path in (home / "images").iterdir() if path != entry)
    shutil.rmtree(entry)
    shutil.copytree(other, entry)
    assert np.array_equal(images.load(photos).train.x, wanted)


def test_an_entry_is_made_by_one_of_many(photos, home, monkeypatch):
    """All at once: one decodes, the others wait for it."""
    from concurrent.futures import ThreadPoolExecutor

    calls = counted(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(images.load, [photos] * 4))
    assert len(calls) == 24
    for folder in several:
        assert np.array_equal(folder.train.x, several[0].train.x)
    assert len(entries(home)) == 1


def test_large_folders_stay_on_disk(photos, home, monkeypatch):
    plain = images.load(photos, test=6)
    monkeypatch.setattr(cache, "LARGEST_IN_MEMORY", 1000)
    monkeypatch.setenv("GANGLION_HOME", str(home / "b"))
    image_files.damage(photos / "red" / "001.png")
    for _ in range(2):
        held = images.load(photos, test=6)
        assert isinstance(held.train.x, np.memmap)
        assert isinstance(held.test.x, np.memmap)
        assert len(held.train) == 17
        for x, path in zip(held.train.x, held.train.files, strict=True):
            assert np.array_equal(x, images.decode(path, held.form))
    assert plain.train.x.shape[1:] == held.train.x.shape[1:]
    assert not list((home / "b").rglob(".*"))


def test_ctrl_c_while_decoding_leaves_nothing(photos, home):
    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        images.load(photos, watch=stop)
    assert entries(home) == []


def test_a_cache_that_cannot_be_written_costs_only_time(photos, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="could not be kept.*GANGLION_HOME"):
        held = images.load(photos)
    assert len(held.train) == 19


def test_old_entries_make_room(photos, home, monkeypatch):
    images.load(photos, size=16)
    (first,) = entries(home)
    os.utime(home / "images" / first, (1, 1))
    monkeypatch.setattr(cache, "MOST", 24 * 32 * 32 * 3 + 1000)
    images.load(photos, size=32)
    (left,) = entries(home)
    assert left != first


# ---- the made folder -------------------------------------------------------------


@pytest.fixture
def cifar(monkeypatch):
    from ganglion.datasets import cifar10

    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (200, 32, 32, 3)).astype("uint8")
    y = np.repeat(np.arange(10, dtype="uint8"), 20).reshape(-1, 1)
    monkeypatch.setattr(cifar10, "load_data", lambda: ((x, y), (x[:10], y[:10])))
    return x


def test_the_made_folder_holds_photographs_of_cifar10(tmp_path, cifar):
    place = networks.cifar_folder(tmp_path / "made", ("bird", "ship"), each=5)
    held = images.load(place, test=4)
    assert held.classes == ("bird", "ship")
    assert (len(held.train), len(held.test)) == (6, 4)
    first = images.decode(place / "ship" / "0000.png", held.form)
    assert np.array_equal(first, cifar[160])
    before = (place / "ship").stat().st_mtime_ns
    assert networks.cifar_folder(place, ("bird", "ship"), each=5) == place
    assert (place / "ship").stat().st_mtime_ns == before
    (place / "ship" / "0001.png").unlink()
    networks.cifar_folder(place, ("bird", "ship"), each=5)
    assert (place / "ship" / "0001.png").exists()


def test_published_figures_are_said_to_be_of_other_images(photos):
    recipe = networks.of_folder(photos)
    figures = [(figure.score, figure.time) for figure in recipe.published]
    assert figures == [
        (0.9518, "7 min 16 s"),
        (0.9857, "27 min 10 s"),
        (0.9818, "12 min 2 s"),
    ]
    assert all("author's own images" in figure.system for figure in recipe.published)
    assert recipe.published == recipes.FOLDER.published
    assert recipes.FOLDER.name not in recipes.published()


def test_a_stop_while_making_leaves_nothing(tmp_path, cifar, monkeypatch):
    def fromarray(pixels):
        if np.array_equal(pixels, cifar[160]):  # the first ship
            raise KeyboardInterrupt
        return Image.fromarray(pixels)

    stopping = types.SimpleNamespace(fromarray=fromarray)
    monkeypatch.setattr(networks, "pillow", lambda: stopping)
    with pytest.raises(KeyboardInterrupt):
        networks.cifar_folder(tmp_path / "made" / "d", ("bird", "ship"), each=5)
    assert os.listdir(tmp_path / "made") == []


def test_without_pillow_the_way_to_get_it_is_told(photos, monkeypatch):
    import importlib

    real = importlib.import_module

    def without(name, *more):
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=r'pip install "ganglion-nn\[images\]"'):
        images.load(photos)


def test_index_is_plain_json(photos, home):
    image_files.damage(photos / "red" / "001.png")
    images.load(photos)
    (entry,) = (home / "images").iterdir()
    index = json.loads((entry / "index.json").read_text())
    assert list(index["problems"]) == ["17"]
    assert len(index["kept"]) == 23
