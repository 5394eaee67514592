"""`ganglion race` with fake engines: what goes wrong, what is kept, what is refused."""

import json
import os
import re
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from race_helpers import (
    RECIPE,
    drawn,
    ends,
    fake,
    interrupted,
    noise,
    refused,
    small_race,  # noqa: F401 (a fixture)
    start,
)

from ganglion import recipes
from ganglion.compiler.cpu import threads
from ganglion.race import lockstep, machine, results, run_engine, run_race, settings
from ganglion.race.engines import engine
from ganglion.race.lockstep import Examined
from ganglion.race.report import html, markdown, terminal_tables
from ganglion.race.watch import LiveWatch, Quiet

LIMIT = 20.0  # seconds; a start of Python takes a part of one, on a busy machine more


def race(folder, *engines, runs=1, epochs=2, limit=LIMIT, memory=None, before=None):
    names = tuple(engine.name for engine in engines)
    chosen = settings.Settings(
        RECIPE.name, names, runs, epochs, 16, 1, "cpu", 7, limit, memory
    )
    racing = run_race.RaceRunner(
        chosen, engines, folder, Quiet(), "the command", before
    )
    result = racing.run()
    assert result == results.load(folder)  # what is returned is what was kept
    return result


def test_a_race_keeps_every_run_of_every_engine(tmp_path):
    result = race(tmp_path, fake("ganglion", "good"), fake("rival", "good"), runs=3)
    assert result.complete
    # Interleaved, and each time another one is first.
    turns = [(run.engine, run.number) for run in result.finished]
    assert turns == [
        *(("ganglion", 1), ("rival", 1)),
        *(("rival", 2), ("ganglion", 2)),
        *(("ganglion", 3), ("rival", 3)),
    ]
    assert [run.seed for run in result.finished] == [7, 7, 8, 8, 9, 9]
    first = result.finished[0]
    assert first.done
    assert first.parameters == RECIPE.parameters
    assert first.accuracy == 0.9
    assert [epoch.number for epoch in first.epochs] == [1, 2]
    assert len(first.first_losses) == 16  # 20, but an epoch has no more
    assert first.peak_memory > 10e6  # no Python with NumPy is smaller
    assert first.form == "good"
    # Other weights in another run, the same for both engines.
    losses = [run.first_losses[0] for run in result.finished]
    assert losses[0] == losses[1] != losses[2] == losses[3]
    assert (tmp_path / "logs" / "rival-run-3.log").read_text().startswith("frameworks")


@pytest.mark.parametrize(
    ("form", "reason", "log"),
    [
        ("crash", "ended with exit code 1", "out of luck"),
        ("garbage", "answered 'Segmentation fault, maybe'", "frameworks like to talk"),
        ("nonsense", "answered 'epoch' with {'train_loss': 'low'", "frameworks"),
    ],
)
def test_a_failure_is_reported_with_its_log_and_the_others_go_on(
    form, reason, log, tmp_path
):
    result = race(tmp_path, fake("ganglion", "good"), fake("rival", form), runs=2)
    assert result.complete
    assert ends(result) == {
        ("ganglion", 1): "done",
        ("ganglion", 2): "done",
        ("rival", 1): "failed",
        ("rival", 2): "failed",
    }
    failed = next(run for run in result.finished if not run.done)
    assert failed.reason.startswith(reason)
    assert log in failed.log_end
    if form == "crash":
        assert len(failed.epochs) == 1  # what it did before is kept
    told = "\n".join(terminal_tables.problems(result))
    assert f"rival, run 1 failed: {reason}" in told
    assert log in told


def test_a_crash_in_one_run_leaves_the_next(tmp_path):
    result = race(
        tmp_path, fake("ganglion", "good"), fake("rival", "crash once"), runs=2
    )
    assert ends(result)["rival", 1] == "failed"
    assert ends(result)["rival", 2] == "done"
    assert "signal SIGSEGV" in next(r for r in result.finished if not r.done).reason


def test_an_engine_that_hangs_is_ended(tmp_path):
    started = time.monotonic()
    result = race(tmp_path, fake("ganglion", "good"), fake("rival", "hang"), limit=6.0)
    assert time.monotonic() - started < 50  # it would sleep for a minute
    assert ends(result) == {("ganglion", 1): "done", ("rival", 1): "failed"}
    hung = result.finished[-1]
    assert hung.reason == "did not finish within 6 s (while in 'epoch')"
    assert "frameworks like to talk" in hung.log_end


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are Linux'")
def test_an_engine_that_runs_out_of_memory(tmp_path):
    engines = fake("ganglion", "good"), fake("rival", "hungry")
    result = race(tmp_path, *engines, memory=3_000_000_000)
    assert ends(result) == {("ganglion", 1): "done", ("rival", 1): "failed"}
    assert result.finished[-1].reason == "ran out of memory, ended with exit code 1"
    assert "MemoryError" in result.finished[-1].log_end


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("small", "refused before timing: 7,840 parameters, not 7,850"),
        ("wrong", "refused before timing: the loss of the first batch is "),
        ("unbuildable", "ended with exit code 1"),
    ],
)
def test_who_computes_something_else_is_refused_before_timing(form, reason, tmp_path):
    result = race(tmp_path, fake("ganglion", "good"), fake("rival", form), runs=2)
    refused = [run for run in result.finished if run.engine == "rival"]
    assert len(refused) == 1
    assert refused[0].status == "failed"
    assert refused[0].reason.startswith(reason)
    assert not refused[0].epochs
    assert not list(tmp_path.glob("logs/rival-run*"))  # no clock was started
    assert ends(result)["ganglion", 2] == "done"


def test_a_wrong_loss_in_a_later_run_is_refused_too(tmp_path):
    engines = fake("ganglion", "good"), fake("rival", "wrong later")
    result = race(tmp_path, *engines, runs=2)
    assert ends(result)["rival", 1] == "done"
    later = next(run for run in result.finished if not run.done)
    assert (later.engine, later.number) == ("rival", 2)
    assert later.reason.startswith("refused before timing: the loss of the first")


def test_steps_that_part_in_float32_are_taken_again_in_float64(tmp_path, capsys):
    engines = fake("ganglion", "good"), fake("a", "kink"), fake("b", "other gradient")
    result = race(tmp_path, *engines, fake("c", "coarse"))
    assert ends(result) == {
        ("ganglion", 1): "done",
        ("a", 1): "done",
        ("b", 1): "failed",
        ("c", 1): "done",
    }
    refused = next(run for run in result.finished if not run.done)
    assert "steps in float64 are 9.9e-03 off those of the others" in refused.reason
    assert not list(tmp_path.glob("logs/b-run*"))
    (seen,) = result.exact_steps
    assert list(seen.losses) == ["ganglion", "a"]
    assert seen.losses["a"] == seen.losses["ganglion"]
    assert (seen.learning_rate, seen.apart) == (0.5, 0.0)
    assert seen.missing == {"c": "ended with exit code 1"}
    told = "at the same learning rate of 0.5, the first 16 steps of ganglion, a are"
    notes = "\n".join(terminal_tables.notes(result))
    for text in (notes, markdown.text(result), html.page([result])):
        assert told in text
        assert "c took no steps in it: ended with exit code 1." in text
    terminal_tables.show(result)
    assert re.search(r"│ +4 of 16 │ +16 of 16 │", capsys.readouterr().out)
    # All of it is known when the race goes on.
    kept = replace(result, finished=result.finished[:1], complete=False)
    again = race(tmp_path, *engines, fake("c", "coarse"), before=kept)
    assert again.exact_steps == result.exact_steps
    assert len(list(tmp_path.glob("logs/*float64*"))) == 4


def test_the_first_update_must_be_right_in_float32_too(tmp_path):
    result = race(tmp_path, fake("ganglion", "good"), fake("a", "hasty"))
    assert ends(result) == {("ganglion", 1): "done", ("a", 1): "failed"}
    told = "refused before timing: after one update its loss in float32 is "
    assert result.finished[0].reason.startswith(told)
    assert list(result.exact_steps[0].losses) == ["ganglion"]


def test_steps_that_agree_in_float32_are_taken_once(tmp_path):
    result = race(tmp_path, fake("ganglion", "good"), fake("a", "good"))
    assert result.exact_steps == ()
    assert not list(tmp_path.glob("logs/*float64*"))


def examined(name, *losses, parameters=10):
    return Examined(name, "form", parameters, losses)


def test_most_engines_are_right_and_ganglion_among_two():
    ours, rival, other = (
        examined("ganglion", 2.0),
        examined("a", 1.0),
        examined("b", 1.0),
    )
    assert lockstep.judge([ours, rival, other], 10) == 1.0
    assert [x.races for x in (ours, rival, other)] == [False, True, True]
    rival, ours = examined("a", 1.0), examined("ganglion", 2.0)
    assert lockstep.judge([rival, ours], 10) == 2.0
    assert [x.races for x in (rival, ours)] == [False, True]


def test_nan_agrees_with_nobody():
    ours, rival = examined("ganglion", 2.0), examined("a", float("nan"))
    lockstep.judge([rival, ours], 10)
    assert not rival.races


def test_the_fastest_form_races_and_a_form_that_fails_does_not(tmp_path):
    rival = fake("rival", "unbuildable", "good")
    result = race(tmp_path, fake("ganglion", "good"), rival)
    assert result.finished[-1].form == "good"
    kept = lockstep.load(tmp_path)["rival"]
    assert kept.tried["unbuildable"] == "ended with exit code 1"
    assert kept.tried["good"].endswith("ms a step")


def test_a_missing_engine_is_skipped_with_the_command_that_installs_it(tmp_path):
    absent = fake("rival", "x", packages=("no_such_package",), install="pip install it")
    elsewhere = fake("other", "unavailable")
    result = race(tmp_path, fake("ganglion", "good"), absent, elsewhere)
    assert result.complete
    assert [(skip.engine, skip.reason) for skip in result.skipped] == [
        ("rival", "no_such_package is not installed: pip install it"),
        ("other", "there is no such device; buy one"),
    ]
    assert ends(result) == {("ganglion", 1): "done"}


def test_no_engine_at_all_is_an_error(tmp_path):
    absent = fake("rival", "x", packages=("no_such_package",), install="pip install it")
    with pytest.raises(RuntimeError, match="pip install it"):
        race(tmp_path, absent)


def test_ctrl_c_loses_nothing_and_resume_does_the_rest_once(tmp_path):
    engines = ["--engines", "ganglion,keras,torch", "--runs", "2", "--epochs", "3"]
    first = start(tmp_path, "mnist-perceptron", *engines, "--out", "here")
    out = interrupted(first, "keras: run 1, epoch 1")
    kept = results.load(tmp_path / "here")
    assert not kept.complete
    assert ends(kept) == {("ganglion", 1): "done"}
    assert (tmp_path / "here" / "report.html").exists()
    assert "ganglion" in out

    second = start(tmp_path, "--resume", "here")
    out, told = second.communicate(timeout=120)
    assert second.returncode == 0, told
    loaded = results.load(tmp_path / "here")
    assert loaded.complete
    pairs = [(run.engine, run.number) for run in loaded.finished]
    assert sorted(pairs) == sorted(set(pairs))
    assert len(pairs) == 6
    assert loaded.finished[0] == kept.finished[0]
    assert "lockstep" not in told  # it is known in which forms they race
    assert "0.9000 ± 0.0000" in out
    for name in ("results.md", "report.html", "lockstep.json"):
        assert (tmp_path / "here" / name).stat().st_size

    told = refused("--resume", tmp_path / "here", "--runs", 3)
    assert "holds a race with --runs 2: leave --runs out" in told
    told = refused("mnist-mlp", "--out", tmp_path / "here")
    assert "here holds a race already" in told


def test_a_race_that_is_complete_has_nothing_left_to_run(tmp_path):
    engines = fake("ganglion", "good"), fake("rival", "wrong")
    result = race(tmp_path, *engines, runs=2)
    again = race(tmp_path, *engines, runs=2, before=result)
    assert again.finished == result.finished


def test_a_race_that_goes_on_keeps_the_engines_that_raced(tmp_path):
    """One that was not there at first does not join, with half of the runs to compare.

    One that is gone keeps what it ran, and is not said to have been left out.
    """
    absent = fake("late", "good", packages=("no_such_package",))
    ours, rival = fake("ganglion", "good"), fake("rival", "good")
    result = race(tmp_path, ours, rival, absent, runs=2)
    part = replace(result, finished=result.finished[:2], complete=False)

    again = race(tmp_path, ours, rival, fake("late", "good"), runs=2, before=part)
    assert again.complete
    assert ends(again) == ends(result)
    assert again.skipped == result.skipped

    gone = fake("rival", "good", packages=("no_such_package",))
    less = race(tmp_path, ours, gone, absent, runs=2, before=part)
    assert set(ends(less)) == {("ganglion", 1), ("ganglion", 2), ("rival", 1)}
    assert less.skipped == result.skipped
    assert not less.complete
    assert less.engines == result.engines
    full = race(tmp_path, ours, gone, absent, runs=2, before=result)
    assert full.complete


def test_a_race_that_goes_on_keeps_its_limits(tmp_path):
    result = race(tmp_path, fake("ganglion", "good"), limit=33.0, memory=10**12)
    assert (result.limit, result.memory) == (33.0, 10**12)
    chosen = settings.of_race(result, tmp_path, {})
    assert (chosen.limit, chosen.memory) == (33.0, 10**12)
    assert settings.of_race(result, tmp_path, {}, limit=5.0).limit == 5.0
    command = run_race.command_line(chosen, tmp_path / "a folder")
    assert "--limit 33 --memory 1000 --out '" in command


def test_where_nothing_was_run_the_engines_are_looked_for_anew(tmp_path):
    absent = fake("late", "good", packages=("no_such_package",))
    result = race(tmp_path, fake("ganglion", "good"), absent)
    begun = replace(result, finished=(), complete=False)
    again = race(tmp_path, fake("ganglion", "good"), fake("late", "good"), before=begun)
    assert set(ends(again)) == {("ganglion", 1), ("late", 1)}
    assert not again.skipped


def test_the_children_are_gone_after_ctrl_c(tmp_path, monkeypatch):
    started = []
    opened = run_engine.Process

    def noted(*arguments):
        started.append(opened(*arguments))
        return started[-1]

    def press(self, engine, run, epoch):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_engine, "Process", noted)
    monkeypatch.setattr(Quiet, "tested", press)
    with pytest.raises(KeyboardInterrupt):
        race(tmp_path, fake("ganglion", "good"))
    assert started
    assert all(worker._process.poll() is not None for worker in started)


def test_the_order_is_that_of_fit(tmp_path):
    """Ganglion shuffles by itself; others who are given the order see its batches."""
    (x, y), _, _ = noise(RECIPE, 50)
    start = run_engine.write_start(RECIPE, 3, 2, 50, tmp_path)
    orders = np.load(tmp_path / "orders.npy")
    assert (orders[0] != orders[1]).any()
    losses = {}
    for shuffled in (True, False):
        model = recipes.build(RECIPE)
        with np.load(tmp_path / "weights.npz") as kept:
            model.set_weights([kept[f"w{i}"] for i in range(len(kept.files))])
        model.training_state.order.array[...] = start.order_seed, 0
        losses[shuffled] = []
        for rows in orders:
            arrays = (x, y) if shuffled else (x[rows], y[rows])
            batches = Batches()
            model.fit(
                *arrays, batch_size=16, shuffle=shuffled, verbose=0, callbacks=[batches]
            )
            losses[shuffled] += batches.losses
    assert len(losses[True]) == 2 * 4  # the last batch has two rows
    assert losses[True] == losses[False]


def Batches():
    from ganglion import callbacks

    class Noted(callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.losses = []

        def on_train_batch_end(self, batch, logs=None):
            self.losses.append(logs["loss"])

    return Noted()


@pytest.mark.parametrize("name", ["ganglion", "ganglion-numpy"])
def test_our_own_engines_start_anew_after_the_first_steps(name, tmp_path):
    import importlib

    from ganglion.race.engines import Task

    (x, y), (x_test, y_test), _ = noise(RECIPE, 50)
    start = run_engine.write_start(RECIPE, 3, 2, 50, tmp_path)
    orders = np.load(tmp_path / "orders.npy")
    with np.load(tmp_path / "weights.npz") as kept:
        weights = [kept[f"w{i}"] for i in range(len(kept.files))]
    seed = start.order_seed
    tests = {"x_test": x_test, "y_test": y_test}
    task = Task(RECIPE, weights, x, y, 16, 1, order_seed=seed, **tests)
    chosen = engine(name)
    trainer = importlib.import_module(chosen.module).prepare(task, chosen.forms[0])
    trainer.warm_up(orders[0])
    first = trainer.steps(orders[0], 4)
    trainer.reset()
    loss, _ = trainer.epoch(orders[0])
    mean = sum(a * n for a, n in zip(first, (16, 16, 16, 2), strict=True)) / 50
    assert loss == pytest.approx(mean, rel=1e-5)
    trainer.reset()
    assert trainer.steps(orders[0], 4) == first


def test_resume_refuses_what_contradicts(tmp_path):
    result = race(tmp_path, fake("ganglion", "good"))
    nothing = {"recipe": None, "engines": None, "epochs": None}
    chosen = settings.of_race(result, tmp_path, nothing, limit=3.0)
    assert (chosen.recipe, chosen.epochs, chosen.limit) == (RECIPE.name, 2, 3.0)
    with pytest.raises(ValueError, match="RECIPE mnist-perceptron: leave RECIPE out"):
        settings.of_race(result, tmp_path, {"recipe": "mnist-mlp"})
    with pytest.raises(ValueError, match="--engines ganglion: leave --engines"):
        settings.of_race(result, tmp_path, {"engines": ("jax",)})


def test_settings_are_checked():
    with pytest.raises(ValueError, match="Did you mean 'torch'"):
        settings.choose("mnist-mlp", engines="trch")
    with pytest.raises(ValueError, match="names no engine"):
        settings.choose("mnist-mlp", engines=" ,")
    with pytest.raises(ValueError, match="cpu or cuda"):
        settings.choose("mnist-mlp", device="tpu")
    with pytest.raises(ValueError, match="cores to use"):
        settings.choose("mnist-mlp", threads=10_000)


def test_facts_are_those_of_this_machine():
    known = machine.about_machine("drawn digits")
    assert known["cores"] >= 1
    assert known["data"] == "drawn digits"
    assert machine.install_size(engine("ganglion")) > 50e6  # NumPy and LLVM alone
    assert machine.install_size(fake("x", "y", packages=("no_such_package",))) == 0
    assert machine.versions([engine("ganglion")])["numpy"] == np.__version__


def _raises():
    raise OSError("the load average cannot be read")


@pytest.mark.parametrize("change", ["raises", "is missing"])
def test_a_machine_that_tells_no_load_is_raced_on(change, monkeypatch):
    if change == "raises":
        monkeypatch.setattr(os, "getloadavg", _raises)
    else:
        monkeypatch.delattr(os, "getloadavg")
    assert machine.about_machine("")["load before"] == ""
    assert machine.busy(machine.about_machine(""), 1) == ""
    assert not threads.crowded(1)


def test_a_race_that_goes_on_under_load_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    result = race(tmp_path, fake("ganglion", "good"))
    assert "Other work" not in markdown.text(result)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.5, 0.0, 0.0))
    again = race(tmp_path, fake("ganglion", "good"), before=result)
    assert "Other work was running" in markdown.text(again)
    assert again.machine | {"load before": "0.00"} == result.machine


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return a way to install packages of so many bytes, the only ones there are."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    _forget_packages()

    def install(name, size, *needs):
        (tmp_path / f"{name}.bin").write_bytes(bytes(size))
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        lines = [
            f"Name: {name}",
            "Version: 1.0",
            *(f"Requires-Dist: {n}" for n in needs),
        ]
        (about / "METADATA").write_text("\n".join(lines))
        (about / "RECORD").write_text(f"{name}.bin,,\n")
        _forget_packages()

    yield install
    _forget_packages()


def _forget_packages():
    machine._owners.cache_clear()
    machine._size.cache_clear()


def test_an_engine_weighs_more_on_a_gpu(packages):
    packages(
        "jax", 1, "jaxlib>=1", "gpu[with-cuda] ; extra == 'cuda13'", "no; extra=='k8s'"
    )
    packages("jaxlib", 10, "jax")  # in a ring
    packages("gpu", 100, 'big-one; sys_platform != "x" and extra == "with_cuda"')
    packages("big_one", 1000)
    packages("no", 10_000)
    assert machine.install_size(engine("jax")) == 11
    assert machine.install_size(engine("jax"), "cuda") == 1111


def test_ganglion_counts_what_it_needs_or_says_nothing(packages):
    ours = engine("ganglion")
    assert machine.install_size(ours) == 0  # on the path only
    packages("ganglion_nn", 7, "numpy", "nvrtc; extra == 'cuda'")  # weighed as source
    packages("numpy", 10)
    packages("nvrtc", 100)
    source = machine.install_size(ours) - 10
    assert source > 1e6
    assert machine.install_size(ours, "cuda") == source + 110


def test_the_tables_have_every_run_and_average(tmp_path, capsys):
    result = race(tmp_path, fake("ganglion", "good"), fake("rival", "good"), runs=2)
    terminal_tables.show(result)
    text = capsys.readouterr().out
    assert text.count("0.9000 ± 0.0000") == 4  # two engines, alone and side by side
    for word in ("import", "prepare", "in all", "memory", "on disk", "lockstep"):
        assert word in text
    assert re.search(r"published: TensorFlow +0\.9089 +14 s", text)


def test_the_live_table_follows_the_engines():
    watch = LiveWatch(("ganglion", "rival"), 2)
    watch.says("ganglion", "lockstep: fit")
    watch.training("ganglion", 1, 1, 3)
    watch.tested("ganglion", 1, results.Epoch(1, 0.5, 0.8, 0.4, 0.85, 1.0, 0.1))
    watch.training("ganglion", 1, 2, 3)
    assert "epoch 2 of 3; test accuracy 0.8500" in drawn(watch)
    run = results.Run("rival", 1, 0, "failed", reason="ended with exit code 1")
    watch.finished(run)
    assert "failed" in drawn(watch)
    assert "ended with exit code 1" in drawn(watch)


def test_lockstep_is_plain_json(tmp_path):
    lockstep.save([examined("a", 1.0, 0.5)], tmp_path)
    assert json.loads((tmp_path / lockstep.FILE).read_text())[0]["losses"] == [1.0, 0.5]
    (tmp_path / lockstep.FILE).write_text("{broken")
    assert lockstep.load(tmp_path) == {}
