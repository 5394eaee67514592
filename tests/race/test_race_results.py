"""What a race measured survives being written and read; what is damaged is named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import race_made_up
from folders import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from ganglion.race import figures, results
from ganglion.race.report import html, markdown
from ganglion.race.results import (
    Epoch,
    ExactSteps,
    Race,
    ResultsError,
    Run,
    Skipped,
)

NUMBERS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
WHOLE = st.integers(-(2**70), 2**70)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = TEXT | WHOLE | st.booleans() | st.none()
RECORDS = st.dictionaries(TEXT, SCALARS, max_size=3)
EPOCHS = st.builds(Epoch, WHOLE, *[NUMBERS] * 6)
RUNS = st.builds(
    Run,
    engine=TEXT,
    number=WHOLE,
    seed=WHOLE,
    status=st.sampled_from(results.STATUSES),
    reason=TEXT,
    log_end=TEXT,
    form=TEXT,
    import_seconds=NUMBERS,
    epochs=st.lists(EPOCHS, max_size=2).map(tuple),
    first_losses=st.lists(NUMBERS, max_size=4).map(tuple),
    peak_memory=WHOLE,
    settings=RECORDS,
)
EXACT = st.builds(
    ExactSteps,
    learning_rate=NUMBERS,
    apart=NUMBERS,
    losses=st.dictionaries(TEXT, st.lists(NUMBERS, max_size=3).map(tuple), max_size=2),
    missing=st.dictionaries(TEXT, TEXT, max_size=2),
    settings=RECORDS,
)
PUBLISHED = st.fixed_dictionaries({"system": TEXT, "accuracy": NUMBERS, "time": TEXT})
RACES = st.builds(
    Race,
    recipe=TEXT,
    title=TEXT,
    epochs=WHOLE,
    batch_size=WHOLE,
    runs=WHOLE,
    threads=WHOLE,
    device=st.sampled_from(results.DEVICES),
    seed=WHOLE,
    engines=st.lists(TEXT, max_size=3).map(tuple),
    machine=RECORDS,
    versions=st.dictionaries(TEXT, TEXT, max_size=2),
    install_sizes=st.dictionaries(TEXT, WHOLE, max_size=2),
    published=st.lists(PUBLISHED, max_size=2),
    skipped=st.lists(st.builds(Skipped, TEXT, TEXT), max_size=2).map(tuple),
    finished=st.lists(RUNS, max_size=2).map(tuple),
    complete=st.booleans(),
    exact_steps=st.lists(EXACT, max_size=2).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(RACES)
def test_any_race_comes_back_as_it_was(race: Race) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        results.save(race, folder)
        # NaN is no equal of itself, its text is.
        assert repr(results.load(folder)) == repr(race)


def test_a_race_can_be_read_by_folder_and_by_file(tmp_path: Path) -> None:
    race = race_made_up.race(runs=1, epochs=2)
    path = results.save(race, tmp_path / "new" / "folder")
    assert results.load(path) == results.load(path.parent) == race
    assert [path.name for path in path.parent.iterdir()] == ["results.json"]


def test_the_file_is_json_to_the_letter(tmp_path: Path) -> None:
    epoch = Epoch(1, math.nan, 0.1, math.inf, 0.1, 1.0, 0.1)
    run = replace(race_made_up.run("torch", 1, 1), epochs=(epoch,))
    path = results.save(race_made_up.race(1, 1, finished=(run,)), tmp_path)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    data = json.loads(path.read_text(), parse_constant=refuse)
    held = data["finished"][0]["epochs"][0]
    assert (held["train_loss"], held["test_loss"]) == ("NaN", "Infinity")


def test_numbers_of_numpy_are_taken(tmp_path: Path) -> None:
    run = Run(
        "jax",
        np.int64(1),
        np.int32(0),
        "done",
        first_losses=(np.float32(0.5), np.float32("nan")),
        peak_memory=np.uint64(7),
    )
    results.save(race_made_up.race(1, 1, finished=(run,)), tmp_path)
    back = results.load(tmp_path).finished[0]
    assert (back.number, back.first_losses[0], back.peak_memory) == (1, 0.5, 7)
    assert math.isnan(back.first_losses[1])


def test_a_log_cut_in_mid_character_is_kept(tmp_path: Path) -> None:
    run = Run("jax", 1, 0, "failed", log_end="so far \udce2\ud800 \x00\x1b[31m")
    results.save(race_made_up.race(1, 1, finished=(run,)), tmp_path)
    assert results.load(tmp_path).finished[0].log_end.startswith("so far ")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    race = race_made_up.race(1, 1)
    results.save(race, tmp_path)
    with pytest.raises(TypeError):
        results.save(replace(race, machine={"cpu": object()}), tmp_path)
    assert results.load(tmp_path) == race
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def put(*way: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of the data: the last item is put where the others lead."""

    def change(data: Any) -> None:
        *path, key, value = way
        for step in path:
            data = data[step]
        data[key] = value

    return change


def drop(*way: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for step in way[:-1]:
            data = data[step]
        del data[way[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("schema", 2), "has schema 2; this Ganglion reads schema 1"),
        (put("schema", True), "has schema True"),
        (put("schema", "1"), "has schema '1'"),
        (drop("schema"), "has no schema number"),
        (drop("recipe"), "recipe is missing"),
        (put("epochs", "3"), 'epochs must be an integer, not "3"'),
        (put("epochs", True), "epochs must be an integer, not true"),
        (put("complete", 1), "complete must be true or false, not 1"),
        (put("engines", "torch"), 'engines must be a list, not "torch"'),
        (put("engines", 0, None), "engines[0] must be a text, not null"),
        (put("machine", []), "machine must be an object, not []"),
        (put("versions", "torch", 2), "versions.torch must be a text, not 2"),
        (put("device", "tpu"), "device must be one of"),
        (put("published", 0, {}), "published[0].system is missing"),
        (put("published", 0, "accuracy", "?"), "published[0].accuracy must be a num"),
        (put("skipped", 0, "me"), 'skipped[0] must be an object, not "me"'),
        (put("finished", 0, "status", "ok"), "finished[0].status must be one of"),
        (drop("finished", 1, "seed"), "finished[1].seed is missing"),
        (
            put("finished", 0, "epochs", 1, "test_loss", "nan"),
            'finished[0].epochs[1].test_loss must be a number, not "nan"',
        ),
        (
            put("finished", 0, "first_losses", 3, None),
            "finished[0].first_losses[3] must be a number, not null",
        ),
        (put("finished", 0, "log_end", ["x"] * 99), "log_end must be a text, not ["),
        (put("finished", 0, "train_seconds", 10**999), "must be a number, not 1000"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: Callable[[Any], None], said: str
) -> None:
    path = results.save(race_made_up.race(runs=1, epochs=2), tmp_path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ResultsError) as error:
        results.load(tmp_path)
    assert str(path) in str(error.value)
    assert said in str(error.value)
    assert len(str(error.value)) < len(str(path)) + 250


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1} {"schema": 1}'],
    ids=["empty", "cut", "not text", "deep", "two"],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match="is damaged: it is not") as error:
        results.load(tmp_path)
    assert str(path) in str(error.value)
    assert "run the race again" in str(error.value)


def test_another_file_and_no_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="does not exist; give a folder"):
        results.load(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ResultsError, match="not a file of `ganglion race`"):
        results.load(tmp_path)


def test_fields_that_a_later_version_added_are_passed_over(tmp_path: Path) -> None:
    race = race_made_up.race(1, 1)
    path = results.save(race, tmp_path)
    data = json.loads(path.read_text()) | {"weather": "fine"}
    data["finished"][0]["watts"] = 65
    del data["install_sizes"], data["exact_steps"]  # an earlier one had none
    path.write_text(json.dumps(data))
    assert results.load(path) == replace(race, install_sizes={})


def test_the_documented_schema_is_the_one_in_use() -> None:
    page = (ROOT / "docs" / "results-schema.md").read_text()
    titles = {Race: "Race", Run: "Run", Epoch: "Epoch", ExactSteps: "Exact steps"}
    for kind, title in titles.items():
        part = page.split(f"## {title}\n")[1].split("\n## ")[0]
        named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"\n\| ([^|]*)", part))))
        assert named == {field.name for field in fields(kind)}
    assert f"schema **{results.SCHEMA}**" in page


def test_averages_take_only_runs_that_ended() -> None:
    race = race_made_up.race(runs=3, epochs=2)
    broken = replace(race.finished[0], status="failed", train_seconds=1e9)
    race = replace(race, finished=(broken, *race.finished[1:]))
    group = next(
        group for group in figures.groups(race) if group.engine == broken.engine
    )
    kept = [run.seconds for run in race.finished[1:] if run.engine == broken.engine]
    assert group.time is not None
    assert group.time.mean == pytest.approx(sum(kept) / 2)
    assert group.time.deviation == pytest.approx(abs(kept[0] - kept[1]) / math.sqrt(2))


def test_the_verdict_is_as_frank_when_we_lose() -> None:
    assert "jax, the fastest rival, takes 1." in figures.verdict(race_made_up.race())
    lost = figures.verdict(race_made_up.race(slower=3.0))
    assert lost.startswith("jax is faster: ganglion takes 1.")
    assert "one run" not in lost
    assert "There is one run only" in figures.verdict(race_made_up.race(runs=1))
    close = race_made_up.race(runs=2, slower=1.58)
    noisy = tuple(
        replace(run, train_seconds=run.train_seconds * (1 + run.number / 10))
        for run in close.finished
    )
    told = figures.verdict(replace(close, finished=noisy))
    assert "take the same time, as far as the spread of the runs can tell" in told


def test_losses_that_part_are_found() -> None:
    race = race_made_up.race(runs=2, epochs=1)
    assert 0 < (figures.disagreement(race) or 0) < 1e-4
    first, *others = race.finished
    apart = replace(first, first_losses=(first.first_losses[0] * 1.01,))
    far = figures.disagreement(replace(race, finished=(apart, *others)))
    assert far == pytest.approx(0.01, rel=0.02)
    lost = replace(first, first_losses=(math.nan,))
    assert figures.disagreement(replace(race, finished=(lost, *others))) == math.inf


def test_settings_of_a_sweep_are_rows_of_their_own() -> None:
    runs = [
        race_made_up.run("torch", 1, 1, settings={"lr": rate}) for rate in (0.1, 0.5)
    ]
    race = race_made_up.race(1, 1, finished=tuple(runs))
    labels = [group.label for group in figures.groups(race)]
    assert labels == ["torch (lr 0.1)", "torch (lr 0.5)"]
    assert "## torch (lr 0.5)" in markdown.text(race)


def test_a_sweep_compares_engines_of_the_same_settings() -> None:
    runs = [
        race_made_up.run(name, 1, 1, settings={"lr": rate}, slower=rate)
        for name in ("ganglion", "jax")
        for rate in (1, 10)
    ]
    race = race_made_up.race(1, 1, finished=tuple(runs))
    lines = figures.verdict(race).splitlines()
    assert [line.split(",")[0] for line in lines] == ["lr 1: jax", "lr 10: jax"]
    ranked = figures.by_time(race)
    ratios = {group.label: figures.ratio(group, ranked) for group in ranked}
    assert ratios["ganglion (lr 10)"] == ratios["ganglion (lr 1)"] == 1
    assert 1 < (ratios["jax (lr 10)"] or 0) < 3
    for line in lines:
        assert f"\n\n{line}\n\n" in markdown.text(race)


def test_markdown_has_the_published_form(tmp_path: Path) -> None:
    race = race_made_up.with_a_failure(race_made_up.race())
    text = markdown.write(race, tmp_path).read_text()
    ours = text.split("\n## ganglion\n")[1].split("\n## ")[0]
    rows = [line for line in ours.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[2:]] == [
        *"1234",
        "**average**",
        "**deviation**",
    ]
    mean = sum(run.seconds for run in race.finished if run.engine == "ganglion") / 4
    assert f"{mean:.2f}" in rows[6]
    assert "0 of 4" in text
    assert "tensorflow, run 1 failed: killed by the time limit" in text
    assert "keras-jax was left out: keras is not installed: pip install" in text
    assert race.command in text
    assert race.commit in text
    for name, version in race.versions.items():
        assert re.search(rf"\| {name} +\| {re.escape(version)} ", text)


def test_markdown_takes_hostile_text_literally() -> None:
    bad = "a|b\n# head `code` <script>*x*"
    race = race_made_up.race(1, 1, title=bad, machine={"cpu": bad})
    race = race_made_up.with_a_failure(
        race, reason=bad, log_end="```\n# no head\x1b[0m\n````"
    )
    text = markdown.text(race)
    assert "<script>" not in text
    assert "\n# " not in text
    assert "\n  `````\n  ```\n  # no head\n  ````\n  `````\n" in text
    for line in text.splitlines():
        if line.startswith("| cpu"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 3


def test_a_remark_on_the_data_is_told() -> None:
    race = race_made_up.race(1, 1, machine={"data": "drawn digits, not MNIST"})
    assert "\n\ndrawn digits, not MNIST\n\n" in markdown.text(race)


def test_other_work_on_the_machine_is_told_on_every_page() -> None:
    loud = race_made_up.race(1, 1, threads=2, machine={"load before": "1.90"})
    quiet = race_made_up.race(1, 1, threads=2, machine={"load before": "0.10"})
    warning = "Other work was running when the race began (load 1.90)"
    for page_of in (markdown.text, lambda race: html.page([race])):
        assert warning in page_of(loud)
        assert "Other work" not in page_of(quiet)
    assert html.page([loud, quiet]).count(warning) == 1
    odd = race_made_up.race(1, 1, machine={"load before": "much"})
    assert "Other work" not in markdown.text(odd)


def test_markdown_of_a_race_that_has_just_begun() -> None:
    race = race_made_up.race(2, 1, finished=(), complete=False, skipped=())
    text = markdown.text(race)
    assert "not complete: 0 runs are in" in text
    assert "No run is finished yet." in text
