"""One run of one engine: ready, lockstep once more, epoch after epoch, a record."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ganglion.race import lockstep, session
from ganglion.race.engines import Unavailable
from ganglion.race.engines.process import EngineError
from ganglion.race.results import Epoch, Run
from ganglion.race.session import Job, Session
from ganglion.race.settings import Settings
from ganglion.race.watch import Watch


class Refused(EngineError):  # noqa: N818 (it did not fail: it computes something else)
    """An engine that computes something else than the others."""


def begun(engine: str, settings: Settings, number: int, **more: Any) -> Run:
    """Return the record of a run that begins now, or that cannot."""
    given = {"status": "done", "started": now(), "settings": settings.point} | more
    return Run(engine, number, settings.seed_of(number), **given)


def run_once(job: Job, watch: Watch) -> Run:
    """Run one engine once, in a process of its own; a failure is a result, too."""
    settings, name = job.settings, job.engine.name
    part = _Part(begun(name, settings, job.number, form=job.form))
    try:
        with session.opened(job, f"run-{job.number}") as asked:
            _get_ready(job, asked, part, watch)
            for number in range(1, settings.epochs + 1):
                watch.training(name, job.number, number, settings.epochs)
                part.add(_epoch(asked, number))
                watch.tested(name, job.number, part.run.epochs[-1])
            memory = asked.ask("memory", "bytes")
            part.run = replace(part.run, peak_memory=int(memory))
    except (EngineError, Unavailable) as error:
        part.fail(error)
    watch.finished(part.run)
    return part.run


class _Part:
    """A run as far as it has come."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def add(self, epoch: Epoch) -> None:
        run = self.run
        self.run = replace(
            run,
            epochs=(*run.epochs, epoch),
            train_seconds=run.train_seconds + epoch.train_seconds,
            test_seconds=run.test_seconds + epoch.test_seconds,
        )

    def fail(self, error: Exception) -> None:
        reason = getattr(error, "reason", str(error))
        log_end = getattr(error, "log_end", "")
        self.run = replace(self.run, status="failed", reason=reason, log_end=log_end)


def _get_ready(job: Job, asked: Session, part: _Part, watch: Watch) -> None:
    """Import, prepare, and take the first steps; refuse what computes something else.

    The training begins anew afterwards.
    """
    watch.says(job.engine.name, f"run {job.number}: getting ready")
    seconds = asked.load()
    made = asked.prepare()
    parameters = int(made["parameters"])
    part.run = replace(
        part.run,
        import_seconds=seconds,
        prepare_seconds=float(made["seconds"]),
        parameters=parameters,
    )
    losses = asked.first_losses()
    part.run = replace(part.run, first_losses=losses)
    wanted = job.settings.what.parameters
    if parameters != wanted:
        raise Refused(lockstep.refused_for_parameters(parameters, wanted))
    known = not math.isnan(job.first_loss)
    precision = job.settings.precision
    if known and not lockstep.agree(losses[0], job.first_loss, precision):
        raise Refused(lockstep.refused_for_loss(losses[0], job.first_loss))


def _epoch(asked: Session, number: int) -> Epoch:
    answer = asked.ask("epoch", "", number=number)
    try:
        return Epoch(number, **{key: float(value) for key, value in answer.items()})
    except (TypeError, ValueError):
        raise asked.odd("epoch", answer) from None


def now() -> str:
    """Return the time in UTC, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
