"""Text from outside on its way to a terminal: shown, never obeyed.

Names of classes, files, layers and metrics come from folders and files that anybody may
have made. A terminal takes some characters for orders, and rich takes brackets for
styles: all that is printed goes through here.
"""

from __future__ import annotations

import re
from typing import Any

# Orders to a terminal (C0 and C1), what turns the direction of writing round, what
# breaks lines, and halves of characters, which cannot be written at all.
_ORDERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_ORDERS_IN_LINES = re.compile(
    _ORDERS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f")
)


def shown(text: Any) -> str:
    r"""Return a name as it can be shown, on one line.

    >>> print(shown("cat\x1b[2J\n"), shown("[bold]dog"))
    cat\x1b[2J\x0a [bold]dog
    """
    return _ORDERS.sub(_escaped, str(text))


def lines(text: Any) -> str:
    """Return a message as it can be shown; line breaks and tabs stay."""
    return _ORDERS_IN_LINES.sub(_escaped, str(text))


def json_shown(text: str) -> str:
    r"""Return JSON that says the same, and can be shown.

    >>> print(json_shown('["\x9b2J"]'))
    ["\u009b2J"]
    """
    return _ORDERS_IN_LINES.sub(lambda order: f"\\u{ord(order[0]):04x}", text)


def cell(text: Any) -> Any:
    """Return a text for rich's tables and titles, in which nothing is a style."""
    from rich.text import Text

    return Text(lines(text))


def _escaped(order: re.Match[str]) -> str:
    number = ord(order[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
