"""The race on images that are changed at random: every engine sees the same ones."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganglion import config, recipes, utils
from ganglion.race.engines import augmented
from ganglion.race.engines.worker import Handler
from ganglion.race.run_engine import write_start

ROWS, SIZE, EPOCHS = 50, 16, 2
CAM = recipes.get("cifar10-cam")
SMALL = replace(
    CAM,
    input_shape=(8, 8, 3),
    layers=(
        CAM.layers[0],
        ("Conv2D", {"filters": 4, "kernel_size": 3, "padding": "same"}),
        ("GlobalAveragePooling2D", {}),
        ("Dense", {"units": 10, "activation": "softmax"}),
    ),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, rows in (("", ROWS), ("_test", 20)):
        images = rng.integers(0, 256, (rows, 8, 8, 3)).astype("uint8")
        np.save(tmp_path / f"x{name}.npy", images)
        labels = rng.integers(0, 10, rows).astype("int32")
        np.save(tmp_path / f"y{name}.npy", labels)
    return tmp_path


def prepared(module: str, form: str, folder: Path) -> Handler:
    start = write_start(SMALL, 3, EPOCHS, ROWS, folder / "start")
    handler = Handler(f"ganglion.race.engines.{module}", form)
    answer = handler.prepare(
        json.loads(json.dumps(asdict(SMALL))),
        str(folder),
        SIZE,
        2,
        start=str(start.folder),
        order_seed=start.order_seed,
    )
    assert "unavailable" not in answer
    return handler


def test_the_images_are_those_of_the_step(folder: Path) -> None:
    """A network that is its own average tells what its step has seen."""
    x = np.load(folder / "x.npy")
    start = write_start(SMALL, 3, EPOCHS, ROWS, folder / "start")
    order = np.load(start.folder / "orders.npy")
    states = np.load(start.folder / augmented.STATES)
    config.set_backend("numpy")
    utils.set_random_seed(3)
    model = recipes.build(SMALL)
    np.testing.assert_array_equal(augmented.states_of(model), states)
    source = augmented.Source(SMALL, folder, start.folder, SIZE)
    for epoch in range(EPOCHS):
        images = source.images(epoch + 1)
        for at in range(0, ROWS, SIZE):
            rows = order[epoch][at : at + SIZE]
            seen = x[rows]
            for layer in model.layers[:3]:  # flip, zoom, scaling
                seen = layer(seen, training=True)
            np.testing.assert_allclose(images[rows], seen, atol=1e-5)
    assert not list(folder.glob("augmented*"))


def epochs_of(handler: Handler) -> list[float]:
    first = handler.first(3)["losses"]
    epochs = [handler.epoch(number + 1) for number in range(EPOCHS)]
    return [
        *first,
        *(epoch[k] for epoch in epochs for k in ("train_loss", "test_loss")),
    ]


@pytest.mark.rivals
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "form"),
    [
        ("torch", "eager"),
        ("torch_optimized", "eager"),
        ("tensorflow", "loop"),
        ("keras", "graph"),
        ("jax", "scan"),
    ],
)
@pytest.mark.sampled(2)
def test_engines_agree_on_changed_images(
    module: str, form: str, folder: Path, monkeypatch: Any
) -> None:
    pytest.importorskip("llvmlite")
    pytest.importorskip(module.split("_")[0])
    monkeypatch.setattr(
        "ganglion.race.engines.worker.limit_cores", lambda threads: None
    )
    monkeypatch.setattr("ganglion.race.engines.tensorflow.set_up", lambda task: None)
    ours = epochs_of(prepared("ganglion", "fit", folder))
    theirs = epochs_of(prepared(module, form, folder))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


def test_a_bench_leaves_images_alone_unless_asked(
    folder: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(
        "ganglion.race.engines.worker.limit_cores", lambda threads: None
    )
    utils.set_random_seed(3)
    weights = recipes.build(SMALL).get_weights()
    np.savez(folder / "weights.npz", **{f"w{i}": w for i, w in enumerate(weights)})
    losses = []
    for augment in (False, False, True):
        handler = Handler("ganglion.race.engines.ganglion", "numpy")
        plain = json.loads(json.dumps(asdict(SMALL)))
        handler.prepare(plain, str(folder), SIZE, 2, augment=augment)
        losses.append(handler.run(1)["loss"])
    assert losses[0] == losses[1] != losses[2]
