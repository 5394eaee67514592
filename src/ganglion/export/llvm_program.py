"""Forward passes as a module of LLVM IR: the CPU backend's kernels, called in order.

A pass for one row and one for a block of rows share kernels and constants. Pointers of
a call lie in a frame on the stack, temporary buffers in the caller's workspace.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ganglion.compiler.cpu.emit import emit_kernel, parameter_values
from ganglion.compiler.cpu.pipeline import PIPELINE
from ganglion.compiler.cpu.products.packing import scratch_for
from ganglion.compiler.cpu.text import Parameter
from ganglion.compiler.cpu.tuning import with_accumulators
from ganglion.compiler.pipeline import Pass, Pipeline, kernel_pass
from ganglion.compiler.plan.kernels import Buffer, Kernel
from ganglion.compiler.plan.lowering import Preferences, lower, never_packed
from ganglion.compiler.plan.rules import RULES
from ganglion.export.bands import in_bands
from ganglion.export.inference import Inference
from ganglion.export.interface import Interface
from ganglion.export.loops import neighbours_together
from ganglion.export.planning import (
    ALIGNMENT,
    BORDERS,
    WINDOWS,
    ExportPlan,
    in_bytes,
    planned,
)
from ganglion.export.quantized import Calibration
from ganglion.export.targets import Machine
from ganglion.export.text.calls import (
    Argument,
    FrontCode,
    InputArgument,
    Memory,
    RoutineCall,
)
from ganglion.export.text.front import Table
from ganglion.export.text.translation import as_llvm, i64

_WIDE = 28  # accumulators of a machine whose large products are packed
_LLVM_TYPES = {"float32": "float", "float64": "double"}
_FOR_WINOGRAD = "volumes"  # copies images, and transposes weights
_FOR_TRAINING = "column-sums"  # from this pass on, they are for steps and threads


def planned_for(
    machine: Machine, inference: Inference, calibration: Calibration | None
) -> ExportPlan:
    """Return the plan of a forward pass; in int8 if it is calibrated."""
    if calibration is None:
        return planned(inference, pipeline_for(machine))
    pipeline = pipeline_for(machine, weights_as_they_are=True)
    return in_bytes(planned(calibration.rounded(inference), pipeline))


def pipeline_for(machine: Machine, weights_as_they_are: bool = False) -> Pipeline:
    """Return the CPU's passes for a single thread, and for the registers of a machine.

    Args:
        machine: Where the code runs.
        weights_as_they_are: Whether weights stay integers: they are neither
            transformed nor copied.
    """
    is_packed = machine.accumulators >= _WIDE and not weights_as_they_are
    wants = Preferences(
        winograd=not weights_as_they_are,
        scratch_for=scratch_for if is_packed else never_packed,
        pixels_side_by_side=True,
        few_channels_by_taps=True,
        strides_by_phase=True,
        depthwise_sums=True,
        pools_by_window=True,
    )
    own = Pass("lower", "as the CPU has it, unsplit", lambda p: lower(p, wants, RULES))
    passes: list[Pass] = []
    for step in PIPELINE.passes:
        if step.name == _FOR_TRAINING:
            break
        if weights_as_they_are and step.name == _FOR_WINOGRAD:
            continue
        passes += [own, *WINDOWS] if step.name == "lower" else [step]
    neighbours = kernel_pass(
        "neighbours",
        "pixels side by side share weights and windows in registers",
        partial(neighbours_together, most=machine.neighbours),
    )
    bands = kernel_pass(
        "bands", "large products stay in the cache until they are read", in_bands
    )
    return replace(PIPELINE, passes=(*passes, neighbours, BORDERS, bands))


class Constants:
    """Concatenated arrays; equal ones are stored once."""

    def __init__(self) -> None:
        self._starts: dict[bytes, int] = {}
        self._parts: list[bytes] = []
        self._end = 0

    def start_of(self, array: np.ndarray) -> int:
        """Return where an array begins."""
        raw = np.ascontiguousarray(array).tobytes()
        digest = hashlib.sha256(raw).digest()
        if digest not in self._starts:
            padding = -self._end % ALIGNMENT
            self._starts[digest] = self._end + padding
            self._parts += [bytes(padding), raw]
            self._end += padding + len(raw)
        return self._starts[digest]

    def data(self) -> bytes:
        """Return the bytes of all."""
        return b"".join(self._parts)


@dataclass(frozen=True)
class _Call:
    function: str
    buffers: tuple[Buffer, ...]
    values: tuple[int, ...]  # numbers passed after the buffers
    pieces: int


class Module:
    """Forward passes under construction as a module."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.constants = Constants()
        self._names: dict[str, str] = {}  # of functions, by their texts
        self._helpers: dict[str, None] = {}
        self._declared: dict[str, None] = {}
        self._entries: list[str] = []
        self._tables: dict[Table, Any] = {}  # of words
        self._routines: dict[str, None] = {}
        self.workspace = 0  # bytes, of the pass that needs most

    def text(self, weights: bytes | None) -> str:
        """Return the module; weights are inside of it if they are given."""
        functions = [
            text.replace("define void @kernel(", f"define internal void {name}(", 1)
            for text, name in self._names.items()
        ]
        constants = []
        if weights is not None:
            escaped = "\\" + weights.hex("\\") if weights else ""
            constants = [
                f"@weights = internal constant [{len(weights)} x i8] "
                f'c"{escaped}", align {ALIGNMENT}'
            ]
        parts = [*sorted(self._declared), *functions, *sorted(self._helpers)]
        parts += self._routines
        end = 'attributes #0 = { nounwind "no-builtins" }\n!0 = !{}\n'
        return self._adapted("\n".join([*parts, *self._entries, end])) + "\n".join(
            constants
        )

    def library_functions(self) -> list[str]:
        """Return the functions of the C library that the code calls."""
        names = [re.search(r"@([\w.]+)", line) for line in self._declared]
        functions = {match[1] for match in names if match}
        return sorted(name for name in functions if not name.startswith("llvm."))

    def _adapted(self, text: str) -> str:
        if self.machine.pointer == 32:
            # Kernels take pointers of eight bytes for granted.
            text = re.sub(r"((?:load|store) ptr .*), align 8", r"\1, align 4", text)
            text = _DIVISION.sub(_NARROW_DIVISION, text)
        if not self.machine.fuses:
            return text.replace("@llvm.fma.", "@llvm.fmuladd.")
        # Products that are added to something may be rounded once.
        return re.sub(r" = (f(?:add|sub|mul)) ", r" = \1 contract ", text)

    # ---- entries -----------------------------------------------------------------

    def add_pass(self, name: str, plan: ExportPlan, interface: Interface) -> None:
        """Add a function that runs a plan: its parameters are those of `predict`."""
        with with_accumulators(self.machine.accumulators):
            calls = [self._called(kernel) for kernel in plan.kernels]
        ends = plan.inference
        places = {port.name: (f"%in{n}", 0) for n, port in enumerate(ends.inputs)}
        places |= {f"output/{n}": (f"%out{n}", 0) for n in range(len(ends.outputs))}
        front = None
        if ends.front is not None:
            front = FrontCode(ends.front, ends.rows, plan.workspace, self._tables)
            for port in ends.numbers:
                places[port.name] = self._place_of(front.place(port.name), interface)
        self.workspace = max(self.workspace, front.end if front else plan.workspace)
        slots = max((len(call.buffers) + len(call.values) for call in calls), default=1)
        parameters = ", ".join([*_passed(interface), "ptr %memory"])
        lines = [
            f"define internal void @{name}({parameters}) #0 {{",
            f"  %frame = alloca [{max(slots, 1)} x i64], align 64",
        ]
        for number, step in enumerate(front.calls if front else []):
            lines += self._text_call(f"t{number}", step, interface)
        for number, call in enumerate(calls):
            for slot, buffer in enumerate(call.buffers):
                base, start = self._place(buffer, plan, interface, places)
                at = f"{number}.{slot}"
                lines += [
                    f"  %a{at} = getelementptr i8, ptr {base}, i64 {start}",
                    f"  %f{at} = getelementptr ptr, ptr %frame, i64 {slot}",
                    f"  store ptr %a{at}, ptr %f{at}, align 8",
                ]
            for slot, value in enumerate(call.values, len(call.buffers)):
                at = f"%v{number}.{slot}"
                lines += [
                    f"  {at} = getelementptr i64, ptr %frame, i64 {slot}",
                    f"  store i64 {value}, ptr {at}, align 8",
                ]
            arguments = f"ptr %frame, i64 0, i64 {call.pieces}"
            lines.append(f"  call void {call.function}({arguments})")
        self._entries.append("\n".join([*lines, "  ret void", "}"]))

    def _called(self, kernel: Kernel) -> _Call:
        emitted, values = emit_kernel(kernel), parameter_values(kernel)
        pieces = emitted.parallel
        pieces = values[pieces.number] if isinstance(pieces, Parameter) else pieces
        self._declared |= dict.fromkeys(emitted.declared)
        self._helpers |= dict.fromkeys(emitted.helpers)
        name = self._names.setdefault(emitted.text, f"@k{len(self._names)}")
        return _Call(name, emitted.buffers, values, pieces)

    def _place(
        self,
        buffer: Buffer,
        plan: ExportPlan,
        interface: Interface,
        places: dict[str, tuple[str, int]],
    ) -> tuple[str, int]:
        """Return the base address of a buffer, and its offset in bytes."""
        if buffer.array is not None:
            return self._place_of(buffer.array, interface)
        if buffer.kind == "arena":
            return "%memory", plan.offsets[buffer.root]
        return places[buffer.name]

    def _place_of(self, value: Argument, interface: Interface) -> tuple[str, int]:
        """Return the base address of an argument, and its offset in bytes."""
        if isinstance(value, np.ndarray):
            base = "@weights" if interface.weights is None else "%weights"
            return base, self.constants.start_of(value)
        if isinstance(value, Memory):
            return "%memory", value.start
        assert isinstance(value, InputArgument)
        return f"%in{value.number}", 0

    def _text_call(
        self, number: str, call: RoutineCall, interface: Interface
    ) -> Iterator[str]:
        """Yield the call of a routine for texts and categories."""
        name = call.routine
        texts = as_llvm([name])
        if call.source is not None:
            kind = _LLVM_TYPES.get(call.source.name) or f"i{8 * call.source.itemsize}"
            texts = as_llvm([name], kind, call.source.kind == "i")
            name = f"{name}_{call.source.name}"
            texts = [
                text.replace("@text_as_whole(", f"@text_{name}(") for text in texts
            ]
        self._routines |= dict.fromkeys(texts)
        passed = []
        for index, value in enumerate(call.arguments):
            if isinstance(value, int):
                passed.append(f"i64 {i64(value)}")
                continue
            base, start = self._place_of(value, interface)
            register = f"%{number}.{index}"
            yield f"  {register} = getelementptr i8, ptr {base}, i64 {start}"
            passed.append(f"ptr {register}")
        yield f"  call void @text_{name}({', '.join(passed)})"

    def add_predict(self, interface: Interface, row: str) -> None:
        """Add `predict`: it aligns the workspace and runs the pass of a row."""
        passed = ", ".join(_passed(interface))
        self._entries.append(
            f"define void @{interface.name}_predict({passed}, ptr %workspace) #0 {{\n"
            f"{_ALIGNED}"
            f"  call void @{row}({passed}, ptr %memory)\n  ret void\n}}"
        )

    def add_call(self, name: str, row: str, addresses: Sequence[int]) -> None:
        """Add a function that runs a pass on memory at fixed addresses."""
        kind = f"i{self.machine.pointer}"
        passed = [f"ptr inttoptr ({kind} {address} to ptr)" for address in addresses]
        self._entries.append(
            f"define void @{name}() #0 {{\n"
            f"  call void @{row}({', '.join(passed)})\n  ret void\n}}"
        )

    def add_batch(
        self, interface: Interface, passes: Sequence[tuple[int, str]]
    ) -> None:
        """Add `predict_batch`: blocks of rows while they fill a block, then rows."""
        size = f"i{self.machine.pointer}"
        count = f"zext {size} %rows to i64" if size != "i64" else "add i64 %rows, 0"
        ports, weights = _passed(interface, "ports"), _passed(interface, "weights")
        parameters = ", ".join([*ports, f"{size} %rows", *weights, "ptr %workspace"])
        lines = [
            f"define void @{interface.name}_predict_batch({parameters}) #0 {{",
            f"{_ALIGNED}  %all = {count}",
            "  br label %head0",
        ]
        for number, (rows, name) in enumerate(passes):
            pointer = self.machine.pointer // 8
            lines += _rows_loop(number, rows, name, interface, pointer)
        lines += [f"head{len(passes)}:", "  ret void", "}"]
        self._entries.append("\n".join(lines))


def _rows_loop(
    number: int, rows: int, name: str, interface: Interface, pointer: int
) -> Iterator[str]:
    """Yield a loop that runs a pass while enough rows are left."""
    n, done = number, f"%done{number}"
    before = f"%done{number - 1}" if number else "0"
    yield f"head{n}:"
    yield f"  br label %test{n}"
    yield f"test{n}:"
    yield f"  {done} = phi i64 [ {before}, %head{n} ], [ %next{n}, %body{n} ]"
    yield f"  %next{n} = add i64 {done}, {rows}"
    yield f"  %fits{n} = icmp ule i64 %next{n}, %all"
    yield f"  br i1 %fits{n}, label %body{n}, label %head{n + 1}"
    yield f"body{n}:"
    passed = []
    sizes = [port.row_bytes(pointer) for port, _ in interface.ports]
    for port, nbytes in zip(_passed(interface, "ports"), sizes, strict=True):
        base = port.removeprefix("ptr ")
        yield f"  {base}.{n}.by = mul i64 {done}, {nbytes}"
        yield f"  {base}.{n} = getelementptr i8, ptr {base}, i64 {base}.{n}.by"
        passed.append(f"ptr {base}.{n}")
    passed += _passed(interface, "weights")
    yield f"  call void @{name}({', '.join([*passed, 'ptr %memory'])})"
    yield f"  br label %test{n}"


def _passed(interface: Interface, which: str = "all") -> list[str]:
    """Return the parameters for the ports, the weights, or both."""
    ends = interface.inference
    ports = [f"ptr %in{n}" for n in range(len(ends.inputs))]
    ports += [f"ptr %out{n}" for n in range(len(ends.outputs))]
    weights = ["ptr %weights"] if interface.weights is not None else []
    return {"ports": ports, "weights": weights, "all": ports + weights}[which]


# Indices fit into 32 bits there, and a division of 64 bits would be a call.
_DIVISION = re.compile(r"^  (%\S+) = ([su](?:div|rem)) i64 (\S+), (\S+)$", re.M)
_NARROW_DIVISION = r"""  \1.a = trunc i64 \3 to i32
  \1.b = trunc i64 \4 to i32
  \1.c = \2 i32 \1.a, \1.b
  \1 = sext i32 \1.c to i64"""

_ALIGNED = """\
  %address = ptrtoint ptr %workspace to i64
  %negative = sub i64 0, %address
  %padding = and i64 %negative, 63
  %memory = getelementptr i8, ptr %workspace, i64 %padding
"""
