"""The page that is one file: the model runs in the browser, as `predict` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import browser
import draw_digits
import numpy as np
import pytest
from typer.testing import CliRunner

import ganglion as keras
from ganglion.explain import class_activation_map
from ganglion.serve import trial
from ganglion.serve.interface import Interface

SAID = "document.getElementById('said').textContent"
# How many questions were answered, as soon as none is open any more.
ANSWERED = """(document.getElementById('said').getAttribute('aria-busy') !== 'true'
  && Number(document.documentElement.dataset.answers || 0))"""
READY = "document.documentElement.dataset.ready"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def opened(
    page: browser.Browser, net: Any, folder: Path, **screen: Any
) -> browser.Browser:
    """Export a net's page, open it from its file and wait until it can answer."""
    path = folder / "index.html"
    net.export(path)
    page.open(path, **screen)
    page.wait_for(READY)
    assert page.requests() == [path.resolve().as_uri()]
    return page


def write(page: browser.Browser, row: np.ndarray) -> None:
    page.evaluate("document.querySelector('[value=numbers]').click()")
    text = " ".join(map(repr, row.reshape(-1).tolist()))
    page.evaluate(
        f"(row => {{ row.value = {text!r}; row.dispatchEvent(new Event('input')); }})"
        "(document.getElementById('row'))"
    )
    page.wait_for(f"!{SAID}.startsWith('Nothing')")


@pytest.fixture(scope="module")
def digit_net() -> Any:
    """A small net that has seen some digits of ours, enough for simple ones."""
    (x, y), _ = keras.datasets.glyphs.load_data(train=4000, test=0)
    net = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(32, "relu"),
            keras.layers.Dense(10, "softmax"),
        ],
        name="digits",
    )
    net.compile("adam", "sparse_categorical_crossentropy")
    net.fit(x, y, epochs=4, batch_size=64, verbose=0)
    return net


@pytest.mark.parametrize(("width", "dark"), browser.SCREENS[:2])
def test_a_digit_that_the_mouse_draws_is_read(
    chromium: browser.Browser, digit_net: Any, tmp_path: Path, width: int, dark: bool
) -> None:
    page = opened(chromium, digit_net, tmp_path, width=width, dark=dark)
    for digit in (0, 1, 7):
        assert draw_digits.draw(page, digit).said == str(digit)
    assert page.evaluate(OVERFLOW) == 0
    assert page.complaints() == []


def conv_net(activation: str | None, pooled: bool) -> Callable[[], Any]:
    def make() -> Any:
        flatten, pool = keras.layers.Flatten, keras.layers.GlobalAveragePooling2D
        net = keras.Sequential(
            [
                keras.Input((6, 6, 3)),
                keras.layers.Conv2D(4, 3, activation="relu"),
                pool() if pooled else flatten(),
                keras.layers.Dense(3, activation),
            ]
        )
        net.notes = {"class_names": ["a", "b", "c"]}
        return net

    return make


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(conv_net("softmax", True), id="cam"),
        pytest.param(conv_net(None, False), id="grad-cam, logits"),
    ],
)
def test_the_browser_says_what_predict_says(
    chromium: browser.Browser, tmp_path: Path, make: Callable[[], Any]
) -> None:
    net = make()
    page = opened(chromium, net, tmp_path)
    interface = Interface.of(net)
    x = np.random.default_rng(0).uniform(0, 255, (1, 6, 6, 3)).astype("float32") / 64
    write(page, x)
    wanted = interface.probabilities(net.predict(x, verbose=0))[0]
    shown = page.evaluate(
        "[...document.querySelectorAll('#bars .value')]"
        ".map(value => parseFloat(value.textContent))"
    )
    assert shown == pytest.approx(100 * wanted, abs=0.06)
    made = class_activation_map(net, x, size="features")
    heat = page.evaluate(
        "(canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width,"
        "canvas.height).data].filter((_, i) => i % 4 === 3))"
        "(document.getElementById('heat'))"
    )
    # How much the heat covers grows with it.
    assert np.array(heat) == pytest.approx(153 * made.maps.reshape(-1), abs=1.01)
    assert page.complaints() == []


def test_values_are_shown_as_numbers(chromium: browser.Browser, tmp_path: Path) -> None:
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    net.layers[-1].set_weights([np.array([[1.0], [2.0]]), np.array([0.5])])
    page = opened(chromium, net, tmp_path)
    write(page, np.array([3.0, 4.0]))
    assert page.evaluate(SAID) == "11.5"
    assert page.evaluate("document.getElementById('pad')") is None
    assert page.complaints() == []


def test_the_camera_is_looked_at_and_put_away(
    chromium: browser.Browser, tmp_path: Path
) -> None:
    page = opened(chromium, conv_net("softmax", True)(), tmp_path)
    page.evaluate("document.getElementById('camera').click()")
    page.wait_for(f"{ANSWERED} > 1")
    page.evaluate("document.getElementById('shoot').click()")
    page.wait_for("document.getElementById('video').hidden")
    assert page.evaluate("document.getElementById('video').srcObject") is None
    assert page.complaints() == []


def test_texts_and_several_inputs(chromium: browser.Browser, tmp_path: Path) -> None:
    net = text_net()
    page = opened(chromium, net, tmp_path)
    type_into(page, "words", "The CAT, sat!")
    page.wait_for(f"{ANSWERED} > 0")
    expected = net.predict(np.array(["The CAT, sat!"], object), verbose=0)[0]
    assert page.evaluate(SAID).startswith(f"{expected.argmax()}, ")
    shown = page.evaluate(
        "[...document.querySelectorAll('#bars .value')]"
        ".map(value => parseFloat(value.textContent))"
    )
    np.testing.assert_allclose(shown, 100 * expected, atol=0.06)
    assert page.complaints() == []
    text, number = keras.Input((), dtype="string", name="said"), keras.Input((1,))
    both = keras.layers.Concatenate()([net(text), number])
    page = opened(chromium, keras.Model([text, number], both), tmp_path)
    row = page.evaluate("document.getElementById('object').value")
    type_into(page, "object", row.replace("some text", "the dog"))
    page.wait_for(f"{ANSWERED} > 0")
    assert page.evaluate(SAID) == "3 numbers"
    assert page.complaints() == []


def text_net() -> Any:
    words = keras.layers.TextVectorization(
        vocabulary=["the", "cat", "dog"], output_sequence_length=4
    )
    text = keras.Input((), dtype="string")
    x = keras.layers.Flatten()(keras.layers.Embedding(6, 3)(words(text)))
    return keras.Model(text, keras.layers.Dense(2, activation="softmax")(x))


def type_into(page: browser.Browser, name: str, text: str) -> None:
    page.evaluate(
        f"(field => {{ field.value = {text!r};"
        " field.dispatchEvent(new Event('input')); })"
        f"(document.getElementById({name!r}))"
    )


def test_the_command_writes_one_file(tmp_path: Path) -> None:
    from ganglion.cli import app

    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    net.save(tmp_path / "net.keras")
    words = ["export", str(tmp_path / "net.keras"), "--page", str(tmp_path / "try")]
    done = CliRunner().invoke(app.app, words)
    assert done.exit_code == 0, done.output
    assert [path.name for path in (tmp_path / "try").iterdir()] == ["index.html"]
    text = (tmp_path / "try" / "index.html").read_text()
    assert "script-src 'sha256-" in text.replace("&#x27;", "'")
    assert "unsafe-inline" not in text
    for wrong in (words[:2], [*words, str(tmp_path / "net.c")]):
        assert "say what to write" in CliRunner().invoke(app.app, wrong).output


def test_what_no_page_can_hold_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    from ganglion.cli import app

    a, b = keras.Input((2,)), keras.Input((None, 3))
    net = keras.Model([a, b], [a, keras.layers.Dense(1)(b)], name="two")
    net.save(tmp_path / "net.keras")
    words = ["export", str(tmp_path / "net.keras"), "--page", str(tmp_path / "try")]
    done = CliRunner().invoke(app.app, words)
    assert "takes rows of fixed sizes, but 'two' takes 2 numbers and any" in str(
        done.exception
    )
    assert not (tmp_path / "try").exists()


def test_the_loader_is_a_plain_script() -> None:
    script = trial._loader()
    assert "async function load(" in script
    assert "\nexport " not in script
    assert "load(bytes)" in trial.asset("trial.js")
