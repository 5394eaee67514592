"""The command that resumes an interrupted run: the same command with its options."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import typer

PROGRAM = "ganglion"  # also where it was started as `python -m ganglion`
_NOT_GIVEN = ("DEFAULT", "DEFAULT_MAP")


def set_by_user(context: typer.Context, name: str) -> bool:
    """Return whether a parameter was given, even if with the value of its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in _NOT_GIVEN


def command(
    context: typer.Context, last: dict[str, Any], without: Collection[str] = ()
) -> str:
    """Return a command line that repeats every parameter that was given.

    Args:
        context: The command that was interrupted, with what it was given.
        last: Parameters with other values than they had, or that were not given; they
            come at the end.
        without: Parameters that the resuming command must not have.
    """
    words: list[str] = []
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in last or name in without or not set_by_user(context, name):
            continue
        texts = list(_words(parameter, context.params[name]))
        (words if _is_option(parameter) else arguments).extend(texts)
    known = {parameter.name: parameter for parameter in context.command.params}
    for name, value in last.items():
        words += _words(known[name], value)
    if any(argument.startswith("-") for argument in arguments):
        words, arguments = [*words, "--", *arguments], []
    return shlex.join([PROGRAM, context.info_name or "", *arguments, *words])


def _is_option(parameter: Any) -> bool:
    return parameter.param_type_name == "option"


def _words(parameter: Any, value: Any) -> Iterator[str]:
    """Yield how a value is given to a parameter."""
    if value is None:
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _words(parameter, item)
        return
    if not _is_option(parameter):
        yield _text(value)
    elif getattr(parameter, "is_flag", False):
        yield (parameter.opts if value else parameter.secondary_opts)[0]
    elif (text := _text(value)).startswith("-"):
        yield f"{parameter.opts[0]}={text}"
    else:
        yield from (parameter.opts[0], text)


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, (str, Path)) else repr(value)
