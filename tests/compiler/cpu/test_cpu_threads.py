"""Two processes on one machine hold their threads on different cores, or on none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import replace

import pytest

from ganglion.compiler.cpu import threads as cpu_threads
from ganglion.compiler.cpu import tuning

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores that can be chosen",
)

# A process that holds its cores until its input ends.
CHILD = """
import json, os, sys
from ganglion.compiler.cpu import threads as cpu_threads
cpu_threads.CORE_NAME = sys.argv[1]
os.getloadavg = lambda: (0.0, 0.0, 0.0)
with cpu_threads.shared(int(sys.argv[2])) as pool:
    print(json.dumps(sorted(pool.cores)), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def name():
    return f"\0ganglion-test-{uuid.uuid4()}-{{}}"


def started(name: str, threads: int = 2) -> subprocess.Popen[str]:
    # No zero may stand in an argument: the child puts it before.
    code = CHILD.replace("sys.argv[1]", "'\\0' + sys.argv[1]")
    return subprocess.Popen(
        [sys.executable, "-c", code, name[1:], str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def cores_of(process: subprocess.Popen[str]) -> set[int]:
    assert process.stdout is not None
    return set(json.loads(process.stdout.readline()))


def test_processes_started_at_once_are_on_different_cores(name):
    processes = [started(name) for _ in range(3)]
    claimed = [cores_of(process) for process in processes]
    try:
        cores = [core for cores in claimed for core in cores]
        assert len(cores) == len(set(cores))
        assert sum(map(bool, claimed)) == min(3, len(os.sched_getaffinity(0)) // 2)
    finally:
        for process in processes:
            process.communicate("")
    assert [process.returncode for process in processes] == [0, 0, 0]


def test_cores_are_free_again_when_a_process_is_killed(name):
    first = started(name)
    before = cores_of(first)
    assert len(before) == 2
    first.kill()
    first.communicate()
    second = started(name)
    assert cores_of(second) == before
    second.communicate("")


def test_who_may_not_use_a_core_does_not_claim_it(name):
    core = max(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{core}}})\n"
    code += CHILD.replace("sys.argv[1]", "'\\0' + sys.argv[1]")
    child = subprocess.run(
        [sys.executable, "-c", code, name[1:], "2"],
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(child.stdout) == []  # two threads on one core: left to the system


def test_a_claim_is_whole_or_none(monkeypatch, name):
    monkeypatch.setattr(cpu_threads, "CORE_NAME", name)
    first = cpu_threads.Claim(2, [4, 5, 6])
    assert first.cores == [4, 5]
    assert cpu_threads.Claim(2, [4, 5, 6]).cores == []  # one would be too few
    other = cpu_threads.Claim(1, [4, 5, 6])
    assert other.cores == [6]
    first.release()
    again = cpu_threads.Claim(2, [4, 5, 6])
    assert again.cores == [4, 5]
    other.release()
    again.release()


def test_a_pool_asks_again_but_not_all_the_time(monkeypatch, name):
    monkeypatch.setattr(cpu_threads, "CORE_NAME", name)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(cpu_threads, "_pool", None)  # an earlier test's has its cores
    everything = cpu_threads.usable_cores()
    others = cpu_threads.Claim(len(everything), everything)
    with cpu_threads.shared(2) as pool:
        assert pool.cores == []
    others.release()
    with cpu_threads.shared(2) as same:
        assert same is pool
    pool.claimed_at -= tuning.CPU.claim_cores_again + 1
    with cpu_threads.shared(2) as again:
        assert len(again.cores) == 2


def test_an_idle_pool_gives_its_cores_back(monkeypatch, name):
    monkeypatch.setattr(tuning, "CPU", replace(tuning.CPU, idle_pool=0.05))
    monkeypatch.setattr(cpu_threads, "CORE_NAME", name)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(cpu_threads, "_pool", None)  # an earlier test's has its cores
    everything = cpu_threads.usable_cores()
    with cpu_threads.shared(2) as pool:
        time.sleep(0.2)  # longer than that, but in use
        assert cpu_threads._pool is pool
        assert len(pool.cores) == 2
    deadline = time.monotonic() + 60
    while cpu_threads._pool is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    others = cpu_threads.Claim(len(everything), everything)
    assert len(others.cores) == len(everything)
    others.release()
    with cpu_threads.shared(2) as again:
        assert again is not pool


def test_without_such_names_threads_are_held_as_before(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cpu_threads.Claim(2, [0, 1]).cores == [0, 1]
    assert cpu_threads.Claim(2, [0, 1]).cores == [0, 1]
