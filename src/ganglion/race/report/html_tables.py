"""The tables of `report.html`: one race, and several races beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ganglion.race import figures
from ganglion.race.figures import NOTHING, Group, Spread
from ganglion.race.report.charts import named, row_class, swatch
from ganglion.race.report.markup import Html, element, heading, joined, number, table
from ganglion.race.results import Race, Run


def summary(race: Race) -> Html:
    """Return all engines beside each other, the fastest first."""
    ranked = figures.by_time(race)
    if not ranked:
        return element("p", "No run is finished yet.")
    head = [
        heading("engine", False),
        heading("runs"),
        heading("accuracy"),
        heading("run time, s"),
        heading("× fastest"),
        heading("training, s"),
        heading("testing, s"),
        heading("import, s"),
        heading("prepare, s"),
        heading("memory, MB"),
        heading("installed, MB"),
    ]
    rows = [_summary_row(race, one, ranked) for one in ranked]
    note = (
        "Averages ± sample standard deviation of the runs that came to their end. The "
        "run time is training and testing; import and preparation (build, compile, "
        "warm-up) come before it. Memory is the peak of the engine's whole process."
    )
    if any(one.settings for one in ranked):
        note += " An engine is compared with the fastest one of the same settings."
    made = table(
        "All engines, fastest first", head, rows, hidden_caption=True, class_="summary"
    )
    verdicts = [
        element("p", line, class_="verdict")
        for line in figures.verdict(race).splitlines()
    ]
    return joined([*verdicts, made, element("p", note, class_="note")])


def _summary_row(race: Race, group: Group, ranked: list[Group]) -> Html:
    times = figures.ratio(group, ranked)
    of_runs = f"{len(group.done)} of {len(group.runs)}"
    parts: list[Callable[[Run], float]] = [
        lambda run: run.train_seconds,
        lambda run: run.test_seconds,
        lambda run: run.import_seconds,
        lambda run: run.prepare_seconds,
    ]
    return element(
        "tr",
        named(group, group.form),
        number(of_runs if group.failed else str(len(group.runs))),
        number(spread(group.accuracy, 4)),
        number(spread(group.time, 2)),
        number(NOTHING if times is None else f"{times:.2f}"),
        *(number(spread(group.spread(part), 2)) for part in parts),
        number(figures.megabytes(group.memory)),
        number(figures.megabytes(race.install_sizes.get(group.engine))),
        class_=row_class(group),
    )


def spread(value: Spread | None, decimals: int) -> str:
    """Return an average with its deviation, such that both stand in columns."""
    if value is None:
        return NOTHING
    average = f"{value.mean:.{decimals}f}"
    if value.deviation is None:
        return average
    return joined(
        [average, element("span", f" ± {value.deviation:.{decimals}f}", class_="dev")]
    )


def run_by_run(race: Race) -> Html:
    """Return one table an engine, as such comparisons are published."""
    made = [_engine_table(group) for group in figures.groups(race)]
    return element("div", *made, class_="cards")


def _engine_table(group: Group) -> Html:
    columns = ("run", "seed", "accuracy", "training, s", "testing, s", "run time, s")
    foot = []
    for name, of in (("average", "mean"), ("deviation", "deviation")):
        times = [
            _part(group.spread(lambda run: run.train_seconds), of, 2),
            _part(group.spread(lambda run: run.test_seconds), of, 2),
            _part(group.time, of, 2),
        ]
        label = element("th", name, scope="row", colspan=2)
        parts = [_part(group.accuracy, of, 4), *times]
        foot.append(element("tr", label, *map(number, parts)))
    made = element(
        "table",
        element("caption", swatch(group.engine), group.label, _form(group)),
        element("thead", element("tr", *map(heading, columns))),
        element("tbody", *map(_run_row, group.runs)),
        element("tfoot", *foot),
    )
    spoken = f"The runs of {group.label}"
    return element(
        "div", made, class_="scroll", tabindex=0, role="group", aria_label=spoken
    )


def _form(group: Group) -> Html | None:
    return element("small", group.form) if group.form else None


def _run_row(run: Run) -> Html:
    first = [
        element("th", str(run.number), scope="row", class_="n"),
        number(str(run.seed)),
    ]
    if not run.done:
        return element("tr", *first, element("td", "failed", colspan=4, class_="bad"))
    times = (run.train_seconds, run.test_seconds, run.seconds)
    cells = [figures.accuracy_text(run.accuracy), *(f"{one:.2f}" for one in times)]
    return element("tr", *first, *map(number, cells))


def _part(value: Spread | None, name: str, decimals: int) -> str:
    part = getattr(value, name, None)
    return NOTHING if part is None else f"{part:.{decimals}f}"


def first_steps(race: Race) -> Html | None:
    """Return the losses of the first steps of each engine's first run."""
    groups = figures.with_first_losses(race)
    if not groups:
        return None
    told = "All engines start from the same weights and see the same batches. "
    far = figures.disagreement(race)
    if far is not None:
        told += f"In all runs, their losses are at most {far:.1e} apart, relatively."
    texts = [told, *figures.exact_texts(race)]
    head = [heading("step")] + [
        heading(joined([swatch(one.engine), one.label])) for one in groups
    ]
    rows = []
    for step in range(1, max(len(one.first_losses) for one in groups) + 1):
        cells = [number(figures.loss_text(one.first_losses, step)) for one in groups]
        label = element("th", str(step), scope="row", class_="n")
        rows.append(element("tr", label, *cells))
    made = table("Losses of the first steps, run 1", head, rows)
    return joined([*(element("p", one) for one in texts), made])


def problems(race: Race) -> Html | None:
    """Return the runs that failed, with the end of their logs, and who was skipped."""
    found = []
    for run in race.finished:
        if not run.done:
            settings = figures.settings_text(run.settings)
            who = f"{run.engine} ({settings})" if settings else run.engine
            reason = run.reason or "no reason was given"
            log = element("pre", run.log_end, tabindex=0) if run.log_end else None
            title = element("summary", "The end of its log")
            more = element("details", title, log) if log else None
            text = f", run {run.number} failed: {reason}"
            found.append(element("li", element("strong", who), text, more))
    for one in race.skipped:
        text = f" was left out: {one.reason}"
        found.append(element("li", element("strong", one.engine), text))
    return element("ul", *found, class_="problems") if found else None


def published(race: Race) -> Html | None:
    """Return what others published for this recipe."""
    if not race.published:
        return None
    head = [heading("system", False), heading("accuracy"), heading("time")]
    rows = [
        element(
            "tr",
            element("th", str(one["system"]), scope="row"),
            number(figures.accuracy_text(one["accuracy"])),
            number(str(one["time"])),
        )
        for one in race.published
    ]
    return table("Published by others, on other machines", head, rows)


def facts(race: Race) -> Html:
    """Return the exact versions and the machine."""
    commit = {"git commit": race.commit} if race.commit else {}
    parts = [
        _pairs("Versions", "package", "version", race.versions | commit),
        _pairs("Machine", "part", "what", race.machine),
    ]
    return element("div", *parts, class_="cards")


def _pairs(caption: str, key: str, value: str, given: dict[str, Any]) -> Html | None:
    rows = [
        element("tr", element("th", name, scope="row"), element("td", str(what)))
        for name, what in given.items()
        if what not in ("", None)
    ]
    head = [heading(key, False), heading(value, False)]
    return table(caption, head, rows, class_="pairs") if rows else None


def repeat(race: Race) -> Html:
    """Return how to run the race again."""
    if not race.command:
        return element("p", "The command was not kept.")
    told = (
        f"Seed {race.seed}; each engine in a process of its own, threads: "
        f"{race.threads}, runs interleaved."
    )
    text = race.command
    if race.commit:
        text = f"git checkout {race.commit.removesuffix('+')}\n{text}"
    if race.commit.endswith("+"):
        told += " The checkout had changes that were not committed."
    return Html(element("p", told) + element("pre", text, tabindex=0))


def comparison(races: Sequence[Race], letters: Sequence[str]) -> Html:
    """Return run times and accuracies of several races, against the oldest one."""
    key = element(
        "ul",
        *(
            element("li", element("strong", f"{letter}: "), figures.label(race))
            for letter, race in zip(letters, races, strict=True)
        ),
        class_="races",
    )
    times = _against_oldest(races, letters, "Run time, s", lambda one: one.time, 2)
    rates = _against_oldest(races, letters, "Accuracy", lambda one: one.accuracy, 4)
    note = (
        f"Differences are to {letters[0]}, the oldest race. One that is smaller than "
        "the deviations of both races together counts as noise; of one run, the noise "
        "is not known."
    )
    warned = _unlike(races)
    warning = element("p", warned, class_="bad") if warned else None
    return joined([key, warning, times, rates, element("p", note, class_="note")])


def _unlike(races: Sequence[Race]) -> str:
    """Say in which settings races differ, so that nobody compares what is not alike."""
    names = {
        "epochs": "epochs",
        "batch_size": "batch size",
        "threads": "threads",
        "device": "device",
    }
    found = []
    for attribute, name in names.items():
        values = [str(getattr(race, attribute)) for race in races]
        if len(set(values)) > 1:
            found.append(f"{name} ({', '.join(values)})")
    return f"The races are not alike: {', '.join(found)}." if found else ""


def _against_oldest(
    races: Sequence[Race],
    letters: Sequence[str],
    caption: str,
    figure: Callable[[Group], Spread | None],
    decimals: int,
) -> Html:
    tables = [{one.label: one for one in figures.by_time(race)} for race in races]
    labels = list(dict.fromkeys(label for one in reversed(tables) for label in one))
    head = [heading("engine", False), heading(letters[0])]
    for letter in letters[1:]:
        head += [heading(letter), heading(f"{letter} − {letters[0]}")]
    rows = []
    for label in labels:
        held = [one.get(label) for one in tables]
        group = next(one for one in held if one is not None)
        values = [figure(one) if one is not None else None for one in held]
        cells = [number(spread(values[0], decimals))]
        for value in values[1:]:
            cells.append(number(spread(value, decimals)))
            cells.append(_difference(values[0], value, decimals, caption))
        rows.append(element("tr", named(group), *cells, class_=row_class(group)))
    return table(caption, head, rows)


def _difference(
    old: Spread | None, new: Spread | None, decimals: int, caption: str
) -> Html:
    if old is None or new is None:
        return number(NOTHING)
    change = new.mean - old.mean
    is_time = caption.startswith("Run time")
    text = f"{change:+.{decimals}f}"
    if is_time and old.mean:
        text = f"{change / old.mean:+.1%}"
    if old.deviation is None or new.deviation is None:
        return number(f"{text} one run", class_="n same")  # nobody knows its noise
    if not figures.apart(old, new):
        return number(f"{text} noise", class_="n same")
    better = change < 0 if is_time else change > 0
    words = ("faster", "slower") if is_time else ("better", "worse")
    word = words[0] if better else words[1]
    return number(f"{text} {word}", class_=f"n {'good' if better else 'bad'}")
