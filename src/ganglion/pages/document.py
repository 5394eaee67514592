"""A self-contained page: style, data and scripts inside, and nothing else allowed.

A content security policy lists the hashes of the scripts and styles: a script in the
text of a log, a file or a model is shown, never run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from ganglion.pages.markup import Html, element, escaped, joined

CURVES = "curves.js"  # draws with uPlot


def document(
    title: str,
    body: Html,
    *,
    generator: str,
    data: Mapping[str, Any],
    scripts: Sequence[str],
    styles: Sequence[str] = (),
    allow: Sequence[str] = (),
) -> str:
    """Return a page as text.

    Args:
        title: The title of the window.
        body: The visible content.
        generator: The command that made it.
        data: JSON for the scripts, each by the id of its element.
        scripts: Texts of JavaScript, in the order they run.
        styles: Texts of CSS, after the common style sheet.
        allow: Further rules of the policy, such as "connect-src 'self'".
    """
    style = "\n".join([asset("page.css"), *styles])
    return Template(asset("page.html")).substitute(
        policy=escaped(policy(scripts, [style], allow)),
        generator=escaped(generator),
        title=escaped(title),
        style=style,
        body=body,
        data=joined(_data(name, value) for name, value in data.items()),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def asset(name: str) -> str:
    """Return a file of `assets` as text."""
    folder = resources.files("ganglion.pages") / "assets"
    return folder.joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def plotting_library() -> str:
    """Return uPlot with its licence, which every copy has to carry."""
    licence = asset("vendor/uPlot.LICENSE")
    return f"/*\n{licence}*/\n{asset('vendor/uPlot.iife.min.js')}"


def plotting_style() -> str:
    """Return the style sheet of uPlot."""
    return asset("vendor/uPlot.min.css")


def policy(
    scripts: Iterable[str], styles: Iterable[str], allow: Sequence[str] = ()
) -> str:
    """Return a content security policy that allows some scripts and styles.

    >>> policy(["f()"], [], ["script-src 'wasm-unsafe-eval'"]).split("; ")[:2]
    ["default-src 'none'", "script-src 'sha256-...' 'wasm-unsafe-eval'"]
    """

    def sources(texts: Iterable[str]) -> str:
        hashes = (hashlib.sha256(text.encode()).digest() for text in texts)
        return " ".join(
            f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes
        )

    allowed = {"img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    rules = {"script-src": sources(scripts), "style-src": sources(styles)} | allowed
    for rule in allow:
        name, _, source = rule.partition(" ")
        rules[name] = f"{rules.get(name, '')} {source}".strip()
    texts = [f"{name} {source}" for name, source in rules.items() if source]
    return "; ".join(["default-src 'none'", *texts])


def _data(name: str, value: Any) -> Html:
    """Return JSON that cannot end its own element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return element("script", Html(text), type="application/json", id=name)
