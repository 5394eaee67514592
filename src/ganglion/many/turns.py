"""Trials that take turns, so that a search never depends on which thread was faster.

A sampler and a pruner decide by the results so far. Trials in training have places, and
act one after the other, round by round: one draws its values, reports an epoch, or ends
and is replaced in its place by the next. In between they train, some at a time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from ganglion.many.fitting import Fitting
from ganglion.many.model_set import Member
from ganglion.many.settings import ModelPlan
from ganglion.many.threads import POLL_SECONDS, Workers, workers_for


class Turns:
    """Places whose threads take turns, while some of the others train.

    Args:
        places: How many threads take part.
        running: How many of them may train at the same time.
        is_stopped: Whether turns no longer matter, since all end.
    """

    def __init__(
        self, places: int, running: int, is_stopped: Callable[[], bool]
    ) -> None:
        lock = threading.Lock()
        self._is_stopped, self._free, self._lock = is_stopped, running, lock
        self._places = [threading.Condition(lock) for _ in range(places)]
        self._ring = deque(self._places)  # the first one has the turn
        self._ready: deque[Any] = deque()  # those that wait to train, in order
        self._own = threading.local()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Give this thread a place, and its first turn."""
        with self._lock:
            self._own.place, self._own.trains = self._places.pop(0), False
            self._own.waited = 0.0
        try:
            self._wait()
            yield
        finally:
            with self._lock:
                self._ring.remove(self._own.place)
                self._free += self._own.trains
                self._wake()

    def train(self) -> None:
        """End the turn of this thread, and wait until it may train."""
        place = self._own.place
        with self._lock:
            self._ring.rotate(-1)
            self._ready.append(place)
            self._wake()
            self._wait_for(lambda: self._free > 0 and self._ready[0] is place)
            self._ready.remove(place)
            self._free, self._own.trains = self._free - 1, True
            self._wake()

    def stop_training(self) -> None:
        """Let another thread train, and wait until this one has the turn."""
        with self._lock:
            self._free, self._own.trains = self._free + self._own.trains, False
            self._wake()
        self._wait()

    def _wait(self) -> None:
        place = self._own.place
        with self._lock:
            self._wait_for(lambda: self._ring[0] is place)

    def _wait_for(self, holds: Callable[[], bool]) -> None:
        start = time.perf_counter()
        while not (holds() or self._is_stopped()):
            self._own.place.wait(POLL_SECONDS)
        self._own.waited += time.perf_counter() - start

    @property
    def waited(self) -> float:
        """How many seconds this thread has waited so far."""
        return float(self._own.waited)

    def _wake(self) -> None:
        """Wake the thread that has the turn, and the one to train next."""
        for place in (*list(self._ring)[:1], *list(self._ready)[:1]):
            place.notify()


class Drawn(Protocol):
    """Trials that are drawn one by one."""

    at_once: int
    turns: Turns

    def draw(self, plan: ModelPlan) -> ModelPlan | None:
        """Return a plan with the values of the next trial, None if there is none."""

    def tell(self, member: Member) -> None:
        """Receive a trial that has ended."""


class TrialFitting(Fitting):
    """The training of trials that are drawn when there is a place for them."""

    def __init__(self, trials: Drawn, *parts: Any) -> None:
        super().__init__(*parts)
        self._trials = trials

    def _train(self, threads: int | None) -> None:
        self._at_work = min(self._trials.at_once, len(self._plans))
        running, threads_each = workers_for(self._at_work, threads)
        self._workers = Workers(self._at_work, threads_each)
        self._trials.turns = self._turns = Turns(
            self._at_work, running, lambda: self._workers.is_stopped
        )
        self._workers.run(self._work, self._progress.show)

    def _work(self) -> None:
        with self._turns.place():
            super()._work()

    def _next(self) -> ModelPlan | None:
        self._turns.stop_training()  # after an error
        plan = super()._next()
        drawn = None if plan is None else self._trials.draw(plan)
        if plan is not None and drawn is None:  # the sampler has no more
            self._waiting.clear()
            self._plans = self._plans[: plan.index]
            return super()._next()
        return drawn

    def _fit(self, plan: ModelPlan, model: Any) -> Member:
        self._turns.train()
        waited = self._turns.waited
        member = super()._fit(plan, model)
        seconds = member.seconds - (self._turns.waited - waited)
        self._turns.stop_training()
        self._trials.tell(member)
        return replace(member, seconds=seconds)
