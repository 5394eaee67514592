"""Milliseconds of a training step, in Ganglion and its rivals, side by side.

Every engine has a process of its own, all start from the same weights and see the same
batches. They must agree on the loss before a clock starts; then they take turns in
short rounds, so that a busy moment of the machine meets them all.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import recipes
from ganglion.recipes import Recipe
from ganglion.rivals import Engine, process
from ganglion.rivals.process import EngineError, Process

ROWS = 12_800  # an epoch of 100 steps of 128; more would only take memory
ROUND_SECONDS = 0.5
FEWEST_STEPS = 3
PATIENCE = 60.0  # seconds for a form to get ready when another one already is
TRIALS = 3  # rounds for each form of an engine, to choose one
QUIET = 0.1  # the share of the cores that others may use without a remark
PAUSE = 0.2  # threads of the engine before may still be spinning
LOSS_TOLERANCE = 1e-3  # of the first batch's loss, relative
STEPPED_TOLERANCE = 1e-2  # of its loss after one update, which rounding moves more
_STAT = Path("/proc/stat")

Say = Callable[[str], None]


@dataclass
class Entry:
    """What was found about one engine."""

    engine: str
    form: str = ""
    version: str = ""
    problem: str = ""  # why it was not timed, or not to the end
    losses: list[float] = field(default_factory=list)  # first batch, two steps
    start_seconds: float = 0.0  # import, build, compile and warm up
    steps: int = 0  # in each round
    milliseconds: list[float] = field(default_factory=list)  # a step, round by round
    memory: int = 0  # bytes, the most that the process had
    tried: dict[str, str] = field(default_factory=dict)  # other forms

    @property
    def median(self) -> float:
        """Return the median over the rounds, in milliseconds a step."""
        return statistics.median(self.milliseconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Return between which times half of the rounds lie."""
        low, high = np.quantile(self.milliseconds, (0.25, 0.75))
        return float(low), float(high)


@dataclass
class Result:
    """One recipe, measured."""

    recipe: str
    batch_size: int
    threads: int
    entries: list[Entry]
    operations: float  # floating-point operations of all products in a step
    peak: dict[str, float]  # GFLOP/s of a matrix product, by who computes it
    busy: float = 0.0  # the share of all cores that others used before we began
    remark: str = ""
    interrupted: bool = False

    @property
    def timed(self) -> list[Entry]:
        """Return the engines that have times."""
        return [one for one in self.entries if one.milliseconds]

    @property
    def ours(self) -> Entry | None:
        """Return Ganglion, if it was timed."""
        return next((one for one in self.timed if one.engine == "ganglion"), None)

    @property
    def best_rival(self) -> Entry | None:
        """Return the rival that is hardest on Ganglion, else the fastest one."""
        ours = self.ours
        others = [one for one in self.timed if one is not ours]
        key = (lambda one: self.ratio(one, ours)) if ours else (lambda one: one.median)
        return min(others, key=key, default=None)

    def ratio(self, entry: Entry, to: Entry) -> float:
        """Return how often `to` fits into `entry`: the median of round by round."""
        pairs = zip(entry.milliseconds, to.milliseconds, strict=False)
        return statistics.median(a / b for a, b in pairs)

    def share_of_peak(self, entry: Entry) -> float:
        """Return which part of the machine's matrix-product speed an engine reaches."""
        if not self.peak:
            return float("nan")
        speed = self.operations / (entry.median * 1e6)
        return speed / max(self.peak.values())


def run(
    recipe: Recipe,
    engines: list[Engine],
    *,
    rounds: int,
    threads: int,
    batch_size: int | None = None,
    say: Say = lambda text: None,
) -> Result:
    """Measure one recipe; Ctrl-C returns what was measured so far."""
    size = batch_size or recipe.batch_size
    entries = [Entry(one.name, problem=one.missing() or "") for one in engines]
    result = Result(recipe.name, size, threads, entries, 0.0, {}, busy())
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        given = {"recipe": recipe.name, "folder": place, "batch_size": size}
        given["threads"] = threads
        try:
            result.operations, result.remark = lay_out(recipe, size, folder)
            yard = Process("", "peak", threads, folder / "peak.log")
            stack.callback(yard.end)
            bench = Bench(stack, given, folder, threads, say)
            running = bench.prepare(engines, entries)
            running = _agreeing(running, recipe.parameters)
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                result.peak = _peak(yard, threads, result.peak)
                running = bench.take_turns(running, number)
        except KeyboardInterrupt:
            result.interrupted = True
    return result


def busy(seconds: float = 1.0) -> float:
    """Return the share of all cores that is in use while we wait."""
    if not _STAT.exists():
        return 0.0

    def times() -> np.ndarray:  # user, nice, system, idle, waiting for disks, ...
        return np.array(_STAT.read_text().split("\n")[0].split()[1:], float)

    before = times()
    time.sleep(seconds)
    spent = times() - before
    return float(1 - spent[3:5].sum() / max(spent.sum(), 1))


def lay_out(recipe: Recipe, size: int, folder: Path) -> tuple[float, str]:
    """Write batches and weights for the workers; return operations and a remark."""
    from ganglion import utils
    from ganglion.datasets import DataUnavailable

    utils.set_random_seed(0)
    model = recipes.build(recipe)
    try:
        (x, y), _, remark = recipes.load(recipe)
    except DataUnavailable as error:
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (ROWS, *recipe.input_shape)).astype("uint8")
        x, y = recipes.prepared(recipe, x, rng.integers(0, recipe.classes, ROWS))
        remark = f"Timed on noise of the right shape. ({str(error).splitlines()[0]})"
    rows = max(min(ROWS, len(x)) // size, 1) * size
    if rows > len(x):
        raise ValueError(f"--batch-size {size}: there are only {len(x)} images.")
    np.save(folder / "x.npy", x[:rows])
    np.save(folder / "y.npy", y[:rows])
    weights = {f"w{i}": one for i, one in enumerate(model.get_weights())}
    np.savez(folder / "weights.npz", **weights)
    told = [remark, recipe.remark]
    if recipe.augment:
        told.append(
            "Timed on the images as they are: `ganglion bench --augment` says what the "
            "augmentation of this recipe costs."
        )
    return operations(model, size), " ".join(filter(None, told))


def operations(model: Any, batch: int) -> float:
    """Return the floating-point operations of the products in a training step.

    A convolution counts as the direct one. Each product comes three times: forward,
    gradient to the weights, and gradient to the input, which the first layer needs not.

    >>> operations(recipes.build(recipes.get("mnist-perceptron")), 128)  # 2·2·784·10·B
    4014080.0
    """
    total, first = 0, True
    for layer in model.layers:
        kernel = getattr(layer, "kernel", None)
        if kernel is None:
            continue
        positions = int(np.prod(layer.output.shape[1:-1], dtype=int))
        total += (2 if first else 3) * 2 * positions * int(np.prod(kernel.shape))
        first = False
    return float(total * batch)


def _peak(yard: Process, threads: int, before: dict[str, float]) -> dict[str, float]:
    """Measure the machine, and keep the larger figures of now and before."""
    time.sleep(PAUSE)
    try:
        found = yard.ask("peak", threads=threads)
    except EngineError:  # the engine of the same name will say what is wrong
        return before
    return {name: max(value, before.get(name, 0.0)) for name, value in found.items()}


@dataclass
class Running:
    """An engine that is ready for its rounds."""

    entry: Entry
    process: Process
    parameters: int


class Bench:
    """Prepares engines and lets them take turns."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        given: dict[str, Any],
        folder: Path,
        threads: int,
        say: Say,
    ) -> None:
        self._stack, self._given, self._folder = stack, given, folder
        self._threads, self._say = threads, say

    def prepare(self, engines: list[Engine], entries: list[Entry]) -> list[Running]:
        """Start every engine in its fastest form; note why one cannot be."""
        running = []
        for engine, entry in zip(engines, entries, strict=True):
            if entry.problem:
                continue
            entry.version = versions(engine)
            found = self._fastest(engine, entry)
            if found is not None:
                running.append(found)
        return running

    def _fastest(self, engine: Engine, entry: Entry) -> Running | None:
        """Try the forms of an engine in turns, and keep the fastest."""
        forms = [one for one in self._forms(engine, entry) if one is not None]
        for number in range(TRIALS):
            forms = self.take_turns(forms, number)
        for one in forms:
            entry.tried[one.entry.form] = f"{shown(min(one.entry.milliseconds))} ms"
        if not forms:
            reasons = entry.tried.items()
            entry.problem = "\n".join(f"{form}: {why}" for form, why in reasons)
            return None
        first, *others = sorted(forms, key=lambda one: min(one.entry.milliseconds))
        for other in others:
            other.process.end()
        chosen = first.entry
        chosen.steps = _steps_a_round(min(chosen.milliseconds))
        chosen.tried, chosen.milliseconds = entry.tried, []
        vars(entry).update(vars(chosen))
        try:
            first.process.ask("run", steps=chosen.steps)
        except EngineError as error:
            entry.problem = str(error)
            return None
        return Running(entry, first.process, first.parameters)

    def _forms(self, engine: Engine, entry: Entry) -> Iterator[Running | None]:
        limit = process.LIMIT
        for form in engine.forms:
            self._say(f"{engine.name}: preparing ({form})")
            one = Entry(engine.name, form, entry.version, tried=entry.tried)
            worker = process.start(engine, form, self._threads, self._folder)
            self._stack.callback(worker.end)
            try:
                parameters = self._warm_up(worker, one, limit)
                limit = min(limit, max(PATIENCE, 2 * one.start_seconds))
                yield Running(one, worker, parameters)
            except EngineError as error:
                worker.end()
                entry.tried[form] = str(error)
                yield None

    def _warm_up(self, worker: Process, entry: Entry, limit: float) -> int:
        """Build, compile, and find how many steps make a round."""
        started = time.perf_counter()

        def ask(do: str, **given: Any) -> dict[str, Any]:
            left = started + limit - time.perf_counter()
            return worker.ask(do, max(left, 1.0), **given)

        ready = ask("prepare", **self._given)
        entry.losses = [ask("run", steps=1)["loss"] for _ in range(2)]
        entry.steps, wanted = 0, FEWEST_STEPS
        while wanted >= 2 * entry.steps:  # short runs are mostly overhead
            entry.steps = min(wanted, max(16 * entry.steps, FEWEST_STEPS))
            times = [ask("run", steps=entry.steps)["seconds"] for _ in range(2)]
            wanted = _steps_a_round(1000 * min(times) / entry.steps)
        entry.start_seconds = time.perf_counter() - started
        return int(ready["parameters"])

    def take_turns(self, running: list[Running], number: int) -> list[Running]:
        """Run a round, each time with another one first; return those that lasted."""
        lasting = list(running)
        first = number % max(len(running), 1)
        for one in running[first:] + running[:first]:
            time.sleep(PAUSE)
            try:
                self._turn(one)
            except EngineError as error:
                one.entry.problem = one.entry.tried[one.entry.form] = str(error)
                lasting.remove(one)
        return lasting

    def _turn(self, one: Running) -> None:
        entry = one.entry
        seconds = one.process.ask("run", steps=entry.steps)["seconds"]
        entry.milliseconds.append(1000 * seconds / entry.steps)
        entry.memory = one.process.ask("memory")["bytes"]


def _steps_a_round(milliseconds: float) -> int:
    return max(FEWEST_STEPS, int(1000 * ROUND_SECONDS / milliseconds))


def shown(value: float) -> str:
    """Return milliseconds with three digits that count.

    >>> shown(0.01234), shown(1.234), shown(123.4)
    ('0.0123', '1.23', '123')
    """
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.{2 if value >= 1 else 3 if value >= 0.1 else 4}f}"


def _agreeing(running: list[Running], parameters: int) -> list[Running]:
    """Return the engines that compute what at least half of the others compute."""
    good = []
    for one in running:
        others = [other for other in running if other is not one]
        friends = [other for other in others if _agree(one, other)]
        if one.parameters != parameters:
            one.entry.problem = (
                f"disagrees: {one.parameters:,} parameters, not {parameters:,}"
            )
        elif 2 * len(friends) < len(others):
            one.entry.problem = (
                f"disagrees: first batch's loss {one.entry.losses[0]:.6g}, after a "
                f"step {one.entry.losses[1]:.6g}; the others: "
                + ", ".join(f"{o.entry.losses[0]:.6g}" for o in others)
            )
        else:
            good.append(one)
            continue
        one.process.end()
    return good


def _agree(one: Running, other: Running) -> bool:
    (first, stepped), (their_first, their_stepped) = (
        one.entry.losses,
        other.entry.losses,
    )
    return bool(
        np.isclose(first, their_first, rtol=LOSS_TOLERANCE, atol=0)
        and np.isclose(stepped, their_stepped, rtol=STEPPED_TOLERANCE, atol=0)
    )


def versions(engine: Engine) -> str:
    """Return an engine's packages with their versions.

    >>> from ganglion.rivals import engine
    >>> versions(engine("ganglion")).split()[0]
    'ganglion'
    """
    import importlib.metadata

    from ganglion import machine

    if engine.name == "ganglion":
        return f"ganglion {machine.version('ganglion')}"
    owners = importlib.metadata.packages_distributions()
    return ", ".join(
        f"{package} {machine.version(owners.get(package, [package])[0])}"
        for package in engine.packages
    )
