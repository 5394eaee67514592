"""The backends, the protocols they implement, and the choice of one for a program.

Compiling for a GPU takes seconds the first time, and every launch takes microseconds. A
step of a hundred million operations takes a CPU about half a millisecond; from that
size on, a GPU is ahead after a few thousand steps.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ganglion import config
from ganglion.compiler.cuda import driver
from ganglion.compiler.ir.graph import Graph, Node, Program
from ganglion.system import uncompiled
from ganglion.system.terminal import tell_once

if TYPE_CHECKING:
    from ganglion.compiler.cpu.script import Script
    from ganglion.compiler.cuda.backend import CompiledProgram as ModelsProgram
    from ganglion.compiler.cuda.model_states import ModelRows

__all__ = ["Backend", "Executable", "Program", "available", "backend", "backend_for"]

WORTH_A_GPU = 1e8  # operations in the products of a step


class Executable(Protocol):
    """A compiled program."""

    keeps_on_device: bool  # whether state can stay on a device between runs

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
        keep_on_device: bool = False,
    ) -> dict[str, np.ndarray]:
        """Advance the state arrays in place by some steps.

        Returns each result of every step, stacked along a new first axis. `FixedArrays`
        need not be inspected again in later runs. Arrays that stay on a device are
        copied back when they are read: see `device_arrays`.
        """
        ...


class Backend(Protocol):
    """A module that compiles programs."""

    def compile(self, program: Program) -> Executable:
        """Make a program runnable."""
        ...

    def unavailable_reason(self) -> str | None:
        """Return why this backend cannot run here, None if it can."""
        ...

    def free_memory(self) -> None:
        """Free cached memory that no program uses."""
        ...


_MODULES = {
    "numpy": "ganglion.compiler.reference",
    "cpu": "ganglion.compiler.cpu.backend",
    "cuda": "ganglion.compiler.cuda.backend",
}


def backend(name: str) -> Backend:
    """Return a backend by name, imported at the first call."""
    config.check_environment()
    if reason := unavailable_reason(name):
        raise RuntimeError(f"The backend {name!r} cannot run here: {reason}")
    module: Backend = importlib.import_module(_MODULES[name])
    return module


def unavailable_reason(name: str) -> str | None:
    """Return why a backend cannot run here, None if it can."""
    module: Backend = importlib.import_module(_MODULES[name])
    return module.unavailable_reason()


def free_memory() -> None:
    """Free memory that backends cache; those that are not imported have none."""
    for name in _MODULES.values():
        if name in sys.modules:
            module: Backend = importlib.import_module(name)
            module.free_memory()


def available() -> dict[str, str | None]:
    """Return every backend, with the reason why it is unavailable or None."""
    return {name: unavailable_reason(name) for name in _MODULES}


def script() -> AbstractContextManager[Script | None]:
    """Return a script for the CPU's programs, None if that backend is not in use."""
    if _MODULES["cpu"] not in sys.modules:
        return nullcontext()
    from ganglion.compiler.cpu.script import Script

    return Script()


def compile_models(program: Program, models: int) -> ModelsProgram | None:
    """Compile a program for many models that a GPU trains at once, if possible."""
    return _cuda().compile_models(program, models)


def model_rows(
    first: Sequence[np.ndarray], models: int, leading: Sequence[int] = ()
) -> ModelRows:
    """Return memory on the GPU for the arrays of some models.

    The `leading` ones are given by their numbers, and set before each epoch.
    """
    return _cuda().model_rows(first, models, leading)


def _cuda() -> Any:
    return backend("cuda")


# ---- the choice of a backend ---------------------------------------------------------


def backend_for(program: Program, on_gpu: bool = False) -> str:
    """Return the backend for a program; tell the user once if it may surprise.

    A model that is `on_gpu` already stays there.
    """
    name = config.backend_in_use()
    if config.backend_choice() == "auto":
        worth_it = on_gpu or operations(program.graph) >= WORTH_A_GPU
        can_run = not program.graph.host_calls
        if worth_it and can_run and driver.unavailable_reason() is None:
            name = "cuda"
            gpu, precision = driver.driver().name, config.precision()
            tell_once(
                f"Running on the GPU: {gpu}, {precision} (GANGLION_BACKEND=cpu: not)."
            )
    if name == "numpy":
        uncompiled.note("programs run by NumPy", "GANGLION_BACKEND=numpy")
    for host_call in program.graph.host_calls:
        uncompiled.note("ops in Python inside of compiled programs", host_call)
    return name


def expect() -> None:
    """Initialize a GPU that was requested by name, while a step is traced."""
    if config.backend_choice() == "cuda":
        driver.start()


def chosen_name() -> str:
    """Return the backend's name for messages: "auto" if it depends on the model."""
    undecided = (
        config.backend_choice() == "auto" and driver.unavailable_reason() is None
    )
    return "auto" if undecided else config.backend_in_use()


def operations(graph: Graph) -> float:
    """Return how many operations the products of a graph have.

    >>> from ganglion.compiler.ir import contraction
    >>> from ganglion.compiler.ir.graph import Input
    >>> a, b = Input("a", (3, 5), "float32"), Input("b", (5, 7), "float32")
    >>> operations(Graph.of("one", [a, b], {"y": contraction.matmul(a, b)}))
    210.0
    """
    return 2.0 * sum(_products(node) for node in graph.nodes)


def _products(node: Node) -> int:
    """Return the multiplications of a matrix product or a convolution, else 0."""
    name = node.op.name
    if name == "matmul":
        return math.prod(node.shape) * node.inputs[0].shape[-1]
    if name == "conv":
        return math.prod(node.shape) * math.prod(node.inputs[1].shape[:-1])
    if name == "conv_transpose":
        y, kernel = node.inputs
        return math.prod(y.shape) * math.prod(kernel.shape[:-1])
    if name == "conv_kernel":
        return math.prod(node.inputs[1].shape) * math.prod(node.shape[:-1])
    return 0
