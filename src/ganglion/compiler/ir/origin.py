"""Where a node comes from: its layer path and the user's line of code.

So errors of the compiler name the layer and the line of the script.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_PACKAGE = os.path.join(str(Path(__file__).resolve().parents[2]), "")
# Frames above these are not the user's: the command's script, or `runpy`.
_COMMAND_LINE = (_PACKAGE + "cli", _PACKAGE + "__main__")

_STANDARD = tuple(
    os.path.join(folder, "")
    for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)
_INSTALLED = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages")
)


class Origin(NamedTuple):
    """A layer path (``"mlp/dense_1"``) and the line of user code behind it."""

    layer: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f"{os.path.basename(self.file)}:{self.line}" if self.file else ""
        return "  ".join(part for part in (self.layer, where) if part)


UNKNOWN = Origin("", "", 0)


class _Entry(NamedTuple):
    layer: str
    fallback: Origin  # of this layer, too
    frame: FrameType | None


class _Stack(threading.local):
    def __init__(self) -> None:
        self.entries: list[_Entry] = []


_stack = _Stack()


def layer_path() -> str:
    """Return the path of the layer being traced, ``""`` outside of any."""
    return _stack.entries[-1].layer if _stack.entries else ""


class inside:  # noqa: N801 (used as a function; every call of a layer enters it)
    """Assign nodes that are created in this block to the layer ``name``.

    The origin of a node is the user's innermost line within the block (in the ``call``
    of a subclass), or else the line that created the layer.
    """

    def __init__(self, name: str, created: Origin = UNKNOWN) -> None:
        self._name, self._created = name, created

    def __enter__(self) -> None:
        outer = layer_path()
        path = f"{outer}/{self._name}" if outer else self._name
        fallback = Origin(path, self._created.file, self._created.line)
        _stack.entries.append(_Entry(path, fallback, sys._getframe(1)))

    def __exit__(self, *error: object) -> None:
        _stack.entries.pop()


class like:  # noqa: N801 (used as a function; a gradient enters it for every node)
    """Give nodes that are created in this block the origin of another node."""

    def __init__(self, origin: Origin) -> None:
        self._entry = _Entry(origin.layer, origin, None)

    def __enter__(self) -> None:
        _stack.entries.append(self._entry)

    def __exit__(self, *error: object) -> None:
        _stack.entries.pop()


def here() -> Origin:
    """Return the origin of a node that is created now."""
    if not _stack.entries:
        return user_line()
    entry = _stack.entries[-1]
    if entry.frame is None:
        return entry.fallback
    origin = user_line(stop=entry.frame)
    if origin is UNKNOWN:
        return entry.fallback
    return Origin(entry.layer, origin.file, origin.line)


def user_line(stop: FrameType | None = None) -> Origin:
    """Return the innermost line of user code, up to the frame ``stop``.

    There is none in the command line, or if a library calls from a thread of its own.
    """
    frame: FrameType | None = sys._getframe(2)  # skips the frames of this file
    skipped = _skipped
    while frame is not None and frame is not stop:
        file = frame.f_code.co_filename
        if file not in skipped:
            if is_users(file):
                return Origin("", file, frame.f_lineno)
            if file.startswith(_COMMAND_LINE):
                return UNKNOWN
            skipped.add(file)
        frame = frame.f_back
    return UNKNOWN


# Files known not to be the user's: every node looks up about a dozen files.
_skipped: set[str] = set()


@cache
def is_users(file: str) -> bool:
    """Return whether a file is the user's: not Ganglion's, and not a library's."""
    if file.startswith((_PACKAGE, "<frozen", *_STANDARD)):
        return False
    return not any(folder in file for folder in _INSTALLED)
