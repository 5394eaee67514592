"""The race itself: run after run, engine after engine, everything kept at once."""

from __future__ import annotations

import math
import shlex
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ganglion.race import exact, facts, lockstep, session, sweep
from ganglion.race.engines import ENGINES, Engine
from ganglion.race.engines.process import LIMIT, EngineError
from ganglion.race.figures import OURS, settings_text
from ganglion.race.lockstep import Found
from ganglion.race.once import begun, now, run_once
from ganglion.race.order import Start, lay_out_data, lay_out_start
from ganglion.race.results import Race, Run, Skipped, save
from ganglion.race.session import Job, Place
from ganglion.race.settings import Settings
from ganglion.race.watch import Watch

PAUSE = 0.5  # seconds between runs: threads of the engine before may still spin
SHORTEST_LIMIT = 120.0  # seconds
SLOWER_THAN_TRIED = 10.0  # times: a run that takes longer than this hangs


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
        self._folder, self._recipe = folder, settings.what
        self.race = self._of(before) if before else self._new(command)
        self._present: list[Engine] = []
        self._absent: list[Engine] = []  # raced before, and are not here now
        self._found: dict[str, dict[str, Found]] = {}  # by the file it is kept in
        self._laid_out: dict[Path, Start] = {}
        # By batch size, precision and seed.
        self._firsts: dict[tuple[int, str, int], float] = {}

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
            sweep=settings.sweep,
            on=settings.on,
            images=recipe.source if settings.made else {},
            limit=settings.limit or 0.0,
            memory=settings.memory or 0,
        )

    def _of(self, before: Race) -> Race:
        """Return a race that goes on; where nothing was run, it begins anew."""
        limit, memory = self._settings.limit or 0.0, self._settings.memory or 0
        race = replace(before, limit=limit, memory=memory, on=self._settings.on)
        if not race.finished:
            return replace(race, machine={}, skipped=())
        # One that is out at a point of a sweep alone is asked again there.
        raced = {run.engine for run in race.finished if run.done}
        left_out = [skip for skip in race.skipped if skip.engine not in raced]
        return replace(race, skipped=tuple(left_out))

    def run(self) -> Race:
        """Race; Ctrl-C keeps what is measured and is handed on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._skip_missing()
        with tempfile.TemporaryDirectory(prefix="ganglion-race-") as data:
            place = Place(Path(data), self._folder)
            self._prepare(place)
            self._keep(self.race)
            self._run_missing(place)
        points = sweep.points(self._settings)
        awaited = any(self._missing(point, self._absent) for point in points)
        self._keep(replace(self.race, complete=not awaited))
        return self.race

    def _run_missing(self, place: Place) -> None:
        for settings in sweep.points(self._settings):
            todo = self._missing(settings)
            if not todo:
                continue
            if settings.point:
                self._watch.says("", settings_text(settings.point))
            for job in self._jobs(settings, place, todo):
                time.sleep(PAUSE)
                self._add(run_once(job, self._watch))

    def _add(self, run: Run) -> None:
        self._keep(replace(self.race, finished=(*self.race.finished, run)))

    def _keep(self, race: Race) -> None:
        self.race = race
        save(race, self._folder)

    def _skip_missing(self) -> None:
        """Sort the engines into those that are here and those that are not.

        A race that goes on keeps the engines that raced: who was left out at first
        stays out, and who is not here any more keeps its runs, the rest are awaited.
        """
        skipped = {one.engine: one for one in self.race.skipped}
        reasons = {}
        for engine in self._engines:
            name, why = engine.name, engine.missing()
            if name in skipped:
                continue
            if not why:
                self._present.append(engine)
            elif self.race.finished:
                self._absent.append(engine)
                self._watch.says(name, f"raced before, and is not here now: {why}")
            else:
                skipped[name] = Skipped(name, why)
            reasons[name] = why or ""
        for skip in skipped.values():
            self._watch.says(skip.engine, f"left out: {skip.reason}")
        self.race = replace(self.race, skipped=tuple(skipped.values()))
        if not self._present:
            told = "; ".join(why for why in reasons.values() if why)
            raise RuntimeError(f"None of the engines is installed here: {told}")

    def _prepare(self, place: Place) -> None:
        self._rows, remark = lay_out_data(self._recipe, place.data)
        if remark:
            self._watch.says("", remark)
        if not self.race.machine:
            self.race = replace(self.race, **self._facts(remark))
        elif not self._settings.on:
            self.race = replace(self.race, machine=facts.gone_on(self.race.machine))
        if told := facts.busy(self.race.machine, self._settings.threads):
            self._watch.says("", told)

    def _facts(self, remark: str) -> dict[str, Any]:
        """Return what to know of where the race is run."""
        return {
            "machine": facts.about_machine(remark),
            "versions": facts.versions(self._present),
            "install_sizes": {
                one.name: facts.install_size(one, self._settings.device)
                for one in self._present
            },
        }

    def _missing(
        self, settings: Settings, engines: Sequence[Engine] | None = None
    ) -> list[tuple[Engine, int]]:
        """Return what is still to run at a point, in the order in which it will.

        Every engine is first, in the middle, and last as often as the others. Asked
        are those that are here, or the ones that are named.
        """
        ring = list(self._present if engines is None else engines)
        finished = [one for one in self.race.finished if one.settings == settings.point]
        have = {(one.engine, one.number) for one in finished}
        found = self._known(settings).values() if have else ()
        out = {one.engine for one in found if not one.races}
        todo = []
        for number in range(1, settings.runs + 1):
            first = (number - 1) % max(len(ring), 1)
            for engine in ring[first:] + ring[:first]:
                if (engine.name, number) not in have and engine.name not in out:
                    todo.append((engine, number))
        return todo

    def _jobs(
        self, settings: Settings, place: Place, todo: list[tuple[Engine, int]]
    ) -> list[Job]:
        """Make sure that all compute the same; return the runs of those who do."""
        starts = {
            number: self._start(settings, place, number)
            for number in sorted({number for _, number in todo})
        }
        found = self._lockstep(settings, place, todo)
        firsts = self._first_losses(settings, place, starts, found)
        return [
            Job(
                engine=engine,
                form=found[engine.name].form,
                number=number,
                settings=settings,
                place=place,
                start=starts[number],
                first_loss=firsts.get(number, math.nan),
                limit=settings.limit or self._limit(settings, found[engine.name]),
            )
            for engine, number in todo
            if found[engine.name].races
        ]

    def _start(self, settings: Settings, place: Place, number: int) -> Start:
        seed, epochs = settings.seed_of(number), settings.epochs
        folder = place.data / f"start-{seed}-{epochs}"
        if folder not in self._laid_out:
            made = lay_out_start(self._recipe, seed, epochs, self._rows, folder)
            self._laid_out[folder] = made
        return self._laid_out[folder]

    def _limit(self, settings: Settings, found: Found) -> float:
        steps = -(-self._rows // settings.batch_size) * settings.epochs
        return max(SHORTEST_LIMIT, SLOWER_THAN_TRIED * found.seconds(steps))

    def _known(self, settings: Settings) -> dict[str, Found]:
        """Return what is known of the engines at a point, and is to be added to."""
        name = lockstep.name_of_file(settings)
        if name not in self._found:
            before = self.race.finished
            self._found[name] = lockstep.kept(self._folder, name) if before else {}
        return self._found[name]

    def _wanted(self, todo: list[tuple[Engine, int]]) -> dict[str, Engine]:
        """Return the engines of the lockstep: Ganglion is examined in any case."""
        wanted = {engine.name: engine for engine, _ in todo}
        if OURS not in wanted and not ENGINES[OURS].missing():
            wanted = {OURS: ENGINES[OURS]} | wanted
        return wanted

    def _lockstep(
        self, settings: Settings, place: Place, todo: list[tuple[Engine, int]]
    ) -> dict[str, Found]:
        """Examine the engines; note those that fell out."""
        found, jobs = self._known(settings), self._examinations(settings, place, todo)
        new = [name for name in jobs if name not in found]
        for name in new:
            found[name] = lockstep.examine(jobs[name], self._watch.says)
        every, precision = list(found.values()), settings.precision
        lockstep.judge(every, self._recipe.parameters, precision)
        self._compare_exactly(self._base(settings), found, jobs)
        lockstep.keep(found.values(), self._folder, lockstep.name_of_file(settings))
        for name in jobs:
            if name in settings.engines and not found[name].races:
                self._leave_out(settings, found[name])
            elif found[name].races and name in new:
                self._watch.says(name, f"agrees; {_forms(found[name])}")
        return found

    def _examinations(
        self, settings: Settings, place: Place, todo: list[tuple[Engine, int]]
    ) -> dict[str, Job]:
        """Return the jobs of a lockstep, by engine."""
        base = self._base(settings)
        start, limit = self._start(base, place, 1), base.limit or LIMIT
        return {
            name: Job(engine, base, place, start, limit=limit)
            for name, engine in self._wanted(todo).items()
        }

    def _base(self, settings: Settings) -> Settings:
        """Return the first point with the same lockstep: all are examined there."""
        name = lockstep.name_of_file(settings)
        points = sweep.points(self._settings)
        return next(one for one in points if lockstep.name_of_file(one) == name)

    def _compare_exactly(
        self, base: Settings, found: dict[str, Found], jobs: dict[str, Job]
    ) -> None:
        """Compare the first steps in float64 where they part in float32."""
        asked = [
            replace(jobs[one.engine], form=one.form)
            for one in exact.due(found.values())
            if one.engine in jobs
        ]
        for name, (losses, why) in self._take_exact_steps(asked):
            found[name].exact, found[name].inexact = losses, why
            if why:
                self._watch.says(name, f"took no steps in {exact.DTYPE}: {why}")
        seen = exact.judge(found.values(), base)
        if seen is not None:
            others = [x for x in self.race.exact_steps if x.settings != seen.settings]
            self.race = replace(self.race, exact_steps=(*others, seen))

    def _take_exact_steps(self, asked: list[Job]) -> Iterable[tuple[str, exact.Taken]]:
        for job in asked:
            yield job.engine.name, exact.take_steps(job, self._watch.says)

    def _leave_out(self, settings: Settings, found: Found) -> None:
        if found.unavailable:
            if found.engine not in {one.engine for one in self.race.skipped}:
                skipped = Skipped(found.engine, found.unavailable)
                self._watch.says(found.engine, f"left out: {found.unavailable}")
                self._keep(replace(self.race, skipped=(*self.race.skipped, skipped)))
            return
        run = begun(
            found.engine,
            settings,
            1,
            status="failed",
            reason=found.problem,
            log_end=found.log_end,
            form=found.form,
            first_losses=found.losses,
            parameters=found.parameters,
        )
        self._watch.finished(run)
        self._add(run)

    def _first_losses(
        self,
        settings: Settings,
        place: Place,
        starts: dict[int, Start],
        found: dict[str, Found],
    ) -> dict[int, float]:
        """Return what the first batch of each run must give, by one that agrees."""
        good = [one for one in found.values() if one.races]
        if not good:
            return {}
        judge = next((one for one in good if one.engine == OURS), good[0])
        which = settings.batch_size, settings.precision
        self._firsts[*which, judge.seed] = judge.losses[0]
        keys = {n: (*which, settings.seed_of(n)) for n in starts}
        others = {n: one for n, one in starts.items() if keys[n] not in self._firsts}
        if others:
            known = {OURS: ENGINES[OURS]} | {one.name: one for one in self._engines}
            limit = max(SHORTEST_LIMIT, 10 * judge.start_seconds * len(others))
            start = next(iter(others.values()))
            engine = known[judge.engine]
            job = Job(engine, settings, place, start, judge.form, limit=limit)
            self._watch.says(engine.name, "first losses of the other runs")
            losses = self._ask_first_losses(job, others)
            self._firsts |= {keys[n]: loss for n, loss in losses.items()}
        return {n: self._firsts[key] for n, key in keys.items() if key in self._firsts}

    def _ask_first_losses(self, job: Job, starts: dict[int, Start]) -> dict[int, float]:
        """Return the loss of the first batch from each of some starts."""
        losses: dict[int, float] = {}
        try:
            with session.opened(job, "lockstep-others") as asked:
                asked.load()
                for number, start in starts.items():
                    asked.prepare(start)
                    losses[number] = asked.first_losses(1)[0]
        except EngineError as error:
            self._watch.says(job.engine.name, f"first losses: {error.reason}")
        return losses


def _forms(found: Found) -> str:
    if len(found.tried) < 2:
        return f"{1000 * found.step_seconds:.3g} ms a step"
    return "; ".join(
        f"{form}: {what}{', chosen' if form == found.form else ''}"
        for form, what in found.tried.items()
    )


def _what(settings: Settings) -> list[str]:
    """Return the recipe, or the folder of images, in the words of the command line."""
    if settings.made is None:
        return [settings.recipe]
    source = settings.made.source
    rows, columns = source["form"]["size"]
    held = [] if source["test"] is None else [f"--test {source['test']:g}"]
    size = f"{rows}" if rows == columns else f"{rows}x{columns}"
    fit = source["form"]["fit"]
    return [f"--images {shlex.quote(source['folder'])}", *held, f"--size {size}",
            *([] if fit == "crop" else [f"--fit {fit}"])]  # fmt: skip


def command_line(settings: Settings, folder: Any) -> str:
    """Return the command that repeats a race."""
    fixed = {
        "epochs": settings.epochs,
        "batch-size": settings.batch_size,
        "threads": settings.threads,
        "seed": settings.seed,
    }
    parts = ["ganglion race", *_what(settings)]
    parts += ["--engines", ",".join(settings.engines), f"--runs {settings.runs}"]
    parts += [f"--{k} {v}" for k, v in fixed.items() if k not in settings.sweep]
    parts += sweep.options(settings.sweep)
    parts += [f"--device {settings.device}"]
    parts += [f"--on {settings.on}"] if settings.on else []
    parts += [f"--limit {settings.limit:g}"] if settings.limit else []
    parts += [f"--memory {settings.memory / 1e9:g}"] if settings.memory else []
    return " ".join([*parts, f"--out {shlex.quote(str(folder))}"])
