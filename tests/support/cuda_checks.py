"""Runs a program as CUDA text on a CPU, against the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
from cpu_checks import ran
from cuda_host import HostDriver

from ganglion import config
from ganglion.compiler import reference
from ganglion.compiler.cuda import backend
from ganglion.compiler.cuda.memory import Memory
from ganglion.compiler.ir.graph import Program

# What products lose by rounding their operands, and sums by their order.
LOSES = {"tf32": 2e-3, "bf16": 2e-2, "float32": 2e-5}

EMULATED: list[Memory] = []  # of all GPUs that were emulated


@cache
def emulated(capability: int = 90, processors: int = 132) -> Memory:
    """Return the memory of a GPU that is emulated on a CPU."""
    driver = HostDriver(capability)
    driver.spec = replace(driver.spec, processors=processors)
    EMULATED.append(Memory(driver))
    return EMULATED[-1]


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Multiply with this precision for a while."""
    before = config.precision()
    config.set_precision(name)
    try:
        yield
    finally:
        config.set_precision(before)


def compiled(
    program: Program, memory: Memory | None = None, precise: str = "tf32"
) -> backend.CompiledProgram:
    """Return a program that starts in a poisoned arena."""
    with precision(precise):
        executable = backend.CompiledProgram(program, memory or emulated())
    executable.poisons = True
    return executable


def check(
    program: Program,
    data: Mapping[str, np.ndarray],
    state: Mapping[str, np.ndarray],
    *,
    steps: int = 1,
    tolerance: float,
    memory: Memory | None = None,
    precise: str = "float32",
) -> None:
    """Compare the CUDA text with the graph's meaning."""
    data, state = {name: data[name] for name in program.data}, dict(state)
    expected = ran(reference.compile(program), data, state, steps)
    results = ran(compiled(program, memory, precise), data, state, steps)
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, array in theirs.items():
            assert ours[name].dtype == array.dtype, name
            np.testing.assert_allclose(
                ours[name], array, tolerance, tolerance, err_msg=name
            )


def play_gpu(monkeypatch, folder, precise: str) -> None:
    """Let this machine play a GPU for a test, with a cache of its own."""
    monkeypatch.setenv("GANGLION_HOME", str(folder))
    monkeypatch.setattr(config, "_choices", dict(config._choices))
    monkeypatch.setattr(backend, "unavailable_reason", lambda: None)
    monkeypatch.setattr(backend, "memory", emulated)
    config.set_backend("cuda")
    config.set_precision(precise)
