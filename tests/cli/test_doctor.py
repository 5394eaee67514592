"""`ganglion doctor` sees what is wrong, says how to mend it, and breaks nothing."""

import importlib.metadata
import json
import os
import time
import tomllib
from types import SimpleNamespace

import pytest
from command_line import here
from folders import ROOT

from ganglion import config
from ganglion.cli import doctor, doctor_machine, doctor_packages, doctor_system
from ganglion.cli.findings import Finding, Status
from ganglion.system import limits

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith("GANGLION_")]:
        monkeypatch.delenv(name)


def found(check, status=None):
    return [f for f in check() if status is None or f.status is status]


def test_a_healthy_machine_gets_a_line_for_each_check(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    done = here("doctor")
    assert done.returncode == 0, done.stdout
    first, *lines = done.stdout.splitlines()
    assert first == f"Ganglion {config.VERSION}"
    topics = {line.split()[1] for line in lines if line.startswith(("ok", "warn"))}
    wanted = {"python", "ganglion", "numpy", "llvmlite", "environment", "compiler"}
    assert wanted | {"processor", "cores", "gpu", "cache", "data", "images"} <= topics
    assert "a step is what the reference says" in done.stdout
    assert "problem" not in done.stdout


def test_a_problem_ends_with_status_1_and_the_way_out(monkeypatch):
    bad = Finding("disk", Status.PROBLEM, "is full", "Make room.")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [bad],))
    done = here("doctor")
    assert done.returncode == 1
    assert "problem  disk           is full\n" in done.stdout
    assert "-> Make room.\n" in done.stdout
    assert done.stdout.endswith("\n1 problem.\n")


def test_json_has_every_finding(monkeypatch):
    fine = Finding("disk", Status.OK, "is large")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [fine],))
    done = here("doctor", "--json")
    assert done.returncode == 0
    row = {"topic": "disk", "status": "ok", "text": "is large", "mend": ""}
    assert json.loads(done.stdout) == {"version": config.VERSION, "findings": [row]}


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(monkeypatch):
    def broken_check():
        raise KeyError("surprise")

    fine = Finding("disk", Status.OK, "is large")
    monkeypatch.setattr(doctor, "CHECKS", (broken_check, lambda: [fine]))
    first, second = doctor.examined()
    assert (first.topic, first.status) == ("broken check", Status.PROBLEM)
    assert "surprise" in first.text
    assert second is fine


# ---- variables -----------------------------------------------------------------------


def test_misspelt_variables_are_named_with_the_right_spelling(monkeypatch):
    monkeypatch.setenv("GANGLION_THREAD", "2")
    [warning] = found(doctor_system.environment, Status.WARNING)
    assert "GANGLION_THREAD is not a variable" in warning.text
    assert "'GANGLION_THREADS'" in warning.mend


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GANGLION_THREADS", "many"),
        ("GANGLION_BACKEND", "gpu"),
        ("GANGLION_FILE_LIMIT", "a lot"),
        ("GANGLION_CPU", "x86-64-v9"),
        ("GANGLION_VERIFY", "perhaps"),
    ],
)
def test_values_that_cannot_be_meant_are_problems(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    [problem] = found(doctor_system.environment, Status.PROBLEM)
    assert name in problem.text


def test_the_command_itself_is_not_stopped_by_such_a_value(monkeypatch):
    monkeypatch.setenv("GANGLION_DEBUG", "perhaps")
    done = here("doctor", "--json")
    assert done.returncode == 1, done.stderr
    findings = json.loads(done.stdout)["findings"]
    [problem] = [row for row in findings if row["status"] == "problem"]
    assert problem["topic"] == "environment"
    refused = here("recipes")
    assert refused.returncode == 1
    assert "GANGLION_DEBUG must be one of" in refused.stderr


# ---- folders -------------------------------------------------------------------------


def test_a_home_that_cannot_be_made_is_a_problem(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "file" / "home"))
    [problem] = found(doctor_system.home)
    assert problem.status is Status.PROBLEM
    assert "GANGLION_HOME" in problem.mend
    assert found(doctor_system.clock) == []


def test_a_home_that_others_can_write_to_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    tmp_path.chmod(0o777)
    [warning] = found(doctor_system.home, Status.WARNING)
    assert warning.mend == f"chmod go-w {tmp_path}"
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind


@pytest.mark.parametrize(("free", "status"), [(1e7, "problem"), (5e8, "warning")])
def test_a_full_disk_is_seen(tmp_path, monkeypatch, free, status):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    usage = SimpleNamespace(free=free)
    monkeypatch.setattr(doctor_system.shutil, "disk_usage", lambda _: usage)
    [finding] = found(doctor_system.home)
    assert finding.status.value == status
    assert "ganglion cache clear" in finding.mend


def test_a_clock_that_is_off_is_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    now = time.time
    monkeypatch.setattr(doctor_system.time, "time", lambda: now() - 90)
    warning, *_ = found(doctor_system.clock)
    assert warning.status is Status.WARNING
    assert "90 s ahead" in warning.text


# ---- packages ------------------------------------------------------------------------


def test_the_versions_of_python_are_those_of_the_project():
    (oldest, newest) = doctor_packages.TESTED
    after = (newest[0], newest[1] + 1)
    told = f">={oldest[0]}.{oldest[1]},<{after[0]}.{after[1]}"
    assert PROJECT["requires-python"] == told


def test_another_python_is_a_problem(monkeypatch):
    monkeypatch.setattr(doctor_packages, "TESTED", ((3, 1), (3, 2)))
    [problem] = found(doctor_packages.python)
    assert problem.status is Status.PROBLEM
    assert "Python 3.1 to 3.2" in problem.mend


@pytest.fixture
def installed(monkeypatch):
    """Let tests choose the versions of packages; the others are what they are."""
    chosen, version = {}, importlib.metadata.version

    def answer(name):
        if name in chosen and chosen[name] is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return chosen[name] if name in chosen else version(name)

    monkeypatch.setattr(importlib.metadata, "version", answer)
    return chosen


def test_requirements_that_are_missing_or_too_old_are_problems(installed):
    installed |= {"numpy": "1.20.0", "h5py": None}
    problems = {f.topic: f for f in found(doctor_packages.requirements, Status.PROBLEM)}
    assert set(problems) == {"numpy", "h5py"}
    assert "1.20.0 does not fit: Ganglion needs >=1.26" in problems["numpy"].text
    assert problems["h5py"].mend.startswith('pip install "h5py')


def test_somebody_elses_ganglion_is_a_problem(installed):
    installed["ganglion"] = "99.0"
    [problem] = found(doctor_packages.distribution, Status.PROBLEM)
    assert "pip uninstall ganglion" in problem.mend


def test_extras_are_there_or_have_their_command(installed):
    names = ("keras", "torch", "tensorflow-cpu", "tensorflow", "cuda-core")
    installed |= dict.fromkeys((*names, "cuda-bindings", "nvidia-cuda-nvrtc"))
    installed |= {"keras": "3.10.0", "jax": "0.10.2"}
    findings = {f.topic: f for f in found(doctor_packages.extras)}
    assert findings["cuda"].mend == 'pip install "ganglion-nn[cuda]"'
    assert "torch" in findings["rivals"].text
    assert findings["rivals"].mend == 'pip install "ganglion-nn[rivals]"'
    assert findings["keras"].status is Status.WARNING
    assert findings["keras"].mend == 'pip install "keras==3.15.*"'
    assert findings["jax"].text == "0.10.2"
    assert "dev" not in findings


def test_every_extra_says_what_it_is_for():
    aside = {*doctor_packages.FOR_DEVELOPERS, doctor_packages.RIVALS}
    extras = set(PROJECT["optional-dependencies"]) - aside
    assert extras == set(doctor_packages.OPTIONAL)


# ---- the machine ---------------------------------------------------------------------


def test_a_compiled_step_that_is_wrong_is_a_problem(monkeypatch):
    losses = {"cpu": 0.5, "numpy": 0.25}
    monkeypatch.setattr(doctor_machine, "_loss_after_a_step", losses.get)
    [problem] = found(doctor_machine.compiler)
    assert problem.status is Status.PROBLEM
    assert "differs from the reference by 0.25" in problem.text


@pytest.mark.parametrize(
    ("quota", "real", "threads", "status", "text"),
    [
        (1.5, 4, 4, "warning", "a quota of 1.5 cores' time"),
        (None, 4, 8, "warning", "more threads than cores"),
        (None, 2, 4, "ok", "2 real cores"),
        (4.0, 4, 4, "ok", "4 of"),
    ],
)
def test_cores(monkeypatch, quota, real, threads, status, text):
    monkeypatch.setattr(limits, "usable_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(limits, "cpu_quota", lambda: quota)
    monkeypatch.setattr(limits, "physical_cores", lambda _: real)
    monkeypatch.setattr(config, "load_average", lambda: 3.0)
    config.set_threads(threads)
    cores, load = found(doctor_machine.cores)
    assert cores.status.value == status
    assert text in cores.text
    assert "load 3.0" in load.text


def test_little_memory_is_a_warning(monkeypatch):
    monkeypatch.setattr(limits, "memory_limit", lambda: 300_000_000)
    monkeypatch.setattr(limits, "free_memory", lambda: 9_000_000_000)
    [warning] = found(doctor_machine.memory)
    assert warning.status is Status.WARNING
    assert warning.text == "9.0 GB free, a limit of 300 MB"


def test_a_gpu_that_was_asked_for_and_is_not_there_is_a_problem(monkeypatch):
    from ganglion.compiler.cuda import driver

    monkeypatch.setattr(driver, "unavailable_reason", lambda: "no driver was found")
    monkeypatch.setenv("GANGLION_BACKEND", "cuda")
    [problem] = found(doctor_machine.gpu)
    assert problem.status is Status.PROBLEM
    assert "no driver was found" in problem.text
    assert "ganglion-nn[cuda]" in problem.mend


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_control_groups_of_both_versions(tmp_path):
    proc, system = tmp_path / "proc", tmp_path / "sys"
    assert limits.cpu_quota(proc, system) is None
    write(proc / "self/cgroup", "0::/a/b\n")
    write(system / "fs/cgroup/a/b/cpu.max", "max 100000\n")
    write(system / "fs/cgroup/a/cpu.max", "250000 100000\n")
    write(system / "fs/cgroup/a/memory.max", "700000000\n")
    assert limits.cpu_quota(proc, system) == 2.5  # of the group above
    assert limits.memory_limit(proc, system) == 700_000_000
    write(proc / "self/cgroup", "4:cpu,cpuacct:/c\n3:memory:/c\n")
    write(system / "fs/cgroup/cpu/c/cpu.cfs_quota_us", "50000\n")
    write(system / "fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n")
    write(system / "fs/cgroup/memory/c/memory.limit_in_bytes", "600000000\n")
    assert limits.cpu_quota(proc, system) == 0.5
    assert limits.memory_limit(proc, system) == 600_000_000


def test_hyper_threads_are_told_from_cores(tmp_path):
    for core in range(4):
        topology = tmp_path / f"devices/system/cpu/cpu{core}/topology"
        write(topology / "thread_siblings_list", f"{core % 2},{core % 2 + 2}\n")
    assert limits.physical_cores([0, 1, 2, 3], tmp_path) == 2
    assert limits.physical_cores([0], tmp_path) == 1
    assert limits.physical_cores([9], tmp_path) is None
