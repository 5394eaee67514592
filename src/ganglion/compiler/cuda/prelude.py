"""What stands above every kernel: the CUDA C of `device/`, which no plan changes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ganglion.compiler.cuda.text import THREADS
from ganglion.compiler.ir.random import SHUFFLE_ROUNDS

_FOLDER = Path(__file__).with_name("device")
_INCLUDE = '#include "'
# What kernels call of `device/`, and the file it is in.
_ENTRY_POINTS = {
    "contract_simt": "contract",
    "contract_on_tensor_cores": "tensor_cores",
    "contract_in_order": "in_order",
    "conv_fprop": "conv_fprop",
    "conv_wgrad": "conv_wgrad",
    "add_columns": "column_sums",
    "fold_threads": "column_sums",
    "Scatter": "scatter",
    "KeptWeights": "time_loop",
    "contract_resident": "resident",
}


@cache
def device_text(name: str) -> tuple[tuple[str, ...], str]:
    """Return the names of the files that a file of `device/` includes, and its text."""
    lines = (_FOLDER / f"{name}.cuh").read_text().splitlines(keepends=True)
    includes = [line for line in lines if line.startswith(_INCLUDE)]
    names = tuple(line.split('"')[1].removesuffix(".cuh") for line in includes)
    return names, "".join(line for line in lines if line not in includes)


def source(functions: Iterable[str]) -> str:
    """Return kernel functions as one text that can be compiled."""
    texts = list(functions)
    files = [
        file
        for name, file in _ENTRY_POINTS.items()
        if any(f"{name}<" in text for text in texts)
    ]
    if any("float16" in text for text in texts):
        files.append("short_floats")
    device = [device_text(name)[1] for name in _with_includes(["common", *files])]
    return "\n".join([header(), *device, *texts])


def _with_includes(names: Iterable[str]) -> list[str]:
    """Return files, each once, behind those that they include."""
    ordered: dict[str, None] = {}
    for name in names:
        ordered |= dict.fromkeys([*_with_includes(device_text(name)[0]), name])
    return list(ordered)


def header(machine: str | None = None) -> str:
    """Return what stands above everything; tests have a `machine` of their own."""
    numbers = {"THREADS": THREADS, "SHUFFLE_ROUNDS": f"{SHUFFLE_ROUNDS}u"}
    lines = [f"#define {name} {value}" for name, value in numbers.items()]
    return "\n".join([*lines, machine or device_text("machine")[1]])
