"""The page on a race: whole, offline, safe, and drawn, as a real browser sees it."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import browser
import pytest
import race_made_up
from rich.console import Console
from typer.testing import CliRunner

from ganglion import pages
from ganglion.race import figures, results
from ganglion.race.report import charts, html, markdown, terminal_tables

PAGE = Path(pages.__file__).parent / "assets"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;]]>$x"


class Elements(HTMLParser):
    """The elements of a page, as a parser that knows nothing of us sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


def test_the_page_is_small_and_names_no_address() -> None:
    page = html.page([race_made_up.race()])
    assert len(page.encode()) < 400_000
    elements = Elements(page)
    assert not [attributes for _, attributes in elements.seen if "src" in attributes]
    assert [link["href"] for link in elements.all("link")] == ["data:,"]
    assert all(str(link["href"]).startswith("#") for link in elements.all("a"))
    assert not re.search(r"url\(|@import", page)


def test_the_policy_allows_just_our_own_scripts() -> None:
    page = html.page([race_made_up.race()])
    policy = next(
        attributes["content"] or ""
        for attributes in Elements(page).all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_every_value_of_hostile_results_is_only_text() -> None:
    race = race_made_up.race(2, 2)
    run = replace(
        race.finished[0], engine=HOSTILE, form=HOSTILE, settings={HOSTILE: HOSTILE}
    )
    failed = replace(
        run, status="failed", reason=HOSTILE, log_end=HOSTILE + "\0\x1b[1m"
    )
    race = replace(
        race,
        recipe=HOSTILE,
        title=HOSTILE,
        engines=(HOSTILE, "torch"),
        machine={HOSTILE: HOSTILE, "cpu": HOSTILE},
        versions={HOSTILE: HOSTILE, "ganglion": HOSTILE},
        commit=HOSTILE,
        command=HOSTILE,
        install_sizes={HOSTILE: 3},
        published=[{"system": HOSTILE, "accuracy": math.nan, "time": HOSTILE}],
        skipped=(results.Skipped(HOSTILE, HOSTILE),),
        finished=(run, failed, *race.finished),
        started=HOSTILE,
    )
    for races in ([race], [race, replace(race, seed=1)]):
        elements = Elements(html.page(races))
        assert len(elements.all("script")) == 3
        assert not elements.all("img")
        assert not [
            a
            for _, attributes in elements.seen
            for a in attributes
            if a.startswith("on")
        ]
        assert sum(HOSTILE in text for text in elements.texts) > 10


def test_the_data_of_the_charts_is_what_was_measured() -> None:
    race = race_made_up.race(3, 4)
    held = json.loads(re.search(r'id="curves">(.*?)</script>', html.page([race]))[1])
    curves = {curve["engine"]: curve for curve in held["charts"][0]["curves"]}
    assert list(curves) == list(race.engines)
    runs = [run for run in race.finished if run.engine == "jax"]
    average = curves["jax"]["average"]
    last = sum(run.accuracy or 0 for run in runs) / 3
    assert average["score"][-1] == pytest.approx(last, abs=2e-6)
    for clock, total in (
        ("run", lambda run: run.seconds),
        ("train", lambda run: run.train_seconds),
        ("all", lambda run: run.total_seconds),
    ):
        mean = sum(map(total, runs)) / 3
        assert average[clock][-1] == pytest.approx(mean, abs=1e-5)
    assert [len(series["score"]) for series in curves["jax"]["runs"]] == [4, 4, 4]


def test_a_race_without_accuracies_is_judged_by_its_test_loss() -> None:
    published = [{"system": "Keras", "loss": 41.72, "time": "11 s"}]
    race = race_made_up.race(2, 3, score="loss", published=published)
    last = [run.epochs[-1].test_loss for run in race.finished if run.engine == "jax"]
    page, shown = html.page([race]), StringIO()
    held = json.loads(re.search(r'id="curves">(.*?)</script>', page)[1])["charts"][0]
    curves = {curve["engine"]: curve for curve in held["curves"]}
    assert (held["score"], held["grows"]) == ("test loss", False)
    assert curves["jax"]["average"]["score"][-1] == pytest.approx(sum(last) / 2)
    assert "Test loss over time" in page
    group = next(group for group in figures.groups(race) if group.engine == "jax")
    Console(file=shown, width=60).print(terminal_tables.engine_table(group))
    for text in (markdown.text(race), page, shown.getvalue()):
        assert "test loss" in text
        assert "ccuracy" not in text
        assert f"{last[0]:.4f}" in text
    assert "41.7200" in markdown.text(race)
    better, worse = (replace(race, started=day) for day in ("2026-11-14", "2026-11-15"))
    shrunk = tuple(
        replace(
            run, epochs=tuple(replace(e, test_loss=e.test_loss / 2) for e in run.epochs)
        )
        for run in race.finished
    )
    page = html.page([worse, replace(better, finished=shrunk, started="2026-11-16")])
    assert "better" in rows_of(page, "Test loss")["jax"]


def test_an_engine_keeps_its_sign_whoever_else_takes_part() -> None:
    places = [charts.engine_index(name) for name in charts.KNOWN_ENGINES]
    assert len(set(places)) == len(places) < len(charts.SHAPES)
    new = charts.engine_index("somebody-else")
    assert new == charts.engine_index("somebody-else")
    assert new >= charts.KNOWN_ENGINES.index("ganglion-numpy")


def test_every_table_has_a_caption_and_every_heading_its_scope() -> None:
    elements = Elements(html.page([race_made_up.race(), race_made_up.race(salt="b")]))
    tables = elements.all("table")
    assert len(tables) == len(elements.all("caption")) > 20
    assert all(cell.get("scope") in ("row", "col") for cell in elements.all("th"))
    assert all(
        division.get("aria-label")
        for division in elements.all("div")
        if "role" in division
    )
    levels = [int(tag[1]) for tag, _ in elements.seen if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def rows_of(page: str, caption: str) -> dict[str, str]:
    """Return the rows of a table as text, by their head."""
    table = page.split(f">{caption}</caption>")[1].split("</table>")[0]
    body = table.split("<tbody>")[1]
    texts = ["".join(Elements(row).texts) for row in body.split("</tr>")[:-1]]
    return {re.split(r"ours|\d", text)[0].strip(): text for text in texts}


def test_several_races_show_a_regression_against_the_oldest() -> None:
    old = race_made_up.race()
    new = race_made_up.race(
        slower=1.2, salt="b", started="2026-12-01T00:00:00+00:00", commit="fedcba9876"
    )
    page = html.page([new, old])  # the order is by date, not as given
    rows = rows_of(page, "Run time, s")
    assert re.search(r"\+(19|20)\.\d% slower", rows["ganglion"])
    assert "noise" in rows["jax"]
    assert "noise" in rows_of(page, "Accuracy")["ganglion"]
    assert "A: </strong>Ganglion 0.1.0 (169ce72), AMD EPYC 9B14, 2026-11-15" in page
    assert "B: </strong>Ganglion 0.1.0 (fedcba9), AMD EPYC 9B14, 2026-12-01" in page
    better = html.page([old, replace(race_made_up.race(slower=0.5), started="2027")])
    assert re.search(r"-\d+\.\d% faster", rows_of(better, "Run time, s")["ganglion"])


def test_a_single_run_proves_no_regression() -> None:
    old, new = race_made_up.race(1, 2), race_made_up.race(1, 2, slower=1.3)
    row = rows_of(html.page([old, new]), "Run time, s")["ganglion"]
    assert row.endswith("% one run")


def test_races_that_are_not_alike_are_said_to_be() -> None:
    page = html.page([race_made_up.race(1, 2), race_made_up.race(1, 3, threads=8)])
    assert "The races are not alike: epochs (2, 3), threads (2, 8)." in page


def test_engines_that_only_one_race_has_stay_in_the_table() -> None:
    old = race_made_up.race(1, 2)
    kept = tuple(run for run in old.finished if run.engine != "jax")
    new = replace(old, started="2027", finished=kept)
    assert rows_of(html.page([old, new]), "Run time, s")["jax"].count("–") == 2


def test_races_of_several_recipes_are_not_compared() -> None:
    page = html.page([race_made_up.race(1, 1), race_made_up.race(1, 1, recipe="x")])
    assert page.count("<h2>") == 2
    assert "noise" not in "".join(Elements(page).texts[:-10])


def test_a_failed_engine_and_an_incomplete_race_are_told() -> None:
    race = race_made_up.race(2, 2, complete=False)
    race = race_made_up.with_a_failure(race, log_end="the very end")
    page = html.page([race])
    assert "This race is not complete: 12 runs are in." in page
    assert "tensorflow</strong>, run 2 failed: killed by the time limit" in page
    assert "the very end</pre>" in page
    assert "0 of 2" in page
    nothing = html.page([replace(race, finished=())])
    assert "No run is finished yet." in nothing
    assert "No run has come to its end yet." in nothing


def test_diverged_runs_and_runs_of_no_time_are_shown() -> None:
    run = race_made_up.run("torch", 1, 2)
    epochs = tuple(replace(epoch, test_accuracy=math.nan) for epoch in run.epochs)
    lost = replace(run, epochs=epochs, first_losses=(math.nan, math.inf))
    page = html.page([race_made_up.race(1, 2, finished=(lost,))])
    assert ">nan</td>" in page
    quick = replace(run, train_seconds=0.0, test_seconds=0.0, import_seconds=0.0)
    quick = replace(quick, prepare_seconds=0.0, epochs=())
    assert html.page([race_made_up.race(1, 2, finished=(quick,))])


def test_other_data_and_changed_sources_are_told() -> None:
    race = race_made_up.race(1, 1, machine={"data": "drawn digits"}, commit="abc123+")
    page = html.page([race])
    assert '<p class="bad" role="note">drawn digits</p>' in page
    assert "git checkout abc123\n" in page
    assert "changes that were not committed" in page


def test_no_race_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        html.page([])


def test_the_vendored_library_is_the_one_its_note_tells() -> None:
    folder = PAGE / "vendor"
    note = (folder / "README.md").read_text()
    sums = dict(re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", note))
    assert set(sums) == {"uPlot.iife.min.js", "uPlot.min.css"}
    for name, expected in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected
    version = re.search(r"uPlot\) ([\d.]+), MIT", note)[1]
    assert f"(v{version})" in (folder / "uPlot.iife.min.js").read_text()[:100]
    for text in (PAGE / "curves.js", folder / "uPlot.iife.min.js"):
        assert "</script" not in text.read_text().lower()


# Machado, Oliveira and Fernandes 2009: how the colour-blind see, on linear light.
SIGHTS = {
    "most": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def light(colour: str) -> list[float]:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def luminance(colour: str) -> float:
    red, green, blue = light(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def seen(colour: str, sight: Any) -> tuple[float, float, float]:
    """Return a colour in CIELAB, where distances are as people see them."""
    rgb = [sum(a * b for a, b in zip(row, light(colour), strict=True)) for row in sight]
    r, g, b = (min(1.0, max(0.0, channel)) for channel in rgb)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 4 / 29 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_are_told_apart_by_everybody(theme: int) -> None:
    css = (PAGE / "page.css").read_text().split("prefers-color-scheme: dark")[theme]
    colours = [re.search(rf"--e{i}: (#\w{{6}})", css)[1] for i in range(10)]
    paper = luminance(re.search(r"--paper: (#\w{6})", css)[1])
    for colour in colours:
        pair = sorted([luminance(colour), paper])
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 3
    for sight in SIGHTS.values():
        for (i, colour), (j, other) in itertools.combinations(enumerate(colours), 2):
            least = 30 if i < 6 and j < 6 else 18
            assert math.dist(seen(colour, sight), seen(other, sight)) > least, (i, j)


def test_the_command_makes_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganglion.cli import app

    monkeypatch.chdir(tmp_path)
    results.save(race_made_up.race(1, 1), "one")
    results.save(race_made_up.race(1, 1, started="2027"), "two")
    runner = CliRunner()
    done = runner.invoke(app.app, ["report", "one"])
    assert done.exit_code == 0
    assert done.stdout.split() == ["one/results.md", "one/report.html"]
    assert runner.invoke(app.app, ["report", "one/results.json"]).exit_code == 0
    done = runner.invoke(app.app, ["report", "one", "two"])
    assert done.stdout.split() == ["race-report.html"]
    assert "2 races</h1>" in Path("race-report.html").read_text()
    done = runner.invoke(app.app, ["report", "two", "--out", "new/page.html"])
    assert Path("new/page.html").is_file()
    done = runner.invoke(app.app, ["report", "three"])
    assert done.exit_code
    assert "three does not exist; give a folder" in str(done.exception)


def written(path: Path, *races: results.Race) -> Path:
    return html.write(races, path / "report.html")


# How many different colours are in the inner part of every chart's canvas.
COLOURS = """[...document.querySelectorAll('.plot canvas')].map(canvas => {
  const {width, height} = canvas;
  const data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4)
    if (data[i + 3] === 255) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
  return [...seen];
})"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def engine_colours(page: browser.Browser) -> list[int]:
    names = page.evaluate(
        "Array.from({length: 6}, (_, i) => getComputedStyle(document.documentElement)"
        ".getPropertyValue('--e' + i).trim())"
    )
    return [int(name[1:], 16) for name in names]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360], ids=["desktop", "phone"])
def test_a_browser_draws_the_page_and_asks_nobody(
    chromium: browser.Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    path = written(tmp_path, race_made_up.race())
    chromium.open(path, width=width, height=800, dark=dark)
    assert chromium.requests() == [path.resolve().as_uri()]
    assert chromium.complaints() == []
    assert chromium.evaluate("document.documentElement.dataset.charts") == "2"
    counts = "[...document.querySelectorAll('.plot')].map(one => one.dataset.curves)"
    assert chromium.evaluate(counts) == ["6", "6"]
    over_time, over_epochs = map(set, chromium.evaluate(COLOURS))
    assert over_time >= set(engine_colours(chromium))  # each curve is in its colour
    assert len(over_epochs) > 5
    assert chromium.evaluate(OVERFLOW) == 0
    bars = "[...document.querySelectorAll('.bar rect')].map(one => one.getBBox().width)"
    assert max(chromium.evaluate(bars)) == pytest.approx(100)


def test_engines_are_switched_on_and_off(
    chromium: browser.Browser, tmp_path: Path
) -> None:
    chromium.open(written(tmp_path, race_made_up.race()))
    torch = engine_colours(chromium)[charts.engine_index("torch")]
    assert torch in chromium.evaluate(COLOURS)[0]
    box = "document.querySelector('input[value=torch]').click()"
    chromium.evaluate(box)
    assert chromium.evaluate("document.querySelector('.plot').dataset.curves") == "5"
    assert torch not in chromium.evaluate(COLOURS)[0]
    chromium.evaluate(box)
    chromium.evaluate("document.querySelector('[data-kind=log]').click()")
    assert torch in chromium.evaluate(COLOURS)[0]
    assert chromium.complaints() == []


def test_a_sweep_of_one_epoch_in_a_browser(
    chromium: browser.Browser, tmp_path: Path
) -> None:
    runs = tuple(
        race_made_up.run(name, number, 1, settings={"lr": rate})
        for name in race_made_up.SPEEDS
        for rate in (0.1, 0.5)
        for number in (1, 2)
    )
    chromium.open(written(tmp_path, race_made_up.race(2, 1, finished=runs)))
    curves = "document.querySelector('.plot').dataset.curves"
    assert chromium.evaluate(curves) == "12"
    assert set(engine_colours(chromium)) <= set(chromium.evaluate(COLOURS)[0])
    chromium.evaluate("document.querySelector('[data-kind=settings]').click()")
    assert chromium.evaluate(curves) == "6"
    assert chromium.complaints() == []


def test_values_are_read_by_mouse_and_by_keyboard(
    chromium: browser.Browser, tmp_path: Path
) -> None:
    race = race_made_up.race()
    chromium.open(written(tmp_path, race))
    reading = "document.querySelector('.plot[data-kind={}] .reading').innerText"
    chromium.evaluate("document.querySelector('.plot[data-kind=epochs]').focus()")
    for _ in range(3):
        chromium.key("ArrowRight")
    text = chromium.evaluate(reading.format("epochs"))
    assert text.startswith("epoch 3\n")
    third = [
        run.epochs[2].test_accuracy for run in race.finished if run.engine == "jax"
    ]
    assert f"jax\n{sum(third) / 4:.4f}" in text
    chromium.key("Escape")
    hidden = "document.querySelector('.plot[data-kind=epochs] .reading').hidden"
    assert chromium.evaluate(hidden) is True
    at = chromium.evaluate(
        "(() => { const plot = document.querySelector('.plot[data-kind=time]');"
        "plot.scrollIntoView({block: 'center'});"
        "const box = plot.querySelector('.u-over').getBoundingClientRect();"
        "return [box.x + box.width - 2, box.y + box.height / 2]; })()"
    )
    chromium.hover(*at)
    chromium.evaluate("new Promise(done => requestAnimationFrame(() => done(1)))")
    text = chromium.evaluate(reading.format("time"))
    assert text.startswith("after ")
    assert text.count("epoch 10") == 6
    assert chromium.complaints() == []


def test_scripts_inside_of_results_do_not_run(
    chromium: browser.Browser, tmp_path: Path
) -> None:
    race = race_made_up.with_a_failure(race_made_up.race(1, 2), log_end=HOSTILE)
    race = replace(race, title=HOSTILE, engines=(*race.engines, HOSTILE))
    extra = replace(race.finished[0], engine=HOSTILE)
    path = written(tmp_path, replace(race, finished=(*race.finished, extra)))
    chromium.open(path)
    assert chromium.requests() == [path.resolve().as_uri()]
    assert chromium.complaints() == []
    assert chromium.evaluate("document.documentElement.dataset.charts") == "2"
    log = "document.querySelector('.problems pre').textContent"
    assert chromium.evaluate(log) == HOSTILE


@pytest.mark.parametrize("width", [1280, 360], ids=["desktop", "phone"])
def test_several_races_in_a_browser(
    chromium: browser.Browser, tmp_path: Path, width: int
) -> None:
    old = race_made_up.race(2, 3)
    broken = race_made_up.with_a_failure(race_made_up.race(1, 2, salt="b"))
    empty = race_made_up.race(1, 2, finished=(), complete=False)
    odd = race_made_up.race(1, 2, recipe="a-recipe-of-a-very-long-name-" * 4)
    races = [old, replace(broken, started="2027"), replace(empty, started="2028"), odd]
    chromium.open(written(tmp_path, *races), width=width)
    assert chromium.complaints() == []
    assert chromium.evaluate("document.documentElement.dataset.charts") == "4"
    curves = "document.querySelector('.plot').dataset.curves"
    assert chromium.evaluate(curves) == "11"
    chromium.evaluate("document.querySelector('[data-kind=race]').click()")
    assert chromium.evaluate(curves) == "5"
    assert chromium.evaluate(OVERFLOW) == 0
