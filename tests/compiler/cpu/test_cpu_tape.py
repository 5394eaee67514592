"""Tapes: every thread's records together run every piece of every kernel once."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from step_programs import step_of

from ganglion.compiler.cpu import emit, tuning
from ganglion.compiler.cpu.backend import Layout
from ganglion.compiler.cpu.pipeline import build


class Numbers:
    """Gives each function a number instead of an address."""

    def __init__(self):
        self.names = []

    def address(self, name):
        self.names.append(name)
        return len(self.names)


def walk(layout, thread, threads):
    """Return what a thread runs if it takes all slices it can, and where it waits."""
    calls, waits, at = [], 0, 0
    tape = layout._tapes[thread]
    ranges = {r.ctypes.data: r for r in layout._ranges.values()}
    while at < len(tape):
        function, argument, high, low, barrier = (int(word) for word in tape[at])
        if function:
            calls.append((function, low, high))
        elif argument:
            for owner in range(threads):
                taken, first, count = ranges[argument][(thread + owner) % threads, :3]
                for number in range(int(first + taken), int(first + count)):
                    for member in range(high):
                        f, _, size, end, _ = (int(w) for w in tape[at + 1 + member])
                        lo, hi = number * size, min((number + 1) * size, end)
                        assert lo < hi, "an empty slice"
                        calls.append((f, lo, hi))
                ranges[argument][(thread + owner) % threads, 0] = count
            at += high
        waits += barrier
        at += 1
    return calls, waits


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["mnist-perceptron", "mnist-mlp", "mnist-cnn"])
@pytest.mark.parametrize("taking", [True, False])
def test_all_is_run_once(monkeypatch, name, threads, taking):
    stealing = replace(tuning.CPU, worth_stealing=0.0 if taking else 1e18)
    monkeypatch.setattr(tuning, "CPU", stealing)
    plan = build(step_of(name, rows=130, batch=128)[0])
    _, records = emit.emit_plan(plan)
    layout = Layout(plan, records, Numbers().address, threads)
    assert bool(layout._ranges) == taking
    done = [Counter() for _ in records]
    walks = [walk(layout, thread, threads) for thread in range(threads)]
    for calls, _ in walks:
        for function, low, high in calls:
            done[function - 1].update(range(low, high))
    for record, pieces in zip(records, done, strict=True):
        assert pieces == Counter(range(record.parallel)), record.function
    assert len({waits for _, waits in walks}) == 1, "threads wait equally often"


def test_private_buffers_of_threads_do_not_meet():
    plan = build(step_of("mnist-cnn", rows=130, batch=128)[0])
    _, records = emit.emit_plan(plan)
    layout = Layout(plan, records, Numbers().address, 4)
    offsets = np.array(layout._offsets)
    slots = [b for r in records for b in r.buffers if b.kind == "arena"]
    private = [b for k in plan.kernels for b in k.private()]
    assert private
    for column, buffer in enumerate(slots):
        own = len(set(offsets[:, column].tolist()))
        assert own == (4 if buffer in private else 1)
