"""A model as a portable C99 file and its header: no dependency but math.h."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.compiler.cuda.text import affine
from ganglion.compiler.plan.kernels import Buffer, Kernel
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.export.c_kernels import emit_kernel
from ganglion.export.c_text import CFunction, UnsupportedError, c_type, number
from ganglion.export.formats import Artifact
from ganglion.export.inference import inference_of
from ganglion.export.interface import Interface, identifier, is_in_file
from ganglion.export.planning import (
    ALIGNMENT,
    ExportPlan,
    constants_of,
    in_bytes,
    planned,
)
from ganglion.export.quantized import calibration_if
from ganglion.export.row_by_row import refuse_mixed_rows
from ganglion.export.text.calls import Argument, FrontCode, InputArgument, Memory
from ganglion.export.text.translation import C_TYPES, as_c, routine
from ganglion.export.wide_floats import in_float32

_PER_LINE = 8  # numbers
_LARGEST_INDEX = 2**31 - 1


def write(
    model: Any,
    path: Path,
    input_signature: Any = None,
    name: str | None = None,
    weights: str = "inside",
    int8: bool = False,
    sample: Any = None,
) -> Artifact:
    """Return a C file, its header and, with weights="file", the weights."""
    in_file, prefix = is_in_file(weights), identifier(path, name)
    refuse_mixed_rows(model, input_signature)
    calibration = calibration_if(int8, model, sample, input_signature)
    inference, notes = in_float32(inference_of(model, 1, input_signature)), []
    if calibration is not None:
        inference = calibration.rounded(inference)
        notes.append(calibration.effect)
    plan = planned(inference)
    if int8:
        plan = in_bytes(plan)
    program = CProgram(prefix, plan, in_file)
    header = path.with_suffix(".h")
    source = program.source(header.name)
    files = {path: source.encode(), header: program.interface.header().encode()}
    if in_file:
        files[path.with_suffix(".weights")] = program.weights
    notes.append(f"Compile it with: cc -std=c99 -O3 -c {path.name}")
    return Artifact(files, tuple(notes))


class CProgram:
    """The functions and constants of a plan as C."""

    def __init__(self, name: str, plan: ExportPlan, in_file: bool = False) -> None:
        self.name, self.plan, self._in_file = name, plan, in_file
        self._names: dict[str, str] = {}  # of functions, by their text without one
        front = plan.inference.front
        self._front = None if front is None else FrontCode(front, 1, plan.workspace, {})
        self._memory = plan.workspace if self._front is None else self._front.end
        arrays = [buffer.array for buffer in constants_of(plan.kernels)]
        arrays += self._front.arrays() if self._front is not None else []
        self._numbers = {id(array): n for n, array in enumerate(arrays)}
        self._arrays = [np.ascontiguousarray(array) for array in arrays]
        self._starts, self.weights = _laid_out(self._arrays)
        size = len(self.weights) if in_file else None
        workspace = self._memory + ALIGNMENT if self._memory else 0
        self.interface = Interface(name, plan.inference, workspace, size)
        self._ports = {
            **{port.name: port.name for port in plan.inference.inputs},
            **{f"output/{n}": p.name for n, p in enumerate(plan.inference.outputs)},
        }

    def source(self, header: str) -> str:
        """Return the C file."""
        calls = [self._call(kernel) for kernel in self.plan.kernels]
        functions = [
            text.replace("static void (", f"static void {name}(", 1)
            for text, name in self._names.items()
        ]
        constants = [] if self._in_file else list(self._constants())
        return "\n".join(
            [
                f'#include "{header}"',
                "",
                "#include <math.h>",
                "",
                *constants,
                *self._routines(),
                *functions,
                *self._predict([*self._front_calls(), *calls]),
                *self._predict_batch(),
            ]
        )

    # ---- constants ---------------------------------------------------------------

    def _constants(self) -> Iterator[str]:
        for index, array in enumerate(self._arrays):
            kind, size = c_type(array.dtype), max(array.size, 1)
            yield f"static const {kind} {self.name}_w{index}[{size}] = {{"
            flat = array.reshape(-1)
            for start in range(0, len(flat), _PER_LINE):
                yield f"  {_numbers(flat[start : start + _PER_LINE])},"
            yield "};"

    def _address(self, buffer: Buffer) -> str:
        """Return where a buffer of the plan is, in `predict`."""
        kind = c_type(buffer.dtype)
        if buffer.array is not None:
            return self._array_address(buffer.array)
        if buffer.kind == "arena":
            return f"({kind} *)(memory + {self.plan.offsets[buffer.root]})"
        if self._front is not None and buffer.name not in self._ports:
            return self._argument(self._front.place(buffer.name), "Numbers")
        return self._ports[buffer.name]

    def _array_address(self, array: np.ndarray) -> str:
        index = self._numbers[id(array)]
        if not self._in_file:
            return f"{self.name}_w{index}"
        return f"(const {c_type(array.dtype)} *)(file + {self._starts[index]})"

    # ---- text --------------------------------------------------------------------

    def _routines(self) -> Iterator[str]:
        """Yield the routines that turn texts and categories into numbers."""
        calls = [] if self._front is None else self._front.calls
        names = [call.routine for call in calls if call.source is None]
        yield from as_c(names, self.name)
        for dtype in dict.fromkeys(call.source for call in calls):
            if dtype is not None:
                prefix = f"{self.name}_{dtype.name}"
                yield from as_c(["as_whole"], prefix, c_type(dtype))

    def _front_calls(self) -> Iterator[str]:
        for call in [] if self._front is None else self._front.calls:
            kinds = routine(call.routine).parameters.values()
            pairs = zip(call.arguments, kinds, strict=True)
            passed = ", ".join(self._argument(value, kind) for value, kind in pairs)
            kind = f"_{call.source.name}" if call.source is not None else ""
            yield f"{self.name}{kind}_{call.routine}({passed});"

    def _argument(self, value: Argument, kind: str) -> str:
        if isinstance(value, InputArgument):
            return self.plan.inference.inputs[value.number].name
        if isinstance(value, Memory):
            return f"({C_TYPES[kind]})(memory + {value.start})"
        if isinstance(value, np.ndarray):
            return self._array_address(value)
        return f"{value}ull"

    # ---- functions ---------------------------------------------------------------

    def _call(self, kernel: Kernel) -> str:
        """Return the call of a kernel's function."""
        name, function = self._function(kernel)
        passed = ", ".join(map(self._address, function.buffers))
        return f"{name}({passed});"

    def _function(self, kernel: Kernel, restrict: bool = True) -> tuple[str, CFunction]:
        """Return a kernel's function and its name; equal ones are written once."""
        for buffer in (*kernel.reads(), *kernel.writes()):
            if buffer.size > _LARGEST_INDEX:
                raise UnsupportedError(f"{buffer!r} is too large for an index in C.")
        if isinstance(kernel, TimeLoop):
            function = self._time_loop(kernel)
        else:
            function = emit_kernel(kernel, restrict)
        name = f"{self.name}_k{len(self._names)}"
        return self._names.setdefault(function.text(""), name), function

    def _time_loop(self, loop: TimeLoop) -> CFunction:
        """Return a function that calls those of the body, step by step."""
        caller = CFunction(restrict=False)
        windows = {window.buffer.key: window for window in loop.windows}
        with caller.block(f"for (int t = 0; t < {loop.steps}; t++)"):
            for kernel in loop.body:
                # Several windows may alias the same buffer.
                name, function = self._function(kernel, restrict=False)
                passed = []
                for buffer in function.buffers:
                    window = windows.get(buffer.key)
                    owner = buffer if window is None else window.stacked
                    address = caller.pointer(owner, function.writes(buffer))
                    if window is not None:
                        step = f"t % {window.slots}" if window.slots else "t"
                        step = affine([f"({step})"], [window.stride], window.offset)
                        address = f"{address} + {step}"
                    passed.append(address)
                caller.do(f"{name}({', '.join(passed)});")
        return caller

    def _predict(self, calls: list[str]) -> Iterator[str]:
        yield f"{self.interface.prototype()} {{"
        used = set(re.findall(r"\w+", " ".join(calls)))
        for port in self.plan.inference.inputs:
            if port.name not in used:
                yield f"  (void){port.name};"
        if "file" in used:
            yield "  const unsigned char *const file = (const unsigned char *)weights;"
        elif self._in_file:
            yield "  (void)weights;"
        if self._memory:
            yield "  const uintptr_t start = (uintptr_t)workspace;"
            yield (
                "  unsigned char *const memory = (unsigned char *)workspace"
                f" + ({ALIGNMENT} - start % {ALIGNMENT}) % {ALIGNMENT};"
            )
        else:
            yield "  (void)workspace;"
        yield from (f"  {call}" for call in calls)
        yield "}"
        yield ""

    def _predict_batch(self) -> Iterator[str]:
        interface = self.interface
        passed = [f"{port.name} + row * {port.size}" for port, _ in interface.ports] + [
            "weights"
        ] * self._in_file
        yield f"{interface.prototype(batch=True)} {{"
        yield "  for (size_t row = 0; row < rows; row++)"
        yield f"    {self.name}_predict({', '.join([*passed, 'workspace'])});"
        yield "}"
        yield ""


def _numbers(array: np.ndarray) -> str:
    """Return numbers, exactly, with commas between."""
    if array.dtype == np.float32 and np.isfinite(array).all():
        text = "f, ".join([value.hex() for value in array.tolist()]) + "f"
        return text.replace("0000000p", "p")  # digits that only a double has
    return ", ".join(number(value, array.dtype) for value in array.tolist())


def _laid_out(arrays: list[np.ndarray]) -> tuple[list[int], bytes]:
    """Return where concatenated arrays begin, and their bytes."""
    starts, parts, end = [], [], 0
    for array in arrays:
        padding = -end % ALIGNMENT
        starts.append(end + padding)
        parts += [bytes(padding), array.tobytes()]
        end += padding + array.nbytes
    return starts, b"".join(parts)
