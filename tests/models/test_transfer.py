"""A pretrained start: frozen features kept on disk, a head, and fine-tuning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganglion import explain, layers, saving
from ganglion.applications import feature_cache, transfer

SIZE = 32


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))


def two_kinds(count: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Return dark and bright noise: anybody can tell them apart."""
    draw = np.random.default_rng(2)
    y = (np.arange(count) % 2).astype("int32")
    x = draw.integers(0, 100, (count, SIZE, SIZE, 3)) + 150 * y[:, None, None, None]
    return x.astype("uint8"), y


@pytest.fixture(scope="module")
def network() -> transfer.Start:
    """Return one for all tests: to compile it anew would take seconds for each."""
    return transfer.start(2, SIZE, weights=None)


@pytest.fixture
def start(network):
    """Return it as it was at the start."""
    before = network.model.get_weights()
    yield network
    network.model.set_weights(before)


def test_only_the_head_learns_and_the_model_shares_it(start):
    x, y = two_kinds()
    before = [array.copy() for array in start.body.get_weights()]
    done = transfer.train_head(start, (x, y), (x, y), epochs=40, learning_rate=0.01)
    assert done.history["val_accuracy"][-1] == 1
    for first, other in zip(before, start.body.get_weights(), strict=True):
        assert np.array_equal(first, other)
    loss, accuracy = start.model.evaluate(x, y, verbose=0)
    assert accuracy == 1
    assert loss == pytest.approx(done.history["val_loss"][-1], abs=1e-4)


def test_features_are_computed_once(start, monkeypatch):
    x, _ = two_kinds()
    first = transfer.features(start, x)
    np.testing.assert_allclose(start.body.predict(x, verbose=0), first, atol=1e-5)
    runs: list[str] = []
    predict = type(start.body).predict_on_batch

    def counted(model: Any, *arguments: Any, **more: Any) -> Any:
        runs.append(model.name.removeprefix("pretrained_"))
        return predict(model, *arguments, **more)

    monkeypatch.setattr(type(start.body), "predict_on_batch", counted)
    assert np.array_equal(transfer.features(start, x), first)
    assert not runs
    weight = start.body.get_layer("top_bn").gamma
    weight.assign(weight.numpy() + 1)
    transfer.features(start, x)
    assert runs == ["middle"]  # what comes before the change is still known
    x[0, 0, 0, 0] ^= 255
    transfer.features(start, x)
    assert runs == ["middle", "lower", "middle"]


def test_what_would_not_fit_goes_the_whole_way(start, monkeypatch):
    x, _ = two_kinds()
    first = transfer.features(start, x)
    monkeypatch.setattr(transfer, "MOST_MAPS", 1000)
    monkeypatch.setattr(transfer, "maps", None)
    np.testing.assert_allclose(transfer.features(start, x), first, atol=1e-5)


def test_damaged_features_are_computed_anew(start):
    x, _ = two_kinds()
    first = transfer.maps(start, x)
    (path,) = feature_cache.folder().glob("*.outputs")
    content = path.read_bytes()
    for damaged in (b"", content[:-30], content[:200] + b"\xff" * 40 + content[240:]):
        path.write_bytes(damaged)
        assert np.array_equal(transfer.maps(start, x), first)
        assert path.read_bytes() != damaged
    assert [path.name for path in feature_cache.folder().iterdir()] == [path.name]


def test_features_under_another_s_name_are_computed_anew(start):
    x, _ = two_kinds()
    first = transfer.maps(start, x)
    (path,) = feature_cache.folder().glob("*.outputs")
    wrong = transfer.maps(start, np.roll(x, 1, axis=0))
    assert not np.array_equal(wrong, first)
    (other,) = set(feature_cache.folder().glob("*.outputs")) - {path}
    path.write_bytes(other.read_bytes())
    np.testing.assert_array_equal(transfer.maps(start, x), first)


def test_old_features_make_room(start, monkeypatch):
    x, _ = two_kinds()
    most = 300_000  # two of them
    monkeypatch.setattr(feature_cache, "MOST_KEPT", most)
    for row in range(3):
        transfer.features(start, np.roll(x, row, axis=0))
    total = sum(path.stat().st_size for path in feature_cache.folder().iterdir())
    assert most / 2 < total <= most


def test_without_a_place_features_are_still_computed(start, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "file"))
    x, _ = two_kinds()
    assert transfer.features(start, x).shape == (24, 1280)


def test_patience_ends_training_and_keeps_the_best(start):
    x, y = two_kinds()
    wrong = (x, 1 - y)  # the better it learns, the worse this becomes
    done = transfer.train_head(
        start, (x, y), wrong, epochs=50, patience=2, learning_rate=0.05
    )
    losses = done.history["val_loss"]
    assert len(losses) < 50
    assert start.model.evaluate(*wrong, verbose=0)[0] == pytest.approx(
        min(losses), abs=1e-4
    )


def learned(start: transfer.Start, **how: Any) -> set[str]:
    """Return the names of the layers that fine-tuning changes."""
    x, y = two_kinds(8)
    before = {weight.path: weight.numpy() for weight in start.model.weights}
    transfer.fine_tune(start, (x, y), (x, y), epochs=1, batch_size=8, **how)
    assert start.model.evaluate(x, y, verbose=0)[0] > 0
    return {
        layer.name
        for layer in start.model.layers
        for weight in layer.weights
        if not np.array_equal(before[weight.path], weight.numpy())
    }


def test_fine_tuning_changes_the_last_blocks(start):
    changed = learned(start)
    wanted = {
        layer.name
        for layer in start.upper.layers
        if layer.weights and not isinstance(layer, layers.BatchNormalization)
    }
    assert changed == wanted
    assert {"block11_dwconv", "top_conv", "head"} < changed
    assert "block10_dwconv" not in changed


@pytest.mark.slow
def test_fine_tuning_without_maps_in_memory_changes_the_same(start, monkeypatch):
    monkeypatch.setattr(transfer, "MOST_MAPS", 1000)
    monkeypatch.setattr(transfer, "maps", None)
    changed = learned(start)
    assert "block11_dwconv" in changed
    assert "block10_dwconv" not in changed


@pytest.mark.slow
def test_fine_tuning_of_the_whole_changes_all_but_the_statistics():
    start = transfer.start(2, SIZE, weights=None)
    changed = learned(start, whole=True)
    for layer in start.model.layers:
        is_norm = isinstance(layer, layers.BatchNormalization)
        assert (layer.name in changed) == bool(layer.weights and not is_norm)


@pytest.mark.slow
def test_the_whole_model_is_saved_and_explained(start, tmp_path):
    x, _ = two_kinds()
    start.model.save(tmp_path / "m.keras")
    again = saving.load_model(tmp_path / "m.keras")
    wanted = start.model.predict(x, verbose=0)
    np.testing.assert_allclose(again.predict(x, verbose=0), wanted, atol=1e-6)
    explained = explain.class_activation_map(
        transfer.start(2, 64, weights=None).model, np.zeros((1, 64, 64, 3), "uint8")
    )
    assert (explained.method, explained.layer) == ("cam", "top_activation")
