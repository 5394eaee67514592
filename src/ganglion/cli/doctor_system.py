"""Checks of what surrounds Ganglion: variables, folders, the clock of the disk."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ganglion import config, files
from ganglion.cli.findings import Finding, Status, size
from ganglion.system import budget

OF_TESTS = re.compile(r"GANGLION_(FUZZ|STRESS)")
LEAST_SPACE, ENOUGH_SPACE = 50e6, 1e9  # a few programs; data sets and a full cache
MOST_SKEW = 2.0  # seconds; some file systems count no finer


def environment() -> Iterator[Finding]:
    """Check the variables GANGLION_*: names and values."""
    names = [name for name in os.environ if name.upper().startswith("GANGLION")]
    known = [
        name for name in names if name in config.ENVIRONMENT or OF_TESTS.match(name)
    ]
    for name in sorted(set(names) - set(known)):
        mend = config.closest(name, config.ENVIRONMENT)
        text = f"{name} is not a variable of Ganglion, and does nothing"
        yield Finding("environment", Status.WARNING, text, mend)
    refused = list(filter(None, map(_refusal, _READERS)))
    for text in refused:
        mend = "Correct or unset it; docs/environment.md lists what each one takes."
        yield Finding("environment", Status.PROBLEM, text, mend)
    if not refused:
        chosen = [f"{name}={os.environ[name]}" for name in sorted(known)]
        text = ", ".join(chosen) or "no variable GANGLION_* is set"
        yield Finding("environment", Status.OK, text)


def _processor_variable() -> Any:
    from ganglion.compiler.cpu import jit  # loads LLVM

    return jit.host() if os.environ.get("GANGLION_CPU") else None


_READERS: tuple[Callable[[], Any], ...] = (
    *config.ENVIRONMENT_READERS,
    budget.chosen_limit,
    _processor_variable,
)


def _refusal(read: Callable[[], Any]) -> str:
    try:
        read()
    except ValueError as error:
        return str(error)
    except (ImportError, OSError):
        pass  # no LLVM: another check reports it
    return ""


def home() -> Iterator[Finding]:
    """Check the folder of caches and results: it can be written, and has room."""
    folder = config.home()
    mend = "Choose another folder with GANGLION_HOME."
    if refusal := _not_writable(folder):
        text = f"{folder} cannot be written: {refusal}; everything is compiled anew"
        yield Finding("cache", Status.PROBLEM, text, mend)
        return
    for part in (folder, folder / "kernels"):
        if reason := files.not_private(part):
            text = f"{part} {reason}: no compiled program is kept there"
            yield Finding("cache", Status.WARNING, text, f"chmod go-w {part}")
    free = shutil.disk_usage(_existing(folder)).free
    text = f"{folder}, {size(free)} free"
    if free < ENOUGH_SPACE:
        status = Status.PROBLEM if free < LEAST_SPACE else Status.WARNING
        mend = f"Make room, or `ganglion cache clear`. {mend}"
        yield Finding("cache", status, text, mend)
    else:
        yield Finding("cache", Status.OK, text)


def clock() -> Iterator[Finding]:
    """Check that the disk's clock agrees with ours: caches go by the times of files."""
    folder = _existing(config.home())
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"now")
            file.flush()
            skew = os.stat(file.name).st_mtime - time.time()
            is_locked = files.try_lock(file)
    except OSError:
        return  # another check reports that it cannot be written
    if abs(skew) > MOST_SKEW:
        ahead = "ahead" if skew > 0 else "behind"
        text = f"the clock of {folder} is {abs(skew):.0f} s {ahead}"
        mend = "Set the clocks: decoded images are found again by the times of files."
        yield Finding("clock", Status.WARNING, text, mend)
    else:
        yield Finding("clock", Status.OK, "of files and of the system agree")
    if is_locked is None:
        text = f"{folder} knows no locks: processes may do the same work twice"
        mend = "Choose a local disk with GANGLION_HOME."
        yield Finding("locks", Status.WARNING, text, mend)


def data() -> Iterator[Finding]:
    """Report which data sets are here."""
    from ganglion import datasets

    here = {known.name: known.size for known in datasets.info() if known.size}
    text = ", ".join(f"{name} ({size(count)})" for name, count in here.items())
    mend = "" if "mnist" in here else "ganglion data fetch mnist"
    yield Finding("data sets", Status.OK, text or "none are here yet", mend)


def _not_writable(folder: Path) -> str:
    """Return why nothing can be written below a folder, "" if it can; leave nothing."""
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return ""
    except OSError as error:
        return re.sub(r"^\[Errno \d+\] ", "", str(error)).partition(":")[0]


def _existing(folder: Path) -> Path:
    """Return a folder, or the one above it in which it would be made."""
    return next(path for path in (folder, *folder.parents) if path.exists())
