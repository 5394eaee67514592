"""HTML built in Python: text is escaped unless it is markup that was made here."""

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
    """Text that is already markup."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """Return any text as markup that shows just that text.

    >>> escaped("</script> & more")
    '&lt;/script&gt; &amp; more'
    """
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def clean(text: str) -> str:
    """Return text without terminal colours and characters that HTML does not allow."""
    text = _CONTROLS.sub("\ufffd", _COLOURS.sub("", text).replace("\r\n", "\n"))
    return text.encode("utf-8", "replace").decode("utf-8")


def joined(parts: Iterable[str | None]) -> Html:
    """Return markup of several parts."""
    return Html("".join(escaped(part) for part in parts if part is not None))


def element(tag: str, *children: str | None, **attributes: Attribute) -> Html:
    """Return an element; `class_` is `class`, `aria_label` is `aria-label`.

    >>> element("td", "a < b", class_="n", hidden=True, id=None)
    '<td class="n" hidden>a &lt; b</td>'
    """
    opening = tag
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            opening += f" {name}"
        elif value is not None and value is not False:
            opening += f' {name}="{escaped(str(value))}"'
    if tag in _VOID:
        return Html(f"<{opening}>")
    return Html(f"<{opening}>{joined(children)}</{tag}>")


def table(
    caption: str,
    head: Iterable[str],
    rows: Iterable[str],
    *,
    class_: str | None = None,
    foot: Iterable[str] = (),
    hidden_caption: bool = False,
    spoken: str = "",
) -> Html:
    """Return a table that scrolls by itself where the screen is narrow."""
    last = joined(foot)
    content = element(
        "table",
        element("caption", caption, class_="unseen" if hidden_caption else None),
        element("thead", element("tr", *head)),
        element("tbody", *rows),
        element("tfoot", last) if last else None,
        class_=class_,
    )
    # Focusable, so that the keyboard can scroll it.
    label = spoken or caption
    return element(
        "div", content, class_="scroll", tabindex=0, role="group", aria_label=label
    )


def heading(text: str, is_number: bool = True) -> Html:
    """Return the head of a column; its unit stays on the line of its name."""
    if not isinstance(text, Html):
        text = text.replace(", ", ",\u00a0").replace("× ", "×\u00a0")
    return element("th", text, scope="col", class_="n" if is_number else None)


def headings(first: str, *numbers: str) -> list[Html]:
    """Return the heads of columns: the first of names, the others of numbers."""
    return [heading(first, False), *map(heading, numbers)]


def number(text: str, **attributes: Attribute) -> Html:
    """Return a cell whose figures stand under each other."""
    return element("td", text, **({"class_": "n"} | attributes))
