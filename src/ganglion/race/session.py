"""One engine's process during a race: what it is asked, and within which time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ganglion.race.engines import Engine, Unavailable
from ganglion.race.engines.process import LIMIT, EngineError, Process
from ganglion.race.order import Start
from ganglion.race.settings import Settings

FIRST_STEPS = 20


@dataclass(frozen=True)
class Place:
    """Where a race finds and leaves things: data for the workers, and its results."""

    data: Path
    results: Path

    def log(self, name: str) -> Path:
        """Return the file of a log, its folder made."""
        folder = self.results / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name.replace(' ', '-')}.log"


@dataclass(frozen=True)
class Job:
    """One engine at work, with all that is needed to do it anywhere."""

    engine: Engine
    settings: Settings
    place: Place
    start: Start
    form: str = ""
    number: int = 1  # of the run
    limit: float = LIMIT  # seconds
    first_loss: float = math.nan  # what the first batch must give; NaN: nobody knows


class Session:
    """Asks one worker; all answers together have a limit of seconds."""

    def __init__(self, process: Process, job: Job) -> None:
        self.process, self._job = process, job
        self._end = time.monotonic() + job.limit

    def ask(self, do: str, wanted: str, **given: Any) -> Any:
        """Return one part of an answer; an answer without it is an error."""
        left = self._end - time.monotonic()
        try:
            answer = self.process.ask(do, max(left, 0.1), **given)
        except EngineError as error:
            if "no answer within" not in error.reason:
                raise
            raise EngineError(
                f"did not finish within {self._job.limit:.3g} s (while in {do!r})",
                error.log_end,
            ) from None
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        if wanted and wanted not in answer:
            raise self.odd(do, answer)
        return answer[wanted] if wanted else answer

    def odd(self, do: str, answer: Any) -> EngineError:
        """Return the error for an answer that makes no sense."""
        return EngineError(
            f"answered {do!r} with {str(answer)[:200]}", self.process.log_end()
        )

    def load(self) -> float:
        """Import the engine; return the seconds."""
        engine, memory = self._job.engine, self._job.settings.memory
        modules = list(engine.imports or engine.packages)
        return float(self.ask("load", "seconds", modules=modules, memory=memory))

    def prepare(self, start: Start | None = None) -> dict[str, Any]:
        """Build, compile and warm up; return seconds and parameters."""
        settings, start = self._job.settings, start or self._job.start
        return dict(
            self.ask(
                "prepare",
                "",
                recipe=asdict(settings.what) if settings.made else settings.recipe,
                folder=str(self._job.place.data),
                batch_size=settings.batch_size,
                threads=settings.threads,
                device=settings.device,
                precision=settings.precision,
                start=str(start.folder),
                order_seed=start.order_seed,
                optimizer=settings.optimizer,
                dtype=settings.dtype,
            )
        )

    def first_losses(self, steps: int = FIRST_STEPS) -> tuple[float, ...]:
        """Return the losses of the first steps."""
        losses = self.ask("first", "losses", steps=steps)
        try:
            return tuple(float(one) for one in losses)
        except (TypeError, ValueError):
            raise self.odd("first", losses) from None


@contextmanager
def opened(job: Job, what: str) -> Iterator[Session]:
    """Start a worker and end it at the end, whatever happens; say what for.

    Ganglion keeps compiled programs on disk; here it is given an empty folder each
    time, so that it compiles in front of everybody.
    """
    log = f"{job.engine.name}-{what}{job.settings.label}"
    home = job.place.data / "homes" / log.replace(" ", "-")
    variables = job.engine.variables(job.form) | {"GANGLION_HOME": str(home)}
    process = Process(
        job.engine.module,
        job.form,
        job.settings.threads,
        job.place.log(log),
        variables,
        job.settings.device,
    )
    try:
        yield Session(process, job)
    finally:
        process.end()
