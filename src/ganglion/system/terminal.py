"""Output for a terminal: control characters are escaped, and tables shorten no name.

Names of classes, files, layers and metrics come from folders and files of any origin.
A terminal obeys some characters, and Rich reads brackets as styles:
everything that is printed goes through here.

Rich also shortens what does not fit ("mnist-perc…"), names first of all, but a reader
may want to type a name. Columns become as narrow as their longest word, the first one,
which has the names, as its longest name; if that is still too wide, every row is
printed as a few lines.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

WIDTH = 144  # where there is no terminal
# Control characters (C0 and C1), changes of the direction of writing, line separators,
# and surrogates, which cannot be encoded.
_ORDERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_ORDERS_IN_LINES = re.compile(
    _ORDERS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f")
)


@cache
def tell_once(text: str) -> None:
    """Print a message to standard error, once per process."""
    print(text, file=sys.stderr, flush=True)


def printable(text: Any) -> str:
    r"""Return a name that is safe to print, on one line.

    >>> print(printable("cat\x1b[2J\n"), printable("[bold]dog"))
    cat\x1b[2J\x0a [bold]dog
    """
    return _ORDERS.sub(_escaped, str(text))


def lines(text: Any) -> str:
    """Return a message that is safe to print; line breaks and tabs stay."""
    return _ORDERS_IN_LINES.sub(_escaped, str(text))


def one_line(error: BaseException) -> str:
    """Return an exception as one short line.

    >>> one_line(OSError(28, "No space left on device"))
    'No space left on device'
    """
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


def json_shown(text: str) -> str:
    r"""Return equivalent JSON that is safe to print.

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


def console(**options: Any) -> Any:
    """Return a console for standard output; a pipe or a file is as wide as it needs."""
    from rich.console import Console

    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(width=None if is_known else WIDTH, **options)


def show(table: Any, on: Any = None) -> None:
    """Print a table of Rich; as lines where it is too wide for a table.

    >>> from rich.console import Console
    >>> from rich.table import Table
    >>> table = Table("recipe", "model")
    >>> table.add_row("mnist-perceptron", "784 → 10 sigmoid")
    >>> show(table, Console(width=20))
    mnist-perceptron
      model: 784 → 10 sigmoid
    """
    on = on or console()
    if fit(table, on.width):
        on.print(table)
        return
    for line in _lines(table):
        on.print(line, markup=False, highlight=False, soft_wrap=True)


def fit(table: Any, width: int) -> bool:
    """Set the widths of columns to fit a table into a width; return whether it fits."""
    most = [max(map(_width, _texts(column))) for column in table.columns]
    least = [max(map(_longest_word, _texts(column))) for column in table.columns]
    least[:1] = most[:1]
    room = width - _frame(table)
    if sum(least) > room:
        return False
    for column, wide in zip(table.columns, _shared_out(least, most, room), strict=True):
        column.width = max(wide, 1)
    return True


def _shared_out(least: list[int], most: list[int], room: int) -> list[int]:
    """Return widths that sum up to `room` at most: the widest shrink first.

    >>> _shared_out([4, 3, 5], [4, 30, 12], 30), _shared_out([4, 3], [4, 9], 30)
    ([4, 14, 12], [4, 9])
    """
    widths = list(most)
    while sum(widths) > room:
        can_shrink = [i for i, wide in enumerate(widths) if wide > least[i]]
        widths[max(can_shrink, key=lambda i: widths[i])] -= 1
    return widths


def _frame(table: Any) -> int:
    """Return how many columns of a terminal go to lines and gaps."""
    count = len(table.columns)
    _, right, _, left = table.padding
    gaps = (left + right) * count
    if not table.pad_edge:
        gaps -= left + right
    lines = 0 if table.box is None else count + 1
    return int(gaps + lines)


def _texts(column: Any) -> Iterator[str]:
    """Yield the head and the cells of a column, line by line, as plain text."""
    for cell in (column.header, *column.cells):
        yield from str(cell).splitlines() or [""]


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> int:
    return max(map(_width, text.split()), default=0)


def _lines(table: Any) -> Iterator[str]:
    """Yield a table as lines: the name of a row, then its other columns."""
    if table.title:
        yield str(table.title)
    heads = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    for name, *cells in rows:
        yield str(name)
        for head, cell in zip(heads[1:], cells, strict=True):
            if str(cell):
                yield f"  {head}: {'; '.join(str(cell).splitlines())}"
