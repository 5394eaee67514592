"""The page to try a model, in a real browser: mouse, keyboard, pictures, numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest

pytest.importorskip("uvicorn")

from serving import Running

import ganglion as keras
from ganglion.serve import trial
from ganglion.serve.interface import Interface

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SAID = "document.getElementById('said').textContent"
# How many questions were answered, as soon as none is open any more.
ANSWERED = """(document.getElementById('said').getAttribute('aria-busy') !== 'true'
  && Number(document.documentElement.dataset.answers || 0))"""
SEEN = """(canvas => [...canvas.getContext('2d').getImageData(
  0, 0, canvas.width, canvas.height).data].filter((_, i) => i % 4 === 0)
)(document.getElementById('seen'))"""


def ink_net() -> Any:
    """A net of pictures, 8 × 8 in grey, that says where most of the ink is."""
    net = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.AveragePooling2D((8, 4)),
            keras.layers.Flatten(),
            keras.layers.Dense(2, use_bias=False, activation="softmax"),
        ],
        name="ink",
    )
    net.notes = {"class_names": ["left", "right"]}
    net.layers[-1].set_weights([9 * np.eye(2, dtype="float32")])
    return net


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    started = Running(ink_net())
    yield f"http://127.0.0.1:{started.port}/"
    started.stop()


def points(page: browser.Browser, *places: tuple[float, float]) -> list[tuple]:
    left, top, side = page.evaluate(
        "(box => [box.left, box.top, box.width])"
        "(document.getElementById('pad').getBoundingClientRect())"
    )
    return [(left + x * side, top + y * side) for x, y in places]


@pytest.mark.parametrize(("width", "dark"), browser.SCREENS)
def test_what_the_mouse_draws_is_answered(
    chromium: browser.Browser, address: str, width: int, dark: bool
) -> None:
    chromium.open(address, width=width, height=740, dark=dark)
    chromium.wait_for("document.documentElement.dataset.ready")
    chromium.evaluate("document.getElementById('center').click()")
    chromium.drag(points(chromium, (0.8, 0.2), (0.8, 0.5), (0.8, 0.8), (0.8, 0.8)))
    said = chromium.wait_for(f"{ANSWERED} && {SAID}")
    assert said.startswith("right, ")
    assert chromium.evaluate("document.getElementById('bars').children.length") == 2
    assert chromium.evaluate("document.documentElement.dataset.map") == "shown"
    assert chromium.evaluate(OVERFLOW) == 0
    assert set(chromium.requests()) == {address, f"{address}predict"}
    chromium.evaluate("document.getElementById('clear').click()")
    assert chromium.evaluate(SAID) == "Nothing yet."
    assert chromium.complaints() == []


def test_the_keyboard_draws_and_everything_can_be_reached(
    chromium: browser.Browser, address: str
) -> None:
    chromium.open(address)
    chromium.wait_for("document.documentElement.dataset.ready")
    reached = []
    for _ in range(8):
        chromium.key("Tab")
        reached.append(
            chromium.evaluate(
                "document.activeElement.id || document.activeElement.type"
            )
        )
    assert reached[:6] == ["", "radio", "pad", "undo", "clear", "center"]
    chromium.evaluate("document.getElementById('center').click()")
    chromium.evaluate("document.getElementById('pad').focus()")
    keys = ["ArrowLeft"] * 9 + [" "] + ["ArrowDown"] * 4 + [" "]
    for key in keys:
        chromium.key(key)
    assert chromium.wait_for(f"{ANSWERED} && {SAID}").startswith("left, ")
    chromium.key("Delete")
    assert chromium.evaluate(SAID) == "Nothing yet."
    chromium.evaluate("document.querySelector('[value=draw]').focus()")
    chromium.key("ArrowRight")
    assert chromium.evaluate("document.getElementById('picture').hidden") is False
    assert chromium.complaints() == []


def test_a_drawing_is_centred_and_sized_as_mnist_does(
    chromium: browser.Browser, address: str
) -> None:
    chromium.open(address)
    chromium.wait_for("document.documentElement.dataset.ready")
    corner = [(0.1, 0.1), (0.2, 0.1), (0.2, 0.2), (0.1, 0.2), (0.1, 0.1), (0.1, 0.1)]
    chromium.drag(points(chromium, *corner))
    seen = np.array(chromium.evaluate(SEEN)).reshape(8, 8)
    rows, columns = (seen.sum(axis=axis) for axis in (1, 0))
    middle = np.arange(8) + 0.5
    assert (middle * rows).sum() / rows.sum() == pytest.approx(4, abs=0.1)
    assert (middle * columns).sum() / columns.sum() == pytest.approx(4, abs=0.1)
    assert (rows > 100).sum() == 6  # 0.72 of 8


def test_pictures_become_what_pillow_makes_of_them(
    chromium: browser.Browser, address: str, tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")
    from ganglion.images.decoding import Form, decode

    noise = np.random.default_rng(0).integers(0, 256, (5, 7, 4), "uint8")
    picture = image.fromarray(noise).resize((90, 61))
    path = tmp_path / "picture.png"
    picture.save(path)
    chromium.open(address)
    chromium.wait_for("document.documentElement.dataset.ready")
    choose(chromium, path)
    chromium.wait_for(ANSWERED)
    wanted = decode(path, Form((8, 8), "grayscale"))
    seen = np.array(chromium.evaluate(SEEN)).reshape(8, 8)
    assert np.abs(seen - wanted[..., 0]).max() <= 2  # the browser rounds alpha, too
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"nothing")
    choose(chromium, bad)
    assert chromium.wait_for(f"{SAID}.includes('no picture')")
    assert chromium.complaints() == []


def choose(page: browser.Browser, path: Path) -> None:
    root = page.send("DOM.getDocument")["root"]["nodeId"]
    node = page.send("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.send("DOM.setFileInputFiles", nodeId=node, files=[str(path)])


def test_numbers_are_read_and_bad_ones_are_told(
    chromium: browser.Browser, address: str
) -> None:
    chromium.open(address)
    chromium.wait_for("document.documentElement.dataset.ready")

    def write(text: str) -> None:
        chromium.evaluate(
            f"(row => {{ row.value = {text!r};"
            "row.dispatchEvent(new Event('input')); })(document.getElementById('row'))"
        )

    chromium.evaluate("document.querySelector('[value=numbers]').click()")
    write("1, 2 x")
    assert chromium.evaluate(SAID) == "“x” is no number."
    write("1, 2")
    assert chromium.evaluate(SAID) == "2 numbers; the model takes 64."
    write(", ".join(["0 0 0 0 255 255 255 255"] * 8))
    assert chromium.wait_for(f"{ANSWERED} && {SAID}").startswith("right, ")
    assert chromium.complaints() == []


def test_the_page_of_a_model_names_no_address_and_escapes_names() -> None:
    net = ink_net()
    net.notes = {"class_names": ["</script><script>alert(1)</script>", "b"]}
    page = trial.page(Interface.of(net))
    assert "alert(1)</script>" not in page
    assert "http" not in page.split("<script>")[0].replace("http-equiv", "")
