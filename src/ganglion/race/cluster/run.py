"""A race as tasks of a Ray cluster: one run of one engine is one task.

A task has its cores reserved, and is done again elsewhere when its worker is lost. The
data travels to a node once. This process alone writes results: after each finished run,
as in a race on one machine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ganglion import files
from ganglion.race import sweep
from ganglion.race.cluster.connection import address_of, connected
from ganglion.race.cluster.node import packed, run_of
from ganglion.race.cluster.tasks import Work, board, task
from ganglion.race.engines import ENGINES, Engine
from ganglion.race.exact import Taken
from ganglion.race.figures import OURS, settings_text
from ganglion.race.lockstep import Found
from ganglion.race.once import begun
from ganglion.race.order import Start
from ganglion.race.results import Race
from ganglion.race.runner import Racing
from ganglion.race.session import Job, Place
from ganglion.race.settings import Settings

PATIENCE = 5.0  # seconds for news
RETRIES = 3  # of a task whose worker is lost
POLL = 0.5  # seconds between looks at what the tasks post
QUIET = 20.0  # seconds without news, then we say what we wait for
CANCEL = 5.0  # seconds for a task to end by itself
HEAD = "node:__internal_head__"  # what Ray calls a bit of its first node
AMONG = " / "  # between what differs among nodes
Todo = list[tuple[Engine, int]]


class RayRacing(Racing):
    """A race on a cluster."""

    def __init__(self, settings: Settings, *given: Any, **more: Any) -> None:
        address_of(settings.on)  # refuses what is none
        super().__init__(settings, *given, **more)

    def run(self) -> Race:
        """Race; Ctrl-C cancels the tasks, keeps what is measured, and is handed on."""
        with connected(self._settings.on) as self._ray:
            self._check_resources()
            return super().run()

    def _check_resources(self) -> None:
        """Refuse what no node can do: its tasks would wait forever."""
        nodes = [one["Resources"] for one in self._ray.nodes() if one["Alive"]]
        most = int(max((one.get("CPU", 0) for one in nodes), default=0))
        wanted = max(one.threads for one in sweep.points(self._settings))
        if wanted > most:
            raise ValueError(
                f"--threads {wanted}: no node of the cluster has as many CPUs; the "
                f"largest has {most}."
            )
        if self._settings.device == "cuda" and not any("GPU" in one for one in nodes):
            raise ValueError("--device cuda: no node of the cluster has a GPU.")

    def _skip_missing(self) -> None:
        """Leave it to the nodes to say what they lack, if they have not yet."""
        out = {one.engine for one in self.race.skipped}
        self._present = [one for one in self._engines if one.name not in out]

    def _facts(self, remark: str) -> dict[str, Any]:
        """Return what is known before a node has answered."""
        known = {"ray": self._ray.__version__} | ({"data": remark} if remark else {})
        return {"machine": known}

    def _run_missing(self, place: Place) -> None:
        points = sweep.points(self._settings)
        plans = [(one, todo) for one in points if (todo := self._missing(one))]
        if not plans:
            return
        self._open(place)
        try:
            self._examine_all(place, plans)
            jobs = [job for one, todo in plans for job in self._jobs(one, place, todo)]
            self._run_jobs(jobs)
        finally:
            self._close()

    def _open(self, place: Place) -> None:
        ray = self._ray
        self._task = ray.remote(task())
        self._board = ray.remote(board()).options(**self._on_head()).remote()
        self._data = ray.put(packed(place.data))
        self._starts: dict[str, Any] = {}
        self._pending: dict[Any, Work] = {}
        self._begun: dict[str, int] = {}  # how often a task was begun
        self._doing: dict[str, str] = {}  # what a task that is begun does now
        self._asked: list[Any] = []  # news that were slow to come
        self._last = time.monotonic()  # when there were news

    def _on_head(self) -> dict[str, Any]:
        """Return options for an actor that should not be lost with a worker."""
        nodes = [one["Resources"] for one in self._ray.nodes() if one["Alive"]]
        there = {HEAD: 0.001} if any(HEAD in one for one in nodes) else {}
        return {"num_cpus": 0, "max_restarts": -1, "resources": there}

    def _wanted(self, todo: Todo) -> dict[str, Engine]:
        wanted = {engine.name: engine for engine, _ in todo}
        return {OURS: ENGINES[OURS]} | wanted if OURS not in wanted else wanted

    def _examine_all(self, place: Place, plans: list[tuple[Settings, Todo]]) -> None:
        """Do the lockstep of all points at once."""
        asked: dict[tuple[int, str], Work] = {}
        for settings, todo in plans:
            known = self._known(settings)
            for name, job in self._examinations(settings, place, todo).items():
                if name not in known:
                    asked.setdefault((id(known), name), Work("examine", job))
        for work, told in self._done(asked.values()):
            job = work.job
            self._known(job.settings)[job.engine.name] = _examined(job, told)

    def _take_exact_steps(self, asked: list[Job]) -> Iterator[tuple[str, Taken]]:
        for work, told in self._done(Work("exact", job) for job in asked):
            losses, why = told.get("taken") or ((), _lost(told))
            yield work.job.engine.name, (tuple(losses), why)

    def _ask_first_losses(self, job: Job, starts: dict[int, Start]) -> dict[int, float]:
        losses = {}
        works = (
            Work("first", replace(job, number=number, start=start))
            for number, start in starts.items()
        )
        for work, told in self._done(works):
            if "loss" in told:
                losses[work.job.number] = float(told["loss"])
            else:
                why = told.get("problem") or _lost(told)
                self._watch.says(job.engine.name, f"first losses: {why}")
        return losses

    def _run_jobs(self, jobs: Iterable[Job]) -> None:
        for work, told in self._done(Work("run", job) for job in jobs):
            job, name = work.job, work.job.engine.name
            if "run" in told:
                run = run_of(told["run"])
            else:
                lost = {"status": "failed", "reason": _lost(told)}
                run = begun(name, job.settings, job.number, **lost)
            run = replace(run, where=told.get("where", ""))
            self._add(run)
            self._watch.finished(run)
            self._show(name)

    def _done(self, asked: Iterable[Work]) -> Iterator[tuple[Work, dict[str, Any]]]:
        """Hand out tasks; yield the answers as they come."""
        for work in asked:
            self._pending[self._submit(work)] = work
        while self._pending:
            done, _ = self._ray.wait(list(self._pending), timeout=POLL)
            self._tell()
            for ref in done:
                work = self._pending.pop(ref)
                told = self._answer(ref, work)
                self._doing.pop(work.name, None)
                self._note(work, told)
                yield work, told

    def _submit(self, work: Work) -> Any:
        folder = work.job.start.folder
        if folder.name not in self._starts:
            self._starts[folder.name] = self._ray.put(packed(folder))
        task = self._task.options(
            name=work.name,
            num_cpus=work.job.settings.threads,
            num_gpus=1 if work.job.settings.device == "cuda" else 0,
            max_retries=RETRIES,
        )
        start = self._starts[folder.name]
        return task.remote(work.name, work.plain(), self._data, start, self._board)

    def _answer(self, ref: Any, work: Work) -> dict[str, Any]:
        """Return what a task came to; the loss of its workers is an answer, too."""
        try:
            return dict(self._ray.get(ref))
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [""]
            told = lines[-1] if "Traceback" in str(error) else lines[0]
            times = self._begun.get(work.name, 0)
            lost = f"lost with its worker ({times} times begun): "
            return {"lost": f"{lost}{type(error).__name__}: {told.strip()}"}

    def _tell(self) -> None:
        """Tell what the tasks posted since we last looked."""
        for name, where, text, is_news in self._news():
            work = next((one for one in self._pending.values() if one.name == name),
                        None)  # fmt: skip
            if work is None:
                continue
            self._last = time.monotonic()
            if not text:
                text = self._begins(work)
            engine = work.job.engine.name
            point = settings_text(work.job.settings.point)
            told = f"{text} ({point}) on {where}" if point else f"{text} on {where}"
            self._doing[name] = told
            if is_news:
                self._watch.says(engine, told)
            self._show(engine)
        if not self._doing and time.monotonic() - self._last > QUIET:
            self._last = time.monotonic()
            cores = min(one.job.settings.threads for one in self._pending.values())
            self._watch.says("", f"Waiting for a node with {cores} free CPUs ...")

    def _news(self) -> list[Any]:
        asked = self._asked or [self._board.take.remote()]
        ready, self._asked = self._ray.wait(asked, timeout=PATIENCE)
        try:
            return [one for ref in ready for one in self._ray.get(ref)]
        except self._ray.exceptions.RayError:
            return []  # the board is on its way to another node

    def _begins(self, work: Work) -> str:
        """Count how often a task is begun: Ray may begin it forever."""
        times = self._begun[work.name] = self._begun.get(work.name, 0) + 1
        if times > RETRIES + 1:
            refs = [ref for ref, one in self._pending.items() if one is work]
            self._ray.cancel(refs[0], force=True)
        again = " again (its worker was lost)" if times > 1 else ""
        return f"{work.what} begins{again}"

    def _show(self, engine: str) -> None:
        """Show all that an engine does now, and where."""
        works = self._pending.values()
        ours = [one.name for one in works if one.job.engine.name == engine]
        tasks = [self._doing[name] for name in ours if name in self._doing]
        self._watch.at_work(engine, tasks)

    def _note(self, work: Work, told: dict[str, Any]) -> None:
        """Keep what an answer says of its node, and the logs."""
        for name, text in told.get("logs", {}).items():
            folder = self._folder / "logs"
            folder.mkdir(exist_ok=True)
            files.write_file(folder / name, text.encode("utf-8", "replace"))
        known = dict(self.race.machine)
        facts = {k: v for k, v in told.get("facts", {}).items() if k != "load before"}
        for name, value in (facts | {"nodes": told.get("where")}).items():
            known[name] = also(known.get(name), value)
        versions = dict(self.race.versions)
        for name, value in told.get("versions", {}).items():
            versions[name] = also(versions.get(name), value)
        sizes = dict(self.race.install_sizes)
        if "size" in told:
            sizes[work.job.engine.name] = told["size"]
        self.race = replace(
            self.race, machine=known, versions=versions, install_sizes=sizes
        )

    def _close(self) -> None:
        """Cancel what still runs, gently first."""
        ray, left = self._ray, list(self._pending)
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
            for ref in left:
                ray.cancel(ref)
            if left:
                _, left = ray.wait(left, num_returns=len(left), timeout=CANCEL)
            for ref in left:
                ray.cancel(ref, force=True)
            ray.kill(self._board)
        self._pending = {}


def _lost(told: dict[str, Any]) -> str:
    """Say why there is no answer: its workers, or Ganglion on its node."""
    return str(told.get("lost") or told.get("absent"))


def _examined(job: Job, told: dict[str, Any]) -> Found:
    """Return what a task found out of an engine, which may be that it cannot be had."""
    if "found" in told:
        return Found(**told["found"])
    return Found(
        job.engine.name,
        problem=told.get("lost", ""),
        unavailable=told.get("absent", ""),
    )


def also(known: Any, value: Any) -> Any:
    """Return what is known of all nodes together, with one more.

    >>> also(None, 8), also(8, 8), also(8, 16), also("8 / 16", 16)
    (8, 8, '8 / 16', '8 / 16')
    """
    if value in (None, ""):
        return known
    if known in (None, ""):
        return value
    if str(value) in str(known).split(AMONG):
        return known
    return f"{known}{AMONG}{value}"
