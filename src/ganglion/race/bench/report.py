"""The results of `ganglion bench`: as a table to look at, as JSON, as a page."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ganglion import config, files, recipes
from ganglion.race import machine
from ganglion.race.bench import steps
from ganglion.race.bench.result import Entry, Result, shown
from ganglion.race.engines import ON_GPU, PRECISE, RIVALS, engine

COLUMNS = (
    "engine",
    "ms/step",
    "quartiles",
    "ratio",
    "of peak",
    "memory",
    "start",
)
GPU_COLUMNS = (*COLUMNS[:4], "precision")
GPU_HEADING = "## Against its rivals"
_OF_CUDA = ("cuda-core", "cuda-bindings")
PRECISIONS = {"cpu": "float32", "cuda": "tf32,bf16"}


def measure(
    names: list[str],
    against: str | None,
    *,
    rounds: int,
    batch_size: int | None,
    threads: int | None,
    device: str = "cpu",
    precision: str | None = None,
    each: Callable[[list[Result]], None],
    say: Callable[[str], None],
) -> list[Result]:
    """Measure recipes against rivals, both by name; hand on what is there so far."""
    precisions = _precisions(device, precision)
    chosen = [(recipes.get(name), one) for name in names for one in precisions]
    usual = ON_GPU if device == "cuda" else RIVALS
    rivals = usual if against is None else against.split(",")
    ours = ["ganglion"] if device == "cuda" else ["ganglion", PRECISE]
    wanted = dict.fromkeys([*ours, *(one.strip() for one in rivals)])
    engines = [engine(name) for name in wanted if name]
    done: list[Result] = []
    for recipe, kind in chosen:
        say(f"{recipe.name}{_in(kind)}:")
        done.append(
            steps.run(
                recipe,
                engines,
                rounds=rounds,
                threads=threads or config.threads(),
                batch_size=batch_size,
                device=device,
                precision=kind,
                say=lambda text: say(f"  {text}"),
            )
        )
        each(done)
        if done[-1].interrupted:
            break
    return done


def _precisions(device: str, given: str | None) -> list[str]:
    """Return the precisions to measure: on a GPU, TF32 and bf16 if none is given."""
    if device not in PRECISIONS:
        raise ValueError(f"Unknown device {device!r}: choose cpu or cuda.")
    if given is not None and device == "cpu":
        raise ValueError("--precision goes with --device cuda: a CPU has float32.")
    found = [one.strip() for one in (given or PRECISIONS[device]).split(",")]
    for one in found:
        if one not in config.PRECISIONS:
            known = config.closest(one, config.PRECISIONS)
            raise ValueError(f"Unknown precision {one!r}. {known}")
    return found


def _in(precision: str) -> str:
    return "" if precision == "float32" else f" in {precision}"


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return the cells of a table, fastest engine first, then those without times."""
    timed = sorted(result.timed, key=lambda one: one.median)
    return [_row(result, one, result.ours) for one in timed]


def _row(result: Result, entry: Entry, ours: Entry | None) -> tuple[str, ...]:
    low, high = entry.quartiles
    times = (
        f"{entry.engine}: {entry.form}",
        shown(entry.median),
        f"{shown(low)}–{shown(high)}",
        f"{result.ratio(entry, ours):.2f}" if ours else "",
    )
    if result.device == "cuda":
        return (*times, result.precision)
    return (
        *times,
        f"{result.share_of_peak(entry):.0%}",
        f"{entry.memory / 2**20:.0f} MB",
        f"{entry.start_seconds:.1f} s",
    )


def title(result: Result) -> str:
    """Return what was measured, in one line."""
    what = recipes.get(result.recipe).title
    where = f"threads: {result.threads}"
    if result.device == "cuda":
        where = f"{result.precision}, {result.gpu or 'CUDA'}"
    return f"{result.recipe}: {what}; batch {result.batch_size}, {where}"


def verdict(result: Result) -> str:
    """Return how Ganglion stands to the best rival, in one line."""
    ours, best = result.ours, result.best_rival
    if ours is None or best is None:
        return "Nothing to compare."
    ratio = result.ratio(best, ours)
    text = (
        f"Ganglion trains {ratio:.2f}× as fast as the best rival{_in(result.precision)}"
        f", {best.engine} ({best.form})"
    )
    if result.device == "cuda":
        return text + "."
    torch = [one for one in result.timed if one.engine.startswith("torch")]
    if torch:
        least = min(torch, key=lambda one: one.memory)
        share = ours.memory / least.memory
        text += f", with {share:.2f} of the memory of {least.engine}"
    return f"{text}.{_without_shortcuts(result)}"


def _without_shortcuts(result: Result) -> str:
    """Return how Ganglion stands if it multiplies all that the rivals multiply."""
    plain = result.precise
    if plain is None:
        return ""
    least = min(result.ratio(one, plain) for one in result.rivals)
    return (
        f" Without shortcuts ({PRECISE}), which leave out zeros of the data and "
        f"shorten convolutions, {least:.2f}×."
    )


def notes(result: Result) -> list[str]:
    """Return what else there is to say: problems, other forms, the data."""
    found = []
    if result.peak:
        peaks = ", ".join(f"{name} {one:.0f}" for name, one in result.peak.items())
        found.append(
            f"Peak of a matrix product here, GFLOP/s: {peaks}; a step has "
            f"{result.operations / 1e6:.0f} million operations in its products."
        )
    for one in result.entries:
        if one.problem:
            found.append(f"{one.engine}: {one.problem}")
        others = {k: v for k, v in one.tried.items() if k != one.form}
        for form, why in others.items() if not one.problem else ():
            found.append(
                f"{one.engine} was also tried as {form!r}: {why.splitlines()[0]}"
            )
    if result.busy > steps.QUIET:
        found.append(
            f"Other work took {result.busy:.0%} of all cores when this began: times "
            "are longer than on a quiet machine, most of all for engines whose threads "
            "wait for each other; mistrust small ratios."
        )
    if result.remark:
        found.append(result.remark)
    if result.interrupted:
        found.append("Interrupted: this is what was measured so far.")
    return found


def columns(result: Result) -> tuple[str, ...]:
    """Return the heads of a table; what a processor is asked is not of a GPU."""
    return COLUMNS if result.device == "cpu" else GPU_COLUMNS


def print_table(result: Result) -> None:
    """Print a result for people."""
    from rich.table import Table

    from ganglion.system import terminal

    table = Table(*columns(result))
    for name, *cells in rows(result):
        table.add_row(name.replace(": ", "\n"), *cells)
    console = terminal.console(highlight=False)
    console.print(f"\n{title(result)}", markup=False)
    if result.timed:
        terminal.show(table, console)
        console.print(verdict(result), markup=False)
    for note in notes(result):
        console.print(note, markup=False)


def as_json(results: list[Result]) -> str:
    """Return everything that was measured, and where."""
    found: list[dict[str, Any]] = []
    for result in results:
        one = asdict(result)
        for entry, cells in zip(result.entries, one["entries"], strict=True):
            if entry.milliseconds:
                cells["median_milliseconds"] = entry.median
                cells["share_of_peak"] = result.share_of_peak(entry)
        ours, best = result.ours, result.best_rival
        one["best_rival"] = best.engine if best else None
        one["ratio_to_best_rival"] = result.ratio(best, ours) if ours and best else None
        found.append(one)
    where = {"date": _today(), "machine": machine.facts()}
    return json.dumps({**where, "results": found}, indent=2)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


_ABOUT = """\
# Benchmarks

This page is made by `ganglion bench`; to repeat it, install the rivals and run

    pip install "ganglion-nn[rivals]"
    {command}

Milliseconds a training step: forward, backward and update, on a batch already in
memory. Every engine has a process of its own with the same number of threads, starts
from the same weights and sees the same batches; the loss of the first batch, before and
after a step, must agree before a clock starts. Engines take turns in rounds of about
half a second, the order rotates, warm-up and compiling come before ("start"). Shown are
medians over the rounds; "ratio" is the time in units of Ganglion's, as the median of
the ratios round by round.

Rivals are in their fastest form on the CPU that we know, in files of their own in
`src/ganglion/race/engines`: their pixels are scaled to floats before the clock starts,
and where there are several forms (XLA or not, a loop in the graph or a jitted step),
each is tried and the fastest is shown. Ganglion is timed through `fit`: images as whole
numbers, metrics and callbacks included. "Of peak" is the share of the fastest large
float32 matrix product measured here; a convolution counts as a direct one. "Memory" is
the most that the engine's whole process ever had, with its libraries and the data.

Ganglion takes shortcuts that its rivals do not: it leaves out products with zeros of
the data (of MNIST's pixels 81% are zero, and about half of what mnist-mlp multiplies is
in its first layer), and its convolutions may be Winograd's. `ganglion-precise` is the
same with `GANGLION_PRECISE=1`, which multiplies everything: what to expect of data
without zeros. "Of peak" counts all products, left out or not.
"""


def page(results: list[Result], command: str) -> str:
    """Return the results as a page of the docs."""
    parts = [_ABOUT.format(command=command)]
    facts = machine.facts()
    where = f"{facts['processor']}, {facts['vectors']}, {facts['cores'].split(',')[0]}"
    names = ", ".join(_versions(results))
    parts.append(
        f"Measured on {_today()}: {where}; Python {facts['python']}, "
        f"numpy {facts['numpy']}, llvmlite {facts['llvmlite']}, {names}.\n"
    )
    for result in results:
        parts.append(_section(result))
    return "\n".join(parts)


def _section(result: Result) -> str:
    lines = [f"## {result.recipe}{_in(result.precision)}", "", f"{title(result)}.", ""]
    if result.timed:
        names = columns(result)
        lines += [_line(names), _line(["---"] * len(names))]
        lines += [_line(cells) for cells in rows(result)]
        lines += ["", verdict(result)]
    for note in notes(result):
        first, *rest = note.splitlines()
        lines += ["", f"- {first}", *(f"      {one}" for one in rest)]
    return "\n".join(lines) + "\n"


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


_ABOUT_GPU = """\
{heading}

Made by `{command}`. Milliseconds a training step, data on the device; every engine has
a process of its own, starts from the same weights and sees the same batches, and its
loss before and after a step must agree. Rounds of about {seconds} s, clocks read when
the device is done, warm-up and compiling before; medians over {rounds} rounds. "Ratio"
is the time in units of Ganglion's in the same precision. Rivals may use TF32 (`tf32`)
or bf16 autocasts (`bf16`), in their fastest form; Ganglion is timed through `fit`.
"""


def gpu_section(results: list[Result], command: str) -> str:
    """Return the results on a GPU as a section of the docs."""
    rounds = max((len(one.milliseconds) for r in results for one in r.timed), default=0)
    about = {"command": command, "rounds": rounds, "seconds": steps.GPU_ROUND_SECONDS}
    parts = [_ABOUT_GPU.format(heading=GPU_HEADING, **about)]
    where = next((one.gpu for one in results if one.gpu), "")
    own = (f"{name} {machine.version(name)}" for name in _OF_CUDA)
    names = ", ".join([*_versions(results), *own])
    python = platform.python_version()
    parts.append(f"Measured on {_today()}: {where}; Python {python}, {names}.\n")
    for result in results:
        parts.append("#" + _section(result))
    return "\n".join(parts)


def _versions(results: list[Result]) -> list[str]:
    used = {one.version for result in results for one in result.entries if one.version}
    return sorted({part for text in used for part in text.split(", ")})


def replaced(text: str, section: str) -> str:
    r"""Return a page with a section in place of the one of the same heading.

    >>> replaced("# A\n\n## B\n\nold\n\n## C\n", "## B\n\nnew\n")
    '# A\n\n## B\n\nnew\n\n## C\n'
    """
    heading = section.partition("\n")[0]
    before, found, rest = text.partition(f"{heading}\n")
    if not found:
        return f"{text.rstrip()}\n\n{section}".lstrip()
    after = rest.find("\n## ")
    return before + section + ("" if after < 0 else rest[after:])


def write(results: list[Result], path: Path, command: str) -> None:
    """Write the page, beside first, so that a crash leaves the old one.

    What was measured on a GPU is a section of a page, and leaves the rest as it is.
    """
    if results[0].device == "cuda":
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        text = replaced(text, gpu_section(results, command))
    else:
        text = page(results, command)
    files.write_file(path, text.encode())
