"""What reading a file may cost in all: memory, things and depth, out of one budget.

A few kilobytes can describe gigabytes: compressed twice, as a type of a huge item, as a
layer of a billion units. Every limit by itself lets something through, and several
multiply; so whoever reads a file opens a budget in proportion to its size, and all that
is made of it draws from that, before it is made.

>>> with reading(size=2000):  # doctest: +ELLIPSIS
...     take(10**10, "a layer")
Traceback (most recent call last):
ganglion.system.budget.BudgetError: it asks for 10,000,000,000 bytes for a layer, ...
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

VARIABLE = "GANGLION_FILE_LIMIT"
FLOOR = 512 << 20  # bytes that any file may take, however small it is
FACTOR = 32  # times its size; weights are there three times while they are read
THINGS = 20_000  # objects and calls that any file may describe; a tenth of a minute
BYTES_A_THING = 64  # of the file, for more; Keras writes hundreds
DEPTH = 100
JSON_FACTOR = 24  # bytes of memory a byte of JSON; "{}," makes 72 of 3
_PIECE = 1 << 20
_WAY_OUT = f"If you trust it, allow more: {VARIABLE}=20G, say"
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Stream(Protocol):
    """What bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""
        ...


class BudgetError(ValueError):
    """A file asks for more than it may."""


class Budget:
    """What is left of that which a file may take.

    Args:
        size: The bytes of the file.
        floor: What it may take however small it is.
        factor: How many times its size it may take.
    """

    def __init__(self, size: int, floor: int = FLOOR, factor: int = FACTOR) -> None:
        self.size = size
        self.limit = chosen_limit() or max(floor, factor * size)
        self.bytes_left = self.limit
        self.things_left = max(THINGS, size // BYTES_A_THING, self.limit // 100_000)
        self.depth = 0

    def take(self, count: int, what: str, beside: int = 0) -> None:
        """Draw bytes of memory, before they are used.

        Args:
            count: The bytes.
            what: What they are for.
            beside: Bytes that are needed as well, but only for a moment.
        """
        self.bytes_left -= int(count)
        if self.bytes_left < beside:
            raise BudgetError(
                f"it asks for {int(count):,} bytes for {what}, and for more than "
                f"{self.limit:,} in all{self._has()}: refused. {_WAY_OUT}"
            )

    def count(self, what: str) -> None:
        """Draw one object or call that a file describes."""
        self.things_left -= 1
        if self.things_left < 0:
            raise BudgetError(
                f"it describes too many {what}{self._has()}: refused. {_WAY_OUT}"
            )

    def _has(self) -> str:
        return f", but is a file of {self.size:,} bytes" if self.size else ""

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Go into what is nested; refuse to go on without end."""
        self.depth += 1
        try:
            if self.depth > DEPTH:
                raise BudgetError(f"it is nested more than {DEPTH} levels deep.")
            yield
        finally:
            self.depth -= 1


class _Active(threading.local):
    budget: Budget | None = None


_active = _Active()


def chosen_limit() -> int | None:
    """Return the bytes that GANGLION_FILE_LIMIT allows a file, None if it is not set.

    >>> os.environ[VARIABLE] = "1.5G"
    >>> chosen_limit(), os.environ.pop(VARIABLE)
    (1500000000, '1.5G')
    """
    text = os.environ.get(VARIABLE, "").strip().upper().removesuffix("B")
    if not text:
        return None
    try:
        count = int(float(text.rstrip("KMGT")) * _UNITS.get(text[-1], 1))
    except (ValueError, OverflowError):
        count = 0
    if count < 1:
        raise ValueError(
            f"{VARIABLE} is a number of bytes, such as 20G, not "
            f"{os.environ[VARIABLE]!r}."
        )
    return count


def current() -> Budget | None:
    """Return the budget of the file that is being read, None outside of any."""
    return _active.budget


@contextmanager
def reading(size: int, floor: int = FLOOR, factor: int = FACTOR) -> Iterator[Budget]:
    """Let all that is read in this block, in this thread, draw from one budget."""
    before, _active.budget = _active.budget, Budget(size, floor, factor)
    try:
        yield _active.budget
    finally:
        _active.budget = before


def take(count: int, what: str, beside: int = 0) -> None:
    """Draw bytes of memory, if a file is being read; see `Budget.take`."""
    if _active.budget is not None:
        _active.budget.take(count, what, beside)


def count(what: str) -> None:
    """Draw one object or call, if a file is being read."""
    if _active.budget is not None:
        _active.budget.count(what)


@contextmanager
def deeper() -> Iterator[None]:
    """Go one level deeper, if a file is being read."""
    if _active.budget is None:
        yield
        return
    with _active.budget.deeper():
        yield


def parsed_json(text: str | bytes) -> Any:
    """Return what JSON holds; it takes many times the memory of its text."""
    import json

    take(JSON_FACTOR * len(text), "a text of JSON")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def drain(stream: Stream, what: str) -> bytes:
    """Read a stream that unpacks what it holds, and never more than may be."""
    pieces = []
    while piece := stream.read(_PIECE):
        take(len(piece), what)
        pieces.append(piece)
    return b"".join(pieces)
