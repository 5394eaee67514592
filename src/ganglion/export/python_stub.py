"""A model as a shared library and a small Python file that calls it by ctypes.

The file needs neither Ganglion nor NumPy: it is loaded within a few milliseconds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ganglion import config
from ganglion.export.formats import Artifact
from ganglion.export.interface import Interface, identifier
from ganglion.export.native import Compiled, compiled, notes_of
from ganglion.export.ports import Port
from ganglion.export.quantized import calibration_if
from ganglion.export.targets import is_this_system, machine_of

_LINKERS = ("cc", "gcc", "clang", "ld")
# Codes of types in `struct` and `memoryview`.
_CODES = {"float32": "f", "float64": "d", "int8": "b", "uint8": "B", "int16": "h",
          "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
          "bool": "?"}  # fmt: skip


def write(
    model: Any,
    path: Path,
    target: str | None = None,
    input_signature: Any = None,
    name: str | None = None,
    int8: bool = False,
    sample: Any = None,
) -> Artifact:
    """Return a Python file and the shared library that it calls.

    Without a linker for the target, return the object file and how to link it.
    """
    machine = machine_of(target)
    calibration = calibration_if(int8, model, sample, input_signature)
    prefix = identifier(path, name)
    binary = compiled(model, prefix, machine, input_signature, calibration=calibration)
    notes = notes_of(binary, calibration)
    # Python would import digits.so as a module, before digits.py.
    library = path.with_name(f"lib{path.stem}.so")
    files = {path: stub(binary.interface, library.name).encode()}
    linker = next(filter(None, map(shutil.which, _LINKERS)), None)
    if linker is not None and is_this_system(machine):
        files[library] = linked(linker, binary)
        return Artifact(files, notes)
    code = path.with_suffix(".o")
    command = " ".join(_command("cc", code.name, library.name, binary.calls))
    why = "No linker is here" if linker is None else f"{machine.name} is another system"
    note = f"{why}: link it with `{command}`."
    return Artifact(files | {code: binary.code}, (*notes, note))


def _command(linker: str, code: str, library: str, calls: list[str]) -> list[str]:
    alone = [] if linker.endswith("ld") or sys.platform == "darwin" else ["-nostdlib"]
    maths = ["-lm"] if calls else []
    return [linker, "-shared", *alone, "-o", library, code, *maths]


def linked(linker: str, binary: Compiled) -> bytes:
    """Return an object file as a shared library."""
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder, "model.o"), Path(folder, "model.so")
        code.write_bytes(binary.code)
        command = _command(linker, str(code), str(library), binary.calls)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
        return library.read_bytes()


def stub(interface: Interface, library: str) -> str:
    """Return the Python file."""
    ends = interface.inference
    return Template(_STUB).substitute(
        model=ends.name.replace("\\", "").replace('"', ""),
        version=config.VERSION,
        library=library,
        name=interface.name,
        inputs=tuple(map(_described, ends.inputs)),
        outputs=tuple(map(_described, ends.outputs)),
        workspace=interface.workspace,
    )


def _described(port: Port) -> tuple[str, tuple[int, ...], str, int]:
    if port.is_text:
        return port.name, port.shape, "text", port.size
    nbytes = port.size * np.dtype(port.dtype).itemsize
    return port.name, port.shape, _CODES[port.dtype.name], nbytes


_STUB = '''\
"""The model "$model", exported by Ganglion $version: see `predict`."""

import ctypes
import os
from _thread import _local

# Name, shape of a row, type, bytes (or texts) of a row.
INPUTS = $inputs
OUTPUTS = $outputs
_folder = os.path.dirname(os.path.abspath(__file__))
_library = ctypes.CDLL(os.path.join(_folder, "$library"))
_predict = _library.${name}_predict_batch
_predict.restype = None
_own = _local()  # of each thread: calls at the same time do not share memory


def _address(value, port):
    name, shape, code, size = port
    if code == "text":
        return _texts(value, name, shape, size)
    view = memoryview(value)
    if view.format not in (code, "B") or not view.c_contiguous or view.nbytes % size:
        raise ValueError(
            f"{name}: rows of shape {shape} and type {code!r}, one behind the other, "
            f"got shape {view.shape} and type {view.format!r}"
        )
    if view.readonly:
        view = memoryview(bytearray(view))
    return (ctypes.c_char * view.nbytes).from_buffer(view), view.nbytes // size


def _texts(value, name, shape, size):
    value = value.tolist() if hasattr(value, "tolist") else value
    rows = [value]
    while any(isinstance(row, (list, tuple)) for row in rows):
        rows = [text for row in rows for text in row]
    flat = [text.encode() if isinstance(text, str) else text for text in rows]
    if len(flat) % size or not all(isinstance(text, bytes) for text in flat):
        raise ValueError(f"{name}: a list of texts, rows of shape {shape}")
    return (ctypes.c_char_p * len(flat))(*flat), len(flat) // size


def predict(*inputs):
    """Return the output(s) for rows of each input, as memory views.

    Inputs are what has a buffer of the right type: NumPy arrays, array.array, bytes;
    for texts, a list of them.
    `numpy.asarray(view)` is an array without a copy, `view.tolist()` a list.
    """
    if len(inputs) != len(INPUTS):
        raise ValueError(f"there are {len(INPUTS)} inputs, got {len(inputs)}")
    passed, counts = zip(*map(_address, inputs, INPUTS))
    rows = counts[0]
    if any(count != rows for count in counts):
        raise ValueError(f"inputs have different numbers of rows: {counts}")
    results = [bytearray(rows * size) for _, _, _, size in OUTPUTS]
    if not hasattr(_own, "workspace"):
        _own.workspace = ctypes.create_string_buffer($workspace)
    into = [(ctypes.c_char * len(result)).from_buffer(result) for result in results]
    if rows:
        _predict(*passed, *into, ctypes.c_size_t(rows), _own.workspace)
    views = [
        memoryview(result).cast("B").cast(code, (rows, *shape)) if rows
        else memoryview(result).cast(code)
        for result, (_, shape, code, _) in zip(results, OUTPUTS)
    ]
    return views[0] if len(views) == 1 else views
'''
