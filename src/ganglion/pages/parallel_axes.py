"""Parallel coordinates: an axis a setting, a line a model, coloured by its result.

Drawn as SVG that needs no script; where the screen is narrow it scrolls by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ganglion.pages.markup import Html, element

LEVELS = 10  # of colours: page.css has a class for each
MOST_NAMED = 8  # values of an axis that each have a place; more are on a scale
WIDTH, TOP, HEIGHT, MARGIN = 960, 34, 280, 90  # pixels
LEAST_GAP, LARGEST_GAP = 150, 320  # between axes
LOG_RATIO = 50  # of the largest to the smallest: from here on the scale is logarithmic


class Axis(NamedTuple):
    """A setting: where its values lie, 0 at the bottom to 1, and which are named."""

    name: str
    places: dict[Any, float]
    ticks: dict[str, float]


def axis_of(name: str, values: Sequence[Any]) -> Axis:
    """Return the axis of some values: few are evenly spread, many lie on a scale.

    >>> axis_of("rate", [0.1, 1.0, 0.2, 0.1]).ticks
    {'0.1': 0.0, '0.2': 0.5, '1': 1.0}
    >>> axis_of("units", [2**power for power in range(11)]).places[32]
    0.5
    """
    distinct = sorted(set(values), key=_order)
    numbers = all(map(_is_number, distinct))
    if len(distinct) > MOST_NAMED and numbers:
        is_log = distinct[0] > 0 and distinct[-1] / distinct[0] >= LOG_RATIO
        scale = math.log if is_log else float
        low, high = scale(distinct[0]), scale(distinct[-1])
        places = {value: (scale(value) - low) / (high - low) for value in distinct}
        named = [distinct[i * (len(distinct) - 1) // 4] for i in range(5)]
    else:
        last = max(len(distinct) - 1, 1)
        places = {value: number / last for number, value in enumerate(distinct)}
        named = distinct
    return Axis(name, places, {_text(value): places[value] for value in named})


def parallel_axes(
    settings: Sequence[Mapping[str, Any]],
    results: Sequence[float],
    names: Sequence[str],
    result: str,
    larger_is_better: bool,
) -> Html | None:
    """Return the chart; None where no setting differs.

    Args:
        settings: Of every model; those that all have in common get no axis.
        results: Of every model.
        names: Of every model, shown when a line is pointed at.
        result: What the results are, the last axis.
        larger_is_better: Which end of the results has the colour of the best.
    """
    keys = dict.fromkeys(key for setting in settings for key in setting)
    rows = {key: [_plain(setting.get(key)) for setting in settings] for key in keys}
    axes = [
        axis_of(key, values) for key, values in rows.items() if len(set(values)) > 1
    ]
    low, high = min(results, default=0.0), max(results, default=0.0)
    if not axes or low == high:
        return None
    share = [(value - low) / (high - low) for value in results]
    ends = {f"{low + step * (high - low) / 4:.4f}": step / 4 for step in range(5)}
    marked = [*axes, Axis(result, {}, ends)]
    gap = max(LEAST_GAP, min(LARGEST_GAP, WIDTH // len(axes)))
    width = 2 * MARGIN + gap * len(axes)
    lines = []
    best_last = sorted(range(len(results)), key=lambda i: share[i])
    if not larger_is_better:
        best_last.reverse()
    for i in best_last:
        places = [axis.places[rows[axis.name][i]] for axis in axes] + [share[i]]
        level = share[i] if larger_is_better else 1 - share[i]
        lines.append(_line(places, gap, level, f"{names[i]}: {results[i]:.4f}"))
    drawn = element(
        "svg",
        element("g", *lines),
        *(_drawn(axis, MARGIN + gap * number) for number, axis in enumerate(marked)),
        viewBox=f"0 0 {width} {TOP + HEIGHT + 20}",
        width=width,
        height=TOP + HEIGHT + 20,
        role="img",
        aria_label=f"{len(results)} models by {', '.join(axis.name for axis in axes)}; "
        f"{result} from {low:.4f} to {high:.4f}.",
    )
    label = "Settings and results, a line a model"
    return element(
        "div",
        drawn,
        class_="scroll parallel",
        tabindex=0,
        role="group",
        aria_label=label,
    )


def legend(low: str, high: str) -> Html:
    """Return the colours from the worst to the best."""
    boxes = [
        element("rect", x=10 * level, width=10, height=10, class_=f"level{level}")
        for level in range(LEVELS)
    ]
    scale = element("svg", *boxes, viewBox="0 0 100 10", aria_hidden="true")
    return element("p", f"{low} ", scale, f" {high}", class_="note scale")


def _line(places: Sequence[float], gap: int, level: float, name: str) -> Html:
    points = " ".join(
        f"{MARGIN + gap * number},{_y(place)}" for number, place in enumerate(places)
    )
    kind = f"level{min(LEVELS - 1, int(level * LEVELS))}"
    return element("polyline", element("title", name), points=points, class_=kind)


def _drawn(axis: Axis, x: int) -> Html:
    ticks = [
        element("text", text, x=x - 8, y=_y(place), class_="tick")
        for text, place in axis.ticks.items()
    ]
    line = element("line", x1=x, x2=x, y1=_y(0), y2=_y(1))
    title = element("text", axis.name, x=x, y=TOP - 18, class_="title")
    return element("g", line, title, *ticks, class_="axis")


def _y(place: float) -> float:
    return round(TOP + HEIGHT * (1 - place), 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _order(value: Any) -> tuple[int, float, str]:
    return (0, value, "") if _is_number(value) else (1, 0.0, str(value))


def _plain(value: Any) -> Any:
    return value if _is_number(value) and math.isfinite(value) else str(value)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:24]
