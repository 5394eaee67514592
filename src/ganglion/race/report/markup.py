"""HTML out of Python: text is escaped unless it is markup that was made here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# Colours of a terminal in the end of a log, and signs that HTML does not allow.
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})

Attribute = str | int | float | bool | None


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """Return any text as markup that shows just that text.

    >>> escaped("</script> & more")
    '&lt;/script&gt; &amp; more'
    """
    if isinstance(text, Html):
        return text
    return Html(html.escape(clean(text)))


def clean(text: str) -> str:
    """Return text without terminal colours and without what a page cannot hold."""
    text = _CONTROLS.sub("\ufffd", _COLOURS.sub("", text).replace("\r\n", "\n"))
    return text.encode("utf-8", "replace").decode("utf-8")


def joined(parts: Iterable[str | None], between: str = "") -> Html:
    """Return markup of several parts."""
    return Html(between.join(escaped(part) for part in parts if part is not None))


def element(tag: str, *children: str | None, **attributes: Attribute) -> Html:
    """Return an element; `class_` is `class`, `aria_label` is `aria-label`.

    >>> element("td", "a < b", class_="n", hidden=True, id=None)
    '<td class="n" hidden>a &lt; b</td>'
    """
    given = ""
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            given += f" {name}"
        elif value is not None and value is not False:
            given += f' {name}="{escaped(str(value))}"'
    if tag in _VOID:
        return Html(f"<{tag}{given}>")
    return Html(f"<{tag}{given}>{joined(children)}</{tag}>")


def table(
    caption: str,
    head: Iterable[str],
    rows: Iterable[str],
    *,
    class_: str = "",
    foot: Iterable[str] = (),
    hidden_caption: bool = False,
) -> Html:
    """Return a table that scrolls by itself where the screen is narrow."""
    tail = list(foot)
    made = element(
        "table",
        element("caption", caption, class_="unseen" if hidden_caption else None),
        element("thead", element("tr", *head)),
        element("tbody", *rows),
        element("tfoot", *tail) if tail else None,
        class_=class_ or None,
    )
    # Focusable, so that the keyboard can scroll it.
    return element(
        "div", made, class_="scroll", tabindex=0, role="group", aria_label=caption
    )


def heading(text: str, number: bool = True, **attributes: Attribute) -> Html:
    """Return the head of a column; its unit stays on the line of its name."""
    if not isinstance(text, Html):
        text = text.replace(", ", ",\u00a0").replace("× ", "×\u00a0")
    given = {"scope": "col", "class_": "n" if number else None} | attributes
    return element("th", text, **given)


def number(text: str, **attributes: Attribute) -> Html:
    """Return a cell whose figures stand under each other."""
    return element("td", text, **({"class_": "n"} | attributes))
