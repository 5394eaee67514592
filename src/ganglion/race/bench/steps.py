"""Milliseconds of a training step, in Ganglion and its rivals, side by side.

Every engine has its own process; all start from the same weights, with the same
batches. They must agree on the loss before a clock starts; then they take turns in
short rounds, so that a busy moment of the machine affects them all.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import recipes
from ganglion.race import machine
from ganglion.race.bench.result import Entry, Result
from ganglion.race.bench.result import milliseconds as milliseconds_text
from ganglion.race.engines import PRECISE, Engine, process
from ganglion.race.engines.augmented import save_weights
from ganglion.race.engines.process import EngineError, Process
from ganglion.recipes import Recipe

ROWS = 12_800  # an epoch of 100 steps of 128; more would only take memory
GPU_ROWS = 49_920  # about what a GPU's users have; 100 steps are 3 ms there
ROUND_SECONDS = 0.5
GPU_ROUND_SECONDS = 0.2  # of more steps than the processor takes in a minute
FEWEST_STEPS = 3
PATIENCE = 60.0  # seconds for a form to get ready when another is ready
TRIALS = 3  # rounds for each form of an engine, to choose among them
HOPELESS = 2.0  # times the fastest form's time, after which one has no more turns
QUIET = 0.1  # the share of the cores that others may use without a remark
PAUSE = 0.2  # threads of the engine before may still be spinning
# Relative, of the first batch's loss, and after one update, which rounding moves more.
TOLERANCES = {"float32": (1e-3, 1e-2), "tf32": (2e-3, 5e-2), "bf16": (2e-2, 3e-1)}
NOISY = (5e-2, 3e-1)  # where every engine draws its own random numbers
INTERRUPTED = "Interrupted: this is what was measured so far."
_STAT = Path("/proc/stat")

Say = Callable[[str], None]


def run(
    recipe: Recipe,
    engines: list[Engine],
    *,
    rounds: int,
    threads: int,
    batch_size: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    say: Say = lambda text: None,
) -> Result:
    """Measure a recipe; Ctrl-C returns the results so far."""
    size = batch_size or recipe.batch_size
    entries = [
        Entry(engine.name, problem=engine.unavailable_reason() or "")
        for engine in engines
    ]
    result = Result(recipe.name, size, threads, entries, 0.0, {}, busy())
    result.device, result.precision = device, precision
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        task = {"recipe": recipe.name, "folder": name, "batch_size": size}
        task |= {"threads": threads, "device": device, "precision": precision}
        try:
            rows = ROWS if device == "cpu" else GPU_ROWS
            result.operations, result.remark = write_data(recipe, size, folder, rows)
            meter = None
            if device == "cpu":  # a process that measures what the processor can do
                meter = Process("", "peak", threads, folder / "peak.log")
                stack.callback(meter.end)
            else:
                result.gpu = machine.gpu()
            bench = Bench(stack, task, folder, threads, say)
            bench.unit = len(np.load(folder / "y.npy", mmap_mode="r")) // size
            running = bench.prepare(engines, entries)
            tolerances = NOISY if recipe.is_noisy else TOLERANCES[precision]
            running = agreeing(running, recipe.parameters, Comparison(tolerances))
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                result.peak = _peak(meter, threads, result.peak) if meter else {}
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


def busy_text(share: float) -> str:
    """Return how busy the machine was, as the start of a measurement."""
    return f"Other work took {share:.0%} of all cores when this began"


def write_data(
    recipe: Recipe, size: int, folder: Path, most: int | None = None
) -> tuple[float, str]:
    """Write batches and weights for the workers; return operations and a remark."""
    most = most or ROWS
    from ganglion import utils
    from ganglion.datasets import DataUnavailable

    utils.set_random_seed(0)
    model = recipes.build(recipe)
    try:
        (x, y), _, remark = recipes.load(recipe)
    except DataUnavailable as error:
        x, y = recipes.noise(recipe, most)
        remark = f"Timed on noise of the right shape. ({str(error).splitlines()[0]})"
    rows = max(min(most, len(x)) // size, 1) * size
    if rows > len(x):
        raise ValueError(f"--batch-size {size}: there are only {len(x)} images.")
    np.save(folder / "x.npy", x[:rows])
    np.save(folder / "y.npy", y[:rows])
    save_weights(model, folder)
    remarks = [remark, recipe.remark]
    if recipe.augment:
        remarks.append(
            "Timed on the images as they are: `ganglion bench --augment` says what the "
            "augmentation of this recipe costs."
        )
    return operations(model, size), " ".join(filter(None, remarks))


def operations(model: Any, batch: int) -> float:
    """Return the floating-point operations of the products in a training step.

    A convolution counts as the direct one. Each product comes three times: forward,
    gradient to the weights, and gradient to the input, which the first layer needs not.

    >>> operations(recipes.build(recipes.get("mnist-perceptron")), 128)  # 2·2·784·10·B
    4014080.0
    """
    counts = products(model)
    of_first_input = sum(counts[:1])
    return float(2 * (3 * sum(counts) - of_first_input) * batch)


def products(model: Any) -> list[int]:
    """Return the multiplications of a model's products, for a row of a batch."""
    return [count for layer in model.layers for count in _products(layer)]


def _products(layer: Any) -> Iterator[int]:
    """Yield the multiplications of a layer's products, for a row of a batch."""
    from ganglion import layers

    kernels, positions = [getattr(layer, "kernel", None)], 0
    if isinstance(layer, layers.Bidirectional):
        ways = (layer.forward_layer.cell, layer.backward_layer.cell)
        kernels = [way.kernel for way in ways] + [way.recurrent_kernel for way in ways]
    elif isinstance(layer, layers.RNN):
        kernels = [layer.cell.kernel, layer.cell.recurrent_kernel]
    elif isinstance(layer, layers.MultiHeadAttention):
        kernels = [weight for weight in layer.weights if len(weight.shape) == 3]
        steps, width = layer.output.shape[1:]
        yield 2 * steps * steps * width  # queries with keys, and shares with values
    elif kernels[0] is not None:
        # A transposed convolution multiplies at each pixel that it reads.
        is_transposed = isinstance(layer, layers.Conv2DTranspose)
        pixels = layer.input if is_transposed else layer.output
        positions = int(np.prod(pixels.shape[1:-1], dtype=int))
    for kernel in kernels:
        if kernel is not None:
            steps = positions or layer.input.shape[1]
            yield steps * int(np.prod(kernel.shape))


def _peak(meter: Process, threads: int, before: dict[str, float]) -> dict[str, float]:
    """Measure the machine, and keep the larger figures of now and before."""
    time.sleep(PAUSE)
    try:
        now = meter.ask("peak", threads=threads)
    except EngineError:  # the engine of the same name will report the error
        return before
    return {name: max(value, before.get(name, 0.0)) for name, value in now.items()}


@dataclass(frozen=True)
class Figure:
    """The timed work of an engine: training steps, or predictions of some rows."""

    name: str = "training step"
    rows: int = 0  # to be predicted; none in training
    sizes: tuple[int, ...] = ()  # of batches, of which an engine takes its fastest

    @property
    def fewest(self) -> int:
        """The least number of repetitions in a round: a prediction may take seconds."""
        return 1 if self.rows else FEWEST_STEPS

    def ask(
        self, worker: Process, times: int, limit: float | None = None
    ) -> dict[str, Any]:
        """Run a worker's task some times; return how long it took, and its results."""
        if not self.rows:
            return worker.ask("run", limit, steps=times)
        sizes = list(self.sizes)
        return worker.ask("predict", limit, rows=self.rows, sizes=sizes, times=times)


TRAINING = Figure()


@dataclass
class Running:
    """An engine that is ready for its rounds."""

    entry: Entry
    process: Process
    parameters: int

    @property
    def best(self) -> float:
        """The shortest time of a step, in milliseconds."""
        return min(self.entry.milliseconds)


class Bench:
    """Prepares engines and runs them in alternation."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        task: dict[str, Any],
        folder: Path,
        threads: int,
        say: Say,
    ) -> None:
        self._stack, self._task, self._folder = stack, task, folder
        self._threads, self._say = threads, say
        self._device = task.get("device", "cpu")
        self._begun: dict[tuple[str, str], Future[Running]] = {}
        self.unit = 1  # the steps of a round on a GPU are a multiple of this
        self.figure = TRAINING
        self.ready: dict[str, list[Running]] | None = None  # forms that are not ended
        self.still: Any = None  # a recipe without noise, to compare first losses by

    def prepare(self, engines: list[Engine], entries: list[Entry]) -> list[Running]:
        """Start every engine in its fastest form; note why any cannot be started."""
        pairs = [
            pair for pair in zip(engines, entries, strict=True) if not pair[1].problem
        ]
        present = [engine for engine, _ in pairs]
        if self._device != "cpu":
            self._begin_all(present, workers=16)
        elif self.ready is not None:  # nobody will read how long each took to start
            self._begin_all(present, workers=max(self._threads, 2))
            wait(self._begun.values())
        running = []
        for engine, entry in pairs:
            entry.version = versions(engine)
            fastest = self._fastest(engine, entry)
            if fastest is not None:
                running.append(fastest)
        return running

    def _begin_all(self, engines: list[Engine], workers: int) -> None:
        """Let several engines import, build and compile at once: not on a GPU.

        What tunes itself on the GPU waits for its turn.
        """
        pool = ThreadPoolExecutor(workers)
        self._stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        limit = process.LIMIT if self._device != "cpu" else workers * PATIENCE
        for engine in engines:
            for form in engine.forms_on(self._device):
                self._say(f"{engine.name}: preparing ({form})")
                begun = pool.submit(self._begin, engine, form, limit)
                self._begun[engine.name, form] = begun

    def _fastest(self, engine: Engine, entry: Entry) -> Running | None:
        """Try the forms of an engine in turns, and keep the fastest."""
        forms = list(self._forms(engine, entry))
        if self.ready is not None:
            self.ready[engine.name] = forms
        return self.choose(forms, entry)

    def choose(self, forms: list[Running], entry: Entry) -> Running | None:
        """Run the forms that are ready in alternation, and keep the fastest."""
        lasting = forms
        for number in range(TRIALS if len(forms) > 1 else 1):
            lasting = self.take_turns(lasting, number)
            for form in lasting:
                entry.tried[form.entry.form] = f"{milliseconds_text(form.best)} ms"
            least = min((form.best for form in lasting), default=0.0)
            lasting = [form for form in lasting if form.best <= HOPELESS * least]
        if not lasting:
            reasons = entry.tried.items()
            entry.problem = "\n".join(f"{form}: {reason}" for form, reason in reasons)
            return None
        first = min(lasting, key=lambda form: form.best)
        if self.ready is None:
            for other in forms:
                if other is not first:
                    other.process.end()
        chosen = first.entry
        chosen.steps = self._steps_a_round(first.best)
        chosen.tried, chosen.milliseconds = entry.tried, []
        vars(entry).update(vars(chosen))
        try:
            self.figure.ask(first.process, chosen.steps)
        except EngineError as error:
            entry.problem = str(error)
            return None
        return Running(entry, first.process, first.parameters)

    def _forms(self, engine: Engine, entry: Entry) -> Iterator[Running]:
        """Yield the forms of an engine that get ready; note why others do not."""
        limit = process.LIMIT
        for form in engine.forms_on(self._device):
            begun = self._begun.get((engine.name, form))
            if not begun:
                self._say(f"{engine.name}: preparing ({form})")
            try:
                running = begun.result() if begun else self._begin(engine, form, limit)
            except EngineError as error:
                entry.tried[form] = str(error)
                continue
            running.entry.version, running.entry.tried = entry.version, entry.tried
            if begun and self._device == "cpu":
                limit = running.entry.start_seconds + PATIENCE
            if not self.warms_up(running, limit):
                running.process.end()
                continue
            if not begun:  # all began at once: none waits for the slowest
                limit = min(limit, max(PATIENCE, 2 * running.entry.start_seconds))
            yield running

    def _begin(self, engine: Engine, form: str, limit: float) -> Running:
        """Start a worker and build its model; what has to be compiled is, too."""
        started = time.perf_counter()
        worker = process.start(engine, form, self._threads, self._folder, self._device)
        self._stack.callback(worker.end)
        running = Running(Entry(engine.name, form), worker, 0)
        for recipe in filter(None, (self.still, self._task["recipe"])):
            ready = worker.ask("prepare", limit, **self._task | {"recipe": recipe})
            if "unavailable" in ready:
                worker.end()
                raise EngineError(ready["unavailable"])
            running.parameters = int(ready["parameters"])
            if recipe is self.still:
                self._take_first_steps(running, limit)
        compiles = form.startswith("compiled") or self.ready is not None
        if compiles and not running.entry.losses:
            self._take_first_steps(running, limit)
        running.entry.start_seconds = time.perf_counter() - started
        return running

    def _take_first_steps(self, running: Running, limit: float) -> None:
        answers = (running.process.ask("run", limit, steps=1) for _ in range(2))
        running.entry.losses = [answer["loss"] for answer in answers]

    def warms_up(self, running: Running, limit: float) -> bool:
        """Prepare a form for its turns; if it fails, note and return why."""
        try:
            self._warm_up(running, limit)
        except EngineError as error:
            running.entry.tried[running.entry.form] = str(error)
            return False
        return True

    def _warm_up(self, running: Running, limit: float) -> None:
        """Take the first steps, and measure how many make a round."""
        started, entry = time.perf_counter(), running.entry
        limit -= entry.start_seconds

        def seconds_left() -> float:
            return max(started + limit - time.perf_counter(), 1.0)

        if not entry.losses:
            self._take_first_steps(running, seconds_left())
        fewest = self._steps_a_round(1e9)
        entry.steps, enough = 0, fewest
        while enough >= 2 * entry.steps:  # short runs are mostly overhead
            entry.steps = min(enough, max(16 * entry.steps, fewest))
            fastest = min(
                self.figure.ask(running.process, entry.steps, seconds_left())["seconds"]
                for _ in range(2)
            )
            enough = self._steps_a_round(1000 * fastest / entry.steps)
        entry.start_seconds += time.perf_counter() - started

    def _steps_a_round(self, milliseconds: float) -> int:
        """Return how many steps take half a second: on a GPU, complete epochs.

        Those can be a loop, or a recording, that is compiled once.
        """
        if self._device == "cpu":
            return max(self.figure.fewest, int(1000 * ROUND_SECONDS / milliseconds))
        epochs = round(1000 * GPU_ROUND_SECONDS / milliseconds / self.unit)
        return max(1, epochs) * self.unit

    def take_turns(self, running: list[Running], number: int) -> list[Running]:
        """Run a round, each time in another order; return the engines that lasted."""
        lasting = list(running)
        first = number % max(len(running), 1)
        for engine in running[first:] + running[:first]:
            time.sleep(PAUSE if self._device == "cpu" else 0.0)
            try:
                self._turn(engine)
            except EngineError as error:
                engine.entry.problem = engine.entry.tried[engine.entry.form] = str(
                    error
                )
                lasting.remove(engine)
        return lasting

    def _turn(self, running: Running) -> None:
        entry, worker = running.entry, running.process
        seconds = self.figure.ask(worker, entry.steps)["seconds"]
        entry.milliseconds.append(1000 * seconds / entry.steps)
        entry.memory = worker.ask("memory")["bytes"]


@dataclass(frozen=True)
class Comparison:
    """The numbers that engines are compared by, and their tolerances."""

    relative: tuple[float, float] | float
    absolute: float = 0.0
    text: str = "first batch's loss {0:.6g}, after a step {1:.6g}"

    def alike(self, values: list[float], others: list[float]) -> bool:
        """Return whether the numbers of two engines are near."""
        near = np.isclose(values, others, rtol=self.relative, atol=self.absolute)
        return bool(near.all())


def agreeing(
    running: list[Running], parameters: int, comparison: Comparison
) -> list[Running]:
    """Return the engines that compute what at least half of the others compute."""
    good = []
    # Ganglion has a single entry, not two.
    voices = [other for other in running if other.entry.engine != PRECISE]
    for engine in running:
        losses = engine.entry.losses
        others = [other for other in voices if other is not engine]
        friends = [
            other for other in others if comparison.alike(losses, other.entry.losses)
        ]
        if engine.parameters != parameters:
            engine.entry.problem = (
                f"disagrees: {engine.parameters:,} parameters, not {parameters:,}"
            )
        elif 2 * len(friends) < len(others):
            engine.entry.problem = (
                f"disagrees: {comparison.text.format(*losses)}; the others: "
                + ", ".join(f"{other.entry.losses[0]:.6g}" for other in others)
            )
        else:
            good.append(engine)
            continue
        engine.process.end()
    return good


def versions(engine: Engine) -> str:
    """Return an engine's packages with their versions.

    >>> from ganglion.race.engines import engine
    >>> versions(engine("ganglion")).split()[0]
    'ganglion'
    """
    if engine.name in ("ganglion", PRECISE):
        return f"ganglion {machine.version('ganglion')}"
    return ", ".join(
        f"{package} {machine.version(machine.owner(package))}"
        for package in engine.packages
    )
