"""The results of `ganglion bench`: as a table to look at, as JSON, as a page."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from ganglion import config, files, recipes
from ganglion.race import machine
from ganglion.race.bench import steps
from ganglion.race.bench.result import Entry, Result, milliseconds
from ganglion.race.engines import ON_GPU, PRECISE, RIVALS, engine

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
    """Measure recipes against rivals, both by name; `each` gets the results so far."""
    precisions = _precisions(device, precision)
    chosen = [
        (recipes.get(name), precision) for name in names for precision in precisions
    ]
    default = ON_GPU if device == "cuda" else RIVALS
    rivals = default if against is None else against.split(",")
    ours = ["ganglion"] if device == "cuda" else ["ganglion", PRECISE]
    unique = dict.fromkeys([*ours, *map(str.strip, rivals)])
    engines = [engine(name) for name in unique if name]
    done: list[Result] = []
    for recipe, kind in chosen:
        say(f"{recipe.name}{_precision_suffix(kind)}:")
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


def _precisions(device: str, names: str | None) -> list[str]:
    """Return the precisions to measure: on a GPU, TF32 and bf16 if none is given."""
    if device not in PRECISIONS:
        raise ValueError(f"Unknown device {device!r}: choose cpu or cuda.")
    if names is not None and device == "cpu":
        raise ValueError("--precision goes with --device cuda: a CPU has float32.")
    precisions = list(map(str.strip, (names or PRECISIONS[device]).split(",")))
    for name in precisions:
        if name not in config.PRECISIONS:
            known = config.closest(name, config.PRECISIONS)
            raise ValueError(f"Unknown precision {name!r}. {known}")
    return precisions


def _precision_suffix(precision: str) -> str:
    return "" if precision == "float32" else f" in {precision}"


# ---- the contents of a report --------------------------------------------------------

Cell = Callable[[Result, Entry], str]
_TIMES: dict[str, Cell] = {
    "engine": lambda result, entry: f"{entry.engine}: {entry.form}",
    "ms/step": lambda result, entry: milliseconds(entry.median),
    "quartiles": lambda result, entry: "–".join(map(milliseconds, entry.quartiles)),
    "ratio": lambda result, entry: (
        f"{result.ratio(entry, result.ours):.2f}" if result.ours else ""
    ),
}
COLUMNS: dict[str, dict[str, Cell]] = {  # by device
    "cpu": _TIMES
    | {
        "of peak": lambda result, entry: f"{result.share_of_peak(entry):.0%}",
        "memory": lambda result, entry: f"{entry.memory / 2**20:.0f} MB",
        "start": lambda result, entry: f"{entry.start_seconds:.1f} s",
    },
    "cuda": _TIMES | {"precision": lambda result, entry: result.precision},
}


def rows(result: Result) -> list[list[str]]:
    """Return the head and the rows of a table, fastest engine first."""
    columns = COLUMNS[result.device]
    timed = sorted(result.timed, key=lambda entry: entry.median)
    cells = [[cell(result, entry) for cell in columns.values()] for entry in timed]
    return [list(columns), *cells]


def title(result: Result) -> str:
    """Return the conditions of a measurement, in a line."""
    where = f"threads: {result.threads}"
    if result.device == "cuda":
        where = f"{result.precision}, {result.gpu or 'CUDA'}"
    recipe = f"{result.recipe}: {recipes.get(result.recipe).title}"
    return f"{recipe}; batch {result.batch_size}, {where}"


def verdict(result: Result) -> str:
    """Return how Ganglion compares with the best rival, in a line."""
    ours, best = result.ours, result.best_rival
    if ours is None or best is None:
        return "Nothing to compare."
    ratio = result.ratio(best, ours)
    text = (
        f"Ganglion trains {ratio:.2f}× as fast as the best rival"
        f"{_precision_suffix(result.precision)}, {best.engine} ({best.form})"
    )
    if result.device == "cuda":
        return text + "."
    torch = [entry for entry in result.timed if entry.engine.startswith("torch")]
    if torch:
        least = min(torch, key=lambda entry: entry.memory)
        share = ours.memory / least.memory
        text += f", with {share:.2f} of the memory of {least.engine}"
    if result.precise is None:
        return text + "."
    slowest = min(result.ratio(entry, result.precise) for entry in result.rivals)
    return (
        f"{text}. Without shortcuts ({PRECISE}), which leave out zeros of the data and "
        f"shorten convolutions, {slowest:.2f}×."
    )


def notes(result: Result) -> list[str]:
    """Return further notes: problems, other forms, the data."""
    texts = []
    if result.peak:
        peaks = ", ".join(f"{name} {peak:.0f}" for name, peak in result.peak.items())
        texts.append(
            f"Peak of a matrix product here, GFLOP/s: {peaks}; a step has "
            f"{result.operations / 1e6:.0f} million operations in its products."
        )
    for entry in result.entries:
        if entry.problem:
            texts.append(f"{entry.engine}: {entry.problem}")
            continue
        for form, outcome in entry.tried.items():
            if form != entry.form:
                first = outcome.splitlines()[0]
                texts.append(f"{entry.engine} was also tried as {form!r}: {first}")
    if result.busy > steps.QUIET:
        texts.append(
            f"{steps.busy_text(result.busy)}: times "
            "are longer than on a quiet machine, most of all for engines whose threads "
            "wait for each other; mistrust small ratios."
        )
    if result.remark:
        texts.append(result.remark)
    if result.interrupted:
        texts.append(steps.INTERRUPTED)
    return texts


# ---- tables and pages ----------------------------------------------------------------


def print_table(result: Result) -> None:
    """Print a result as text."""
    head, *cells = rows(result)
    split = [[row[0].replace(": ", "\n"), *row[1:]] for row in cells]
    lines = [verdict(result)] if result.timed else []
    print_result(title(result), head, split, [*lines, *notes(result)])


def print_result(
    title: str, head: Iterable[str], rows: list[Any], notes: Iterable[str]
) -> None:
    """Print a title, a table if it has rows, and notes."""
    from rich.table import Table

    from ganglion.system import terminal

    console = terminal.console(highlight=False)
    console.print(f"\n{title}", markup=False)
    if rows:
        table = Table(*head)
        for row in rows:
            table.add_row(*row)
        terminal.show(table, console)
    for note in notes:
        console.print(note, markup=False)


def as_json(results: list[Result]) -> str:
    """Return everything that was measured, and where."""
    data: list[dict[str, Any]] = []
    for result in results:
        plain = asdict(result)
        for entry, cells in zip(result.entries, plain["entries"], strict=True):
            if entry.milliseconds:
                cells["median_milliseconds"] = entry.median
                cells["share_of_peak"] = result.share_of_peak(entry)
        ours, best = result.ours, result.best_rival
        plain["best_rival"] = best.engine if best else None
        ratio = result.ratio(best, ours) if ours and best else None
        data.append(plain | {"ratio_to_best_rival": ratio})
    where = {"date": _today(), "machine": machine.facts()}
    return json.dumps({**where, "results": data}, indent=2)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def about(name: str) -> str:
    """Return the text of a page, before its tables."""
    return (resources.files("ganglion.race.bench") / name).read_text("utf-8")


def page(results: list[Result], command: str) -> str:
    """Return the results as a page of the docs."""
    text = about("about.md").format(command=command)
    return "\n".join([text, conditions(results), *map(_section, results)])


def conditions(results: list[Result]) -> str:
    """Return when and on what results were measured, in a line."""
    facts = machine.facts()
    cores = facts["cores"].split(",")[0]
    return (
        f"Measured on {_today()}: {facts['processor']}, {facts['vectors']}, {cores}; "
        f"Python {facts['python']}, "
        f"numpy {facts['numpy']}, llvmlite {facts['llvmlite']}, "
        f"{', '.join(_versions(results))}.\n"
    )


def _section(result: Result) -> str:
    lines = [
        f"## {result.recipe}{_precision_suffix(result.precision)}",
        "",
        f"{title(result)}.",
        "",
    ]
    if result.timed:
        head, *cells = rows(result)
        table = [head, ["---"] * len(head), *cells]
        lines += ["| " + " | ".join(row) + " |" for row in table]
        lines += ["", verdict(result)]
    for note in notes(result):
        first, *rest = note.splitlines()
        lines += ["", f"- {first}", *(f"      {line}" for line in rest)]
    return "\n".join(lines) + "\n"


def gpu_section(results: list[Result], command: str) -> str:
    """Return the results on a GPU as a section of the docs."""
    rounds = [len(entry.milliseconds) for result in results for entry in result.timed]
    text = about("about_gpu.md").format(
        heading=GPU_HEADING,
        command=command,
        rounds=max(rounds, default=0),
        seconds=steps.GPU_ROUND_SECONDS,
    )
    device = next((result.gpu for result in results if result.gpu), "")
    own = (f"{name} {machine.version(name)}" for name in _OF_CUDA)
    measured = (
        f"Measured on {_today()}: {device}; Python {platform.python_version()}, "
        f"{', '.join([*_versions(results), *own])}.\n"
    )
    return "\n".join([text, measured, *("#" + _section(result) for result in results)])


def _versions(results: list[Result]) -> list[str]:
    texts = {entry.version for result in results for entry in result.entries}
    return sorted({part for text in texts if text for part in text.split(", ")})


def replaced(text: str, section: str) -> str:
    r"""Return a page with a section in place of the one of the same heading.

    >>> replaced("# A\n\n## B\n\nold\n\n## C\n", "## B\n\nnew\n")
    '# A\n\n## B\n\nnew\n\n## C\n'
    """
    heading = section.partition("\n")[0]
    before, separator, rest = text.partition(f"{heading}\n")
    if not separator:
        return f"{text.rstrip()}\n\n{section}".lstrip()
    after = rest.find("\n## ")
    return before + section + ("" if after < 0 else rest[after:])


def write(results: list[Result], path: Path, command: str) -> None:
    """Write the page; results on a GPU are a section of another page."""
    if results[0].device == "cuda":
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        text = replaced(text, gpu_section(results, command))
    else:
        text = page(results, command)
    files.write_file(path, text.encode())
