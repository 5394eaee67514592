"""Data sets as a user meets them: loads, files placed by hand, clear errors."""

import dataclasses
import gzip
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from datasets_fakes import (
    Site,
    idx_set,
    npz_bytes,
    place,
    read_only,
    run_python,
    same,
    tar_bytes,
    tiny_arrays,
    web_set,
)

from ganglion import datasets
from ganglion.datasets import (
    cifar10,
    decode,
    fashion_mnist,
    glyphs,
    loading,
    mnist,
)
from ganglion.datasets.decode import Arrays, DamageError


def cifar_files() -> tuple[Arrays, dict[str, bytes]]:
    random = np.random.default_rng(0)
    records = [random.integers(0, 10, (2, 3073), np.uint8) for _ in range(6)]
    names = [*decode.CIFAR_TRAIN, decode.CIFAR_TEST]
    files = {f"{name}.bin": r.tobytes() for name, r in zip(names, records, strict=True)}
    return decode.cifar_batches(files.__getitem__).owned(), files


# Nothing to be had --------------------------------------------------------------------


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("module", [mnist, fashion_mnist, cifar10])
def test_no_network_and_no_npm_says_what_was_tried(module: object, home: Path) -> None:
    name = module.__name__.rsplit(".", 1)[-1]  # type: ignore[attr-defined]
    started = time.monotonic()
    with pytest.raises(datasets.DataUnavailable) as caught:
        datasets.fetch(name)
    assert time.monotonic() - started < 5
    message = str(caught.value)
    first, *rest = message.splitlines()
    assert first.endswith("cannot be had: it is not in the cache and no source works.")
    assert f"  - {home / 'datasets' / name}.npz: no such file" in rest
    assert "no connection: Connection refused" in message
    assert "npm is not installed" in message or "apt-get is not installed" in message
    assert "To put it in place by hand" in message
    assert f"into {home / 'datasets' / name}" in message
    assert "GANGLION_HOME chooses another cache folder" in message


def test_load_data_never_substitutes_another_set(offline: None) -> None:
    glyphs.load_data(train=10, test=10)
    with pytest.raises(datasets.DataUnavailable):
        mnist.load_data()


@pytest.mark.usefixtures("offline")
def test_a_read_only_cache_with_no_source_is_the_same_error(home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(datasets.DataUnavailable, match="MNIST cannot be had"):
        mnist.load_data()


def test_a_read_only_cache_still_gives_the_data(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.answers["/tiny.npz"] = npz_bytes(tiny_arrays())
    data_set = web_set(site.url)
    monkeypatch.setattr(os, "replace", read_only)
    with pytest.warns(UserWarning, match="could not be kept") as caught:
        assert same(loading.load(data_set), tiny_arrays())
    assert len(caught) == 1
    message = str(caught[0].message)
    assert f"could not be kept in {data_set.path.parent}" in message
    assert "Read-only file system" in message
    assert "Set GANGLION_HOME to a folder that can be written to" in message


def test_a_cache_that_is_no_folder_still_gives_the_data(site: Site, home: Path) -> None:
    site.answers["/tiny.npz"] = npz_bytes(tiny_arrays())
    home.write_text("in the way")
    with pytest.warns(UserWarning, match="could not be kept"):
        assert same(loading.load(web_set(site.url)), tiny_arrays())


@pytest.mark.usefixtures("offline")
def test_fetch_into_a_read_only_cache_fails(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(home / "datasets" / "mnist", idx_set(tiny_arrays()))
    monkeypatch.setattr(os, "replace", read_only)
    with (
        pytest.warns(UserWarning, match="could not be kept"),
        pytest.raises(datasets.DataUnavailable, match="fetched but could not be kept"),
    ):
        datasets.fetch("mnist")


# Files put in place by hand -----------------------------------------------------------


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("module", [mnist, fashion_mnist])
def test_idx_files_placed_by_hand(home: Path, module: object, zipped: bool) -> None:
    files = idx_set(tiny_arrays())
    if zipped:
        files = {f"{name}.gz": gzip.compress(body) for name, body in files.items()}
    data_set = module.DATA_SET  # type: ignore[attr-defined]
    place(data_set.raw_folder, files)
    pairs = module.load_data()  # type: ignore[attr-defined]
    assert same(Arrays(*sum(pairs, ())), tiny_arrays())
    assert data_set.path.exists()
    assert all(array.flags.writeable for pair in pairs for array in pair)


@pytest.mark.usefixtures("offline")
def test_keras_own_file_placed_by_hand(home: Path) -> None:
    place(home / "datasets", {"mnist.npz": npz_bytes(tiny_arrays())})
    assert same(Arrays(*sum(mnist.load_data(), ())), tiny_arrays())


@pytest.mark.usefixtures("offline")
def test_a_missing_file_of_the_four_is_named(home: Path) -> None:
    files = idx_set(tiny_arrays())
    del files["t10k-labels-idx1-ubyte"]
    place(home / "datasets" / "mnist", files)
    with pytest.raises(datasets.DataUnavailable, match="mnist: no t10k-labels-idx1-ub"):
        mnist.load_data()


@pytest.mark.usefixtures("offline")
def test_other_data_under_the_right_names_is_refused(home: Path) -> None:
    wrong = tiny_arrays()._replace(y_train=np.array([1, 2, 3], np.uint8))
    place(home / "datasets" / "mnist", idx_set(wrong))
    with pytest.raises(datasets.DataUnavailable, match=r"SHA-256 \w+\.\.\., expected"):
        mnist.load_data()


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("packed", [False, True])
def test_cifar_placed_by_hand(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    arrays, files = cifar_files()
    expected = dataclasses.replace(cifar10.DATA_SET, sha256=arrays.sha256())
    monkeypatch.setattr(cifar10, "DATA_SET", expected)
    if packed:
        inside = {f"cifar-10-batches-bin/{name}": body for name, body in files.items()}
        files = {decode.CIFAR_ARCHIVE: tar_bytes(inside)}
    place(expected.raw_folder, files)
    (x_train, y_train), (x_test, y_test) = cifar10.load_data()
    assert x_train.shape == (10, 32, 32, 3)
    assert y_train.shape == (10, 1)
    assert x_test.shape == (2, 32, 32, 3)
    assert y_test.shape == (2, 1)


@pytest.mark.usefixtures("offline")
def test_the_pickled_cifar_archive_is_refused_by_name(home: Path) -> None:
    place(home / "datasets" / "cifar10", {"cifar-10-python.tar.gz": b"anything"})
    with pytest.raises(datasets.DataUnavailable) as caught:
        cifar10.load_data()
    assert "holds pickles, which can run any code when read" in str(caught.value)
    assert "use cifar-10-binary.tar.gz" in str(caught.value)


# The catalogue ------------------------------------------------------------------------


@pytest.mark.usefixtures("offline")
def test_info_says_what_is_in_the_cache(home: Path) -> None:
    assert not any(entry.cached for entry in datasets.info())
    place(home / "datasets" / "mnist", idx_set(tiny_arrays()))
    path = datasets.fetch("mnist")
    entry = datasets.info()[0]
    assert entry.name == "mnist"
    assert entry.train_shape == (60_000, 28, 28)
    assert entry.cached
    assert entry.path == path
    assert entry.size == path.stat().st_size


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        datasets.fetch("mnits")
    with pytest.raises(ValueError, match="there are mnist, fashion_mnist"):
        datasets.fetch("zzz")


def test_submodules_need_no_import_of_their_own() -> None:
    script = "import ganglion.datasets as d; print(d.cifar10.load_data.__name__)"
    assert run_python(script).stdout == "load_data\n"
    with pytest.raises(AttributeError, match="Did you mean 'cifar10'"):
        datasets.cifar11  # noqa: B018


def test_importing_is_cheap() -> None:
    script = """
import sys, ganglion.datasets.mnist
print([m for m in ("rich", "h5py", "urllib.request", "PIL") if m in sys.modules])
"""
    assert run_python(script).stdout == "[]\n"


def test_a_load_from_the_cache_is_silent(
    home: Path, offline: None, capsys: pytest.CaptureFixture[str]
) -> None:
    place(home / "datasets", {"mnist.npz": npz_bytes(tiny_arrays())})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mnist.load_data()
    assert capsys.readouterr().err == ""


def test_check_names_both_sums() -> None:
    with pytest.raises(DamageError, match=r"SHA-256 \w{12}\.\.\., expected 0{12}"):
        loading.check(tiny_arrays(), "0" * 64)


# The real thing -----------------------------------------------------------------------


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "first_labels", "mean"),
    [
        ("mnist", [5, 0, 4, 1, 9], 0.1307),
        ("fashion_mnist", [9, 0, 0, 3, 0], 0.2860),
        ("cifar10", [6, 9, 9, 4, 1], 0.4734),
    ],
)
def test_the_real_sets_are_the_public_ones(
    name: str, first_labels: list[int], mean: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GANGLION_HOME")  # the user's own cache, if it has them
    try:
        (x_train, y_train), (x_test, y_test) = getattr(datasets, name).load_data()
    except datasets.DataUnavailable as error:
        pytest.skip(str(error).splitlines()[0])
    assert y_train[:5].ravel().tolist() == first_labels
    assert x_train.mean() / 255 == pytest.approx(mean, abs=1e-4)
    entry = next(entry for entry in datasets.info() if entry.name == name)
    assert x_train.shape == entry.train_shape
    assert x_test.shape == entry.test_shape
    assert x_train.dtype == y_train.dtype == x_test.dtype == y_test.dtype == np.uint8
    assert len(x_train) == len(y_train)
    assert len(x_test) == len(y_test)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_a_real_fetch_into_an_empty_cache(name: str) -> None:
    try:
        path = datasets.fetch(name)
    except datasets.DataUnavailable as error:
        pytest.skip(str(error).splitlines()[0])
    assert path.stat().st_size > 50_000_000
