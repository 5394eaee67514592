"""`ganglion bench --augment`: figures that are made up, and one short real turn."""

from __future__ import annotations

import json

import pytest

from ganglion.race import engines
from ganglion.race.bench import augment, steps
from ganglion.race.bench.augment import Cost, Costs
from ganglion.race.bench.result import Entry


def made_up(plain: list[float], changed: list[float], name: str = "ganglion") -> Cost:
    pair = (
        Entry(name, "fit", milliseconds=milliseconds)
        for milliseconds in (plain, changed)
    )
    return Cost(name, *pair)


def test_the_cost_is_the_median_of_the_rounds() -> None:
    costs = made_up([10.0, 20.0, 10.0], [11.0, 22.0, 30.0])
    assert costs.share == pytest.approx(0.1)
    assert costs.milliseconds == pytest.approx(1.0)
    assert costs.cells()[0] == "ganglion: fit"
    assert costs.cells()[-1] == "10.0%"


def test_what_was_found_is_told_cheapest_first(capsys: pytest.CaptureFixture) -> None:
    dear = made_up([10.0], [15.0], "keras")
    cheap = made_up([10.0], [10.5], "ganglion")
    broken = made_up([], [], "torch")
    broken.changed.problem = "no such layer\nin a stack trace"
    costs = Costs("cifar10-cam", 128, 2, [dear, broken, cheap], ["jax"], 0.5, True)
    assert [entry.engine for entry in costs.timed] == ["ganglion", "keras"]
    augment.print_table(costs)
    text = capsys.readouterr().out
    assert text.index("ganglion: fit") < text.index("keras: fit")
    wanted = ("RandomFlip, RandomZoom", "torch: no such layer", "jax", "50%", "5.0%")
    assert all(told in text for told in wanted)
    assert "Interrupted" in text
    data = json.loads(augment.as_json([costs]))[0]
    assert data["engines"]["keras"]["share"] == pytest.approx(0.5)
    assert data["problems"] == {"torch": "no such layer\nin a stack trace"}


def test_recipes_without_augmentation_are_refused() -> None:
    with pytest.raises(ValueError, match="Nothing is augmented in mnist-mlp"):
        augment.measure(["mnist-mlp"], "", rounds=1)


@pytest.mark.slow
@pytest.mark.more
def test_ganglion_is_timed_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(steps, "ROUND_SECONDS", 0.1)
    (result,) = augment.measure(
        ["cifar10-cam"], "jax", rounds=1, batch_size=8, threads=1
    )
    assert [entry.engine for entry in result.timed] == ["ganglion"]
    assert result.skipped == ["jax"]
    (entry,) = result.timed
    # Not the same computation: the first loss is of other images.
    assert entry.plain.losses[0] != entry.changed.losses[0]
    assert engines.engine("jax").name not in augment.OWN
