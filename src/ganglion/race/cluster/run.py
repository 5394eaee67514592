"""A race as tasks of a Ray cluster: a run of an engine is a task.

A task has its cores reserved, and is done again elsewhere when its worker is lost. The
data travels to a node once. This process alone writes results: after each finished run,
as in a race on one machine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ganglion import files
from ganglion.race import machine
from ganglion.race.cluster.node import packed, run_of
from ganglion.race.engines import ENGINES, Engine
from ganglion.race.figures import OURS, settings_text
from ganglion.race.lockstep import Examined
from ganglion.race.results import Race
from ganglion.race.run_engine import Folders, Job, Losses, Start, new_run
from ganglion.race.run_race import RaceRunner, Todo
from ganglion.race.settings import Settings, points
from ganglion.system.ray_cluster import address_of, connected

PATIENCE = 5.0  # seconds for news
RETRIES = 3  # of a task whose worker is lost
POLL = 0.5  # seconds between looks at what the tasks post
QUIET = 20.0  # seconds without news until a message names the task
CANCEL = 5.0  # seconds for a task to end by itself
HEAD = "node:__internal_head__"  # what Ray calls a bit of its first node
AMONG = " / "  # between what differs among nodes
_PLAIN = ("form", "number", "limit", "first_loss")  # fields of a job, as they are


@dataclass(frozen=True)
class Work:
    """A task for a node."""

    do: str
    job: Job

    @property
    def name(self) -> str:
        """The name among all tasks of a race, for people, too."""
        point = settings_text(self.job.settings.point)
        name = f"{self.job.engine.name}, {self.description}"
        return f"{name} ({point})" if point else name

    @property
    def description(self) -> str:
        """The kind of work, in a word or two."""
        return {
            "examine": "lockstep",
            "exact": "lockstep in float64",
            "first": f"first loss of run {self.job.number}",
            "run": f"run {self.job.number}",
        }[self.do]

    def plain(self) -> dict[str, Any]:
        """Return what travels: all but the folders, which are others on a node."""
        job = self.job
        return {
            "do": self.do,
            "engine": asdict(job.engine),
            "settings": asdict(job.settings),
            "order_seed": job.start.order_seed,
            "more": {name: getattr(job, name) for name in _PLAIN},
            "version": machine.version("ganglion"),
        }


def task() -> Any:
    """Return the function of a task; it is made here to travel whole.

    A node without Ganglion could not import it, and could not say so.
    """

    def perform(name: str, work: Any, data: Any, start: Any, post_to: Any) -> Any:
        import importlib
        import socket

        ray = importlib.import_module("ray")
        node = ray.get_runtime_context().get_node_id()[:6]
        where = f"{socket.gethostname()}-{node}"

        def post(text: str, is_news: bool = True) -> None:
            post_to.post.remote((name, where, text, is_news))

        post("")
        try:
            performs = importlib.import_module("ganglion.race.cluster.node")
        except ImportError as error:
            reason = f"on {where}, Ganglion cannot be imported ({error}): "
            return {"where": where, "absent": f"{reason}pip install ganglion-nn"}
        return performs.perform(work, data, start, node, post)

    return perform


def board() -> Any:
    """Return the class that keeps what tasks post; it travels whole, too."""

    class Board:
        def __init__(self) -> None:
            self._posted: list[Any] = []

        def post(self, news: Any) -> None:
            self._posted.append(news)

        def take(self) -> list[Any]:
            taken, self._posted = self._posted, []
            return taken

    return Board


class RayRunner(RaceRunner):
    """A race on a cluster."""

    def __init__(self, settings: Settings, *args: Any, **kwargs: Any) -> None:
        address_of(settings.on)  # refuses what is none
        super().__init__(settings, *args, **kwargs)

    def run(self) -> Race:
        """Race; Ctrl-C cancels the tasks, keeps the results so far, and propagates."""
        with connected(self._settings.on) as self._ray:
            self._check_resources()
            return super().run()

    def _check_resources(self) -> None:
        """Refuse what no node can do: its tasks would wait forever."""
        nodes = self._resources()
        most = int(max((node.get("CPU", 0) for node in nodes), default=0))
        wanted = max(point.threads for point in points(self._settings))
        if wanted > most:
            raise ValueError(
                f"--threads {wanted}: no node of the cluster has as many CPUs; the "
                f"largest has {most}."
            )
        if self._settings.device == "cuda" and not any("GPU" in node for node in nodes):
            raise ValueError("--device cuda: no node of the cluster has a GPU.")

    def _skip_missing(self) -> None:
        """Leave it to the nodes to say what they lack, if they have not yet."""
        out = {skip.engine for skip in self.race.skipped}
        self._present = [engine for engine in self._engines if engine.name not in out]

    def _facts(self, remark: str) -> dict[str, Any]:
        """Return what is known before a node has answered."""
        known = {"ray": self._ray.__version__} | ({"data": remark} if remark else {})
        return {"machine": known}

    def _run_missing(self, folders: Folders) -> None:
        plans = [
            (point, todo)
            for point in points(self._settings)
            if (todo := self._missing(point))
        ]
        if not plans:
            return
        self._open(folders)
        try:
            self._examine_all(folders, plans)
            jobs = [
                job for plan, todo in plans for job in self._jobs(plan, folders, todo)
            ]
            self._run_jobs(jobs)
        finally:
            self._close()

    def _open(self, folders: Folders) -> None:
        ray = self._ray
        self._task = ray.remote(task())
        self._board = ray.remote(board()).options(**self._on_head()).remote()
        self._data = ray.put(packed(folders.data))
        self._sent_starts: dict[str, Any] = {}
        self._pending: dict[Any, Work] = {}
        self._begun: dict[str, int] = {}  # how often a task was begun
        self._doing: dict[str, str] = {}  # what a task that is begun does now
        self._requests: list[Any] = []  # for news that are slow to come
        self._last = time.monotonic()  # when there were news

    def _on_head(self) -> dict[str, Any]:
        """Return options for an actor that should not be lost with a worker."""
        has_head = any(HEAD in node for node in self._resources())
        resources = {HEAD: 0.001} if has_head else {}
        return {"num_cpus": 0, "max_restarts": -1, "resources": resources}

    def _resources(self) -> list[dict[str, float]]:
        """Return the resources of each node that is up."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _examinees(self, todo: Todo) -> dict[str, Engine]:
        return {OURS: ENGINES[OURS]} | {engine.name: engine for engine, _ in todo}

    def _examine_all(
        self, folders: Folders, plans: list[tuple[Settings, Todo]]
    ) -> None:
        """Run the lockstep of all points at once."""
        works: dict[tuple[int, str], Work] = {}
        for settings, todo in plans:
            known = self._known(settings)
            for name, job in self._examinations(settings, folders, todo).items():
                if name not in known:
                    works.setdefault((id(known), name), Work("examine", job))
        for work, answer in self._done(works.values()):
            job = work.job
            self._known(job.settings)[job.engine.name] = _examined(job, answer)

    def _take_exact_steps(self, jobs: list[Job]) -> Iterator[tuple[str, Losses]]:
        for work, answer in self._done(Work("exact", job) for job in jobs):
            yield work.job.engine.name, _losses(answer)

    def _ask_first_losses(self, job: Job, starts: dict[int, Start]) -> dict[int, float]:
        firsts = {}
        works = (
            Work("first", replace(job, number=number, start=start))
            for number, start in starts.items()
        )
        for work, answer in self._done(works):
            losses, reason = _losses(answer)
            if losses:
                firsts[work.job.number] = losses[0]
            else:
                self._watch.says(job.engine.name, f"first losses: {reason}")
        return firsts

    def _run_jobs(self, jobs: Iterable[Job]) -> None:
        for work, answer in self._done(Work("run", job) for job in jobs):
            job, name = work.job, work.job.engine.name
            if "run" in answer:
                run = run_of(answer["run"])
            else:
                lost = {"status": "failed", "reason": _lost(answer)}
                run = new_run(name, job.settings, job.number, **lost)
            run = replace(run, where=answer.get("where", ""))
            self._add(run)
            self._watch.finished(run)
            self._show(name)

    def _done(self, works: Iterable[Work]) -> Iterator[tuple[Work, dict[str, Any]]]:
        """Distribute tasks; yield the answers as they come."""
        for work in works:
            self._pending[self._submit(work)] = work
        while self._pending:
            done, _ = self._ray.wait(list(self._pending), timeout=POLL)
            self._tell()
            for ref in done:
                work = self._pending.pop(ref)
                answer = self._answer(ref, work)
                self._doing.pop(work.name, None)
                self._note(work, answer)
                yield work, answer

    def _submit(self, work: Work) -> Any:
        folder = work.job.start.folder
        if folder.name not in self._sent_starts:
            self._sent_starts[folder.name] = self._ray.put(packed(folder))
        task = self._task.options(
            name=work.name,
            num_cpus=work.job.settings.threads,
            num_gpus=1 if work.job.settings.device == "cuda" else 0,
            max_retries=RETRIES,
        )
        start = self._sent_starts[folder.name]
        return task.remote(work.name, work.plain(), self._data, start, self._board)

    def _answer(self, ref: Any, work: Work) -> dict[str, Any]:
        """Return the result of a task; the loss of its workers is one, too."""
        try:
            return dict(self._ray.get(ref))
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [""]
            line = lines[-1] if "Traceback" in str(error) else lines[0]
            times = self._begun.get(work.name, 0)
            lost = f"lost with its worker ({times} times begun): "
            return {"lost": f"{lost}{type(error).__name__}: {line.strip()}"}

    def _tell(self) -> None:
        """Report what the tasks have posted since the last call."""
        for name, where, text, is_news in self._news():
            work = {work.name: work for work in self._pending.values()}.get(name)
            if work is None:
                continue
            self._last = time.monotonic()
            if not text:
                text = self._begins(work)
            engine = work.job.engine.name
            point = settings_text(work.job.settings.point)
            doing = f"{text} ({point}) on {where}" if point else f"{text} on {where}"
            self._doing[name] = doing
            if is_news:
                self._watch.says(engine, doing)
            self._show(engine)
        if not self._doing and time.monotonic() - self._last > QUIET:
            self._last = time.monotonic()
            cores = min(work.job.settings.threads for work in self._pending.values())
            self._watch.says("", f"Waiting for a node with {cores} free CPUs ...")

    def _news(self) -> list[Any]:
        requests = self._requests or [self._board.take.remote()]
        ready, self._requests = self._ray.wait(requests, timeout=PATIENCE)
        try:
            return [news for ref in ready for news in self._ray.get(ref)]
        except self._ray.exceptions.RayError:
            return []  # the board is on its way to another node

    def _begins(self, work: Work) -> str:
        """Count how often a task is begun: Ray may begin it forever."""
        times = self._begun[work.name] = self._begun.get(work.name, 0) + 1
        if times > RETRIES + 1:
            refs = [ref for ref, pending in self._pending.items() if pending is work]
            self._ray.cancel(refs[0], force=True)
        again = " again (its worker was lost)" if times > 1 else ""
        return f"{work.description} begins{again}"

    def _show(self, engine: str) -> None:
        """Show what an engine is doing, and where."""
        works = [w for w in self._pending.values() if w.job.engine.name == engine]
        tasks = [self._doing[work.name] for work in works if work.name in self._doing]
        self._watch.at_work(engine, tasks)

    def _note(self, work: Work, answer: dict[str, Any]) -> None:
        """Keep an answer's information on its node, and the logs."""
        folder = self._folder / "logs"
        for name, text in answer.get("logs", {}).items():
            folder.mkdir(exist_ok=True)
            files.write_file(folder / name, text.encode("utf-8", "replace"))
        facts = answer.get("facts", {}) | {"nodes": answer.get("where")}
        facts.pop(machine.LOAD, None)
        sizes = dict(self.race.install_sizes)
        if "size" in answer:
            sizes[work.job.engine.name] = answer["size"]
        self.race = replace(
            self.race,
            machine=_merged(self.race.machine, facts),
            versions=_merged(self.race.versions, answer.get("versions", {})),
            install_sizes=sizes,
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


def _lost(answer: dict[str, Any]) -> str:
    """Return why there is no answer: its workers, or Ganglion on its node."""
    return str(answer.get("lost") or answer.get("absent"))


def _losses(answer: dict[str, Any]) -> Losses:
    losses, reason = answer.get("losses") or ((), _lost(answer))
    return tuple(losses), reason


def _examined(job: Job, answer: dict[str, Any]) -> Examined:
    """Return what a task learned of an engine, which may be that it is not there."""
    if "examined" in answer:
        return Examined(**answer["examined"])
    return Examined(
        job.engine.name,
        problem=answer.get("lost", ""),
        unavailable=answer.get("absent", ""),
    )


def _merged(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return known | {name: also(known.get(name), value) for name, value in more.items()}


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
