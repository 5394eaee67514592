"""The prelude of every kernel: the CUDA C of `device/`, the same for all plans."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ganglion.compiler.cuda.text import THREADS
from ganglion.compiler.ir.random import SHUFFLE_ROUNDS

_FOLDER = Path(__file__).with_name("device")
_INCLUDE = '#include "'
# The functions and structs of `device/` that kernels call, by file.
_ENTRY_POINTS = {
    "contract_simt": "contract",
    "contract_on_tensor_cores": "tensor_cores",
    "contract_in_order": "in_order",
    "contract_keeping_right": "in_order",
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
    """Return kernel functions as a complete source, with what they include."""
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
    """Return files in order of inclusion, without duplicates."""
    ordered: dict[str, None] = {}
    for name in names:
        ordered |= dict.fromkeys([*_with_includes(device_text(name)[0]), name])
    return list(ordered)


def header(machine: str | None = None) -> str:
    """Return the head of a source; tests replace the device's `machine`."""
    numbers = {"THREADS": THREADS, "SHUFFLE_ROUNDS": f"{SHUFFLE_ROUNDS}u"}
    lines = [f"#define {name} {value}" for name, value in numbers.items()]
    return "\n".join([*lines, machine or device_text("machine")[1]])
