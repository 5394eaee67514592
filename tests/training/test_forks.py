"""A fork at any moment: the child can go on with the models it has a copy of."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from training_models import alike, trained_beside

import ganglion as keras
from ganglion import config
from ganglion.system import forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    # Python 3.12 warns of any fork beside threads, which is what is tested here.
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]

FORKS = int(os.environ.get("GANGLION_STRESS", "12"))
SECONDS = 60  # no child takes that long: one that does hangs


def network(width: int, activation: str = "relu") -> Any:
    layers = [keras.layers.Dense(width, activation) for _ in range(3)]
    model = keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def in_child(work: Callable[[], bool]) -> str:
    """Fork; return how the child ended: "right", "wrong" or "hangs"."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "right" if os.waitstatus_to_exitcode(status) == 0 else "wrong"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


@pytest.fixture
def busy(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a thread compile and train one new network after the other."""
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))  # nothing is compiled yet
    config.set_backend("cpu")
    config.set_threads(2)
    x, ends = np.ones((64, 5), "float32"), threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for width in range(8, 400):
                if ends.is_set():
                    return
                network(width).fit(x, x[:, :1], 16, 3, verbose=0)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ends.set()
    thread.join()
    assert not errors


@pytest.mark.usefixtures("busy")
def test_a_fork_while_another_thread_compiles_does_not_hang_the_child() -> None:
    x = np.ones((40, 5), "float32")
    model = network(7)
    wanted = model.predict(x, verbose=0)

    def work() -> bool:
        again = model.predict(x, verbose=0)  # compiled before the fork
        network(300, "tanh").fit(x, x[:, :1], 8, verbose=0)  # and after it
        return np.array_equal(again, wanted)

    ends = []
    for number in range(FORKS):
        time.sleep(0.013 * (number % 5))
        ends.append(in_child(work))
    assert ends == ["right"] * FORKS


def test_a_fork_finds_no_step_half_done() -> None:
    config.set_backend("cpu")
    model, x, y = alike()
    model.fit(x, y, 32, verbose=0)

    def work() -> bool:
        kernel = model.get_weights()[0]
        model.fit(x, y, 32, verbose=0)  # the thread that trained is not here
        return bool((kernel == kernel[0, 0]).all())

    with trained_beside(model, x, y):
        assert [in_child(work) for _ in range(FORKS)] == ["right"] * FORKS


def test_a_fork_waits_for_work_and_work_for_a_fork() -> None:
    inside, log = threading.Event(), list[str]()

    def work() -> None:
        with forks.held_off():
            inside.set()
            time.sleep(0.2)
            with forks.held_off():  # within, it never waits: the fork waits for us
                log.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    assert in_child(lambda: log == ["done"]) == "right"
    thread.join()


def test_no_work_begins_while_a_fork_goes_on() -> None:
    log = list[str]()

    def work() -> None:
        with forks.held_off():
            log.append("work")

    thread = threading.Thread(target=work)
    forks._before()
    try:
        thread.start()
        time.sleep(0.1)
        log.append("forked")
    finally:
        forks._after_in_parent()
    thread.join()
    assert log == ["forked", "work"]
    assert not forks._working


def test_a_fork_holds_no_lock_that_the_work_it_waits_for_needs() -> None:
    """Logging and thread pools are locked before a fork, too: ours must come first."""
    inside, forking = threading.Event(), threading.Event()
    log = list[str]()

    def work() -> None:
        with forks.held_off():
            inside.set()
            forking.wait()
            time.sleep(0.2)  # the fork is waiting for us by now
            logging.getLogger("ganglion").setLevel(logging.INFO)
            with ThreadPoolExecutor(1) as pool:
                log.append(pool.submit(str, "done").result())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    inside.wait()
    forking.set()
    assert in_child(lambda: log == ["done"]) == "right"
    thread.join()
