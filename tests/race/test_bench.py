"""`ganglion bench`: with fakes for what goes wrong, and once for real."""

import contextlib
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from bench_runs import _small, fake, result_of  # noqa: F401 (a fixture)
from folders import SUPPORT
from race_helpers import RECIPE, noise

from ganglion import recipes
from ganglion.race import engines as rivals
from ganglion.race.bench import report
from ganglion.race.bench import steps as bench
from ganglion.race.engines import Task, peak, process, worker


def measure(*engines, rounds=2):
    return bench.run(RECIPE, list(engines), rounds=rounds, threads=1)


def test_each_engine_has_a_time_for_every_round_and_the_fastest_form_is_kept():
    result = measure(fake("ganglion", "fast"), fake("rival", "slow", "good"), rounds=3)
    ours, rival = result.entries
    assert ours.milliseconds == pytest.approx([1.0] * 3)
    assert rival.milliseconds == pytest.approx([2.0] * 3)
    assert rival.form == "good"
    assert rival.tried == {"slow": "4.00 ms", "good": "2.00 ms"}
    assert (ours.steps, rival.steps) == (500, 250)  # half a second each
    assert rival.memory > 10e6  # no Python with NumPy is smaller
    assert result.best_rival is rival
    assert result.ratio(rival, ours) == pytest.approx(2.0)
    # 2·2·784·10·128 operations in a millisecond, of 100 GFLOP/s
    assert result.share_of_peak(ours) == pytest.approx(4014080 / 1e8)


def test_an_engine_with_another_loss_is_not_timed():
    result = measure(fake("a", "good"), fake("b", "wrong"), fake("c", "fast"))
    a, b, c = result.entries
    assert a.milliseconds
    assert c.milliseconds
    assert not b.milliseconds
    assert b.problem.startswith("disagrees: first batch's loss 0.2525")


def test_of_two_engines_that_disagree_neither_is_timed():
    result = measure(fake("a", "good"), fake("b", "wrong"))
    assert not result.timed
    assert all("disagrees" in entry.problem for entry in result.entries)


def test_an_engine_with_other_weights_is_not_timed():
    result = measure(fake("a", "good"), fake("b", "small"))
    assert result.entries[0].milliseconds
    assert result.entries[1].problem == "disagrees: 7,840 parameters, not 7,850"


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("unbuildable", "no such layer here"),
        ("crash", "out of luck"),
        ("garbage", "answered 'Segmentation fault, maybe'"),
    ],
)
def test_an_engine_that_fails_is_reported_and_the_others_go_on(form, told):
    result = measure(fake("ganglion", "good"), fake("rival", form))
    ours, rival = result.entries
    assert len(ours.milliseconds) == 2
    assert not rival.milliseconds
    assert told in rival.problem
    assert told in "\n".join(report.notes(result))


def test_an_engine_that_ends_while_it_is_being_ended_is_no_error(monkeypatch):
    def too_late(group, number):
        raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", too_late)  # their input is closed: they end
    result = measure(fake("ganglion", "good"), fake("rival", "crash"))
    assert result.entries[0].milliseconds
    assert "out of luck" in result.entries[1].problem


def test_an_engine_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(process, "LIMIT", 3.0)
    started = time.monotonic()
    result = measure(fake("ganglion", "good"), fake("rival", "hang"))
    assert time.monotonic() - started < 40  # it would sleep for a minute
    assert "no answer within" in result.entries[1].problem
    assert result.entries[0].milliseconds


def test_a_form_that_fails_leaves_the_other_forms():
    result = measure(fake("ganglion", "good"), fake("rival", "crash", "slow"))
    rival = result.entries[1]
    assert rival.form == "slow"
    assert not rival.problem
    assert "out of luck" in rival.tried["crash"]


def test_what_was_measured_before_a_crash_is_kept():
    result = measure(fake("ganglion", "good"), fake("rival", "killed"), rounds=15)
    rival = result.entries[1]
    assert 0 < len(rival.milliseconds) < 15
    assert "signal SIGKILL" in rival.problem
    assert len(result.entries[0].milliseconds) == 15


def test_a_missing_engine_is_skipped_with_the_command_that_installs_it():
    absent = fake("rival", "x", packages=("no_such_package",), install="pip install it")
    result = measure(fake("ganglion", "good"), absent)
    told = "no_such_package is not installed: pip install it"
    assert result.entries[1].problem == told
    assert f"rival: {told}" in report.notes(result)


def test_ctrl_c_returns_what_was_measured(monkeypatch):
    def interrupted(self, contestant):
        if len(contestant.entry.milliseconds) == 2 and contestant.entry.steps == 250:
            raise KeyboardInterrupt
        turn(self, contestant)

    turn = bench.Bench._turn
    monkeypatch.setattr(bench, "TRIALS", 1)
    monkeypatch.setattr(bench.Bench, "_turn", interrupted)
    result = measure(fake("ganglion", "good"), rounds=5)
    assert result.interrupted
    assert len(result.entries[0].milliseconds) == 2


def test_no_worker_outlives_its_parent(tmp_path):
    bench.write_data(RECIPE, 16, tmp_path)
    script = (
        "from ganglion.race.engines.process import Process; from pathlib import Path; "
        f"p = Process('bench_fakes', 'hang', 1, Path({str(tmp_path / 'log')!r})); "
        f"p.ask('prepare', recipe='mnist-perceptron', folder={str(tmp_path)!r}, "
        "batch_size=16, threads=1); print(p._process.pid, flush=True); "
        "p.ask('run', steps=1)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    with parent:
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the worker went on without its parent")


def test_the_verdict_compares_round_by_round():
    # Both are twice as slow in the second round: the ratio is 3 in every one.
    result = result_of(ganglion=[1.0, 2.0, 1.0], torch=[3.0, 6.0, 3.0], jax=[9.0] * 3)
    text = report.verdict(result)
    assert "3.00× as fast as the best rival, torch (form)" in text
    assert "1.00 of the memory of torch" in text


def test_the_verdict_says_what_shortcuts_are_worth():
    times = {"ganglion": [1.0] * 3, "ganglion-precise": [2.0] * 3, "torch": [3.0] * 3}
    result = result_of(**times, jax=[4.0] * 3)
    text = report.verdict(result)
    assert "3.00× as fast as the best rival, torch (form)" in text
    assert "Without shortcuts (ganglion-precise)" in text
    assert text.endswith("1.50×.")
    assert result.best_rival.engine == "torch"
    assert "shortcuts" in report.page([result], "ganglion bench")


def test_ganglion_has_one_voice_about_the_loss():
    ours = [fake("ganglion", "wrong"), fake("ganglion-precise", "wrong")]
    result = measure(*ours, fake("one", "good"), fake("two", "good"))
    problems = {entry.engine: bool(entry.problem) for entry in result.entries}
    assert problems["ganglion"]
    assert not problems["one"]


def test_the_page_names_versions_machine_and_command():
    result = result_of(ganglion=[1.0, 2.0, 3.0], torch=[4.0, 4.0, 4.0])
    text = report.page([result], "ganglion bench mnist-mlp")
    assert "    ganglion bench mnist-mlp\n" in text
    assert "torch 1.0" in text
    row = "| ganglion: form | 2.00 | 1.50–2.50 | 1.00 | 125% | 256 MB | 1.5 s |"
    assert row in text


def test_a_busy_machine_is_told_of():
    result = result_of(ganglion=[1.0])
    assert not any("Other work" in note for note in report.notes(result))
    result.busy = 0.5
    assert any("Other work took 50%" in note for note in report.notes(result))


def test_json_has_every_round():
    result = result_of(ganglion=[1.0, 2.0, 3.0], torch=[4.0, 4.0, 4.0])
    content = json.loads(report.as_json([result]))["results"][0]
    assert content["entries"][0]["milliseconds"] == [1.0, 2.0, 3.0]
    assert content["best_rival"] == "torch"
    assert content["ratio_to_best_rival"] == pytest.approx(2.0)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'torch'"):
        rivals.engine("trch")


def test_the_memory_of_a_worker_is_its_own_and_not_its_parents():
    ballast = np.ones(300_000_000 // 8)  # Linux' ru_maxrss would hand this down
    code = "from ganglion.race.engines.worker import most_memory; print(most_memory())"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert 10e6 < int(result.stdout) < ballast.nbytes
    assert worker.most_memory() > ballast.nbytes


def test_the_peak_is_measured_by_both_products():
    peaks = peak.measure(threads=1, tries=1)
    assert set(peaks) == {"NumPy", "Ganglion"}
    assert all(value > 0.1 for value in peaks.values())


RECIPES = ("mnist-perceptron", "mnist-cnn", "cifar10-cam")


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """Return a function that gives an engine's losses of two steps of a recipe.

    An engine's recipes share a process: to start one takes longer than their steps.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as workers:
        # A step of 0.5 on 16 images magnifies what Winograd's method rounds.
        patch.setenv("GANGLION_PRECISE", "1")
        patch.setattr(recipes, "load", noise)
        patch.setattr(bench, "ROWS", 32)

        @functools.cache
        def data_of(recipe):
            folder = tmp_path_factory.mktemp(recipe)
            bench.write_data(recipes.get(recipe), 16, folder)
            return folder

        @functools.cache
        def worker_of(name):
            engine = rivals.engine(name)
            logs = tmp_path_factory.mktemp(name)
            worker = process.start(engine, engine.forms[0], 1, logs)
            workers.callback(worker.end)
            return worker

        @functools.cache
        def losses(name, recipe):
            return steps(worker_of(name), recipe, data_of(recipe))

        yield losses


def steps(worker, recipe, folder):
    arguments = {"recipe": recipe, "folder": str(folder), "batch_size": 16}
    ready = worker.ask("prepare", **arguments, threads=1)
    assert ready["parameters"] == recipes.get(recipe).parameters
    return [worker.ask("run", steps=count)["loss"] for count in (1, 1)]


@pytest.mark.slow
@pytest.mark.rivals
@pytest.mark.parametrize("name", rivals.RIVALS)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.sampled(8)
def test_a_rival_takes_the_same_steps_as_ganglion(recipe, name, two_steps):
    """Losses and weights after two steps are the same, in every engine's own words."""
    if reason := rivals.engine(name).unavailable_reason():
        pytest.skip(reason)
    theirs, ours = two_steps(name, recipe), two_steps("ganglion", recipe)
    np.testing.assert_allclose(theirs, ours, rtol=1e-3)


@pytest.mark.rivals
@pytest.mark.parametrize("name", ["mnist-cnn", "mnist-mlp"])
def test_pytorch_gives_back_the_weights_it_was_given(name):
    pytest.importorskip("torch")
    from ganglion.race.engines import torch as engine

    recipe = recipes.get(name)
    weights = recipes.build(recipe).get_weights()
    (x, y), _, _ = noise(recipe, 4)
    trainer = engine.prepare(Task(recipe, weights, x, y, 4, 1), "eager")
    for mine, theirs in zip(weights, trainer.weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.rivals
def test_the_command_for_real(tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    page = tmp_path / "page.md"
    done = subprocess.run(
        [
            *(
                sys.executable,
                str(SUPPORT / "cli_small.py"),
                "bench",
                "mnist-perceptron",
            ),
            *("--against", "torch", "--rounds", "2", "--threads", "1"),
            *("--json", "--write", str(page)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)["results"][0]
    engines = [entry["engine"] for entry in content["entries"]]
    assert engines == ["ganglion", "ganglion-precise", "torch"]
    for entry in content["entries"]:
        assert not entry["problem"]
        assert len(entry["milliseconds"]) == 2
        assert entry["memory"] > 20e6
    assert set(content["peak"]) == {"NumPy", "Ganglion"}
    assert "## mnist-perceptron" in page.read_text()
