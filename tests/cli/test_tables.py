"""Tables at any width: no name is cut, whatever prints it."""

import io
import re

import pytest
import race_made_up
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from ganglion import datasets, recipes
from ganglion.cli.app import app
from ganglion.race import figures
from ganglion.race.bench import report
from ganglion.race.bench.result import Entry, Result
from ganglion.race.report import terminal_tables
from ganglion.race.watch import LiveWatch
from ganglion.system import terminal

WIDTHS = (20, 40, 60, 80, 100, 144)


def printed(table, width):
    file = io.StringIO()
    terminal.show(table, Console(width=width, file=file))
    return file.getvalue()


@pytest.mark.parametrize("columns", [*WIDTHS, None])
@pytest.mark.parametrize("command", ["recipes", "data"])
def test_no_command_cuts_a_name(command, columns, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    done = CliRunner().invoke(app, [command])
    assert done.exit_code == 0, done.output
    names = recipes.RECIPES if command == "recipes" else datasets.NAMES
    for name in names:
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", done.output), name
    assert "…" not in done.output
    if columns and "│" in done.output:  # as a table, it fits
        lines = [line for line in done.output.splitlines() if "│" in line]
        assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_race_cuts_no_name(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    race = race_made_up.race(3, 2)
    terminal_tables.show(race)
    text = capsys.readouterr().out
    assert "…" not in text
    for group in figures.groups(race):
        assert re.search(rf"(?<![\w-]){group.engine}(?![\w-])", text)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_bench_cuts_no_name(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ("ganglion", "ganglion-precise", "torch-optimized")
    entries = [
        Entry(name, "a form", milliseconds=[1.0, 1.1], memory=10**8) for name in names
    ]
    report.print_table(Result("mnist-mlp", 128, 2, entries, 1e6, {}))
    text = capsys.readouterr().out
    assert "…" not in text
    for name in names:
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", text)


def test_the_live_table_of_a_race_cuts_no_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    watch = LiveWatch(("ganglion", "torch-optimized"), 2)
    watch.says("torch-optimized", "lockstep: compiled, with CUDA graphs and all")
    file = io.StringIO()
    Console(width=40, file=file).print(watch._table())
    assert "torch-optimized" in file.getvalue()
    assert "…" not in file.getvalue()


def test_wide_characters_markup_and_empty_cells():
    table = Table("name", "what", title="a title")
    table.add_row(Text("猫猫猫猫猫猫"), Text("[red]not markup[/red]"))
    table.add_row("x", "")
    text = printed(table, 16)
    assert text.splitlines()[0] == "a title"
    assert "猫猫猫猫猫猫" in text
    assert "[red]not markup[/red]" in text
    for width in (30, 40):
        assert "猫猫猫猫猫猫" in printed(table, width)


def test_a_table_that_fits_is_a_table():
    table = Table("name", "what")
    table.add_row("mnist-mlp", "a word or two that may be broken anywhere")
    text = printed(table, 30)
    assert "│ mnist-mlp │" in text
    assert max(map(len, text.splitlines())) <= 30
    assert "anywhere" in text
