"""The native loop over steps, which all threads run: `step_loop.ll`, compiled once.

Each thread walks a tape of its own: records of five words (function, arguments, end
and start of its range, barrier or not). Where there is much to do, a record without a
function stands before some that are run slice by slice: (0, ranges, number of records,
threads, barrier or not), and those hold the size of a slice, the end of the range, and
the cursors: how many of their pointers move with the slices, then of each its slot, its
address for slice 0, and the bytes of a slice that it moves back by. Each thread owns a
range of the slices and takes one at a time; a thread that is done steals from the
others, so that one that was interrupted holds up nobody for long.

A waiting thread spins for a moment, then sleeps: a busy neighbour, or more threads than
cores, costs no more than it must.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from ganglion.compiler import cache as code_cache
from ganglion.compiler.cpu import jit

RECORD_WORDS = 5
# Words of a job: steps, threads, barrier, spins; then each thread's tape and cursors.
JOB_WORDS, THREAD_WORDS = 4, 4
# Bytes of a pool: a cache line each for round, sleepers, job, and three of the barrier.
POOL_BYTES, BARRIER_AT = 384, 192
# Words of a thread's range of slices, a cache line: taken so far, first, how many.
RANGE_WORDS = 8

_PAUSES = {
    "x86": ("llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()"),
    "arm": ("llvm.aarch64.hint(i32)", "llvm.aarch64.hint(i32 1)"),
}
_FUTEX_CALLS = {"x86": "202", "arm": "98"}  # numbers of the system call
_YIELDS = {"windows": "SwitchToThread"}


@cache
def _template(name: str) -> Template:
    return Template((Path(__file__).parent / name).read_text())


def filled(name: str, **values: str) -> str:
    """Return a text file of this folder, with a value for each of its $names."""
    template = _template(name)
    names = set(template.get_identifiers())
    if names != values.keys():
        raise KeyError(f"{name} has the names {sorted(names)}, not {sorted(values)}")
    return template.substitute(values)


def executor(family: str, system: str) -> str:
    """Return the module of the loop over steps.

    "x86" and "arm" spin differently; "linux" sleeps on a futex, others yield.
    """
    declaration, pause = _PAUSES[family]
    if system == "linux":
        sleep = filled("sleep_futex.ll", futex=_FUTEX_CALLS[family])
    else:
        function = _YIELDS.get(system, "sched_yield")
        sleep = filled("sleep_yield.ll", yield_function=function)
    return filled(
        "step_loop.ll", pause_declaration=declaration, pause=pause, sleep=sleep
    )


class Executor:
    """The native loop over steps, as functions that Python can call."""

    def __init__(self) -> None:
        target, system = jit.host(), sys.platform.replace("win32", "windows")
        text = executor(jit.family(), system)
        path = code_cache.path_of(jit.identity(target), text)
        code = code_cache.read(path)
        if code is None:
            code = jit.object_code([text], target)
            code_cache.keep(path, code)
        self._library = jit.Library(code)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.alone: Any = self._function("alone", pointer)
        self.lead: Any = self._function("lead", pointer, pointer)
        self.serve: Any = self._function("serve", pointer, number, number)

    def _function(self, name: str, *types: Any) -> Any:
        return ctypes.CFUNCTYPE(None, *types)(self._library.address(name))


_loading = threading.Lock()
_loaded = cache(Executor)


def native() -> Executor:
    """Return the executor of this process."""
    # Two threads that ask first at once would load two, and one be freed in use.
    with _loading:
        return _loaded()
