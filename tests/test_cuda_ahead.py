"""Kernels that run a step ahead: which ones may, and that nobody sees a difference."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import pure
from cuda_checks import check
from test_plan import step_of

from ganglion.backends import cuda_run
from ganglion.backends.cuda_ahead import NEXT, look_ahead
from ganglion.backends.cuda_emit import Target, schedule_of, steps_of
from ganglion.backends.cuda_simplify import simplify
from ganglion.ir import structured
from ganglion.ir.graph import Graph, Input
from ganglion.plan.kernel import Buffer, Contract, Load, Loop, View

emulation = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


def buffer(name, kind="arena", dtype="float32"):
    return Buffer(name, (4,), np.dtype(dtype), kind)


def loop(name, *pairs):
    """Return a loop that copies from one buffer to another, for each pair."""
    copies = [
        (Load(source.dtype, View(source, (1,))), View(target, (1,)))
        for source, target in pairs
    ]
    (expr, target), *more = copies
    return Loop(name, (4,), expr, target, more=tuple(more))


def written(launch):
    works = [work for lane in launch.lanes for work in lane.works]
    return {one for work in works for one in work.writes()}


def names(kernels):
    return [one.name for one in kernels]


def ahead_of(name):
    program, _, _ = step_of(name, rows=256, batch=64)
    simple = simplify(cuda_run.plan_of(program).kernels)
    return look_ahead(steps_of(simple, Target()), simple.kept())


@pytest.mark.parametrize("name", ["mnist-perceptron", "mnist-mlp", "cifar10-cam"])
def test_the_next_batch_is_fetched_ahead(name):
    found = ahead_of(name)
    assert found.handed
    assert not any(isinstance(one, Contract) for one in found.early)
    read = {b.name for one in found.early for b in one.reads() if b.kind == "data"}
    assert "x" in read
    assert not [b for one in found.late for b in one.reads() if b.name == "x"]
    changed = {b.name for one in found.early for b in one.writes() if b.kind == "state"}
    assert "position" in changed
    assert not changed & {b.name for one in found.late for b in one.writes()}


def test_copies_of_weights_are_made_behind_their_update():
    weights, packed = buffer("w", "state"), buffer("packed")
    kernels = [
        loop("pack", (weights, packed)),
        loop("use", (packed, buffer("y", "result"))),
        loop("update", (packed, weights)),
    ]
    found = look_ahead(kernels, set())
    assert names(found.early) == ["pack"]
    assert names(found.late) == ["use", "update"]
    assert found.handed == {"packed"}
    kernels.insert(1, loop("double", (packed, buffer("twice"))))
    assert names(look_ahead(kernels, set()).early) == ["pack"]  # not what follows


def test_counters_that_others_read_as_they_were_are_copied():
    position = buffer("position", "state", "int32")
    batch, loss = buffer("batch"), buffer("loss", "state")
    bad = buffer("bad", "state", "int32")
    kernels = [
        loop("gather", (buffer("x", "data"), batch)),
        loop("train", (batch, loss)),
        loop("count", (position, position), (position, bad), (loss, buffer("sum"))),
        loop("tell", (bad, buffer("y", "result"))),
    ]
    found = look_ahead(kernels, set())
    assert names(found.early) == ["copy", "gather", "count"]
    assert names(found.late) == ["train", "count", "tell"]
    assert found.handed == {"batch", "position before"}
    (_, _, counted), (_, noted, _) = found.early, found.late
    assert [b.name for b in counted.writes()] == ["position"]
    assert [b.name for b in noted.reads()] == ["position before", "loss"]


def test_counters_that_others_read_as_they_become_are_not_ahead():
    position, now = buffer("position", "state", "int32"), buffer("now", "state")
    kernels = [
        loop("gather", (buffer("x", "data"), buffer("batch"))),
        loop("count", (position, position)),
        loop("late", (position, now)),
        loop("train", (buffer("batch"), buffer("loss", "state"))),
    ]
    assert names(look_ahead(kernels, set()).early) == ["gather"]


def test_operands_are_fetched_early_only_if_they_have_long_been_there():
    program, _, _ = step_of("mnist-mlp", rows=256, batch=64)
    made = schedule_of(cuda_run.plan_of(program), Target())
    early, before = 0, written(made.first[-1])
    for kind, name in written(made.every[-1]):  # of the step before
        before.add(("arena" if kind == NEXT else kind, name))
    for launch in made.every:
        for work in (work for lane in launch.lanes for work in lane.works):
            assert not work.settled & before
            early += isinstance(work.kernel, Contract) and bool(work.settled)
        before = written(launch)
    assert early >= 4  # products wait for one of their operands only


def test_a_program_that_starts_at_once_waits_for_the_one_before():
    """What it reads may just be written by another program."""
    x, w = (Input(name, (64, 64), "float32") for name in "xw")
    program = pure(Graph.of("one", [x, w], {"y": structured.matmul(x, w)}))
    made = schedule_of(cuda_run.plan_of(program), Target())
    works = [work for lane in made.every[0].lanes for work in lane.works]
    assert made.first or not any(work.settled for work in works)


@emulation
@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_steps_are_the_same(steps):
    """Shuffled batches, the last one smaller; odd and even numbers of steps."""
    program, data, state = step_of("mnist-perceptron", rows=96, batch=16)
    check(program, data, state, steps=steps, tolerance=2e-4)
