"""A training that is watched: what is sent, to whom, and that nothing changes by it."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import browser
import numpy as np
import pytest
from typer.testing import CliRunner

import ganglion as keras
from ganglion.serve import watch as watching
from ganglion.serve.watch import Feed, Watch

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def net() -> Any:
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            keras.layers.Conv2D(2, 3),
            keras.layers.Dropout(0.5),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Softmax(),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def data() -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(0)
    return draws.random((64, 6, 6, 1), "float32"), draws.integers(0, 2, 64)


def fit(*callbacks: Any, epochs: int = 3) -> Any:
    keras.utils.set_random_seed(1)
    x, y = data()
    model = net()
    model.fit(x, y, epochs=epochs, validation_split=0.25, verbose=0,
              batch_size=8, callbacks=list(callbacks))  # fmt: skip
    return model


def events_of(address: str) -> list[tuple[str, dict[str, Any]]]:
    """Read a stream to its end."""
    port = int(address.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/events")
    text = connection.getresponse().read().decode()
    connection.close()
    events = []
    for block in text.strip().split("\n\n"):
        kind, _, content = block.partition("\n")
        if kind != ":":
            name = kind.removeprefix("event: ")
            events.append((name, json.loads(content.removeprefix("data: "))))
    return events


def test_everything_is_sent_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "SECONDS", 0.0)
    monkeypatch.setattr(watching, "MAP_SHARE", 1e9)
    watch = Watch("net", "a small one", batch_size=8)
    watch.look_at(*data())
    read: list[Any] = []
    reader = threading.Thread(target=lambda: read.extend(events_of(watch.address)))
    reader.start()
    while not watch.feed.readers:
        pass
    watched = fit(watch)
    watch.close()
    reader.join(30)
    alone = fit()
    assert watched.history.history == alone.history.history
    for ours, theirs in zip(watched.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)

    kinds = [kind for kind, _ in read]
    assert kinds[0] == "begin"
    assert kinds[-2:] == ["end", "close"]
    assert kinds.count("epoch") == 3 <= kinds.count("step")
    assert kinds.count("maps") >= 1  # those that were read in time
    begin = read[0][1]
    assert (begin["epochs"], begin["steps"], begin["unit"]) == (3, 6, "images")
    ends = [event for kind, event in read if kind == "epoch"]
    losses = alone.history.history["val_loss"]
    assert [end["logs"]["val_loss"] for end in ends] == pytest.approx(losses, rel=1e-5)
    assert ends[0]["rates"] == {"learning_rate": 0.01}
    assert ends[-1]["rate"] > 0
    pictures = [event for kind, event in read if kind == "maps"][-1]["pictures"]
    assert len(pictures) == watching.PICTURES
    assert {picture["is"] for picture in pictures} == {"0", "1"}


def test_maps_cost_nothing_while_nobody_looks() -> None:
    watch = Watch("net")
    watch.look_at(*data())
    fit(watch, epochs=1)
    watch.close()
    assert "maps" not in [kind for kind, _ in watch.feed.read()]


def test_whoever_comes_late_gets_all_of_it_thinned_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "MOST_NOTES", 10)
    feed = Feed()
    feed.add("begin", {})
    feed.add("maps", {"epoch": 0})
    for step in range(25):
        feed.add("step", {"step": step})
    feed.add("epoch", {"epoch": 0})
    feed.add("maps", {"epoch": 1})
    feed.close()
    notes = list(feed.read())
    steps = [json.loads(text)["step"] for kind, text in notes if kind == "step"]
    assert steps == sorted(steps)
    assert steps[-1] == 24
    assert len(steps) <= 10
    assert [text for kind, text in notes if kind == "maps"] == ['{"epoch":1}']
    assert [kind for kind, _ in notes][-2:] == ["epoch", "maps"]


def test_numbers_that_are_none_are_no_numbers() -> None:
    assert watching._number(float("nan")) is None
    assert watching._number(np.float32(0.25)) == 0.25


def test_other_paths_and_other_hosts_are_refused() -> None:
    watch = Watch("<script>alert(1)</script>")
    port = int(watch.address.rstrip("/").rpartition(":")[2])
    statuses = []
    asked = (("/", "evil.example:1"), ("/x", "localhost:1"), ("/", "localhost:1"))
    for path, host in asked:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        statuses.append(answer.status)
        body = answer.read().decode()
        connection.close()
    watch.close()
    assert statuses == [403, 404, 200]
    assert "<script>alert" not in body


@pytest.mark.parametrize(("width", "dark"), browser.SCREENS)
def test_a_browser_shows_it(
    chromium: browser.Browser, monkeypatch: pytest.MonkeyPatch, width: int, dark: bool
) -> None:
    monkeypatch.setattr(watching, "SECONDS", 0.0)
    watch = Watch("net", batch_size=8)
    watch.look_at(*data())
    chromium.open(watch.address, width=width, dark=dark)
    while not watch.feed.readers:
        pass
    fit(watch)
    watch.close()
    chromium.wait_for("document.documentElement.dataset.closed")
    state = chromium.evaluate("document.getElementById('state').textContent")
    assert state.startswith("finished after ")
    assert chromium.evaluate("document.documentElement.dataset.epochs") == "3"
    # Loss, accuracy, learning rate, images a second; pictures; a row an epoch.
    chromium.wait_for("document.documentElement.dataset.charts === '4'")
    assert chromium.evaluate("document.querySelectorAll('.uplot canvas').length") == 4
    assert chromium.evaluate("document.querySelectorAll('.heat img').length") == 8
    assert chromium.evaluate(OVERFLOW) == 0
    assert chromium.complaints() == []


def test_the_command_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    from ganglion import recipes
    from ganglion.cli import app

    x, y = np.zeros((128, 28, 28), "uint8"), np.eye(128, 10)
    monkeypatch.setattr(recipes, "load", lambda recipe: ((x, y), (x, y), None))
    words = ["train", "mnist-perceptron", "--epochs", "1", "--log", "steps", "--watch"]
    done = CliRunner().invoke(app.app, words)
    assert done.exit_code == 0, done.output
    assert "Watch it at http://127.0.0.1:" in done.stderr
    assert not [t for t in threading.enumerate() if t.name == "ganglion-watch"]
