"""A model as machine code, ahead of time: an object file and a C header."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ganglion.export.formats import Artifact
from ganglion.export.inference import inference_of
from ganglion.export.interface import Interface, identifier, is_in_file
from ganglion.export.llvm_program import Module, planned_for
from ganglion.export.planning import ALIGNMENT, ExportPlan
from ganglion.export.quantized import Calibration, calibration_if
from ganglion.export.row_by_row import refuse_mixed_rows
from ganglion.export.targets import Machine, machine_of, object_code
from ganglion.export.wide_floats import in_float32

BLOCK_BYTES = 1 << 20  # of a block's workspace, so that it stays in the cache
BLOCK_ROWS = (64, 32, 16, 8, 4)


@dataclass(frozen=True)
class Compiled:
    """A model as machine code of a target."""

    interface: Interface
    machine: Machine
    code: bytes  # of an object file
    weights: bytes | None  # None if they are inside
    calls: list[str]  # functions of the C library


def compiled(
    model: Any,
    prefix: str,
    machine: Machine,
    input_signature: Any = None,
    in_file: bool = False,
    calibration: Calibration | None = None,
) -> Compiled:
    """Compile a model for a machine."""
    refuse_mixed_rows(model, input_signature)

    def plan_of(rows: int) -> ExportPlan:
        inference = in_float32(inference_of(model, rows, input_signature))
        return planned_for(machine, inference, calibration)

    plans = [plan_of(1)]
    row = plans[0].inference
    block = block_rows(plans[0])
    if block > 1:
        plans.insert(0, plan_of(block))
    interface = Interface(prefix, row, 0, 0 if in_file else None)
    module = Module(machine)
    passes = [(plan.inference.rows, f"rows{plan.inference.rows}") for plan in plans]
    for plan, (_, name) in zip(plans, passes, strict=True):
        module.add_pass(name, plan, interface)
    interface = replace(interface, workspace=module.workspace + ALIGNMENT)
    module.add_predict(interface, passes[-1][1])
    module.add_batch(interface, passes)
    data = module.constants.data()
    text = module.text(None if in_file else data)
    if in_file:
        interface = replace(interface, weights=len(data))
    code = object_code(text, machine)
    weights = data if in_file else None
    return Compiled(interface, machine, code, weights, module.library_functions())


def block_rows(plan: ExportPlan) -> int:
    """Return the number of rows of a block, whose memory must stay in the cache."""
    each = max(plan.workspace, 1)
    return next((rows for rows in BLOCK_ROWS if rows * each <= BLOCK_BYTES), 1)


def write(
    model: Any,
    path: Path,
    target: str | None = None,
    input_signature: Any = None,
    name: str | None = None,
    weights: str = "inside",
    int8: bool = False,
    sample: Any = None,
) -> Artifact:
    """Return an object file, its header and, with weights="file", the weights."""
    in_file = is_in_file(weights)
    machine, prefix = machine_of(target), identifier(path, name)
    calibration = calibration_if(int8, model, sample, input_signature)
    binary = compiled(model, prefix, machine, input_signature, in_file, calibration)
    files = {
        path: binary.code,
        path.with_suffix(".h"): binary.interface.header().encode(),
    }
    if binary.weights is not None:
        files[path.with_suffix(".weights")] = binary.weights
    return Artifact(files, notes_of(binary, calibration))


def notes_of(binary: Compiled, calibration: Calibration | None) -> tuple[str, ...]:
    """Return notes for the user about machine code."""
    machine = binary.machine
    notes = [] if calibration is None else [calibration.effect]
    notes += [f"Compiled for {machine.name}: {machine.triple}, {machine.cpu}."]
    if binary.calls:
        names = ", ".join(binary.calls)
        notes.append(f"It calls {names} of the C library: link with -lm.")
    return tuple(notes)
