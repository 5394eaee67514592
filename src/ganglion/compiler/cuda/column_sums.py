"""Emit column sums: epilogues that sum a kernel's results over all of its rows.

The statistics of batch norm and of its gradient are sums over the rows of a
convolution's result. Its blocks have the elements in registers: each block sums its
own, and the last block to finish adds up the blocks' sums, in order. Deferred sums are
only stored by each block, for another launch to add up.
"""

from __future__ import annotations

import math

import numpy as np

from ganglion.compiler.cuda.elementwise import (
    Bindings,
    cast,
    compute_and_store,
    emit_epilogues,
    evaluate,
    evaluate_vectors,
    vector_width,
    widest_access,
)
from ganglion.compiler.cuda.fusion import FusedKernel
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    c_type,
    computed,
    is_wide,
    power_of_two,
)
from ganglion.compiler.plan.kernels import Apply, BufferKey, Expr, Loop
from ganglion.compiler.plan.plan import expression_key

F64 = np.dtype("float64")
MOST_ROWS, GROUP = 288, 32  # blocks whose sums are added in one level; in two levels


class ColumnSum:
    """The text of a column sum within its producer's: declaration, loop and finish."""

    def __init__(self, body: Body, fused: FusedKernel, width: int) -> None:
        assert isinstance(fused.kernel, Loop)
        self.body, self.fused, self.width = body, fused, width
        self.kernel = fused.kernel
        exprs = self.kernel.exprs
        self.dtype = np.result_type(*(expr.dtype for expr in exprs))
        self.spread = _spread_of(exprs)
        self.exprs = exprs if self.spread is None else [self.spread]
        self.name = body.fresh("column_sum")
        body.do(f"{c_type(self.dtype)} {self.name}[{len(exprs)}][{width}] = {{}};")
        if self.spread is not None:
            body.do(f"Spread {self.name}_spread[{width}] = {{}};")
        self._each_lane = f"for (int lane = 0; lane < {width}; lane++)"

    def add(self, flat: str, known: dict[BufferKey, str], stores: list[str]) -> None:
        """Append the summands at a vector of elements; the additions go to `stores`.

        `known` are values of the producer's buffers that are in registers.
        """
        body, kernel = self.body, self.kernel
        *outer, columns = kernel.outer
        inner = kernel.shape[len(kernel.outer) :]
        *at, column = body.indices(flat, (*outer, *inner, columns), "t")
        at.insert(len(outer), column)
        if self.width > 1:
            values = evaluate_vectors(
                body, self.exprs, at, self.width, known, len(outer)
            )
            values = [f"{value}[lane]" for value in values]
        else:
            values = evaluate(body, self.exprs, Bindings(at, known))
        with body.into(stores), body.unrolled(self._each_lane):
            for number, value in enumerate(values):
                if self.spread is not None:
                    body.do(f"{self.name}_spread[lane].add({value});")
                else:
                    body.do(f"{self.name}[{number}][lane] += {value};")

    def finish(self, across: int, row: str, rows: int, group: str, groups: int) -> int:
        """Append the final sum over threads and blocks; return its shared memory.

        A block has the columns of a `group`, on `across` adjacent threads, and is
        number `row` of the `rows` blocks with these columns.
        """
        body, kinds = self.body, len(self.kernel.outputs)
        if self.spread is not None:
            with body.unrolled(self._each_lane):
                for number, method in enumerate(("total", "squared")):
                    value = f"{self.name}_spread[lane].{method}()"
                    body.do(f"{self.name}[{number}][lane] = {value};")
        columns = across * self.width
        size = rows if rows <= MOST_ROWS else GROUP
        second_level = -(-rows // size) if rows > size else 0
        length = (rows + second_level) * kinds * columns
        parts = body.scratch(groups * length, self.dtype.name)
        counters = body.scratch(groups * (second_level + 1), "uint32")
        totals = body.let(
            "double*",
            f"add_columns<{rows}, {size}, {across}>({self.name}, "
            f"{parts} + ({group}) * {length}, "
            f"{counters} + ({group}) * {second_level + 1}, {row})",
            "totals",
        )
        head = f"for (int c = THREAD; {totals} && c < {columns}; c += THREADS)"
        with body.block(head):
            body.do(f"const int i = ({group}) * {columns} + c;")
            with body.block(f"if (i < {self.kernel.outer[0]})"):
                self._store(totals, columns)
        itemsize = self.dtype.itemsize
        for_blocks = 8 * (THREADS * 16 // itemsize + kinds * columns)
        return max(THREADS * self.width * kinds * itemsize, for_blocks)

    def finish_rows(self, across: int) -> int:
        """Append the store of a part's sums; return the shared memory that it needs."""
        (_, view), columns = self.kernel.outputs[0], self.kernel.outer[-1]
        target = f"{self.body.pointer(view.buffer)} + part * {columns}"
        self.body.do(f"fold_threads<{across}, {columns}>({self.name}, {target});")
        return THREADS * self.width * view.buffer.dtype.itemsize

    def _store(self, totals: str, columns: int) -> None:
        """Append the stores and epilogues of a column's totals."""
        body, values = self.body, {}
        for number, (_, view) in enumerate(self.kernel.outputs):
            dtype = computed(view.buffer.dtype)
            total = f"{totals}[{number * columns} + c]"
            value = body.let(c_type(dtype), cast(total, F64, dtype), "out")
            values[view.buffer.key] = value
            if view.buffer.key not in self.fused.unstored:
                body.do(f"{body.element(view, ['i'])} = {value};")
        emit_epilogues(body, self.fused, "i", 1, values)


def threads_across(columns: int, width: int) -> int:
    """Return how many adjacent threads hold the columns of a row.

    >>> threads_across(24, 4), threads_across(64, 4)
    (8, 16)
    """
    return min(power_of_two(-(-columns // width)), THREADS)


def emit_map_with_column_sums(fused: FusedKernel) -> Emitted:
    """Return the text of a map with column sums over each part of its rows."""
    kernel, first = fused.kernel, fused.column_sums[0].kernel
    assert isinstance(kernel, Loop)
    assert isinstance(first, Loop)
    parts, columns = first.outer
    rows = math.prod(kernel.shape) // columns // parts
    body = Body(is_wide(fused.buffers(), math.prod(kernel.shape)))
    last = math.gcd(kernel.shape[-1], columns)
    width = vector_width(fused, last, widest_access(kernel))
    across = threads_across(columns, width)
    body.do(f"const int c = THREAD % {across} * {width};")
    with body.block(f"for (int part = block; part < {parts}; part += blocks)"):
        sums = [ColumnSum(body, column_sum, width) for column_sum in fused.column_sums]
        head = f"int r = THREAD / {across}; r < {rows} && c < {columns}"
        with body.unrolled(f"for ({head}; r += {THREADS // across})", 4):
            offset = f"(({body.index})part * {rows} + r) * {columns} + c"
            flat = body.let(body.index, offset, "flat")
            at = body.indices(flat, kernel.shape)
            stores: list[str] = []
            values = compute_and_store(
                body, kernel.outputs, at, width, {}, fused, stores
            )
            emit_epilogues(body, fused, flat, width, values, stores)
            for column_sum in sums:
                column_sum.add(flat, values, stores)
            body.lines += stores
        shared = max(column_sum.finish_rows(across) for column_sum in sums)
    return body.emitted(parts, shared)


def _spread_of(exprs: list[Expr]) -> Expr | None:
    """Return x if the expressions are x and x * x in float64, of a float32 x."""
    if len(exprs) != 2:
        return None
    wide, square = exprs
    if not isinstance(square, Apply) or square.op != "multiply":
        return None
    if not isinstance(wide, Apply) or wide.op != "cast" or wide.dtype != F64:
        return None
    key = expression_key(wide)
    if any(expression_key(factor) != key for factor in square.args):
        return None
    return wide.args[0] if wide.args[0].dtype == np.float32 else None
