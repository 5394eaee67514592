"""Data sets that Keras publishes as a file: texts, prices, and CIFAR-100."""

import hashlib
import io
import json
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets_fakes import (
    Site,
    pickled_lists,
    place,
    publish,
    tar_bytes,
    texts_file,
    use_home,
)

from ganglion import datasets, keras2
from ganglion.datasets import (
    boston_housing,
    california_housing,
    cifar100,
    imdb,
    keras_files,
    reuters,
    sequences,
)
from ganglion.datasets.decode import Arrays

ROWS = [[1, 2, 300], [70_000, 5], [7, 1, 1, 9], [4], [], [11, 12, 13], [2, 2], [8] * 9]


def imdb_file() -> bytes:
    tested = [row[::-1] for row in ROWS[:5]]
    return texts_file(
        {"x_train": ROWS, "x_test": tested},
        {"y_train": [0, 1] * 4, "y_test": [1, 0, 1, 1, 0]},
    )


def reuters_file() -> bytes:
    return texts_file({"x": ROWS}, {"y": list(range(len(ROWS)))})


def housing_file(columns: int, dtype: str = "f8") -> bytes:
    random = np.random.default_rng(3)
    file = io.BytesIO()
    x = random.random((700, columns)).astype(dtype)
    np.savez(file, x=x, y=random.random(700).astype(dtype))
    return file.getvalue()


def same_splits(ours: Any, theirs: Any) -> None:
    for (x, y), (other_x, other_y) in zip(ours, theirs, strict=True):
        assert x.dtype == other_x.dtype
        assert [list(row) for row in x] == [list(row) for row in other_x]
        np.testing.assert_array_equal(y, other_y)
        assert len(y) == 0 or np.asarray(y).dtype == np.asarray(other_y).dtype


# As Keras returns them ----------------------------------------------------------------

CHOICES: list[dict[str, Any]] = [
    {},
    {"num_words": 10},
    {"num_words": 12, "skip_top": 5},
    {"skip_top": 3, "oov_char": None, "seed": 7},
    {"maxlen": 4},
    {"start_char": 9, "index_from": 0},
    {"num_words": 6, "oov_char": 0, "index_from": 2, "start_char": 5},
]


@pytest.fixture(params=["imdb", "reuters", "boston_housing", "california_housing"])
def published(
    request: pytest.FixtureRequest,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> tuple[Any, str, Path]:
    """A module of ours whose file is a made-up one, and that file."""
    name = request.param
    module = getattr(datasets, name)
    data = {
        "imdb": imdb_file,
        "reuters": reuters_file,
        "boston_housing": lambda: housing_file(13),
        "california_housing": lambda: housing_file(8, "f4"),
    }[name]()
    publish(monkeypatch, site, module, data)
    path = tmp_path / "theirs.npz"
    path.write_bytes(data)
    return module, name, path


def test_it_is_what_keras_returns(
    published: tuple[Any, str, Path], keras: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, path = published
    theirs = getattr(keras.datasets, name)
    source = __import__(f"keras.src.datasets.{name}", fromlist=["get_file"])
    monkeypatch.setattr(source, "get_file", lambda *a, **k: str(path))
    choices = CHOICES
    if name == "reuters":
        choices = [*CHOICES, {"test_split": 0.5, "seed": 1}]
    if name.endswith("housing"):
        choices = [{}, {"test_split": 0.0, "seed": 5}, {"test_split": 0.31}]
    if name == "california_housing":
        choices = [*choices, {"version": "small"}]
    for choice in choices:
        same_splits(module.load_data(**choice), theirs.load_data(**choice))


def test_it_is_fetched_once_and_read_in_both_forms(
    published: tuple[Any, str, Path], site: Site
) -> None:
    module, name, path = published
    first = module.load_data()
    assert site.requests == [f"/{name}.npz"]
    same_splits(module.load_data(), first)
    assert site.requests == [f"/{name}.npz"]
    same_splits(module.load_data(path=str(path)), first)  # Keras' own file
    assert datasets.fetch(name) == module.DATA_SET.path


def test_a_damaged_file_is_fetched_again(
    published: tuple[Any, str, Path], site: Site
) -> None:
    module, _, _ = published
    first = module.load_data()
    data = bytearray(module.DATA_SET.path.read_bytes())
    data[len(data) // 3] ^= 1
    module.DATA_SET.path.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged: .*; fetching it again"):
        same_splits(module.load_data(), first)
    assert len(site.requests) == 2


def test_another_file_on_the_host_is_refused(
    published: tuple[Any, str, Path], site: Site
) -> None:
    module, name, _ = published
    site.answers[f"/{name}.npz"] = texts_file({"x": [[1]]}, {"y": [0]})
    with pytest.raises(datasets.DataUnavailable, match="is damaged or another file"):
        module.load_data()


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "name", ["imdb", "reuters", "boston_housing", "california_housing", "cifar100"]
)
def test_nothing_to_be_had_says_what_was_tried(name: str, home: Path) -> None:
    started = time.monotonic()
    with pytest.raises(datasets.DataUnavailable) as caught:
        datasets.fetch(name)
    assert time.monotonic() - started < 5
    message = str(caught.value)
    assert "cannot be had: it is not in the cache and no source works." in message
    assert "no connection: Connection refused" in message
    assert str(home / "datasets") in message
    assert name.endswith("housing") == ("npm is not installed" in message)


# Bad arguments ------------------------------------------------------------------------


def test_bad_arguments_are_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, site, imdb, imdb_file())
    publish(monkeypatch, site, reuters, reuters_file())
    with pytest.raises(ValueError, match=r"shorter than maxlen=1: the shortest has 1"):
        imdb.load_data(maxlen=1)
    with pytest.raises(TypeError, match="load_data does not know words"):
        imdb.load_data(words=3)
    with pytest.raises(ValueError, match="`test_split` is the share"):
        reuters.load_data(test_split=1.5)
    with pytest.raises(ValueError, match="`test_split` is the share"):
        boston_housing.load_data(test_split=1)
    with pytest.raises(ValueError, match="`version` is 'small' or 'large'"):
        california_housing.load_data(version="tiny")
    with pytest.raises(ValueError, match="`label_mode` is 'fine' or 'coarse'"):
        cifar100.load_data("finest")


def test_keras_2_s_name_is_accepted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, site, imdb, imdb_file())
    with pytest.warns(keras2.Keras2Warning, match="num_words"):
        (x, _), _ = imdb.load_data(nb_words=10)
    assert max(max(row) for row in x) < 10


def test_signatures_and_topics_are_keras(keras: Any) -> None:
    import inspect

    for name in ("imdb", "reuters", "boston_housing", "california_housing", "cifar100"):
        ours, theirs = getattr(datasets, name), getattr(keras.datasets, name)
        for function in ("load_data", "get_word_index", "get_label_names"):
            assert hasattr(ours, function) == hasattr(theirs, function)
            if hasattr(ours, function):
                parameters = [
                    [
                        (p.name, p.kind, p.default)
                        for p in inspect.signature(
                            getattr(module, function)
                        ).parameters.values()
                    ]
                    for module in (ours, theirs)
                ]
                assert parameters[0] == parameters[1]
    assert reuters.get_label_names() == keras.datasets.reuters.get_label_names()


# Word indexes -------------------------------------------------------------------------


def test_a_word_index_is_kept_as_it_comes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.dumps({"the": 1, "fawn": 34701}).encode()
    md5 = hashlib.md5(data).hexdigest()
    index = sequences.word_index("imdb_word_index", "IMDB's word index", md5)
    monkeypatch.setattr(imdb, "WORD_INDEX", index)
    monkeypatch.setattr(keras_files, "HOST", site.url)
    site.answers["/imdb_word_index.json"] = data
    assert imdb.get_word_index() == {"the": 1, "fawn": 34701}
    assert index.path.read_bytes() == data
    assert imdb.get_word_index() == {"the": 1, "fawn": 34701}
    assert site.requests == ["/imdb_word_index.json"]
    index.path.write_bytes(b'{"the": 2}')
    with pytest.warns(UserWarning, match="damaged: imdb_word_index.json is damaged"):
        assert imdb.get_word_index()["the"] == 1


# Pickles ------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
def test_pickled_lists_are_read(protocol: int) -> None:
    rows = [*ROWS, list(range(2500)), [2**31 - 1, 0]]
    data = pickled_lists(rows, protocol)
    if protocol == 2:  # Python 2 wrote the letter plainly
        old = b"c_codecs\nencode\n"
        start = data.index(old)
        end = data.index(b"R", start)
        data = data[:start] + b"U\x01b" + data[end + 3 :]
    assert sequences.lists(data) == rows


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_call_in_a_pickle_is_refused(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "it-ran"
    data = pickled_lists([[1], Bomb(mark)], protocol)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="nothing was executed"):
        sequences.lists(data)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([[1], ["word"]], "else than lists of integers"),
        ([[1], (2, 3)], "else than lists of integers"),
        ([[1.5]], "else than lists of integers"),
        ([[True]], "else than lists of integers"),
        ([[[1]]], "else than lists of integers"),
    ],
)
def test_other_things_in_a_pickle_are_refused(rows: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        sequences.lists(pickled_lists(rows))


def test_an_array_of_numbers_is_no_list_of_texts() -> None:
    file = io.BytesIO()
    np.save(file, np.arange(3))
    with pytest.raises(ValueError, match="an array of int64"):
        sequences.lists(file.getvalue())
    head = file.getvalue()[: len(file.getvalue()) - 24].replace(b"'<i8'", b"'|O' ")
    with pytest.raises(ValueError, match="else than lists"):
        sequences.lists(head + pickle.dumps([[1]] * 3, 2))


# CIFAR-100 and copies -----------------------------------------------------------------


def test_cifar100_has_fine_and_coarse_labels(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    records = {
        f"{name}.bin": random.integers(0, 20, (3, 3074), np.uint8)
        for name in ("train", "test")
    }
    files = {name: rows.tobytes() for name, rows in records.items()}
    archive = tar_bytes({f"cifar-100-binary/{n}": data for n, data in files.items()})
    files[cifar100.ARCHIVE] = archive
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    monkeypatch.setattr(cifar100, "SHA256", sums)
    place(cifar100.DATA_SET.raw_folder, {cifar100.ARCHIVE: archive})
    (x, fine), (_, fine_test) = cifar100.load_data()
    assert (x.shape, fine.shape, fine.dtype) == ((3, 32, 32, 3), (3, 1), np.uint8)
    train = records["train.bin"]
    np.testing.assert_array_equal(fine[:, 0], train[:, 1])
    np.testing.assert_array_equal(fine_test[:, 0], records["test.bin"][:, 1])
    np.testing.assert_array_equal(x[1, :, :, 2].ravel(), train[1, 2 + 2048 :])
    (x, coarse), _ = cifar100.load_data(label_mode="coarse")  # from the cache
    np.testing.assert_array_equal(coarse[:, 0], train[:, 0])
    use_home(monkeypatch, home / "second")
    place(cifar100.DATA_SET.raw_folder, files)
    (cifar100.DATA_SET.raw_folder / cifar100.ARCHIVE).unlink()
    np.testing.assert_array_equal(cifar100.load_data()[0][1], fine)


@pytest.mark.usefixtures("offline")
def test_cifar100_s_pickled_archive_is_refused_by_name() -> None:
    place(cifar100.DATA_SET.raw_folder, {cifar100.PICKLED_ARCHIVE: b"anything"})
    with pytest.raises(datasets.DataUnavailable, match=r"holds pickles.*never"):
        cifar100.load_data()


def test_copies_are_checked_against_the_known_arrays() -> None:
    row = dict.fromkeys(boston_housing.COLUMNS, 1.0)
    with pytest.raises(ValueError, match="the arrays have SHA-256"):
        boston_housing._from_package(lambda name: json.dumps([row] * 506).encode())
    lines = ["names", *["1,2,3,4,5,6,7,8,9"] * 3]
    with pytest.raises(ValueError, match="the arrays have SHA-256"):
        california_housing._from_package(lambda name: "\n".join(lines).encode())


def test_a_seal_that_does_not_fit_is_damage() -> None:
    x = np.zeros((1, 1), np.uint8)
    file = io.BytesIO()
    keras_files.write_sealed(file, Arrays(x, x, x, x))
    assert keras_files.read_sealed(file, Arrays).x_test.shape == (1, 1)
    other = io.BytesIO()
    forged = {"sha256": np.zeros(64, np.uint8), **Arrays(x, x, x, x)._asdict()}
    np.savez(other, **forged)
    with pytest.raises(ValueError, match="do not fit the checksum"):
        keras_files.read_sealed(other, Arrays)
