"""Digits drawn with the mouse into the page to try a model, in headless Chromium.

    python tests/support/draw_digits.py mnist-cnn.keras [--screenshots FOLDER]

prints what the model takes each for, and the time from a movement of the mouse to the
answer on the page.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "race"))

import browser

Point = tuple[float, float]
SAID = "document.getElementById('said').dataset.class"
TIMES = "document.documentElement.dataset.milliseconds"
BOX = """(box => [box.left, box.top, box.width])(
  document.getElementById('pad').getBoundingClientRect())"""


def arc(
    x: float, y: float, across: float, down: float, start: float, end: float
) -> list[Point]:
    """Return points of an ellipse, by degrees clockwise from the right."""
    angles = [math.radians(start + (end - start) * i / 14) for i in range(15)]
    return [(x + across * math.cos(a), y + down * math.sin(a)) for a in angles]


# As most people write them, from 0 to 1 to the right and down; a list a stroke.
STROKES: dict[int, list[list[Point]]] = {
    0: [arc(0.5, 0.5, 0.2, 0.32, -90, 270)],
    1: [[(0.53, 0.18), (0.5, 0.5), (0.47, 0.82)]],
    2: [[*arc(0.5, 0.33, 0.18, 0.16, -170, 30), (0.3, 0.8), (0.52, 0.79), (0.74, 0.8)]],
    3: [
        [*arc(0.46, 0.33, 0.18, 0.15, -150, 90), *arc(0.46, 0.66, 0.21, 0.18, -90, 150)]
    ],
    4: [
        [(0.35, 0.18), (0.32, 0.35), (0.3, 0.5), (0.5, 0.5), (0.7, 0.48)],
        [(0.64, 0.2), (0.62, 0.5), (0.6, 0.84)],
    ],
    5: [
        [(0.7, 0.18), (0.4, 0.18), (0.37, 0.45), *arc(0.46, 0.62, 0.2, 0.2, -100, 140)],
    ],
    6: [[(0.6, 0.17), (0.42, 0.35), *arc(0.48, 0.64, 0.16, 0.18, -170, 200)]],
    7: [[(0.27, 0.2), (0.5, 0.2), (0.73, 0.2), (0.6, 0.5), (0.48, 0.83)]],
    8: [[*arc(0.5, 0.34, 0.14, 0.15, 90, -270), *arc(0.5, 0.67, 0.17, 0.18, -90, 270)]],
    9: [
        [*arc(0.48, 0.35, 0.16, 0.17, 0, -350), (0.64, 0.4), (0.6, 0.62), (0.55, 0.84)]
    ],
}


class Answer(NamedTuple):
    """The answers of a page to a drawing, and their times in milliseconds."""

    said: str
    milliseconds: list[float]


def draw(page: browser.Browser, digit: int) -> Answer:
    """Draw a digit with the mouse; return what the page says at its end."""
    page.evaluate("document.getElementById('clear').click()")
    times = []
    left, top, side = page.evaluate(BOX)
    for stroke in STROKES[digit]:
        places = [(left + x * side, top + y * side) for x, y in stroke]
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        kinds = ["mousePressed"] + ["mouseMoved"] * (len(places) - 1)
        for kind, (x, y) in zip(kinds, places, strict=True):
            page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)
            times.append(float(page.wait_for(TIMES)))
        x, y = places[-1]
        page.send("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **held)
    return Answer(page.evaluate(SAID), times)


def main() -> None:
    from ganglion import export, saving

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--screenshots", type=Path)
    chosen = parser.parse_args()
    program = browser.find()
    assert program is not None, "no Chromium here: apt-get install chromium"
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder, browser.Browser(program) as page:
        path = Path(folder, "index.html")
        export.export_model(saving.load_model(chosen.model), path, "page")
        page.open(path)
        page.wait_for("document.documentElement.dataset.ready")
        for digit in STROKES:
            answer = draw(page, digit)
            times += answer.milliseconds
            print(f"{digit}: {answer.said}")
            if chosen.screenshots:
                page.screenshot(chosen.screenshots / f"{digit}.png")
        assert page.complaints() == []
    times.sort()
    print(
        f"stroke to answer: median {statistics.median(times):.1f} ms, "
        f"99 % {times[int(0.99 * len(times))]:.1f} ms, most {times[-1]:.1f} ms "
        f"({len(times)} movements)"
    )


if __name__ == "__main__":
    main()
