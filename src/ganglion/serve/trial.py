"""The page to try a model: draw, drop or take a picture, paste numbers, write text.

The page runs the model as WebAssembly inside it, or calls the HTTP interface of the
server that it came from; both take a row of numbers and return the outputs.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.explain import WithMaps, heat_colors
from ganglion.export.formats import Artifact
from ganglion.layers import InputSpec
from ganglion.pages.document import asset, document
from ganglion.pages.markup import Html, element, joined
from ganglion.serve.interface import Interface

DRAW, PICTURE, NUMBERS, TEXT, JSON = "draw", "picture", "numbers", "text", "json"
TITLES = {
    DRAW: "Draw",
    PICTURE: "Picture",
    NUMBERS: "Numbers",
    TEXT: "Text",
    JSON: "JSON",
}
SCREEN = 280  # pixels of the drawing


@dataclass(frozen=True)
class Module:
    """A model as WebAssembly.

    Args:
        bytes: The module.
        map_width: Columns of the class activation map, its second output; None where
            it has none.
    """

    bytes: bytes
    map_width: int | None = None


def module_of(model: Any, interface: Interface) -> Module:
    """Return a model as WebAssembly; raise if it cannot be exported."""
    from ganglion.export import wasm
    from ganglion.export.inference import inference_of

    ways_in(interface, is_alone=True)
    if not interface.maps:
        return Module(wasm.module_of(inference_of(model)))
    signature = [InputSpec(shape=model.input_shape, dtype=model.inputs[0].dtype)]
    inference = inference_of(WithMaps(model), 1, signature)
    return Module(wasm.module_of(inference), inference.outputs[1].shape[-1])


def write(model: Any, path: Path) -> Artifact:
    """Return the page of a model as a single file; see `ganglion.export`."""
    interface = Interface.of(model)
    text = page(interface, module_of(model, interface), server=False)
    return Artifact({path: text.encode()})


def page(
    interface: Interface, module: Module | None = None, server: bool = True
) -> str:
    """Return the page as text.

    Args:
        interface: The interface of the model.
        module: The model inside the page; without it, the page calls its server.
        server: Whether a server delivers the page.
    """
    ways = ways_in(interface, module is not None)
    data: dict[str, Any] = {"interface": interface.as_data() | {"ways": ways}}
    scripts, allow = [asset("trial.js")], ["connect-src 'self'"]
    if module is not None:
        data["module"] = {
            "bytes": base64.b64encode(module.bytes).decode(),
            "map_width": module.map_width,
        }
        scripts = [_loader(), *scripts]
        allow = ["script-src 'wasm-unsafe-eval'"]
    if interface.maps:
        data["heat-colours"] = heat_colors(np.linspace(0, 1, 256)).tolist()
    name = interface.name
    top = element(
        "header",
        element("h1", f"Try {name}"),
        element("p", _about(interface), class_="subtitle"),
    )
    body = element("main", _inputs(interface, ways), _answer(interface), class_="trial")
    return document(
        f"Try {name}",
        joined([top, body, _footer(module is not None, server)]),
        generator="ganglion",
        data=data,
        scripts=scripts,
        styles=[asset("trial.css")],
        allow=allow,
    )


def _loader() -> str:
    """Return the JavaScript module of exports as a plain script."""
    from ganglion.export import wasm

    return wasm.javascript().decode().replace("export async function", "async function")


def ways_in(interface: Interface, is_alone: bool = False) -> list[str]:
    """Return the ways to enter a row, the best first.

    Args:
        interface: The interface of the model.
        is_alone: Whether the page has no server, and so takes rows of fixed sizes.
    """
    tensor = interface.inputs[0]
    if len(interface.inputs) == 1 and not tensor.is_text and tensor.size is not None:
        form = interface.form
        pictures = [] if form is None else [PICTURE]
        if form is not None and form.color == "grayscale":
            pictures = [DRAW, PICTURE]
        return [*pictures, NUMBERS]
    if is_alone and any(tensor.size is None for tensor in interface.inputs):
        raise ValueError(
            f"A page of its own takes rows of fixed sizes, but {interface.name!r} "
            f"takes {' and '.join(map(str, interface.inputs))}: serve it with "
            "`ganglion serve`."
        )
    is_text = len(interface.inputs) == 1 and tensor.is_text and tensor.size == 1
    return [TEXT] if is_text else [JSON]


def example(interface: Interface, address: str) -> str:
    """Return a command that sends a request to the server."""
    if interface.form is not None:
        kind, body = "image/png", "@picture.png"
    else:
        rows = [_example_row(interface)]
        kind, body = "application/json", json.dumps({"rows": rows})
    return f"curl {address}/predict -H 'Content-Type: {kind}' --data-binary " + (
        shlex.quote(body)
    )


def _example_row(interface: Interface) -> Any:
    def value(tensor: Any) -> Any:
        shape = [side or 3 for side in tensor.shape]
        if tensor.is_text:
            is_one = all(side == 1 for side in shape)
            return "some text" if is_one else np.full(shape, "word").tolist()
        return np.zeros(shape, "int").tolist()

    values = {tensor.name: value(tensor) for tensor in interface.inputs}
    return values if len(values) > 1 else next(iter(values.values()))


# ---- parts ---------------------------------------------------------------------------


def _about(interface: Interface) -> str:
    taken = " and ".join(map(str, interface.inputs))
    if interface.classes:
        return f"Takes {taken}, tells {len(interface.classes)} classes apart."
    return f"Takes {taken}, gives {' and '.join(map(str, interface.outputs))}."


def _inputs(interface: Interface, ways: Sequence[str]) -> Html:
    panels = {
        DRAW: _drawing,
        PICTURE: _picture,
        NUMBERS: _numbers,
        TEXT: _text,
        JSON: _json,
    }
    choices = [
        element(
            "label",
            element("input", type="radio", name="way", value=way, checked=not number),
            element("span", TITLES[way]),
        )
        for number, way in enumerate(ways)
    ]
    switch = element(
        "fieldset",
        element("legend", "Give it"),
        *choices,
        class_="ways",
        hidden=len(ways) == 1,
    )
    shown = [
        element(
            "div", *panels[way](interface), id=way, class_="panel", hidden=number > 0
        )
        for number, way in enumerate(ways)
    ]
    return element("section", element("h2", "Input"), switch, *shown, id="input")


def _drawing(interface: Interface) -> list[Html]:
    pad = element(
        "div",
        element(
            "canvas",
            id="pad",
            width=SCREEN,
            height=SCREEN,
            tabindex=0,
            role="application",
            aria_label="Drawing. Arrow keys move the pen, space puts it down or lifts "
            "it, Backspace takes the last stroke back, Delete clears.",
        ),
        element("span", id="pen", hidden=True),
        class_="pad",
    )
    return [
        pad,
        element(
            "p",
            _button("undo", "Undo"),
            _button("clear", "Clear"),
            _check("center", "centre it and size it, as MNIST does", True),
            _check("dark", "dark ink on light paper", False),
            class_="buttons",
        ),
        element(
            "p",
            "Draw with the mouse or a finger; or with the keyboard: arrow keys move "
            "the pen, space puts it down and lifts it.",
            class_="note hint",
        ),
    ]


def _picture(interface: Interface) -> list[Html]:
    drop = element(
        "label",
        element("input", type="file", accept="image/*", id="file"),
        element("span", "Drop a picture here, paste one, or choose a file"),
        class_="drop",
        id="drop",
    )
    camera = element(
        "p",
        _button("camera", "Camera"),
        _button("shoot", "Take the picture", hidden=True),
        class_="buttons",
    )
    video = element("video", id="video", muted=True, playsinline=True, hidden=True)
    return [drop, camera, video]


def _numbers(interface: Interface) -> list[Html]:
    tensor = interface.inputs[0]
    return [
        element("label", f"A row: {tensor}", for_="row"),
        element("textarea", id="row", rows=8, spellcheck="false", autocomplete="off"),
        element(
            "p",
            "With commas, spaces or tabs between, as a sheet has it.",
            class_="note",
        ),
    ]


def _text(interface: Interface) -> list[Html]:
    return [
        element("label", "A text", for_="words"),
        element("textarea", id="words", rows=8),
    ]


def _json(interface: Interface) -> list[Html]:
    row = json.dumps(_example_row(interface), ensure_ascii=False)
    return [
        element("label", "A row as JSON", for_="object"),
        element("textarea", row, id="object", rows=8, spellcheck="false"),
    ]


def _answer(interface: Interface) -> Html:
    seen = []
    if interface.form is not None:
        rows, columns = interface.form.size
        picture = element(
            "canvas", id="seen", width=columns, height=rows, aria_hidden="true"
        )
        heat = element("canvas", id="heat", aria_hidden="true")
        switch = _check("where", "show where it sees the class", True)
        seen = [
            element(
                "figure",
                element("div", picture, heat, class_="stack"),
                element("figcaption", "What the model sees"),
                element("p", switch, class_="buttons") if interface.maps else None,
            )
        ]
    said = element("p", "Nothing yet.", id="said", class_="verdict", aria_live="polite")
    return element(
        "section",
        element("h2", "Answer"),
        said,
        element("div", element("ol", id="bars"), *seen, class_="answer"),
        element("p", id="time", class_="note"),
        id="results",
    )


def _button(name: str, text: str, **more: Any) -> Html:
    return element("button", text, type="button", id=name, **more)


def _check(name: str, text: str, is_on: bool) -> Html:
    box = element("input", type="checkbox", id=name, checked=is_on)
    return element("label", box, text)


def _footer(is_alone: bool, server: bool) -> Html:
    texts = [
        "The model is inside of this page and runs in your browser: what you give "
        "stays here."
        if is_alone
        else "What you give is sent to the server of this page, and not kept."
    ]
    if not server:
        return element("footer", "Made by ganglion export. ", *texts)
    links = [
        element("a", path, href=path.lstrip("/"))
        for path in ("/openapi.json", "/model", "/metrics", "/health")
    ]
    return element(
        "footer",
        "Made by ganglion serve. ",
        *texts,
        " Its interface: ",
        *_between(links),
    )


def _between(parts: Sequence[Html]) -> list[Html]:
    return [Html(", " + part) if number else part for number, part in enumerate(parts)]
