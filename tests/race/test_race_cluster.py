"""A race on a Ray cluster: two workers of this machine, lost ones included."""

import importlib.util
import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from folders import SUPPORT_PATHS
from race_helpers import (
    RECIPE,
    drawn,
    ends,
    fake,
    interrupted,
    small_race,  # noqa: F401 (a fixture)
    start,
)

from ganglion.race import machine, results, run_engine, settings
from ganglion.race.cluster import node
from ganglion.race.cluster import run as cluster
from ganglion.race.cluster.run import RayRunner
from ganglion.race.watch import LiveWatch, Watch
from ganglion.system import ray_cluster as connection

# Ray leaves files of its own open.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
STORE = 100_000_000  # bytes, for the objects of a node
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000,
        "health_check_failure_threshold": 4}  # fmt: skip


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Start a head without CPUs and two workers with one each."""
    pytest.importorskip("ray", reason='Ray is not installed: pip install "ray[client]"')
    from ray.cluster_utils import Cluster

    short = tempfile.mkdtemp(prefix="gr-")  # names of sockets are soon too long
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", short)
        patch.setenv("PYTHONPATH", os.pathsep.join(SUPPORT_PATHS))
        patch.setenv("RACE_MARKERS", str(tmp_path_factory.mktemp("markers")))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        arguments = {
            "num_cpus": 0,
            "object_store_memory": STORE,
            "include_dashboard": False,
        }
        if importlib.util.find_spec("grpc"):
            arguments["ray_client_server_port"] = port
        cluster = Cluster(True, head_node_args=arguments | {"_system_config": SOON})
        cluster.client_address = f"ray://127.0.0.1:{port}"
        folder = cluster.head_node.get_session_dir_path()
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, object_store_memory=STORE)
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster
        finally:
            cluster.shutdown()
    assert not _processes(folder)
    shutil.rmtree(short)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _processes(folder):
    """Return what still runs for a Ray session, a moment later at most."""
    for _ in range(50):
        results = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if folder in line:
                results.append(line)
        if not results:
            break
        time.sleep(0.1)
    return results


class Told(Watch):
    """Keeps what was told, and does something at some words."""

    def __init__(self, words="", then=None):
        self.lines, self.work = [], []
        self._words, self._then = words, then

    def says(self, engine, text):
        self.lines.append(f"{engine}: {text}")
        if self._then and self._words in self.lines[-1]:
            then, self._then = self._then, None
            then(text.rpartition("-")[2])  # the node's number

    def at_work(self, engine, tasks):
        self.work.append((engine, tuple(tasks)))


def deadly(form, name="rival"):
    return fake(name, form, module="race_cluster_fakes")


def race(folder, *engines, watch=None, runs=2, before=None, **more):
    names = tuple(engine.name for engine in engines)
    chosen = settings.Settings(
        RECIPE.name, names, runs, 4, 16, 1, "cpu", 7, 60.0, on="ray"
    )
    racing = RayRunner(
        replace(chosen, **more), engines, folder, watch or Told(), "", before
    )
    result = racing.run()
    assert result == results.load(folder)
    return result


def all_of(*engines, runs=2):
    return sorted((name, number) for name in engines for number in range(1, runs + 1))


def pairs(result):
    return sorted((run.engine, run.number) for run in result.finished)


@pytest.mark.more
def test_a_node_is_lost_in_mid_run_and_no_result_is(tmp_path, nodes):
    def lose(number):
        lost = [node for node in nodes.worker_nodes if node.node_id.startswith(number)]
        nodes.remove_node(lost[0], allow_graceful=False)

    watch = Told("rival: run 1, epoch 1: ", lose)
    engines = fake("ganglion", "good"), fake("rival", "slow")
    result = race(tmp_path, *engines, watch=watch)
    nodes.add_node(num_cpus=1, object_store_memory=STORE)
    assert result.complete
    assert pairs(result) == all_of("ganglion", "rival")  # all, and none twice
    assert {run.status for run in result.finished} == {"done"}
    again = [
        line for line in watch.lines if "begins again (its worker was lost)" in line
    ]
    assert again, "\n".join(watch.lines)
    run = next(
        run for run in result.finished if (run.engine, run.number) == ("rival", 1)
    )
    assert len(run.epochs) == 4  # from its beginning
    # Where it ran at last, which is not where it ran first.
    first = next(
        line for line in watch.lines if line.startswith("rival: run 1 begins on")
    )
    assert run.where.startswith(f"{socket.gethostname()}-")
    assert not first.endswith(run.where)
    assert any(run.where in task for _, tasks in watch.work for task in tasks)
    assert run.where in result.machine["nodes"]
    assert result.versions["ganglion"] == machine.version("ganglion")
    log = tmp_path / "logs" / "rival-run-2.log"
    assert log.read_text().startswith("frameworks like to talk")


def test_a_worker_is_killed_and_its_run_is_tried_again(tmp_path, nodes, monkeypatch):
    watch = Told()
    engines = fake("ganglion", "good"), deadly("kills once")
    result = race(tmp_path, *engines, watch=watch)
    assert pairs(result) == all_of("ganglion", "rival")
    assert {run.status for run in result.finished} == {"done"}
    for number in (1, 2):
        line = f"rival: run {number} begins again (its worker was lost) on "
        assert len([text for text in watch.lines if text.startswith(line)]) == 1
    # What the killed ones left is removed by who comes next.
    monkeypatch.setattr(tempfile, "tempdir", os.environ["TMPDIR"])
    with node.own_folder() as mine:
        assert list(Path(os.environ["TMPDIR"]).glob(f"{node.FOLDER}*")) == [mine]


def test_who_always_loses_its_worker_fails_and_the_others_go_on(
    tmp_path, nodes, monkeypatch
):
    monkeypatch.setattr(cluster, "RETRIES", 1)
    engines = fake("ganglion", "good"), deadly("kills")
    result = race(tmp_path, *engines, runs=1)
    assert result.complete
    assert ends(result) == {("ganglion", 1): "done", ("rival", 1): "failed"}
    failed = next(run for run in result.finished if not run.done)
    assert failed.reason.startswith("lost with its worker (2 times begun): Worker")


def nothing_here(*arguments):
    raise AssertionError("this belongs to the nodes")


def test_a_sweep_runs_side_by_side(tmp_path, nodes, monkeypatch):
    import ray

    put, sent = ray.put, []
    monkeypatch.setattr(ray, "put", lambda value: sent.append(value) or put(value))
    monkeypatch.setattr(run_engine, "Process", nothing_here)
    engines = fake("ganglion", "good"), fake("rival", "crash"), deadly("drifts", "far")
    absent = fake("other", "x", packages=("no_such_package",), install="pip install it")
    swept = {"lr": [0.1, 0.5], "batch-size": [8, 16]}
    watch = Told()
    result = race(tmp_path, *engines, absent, runs=1, sweep=swept, watch=watch)
    assert result.complete
    results = {(run.engine, *run.settings.values()) for run in result.finished}
    points = [(lr, size) for lr in (0.1, 0.5) for size in (8, 16)]
    names = ("ganglion", "rival", "far")
    assert results == {(name, *point) for name in names for point in points}
    assert len(result.finished) == 12
    files = ["x.npy", "x_test.npy", "y.npy", "y_test.npy"]
    assert [sorted(names) for names in sent] == [files, ["orders.npy", "weights.npz"]]
    for run in result.finished:
        assert run.done == (run.engine != "rival")
    assert not [line for line in watch.lines if "again" in line]
    seen = {tuple(step.settings.values()): step for step in result.exact_steps}
    assert list(seen) == [(0.1, 8), (0.1, 16)]  # a lockstep for each batch size
    for run in seen.values():
        assert run.apart == 0.0
        assert set(run.losses) == set(names)
    crashed = next(run for run in result.finished if not run.done)
    assert crashed.reason == "ended with exit code 1"
    assert "out of luck" in crashed.log_end
    assert [skip.engine for skip in result.skipped] == ["other"]
    told = result.skipped[0].reason
    assert told.startswith(f"on {socket.gethostname()}-")
    assert told.endswith("no_such_package is not installed: pip install it")


@pytest.mark.more
def test_ctrl_c_cancels_and_resume_does_the_rest_once(tmp_path, nodes):
    arguments = ["mnist-perceptron", "--engines", "ganglion,keras", "--runs", "2"]
    more = ["--epochs", "3", "--threads", "1", "--on", "ray", "--out", "here"]
    first = start(tmp_path, *arguments, *more)
    # Rarely, Ray ends the whole process if a task ends while it is cancelled. Nothing
    # may be lost then, either.
    interrupted(first, "keras: run 1, epoch 1", "likely discovered a bug in Ray")
    kept = results.load(tmp_path / "here")
    assert not kept.complete
    assert ("keras", 1) not in pairs(kept)
    second = start(tmp_path, "--resume", "here")  # where it was: on the cluster
    _, told = second.communicate(timeout=120)
    assert second.returncode == 0, told
    loaded = results.load(tmp_path / "here")
    assert loaded.complete
    assert loaded.on == "ray"
    assert pairs(loaded) == all_of("ganglion", "keras")
    assert loaded.finished[: len(kept.finished)] == kept.finished
    assert all(run.where for run in loaded.finished)
    assert "lockstep begins" not in told


def test_a_node_without_ganglion_says_so(tmp_path, nodes):
    import ray

    shadow = tmp_path / "ganglion"
    shadow.mkdir()
    (shadow / "__init__.py").write_text("raise ImportError('no Ganglion here')")
    with connection.connected("ray"):
        board = ray.remote(cluster.board()).options(num_cpus=0).remote()
        task = ray.remote(cluster.task()).options(
            num_cpus=1, runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}}
        )
        answer = ray.get(task.remote("x", {}, {}, {}, board), timeout=60)
    assert "Ganglion cannot be imported (no Ganglion here)" in answer["absent"]
    assert answer["absent"].endswith("pip install ganglion-nn")


@pytest.fixture
def busy(nodes, monkeypatch):
    """Let the cluster fail to start servers for clients, as often as one says."""
    pytest.importorskip("grpc")
    from ray.core.generated import ray_client_pb2
    from ray.util.client.dataclient import DataClient

    left, init = [0], DataClient.Init

    def fail_or_begin(*arguments):
        if not left[0]:
            return init(*arguments)
        left[0] -= 1
        told = "Traceback:\n  a line\nRuntimeError: no server in 30 seconds\n"
        return ray_client_pb2.InitResponse(ok=False, msg=told)

    monkeypatch.setattr(DataClient, "Init", fail_or_begin)
    return left


def test_a_race_through_the_server_for_clients_that_is_busy_at_first(
    tmp_path, nodes, busy
):
    busy[0] = 1  # the others are real: a test machine may be busy, too
    address = nodes.client_address
    result = race(tmp_path, fake("ganglion", "good"), on=address, runs=1)
    assert busy[0] == 0
    assert pairs(result) == all_of("ganglion", runs=1)
    assert result.on == address
    assert all(run.done and run.where for run in result.finished)


def test_a_cluster_that_stays_busy_says_why_and_leaves_nothing_behind(nodes, busy):
    busy[0] = connection.TRIES
    told = r"could not start a server .* \(RuntimeError: no server in 30 seconds\)"
    with (
        pytest.raises(RuntimeError, match=told),
        connection.connected(nodes.client_address),
    ):
        pass
    with connection.connected("ray") as ray:
        assert ray.is_initialized()


def test_the_live_table_shows_what_runs_where():
    watch = LiveWatch(("ganglion", "rival"), 2)
    watch.says("rival", "run 1 begins on a")
    watch.at_work("rival", ["run 1, epoch 2 of 3 on a", "run 2, epoch 1 of 3 on b"])
    shown = drawn(watch).splitlines()
    assert shown[2].split() == [
        "rival",
        "run",
        "1,",
        "epoch",
        "2",
        "of",
        "3",
        "on",
        "a",
    ]
    assert shown[3].strip() == "run 2, epoch 1 of 3 on b"


def test_more_threads_than_any_node_has_are_refused(tmp_path, nodes):
    told = "--threads 9: no node of the cluster has as many CPUs; the largest has 1"
    with pytest.raises(ValueError, match=told):
        race(tmp_path, fake("ganglion", "good"), threads=9)
    with pytest.raises(ValueError, match="no node of the cluster has a GPU"):
        race(tmp_path, fake("ganglion", "good"), device="cuda")
    assert not list(tmp_path.iterdir())


def test_without_ray_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    told = r'not installed: pip install "ganglion-nn\[ray\]"'
    with pytest.raises(RuntimeError, match=told), connection.connected("ray"):
        pass


@pytest.mark.parametrize("on", ["dask", "ray://", "ray://here:x", "http://here:1"])
def test_what_is_no_address_is_refused_at_once(on, tmp_path):
    chosen = settings.choose("mnist-mlp", engines="ganglion", on=on)
    with pytest.raises(ValueError, match="write ray, for the cluster that"):
        RayRunner(chosen, [], tmp_path, Told())


def test_an_address_that_does_not_answer_is_told_soon(monkeypatch):
    pytest.importorskip("ray")
    port = free_port()
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    for on in (f"ray://127.0.0.1:{port}", "ray"):
        told = f"--on {on}: no Ray cluster answers .*refused"
        with pytest.raises(RuntimeError, match=told), connection.connected(on):
            pass


def test_no_cluster_here(monkeypatch):
    services = pytest.importorskip("ray._private.services")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: None)
    monkeypatch.setattr(services, "find_gcs_addresses", set)
    told = "no Ray cluster is running here. Start one with `ray start --head`"
    with pytest.raises(RuntimeError, match=told), connection.connected("ray"):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="binding to cores is Linux'")
def test_two_runs_on_a_node_have_cores_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one core only")
    with node.own_cores(1) as first, node.own_cores(0), node.own_cores(10_000) as none:
        assert os.sched_getaffinity(0) == set(first)
        assert none == []  # nobody is bound where there are too few
    assert os.sched_getaffinity(0) == allowed
