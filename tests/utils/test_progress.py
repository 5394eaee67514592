"""The progress bar against what Keras prints, and the two epoch logs."""

import io
import json
import re
import sys

import numpy as np
import pytest

from ganglion import config, progress
from ganglion.progress import JsonLog, Progbar, StepLog


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self, monkeypatch):
        self.time = 100.0
        monkeypatch.setattr(progress, "_now", lambda: self.time)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def open_terminal(monkeypatch):
    """A function, because pytest takes standard output back when a test begins."""

    def open_it():
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        return screen

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return open_it


@pytest.fixture(autouse=True)
def no_pycharm(monkeypatch):
    monkeypatch.delenv("PYCHARM_HOSTED", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


def visible(text):
    """Remove colours; every carriage return starts the line again."""
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", text)
    return [line.split("\r")[-1] for line in plain.split("\n")]


def test_a_log_file_gets_the_last_line_only(clock, capsys):
    bar = Progbar(422, stateless_metrics=())
    for step in range(1, 423):
        clock.time += 0.002
        bar.update(step, [("accuracy", 0.98854), ("loss", 0.03724)], finalize=False)
    bar.update(422, [("accuracy", 0.98854), ("loss", 0.03724)], finalize=True)
    assert capsys.readouterr().out == (
        "422/422 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - accuracy: 0.9885 - loss: 0.0372\n"
    )


def test_one_line_form(clock, capsys):
    bar = Progbar(469, verbose=2)
    clock.time += 0.938
    bar.update(10, [("accuracy", 0.1), ("loss", 1.0)])
    assert capsys.readouterr().out == ""
    bar.update(469, [("accuracy", 0.5), ("loss", 0.0009)])
    assert capsys.readouterr().out == (
        "469/469 - 1s - 2ms/step - accuracy: 0.5000 - loss: 9.0000e-04\n"
    )


def test_silence(capsys):
    Progbar(2, verbose=0).update(2, [("loss", 1.0)])
    assert capsys.readouterr().out == ""


def test_terminal_is_drawn_over(clock, open_terminal):
    terminal = open_terminal()
    bar = Progbar(10, stateful_metrics=["loss"])
    clock.time += 0.1
    bar.update(5, [("loss", 0.5)])
    assert visible(terminal.getvalue()) == [
        " 5/10 ━━━━━━━━━━━━━━━━━━━━ 0s 20ms/step - loss: 0.5000"
    ]
    clock.time += 0.1
    bar.update(10, [("loss", 0.25)])
    assert visible(terminal.getvalue()) == [
        "10/10 ━━━━━━━━━━━━━━━━━━━━ 0s 20ms/step - loss: 0.2500",
        "",
    ]
    assert terminal.getvalue().count("\r") == 2
    assert "\x1b[32m━━━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━" in terminal.getvalue()


def test_no_colour_on_request(clock, open_terminal, monkeypatch):
    terminal = open_terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    Progbar(1).update(1)
    assert "\x1b[3" not in terminal.getvalue()


def test_a_narrow_terminal_never_wraps_while_drawing(clock, open_terminal, monkeypatch):
    terminal = open_terminal()
    monkeypatch.setenv("COLUMNS", "40")
    bar = Progbar(10)
    bar.update(5, [("a_long_name_of_a_metric", 0.5), ("loss", 1.0)])
    assert len(visible(terminal.getvalue())[0]) == 39
    bar.update(10, [("a_long_name_of_a_metric", 0.5), ("loss", 1.0)])
    assert visible(terminal.getvalue())[0].endswith("loss: 1.0000")


def test_redraws_no_more_often_than_the_interval(clock, open_terminal):
    terminal = open_terminal()
    bar = Progbar(100, interval=0.05)
    for step in range(1, 51):
        clock.time += 0.01
        bar.update(step)
    # One at the start, then one every sixth update: 5 × 0.01 falls just short of 0.05.
    assert 8 <= terminal.getvalue().count("\r") <= 10


def test_jumps_weigh_averages_by_steps(clock, open_terminal):
    terminal = open_terminal()
    bar = Progbar(10, interval=0)
    bar.update(1, [("loss", 1.0)])
    bar.update(4, [("loss", 5.0)])
    assert visible(terminal.getvalue())[0].endswith("loss: 4.0000")
    bar.add(2, [("loss", 1.0)])
    assert visible(terminal.getvalue())[0].endswith("loss: 3.0000")


def test_time_left_leaves_out_the_first_step(clock, open_terminal):
    terminal = open_terminal()
    bar = Progbar(101, interval=0)
    clock.time += 30
    bar.update(1)
    clock.time += 10
    bar.update(11)
    assert visible(terminal.getvalue())[0].endswith(" 1:30 1s/step")


def test_unknown_target(clock, open_terminal):
    terminal = open_terminal()
    bar = Progbar(None)
    bar.update(7, [("loss", 2.0)])
    expected = "      7/Unknown 0s 0s/step - loss: 2.0000"
    assert visible(terminal.getvalue())[0] == expected


def test_a_terminal_without_box_characters(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    progress.print_message("1/1 ━━")
    assert raw.getvalue() == b"1/1 ==\n"


def test_both_kinds_of_names_are_refused():
    with pytest.raises(ValueError, match="Only one of"):
        Progbar(1, stateful_metrics=["a"], stateless_metrics=["b"])


def test_logging_instead_of_printing(caplog, capsys):
    config.disable_interactive_logging()
    try:
        assert not config.is_interactive_logging_enabled()
        with caplog.at_level("INFO", logger="ganglion"):
            progress.print_message("Epoch 1/2")
    finally:
        config.enable_interactive_logging()
    assert caplog.messages == ["Epoch 1/2"]
    assert capsys.readouterr().out == ""


def test_step_log_is_the_published_form():
    logs = {
        "accuracy": 0.7719,
        "loss": 0.6688,
        "val_accuracy": 0.8970,
        "val_loss": 0.3229,
    }
    assert StepLog().line(1, logs, 1.75) == (
        "loss: 0.6688 / 0.3229    accuracy: 0.7719 / 0.8970    step 1  1.75 sec"
    )
    train = {"accuracy": 0.7719, "loss": 0.6688}
    assert StepLog().line(12, train, 0.5) == (
        "loss: 0.6688    accuracy: 0.7719    step 12  0.50 sec"
    )


def test_json_log_appends_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    log = JsonLog(path)
    log.epoch(1, {"loss": np.float32(0.5), "accuracy": float("nan")}, 1.5)
    log.epoch(2, {"loss": 0.25, "each": np.array([1.0, 2.0])}, 1.0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"epoch": 1, "loss": 0.5, "accuracy": None, "seconds": 1.5},
        {"epoch": 2, "loss": 0.25, "each": [1.0, 2.0], "seconds": 1.0},
    ]


@pytest.mark.rivals
@pytest.mark.parametrize("verbose", [1, 2])
@pytest.mark.parametrize("target", [1, 9, 10, 422, 60000])
@pytest.mark.parametrize("step_seconds", [3e-5, 2e-3, 1.5, 70.0])
def test_final_line_is_that_of_keras(
    keras, clock, open_terminal, monkeypatch, verbose, target, step_seconds
):
    terminal = open_terminal()
    module = sys.modules["keras.src.utils.progbar"]
    monkeypatch.setattr(module.time, "time", lambda: clock.time)
    values = [("accuracy", 0.98854), ("loss", 0.00034)]
    both = (
        Progbar(target, verbose=verbose),
        keras.utils.Progbar(target, verbose=verbose),
    )
    updates = sorted({1, max(target // 3, 1), target})
    lines = []
    for update in updates:
        clock.time = 100 + update * step_seconds
        drawn = []
        for bar in both:
            terminal.seek(0)
            terminal.truncate()
            bar.update(update, values)
            drawn.append([line.rstrip() for line in visible(terminal.getvalue())])
        lines.append(drawn)
    assert all(ours == theirs for ours, theirs in lines)
    assert any(line for line in lines[-1][0])


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"stateful_metrics": []}, "1.0000"),
        ({"stateful_metrics": ["value"]}, "2.0000"),
        ({"stateless_metrics": []}, "2.0000"),
        ({"stateless_metrics": ["value"]}, "1.0000"),
    ],
)
def test_without_a_terminal_every_update_is_printed_on_demand(capsys, options, shown):
    bar = Progbar(3, interval=0, **options)
    bar.update(1, [("value", 0.0)])
    capsys.readouterr()
    bar.update(2, [("value", 2.0)])
    assert f"value: {shown}" in capsys.readouterr().out
