"""Small programs that must end alike in Ganglion and in Keras.

Each is a function of the library, with what it returns or the error it raises.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Program = Callable[[Any], Any]


class Programs:
    """A table of programs, filled by a decorator."""

    def __init__(self) -> None:
        self._params: list[Any] = []

    def prints(self, expected: Any) -> Callable[[Program], Program]:
        """Say what a program returns, or the type of the error that it raises."""

        def noted(program: Program) -> Program:
            case = pytest.param(program, expected, id=program.__name__)
            self._params.append(case)
            return program

        return noted

    @property
    def each(self) -> Any:
        """The mark that runs a test with every program and what it is to end in."""
        return pytest.mark.parametrize(("program", "expected"), self._params)


def check(keras: Any, program: Program, expected: Any) -> None:
    """Run a program in a library and compare."""
    if isinstance(expected, type):
        with pytest.raises(expected):
            program(keras)
    else:
        assert program(keras) == expected


def errors_of(calls: Iterable[Callable[[], Any]]) -> list[type[BaseException]]:
    """Return the type of the error that each call raises, to compare with Keras'."""
    errors = []
    for call in calls:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - the caller compares
            call()
        errors.append(raised.type)
    return errors
