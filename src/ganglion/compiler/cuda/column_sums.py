"""Sums by columns that a kernel's blocks take of what they have just computed.

Statistics of a batch, and the sums that their gradient needs, are sums over all rows of
a convolution's result. Its blocks have the elements in registers: each adds up its own,
and the last block to come adds up what the blocks have, in their order. Where nobody
waits for them, a block only stores its sums, for another launch to add up.
"""

from __future__ import annotations

import math

import numpy as np

from ganglion.compiler.cuda import pointwise
from ganglion.compiler.cuda.elementwise import (
    compute_and_store,
    emit_epilogues,
    lanes_of,
    most_lanes,
)
from ganglion.compiler.cuda.epilogue import FusedKernel, Root, lanes_allowed
from ganglion.compiler.cuda.expressions import Places, evaluate
from ganglion.compiler.cuda.passes.rewrite import expression_key
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    c_type,
    computed,
    is_wide,
    root,
)
from ganglion.compiler.plan.kernels import Apply, Expr, Loop

F64 = np.dtype("float64")
MOST_ROWS, GROUP = 288, 32  # blocks that are added up at once; else so many of them


class ColumnSum:
    """The text of one column sum, in three places of its producer's."""

    def __init__(self, body: Body, fused: FusedKernel, lanes: int) -> None:
        assert isinstance(fused.kernel, Loop)
        self.body, self.fused, self.kernel, self.lanes = (
            body,
            fused,
            fused.kernel,
            lanes,
        )
        exprs = [expr for expr, _ in self.kernel.stored]
        self.kind = c_type(np.result_type(*(expr.dtype for expr in exprs)))
        self.spread = _spread_of(exprs)
        self.name = body.fresh("tally")
        body.do(f"{self.kind} {self.name}[{len(exprs)}][{lanes}] = {{}};")
        if self.spread is not None:
            body.do(f"Spread {self.name}_spread[{lanes}] = {{}};")

    def add(self, flat: str, held: dict[Root, str], later: list[str]) -> None:
        """Append what is added up of some neighbours; the adding goes `later`."""
        body, kernel, lanes = self.body, self.kernel, self.lanes
        *outer, columns = kernel.outer
        inner = kernel.shape[len(kernel.outer) :]
        *places, column = body.places(flat, (*outer, *inner, columns), "t")
        at = [*places[: len(outer)], column, *places[len(outer) :]]
        exprs = [expr for expr, _ in kernel.stored]
        if self.spread is not None:
            exprs = [self.spread]
        if lanes > 1:
            values = lanes_of(body, exprs, at, lanes, held, len(outer))
            values = [f"{one}[lane]" for one in values]
        else:
            values = evaluate(body, exprs, Places(at, held))
        with body.into(later):
            body.lines.append("#pragma unroll")
            with body.block(f"for (int lane = 0; lane < {lanes}; lane++)"):
                for number, value in enumerate(values):
                    if self.spread is not None:
                        body.do(f"{self.name}_spread[lane].add({value});")
                    else:
                        body.do(f"{self.name}[{number}][lane] += {value};")

    def finish(self, across: int, row: str, rows: int, group: str, groups: int) -> int:
        """Append what comes after the last element; return the shared memory of it.

        A block has the columns of a `group`, and `across` threads beside each other for
        them; it is number `row` of as many as `rows` that have the same.
        """
        body, lanes, kinds = self.body, self.lanes, len(self.kernel.stored)
        if self.spread is not None:
            body.lines.append("#pragma unroll")
            with body.block(f"for (int lane = 0; lane < {lanes}; lane++)"):
                for number, what in enumerate(("total", "squared")):
                    value = f"{self.name}_spread[lane].{what}()"
                    body.do(f"{self.name}[{number}][lane] = {value};")
        columns = across * lanes
        dtype = {"float": "float32", "double": "float64"}[self.kind]
        size = rows if rows <= MOST_ROWS else GROUP
        many = -(-rows // size) if rows > size else 0
        width = (rows + many) * kinds * columns
        parts = body.scratch(groups * width, dtype)
        counters = body.scratch(groups * (many + 1), "uint32")
        whole = body.let(
            "double*",
            f"add_columns<{rows}, {size}, {across}>({self.name}, "
            f"{parts} + ({group}) * {width}, "
            f"{counters} + ({group}) * {many + 1}, {row})",
            "whole",
        )
        head = f"for (int c = THREAD; {whole} && c < {columns}; c += THREADS)"
        with body.block(head):
            body.do(f"const int i = ({group}) * {columns} + c;")
            with body.block(f"if (i < {self.kernel.outer[0]})"):
                self._end(whole, columns)
        itemsize = np.dtype(dtype).itemsize
        joined = 8 * (THREADS * 16 // itemsize + kinds * columns)
        return max(THREADS * lanes * kinds * itemsize, joined)

    def finish_rows(self, across: int) -> int:
        """Append how the sums of a part's rows are stored; return the shared memory."""
        (_, view), columns = self.kernel.stored[0], self.kernel.outer[-1]
        to = f"{self.body.pointer(view.buffer)} + part * {columns}"
        self.body.do(f"fold_threads<{across}, {columns}>({self.name}, {to});")
        return THREADS * self.lanes * view.buffer.dtype.itemsize

    def _end(self, whole: str, columns: int) -> None:
        """Append what becomes of the totals of a column."""
        body, held = self.body, {}
        for number, (_, view) in enumerate(self.kernel.stored):
            dtype = computed(view.buffer.dtype)
            total = f"{whole}[{number * columns} + c]"
            value = body.let(c_type(dtype), pointwise.cast(total, F64, dtype), "out")
            held[root(view.buffer)] = value
            if root(view.buffer) not in self.fused.unstored:
                body.do(f"{body.element(view, ['i'])} = {value};")
        emit_epilogues(body, self.fused, "i", 1, held)


def across_of(columns: int, lanes: int) -> int:
    """Return how many threads beside each other have all columns of a row.

    >>> across_of(24, 4), across_of(64, 4)
    (8, 16)
    """
    across = 1
    while across * lanes < columns and across < THREADS:
        across *= 2
    return across


def emit_map_with_column_sums(fused: FusedKernel) -> Emitted:
    """Return a map as text that adds up what it computes, part by part of its rows."""
    kernel, first = fused.kernel, fused.column_sums[0].kernel
    assert isinstance(kernel, Loop)
    assert isinstance(first, Loop)
    parts, columns = first.outer
    rows = math.prod(kernel.shape) // columns // parts
    body = Body(is_wide(fused.buffers(), math.prod(kernel.shape)))
    lanes = lanes_allowed(
        fused, math.gcd(kernel.shape[-1], columns), most_lanes(kernel)
    )
    across = across_of(columns, lanes)
    body.do(f"const int c = THREAD % {across} * {lanes};")
    with body.block(f"for (int part = block; part < {parts}; part += blocks)"):
        column_sums = [ColumnSum(body, one, lanes) for one in fused.column_sums]
        body.lines.append("#pragma unroll 4")
        head = f"int r = THREAD / {across}; r < {rows} && c < {columns}"
        with body.block(f"for ({head}; r += {THREADS // across})"):
            place = f"(({body.index})part * {rows} + r) * {columns} + c"
            flat = body.let(body.index, place, "flat")
            at = body.places(flat, kernel.shape)
            later: list[str] = []
            held = compute_and_store(body, kernel.stored, at, lanes, {}, fused, later)
            emit_epilogues(body, fused, flat, lanes, held, later)
            for column_sum in column_sums:
                column_sum.add(flat, held, later)
            body.lines += later
        shared = max(one.finish_rows(across) for one in column_sums)
    return body.emitted(parts, shared)


def _spread_of(exprs: list[Expr]) -> Expr | None:
    """Return x where sums of x and of x times x are wanted in float64."""
    if len(exprs) != 2:
        return None
    wide, square = exprs
    if not isinstance(square, Apply) or square.op != "multiply":
        return None
    source = _narrow(wide)
    if source is None or any(
        expression_key(one) != expression_key(wide) for one in square.args
    ):
        return None
    return source


def _narrow(expr: Expr) -> Expr | None:
    """Return the float32 expression that is cast to float64."""
    if not isinstance(expr, Apply) or expr.op != "cast" or expr.dtype != F64:
        return None
    (source, *_) = expr.args
    return source if source.dtype == np.float32 else None
