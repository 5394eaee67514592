"""An engine that computes nothing, and behaves as its form says."""

import os
import sys
import time

import numpy as np

MILLISECONDS = {"good": 2.0, "fast": 1.0, "slow": 4.0}


def prepare(task, form):
    if form == "unbuildable":
        raise NotImplementedError("no such layer here")
    return Fake(task, form)


class Fake:
    def __init__(self, task, form):
        self._task, self._form, self._runs = task, form, 0

    def run(self, steps):
        self._runs += 1
        print("frameworks like to talk")
        if self._form == "crash":
            sys.exit("out of luck")
        if self._form == "killed" and self._runs > 20:
            os.kill(os.getpid(), 9)
        if self._form == "hang":
            time.sleep(60)
        if self._form == "garbage":
            os.write(_answers(), b"Segmentation fault, maybe\n")
        return steps * MILLISECONDS.get(self._form, 3.0) / 1000

    def loss(self):
        return 0.25 / self._runs * (1.01 if self._form == "wrong" else 1.0)

    def reset(self):
        self._runs = 0

    def in_batches(self, x, size):
        return x

    def predict(self, batches):
        return np.full(len(batches), 0.6 if self._form == "other" else 0.5)

    def weights(self):
        return self._task.weights[: 1 if self._form == "small" else None]


def _answers():
    """Return the pipe to the parent: the highest one that the worker opened."""
    pipes = [int(name) for name in os.listdir("/proc/self/fd")]
    targets = {fd: _target(fd) for fd in pipes if fd > 2}
    return next(fd for fd, target in targets.items() if target.startswith("pipe"))


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
