"""Sets of models on a Ray cluster: three nodes of this machine, one of them killed."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from folders import PACKAGE, SUPPORT_PATHS

import ganglion as keras
from ganglion import layers, many
from ganglion.many.progress import Progress

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = X[:, :1].copy()
STORE = 100_000_000  # bytes, for the objects of a node
SETTINGS = many.grid(rate=[0.1, 0.01], seed=range(9))
FIT = {"epochs": 4, "batch_size": 16, "validation_split": 0.25, "verbose": 0}


def build(rate, seconds=0.0):
    time.sleep(seconds)
    stack = [layers.Dense(3, activation="relu"), layers.Dropout(0.2), layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *stack])
    model.compile(keras.optimizers.Adam(rate), "mse")
    return model


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "spark"}, r"on='spark': write ray"),
        ({"on": "ray://"}, "ray://HOST:PORT"),
        ({"on": "ray", "threads": 2}, "`threads` is for this machine"),
    ],
)
def test_places_that_are_none_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        many.fit_many(build, SETTINGS, X, Y, **FIT, **arguments)


def test_models_that_are_built_already_do_not_travel():
    with pytest.raises(ValueError, match="needs a function that builds"):
        many.fit_many([build(0.1)], None, X, Y, on="ray", **FIT)


def test_a_search_stays_here():
    with pytest.raises(ValueError, match="`search` trains on this machine"):
        many.search(build, {"rate": [0.1]}, X, Y, sampler="grid", on="ray")


@pytest.mark.more
def test_an_unreachable_cluster_is_told_of():
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RuntimeError, match="no Ray cluster answers"):
        many.fit_many(build, SETTINGS, X, Y, on=f"ray://127.0.0.1:{port}", **FIT)


@pytest.fixture
def nodes():
    """Start a head without cores and three nodes with one each."""
    pytest.importorskip("ray", reason='Ray is not installed: pip install "ray[client]"')
    from ray.cluster_utils import Cluster

    short = tempfile.mkdtemp(prefix="gr-")  # names of sockets are soon too long
    soon = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 1000,
        "health_check_failure_threshold": 4,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", short)
        paths = [*SUPPORT_PATHS, str(PACKAGE.parent), str(Path(__file__).parent)]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
        cluster = Cluster(True, head_node_args=head | {"_system_config": soon})
        try:
            started = [
                cluster.add_node(num_cpus=1, object_store_memory=STORE)
                for _ in range(3)
            ]
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster, started
        finally:
            cluster.shutdown()
    shutil.rmtree(short, ignore_errors=True)


class Killing(Progress):
    """Kills a node when a few models are finished."""

    def __init__(self, kill):
        super().__init__(0)
        self._kill, self.after = kill, None

    def finished(self, member, was_there=False):
        super().finished(member, was_there)
        if self.after is None and len(self.done) >= 3:
            self.after = len(self.done)
            threading.Thread(target=self._kill).start()


@pytest.mark.more
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_is_lost_with_a_node_and_the_bits_are_those_of_here(nodes):
    cluster, started = nodes
    progress = Killing(lambda: cluster.remove_node(started[0], allow_graceful=False))
    settings = [{**setting, "seconds": 0.5} for setting in SETTINGS]
    trained = many.fit_many(build, settings, X, Y, on="ray", progress=progress, **FIT)
    assert progress.after is not None
    assert progress.after < len(settings)
    assert len(trained.table()) == len(settings)
    for ours, theirs in zip(
        trained, many.fit_many(build, SETTINGS, X, Y, **FIT), strict=True
    ):
        assert ours.history.history == theirs.history.history
        pairs = zip(ours.model.variables, theirs.model.variables, strict=True)
        assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)
