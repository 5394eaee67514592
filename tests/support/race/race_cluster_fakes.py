"""Fake engines that take the worker of their cluster with them, or drift away."""

import os
import signal
import time
from pathlib import Path

import race_fakes


def prepare(task, form):
    return Deadly(task, form)


class Deadly(race_fakes.Fake):
    def epoch(self, order):
        if race_fakes.races() and self._kills():
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)  # this process ends as soon as it sees itself alone
        return super().epoch(order)

    def steps(self, order, count):
        losses = super().steps(order, count)
        if self._form == "drifts" and self._task.dtype == "float32":
            return [loss * (1 + 0.01 * (step // 4)) for step, loss in enumerate(losses)]
        return losses

    def _kills(self):
        if self._form == "kills":
            return True
        home = Path(os.environ["GANGLION_HOME"])
        try:
            Path(os.environ["RACE_MARKERS"], home.name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return self._form == "kills once"
