"""An engine that computes nothing, and behaves as its form says while it races."""

import os
import sys
import time

import numpy as np
from bench_fakes import _answers


def prepare(task, form):
    if form == "unbuildable":
        raise NotImplementedError("no such layer here")
    if form == "unavailable":
        from ganglion.race.engines import Unavailable

        raise Unavailable("there is no such device; buy one")
    if form == "coarse" and task.dtype == "float64":
        raise NotImplementedError("no such precision here")
    return Fake(task, form)


def races(number=None):
    """Say whether this is a run of the race, and not the lockstep before it."""
    home = os.environ["GANGLION_HOME"]
    return f"-run-{number}" in home if number else "-run-" in home


class Fake:
    def __init__(self, task, form):
        self._task, self._form, self._epochs = task, form, 0
        self._loss = 2.0 + abs(float(task.weights[0].sum()))  # of this run alone

    def weights(self):
        return self._task.weights[: 1 if self._form == "small" else None]

    def warm_up(self, order):
        pass

    def reset(self):
        self._epochs = 0

    def steps(self, order, count):
        factor = 1.02 if self._form == "wrong" else 1.0
        if self._form == "wrong later" and races(2):
            factor = 1.02
        if self._form == "rounds" and self._task.precision != "float32":
            factor = 1.01
        losses = [factor * self._loss / step for step in range(1, count + 1)]
        parts = self._form in ("kink", "coarse") and self._task.dtype == "float32"
        if parts or self._form == "other gradient":
            losses[4:] = [1.01 * loss for loss in losses[4:]]
        if self._form == "hasty" and self._task.dtype == "float32":
            losses[1:] = [1.01 * loss for loss in losses[1:]]
        return losses

    def epoch(self, order):
        self._epochs += 1
        assert len(set(order.tolist())) == len(order)
        if races():
            print("frameworks like to talk", flush=True)
            self._misbehave()
        return self._loss / self._epochs, 0.5

    def _misbehave(self):
        if self._form == "slow":
            time.sleep(0.5)
        if self._form == "crash" and self._epochs == 2:
            sys.exit("out of luck")
        if self._form == "crash once" and races(1):
            os.kill(os.getpid(), 11)
        if self._form == "hang":
            time.sleep(60)
        if self._form == "hungry":
            self._much = np.ones(4_000_000_000, "uint8")
        if self._form == "garbage":
            os.write(_answers(), b"Segmentation fault, maybe\n")
        if self._form == "nonsense":
            os.write(_answers(), b'{"train_loss": "low", "mood": "good"}\n')

    def test(self):
        return 0.1, 0.9
