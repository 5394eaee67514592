"""A model as a WebAssembly module with SIMD, and the JavaScript that calls it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from ganglion import config
from ganglion.export.c_text import UnsupportedError
from ganglion.export.formats import Artifact
from ganglion.export.inference import Inference, inference_of
from ganglion.export.interface import Interface
from ganglion.export.llvm_program import Module, planned_for
from ganglion.export.planning import ALIGNMENT
from ganglion.export.quantized import Calibration, calibration_if
from ganglion.export.row_by_row import refuse_mixed_rows
from ganglion.export.targets import WASM, object_code
from ganglion.export.wasm_file import Segment, finished
from ganglion.export.wide_floats import in_float32

STACK = 1 << 18  # bytes, from address 0 on
SECTION = "ganglion"  # of the module: where inputs and outputs are, as JSON
# Functions of the C library that JavaScript has, by the names of float32's without f.
_NAMES = "asin acos atan atan2 cbrt sin cos exp fmod log log1p expm1 pow tanh"
_MATHS = frozenset(_NAMES.split())


def write(
    model: Any,
    path: Path,
    input_signature: Any = None,
    int8: bool = False,
    sample: Any = None,
) -> Artifact:
    """Return the module, and the JavaScript that loads and calls it."""
    refuse_mixed_rows(model, input_signature)
    calibration = calibration_if(int8, model, sample, input_signature)
    module = module_of(inference_of(model, 1, input_signature), calibration)
    files = {path: module, path.with_suffix(".mjs"): javascript()}
    return Artifact(files, () if calibration is None else (calibration.effect,))


def module_of(inference: Inference, calibration: Calibration | None = None) -> bytes:
    """Return the forward pass of a row as a module; in int8, if it is calibrated.

    Inputs, outputs, weights and the workspace have fixed addresses after the stack;
    those of inputs and outputs are in a section of the module.
    """
    plan = planned_for(WASM, in_float32(inference), calibration)
    inference = plan.inference
    interface = Interface("model", inference, plan.workspace, weights=0)
    module = Module(WASM)
    module.add_pass("row", plan, interface)
    weights = module.constants.data()
    ports = [port for port, _ in interface.ports]
    sizes = [*(port.row_bytes(WASM.pointer // 8) for port in ports), len(weights)]
    *starts, workspace = accumulate(map(_rounded, sizes), initial=STACK)
    end = _rounded(workspace + module.workspace)  # texts are written after it
    module.add_call("predict", "row", [*starts, workspace])
    code, calls = finished(
        object_code(module.text(None), WASM),
        exports=["predict"],
        segments=[Segment(starts[-1], weights)] if weights else [],
        memory=end,
        stack=STACK,
        custom={SECTION: _description(inference, starts, end)},
    )
    unknown = [name for name in calls if name.removesuffix("f") not in _MATHS]
    if unknown:
        raise UnsupportedError(
            f"The model calls {', '.join(unknown)}, which WebAssembly and JavaScript "
            "do not have: export it to another format."
        )
    return code


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _description(inference: Inference, starts: Sequence[int], end: int) -> bytes:
    """Return the description of the module for JavaScript, as JSON."""
    ports = [*inference.inputs, *inference.outputs]
    ends = [
        {
            "name": port.name,
            "shape": port.shape,
            "type": "text" if port.is_text else port.dtype.name,
            "address": start,
        }
        for port, start in zip(ports, starts, strict=False)
    ]
    count = len(inference.inputs)
    described = {
        "model": inference.name,
        "version": config.VERSION,
        "inputs": ends[:count],
        "outputs": ends[count:],
        "end": end,
    }
    return json.dumps(described).encode()


def javascript() -> bytes:
    """Return the JavaScript file: it is the same for every model."""
    return Path(__file__).with_name("wasm.mjs").read_bytes()
