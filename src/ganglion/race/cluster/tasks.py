"""The tasks of a race on a cluster: what they are asked, and what travels to a node."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ganglion.race import machine
from ganglion.race.figures import settings_text
from ganglion.race.session import Job

TRAVELLING = ("form", "number", "limit", "first_loss")  # of a job, as they are


@dataclass(frozen=True)
class Work:
    """One task: what its node is asked to do."""

    do: str
    job: Job

    @property
    def name(self) -> str:
        """The name among all tasks of a race, for people, too."""
        point = settings_text(self.job.settings.point)
        name = f"{self.job.engine.name}, {self.what}"
        return f"{name} ({point})" if point else name

    @property
    def what(self) -> str:
        """What is done, in a word or two."""
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
            "more": {name: getattr(job, name) for name in TRAVELLING},
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
            told = f"on {where}, Ganglion cannot be imported ({error}): "
            return {"where": where, "absent": f"{told}pip install ganglion-nn"}
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
