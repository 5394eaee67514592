"""The charts of `report.html`: what the script draws, and bars that need no script."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any, NamedTuple

from ganglion.pages import document as pages
from ganglion.pages.markup import (
    Html,
    clean,
    element,
    heading,
    headings,
    number,
    table,
)
from ganglion.race import figures
from ganglion.race.figures import Group
from ganglion.race.results import Epoch, Race, Run

# An engine has the same position, colour (page.css) and shape in every report.
KNOWN_ENGINES = ("ganglion", "keras", "tensorflow", "torch", "torch-optimized", "jax",
          "ganglion-numpy", "keras-jax", "keras-torch")  # fmt: skip
# Outlines around the middle, from -1 to 1: shapes identify engines without colour.
SHAPES = (
    "M-.9 0A.9 .9 0 1 0 .9 0A.9 .9 0 1 0 -.9 0Z",
    "M-.8-.8H.8V.8H-.8Z",
    "M0-1L1 .8H-1Z",
    "M0-1.1L1.1 0L0 1.1L-1.1 0Z",
    "M0 1L1-.8H-1Z",
    "M-.35-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    "M-1-.6L-.6-1L0-.4L.6-1L1-.6L.4 0L1 .6L.6 1L0 .4L-.6 1L-1 .6L-.4 0Z",
    "M0-1L.95-.3L.6 .8H-.6L-.95-.3Z",
    "M-1-1L1 1V-1L-1 1Z",
    "M0-1.1L.3-.3H1.1L.45 .2L.7 1L0 .5L-.7 1L-.45 .2L-1.1-.3H-.3Z",
)
# Dashes distinguish races; the newest has full lines.
DASHES = ((), (8, 4), (2, 3), (10, 3, 2, 3), (4, 2), (14, 4))


def engine_index(engine: str) -> int:
    """Return an engine's index; an unknown engine keeps its own, too.

    >>> engine_index("ganglion"), engine_index("torch")
    (0, 3)
    """
    if engine in KNOWN_ENGINES:
        return KNOWN_ENGINES.index(engine)
    late = len(SHAPES) - KNOWN_ENGINES.index("ganglion-numpy")
    return len(SHAPES) - 1 - zlib.crc32(engine.encode("utf-8", "replace")) % late


def swatch(engine: str) -> Html:
    """Return an engine's sign in its colour."""
    return sign(engine_index(engine))


def sign(at: int) -> Html:
    """Return a sign in its colour; from the eleventh on, they are mixed."""
    colour, shape = at % len(SHAPES), (at + at // len(SHAPES)) % len(SHAPES)
    return element(
        "svg",
        element("path", d=SHAPES[shape]),
        class_=f"swatch e{colour}",
        viewBox="-1.2 -1.2 2.4 2.4",
        aria_hidden="true",
    )


def named(group: Group, form: str = "") -> Html:
    """Return the head of an engine's row, with Ganglion's marked."""
    mark = "ours" if group.engine == figures.OURS else ""
    small = ", ".join(part for part in (form, mark) if part)
    remark = element("small", small) if small else None
    return element("th", swatch(group.engine), group.label, remark, scope="row")


def row_class(group: Group) -> str | None:
    """Return how an engine's row is marked."""
    return "ours" if group.engine == figures.OURS else None


class Clock(NamedTuple):
    """A way to count time: what an epoch adds, and what came before the first."""

    title: str
    epoch: Callable[[Epoch], float]
    before: Callable[[Run], float] = lambda run: 0.0


CLOCKS = {
    "run": Clock("training and testing", lambda epoch: epoch.seconds),
    "train": Clock("training alone", lambda epoch: epoch.train_seconds),
    "all": Clock(
        "import and preparation too",
        lambda epoch: epoch.seconds,
        lambda run: run.import_seconds + run.prepare_seconds,
    ),
}


def curve(group: Group, race: int, dash: int, prefix: str = "") -> dict[str, Any]:
    """Return an engine's curves: each finished run, and the average of them."""
    runs = [_points(run, group.score) for run in group.done if run.epochs]
    average = {
        name: [
            _mean(values) for values in zip(*(run[name] for run in runs), strict=False)
        ]
        for name in ("score", *CLOCKS)
    }
    return {
        "engine": clean(group.engine),
        "label": clean(prefix + group.label),
        "place": engine_index(group.engine),
        "settings": clean(group.settings),
        "race": race,
        "dash": dash,
        "average": average,
        "runs": runs if len(runs) > 1 else [],
    }


def _points(run: Run, score: str) -> dict[str, list[float | None]]:
    points = {"score": [_finite(epoch.tested(score)) for epoch in run.epochs]}
    for name, clock in CLOCKS.items():
        times = accumulate(map(clock.epoch, run.epochs), initial=clock.before(run))
        points[name] = [_finite(time) for time in list(times)[1:]]
    return points


def _finite(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), 6) if len(known) == len(values) else None


def document(
    title: str,
    body: Html,
    charts: Sequence[dict[str, Any]],
    generator: str,
    *,
    data: Mapping[str, Any] | None = None,
    scripts: Sequence[str] = (),
) -> str:
    """Return a page with curves that its script draws, and with more scripts."""
    curves = {"shapes": SHAPES, "dashes": DASHES, "charts": charts}
    return pages.document(
        title,
        body,
        generator=generator,
        data={"curves": curves, **(data or {})},
        scripts=[pages.plotting_library(), pages.asset(pages.CURVES), *scripts],
        styles=[pages.plotting_style()],
    )


def curves_section(
    name: str,
    score: str,
    curves: Sequence[dict[str, Any]],
    races: Sequence[str],
    *,
    lines: str = "Engines",
    over_time: bool = True,
) -> Html:
    """Return the places where curves are drawn, their switches and their values.

    Args:
        name: Of the chart, among those of the page.
        score: What the curves are of, in words, as in "test accuracy".
        curves: What `curve` returns.
        races: The races that they are of.
        lines: What the curves are called that have switches of their own.
        over_time: Whether there is a chart over time in addition to that over epochs.
    """
    if not any(line["average"]["score"] for line in curves):
        return element("p", "No run has come to its end yet.")
    settings = {line["settings"]: element("span", line["settings"]) for line in curves}
    names = _engine_names(curves)
    controls = element(
        "div",
        _switches(lines, "engine", names) if len(names) > 1 else None,
        _switches("Settings", "settings", settings) if len(settings) > 1 else None,
        _switches("Races", "race", _race_names(races)) if len(races) > 1 else None,
        class_="controls",
    )
    title = score.capitalize()
    return element(
        "div",
        controls,
        _figure("time", f"{title} over time", curves) if over_time else None,
        _figure("epochs", f"{title} over epochs", curves),
        _values(score, curves, over_time),
        class_="curves",
        data_chart=name,
    )


def _engine_names(curves: Sequence[dict[str, Any]]) -> dict[str, Html]:
    return {
        line["engine"]: Html(sign(line["place"]) + element("span", line["engine"]))
        for line in curves
        if line["average"]["score"]
    }


def _race_names(races: Sequence[str]) -> dict[int, Html]:
    names = {}
    for i, label in enumerate(races):
        dash = DASHES[(len(races) - 1 - i) % len(DASHES)]
        line = element(
            "line", x2=32, y1=5, y2=5, stroke_dasharray=" ".join(map(str, dash)) or None
        )
        drawn = element(
            "svg", line, class_="dash", viewBox="0 0 32 10", aria_hidden="true"
        )
        names[i] = Html(drawn + element("span", label))
    return names


def _switches(legend: str, kind: str, choices: dict[Any, Any]) -> Html:
    boxes = [
        element(
            "label",
            element("input", type="checkbox", checked=True, data_kind=kind, value=key),
            text,
        )
        for key, text in choices.items()
    ]
    return element("fieldset", element("legend", legend), *boxes)


def _figure(kind: str, title: str, curves: Sequence[dict[str, Any]]) -> Html:
    thin = " Pale: the single runs." if any(c["runs"] for c in curves) else ""
    extra = _clock_controls() if kind == "time" else None
    plot = element(
        "div",
        class_="plot",
        data_kind=kind,
        tabindex=0,
        role="group",
        aria_roledescription="chart",
        aria_label=f"{title}. {_in_words(kind, curves)} Arrow keys read the values.",
    )
    return element(
        "figure",
        element(
            "figcaption",
            element("strong", title),
            f" Averages.{thin}",
            element(
                "span", " Drag to zoom in, double-click to go back.", class_="hint"
            ),
        ),
        extra,
        plot,
    )


def _clock_controls() -> Html:
    options = [
        element("option", clock.title, value=name) for name, clock in CLOCKS.items()
    ]
    select = element("select", *options, data_kind="clock")
    log = element("input", type="checkbox", data_kind="log")
    return element(
        "div",
        element("label", "The clock counts ", select),
        element("label", log, "logarithmic time"),
        class_="clock",
    )


def _in_words(kind: str, curves: Sequence[dict[str, Any]]) -> str:
    """Return a chart's description for screen readers."""
    ends = []
    for line in curves:
        scores, times = line["average"]["score"], line["average"].get("run", ())
        if not scores or scores[-1] is None:
            continue
        if kind != "time" or times[-1] is not None:
            after = f"{times[-1]:.2f} s" if kind == "time" else f"{len(scores)} epochs"
            ends.append(f"{line['label']} reaches {scores[-1]:.4f} after {after}")
    return "; ".join(ends) + "." if ends else "No curve has values."


def _values(score: str, curves: Sequence[dict[str, Any]], over_time: bool) -> Html:
    """Return the averages that the charts draw, as a table."""
    visible = [line for line in curves if line["average"]["score"]]
    count = max(len(line["average"]["score"]) for line in visible)
    head = [heading("epoch")]
    for line in visible:
        head.append(heading(f"{line['label']}: {score}"))
        head += [heading("after, s")] if over_time else []
    rows = []
    for i in range(count):
        cells = [element("th", str(i + 1), scope="row", class_="n")]
        for line in visible:
            for name, decimals in (("score", 4), ("run", 2))[: 1 + over_time]:
                values = line["average"][name]
                value = values[i] if i < len(values) else None
                cells.append(number(figures.number_text(value, decimals)))
        rows.append(element("tr", *cells))
    both = f"{score} and run time" if over_time else score
    caption = f"Average {both} after every epoch"
    title = element("summary", "The values as a table")
    return element("details", title, table(caption, head, rows))


def bars(race: Race) -> Html:
    """Return start-up, memory and installed size, each as a table with bars."""
    ranked = [group for group in figures.by_time(race) if group.done]
    once = {group.engine: group for group in reversed(ranked)}
    installed = [once[name] for name in reversed(once)]
    sizes = race.install_sizes
    return element(
        "div",
        _bar_table(
            "Start-up: import (full), preparation (pale)",
            ("import, s", "prepare, s"),
            [
                (
                    group,
                    fmean(run.import_seconds for run in group.done),
                    fmean(run.prepare_seconds for run in group.done),
                )
                for group in ranked
            ],
            "{:.2f}".format,
        )
        if ranked
        else None,
        _sizes("Peak memory", [(group, group.memory or 0) for group in ranked]),
        _sizes(
            "Installed, with all it depends on",
            [(group, sizes.get(group.engine) or 0) for group in installed],
        ),
        class_="bars",
    )


def _sizes(caption: str, rows: list[tuple[Group, int]]) -> Html | None:
    if not any(size for _, size in rows):
        return None
    return _bar_table(caption, ("MB",), rows, figures.megabytes)


def _bar_table(
    caption: str,
    names: Sequence[str],
    lengths: Sequence[tuple[Any, ...]],
    text: Callable[[Any], str],
) -> Html:
    """Return a table of lengths, an engine a row, each row with a bar of them all."""
    most = max(sum(row) for _, *row in lengths)
    rows = [
        element(
            "tr",
            named(group),
            *(number(text(length)) for length in row),
            _bar(group, most, row),
            class_=row_class(group),
        )
        for group, *row in lengths
    ]
    bar = element("td", class_="bar", aria_hidden="true")
    return table(caption, [*headings("engine", *names), bar], rows)


def _bar(group: Group, most: float, lengths: Sequence[float]) -> Html:
    """Return a cell with a bar; the figures beside it show the same."""
    rects, left = [], 0.0
    for i, length in enumerate(lengths):
        share = 100 * length / most if most and math.isfinite(length / most) else 0.0
        x, width, kind = f"{left:.2f}", f"{share:.2f}", "pale" if i else None
        rects.append(element("rect", x=x, width=width, height=10, class_=kind))
        left += share
    bar = element(
        "svg",
        *rects,
        class_=f"e{engine_index(group.engine)}",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
    )
    return element("td", bar, class_="bar", aria_hidden="true")
