"""Few images: training goes on until there was something to learn, and keeps it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

from PIL import Image

import ganglion
from ganglion import images
from ganglion.images import networks, training
from ganglion.images.training import Judge, Patience


def drawn(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return a bright figure of 7 pixels on a dark ground, somewhere."""
    picture = np.empty((16, 16, 3))
    picture[:] = rng.integers(0, 90, 3)
    figure = np.zeros((7, 7), bool)
    if kind in ("across", "cross"):
        figure[2:5] = True
    if kind in ("upright", "cross"):
        figure[:, 2:5] = True
    if kind == "square":
        figure[1:6, 1:6] = True
    row, column = rng.integers(0, 10, 2)
    picture[row : row + 7, column : column + 7][figure] = rng.integers(120, 256, 3)
    return np.clip(picture + rng.normal(0, 12, picture.shape), 0, 255).astype("uint8")


def figures(place: Path, each: int, tested: int = 25) -> Path:
    rng = np.random.default_rng(1)
    for part, count in (("train", each), ("test", tested)):
        for kind in ("across", "cross", "square", "upright"):
            (place / part / kind).mkdir(parents=True)
            for number in range(count):
                picture = Image.fromarray(drawn(kind, rng))
                picture.save(place / part / kind / f"{number:03}.png")
    return place


@pytest.mark.parametrize("seed", [0, 1])
def test_a_folder_of_32_images_is_learned_from(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))
    held = images.load(
        figures(tmp_path / "figures", 8), size=16, validation=training.VALIDATION
    )
    ganglion.utils.set_random_seed(seed)
    model = training.new_model(held)
    size = networks.batch_size(len(held.train))
    epochs = training.most_epochs(len(held.train), size)
    keeper = training.fit(model, held, epochs=epochs, batch_size=size, verbose=0)
    assert keeper.epoch > 40
    assert training.evaluated(model, held.test)["accuracy"] >= 0.7  # .92, .84


class Model:
    """As much of a model as a judge touches."""

    def __init__(self) -> None:
        self.stop_training, self.epoch = False, 0
        self.optimizer = ganglion.optimizers.SGD(0.1)

    def get_weights(self) -> list[np.ndarray]:
        return [np.array(self.epoch)]


def judged(steps: int, epochs: list[tuple[float, float]], classes: int = 4) -> Any:
    """Return the judge of epochs of (accuracy, loss), and the model it saw."""
    judge, model = Judge(Patience.of(steps), classes, None), Model()
    judge.set_model(model)
    for number, (accuracy, loss) in enumerate(epochs):
        model.epoch = number + 1
        judge.on_epoch_end(number, {"val_accuracy": accuracy, "val_loss": loss})
        if model.stop_training:
            break
    return judge, model


def test_a_loss_that_grows_while_more_is_right_ends_nothing():
    epochs = [(0.25 + 0.005 * i, 1.4 + 0.02 * i) for i in range(80)]
    judge, model = judged(6, epochs)
    assert model.epoch == 80
    assert judge.epoch == 80


def test_patience_is_counted_in_steps():
    epochs = [(0.5, 1.0)] * 400
    ends = {steps: judged(steps, epochs)[1].epoch for steps in (2, 10, 500)}
    assert ends[2] * 2 >= 400
    assert ends[10] * 10 >= 400
    assert ends[500] == 16
    few, many = Patience.of(4), Patience.of(1000)
    assert (many.slower_after, many.stop_after, many.averaged) == (6, 15, 1)
    assert few.warm_up * 4 >= 200
    assert few.stop_after * 4 >= 250


def test_the_rate_falls_before_training_ends():
    _, model = judged(10, [(0.5, 1.0)] * 400)
    rate = float(model.optimizer.learning_rate.numpy())
    assert rate < 0.1 * 0.3 + 1e-6


def test_one_lucky_epoch_is_not_the_best():
    rng = np.random.default_rng(0)
    epochs = [(0.9, 0.4)] + [(0.25, 1.5)] * 60  # the first, of six images
    epochs += [(0.7 + 0.05 * rng.normal(), 1.0) for _ in range(60)]
    judge, _ = judged(5, epochs)
    assert judge.epoch > 60
    epochs[30] = (1.0, 0.1)
    assert judged(5, epochs)[0].epoch > 60


def test_where_all_are_right_the_loss_decides():
    epochs = [(1.0, 0.5 * 0.98**i) for i in range(200)]
    judge, model = judged(20, epochs, classes=2)
    assert judge.epoch == model.epoch  # it became better to the end
    judge, _ = judged(20, [(1.0, math.nan)] * 3 + epochs)
    assert judge.epoch is not None


def test_with_few_images_a_pretrained_start_is_suggested(tmp_path, capsys):
    from ganglion.cli import app

    with pytest.raises(SystemExit) as ended:
        app.app(
            ["train", "--images", str(figures(tmp_path / "my figures", 8, 4)),
             "--epochs", "2", "--size", "16", "--log", "steps", "--seed", "2"]
        )  # fmt: skip
    assert ended.value.code == 0
    told = capsys.readouterr().err
    assert "images are few to learn from" in told
    again = f"ganglion train --images '{tmp_path}/my figures' --seed 2 --log steps"
    assert f"{again} --pretrained" in told
