"""The race itself: run after run, engine after engine, all results saved at once."""

from __future__ import annotations

import math
import shlex
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ganglion.race import lockstep, machine, run_engine
from ganglion.race.engines import ENGINES, Engine
from ganglion.race.engines.process import LIMIT, EngineError
from ganglion.race.figures import OURS, settings_text
from ganglion.race.lockstep import Examined
from ganglion.race.results import Race, Run, Skipped, save
from ganglion.race.run_engine import Folders, Job, Start, new_run, now, run_once
from ganglion.race.settings import Settings, points, sweep_options
from ganglion.race.watch import Watch

PAUSE = 0.5  # seconds between runs: threads of the engine before may still spin
SHORTEST_LIMIT = 120.0  # seconds
SLOWER_THAN_TRIED = 10.0  # times: a run that takes longer than this hangs
Todo = list[tuple[Engine, int]]  # engines and numbers of runs


class RaceRunner:
    """Prepares a race, runs what is missing, and saves what is measured."""

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
        self._folder, self._recipe = folder, settings.full_recipe
        self.race = self._resumed(before) if before else self._new(command)
        self._present: list[Engine] = []
        self._absent: list[Engine] = []  # raced before, and are not here now
        self._locksteps: dict[str, dict[str, Examined]] = {}  # by file, then by engine
        self._starts: dict[Path, Start] = {}
        # By batch size, precision and seed.
        self._first_loss: dict[tuple[int, str, int], float] = {}

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
            commit=machine.commit(),
            published=[
                {"system": row.system, recipe.score: row.score, "time": row.time}
                for row in recipe.published
            ],
            score=recipe.score,
            started=now(),
            sweep=settings.sweep,
            on=settings.on,
            images=recipe.source if settings.custom else {},
            limit=settings.limit or 0.0,
            memory=settings.memory or 0,
        )

    def _resumed(self, before: Race) -> Race:
        """Return a resumed race; if it has no run, it starts again."""
        limit, memory = self._settings.limit or 0.0, self._settings.memory or 0
        race = replace(before, limit=limit, memory=memory, on=self._settings.on)
        if not race.finished:
            return replace(race, machine={}, skipped=())
        # An engine that failed at one point of a sweep only is run again there.
        raced = {run.engine for run in race.finished if run.done}
        left_out = [skip for skip in race.skipped if skip.engine not in raced]
        return replace(race, skipped=tuple(left_out))

    def run(self) -> Race:
        """Race; Ctrl-C keeps what is measured and is raised again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._skip_missing()
        with tempfile.TemporaryDirectory(prefix="ganglion-race-") as data:
            folders = Folders(Path(data), self._folder)
            self._prepare(folders)
            self._save(self.race)
            self._run_missing(folders)
        awaited = any(
            self._missing(point, self._absent) for point in points(self._settings)
        )
        self._save(replace(self.race, complete=not awaited))
        return self.race

    def _run_missing(self, folders: Folders) -> None:
        for settings in points(self._settings):
            todo = self._missing(settings)
            if not todo:
                continue
            if settings.point:
                self._watch.says("", settings_text(settings.point))
            for job in self._jobs(settings, folders, todo):
                time.sleep(PAUSE)
                self._add(run_once(job, self._watch))

    def _add(self, run: Run) -> None:
        self._save(replace(self.race, finished=(*self.race.finished, run)))

    def _save(self, race: Race) -> None:
        self.race = race
        save(race, self._folder)

    def _skip_missing(self) -> None:
        """Sort the engines into those that are here and those that are not.

        A race that is resumed keeps the engines that raced: who was left out at first
        stays out, and who is not here any more keeps its runs, the rest are awaited.
        """
        skipped = {skip.engine: skip for skip in self.race.skipped}
        reasons = []
        for engine in self._engines:
            name, reason = engine.name, engine.unavailable_reason()
            if name in skipped:
                continue
            if not reason:
                self._present.append(engine)
                continue
            reasons.append(reason)
            if self.race.finished:
                self._absent.append(engine)
                self._watch.says(name, f"raced before, and is not here now: {reason}")
            else:
                skipped[name] = Skipped(name, reason)
        for skip in skipped.values():
            self._watch.says(skip.engine, f"left out: {skip.reason}")
        self.race = replace(self.race, skipped=tuple(skipped.values()))
        if not self._present:
            raise RuntimeError(
                f"None of the engines is installed here: {'; '.join(reasons)}"
            )

    def _prepare(self, folders: Folders) -> None:
        self._rows, remark = run_engine.write_data(self._recipe, folders.data)
        if remark:
            self._watch.says("", remark)
        known = self.race.machine
        if not known:
            self.race = replace(self.race, **self._facts(remark))
        elif not self._settings.on:
            self.race = replace(self.race, machine=machine.with_current_load(known))
        if warning := machine.busy(self.race.machine, self._settings.threads):
            self._watch.says("", warning)

    def _facts(self, remark: str) -> dict[str, Any]:
        """Return remarks on the machine that the race is run on."""
        device = self._settings.device
        return {
            "machine": machine.about_machine(remark),
            "versions": machine.versions(self._present),
            "install_sizes": {
                engine.name: machine.install_size(engine, device)
                for engine in self._present
            },
        }

    def _missing(
        self, settings: Settings, engines: Sequence[Engine] | None = None
    ) -> Todo:
        """Return what is still to run at a point, in the order in which it will.

        Every engine is first, in the middle, and last as often as the others. Without
        engines, it is about those that are here.
        """
        ring = list(self._present if engines is None else engines)
        finished = [run for run in self.race.finished if run.settings == settings.point]
        have = {(run.engine, run.number) for run in finished}
        known = self._known(settings).values() if have else ()
        out = {entry.engine for entry in known if not entry.races}
        todo = []
        for number in range(1, settings.runs + 1):
            first = (number - 1) % max(len(ring), 1)
            for engine in ring[first:] + ring[:first]:
                if (engine.name, number) not in have and engine.name not in out:
                    todo.append((engine, number))
        return todo

    def _jobs(self, settings: Settings, folders: Folders, todo: Todo) -> list[Job]:
        """Check that all engines compute the same; return the runs of those that do."""
        starts = {
            number: self._start(settings, folders, number)
            for number in sorted({number for _, number in todo})
        }
        examined = self._lockstep(settings, folders, todo)
        firsts = self._first_losses(settings, folders, starts, examined)
        return [
            Job(
                engine=engine,
                form=examined[engine.name].form,
                number=number,
                settings=settings,
                folders=folders,
                start=starts[number],
                first_loss=firsts.get(number, math.nan),
                limit=settings.limit or self._limit(settings, examined[engine.name]),
            )
            for engine, number in todo
            if examined[engine.name].races
        ]

    def _start(self, settings: Settings, folders: Folders, number: int) -> Start:
        seed, epochs = settings.seed_of(number), settings.epochs
        folder = folders.data / f"start-{seed}-{epochs}"
        if folder not in self._starts:
            start = run_engine.write_start(
                self._recipe, seed, epochs, self._rows, folder
            )
            self._starts[folder] = start
        return self._starts[folder]

    def _limit(self, settings: Settings, examined: Examined) -> float:
        steps = -(-self._rows // settings.batch_size) * settings.epochs
        return max(SHORTEST_LIMIT, SLOWER_THAN_TRIED * examined.seconds(steps))

    def _known(self, settings: Settings) -> dict[str, Examined]:
        """Return what is known of the engines at a point, to be added to."""
        name = lockstep.file_name(settings)
        if name not in self._locksteps:
            is_resumed = bool(self.race.finished)
            self._locksteps[name] = (
                lockstep.load(self._folder, name) if is_resumed else {}
            )
        return self._locksteps[name]

    def _examinees(self, todo: Todo) -> dict[str, Engine]:
        """Return the engines of the lockstep: Ganglion is examined in any case."""
        engines = {engine.name: engine for engine, _ in todo}
        if OURS not in engines and not ENGINES[OURS].unavailable_reason():
            engines = {OURS: ENGINES[OURS]} | engines
        return engines

    def _lockstep(
        self, settings: Settings, folders: Folders, todo: Todo
    ) -> dict[str, Examined]:
        """Examine the engines; note those that fell out."""
        known = self._known(settings)
        jobs = self._examinations(settings, folders, todo)
        new = [name for name in jobs if name not in known]
        for name in new:
            known[name] = lockstep.examine(jobs[name], self._watch.says)
        within = run_engine.tolerance(settings)
        lockstep.judge(list(known.values()), self._recipe.parameters, within)
        self._compare_exactly(self._base(settings), known, jobs)
        lockstep.save(known.values(), self._folder, lockstep.file_name(settings))
        for name in jobs:
            if name in settings.engines and not known[name].races:
                self._leave_out(settings, known[name])
            elif known[name].races and name in new:
                self._watch.says(name, f"agrees; {_forms(known[name])}")
        return known

    def _examinations(
        self, settings: Settings, folders: Folders, todo: Todo
    ) -> dict[str, Job]:
        """Return the jobs of a lockstep, by engine."""
        base = self._base(settings)
        start, limit = self._start(base, folders, 1), base.limit or LIMIT
        return {
            name: Job(engine, base, folders, start, limit=limit)
            for name, engine in self._examinees(todo).items()
        }

    def _base(self, settings: Settings) -> Settings:
        """Return the first point with the same lockstep: all are examined there."""
        name = lockstep.file_name(settings)
        candidates = points(self._settings)
        return next(x for x in candidates if lockstep.file_name(x) == name)

    def _compare_exactly(
        self, base: Settings, known: dict[str, Examined], jobs: dict[str, Job]
    ) -> None:
        """Compare the first steps in float64 where they differ in float32."""
        if self._recipe.is_noisy:  # not by rounding: each engine draws its own numbers
            return
        due = [
            replace(jobs[entry.engine], form=entry.form)
            for entry in lockstep.due_exactly(known.values())
            if entry.engine in jobs
        ]
        for name, (losses, reason) in self._take_exact_steps(due):
            known[name].exact, known[name].inexact = losses, reason
            if reason:
                self._watch.says(name, f"took no steps in {lockstep.EXACT}: {reason}")
        steps = lockstep.judge_exactly(known.values(), base)
        if steps is not None:
            others = [x for x in self.race.exact_steps if x.settings != steps.settings]
            self.race = replace(self.race, exact_steps=(*others, steps))

    def _take_exact_steps(
        self, jobs: list[Job]
    ) -> Iterable[tuple[str, run_engine.Losses]]:
        for job in jobs:
            yield job.engine.name, lockstep.take_exact_steps(job, self._watch.says)

    def _leave_out(self, settings: Settings, examined: Examined) -> None:
        name, reason = examined.engine, examined.unavailable
        if reason:
            if name not in {skip.engine for skip in self.race.skipped}:
                self._watch.says(name, f"left out: {reason}")
                skipped = (*self.race.skipped, Skipped(name, reason))
                self._save(replace(self.race, skipped=skipped))
            return
        run = new_run(
            name,
            settings,
            1,
            status="failed",
            reason=examined.problem,
            log_end=examined.log_end,
            form=examined.form,
            first_losses=examined.losses,
            parameters=examined.parameters,
        )
        self._watch.finished(run)
        self._add(run)

    def _first_losses(
        self,
        settings: Settings,
        folders: Folders,
        starts: dict[int, Start],
        examined: dict[str, Examined],
    ) -> dict[int, float]:
        """Return what the first batch of each run must give, by one that agrees."""
        good = [entry for entry in examined.values() if entry.races]
        if not good:
            return {}
        judge = next((entry for entry in good if entry.engine == OURS), good[0])
        firsts, kind = self._first_loss, (settings.batch_size, settings.precision)
        firsts[*kind, judge.seed] = judge.losses[0]
        keys = {number: (*kind, settings.seed_of(number)) for number in starts}
        others = {n: start for n, start in starts.items() if keys[n] not in firsts}
        if others:
            others_here = {engine.name: engine for engine in self._engines}
            engines = {OURS: ENGINES[OURS]} | others_here
            limit = max(SHORTEST_LIMIT, 10 * judge.start_seconds * len(others))
            start = next(iter(others.values()))
            engine = engines[judge.engine]
            job = Job(engine, settings, folders, start, judge.form, limit=limit)
            self._watch.says(engine.name, "first losses of the other runs")
            losses = self._ask_first_losses(job, others)
            firsts |= {keys[number]: loss for number, loss in losses.items()}
        return {number: firsts[key] for number, key in keys.items() if key in firsts}

    def _ask_first_losses(self, job: Job, starts: dict[int, Start]) -> dict[int, float]:
        """Return the loss of the first batch from each of some starts."""
        losses: dict[int, float] = {}
        try:
            with run_engine.open_session(job, "lockstep-others") as session:
                session.load()
                for number, start in starts.items():
                    session.prepare(start)
                    losses[number] = session.first_losses(1)[0]
        except EngineError as error:
            self._watch.says(job.engine.name, f"first losses: {error.reason}")
        return losses


def _forms(examined: Examined) -> str:
    if len(examined.tried) < 2:
        return f"{1000 * examined.step_seconds:.3g} ms a step"
    return "; ".join(
        f"{form}: {result}{', chosen' if form == examined.form else ''}"
        for form, result in examined.tried.items()
    )


def _data_options(settings: Settings) -> list[str]:
    """Return the recipe, or the folder of images, in the words of the command line."""
    if settings.custom is None:
        return [settings.recipe]
    source = settings.custom.source
    (rows, columns), fit = source["form"]["size"], source["form"]["fit"]
    size = f"{rows}" if rows == columns else f"{rows}x{columns}"
    return [
        f"--images {shlex.quote(source['folder'])}",
        *([] if source["test"] is None else [f"--test {source['test']:g}"]),
        f"--size {size}",
        *([] if fit == "crop" else [f"--fit {fit}"]),
    ]


def command_line(settings: Settings, folder: Any) -> str:
    """Return the command that repeats a race."""
    fixed = {
        "epochs": settings.epochs,
        "batch-size": settings.batch_size,
        "threads": settings.threads,
        "seed": settings.seed,
    }
    parts = ["ganglion race", *_data_options(settings)]
    parts += ["--engines", ",".join(settings.engines), f"--runs {settings.runs}"]
    parts += [f"--{k} {v}" for k, v in fixed.items() if k not in settings.sweep]
    parts += [*sweep_options(settings.sweep), f"--device {settings.device}"]
    parts += [f"--on {settings.on}"] if settings.on else []
    parts += [f"--limit {settings.limit:g}"] if settings.limit else []
    parts += [f"--memory {settings.memory / 1e9:g}"] if settings.memory else []
    return " ".join([*parts, f"--out {shlex.quote(str(folder))}"])
