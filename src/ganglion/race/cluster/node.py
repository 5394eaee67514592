"""The work of a node of a cluster, passed as plain data.

The arrays come as the bytes of files: they are laid out in a folder of the node, where
the engine's own process finds them as it does in a race on one machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.race import lockstep, machine, run_engine
from ganglion.race.engines import Engine
from ganglion.race.lockstep import Examined
from ganglion.race.results import Epoch, Run
from ganglion.race.run_engine import Folders, Job, Start, new_run, run_once
from ganglion.race.settings import Settings
from ganglion.race.watch import Watch

Parcel = dict[str, np.ndarray]  # the bytes of files, by name
Post = Callable[..., None]  # of a text, and whether it is worth a line
FOLDER = "ganglion-node-"
LOCK = "in-use"
LOG_BYTES = 200_000


def packed(folder: Path) -> Parcel:
    """Return the files of a folder, without those of folders inside of it."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: np.fromfile(path, "uint8") for path in paths}


def unpack(parcel: Parcel, folder: Path) -> Path:
    """Write the files of a parcel into a new folder."""
    folder.mkdir(parents=True)
    for name, data in parcel.items():
        data.tofile(folder / name)
    return folder


class Reporter(Watch):
    """Posts what happens to the process that drives the race."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def says(self, engine: str, text: str) -> None:
        self._post(text)

    def training(self, engine: str, run: int, epoch: int, epochs: int) -> None:
        self._post(f"run {run}, epoch {epoch} of {epochs}", False)

    def finished(self, run: Run) -> None:
        """Leave it to the result to say so."""


def perform(
    work: dict[str, Any], data: Parcel, start: Parcel, node: str, post: Post
) -> dict[str, Any]:
    """Do a piece of work; errors are part of the answer."""
    engine, settings = Engine(**work["engine"]), Settings(**work["settings"])
    where = f"{socket.gethostname()}-{node}"
    problem = _unfit(work, engine, where)
    answer: dict[str, Any] = {"where": where, "facts": machine.about_machine("")}
    if problem:
        return answer | _refusal(work, engine, settings, problem)
    with own_folder() as folder, own_cores(settings.threads) as cores:
        if not cores:
            post(f"has no {settings.threads} cores of its own: times will be too long")
        folders = Folders(unpack(data, folder / "data"), folder)
        begin = Start(unpack(start, folder / "start"), work["order_seed"])
        job = Job(engine, settings, folders, begin, **work["more"])
        answer |= _ACTIONS[work["do"]](job, Reporter(post))
        answer["logs"] = _logs(folder / "logs")
    return answer | {"versions": machine.versions([engine])}


def _unfit(work: dict[str, Any], engine: Engine, where: str) -> str:
    """Return why this node cannot do it, "" if it can."""
    ours, theirs = machine.version("ganglion"), work["version"]
    if ours != theirs:
        return f"{where} has Ganglion {ours}, the race is of {theirs}: install that one"
    missing = engine.unavailable_reason()
    return f"on {where}, {missing}" if missing else ""


def _refusal(
    work: dict[str, Any], engine: Engine, settings: Settings, reason: str
) -> dict[str, Any]:
    if work["do"] == "run":
        number = work["more"]["number"]
        run = new_run(engine.name, settings, number, status="failed", reason=reason)
        return {"run": asdict(run)}
    examined = Examined(engine.name, unavailable=reason)
    return {"examined": asdict(examined), "losses": ((), reason)}


def _examine(job: Job, watch: Watch) -> dict[str, Any]:
    examined = lockstep.examine(job, watch.says)
    size = machine.install_size(job.engine, job.settings.device)
    return {"examined": asdict(examined), "size": size}


_ACTIONS: dict[str, Callable[[Job, Watch], dict[str, Any]]] = {
    "examine": _examine,
    "exact": lambda job, watch: {"losses": lockstep.take_exact_steps(job, watch.says)},
    "first": lambda job, watch: {
        "losses": run_engine.take_first_steps(job, f"lockstep-run-of-{job.number}", 1)
    },
    "run": lambda job, watch: {"run": asdict(run_once(job, watch))},
}


def run_of(data: dict[str, Any]) -> Run:
    """Return a run from the plain data of a node.

    >>> run = Run("jax", 1, 0, "done", epochs=(Epoch(1, 1, 1, 1, 1, 1, 1),))
    >>> run_of(asdict(run)) == run
    True
    """
    epochs = tuple(Epoch(**epoch) for epoch in data["epochs"])
    losses = tuple(data["first_losses"])
    return Run(**(data | {"epochs": epochs, "first_losses": losses}))


def _logs(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace")
        for path in sorted(folder.glob("*.log"))
    }


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder that is removed afterwards.

    A process that is killed leaves its folder behind. It is locked while it is in use,
    and the next process removes folders that are not.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/{LOCK}"):
        with _lock(old) as is_free:
            if is_free:
                shutil.rmtree(old.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=FOLDER) as name:
        new = Path(name, "new")
        with _lock(new):
            new.rename(Path(name, LOCK))  # it appears only after it is locked
            yield Path(name)


@contextlib.contextmanager
def own_cores(count: int) -> Iterator[list[int]]:
    """Bind what is started to cores that no other run of this machine has.

    Ray counts cores, but binds no process to them. Returns none, and binds nothing, if
    fewer are free than Ray counts.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield list(range(count))
        return
    allowed = os.sched_getaffinity(0)
    cores: list[int] = []
    with contextlib.ExitStack() as locks:
        for core in sorted(allowed):
            lock = Path(tempfile.gettempdir(), f"ganglion-core-{os.getuid()}-{core}")
            if len(cores) < count and locks.enter_context(_lock(lock)):
                cores.append(core)
        if len(cores) < count:
            cores = []
            locks.close()
        os.sched_setaffinity(0, cores or allowed)
        try:
            yield cores
        finally:
            os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Lock a file until the process ends at the latest; yield whether it was free."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:  # of another process, and removed by now
        yield False
        return
    try:
        yield files.try_lock(handle) is True
    finally:
        os.close(handle)
