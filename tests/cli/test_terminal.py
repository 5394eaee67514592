"""Nothing that comes from outside is obeyed by a terminal, or taken for a style."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, progress, saving
from ganglion.system import terminal

# Clears the screen, sets the title, hides text, turns writing round; styles of rich's.
HOSTILE = "cat\x1b[2J\x1b]0;owned\x07[bold red]\x9b31m\u202egnp\r\n[/]"
ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def assert_harmless(text: str) -> None:
    assert not ORDERS.search(text), ascii(text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def without_our_colours(text: str) -> str:
    """Take out what Ganglion's bar and rich's tables themselves write."""
    return re.sub("\x1b\\[[0-9;]*[mK]", "", text).replace("\r", "")


def test_names_and_messages():
    assert_harmless(terminal.printable(HOSTILE))
    assert "\n" not in terminal.printable(HOSTILE)
    assert_harmless(terminal.lines(HOSTILE))
    assert terminal.printable("Katze 猫 [x]") == "Katze 猫 [x]"
    assert terminal.lines("a\n\tb") == "a\n\tb"
    name = "\x9b\u202ex\udc80"
    told = terminal.json_shown(json.dumps([name], ensure_ascii=False))
    assert_harmless(told)
    assert json.loads(told) == [name]
    told.encode()


@pytest.fixture
def classifier(tmp_path):
    """A model file with hostile class names, and images to ask it about."""
    image = pytest.importorskip("PIL.Image")
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Flatten(),
            layers.Dense(2, activation="softmax"),
        ]
    )
    from ganglion.images import Form

    model.notes = {
        "class_names": [HOSTILE, "[blink]dog[/blink]"],
        "images": Form((8, 8)).as_data(),
    }
    path = tmp_path / "m.keras"
    model.save(path)
    rng = np.random.default_rng(0)
    files = []
    for number in range(4):
        files.append(tmp_path / f"[red]{number}\x1b[31m.png")
        pixels = rng.integers(0, 256, (8, 8, 3)).astype("uint8")
        image.fromarray(pixels).save(files[-1])
    return path, files


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_predict(classifier, form, capsys, monkeypatch):
    from ganglion.cli import app

    model, files = classifier
    monkeypatch.setenv("NO_COLOR", "1")
    argv = ["ganglion", "predict", str(model), *map(str, files), "--format", form]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert not ended.value.code
    out, told = capsys.readouterr()
    assert_harmless(out)
    assert_harmless(told)
    assert "dog" in out
    if form == "json":
        assert json.loads(out)[0]["class"] in (HOSTILE, "[blink]dog[/blink]")
    elif form == "csv":
        assert "[blink]dog[/blink]" in out


def test_scores():
    pytest.importorskip("PIL")
    from rich.console import Console

    from ganglion.images.scores import Scores, class_table, confusion_table, picture

    names = (HOSTILE, "[blink]dog[/blink]", "]")
    held = Scores.of(np.array([0, 1, 2, 0]), np.array([0, 1, 1, 1]), names)
    for table in (class_table(held), confusion_table(held)):
        out = Terminal()
        Console(file=out, width=140, force_terminal=True).print(table)
        assert_harmless(without_our_colours(out.getvalue()))
        assert "[b" in out.getvalue()
    picture(held)


def test_names_of_metrics_and_layers(capsys, monkeypatch):
    model = keras.Sequential(
        [keras.Input((2,)), layers.Dense(1, name=f"d{HOSTILE}")], name=f"m{HOSTILE}"
    )
    metric = keras.metrics.MeanAbsoluteError(name=HOSTILE)
    model.compile("sgd", "mse", metrics=[metric])
    x = np.zeros((4, 2), "float32")
    monkeypatch.setattr(progress, "is_animated", lambda: False)
    for verbose in (1, 2):
        model.fit(x, x[:, :1], verbose=verbose)
    model.summary()
    out = capsys.readouterr().out
    assert out.count("[bold red]") >= 3
    assert_harmless(out)
    animated = Terminal()
    monkeypatch.setattr(sys, "stdout", animated)
    monkeypatch.setattr(progress, "is_animated", lambda: True)
    progress.Progbar(2).update(2, [(HOSTILE, 1.0)])
    assert "owned" in animated.getvalue()
    assert_harmless(without_our_colours(animated.getvalue()))


def test_races(capsys):
    from dataclasses import replace

    import race_made_up

    from ganglion.race import watch
    from ganglion.race.report import terminal_tables

    race = race_made_up.with_a_failure(race_made_up.race())
    runs = tuple(
        replace(run, engine=HOSTILE, reason=HOSTILE, log_end=HOSTILE)
        for run in race.finished
    )
    terminal_tables.show(replace(race, finished=runs, recipe=HOSTILE))
    plain = watch.Watch()
    plain.says(HOSTILE, HOSTILE)
    out, told = capsys.readouterr()
    assert_harmless(out)
    assert_harmless(told)
    assert "[bold red]" in out


def test_errors_about_files(tmp_path):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    path = tmp_path / "m.keras"
    model.save(path)
    import zipfile

    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    config["config"]["layers"][1]["class_name"] = HOSTILE
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="Unknown object") as error:
        saving.load_model(path)
    assert_harmless(str(error.value))
