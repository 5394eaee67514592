"""Counts of the work that ran outside of compiled programs.

>>> with counting() as counts:
...     note("ops one by one", "add")
...     note("ops one by one", "add")
>>> summary(counts)
'2 ops one by one (add)'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

Counts = dict[str, Counter[str]]  # by the kind of work: how often each name ran

_counts: Counts | None = None


@contextmanager
def counting() -> Iterator[Counts]:
    """Count the calls of `note` in this block."""
    global _counts
    before, _counts = _counts, {}
    try:
        yield _counts
    finally:
        _counts = before


def note(kind: str, name: str) -> None:
    """Count something that ran in Python or NumPy, by its kind and its name."""
    if _counts is not None:
        _counts.setdefault(kind, Counter())[name] += 1


def summary(counts: Counts, most: int = 4) -> str:
    """Return the counts in words, the most frequent names first."""
    parts = []
    for kind, names in counts.items():
        listed = [name for name, _ in names.most_common(most)]
        rest = ["..."] if len(names) > most else []
        parts.append(f"{names.total():,} {kind} ({', '.join(listed + rest)})")
    return "; ".join(parts)
