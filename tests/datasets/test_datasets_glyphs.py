"""Glyphs: the same bits everywhere, balanced, and of the right difficulty."""

from pathlib import Path

import numpy as np
import pytest

from ganglion import datasets
from ganglion.datasets import glyphs
from ganglion.datasets.decode import Arrays
from ganglion.datasets.loading import read_cached


def small(train: int = 2000, test: int = 1000, seed: int = 0) -> Arrays:
    (x_train, y_train), (x_test, y_test) = glyphs.load_data(train, test, seed)
    return Arrays(x_train, y_train, x_test, y_test)


def test_the_bits_are_fixed() -> None:
    """If this fails on a new platform, its arithmetic is not IEEE 754: report it."""
    expected = "a5df31ecd4f4dd5c0cb8e512a3fe9fe9a2f7eeff9f786106ad1125108cdd2b1f"
    assert small().sha256() == expected


def test_shapes_and_types_are_those_of_mnist() -> None:
    arrays = small(30, 20)
    assert arrays.x_train.shape == (30, 28, 28)
    assert arrays.y_train.shape == (30,)
    assert arrays.x_test.shape == (20, 28, 28)
    assert arrays.y_test.shape == (20,)
    assert all(array.dtype == np.uint8 for array in arrays)


def test_classes_are_balanced() -> None:
    arrays = small()
    assert np.bincount(arrays.y_train).tolist() == [200] * 10
    assert np.bincount(arrays.y_test).tolist() == [100] * 10


def test_a_smaller_set_is_the_beginning_of_a_larger_one() -> None:
    assert np.array_equal(small(1700).x_train[:300], small(300).x_train)


def test_splits_and_seeds_differ() -> None:
    arrays, other = small(100, 100), small(100, 100, seed=1)
    assert not np.array_equal(arrays.x_train, arrays.x_test)
    assert not np.array_equal(arrays.x_train, other.x_train)
    assert len(np.unique(small().x_train, axis=0)) == 2000


def test_ink_is_where_a_digit_would_be() -> None:
    images = small().x_train.astype(float) / 255
    assert 0.08 < images.mean() < 0.16
    assert images[:, 6:22, 6:22].mean() > 4 * images[:, :3].mean()
    assert (images.max(axis=(1, 2)) > 0.4).all()


def test_nearest_centroid_finds_it_neither_trivial_nor_hopeless() -> None:
    arrays = small()
    train = arrays.x_train.reshape(len(arrays.x_train), -1).astype(float)
    test = arrays.x_test.reshape(len(arrays.x_test), -1).astype(float)
    centroids = np.stack([train[arrays.y_train == d].mean(axis=0) for d in range(10)])
    distances = (centroids**2).sum(axis=1) - 2 * test @ centroids.T
    accuracy = (distances.argmin(axis=1) == arrays.y_test).mean()
    assert 0.60 < accuracy < 0.97


@pytest.fixture(scope="module")
def default_set() -> Arrays:
    return glyphs._draw(60_000, 10_000, 0)


@pytest.fixture
def draws(default_set: Arrays, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The default set is drawn once for all tests; says how often it was asked for."""
    calls: list[object] = []

    def draw(*arguments: int) -> Arrays:
        calls.append(arguments)
        return default_set

    monkeypatch.setattr(glyphs, "_draw", draw)
    return calls


@pytest.mark.slow
def test_the_default_set_is_kept_in_the_cache(draws: list[object]) -> None:
    path = datasets.fetch("glyphs")
    assert read_cached(path, glyphs.DATA_SET.sha256) is not None
    (x_train, _), _ = glyphs.load_data()
    assert x_train.shape == (60_000, 28, 28)
    assert draws == [(60_000, 10_000, 0)]  # the second load was from the cache


@pytest.mark.slow
@pytest.mark.usefixtures("draws")
def test_a_cache_that_cannot_be_used_is_harmless(
    home: Path, recwarn: pytest.WarningsRecorder
) -> None:
    home.write_text("in the way")
    (_, y_train), _ = glyphs.load_data()
    assert np.bincount(y_train).tolist() == [6000] * 10
    assert not recwarn


@pytest.mark.slow
def test_a_damaged_cache_file_is_drawn_again(home: Path, draws: list[object]) -> None:
    path = glyphs.DATA_SET.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"junk")
    glyphs.load_data()
    assert len(draws) == 1
    assert read_cached(path, glyphs.DATA_SET.sha256) is not None


@pytest.mark.parametrize("name", ["train", "test", "seed"])
def test_bad_arguments_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
        glyphs.load_data(**{name: -1})
    with pytest.raises(TypeError, match=f"{name} must be an integer, not 1.5"):
        glyphs.load_data(**{name: 1.5})  # type: ignore[arg-type]


def test_a_seed_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="seed must be below"):
        glyphs.load_data(10, 10, seed=2**64)


def test_empty_splits_are_allowed() -> None:
    assert small(0, 0).x_train.shape == (0, 28, 28)
