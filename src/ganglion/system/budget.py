"""One budget of memory, objects and depth for everything that is read from a file.

A few kilobytes can describe gigabytes: compressed twice, as a type of a huge item, as a
layer of a billion units. Separate limits each let something through, and together they
multiply; so a reader opens a budget in proportion to the size of its file, and
everything that is built from the file draws from it first.

>>> with reading(size=2000):  # doctest: +ELLIPSIS
...     take(10**10, "a layer")
Traceback (most recent call last):
ganglion.system.budget.BudgetError: it asks for 10,000,000,000 bytes for a layer, ...
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

VARIABLE = "GANGLION_FILE_LIMIT"
FLOOR = 512 << 20  # bytes that any file may take, however small it is
FACTOR = 32  # times its size; weights are there three times while they are read
OBJECTS = 20_000  # objects and calls that any file may describe; a tenth of a minute
BYTES_AN_OBJECT = 64  # of the file, for more; Keras writes hundreds
DEPTH = 100
JSON_FACTOR = 24  # bytes of memory a byte of JSON; "{}," makes 72 of 3
_PIECE = 1 << 20
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Stream(Protocol):
    """An object that bytes can be read from."""

    def read(self, size: int, /) -> bytes: ...


class BudgetError(ValueError):
    """A file requests more than it may."""


class Budget:
    """The memory and objects that reading a file may still take.

    Args:
        size: The bytes of the file.
        floor: Bytes that it may take however small it is.
        factor: How many times its size it may take.
    """

    def __init__(self, size: int, floor: int = FLOOR, factor: int = FACTOR) -> None:
        self.size = size
        self.limit = chosen_limit() or max(floor, factor * size)
        self.bytes_left = self.limit
        self.objects_left = max(OBJECTS, size // BYTES_AN_OBJECT, self.limit // 100_000)
        self.depth = 0

    def refusal(self, demand: str) -> BudgetError:
        """Return an error with the reason for refusing a file, and the way out."""
        size = f", but is a file of {self.size:,} bytes" if self.size else ""
        return BudgetError(
            f"it {demand}{size}: refused. If you trust it, allow more: {VARIABLE}=20G, "
            "say"
        )


class _Active(threading.local):
    budget: Budget | None = None


active = _Active()


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
    return active.budget


@contextmanager
def reading(size: int, floor: int = FLOOR, factor: int = FACTOR) -> Iterator[Budget]:
    """Charge everything that this thread reads in the block to a single budget."""
    before, active.budget = active.budget, Budget(size, floor, factor)
    try:
        yield active.budget
    finally:
        active.budget = before


def take(count: int, purpose: str, beside: int = 0) -> None:
    """Draw bytes of memory before they are used, if a file is being read.

    Args:
        count: The bytes.
        purpose: What they are for.
        beside: Bytes that are needed as well, but only for a moment.
    """
    budget = active.budget
    if budget is None:
        return
    budget.bytes_left -= int(count)
    if budget.bytes_left < beside:
        raise budget.refusal(
            f"asks for {int(count):,} bytes for {purpose}, and for more than "
            f"{budget.limit:,} in all"
        )


def count(kind: str) -> None:
    """Draw one object or call that a file describes, if one is being read."""
    budget = active.budget
    if budget is not None:
        budget.objects_left -= 1
        if budget.objects_left < 0:
            raise budget.refusal(f"describes too many {kind}")


@contextmanager
def deeper() -> Iterator[None]:
    """Count one more level of nesting, if a file is being read."""
    budget = active.budget
    if budget is None:
        yield
        return
    budget.depth += 1
    try:
        if budget.depth > DEPTH:
            raise BudgetError(f"it is nested more than {DEPTH} levels deep.")
        yield
    finally:
        budget.depth -= 1


def parsed_json(
    text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return the data of a JSON text, which takes many times the memory of its text.

    Args:
        text: The text.
        pairs: Makes an object of its pairs of names and values.
    """
    import json

    take(JSON_FACTOR * len(text), "a text of JSON")
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def drain(stream: Stream, purpose: str) -> bytes:
    """Read a stream that decompresses its content, within the budget."""
    pieces = []
    while piece := stream.read(_PIECE):
        take(len(piece), purpose)
        pieces.append(piece)
    return b"".join(pieces)
