"""The race itself: run after run, engine after engine, everything kept at once."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ganglion import recipes
from ganglion.race import facts, lockstep, session
from ganglion.race.lockstep import Found
from ganglion.race.order import Start, lay_out_data, lay_out_start
from ganglion.race.results import Epoch, Race, Run, Skipped, save
from ganglion.race.session import Place, Session
from ganglion.race.settings import Settings
from ganglion.race.watch import Watch
from ganglion.rivals import ENGINES, Engine, Unavailable
from ganglion.rivals.process import EngineError

OURS = "ganglion"
PAUSE = 0.5  # seconds between runs: threads of the engine before may still spin
SHORTEST_LIMIT = 120.0  # seconds
SLOWER_THAN_TRIED = 10.0  # times: a run that takes longer than this hangs


@dataclass(frozen=True)
class Job:
    """One run of one engine, with all that is needed to do it anywhere."""

    engine: Engine
    form: str
    number: int  # from 1
    settings: Settings
    place: Place
    start: Start
    first_loss: float  # what the first batch must give; NaN if nobody knows
    limit: float  # seconds


class Refused(EngineError):  # noqa: N818 (it did not fail: it computes something else)
    """An engine that computes something else than the others."""


def run_once(job: Job, watch: Watch) -> Run:
    """Run one engine once, in a process of its own; a failure is a result, too."""
    settings, name = job.settings, job.engine.name
    run = Run(name, job.number, settings.seed_of(job.number), "done", form=job.form)
    part = _Part(replace(run, started=now()))
    log = f"{name}-run-{job.number}"
    try:
        with session.opened(
            job.engine, job.form, settings, job.place, log, job.limit
        ) as asked:
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
    seconds = asked.load(job.engine)
    made = asked.prepare(job.place, job.start)
    parameters = int(made["parameters"])
    part.run = replace(
        part.run,
        import_seconds=seconds,
        prepare_seconds=float(made["seconds"]),
        parameters=parameters,
    )
    losses = asked.first_losses()
    part.run = replace(part.run, first_losses=losses)
    wanted = recipes.get(job.settings.recipe).parameters
    if parameters != wanted:
        raise Refused(lockstep.refused_for_parameters(parameters, wanted))
    if not math.isnan(job.first_loss) and not lockstep.agree(losses[0], job.first_loss):
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


class Racing:
    """One race: prepares everything, runs what is missing, keeps what is measured."""

    def __init__(
        self,
        settings: Settings,
        engines: Sequence[Engine],
        folder: Path,
        watch: Watch,
        command: str = "",
        before: Race | None = None,
    ) -> None:
        self._settings, self._engines, self._watch = settings, engines, watch
        self._folder, self._recipe = folder, recipes.get(settings.recipe)
        self.race = before or self._new(command)
        self._present: list[Engine] = []

    def _new(self, command: str) -> Race:
        settings, recipe = self._settings, self._recipe
        return Race(
            recipe=recipe.name,
            title=recipe.title,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            runs=settings.runs,
            threads=settings.threads,
            device=settings.device,
            seed=settings.seed,
            engines=settings.engines,
            command=command,
            commit=facts.commit(),
            published=[vars(one) for one in recipe.published],
            started=now(),
        )

    def run(self) -> Race:
        """Race; Ctrl-C keeps what is measured and is handed on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._skip_missing()
        with tempfile.TemporaryDirectory(prefix="ganglion-race-") as data:
            place = Place(Path(data), self._folder)
            self._prepare(place)
            self._keep(self.race)
            todo = self._missing()
            if todo:
                self._take_turns(place, todo)
        self._keep(replace(self.race, complete=True))
        return self.race

    def _keep(self, race: Race) -> None:
        self.race = race
        save(race, self._folder)

    def _skip_missing(self) -> None:
        """Sort the engines into those that are here and those that are not."""
        reasons = {one.name: one.missing() for one in self._engines}
        self._present = [one for one in self._engines if not reasons[one.name]]
        skipped = [Skipped(name, why) for name, why in reasons.items() if why]
        for one in skipped:
            self._watch.says(one.engine, f"left out: {one.reason}")
        self.race = replace(self.race, skipped=tuple(skipped))
        if not self._present:
            raise RuntimeError(
                "None of the engines is installed here: "
                + "; ".join(one.reason for one in skipped)
            )

    def _prepare(self, place: Place) -> None:
        self._rows, remark = lay_out_data(self._recipe, place.data)
        if remark:
            self._watch.says("", remark)
        if not self.race.machine:
            sizes = {one.name: facts.install_size(one) for one in self._present}
            self.race = replace(
                self.race,
                machine=facts.about_machine(remark),
                versions=facts.versions(self._present),
                install_sizes=sizes,
            )

    def _missing(self) -> list[tuple[Engine, int]]:
        """Return what is still to run, in the order in which it will.

        Every engine is first, in the middle, and last as often as the others.
        """
        have = {(one.engine, one.number) for one in self.race.finished}
        found = lockstep.kept(self._folder).values() if have else ()
        out = {one.engine for one in found if not one.races}
        todo = []
        for number in range(1, self._settings.runs + 1):
            first = (number - 1) % len(self._present)
            for engine in self._present[first:] + self._present[:first]:
                if (engine.name, number) not in have and engine.name not in out:
                    todo.append((engine, number))
        return todo

    def _take_turns(self, place: Place, todo: list[tuple[Engine, int]]) -> None:
        starts = {
            number: self._start(place, number)
            for number in sorted({1, *(number for _, number in todo)})
        }
        found = self._lockstep(place, starts[1], todo)
        firsts = self._first_losses(place, starts, found)
        for engine, number in todo:
            if not found[engine.name].races:
                continue
            time.sleep(PAUSE)
            job = Job(
                engine=engine,
                form=found[engine.name].form,
                number=number,
                settings=self._settings,
                place=place,
                start=starts[number],
                first_loss=firsts.get(number, math.nan),
                limit=self._settings.limit or self._limit(found[engine.name]),
            )
            run = run_once(job, self._watch)
            self._keep(replace(self.race, finished=(*self.race.finished, run)))

    def _start(self, place: Place, number: int) -> Start:
        settings = self._settings
        return lay_out_start(
            self._recipe,
            settings.seed_of(number),
            settings.epochs,
            self._rows,
            place.data / f"start-{number}",
        )

    def _limit(self, found: Found) -> float:
        steps = -(-self._rows // self._settings.batch_size) * self._settings.epochs
        return max(SHORTEST_LIMIT, SLOWER_THAN_TRIED * found.seconds(steps))

    def _lockstep(
        self, place: Place, start: Start, todo: list[tuple[Engine, int]]
    ) -> dict[str, Found]:
        """Examine the engines, and Ganglion in any case; note those that fell out."""
        found = lockstep.kept(self._folder) if self.race.finished else {}
        wanted = {engine.name: engine for engine, _ in todo}
        if OURS not in wanted and not ENGINES[OURS].missing():
            wanted = {OURS: ENGINES[OURS]} | wanted
        for name, engine in wanted.items():
            if name not in found:
                found[name] = lockstep.examine(
                    engine, self._settings, place, start, self._watch.says
                )
        lockstep.judge(list(found.values()), self._recipe.parameters, OURS)
        lockstep.keep(found.values(), self._folder)
        for name in wanted:
            if name in self._settings.engines and not found[name].races:
                self._leave_out(found[name])
            elif found[name].races:
                self._watch.says(name, f"agrees; {_forms(found[name])}")
        return found

    def _leave_out(self, found: Found) -> None:
        if found.unavailable:
            skipped = Skipped(found.engine, found.unavailable)
            self._watch.says(found.engine, f"left out: {found.unavailable}")
            self._keep(replace(self.race, skipped=(*self.race.skipped, skipped)))
            return
        run = Run(
            found.engine,
            1,
            self._settings.seed_of(1),
            "failed",
            reason=found.problem,
            log_end=found.log_end,
            form=found.form,
            first_losses=found.losses,
            parameters=found.parameters,
            started=now(),
        )
        self._watch.finished(run)
        self._keep(replace(self.race, finished=(*self.race.finished, run)))

    def _first_losses(
        self, place: Place, starts: dict[int, Start], found: dict[str, Found]
    ) -> dict[int, float]:
        """Return what the first batch of each run must give, by one that agrees."""
        good = [one for one in found.values() if one.races]
        if not good:
            return {}
        judge = next((one for one in good if one.engine == OURS), good[0])
        losses = {1: judge.losses[0]}
        others = {number: one for number, one in starts.items() if number != 1}
        if not others:
            return losses
        known = {one.name: one for one in self._engines} | (
            {} if OURS in self._settings.engines else {OURS: ENGINES[OURS]}
        )
        engine = known[judge.engine]
        self._watch.says(engine.name, "first losses of the other runs")
        limit = max(SHORTEST_LIMIT, 10 * judge.start_seconds * len(others))
        log = f"{engine.name}-lockstep-others"
        try:
            with session.opened(
                engine, judge.form, self._settings, place, log, limit
            ) as asked:
                asked.load(engine)
                for number, start in others.items():
                    asked.prepare(place, start)
                    losses[number] = asked.first_losses(1)[0]
        except EngineError as error:
            self._watch.says(engine.name, f"first losses: {error.reason}")
        return losses


def _forms(found: Found) -> str:
    if len(found.tried) < 2:
        return f"{1000 * found.step_seconds:.3g} ms a step"
    return "; ".join(
        f"{form}: {what}{', chosen' if form == found.form else ''}"
        for form, what in found.tried.items()
    )


def command_line(settings: Settings, folder: Any) -> str:
    """Return the command that repeats a race."""
    parts = ["ganglion race", settings.recipe]
    parts += ["--engines", ",".join(settings.engines), f"--runs {settings.runs}"]
    parts += [f"--epochs {settings.epochs}", f"--batch-size {settings.batch_size}"]
    parts += [f"--threads {settings.threads}", f"--device {settings.device}"]
    return " ".join([*parts, f"--seed {settings.seed}", f"--out {folder}"])
