"""`ganglion bench --networks`: with fakes, and each network in every engine."""

import contextlib
import functools
from dataclasses import asdict, replace

import numpy as np
import pytest
from bench_runs import _small, fake  # noqa: F401 (a fixture)
from typer.testing import CliRunner

from ganglion import recipes, utils
from ganglion.cli import app
from ganglion.race import engines
from ganglion.race.bench import networks, steps
from ganglion.race.engines import process
from ganglion.race.engines.augmented import save_weights

NAMES = networks.names()


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(steps, "ROUND_SECONDS", 0.01)
    monkeypatch.setattr(steps, "ROWS", 64)
    monkeypatch.setattr(steps, "busy", lambda: 0.0)


def measure(*engines):
    network = recipes.get("tabular")
    return networks.run(network, list(engines), rounds=2, threads=1)


def test_steps_and_predictions_are_timed_and_the_fastest_form_of_each_is_kept():
    results = measure(fake("ganglion", "good"), fake("rival", "slow", "fast"))
    figures = [result.figure for result in results]
    assert figures == ["training step", "predict 1 row", "predict 10,000 rows"]
    for result in results:
        ours, rival = result.entries
        assert (len(ours.milliseconds), len(rival.milliseconds)) == (2, 2)
        assert set(rival.tried) == {"slow", "fast"}  # for each figure anew
        assert rival.tried[rival.form] == min(rival.tried.values())
    assert results[0].entries[1].form == "fast"
    assert [row[:2] for row in networks.summary(results)] == [
        ["tabular", figure] for figure in figures
    ]


def test_an_engine_with_other_predictions_is_not_timed_for_them():
    others = fake("a", "good"), fake("b", "other"), fake("c", "fast")
    training, first, second = measure(*others)
    assert all(entry.milliseconds for entry in training.entries)
    a, b, c = first.entries
    assert a.milliseconds
    assert c.milliseconds
    assert not b.milliseconds
    assert b.problem.startswith("disagrees: first output 0.6; the others: 0.5")
    assert [entry.engine for entry in second.entries] == ["a", "c"]


def test_an_engine_with_another_loss_predicts_nothing():
    results = measure(fake("a", "good"), fake("b", "wrong"), fake("c", "fast"))
    assert results[0].entries[1].problem.startswith("disagrees: first batch's loss")
    assert [entry.engine for entry in results[1].entries] == ["a", "c"]


def test_the_page_has_the_ratios_and_every_engine(tmp_path):
    results = measure(fake("ganglion", "good"), fake("rival", "slow"))
    networks.write(results, tmp_path / "page.md", "ganglion bench --networks")
    text = (tmp_path / "page.md").read_text()
    assert "    ganglion bench --networks\n" in text
    assert (
        "| network | figure | Ganglion, ms | best rival, ms | rival | ratio |" in text
    )
    assert "| tabular | training step | 2.00 | 4.00 | rival: slow | 2.00 |" in text
    assert "| rival | 4.00 ms (slow), 2.00 | " in text


def test_networks_are_of_the_processor():
    done = CliRunner().invoke(app.app, ["bench", "--networks", "--device", "cuda"])
    assert done.exit_code == 2
    assert "--networks are measured on the CPU" in done.output


@pytest.mark.parametrize("name", NAMES)
def test_noise_has_no_zeros_and_fits_the_network(name):
    network = recipes.get(name)
    x, y = recipes.noise(network, 3)
    assert (x != 0).all()
    assert len(np.unique(x)) > 3
    assert x.shape == (3, *network.input_shape)
    assert len(y) == 3
    assert recipes.build(network).count_params() == network.parameters


# ---- in every engine -----------------------------------------------------------------


def smaller(layers, is_whole=True):
    """Return layers of an eighth of the width; the last keeps its classes."""
    result = []
    for number, (kind, arguments) in enumerate(layers, 1):
        arguments = dict(arguments)
        for name in ("units", "filters"):
            if name in arguments and not (is_whole and number == len(layers)):
                arguments[name] //= 8
        for name in {"layers", "shortcut"} & set(arguments):
            arguments[name] = smaller(arguments[name], is_whole=False)
        result.append((kind, arguments))
    return result


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """Return a function that gives an engine's first losses and outputs of a network.

    An engine's networks share a process: to start one takes longer than their steps.
    """
    with contextlib.ExitStack() as workers:

        @functools.cache
        def data_of(name):
            network = recipes.still(recipes.get(name))
            network = replace(network, layers=tuple(smaller(network.layers)))
            utils.set_random_seed(0)
            folder, model = tmp_path_factory.mktemp(name), recipes.build(network)
            x, y = recipes.noise(network, 8)
            np.save(folder / "x.npy", x)
            np.save(folder / "y.npy", y)
            save_weights(model, folder)
            return asdict(network), str(folder)

        @functools.cache
        def worker_of(name):
            engine, logs = engines.engine(name), tmp_path_factory.mktemp(name)
            worker = process.start(engine, engine.forms[0], 1, logs)
            workers.callback(worker.end)
            return worker

        @functools.cache
        def figures(engine, network):
            recipe, folder = data_of(network)
            ask = worker_of(engine).ask
            ask("prepare", recipe=recipe, folder=folder, batch_size=4, threads=1)
            losses = [ask("run", steps=1)["loss"] for _ in range(2)]
            return losses, ask("predict", rows=8, sizes=[4])["outputs"]

        yield figures


@pytest.mark.slow
@pytest.mark.rivals
@pytest.mark.parametrize("engine", engines.RIVALS)
@pytest.mark.parametrize("network", NAMES)
@pytest.mark.sampled(10)
def test_a_rival_computes_what_ganglion_computes(network, engine, computed):
    if reason := engines.engine(engine).unavailable_reason():
        pytest.skip(reason)
    losses, outputs = computed(engine, network)
    our_losses, our_outputs = computed("ganglion", network)
    np.testing.assert_allclose(losses, our_losses, rtol=1e-3)
    np.testing.assert_allclose(outputs, our_outputs, rtol=1e-3, atol=1e-5)
