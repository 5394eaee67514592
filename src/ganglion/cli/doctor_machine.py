"""Checks of the machine: the compiler at work, the processor, memory, the GPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from ganglion import config
from ganglion.cli.findings import Finding, Status, size
from ganglion.config import DISTRIBUTION
from ganglion.race import machine
from ganglion.system import limits

LITTLE_MEMORY = 500e6  # less than training `mnist-cnn` takes with all libraries
BUSY = 0.5  # of the cores
_TOLERANCE = 1e-5
_TOLERANCES = {"bf16": 1e-2}  # of a precision that rounds operands on a CPU, too


def compiler() -> Iterator[Finding]:
    """Compile one training step, run it, and compare it with the reference."""
    from ganglion.compiler import registry

    if reason := registry.unavailable_reason("cpu"):
        text = f"{reason}; everything runs on NumPy, many times slower"
        mend = 'pip install --force-reinstall "llvmlite>=0.45"'
        yield Finding("compiler", Status.PROBLEM, text, mend)
        return
    try:
        config.check_environment()
    except ValueError:  # another check reports it; until then, nothing is compiled
        return
    import llvmlite.binding as llvm

    name = f"LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
    difference = abs(_loss_after_a_step("cpu") - _loss_after_a_step("numpy"))
    if difference < _TOLERANCES.get(config.precision(), _TOLERANCE):
        text = f"{name} compiles: a step is what the reference says"
        yield Finding("compiler", Status.OK, text)
    else:
        text = f"{name}: a compiled step differs from the reference by {difference:g}"
        mend = "Do not trust results here. `ganglion cache clear`, and report this."
        yield Finding("compiler", Status.PROBLEM, text, mend)


def _loss_after_a_step(backend: str) -> float:
    """Return the loss of a small model after a step on a backend."""
    import numpy as np

    import ganglion

    chosen = config.backend_choice()
    config.set_backend(backend)
    try:
        x = np.linspace(-1.0, 1.0, 64, dtype="float32").reshape(16, 4)
        y = x.sum(axis=1, keepdims=True)
        hidden = ganglion.layers.Dense(8, "tanh", kernel_initializer="ones")
        model = ganglion.Sequential(
            [ganglion.Input((4,)), hidden, ganglion.layers.Dense(1, "sigmoid")]
        )
        model.layers[-1].set_weights([np.full((8, 1), 0.1), np.zeros(1)])
        model.compile("sgd", "mse")
        model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
        return float(model.evaluate(x, y, batch_size=16, verbose=0))
    finally:
        config.set_backend(chosen)


def processor() -> Iterator[Finding]:
    """Report the processor, and which vectors it has."""
    vectors = machine.vector_width()
    text = f"{machine.processor()}, {platform.machine()}; vectors: {vectors}"
    text += f"; bf16: {machine.bf16()}"
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    if is_x86 and vectors == "unknown" and platform.system() == "Linux":
        mend = "It works, at a fraction of the speed; a newer processor has AVX2."
        yield Finding("processor", Status.WARNING, f"{text}: no AVX2", mend)
    else:
        yield Finding("processor", Status.OK, text)


def cores() -> Iterator[Finding]:
    """Compare the number of cores with the number that this process may use."""
    usable, threads = limits.usable_cores(), _threads()
    quota, real = limits.cpu_quota(), limits.physical_cores(usable)
    text = f"{len(usable)} of {os.cpu_count()} usable, {threads} threads in use"
    if quota is not None and threads > quota:
        text += f", but a quota of {quota:g} cores' time"
        mend = f"Set GANGLION_THREADS={max(1, int(quota))}: threads wait for each other"
        yield Finding("cores", Status.WARNING, text, f"{mend}, also while held back.")
    elif threads > len(usable):
        text += ": more threads than cores"
        mend = f"Unset GANGLION_THREADS, or set it to {len(usable)}."
        yield Finding("cores", Status.WARNING, text, mend)
    elif real is not None and real < threads:
        text += f"; these are {real} real cores with two threads each"
        mend = f"Try GANGLION_THREADS={real}: it may be faster, or slower."
        yield Finding("cores", Status.OK, text, mend)
    else:
        yield Finding("cores", Status.OK, text)
    load = config.load_average() or 0.0
    if load > BUSY * len(usable):
        mend = "Nothing is wrong; but times that are measured now mean little."
        text = f"other work is running (load {load:.1f})"
        yield Finding("load", Status.WARNING, text, mend)


def _threads() -> int:
    try:
        return config.threads()
    except ValueError:  # another check reports it
        return len(limits.usable_cores())


def memory() -> Iterator[Finding]:
    """Check that a training fits into the free memory, and into its limit."""
    free, limit = limits.free_memory(), limits.memory_limit()
    if free is None and limit is None:
        return
    least = min(part for part in (free, limit) if part is not None)
    parts = [f"{size(free)} free"] if free is not None else []
    parts += [f"a limit of {size(limit)}"] if limit is not None else []
    text = ", ".join(parts)
    if least < LITTLE_MEMORY:
        mend = "End other programs, raise the limit, or take smaller batches."
        yield Finding("memory", Status.WARNING, text, mend)
    else:
        yield Finding("memory", Status.OK, text)


def gpu() -> Iterator[Finding]:
    """Report whether a GPU can be used, and why not."""
    from ganglion.compiler.cuda import driver

    devices, reason = machine.gpu(), driver.unavailable_reason()
    is_there = bool(devices) or Path("/dev/nvidia0").exists()
    is_wanted = os.environ.get("GANGLION_BACKEND") == "cuda"
    if reason is None:
        yield from _cuda_compiler(devices)
    elif is_there or is_wanted:
        status = Status.PROBLEM if is_wanted else Status.WARNING
        named = f"{devices}: " if devices else ""
        mend = f'pip install "{DISTRIBUTION}[cuda]"; docs/cuda.md says what it needs.'
        yield Finding("gpu", status, f"{named}{reason}", mend)
    else:
        yield Finding("gpu", Status.OK, "none by NVIDIA here; none is needed")


def _cuda_compiler(devices: str) -> Iterator[Finding]:
    from ganglion.compiler.cuda import driver

    source = 'extern "C" __global__ void nothing() {}'
    try:
        driver.compile_source(source, "sm_80")
    except Exception as error:  # of NVRTC, or of the loader of libraries
        text = f"{devices}: NVRTC does not compile ({error})"
        mend = f'pip install --force-reinstall "{DISTRIBUTION}[cuda]"'
        yield Finding("gpu", Status.PROBLEM, text, mend)
    else:
        yield Finding("gpu", Status.OK, f"{devices}; NVRTC compiles")
