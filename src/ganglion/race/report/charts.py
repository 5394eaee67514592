"""The charts of `report.html`: what the script draws, and bars that need no script."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any

from ganglion.race import figures
from ganglion.race.figures import Group
from ganglion.race.report.markup import Html, clean, element, heading, number, table
from ganglion.race.results import Epoch, Race, Run

# An engine has one place, hence one colour (page.css) and one shape, in every report.
PLACES = (
    "ganglion",
    "keras",
    "tensorflow",
    "torch",
    "torch-optimized",
    "jax",
    "ganglion-numpy",
    "keras-jax",
    "keras-torch",
)
# Outlines around the middle, from -1 to 1: shapes tell engines apart without colour.
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
# Dashes tell races apart; the newest one has full lines.
DASHES = ((), (8, 4), (2, 3), (10, 3, 2, 3), (4, 2), (14, 4))


def place(engine: str) -> int:
    """Return an engine's place; one that nobody foresaw keeps its own as well.

    >>> place("ganglion"), place("torch"), place("another") == place("another")
    (0, 3, True)
    """
    if engine in PLACES:
        return PLACES.index(engine)
    late = len(SHAPES) - PLACES.index("ganglion-numpy")
    return len(SHAPES) - 1 - zlib.crc32(engine.encode("utf-8", "replace")) % late


def swatch(engine: str) -> Html:
    """Return an engine's sign in its colour."""
    at = place(engine)
    return element(
        "svg",
        element("path", d=SHAPES[at]),
        class_=f"swatch e{at}",
        viewBox="-1.2 -1.2 2.4 2.4",
        aria_hidden="true",
    )


def named(group: Group, form: str = "") -> Html:
    """Return the head of an engine's row, our own one marked."""
    mark = "ours" if group.engine == figures.OURS else ""
    small = ", ".join(part for part in (form, mark) if part)
    remark = element("small", small) if small else None
    return element("th", swatch(group.engine), group.label, remark, scope="row")


def row_class(group: Group) -> str | None:
    """Return how an engine's row is marked."""
    return "ours" if group.engine == figures.OURS else None


Clock = Callable[[Run, Epoch], float]
# How time is counted: the seconds an epoch adds, and those before the first one.
CLOCKS: dict[str, tuple[Callable[[Epoch], float], Callable[[Run], float]]] = {
    "run": (lambda epoch: epoch.train_seconds + epoch.test_seconds, lambda run: 0.0),
    "train": (lambda epoch: epoch.train_seconds, lambda run: 0.0),
    "all": (
        lambda epoch: epoch.train_seconds + epoch.test_seconds,
        lambda run: run.import_seconds + run.prepare_seconds,
    ),
}


def curve(group: Group, race: int, dash: int, prefix: str = "") -> dict[str, Any]:
    """Return an engine's curves: each finished run, and the average of them."""
    runs = [_points(run) for run in group.done if run.epochs]
    shortest = min((len(one["accuracy"]) for one in runs), default=0)
    names = ["accuracy", *CLOCKS]
    average = {
        name: [_mean([run[name][i] for run in runs]) for i in range(shortest)]
        for name in names
    }
    return {
        "engine": clean(group.engine),
        "label": clean(prefix + group.label),
        "place": place(group.engine),
        "settings": clean(group.settings),
        "race": race,
        "dash": dash,
        "average": average,
        "runs": runs if len(runs) > 1 else [],
    }


def _points(run: Run) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {
        "accuracy": [_finite(one.test_accuracy) for one in run.epochs]
    }
    for name, (adds, before) in CLOCKS.items():
        times = accumulate(map(adds, run.epochs), initial=before(run))
        found[name] = [_finite(one) for one in list(times)[1:]]
    return found


def _finite(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def _mean(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return round(fmean(known), 6) if len(known) == len(values) else None


def chart_data(charts: Sequence[dict[str, Any]]) -> Html:
    """Return the data for the script as JSON that cannot end its own element."""
    text = json.dumps(
        {"shapes": SHAPES, "dashes": DASHES, "charts": charts},
        separators=(",", ":"),
        allow_nan=False,
    )
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(text)


def curves_section(
    name: str, curves: Sequence[dict[str, Any]], races: Sequence[str]
) -> Html:
    """Return the places where curves are drawn, their switches and their values."""
    if not any(one["average"]["accuracy"] for one in curves):
        return element("p", "No run has come to its end yet.")
    settings = {one["settings"]: element("span", one["settings"]) for one in curves}
    controls = element(
        "div",
        _switches("Engines", "engine", _engine_names(curves)),
        _switches("Settings", "settings", settings) if len(settings) > 1 else None,
        _switches("Races", "race", _race_names(races)) if len(races) > 1 else None,
        class_="controls",
    )
    return element(
        "div",
        controls,
        _figure("time", "Test accuracy over time", curves),
        _figure("epochs", "Test accuracy over epochs", curves),
        _values(curves),
        class_="curves",
        data_chart=name,
    )


def _engine_names(curves: Sequence[dict[str, Any]]) -> dict[str, Html]:
    return {
        one["engine"]: Html(swatch(one["engine"]) + element("span", one["engine"]))
        for one in curves
        if one["average"]["accuracy"]
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
    names = {
        "run": "training and testing",
        "train": "training alone",
        "all": "import and preparation too",
    }
    options = [element("option", text, value=key) for key, text in names.items()]
    select = element("select", *options, data_kind="clock")
    log = element("input", type="checkbox", data_kind="log")
    return element(
        "div",
        element("label", "The clock counts ", select),
        element("label", log, "logarithmic time"),
        class_="clock",
    )


def _in_words(kind: str, curves: Sequence[dict[str, Any]]) -> str:
    """Return what a chart shows, for who cannot see it."""
    ends = []
    for one in curves:
        accuracy, times = one["average"]["accuracy"], one["average"]["run"]
        if accuracy and accuracy[-1] is not None and times[-1] is not None:
            after = (
                f"{times[-1]:.2f} s" if kind == "time" else f"{len(accuracy)} epochs"
            )
            ends.append(f"{one['label']} reaches {accuracy[-1]:.4f} after {after}")
    return "; ".join(ends) + "." if ends else "No curve has values."


def _values(curves: Sequence[dict[str, Any]]) -> Html:
    """Return the averages that the charts draw, as a table."""
    shown = [one for one in curves if one["average"]["accuracy"]]
    count = max(len(one["average"]["accuracy"]) for one in shown)
    head = [heading("epoch")]
    for one in shown:
        head += [heading(f"{one['label']}: accuracy"), heading("after, s")]
    rows = []
    for i in range(count):
        cells = [element("th", str(i + 1), scope="row", class_="n")]
        for one in shown:
            average = one["average"]
            for name, decimals in (("accuracy", 4), ("run", 2)):
                value = average[name][i] if i < len(average[name]) else None
                cells.append(
                    number(
                        figures.NOTHING if value is None else f"{value:.{decimals}f}"
                    )
                )
        rows.append(element("tr", *cells))
    made = table("Average test accuracy and run time after every epoch", head, rows)
    return element("details", element("summary", "The values as a table"), made)


def bars(race: Race) -> Html:
    """Return start-up, memory and installed size, each as a table with bars."""
    ranked = [one for one in figures.by_time(race) if one.done]
    sizes = [(one, race.install_sizes.get(one.engine) or 0) for one in ranked]
    once = list({one.engine: (one, size) for one, size in reversed(sizes)}.values())
    parts = [
        _start_up(ranked),
        _sizes("Peak memory", [(one, one.memory or 0) for one in ranked]),
        _sizes("Installed, with all it depends on", list(reversed(once))),
    ]
    return element("div", *parts, class_="bars")


def _start_up(ranked: list[Group]) -> Html | None:
    if not ranked:
        return None
    waits = [
        (
            one,
            fmean(run.import_seconds for run in one.done),
            fmean(run.prepare_seconds for run in one.done),
        )
        for one in ranked
    ]
    most = max(first + second for _, first, second in waits)
    head = [
        heading("engine", False),
        heading("import, s"),
        heading("prepare, s"),
        _bar_heading(),
    ]
    rows = [
        element(
            "tr",
            named(one),
            number(f"{first:.2f}"),
            number(f"{second:.2f}"),
            _bar(one, most, first, second),
            class_=row_class(one),
        )
        for one, first, second in waits
    ]
    return table("Start-up: import (full), preparation (pale)", head, rows)


def _sizes(caption: str, sizes: list[tuple[Group, int]]) -> Html | None:
    if not any(size for _, size in sizes):
        return None
    most = max(size for _, size in sizes)
    head = [heading("engine", False), heading("MB"), _bar_heading()]
    rows = [
        element(
            "tr",
            named(one),
            number(figures.megabytes(size)),
            _bar(one, most, size),
            class_=row_class(one),
        )
        for one, size in sizes
    ]
    return table(caption, head, rows)


def _bar_heading() -> Html:
    return element("td", class_="bar", aria_hidden="true")


def _bar(group: Group, most: float, *lengths: float) -> Html:
    """Return a cell with a bar; the figures beside it say the same."""
    rects, at = [], 0.0
    for i, length in enumerate(lengths):
        share = 100 * length / most if most and math.isfinite(length / most) else 0.0
        kind = "pale" if i else None
        width = f"{share:.2f}"
        rects.append(
            element("rect", x=f"{at:.2f}", width=width, height=10, class_=kind)
        )
        at += share
    drawn = element(
        "svg",
        *rects,
        class_=f"e{place(group.engine)}",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
    )
    return element("td", drawn, class_="bar", aria_hidden="true")
