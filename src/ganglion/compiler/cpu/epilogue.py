"""Emit epilogues of products as LLVM IR, which run on the sums of each tile.

An epilogue is emitted once, as a function that every tile calls, to bound the size of
the text. Sums without other readers are passed in a small array on the stack, which
stays in the first-level cache. Light epilogues are inlined on sums in registers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from ganglion.compiler.cpu.elementwise import Facts, LoopText
from ganglion.compiler.cpu.emitter import Emitter, Range
from ganglion.compiler.cpu.text import WIDTH, Val, llvm_type, memory_type
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import FUNCTIONS, Apply, Buffer, Literal, Load, Loop

FACTS = Facts(transposes=False, is_narrow=False, fits_vector=False, prefetched={})


class Epilogue:
    """The function of an epilogue, and calls to it."""

    def __init__(
        self, loop: Loop, out: Buffer, emitter: Emitter, most: int, wide: int
    ) -> None:
        """Prepare for tiles of at most `most` elements, in rows `wide` elements apart.

        That is their layout on the stack if the result has no memory.
        """
        self.loop, self.out, self.emitter = loop, out, emitter
        self.element = llvm_type(out.dtype)
        self.at = [f"%at{number}" for number in range(len(loop.shape) - 2)]
        self.wide, self.tile = wide, ""
        if out.kind == "register":
            self.tile = "%tile"
            tile = f"alloca [{most} x {self.element}], align 64"
            emitter.text.prelude.append(f"  %tile = {tile}")
        steps = [e for e in loop.every_expr if not isinstance(e, (Load, Literal))]
        is_cheap = all(isinstance(e, Apply) and e.op not in FUNCTIONS for e in steps)
        # The call of such an epilogue would take longer than its computation.
        self.is_light = is_cheap and len(steps) <= CPU.light_epilogue

    @cached_property
    def _name(self) -> str:
        """The name of the epilogue's function, defined when it is first needed."""
        stem = "epilogue"
        numbers = ["%row", "%rows", "%column", "%columns"]
        arguments = [f"i64 {name}" for name in (*self.at, *numbers)]
        helper = self.emitter.helper(stem, ", ".join(["ptr %tile", *arguments]))
        text = helper.text
        rows, columns = (
            (first, text.add(first, f"{first}s")) for first in ("%row", "%column")
        )
        self._emit(helper, [rows, columns])
        emitted = helper.emitted(1)
        name = stem + hashlib.sha256(emitted.text.encode()).hexdigest()[:16]
        head = f"define internal void @{name}("
        renamed = emitted.text.replace(f"define void @{stem}(", head, 1)
        renamed = renamed.replace(") #0 {", ") noinline #0 {", 1)
        self.emitter.helpers[name] = replace(emitted, text=renamed)
        return name

    def _emit(self, helper: Emitter, ranges: list[Range]) -> None:
        text = helper.text

        def load(at: list[str], width: int) -> Val:
            row, column = text.minus(at[-2], "%row"), text.minus(at[-1], "%column")
            index = text.add(text.times(row, self.wide), column)
            address = text.address("%tile", self.element, index)
            return helper.load(address, self.out.dtype, width)

        for expr in self.loop.leaves if self.tile else ():
            if isinstance(expr, Load) and expr.view.buffer is self.out:
                helper.held[expr.view] = load
        LoopText(self.loop, FACTS, helper).map_over(self.at, ranges)

    def store(self, at: list[str], total: Val) -> None:
        """Emit the epilogue of a vector of the result in a register."""
        last = len(at) - 1
        for expr in self.loop.leaves:
            if isinstance(expr, Load) and expr.view.buffer is self.out:
                self.emitter.held[expr.view] = lambda *_: total
        exprs, width = self.loop.exprs, total.width
        values = self.emitter.expressions(exprs, at, last, width)
        for value, (_, view) in zip(values, self.loop.outputs, strict=True):
            self.emitter.store_view(value, view, at, last, width)

    def prefetch(self, emitter: Emitter, at: Sequence[str], vectors: int) -> None:
        """Prefetch the epilogue's operands for some vectors of a row.

        A row at a time, while the tile is being computed: a processor has a limited
        number of outstanding loads.
        """
        text = emitter.text
        loads = [e.view for e in self.loop.leaves if isinstance(e, Load)]
        views = dict.fromkeys([*(view for _, view in self.loop.outputs), *loads])
        for view in views:
            if view.buffer.kind != "register" and view.strides[-2] != 0:
                index = text.affine(at, view.strides, view.offset)
                first = emitter.address(view.buffer, index)
                element = memory_type(view.buffer.dtype)
                for vector in range(vectors):
                    emitter.prefetch(text.address(first, element, vector * WIDTH), 1)

    def call(self, *numbers: str) -> None:
        """Emit the call for a tile: outer indices, row, rows, column, columns."""
        passed = ", ".join(f"i64 {number}" for number in numbers)
        tile = self.tile or "null"
        self.emitter.text.do(
            f"call void @{self._name}(ptr %args, ptr {tile}, {passed})"
        )
