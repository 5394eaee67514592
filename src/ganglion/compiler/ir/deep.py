"""Recursion without a limit: functions that ask for results instead of calling.

Graphs and expressions are as deep as a model is long, Python's stack is not.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
# Yields others of its kind, is sent what they return, and returns a result.
Deep = Generator["Deep[Any]", Any, T]


def finished(start: Deep[T]) -> T:
    """Return the result of a function that yields the calls it would make.

    >>> def depth(nested):
    ...     return 1 + (yield depth(nested[0])) if nested else 0
    >>> nested = ()
    >>> for _ in range(5000):
    ...     nested = (nested,)
    >>> finished(depth(nested))
    5000
    """
    calls: list[Deep[Any]] = [start]
    result: Any = None
    while calls:
        try:
            inner = calls[-1].send(result)
        except StopIteration as done:
            calls.pop()
            result = done.value
        else:
            calls.append(inner)
            result = None
    answer: T = result
    return answer
