"""Steps that do not depend on each other run side by side, to the same bits."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from ganglion import config, layers, models
from ganglion.compiler.cpu import side_by_side, tuning
from ganglion.compiler.cpu import threads as cpu_threads
from ganglion.compiler.cpu.pipeline import build
from ganglion.training.data_adapters import Table

ROWS, BATCH = 1009, 8
POINTER = ctypes.POINTER(ctypes.c_int64)


@pytest.fixture
def shares_out(monkeypatch):
    """Let three threads share out the smallest steps; note how many they took."""
    tuned = replace(tuning.CPU, worth_waking=0.0, worth_sharing_out=1.0)
    monkeypatch.setattr(tuning, "CPU", tuned)
    monkeypatch.setattr(cpu_threads, "crowded", lambda threads: False)
    monkeypatch.setattr(config, "threads", lambda: 3)
    counts = []
    choose = side_by_side.threads_for
    monkeypatch.setattr(
        side_by_side,
        "threads_for",
        lambda *arguments: counts.append(choose(*arguments)) or counts[-1],
    )
    return counts


def network():
    return models.Sequential(
        [
            layers.Input((20,)),
            layers.Dense(48, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )


def drawn(rows=ROWS):
    return np.random.default_rng(0).normal(size=(rows, 20)).astype("float32")


def predicted_by_one_thread(model, x, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(config, "threads", lambda: 1)
        return model.predict(x, batch_size=BATCH, verbose=0)


@pytest.mark.parametrize("rows", [ROWS, 3 * BATCH, BATCH])
def test_predictions_have_the_bits_of_one_thread(shares_out, monkeypatch, rows):
    model, x = network(), drawn(rows)
    together = model.predict(x, batch_size=BATCH, verbose=0)
    again = model.predict(x, batch_size=BATCH, verbose=0)
    assert max(shares_out) == min(3, rows // BATCH)
    alone = predicted_by_one_thread(model, x, monkeypatch)
    assert together.tobytes() == again.tobytes() == alone.tobytes()


def test_no_step_is_left_for_one_thread(shares_out, monkeypatch):
    jobs = []
    run = cpu_threads.Pool.run

    def noted(pool, job, threads):
        words = np.ctypeslib.as_array(ctypes.cast(job, POINTER), (4 + 5 * threads,))
        jobs.append((int(words[0]), words[8::5].tolist()))
        run(pool, job, threads)

    monkeypatch.setattr(cpu_threads.Pool, "run", noted)
    network().predict(drawn(11 * BATCH), batch_size=BATCH, verbose=0)
    assert jobs == [(4, [0, 1, 1])]  # after a first step, 4, 3 and 3


def test_weights_that_have_changed_count(shares_out, monkeypatch):
    model, x = network(), drawn()
    before = model.predict(x, batch_size=BATCH, verbose=0)
    model.set_weights([weight + 0.5 for weight in model.get_weights()])
    after = model.predict(x, batch_size=BATCH, verbose=0)
    assert not np.array_equal(before, after)
    alone = predicted_by_one_thread(model, x, monkeypatch)
    assert after.tobytes() == alone.tobytes()


def plan_of(model, kind, *data):
    table = Table(*data)
    signature = table.signature(BATCH, ROWS, False)
    return build(model._step_cache.traced(kind, table, signature).program)


def test_only_counters_may_advance():
    model, x = network(), drawn()
    model.compile("sgd", "mse")
    assert side_by_side.advanced(plan_of(model, "predict", x)) == {"position": BATCH}
    y = np.zeros((ROWS, 3), "float32")
    assert side_by_side.advanced(plan_of(model, "train", x, y)) is None
    assert side_by_side.advanced(plan_of(model, "test", x, y)) is None


def test_random_draws_keep_their_order(shares_out):
    inputs = layers.Input((20,))
    noisy = models.Model(inputs, layers.Dropout(0.5, seed=3)(inputs, training=True))
    assert side_by_side.advanced(plan_of(noisy, "predict", drawn())) is None


def test_threads_pay_for_much_work_on_few_bytes(monkeypatch):
    monkeypatch.setattr(cpu_threads, "crowded", lambda threads: False)
    monkeypatch.setattr(config, "threads", lambda: 4)
    work, room = tuning.CPU.worth_sharing_out, tuning.CPU.own_cache
    assert side_by_side.threads_for(100, work, room) == 4
    assert side_by_side.threads_for(3, work, room) == 3
    assert side_by_side.threads_for(100, work / 50, room) == 2
    assert side_by_side.threads_for(100, work / 200, room) == 1
    assert side_by_side.threads_for(100, work, room + 1) == 1
    monkeypatch.setattr(cpu_threads, "crowded", lambda threads: True)
    assert side_by_side.threads_for(100, work, room) == 1
