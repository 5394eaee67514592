"""`report.html` of a sweep, as a real browser sees it; parallel coordinates."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import browser
import pytest

from ganglion.many import sweep, sweep_report
from ganglion.pages import parallel_axes

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
STROKES = """[...document.querySelectorAll('.parallel polyline')].map(
  line => getComputedStyle(line).stroke)"""


def results(**more: Any) -> sweep.Results:
    """A sweep that nobody ran: 12 settings, 3 seeds each, one of them failed."""
    models = []
    grid = itertools.product((0.05, 0.1, 0.2), ("relu", "elu"), (1, 2), range(3))
    for index, (rate, kind, depth, seed) in enumerate(grid):
        score = 0.8 + rate - depth / 50 + seed / 500 + len(kind) / 1e4
        end = None if index == 4 else score
        setting = {"rate": rate, "kind": kind, "depth": depth}
        models.append(
            {"index": index, "setting": setting, "seed": seed, "fold": None,
             "seconds": 0.1, "message": None, "history": {"val_score": [0.5, end]}}
        )  # fmt: skip
    data: dict[str, Any] = {
        "name": "net", "title": "", "score": "val_score", "larger_is_better": True,
        "epochs": 2, "total": 36, "threads": 2, "started": "2026-11-15T00:00:00+00:00",
        "seconds": 1.0, "command": "ganglion sweep net.py", "machine": {"cpu": "some"},
        "published": [], "remark": "", "models": models,
    }  # fmt: skip
    return sweep.Results(**data | more)


@pytest.mark.parametrize(("width", "dark"), browser.SCREENS)
def test_a_browser_draws_the_page(
    chromium: browser.Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    path = sweep_report.write(results(), tmp_path)
    chromium.open(path, width=width, height=800, dark=dark)
    assert chromium.complaints() == []
    assert chromium.requests() == [path.resolve().as_uri()]
    assert chromium.evaluate(OVERFLOW) == 0
    assert chromium.evaluate("document.querySelector('.plot').dataset.curves") == "12"
    strokes = chromium.evaluate(STROKES)
    assert len(strokes) == 35  # without the one that failed
    assert len(set(strokes)) > 4
    titles = (
        "[...document.querySelectorAll('.parallel .title')].map(t => t.textContent)"
    )
    assert chromium.evaluate(titles) == ["rate", "kind", "depth", "val_score"]


def test_the_best_line_is_drawn_last_and_named() -> None:
    page = sweep_report.page(results())
    last = page.split("<polyline")[-1]
    assert 'class="level9"' in last
    assert "rate=0.2, kind=relu, depth=1, seed 2: 0.9844</title>" in last
    losses = sweep_report.page(results(larger_is_better=False))
    assert ": 0.8103</title>" in losses.split("<polyline")[-1]


def test_settings_that_do_not_differ_have_no_axis() -> None:
    one = [model | {"setting": {"rate": 0.1}} for model in results().models]
    assert "<polyline" not in sweep_report.page(results(models=one))
    failed = [model | {"history": {}} for model in one]
    assert "<polyline" not in sweep_report.page(results(models=failed))


def test_many_numbers_lie_on_a_scale_and_names_in_their_order() -> None:
    rates = [0.001 * 1.5**step for step in range(12)]
    axis = parallel_axes.axis_of("rate", rates)
    assert list(axis.places.values()) == pytest.approx([i / 11 for i in range(12)])
    assert len(axis.ticks) == 5
    mixed = parallel_axes.axis_of("mixed", ["b", 2, "a", 2])
    assert mixed.ticks == {"2": 0, "a": 0.5, "b": 1}
