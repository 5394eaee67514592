"""What a backend is: a program goes in, something that runs many steps comes out."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ganglion import config
from ganglion.compiler.ir.program import Program

__all__ = ["Backend", "Executable", "Program", "available", "backend"]


class Executable(Protocol):
    """A compiled program."""

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
    ) -> dict[str, np.ndarray]:
        """Advance the state arrays in place by some steps.

        Returns each result of every step, stacked along a new first axis.
        """
        ...


class Backend(Protocol):
    """A module that compiles programs."""

    def compile(self, program: Program) -> Executable:
        """Make a program runnable."""
        ...

    def missing(self) -> str | None:
        """Say why this backend cannot run here, None if it can."""
        ...


_MODULES = {
    "numpy": "ganglion.compiler.reference",
    "cpu": "ganglion.compiler.cpu.backend",
    "cuda": "ganglion.compiler.cuda.backend",
}


def backend(name: str) -> Backend:
    """Return a backend by name; it is imported when first asked for."""
    config.check_environment()
    if reason := missing(name):
        raise RuntimeError(f"The backend {name!r} cannot run here: {reason}")
    module: Backend = importlib.import_module(_MODULES[name])
    return module


def missing(name: str) -> str | None:
    """Say why a backend cannot run here, None if it can."""
    module: Backend = importlib.import_module(_MODULES[name])
    return module.missing()


def free_memory() -> None:
    """Let go of memory that backends keep for later; those not in use have none."""
    for name in _MODULES.values():
        free = getattr(sys.modules.get(name), "free_memory", None)
        if free is not None:
            free()


def available() -> dict[str, str | None]:
    """Return every backend with the reason why it is missing (None: it works)."""
    return {name: missing(name) for name in _MODULES}
