"""`ganglion run SCRIPT`: a Keras script, unchanged, with Ganglion as its Keras.

The script sees what plain Python shows it: `sys.argv`, `__main__`, `__file__`, the
working folder, exit codes and tracebacks.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
import traceback
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Annotated

import typer

from ganglion import compat, keras2, oldpaths
from ganglion.cli.console import say
from ganglion.cli.options import choice
from ganglion.compat import aliases, script_age, star_imports
from ganglion.compiler.ir.origin import is_users
from ganglion.system import uncompiled

_EXPLAINERS = (
    str(oldpaths.__file__),
    os.path.dirname(compat.__file__),
    "<frozen importlib",
)


def run(
    context: typer.Context,
    script: Annotated[
        Path, typer.Argument(help="A Python script that imports keras or tensorflow.")
    ],
    keras: Annotated[
        str,
        choice(
            "auto",
            "2",
            "3",
            help="Whose defaults hold; auto: by how the script is written.",
        ),
    ] = "auto",
) -> None:
    """Run a Keras script unchanged: keras, tensorflow and tf.keras are Ganglion.

    Options come before SCRIPT; what follows it is the script's own.
    """
    if not script.is_file():
        raise typer.BadParameter(f"there is no file {str(script)!r}.")
    choose_keras(script, keras)
    aliases.install()
    began = time.perf_counter()
    with uncompiled.counting() as counts:
        status, where = run_as_main(script, context.args)
    seconds = time.perf_counter() - began
    rest = uncompiled.summary(counts)
    took = f"stopped at {where} after {seconds:.1f} s" if where else f"{seconds:.1f} s"
    parts = f"not compiled: {rest}" if rest else "every step ran compiled"
    say(f"ganglion run: {took}; {parts}.")
    raise SystemExit(status)


def choose_keras(script: Path, keras: str) -> None:
    """Use the defaults of Keras 2 or 3, and report which, and why."""
    age = script_age.age_of(script)
    version, reason = age.keras, age.reason
    if keras != "auto":
        version, reason = int(keras), "as --keras says"
        keras2.set_active(version == 2, in_tensorflow=age.in_tensorflow)
    elif version == 2:
        reason += "; --keras 3 overrules it"
        keras2.set_active(True, in_tensorflow=age.in_tensorflow)
    say(f"ganglion run: {script.name} runs as Keras {version} ({reason}).")


def run_as_main(script: Path, arguments: list[str]) -> tuple[object, str]:
    """Run a file as Python does; return its exit status and where it failed."""
    sys.argv = [str(script), *arguments]
    # Python puts the folder of the script first; ours may be the command's own.
    sys.path[0:1] = [str(script.resolve().parent)]
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(script), __builtins__=builtins)
    main.__dict__.update(__cached__=None, __annotations__={})
    main.__dict__.update(star_imports.names_of(script.read_bytes()))
    sys.modules["__main__"] = main
    try:
        exec(_compiled(script), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code, ""
        print(end.code, file=sys.stderr)  # as Python does at its end
        return 1, ""
    except KeyboardInterrupt as error:
        return 130, _show(error)
    except BaseException as error:
        return 1, _show(error)
    return 0, ""


def _compiled(script: Path) -> CodeType:
    return compile(script.read_bytes(), str(script), "exec", dont_inherit=True)


def _show(error: BaseException) -> str:
    """Print a traceback as Python does, without the frames of this file.

    Returns the script's line that was reached, as ``train.py:12``.
    """
    error.__traceback__ = _without_runner(error.__traceback__)
    sys.stdout.flush()
    sys.excepthook(type(error), error, error.__traceback__)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if is_users(frame.filename)]
    if lines:
        return f"{os.path.basename(lines[-1].filename)}:{lines[-1].lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}:{error.lineno}"
    return "its start"


def _without_runner(trace: TracebackType | None) -> TracebackType | None:
    """Leave out this file at the top, and at the end who says what is missing."""
    while trace is not None and _file(trace) == __file__:
        trace = trace.tb_next
    last, step = trace, trace
    while step is not None:
        if not _file(step).startswith(_EXPLAINERS):
            last = step
        step = step.tb_next
    if last is not None:
        last.tb_next = None
    return trace


def _file(trace: TracebackType) -> str:
    return trace.tb_frame.f_code.co_filename
