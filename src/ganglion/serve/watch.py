"""Watch a training in a browser while it runs.

`Watch` is a callback. It records events in a `Feed`; a small server of the standard
library, on a free local port, sends them to the page as server-sent events. This costs
a few lines of JSON a second; class activation maps are computed only while a page is
open, and for a small share of the time.
"""

from __future__ import annotations

import base64
import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from ganglion.callbacks import Callback
from ganglion.callbacks.base import Logs, per_chunk
from ganglion.callbacks.rates import learning_rates_of
from ganglion.datasets import png
from ganglion.explain import class_activation_map, map_method, overlay
from ganglion.images.networks import class_names
from ganglion.pages.document import asset, document, plotting_library, plotting_style
from ganglion.pages.markup import Html, element, joined

SECONDS = 0.25  # between two notes within an epoch
MOST_NOTES = 2000  # within epochs; beyond, every second note is dropped
MAP_SHARE = 0.02  # of the training's time
PICTURES = 8
LEAST_SIDE = 112  # pixels of a picture on the page
WAIT = 1.0  # seconds in which the end is sent, before the program ends

Note = tuple[str, str]  # the kind of an event, and its data


class Feed:
    """The events of a training so far, for any number of readers at any time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._notes: list[Note] = []
        self._dropped = 0  # notes that are no longer kept
        self._is_over = False
        self.readers = 0

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event; only the newest maps are kept, and older steps thin out."""
        note = kind, json.dumps(data, separators=(",", ":"))
        with self._changed:
            if kind == "begin":
                self._forget([])
            elif kind == "maps":
                self._forget([note for note in self._notes if note[0] != "maps"])
            self._notes.append(note)
            if sum(note[0] == "step" for note in self._notes) > MOST_NOTES:
                self._thin_out()
            self._changed.notify_all()

    def _forget(self, kept: list[Note]) -> None:
        self._dropped += len(self._notes) - len(kept)
        self._notes = kept

    def _thin_out(self) -> None:
        steps = [i for i, note in enumerate(self._notes) if note[0] == "step"]
        dropped = set(steps[:-1:2])
        self._forget([note for i, note in enumerate(self._notes) if i not in dropped])

    def close(self) -> None:
        """Let readers end after the last event, and wait a moment for them."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.readers, WAIT)

    def read(self) -> Iterator[Note | None]:
        """Yield all events so far and new ones as they come; None while idle."""
        position = 0  # among all notes, including dropped ones
        with self._changed:
            self.readers += 1
        try:
            while True:
                with self._changed:
                    first = max(position - self._dropped, 0)
                    fresh = self._notes[first:]
                    position = self._dropped + len(self._notes)
                    if not fresh and self._is_over:
                        return
                    if not fresh and not self._changed.wait(10):
                        fresh = [None]  # type: ignore[list-item]
                yield from fresh
        finally:
            with self._changed:
                self.readers -= 1
                self._changed.notify_all()


class Watch(Callback):
    """Shows a training in a browser, at `address`.

    Args:
        name: The name of the training.
        title: A description of it, in a line.
        batch_size: Rows a step, to show rows a second; None if it is not known.

    >>> import ganglion as keras
    >>> watch = Watch("a small net")
    >>> watch.address.startswith("http://127.0.0.1:")
    True
    >>> watch.close()
    """

    def __init__(
        self, name: str = "model", title: str = "", batch_size: int | None = None
    ) -> None:
        super().__init__()
        self.name, self.title, self.batch_size = name, title, batch_size
        self._pictures: np.ndarray | None = None
        self._labels: np.ndarray | None = None
        self._has_maps = False
        self._first_epoch: int | None = None
        self.feed = Feed()
        self._server = _Server(self.feed, page(name))
        self.address = self._server.address
        self._epoch, self._steps_done, self._is_compiled = 0, 0, False
        # Clocks: of the training, its epoch, the last chunk of steps, the last note.
        self._began = self._epoch_began = self._chunk_ended = self._noted = 0.0
        self._map_seconds: float | None = None

    def look_at(self, pictures: Any, labels: Any = None) -> None:
        """Take images to draw heat maps of, and their classes if these are known.

        Args:
            pictures: As the model takes them: (images, height, width[, channels]).
            labels: The numbers of their classes.
        """
        # Spread over all images: those of a folder are sorted by class.
        rows = np.unique(np.linspace(0, len(pictures) - 1, PICTURES).astype(int))
        self._pictures = np.stack([np.asarray(pictures[row]) for row in rows])
        if labels is not None:
            self._labels = np.asarray(labels).reshape(-1)[rows]

    def on_train_begin(self, logs: Logs | None = None) -> None:
        params = self.params or {}
        self._began, self._noted = time.perf_counter(), 0.0
        self._is_compiled, self._map_seconds = False, None
        self._first_epoch = None
        self._has_maps = self._pictures is not None and bool(map_method(self.model))
        self.feed.add(
            "begin",
            {
                "name": self.name,
                "title": self.title,
                "epochs": params.get("epochs"),
                "steps": params.get("steps"),
                "parameters": self.model.count_params(),
                "unit": self._unit(),
            },
        )

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch, self._steps_done = epoch, 0
        self._epoch_began = self._noted = self._chunk_ended = time.perf_counter()

    @per_chunk
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._chunk_ended = now = time.perf_counter()
        if now - self._noted < SECONDS:
            return
        steps = batch + 1
        rate = self._rate(steps - self._steps_done, now - self._noted)
        self._noted, self._steps_done = now, steps
        note = {"epoch": self._epoch, "step": steps, "rate": rate}
        self.feed.add("step", note | self._state(logs))

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        seconds = self._chunk_ended - self._epoch_began  # without validation
        rate = self._rate((self.params or {}).get("steps"), seconds)
        if self._first_epoch in (None, epoch):  # it includes compilation
            self._first_epoch, rate = epoch, None
        note = {"epoch": epoch, "seconds": round(seconds, 3), "rate": rate}
        self.feed.add("epoch", note | self._state(logs))
        self._draw_maps()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self.feed.add("end", {"seconds": round(time.perf_counter() - self._began, 2)})

    def close(self) -> None:
        """Report the end of training to the page, and stop the server."""
        self.feed.add("close", {})
        self.feed.close()
        self._server.close()

    def _rate(self, steps: int | None, seconds: float) -> float | None:
        """Return rows a second; None at first, when the time includes compilation."""
        is_compiled, self._is_compiled = self._is_compiled, True
        if not is_compiled or not steps or seconds <= 0:
            return None
        return round(steps * (self.batch_size or 1) / seconds, 1)

    def _unit(self) -> str:
        if self.batch_size is None:
            return "steps"
        return "images" if self._pictures is not None else "rows"

    def _state(self, logs: Logs | None) -> dict[str, Any]:
        values = {
            name: _number(value)
            for name, value in (logs or {}).items()
            if np.ndim(value) == 0 and not name.startswith("learning_rate")
        }
        present = learning_rates_of(self.model)
        rates = {name: _number(rate) for name, rate in present.items()}
        seconds = round(time.perf_counter() - self._began, 2)
        return {"logs": values, "rates": rates, "elapsed": seconds}

    def _draw_maps(self) -> None:
        """Draw maps if a page is open, and if they have taken little time so far."""
        if self._pictures is None or not self._has_maps or not self.feed.readers:
            return
        began = time.perf_counter()
        spent = self._map_seconds
        if spent is not None and spent > MAP_SHARE * (began - self._began):
            return
        cam = class_activation_map(self.model, self._pictures)
        side = max(self._pictures.shape[1:3])
        drawn = overlay(self._pictures, cam.maps, max(1, LEAST_SIDE // side))
        names = class_names(self.model, max(cam.scores.shape[-1], 2))
        pictures = [
            {
                "png": base64.b64encode(png.encode(picture, 1)).decode(),
                "said": names[int(cam.classes[i])],
                "is": None if self._labels is None else names[int(self._labels[i])],
            }
            for i, picture in enumerate(drawn)
        ]
        self.feed.add("maps", {"epoch": self._epoch, "pictures": pictures})
        # The first time includes compilation, and is not counted.
        took = time.perf_counter() - began
        self._map_seconds = 0.0 if spent is None else spent + took


def _number(value: Any) -> float | None:
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None


# ---- the server ----------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        # A script of another site could reach this port by DNS rebinding.
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in ("127.0.0.1", "localhost"):
            self.send_error(403)
        elif self.path == "/":
            self._send(self.server.page.encode(), "text/html; charset=utf-8")
        elif self.path == "/events":
            self._stream()
        else:
            self.send_error(404)

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        try:
            for note in self.server.feed.read():
                event = ":" if note is None else "event: {}\ndata: {}".format(*note)
                self.wfile.write(f"{event}\n\n".encode())
        except OSError:
            pass  # the page was closed

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name)
        """Stay silent: the terminal belongs to the training."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, feed: Feed, page: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.feed, self.page = feed, page
        self.address = f"http://127.0.0.1:{self.server_address[1]}/"
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.1,), name="ganglion-watch", daemon=True
        )
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that were cut."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


# ---- the page ------------------------------------------------------------------------


def page(name: str) -> str:
    """Return the page, which fetches its content from `/events`."""
    facts = {
        "state": "state",
        "epoch": "epoch",
        "rate": "rows a second",
        "lr": "learning rate",
        "elapsed": "time",
        "left": "time left",
    }
    pairs = [
        element(
            "div",
            element("dt", title, id=f"{key}-title"),
            element("dd", "–", id=key, role="status" if key == "state" else None),
        )
        for key, title in facts.items()
    ]
    top = element(
        "header",
        element("h1", name),
        element("p", class_="subtitle"),
        element("dl", *pairs, class_="settings"),
        element("progress", id="progress", max=1, value=0, aria_label="progress"),
    )
    body = element(
        "main",
        element("div", id="charts", class_="charts"),
        element("section", id="pictures", hidden=True),
        _table(),
        id="results",
    )
    foot = element(
        "footer",
        "Made by ganglion train --watch; curves drawn with uPlot (MIT licence). The "
        "page keeps what it shows when the training has ended.",
    )
    return document(
        name,
        joined([top, body, foot]),
        generator="ganglion train",
        data={},
        scripts=[plotting_library(), asset("watch.js")],
        styles=[plotting_style(), asset("watch.css")],
        allow=["connect-src 'self'"],
    )


def _table() -> Html:
    head = element("thead", element("tr", id="head"))
    title = element("caption", "Every epoch, the newest first")
    body = element("table", title, head, element("tbody", id="epochs"))
    scroll = element(
        "div", body, class_="scroll", tabindex=0, role="group", aria_label="Every epoch"
    )
    return element("section", element("h2", "Epochs"), scroll, id="table", hidden=True)
