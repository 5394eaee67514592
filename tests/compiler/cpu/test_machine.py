"""How many threads a program runs on: by what waiting costs, measured and kept."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import numpy as np
import pytest
from cpu_checks import ran, same
from step_programs import step_of

from ganglion import config
from ganglion.compiler.cpu import backend, machine, threads, tuning

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def quiet_home(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    machine.barriers.cache_clear()
    yield
    machine.barriers.cache_clear()


def test_figures_are_measured_once_and_kept(tmp_path, monkeypatch):
    config.set_threads(2)
    monkeypatch.setattr(machine, "MAX_BARRIER", 1e12)  # other tests are running
    measured = machine.barriers(2)
    assert list(measured) == [2]
    assert measured[2] > 0
    machine.barriers.cache_clear()
    monkeypatch.setattr(machine, "_measured", lambda pool, count: pytest.fail("kept"))
    assert machine.barriers(2) == {2: round(measured[2])}


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"a": 3}', b"\xff"])
def test_a_damaged_file_is_written_anew(tmp_path, monkeypatch, content):
    config.set_threads(2)
    (tmp_path / "machine.json").write_bytes(content)
    monkeypatch.setattr(machine, "_measured", lambda pool, count: 100.0 * count)
    assert machine.barriers(2) == {2: 200.0}
    kept = json.loads((tmp_path / "machine.json").read_bytes())
    assert kept[machine._identity()] == {"2": 200}


def test_on_a_crowded_machine_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert machine.barriers(2) == {}
    assert not (tmp_path / "machine.json").exists()


def test_more_threads_are_taken_while_they_pay(monkeypatch):
    program, _, _ = step_of("mnist-mlp", rows=512, batch=512)
    executable = backend.compile(program)

    def chosen(barrier):
        monkeypatch.setattr(machine, "barrier", barrier)
        executable._trials_of.clear()
        return executable._trials(16).best

    assert chosen(lambda count: 0.0) == 16
    assert chosen(lambda count: 1e9) == 1
    assert chosen(lambda count: 0.0 if count <= 4 else 1e9) == 4


def test_beside_other_work_a_small_step_stays_on_one_thread(monkeypatch):
    small, large = (
        backend.compile(step_of(name, rows=128, batch=128)[0])
        for name in ("mnist-perceptron", "mnist-mlp")
    )
    monkeypatch.setattr(threads, "usable_cores", lambda: [0, 1])
    monkeypatch.setattr(machine, "_measured", lambda pool, count: 500.0)
    config.set_threads(2)
    assert (small._trials(2).best, large._trials(2).best) == (2, 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (12.0, 0.0, 0.0))
    assert (small._trials(2).best, large._trials(2).best) == (1, 2)


def tried(trials, really):
    """Return the numbers of threads that are tried, by the time that each takes."""
    counts = []
    while (count := trials.next()) is not None:
        trials.add(count, really[count])
        counts.append(count)
    return counts


def test_neighbours_are_tried_until_none_is_faster():
    estimates = {1: 100e3, 2: 80e3, 4: 70e3, 8: 66e3, 16: 64e3}
    trials = machine.Trials(estimates)
    assert trials.best == 16
    assert tried(trials, {16: 90e3, 8: 70e3, 4: 75e3}) == [16] * 3 + [8] * 3 + [4] * 3
    assert trials.best == 8
    assert trials.is_decided


def test_hopeless_numbers_are_not_tried():
    trials = machine.Trials({1: 100e3, 2: 51e3, 4: 27e3})
    assert tried(trials, {4: 30e3}) == [4, 4, 4]


def test_one_thread_is_tried_for_a_small_step_however_slow_by_estimate():
    trials = machine.Trials({1: 25e3, 2: 18e3, 4: 12e3, 8: 8e3, 16: 6e3})
    really = {1: 17e3, 2: 36e3, 4: 37e3, 8: 32e3, 16: 34e3}
    in_turn = [count for count in (16, 8, 4, 1, 2) for _ in range(3)]
    assert tried(trials, really) == in_turn
    assert trials.best == 1


def test_a_number_is_tried_again_after_a_while(monkeypatch):
    trials = machine.Trials({1: 100.0, 2: 90.0})
    tried(trials, {1: 100.0, 2: 60.0})
    assert (trials.best, trials.is_decided) == (2, True)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert not trials.is_decided
    tried(trials, {1: 100.0, 2: 200.0})
    assert trials.best == 1


def test_trials_leave_results_as_they_are(monkeypatch):
    """A run that tries numbers of threads on its own steps has the same bits."""
    program, data, state = step_of("mnist-mlp", rows=64, batch=32)
    data = {name: data[name] for name in program.data}
    executable = backend.compile(program)
    executable.forced_threads = 1
    expected = ran(executable, data, state, 40)
    executable.forced_threads = None
    tuned = replace(tuning.CPU, worth_waking=0.0, trial=1.0, hopeless=100.0)
    monkeypatch.setattr(tuning, "CPU", tuned)
    config.set_threads(3)
    same(ran(executable, data, state, 40), expected)
    (trials,) = executable._trials_of.values()
    assert {1, 2} <= trials.times.keys() or {2, 3} <= trials.times.keys()
    assert trials.is_decided


def test_a_pool_runs_jobs_of_fewer_threads():
    program, data, state = step_of("mnist-mlp", rows=64, batch=32)
    data = {name: data[name] for name in program.data}
    executable = backend.compile(program)
    config.set_threads(6)  # two groups of the barrier
    results = []
    for count in (1, 6, 2, 5, 3, 6):
        own = {name: array.copy() for name, array in state.items()}
        executable.forced_threads = count
        executable.run(data, own, 3)
        results.append({name: array.tobytes() for name, array in own.items()})
    assert all(result == results[0] for result in results)


def test_threads_of_one_core_come_last():
    siblings = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}
    assert threads.in_order([0, 1, 4, 5], siblings.__getitem__) == [0, 1, 4, 5]
    assert threads.in_order([0, 4, 1], siblings.__getitem__) == [0, 1, 4]
    assert np.array_equal(threads.in_order([3, 7], str), [3, 7])
