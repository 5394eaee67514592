"""The findings of the checks of `ganglion doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Status(Enum):
    """The severity: a problem stops some work, a warning costs time or care."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    topic: str
    status: Status
    text: str
    mend: str = ""  # the remedy; with "ok", a possible improvement


class Check(Protocol):
    """Looks at one thing."""

    __name__: str

    def __call__(self) -> Iterable[Finding]: ...


def size(count: float) -> str:
    """Return a number of bytes in readable units.

    >>> size(1_500_000), size(2.5e9)
    ('2 MB', '2.5 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
