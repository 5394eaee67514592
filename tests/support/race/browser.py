"""A headless Chromium for tests, spoken to over a pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CODES = {" ": 32, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "ArrowUp": 38,
         "Delete": 46, "Escape": 27, "Tab": 9}  # fmt: skip
PATIENCE = 60.0  # seconds for an answer; a machine may be busy

# Wide and narrow, light and dark: the width of the window, and whether it is dark.
SCREENS = [
    pytest.param(1280, False, id="desktop-light"),
    pytest.param(360, True, id="phone-dark"),
    pytest.param(1280, True, id="desktop-dark", marks=pytest.mark.more),
    pytest.param(360, False, id="phone-light", marks=pytest.mark.more),
]


def find() -> str | None:
    """Return a browser's path, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser; use it in a `with`."""

    def __init__(self, program: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._left = b""
        self._session: str | None = None
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        hears, self._to = os.pipe()
        self._from, says = os.pipe()
        arguments = [
            program,
            "--headless",
            "--no-sandbox",  # it opens nothing but our own page
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--use-fake-device-for-media-stream",  # a camera that shows a pattern
            "--use-fake-ui-for-media-stream",  # which may be used
            f"--user-data-dir={self._folder.name}",
            "--remote-debugging-pipe",
        ]
        # The browser listens on descriptor 3 and answers on 4.
        shell = f'exec "$@" 3<&{hears} 4>&{says}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *arguments],
            pass_fds=(hears, says),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(hears)
        os.close(says)

    def __enter__(self) -> Browser:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        answer = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = answer["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._session = None
            self.send("Browser.close")
            self._process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser for something; return its answer."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda message: message.get("id") == number, method)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _until(self, fits: Callable[[dict[str, Any]], bool], what: str) -> dict:
        limit = time.monotonic() + PATIENCE
        while True:
            message = self._next(limit, what)
            if "method" in message:
                self.events.append(message)
            if fits(message):
                return message

    def _next(self, limit: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._from], [], [], limit - time.monotonic())
            if not ready:
                raise RuntimeError(f"{what}: the browser did not answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError(f"{what}: the browser has ended")
            self._left += data
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def open(
        self,
        page: Path | str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
    ) -> None:
        """Open a file or an address, on a screen of some size, and wait for it."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.send("Page.navigate", url=address)
        if not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._until(lambda m: m.get("method") == "Page.loadEventFired", "load")
        # Two frames later everything is laid out and drawn.
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => "
            "requestAnimationFrame(() => done(true))))"
        )

    def evaluate(self, script: str) -> Any:
        """Return what an expression of JavaScript gives in the page."""
        answer = self.send(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key and let it go."""
        event: dict[str, Any] = {
            "key": name,
            "code": "Space" if name == " " else name,
            "windowsVirtualKeyCode": CODES[name],
        }
        text = {"text": " "} if name == " " else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def hover(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, points: Sequence[tuple[float, float]]) -> None:
        """Move the mouse through some places in the window, its button pressed."""
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 2), "mouseReleased"]
        for kind, (x, y) in zip(kinds, points, strict=True):
            held = {"button": "left", "buttons": 1, "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def wait_for(self, script: str) -> Any:
        """Return what an expression gives as soon as that is true."""
        limit = time.monotonic() + PATIENCE
        while not (value := self.evaluate(script)):
            if time.monotonic() > limit:
                raise RuntimeError(f"never came true: {script}")
            time.sleep(0.02)
        return value

    def requests(self) -> list[str]:
        """Return the addresses the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return the messages of the console, and uncaught errors."""
        kinds = (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
        )
        return [
            json.dumps(event["params"])[:500]
            for event in self.events
            if event["method"] in kinds
        ]

    def screenshot(self, path: Path) -> None:
        """Keep a picture of the whole page."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
