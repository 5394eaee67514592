"""Loop kernels in LLVM IR: maps, transposes and reductions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TypeGuard

import numpy as np

from ganglion.compiler.cpu.emitter import Emitted, Emitter, Range, shared_ranges
from ganglion.compiler.cpu.text import F64, I64, WIDTH, Val, vector_widths
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import (
    Apply,
    Expr,
    Indirect,
    Load,
    Loop,
    Shuffled,
    Uniform,
    View,
    walk,
)


def _in_rows(expr: Expr) -> TypeGuard[Load]:
    least = CPU.prefetched_pages * CPU.page_bytes
    return isinstance(expr, Load) and expr.view.buffer.nbytes > least


class LoopText:
    """A loop kernel under construction."""

    def __init__(self, kernel: Loop) -> None:
        self.kernel, self.emitter = kernel, Emitter()
        self.text, self.maths = self.emitter.text, self.emitter.maths
        self.exprs, self.views = kernel.exprs, [view for _, view in kernel.outputs]
        self.emitter.prefetched = self._prefetched()

    def _prefetched(self) -> dict[View, int]:
        """Return the views that walk through several rows of an array at once.

        Each row is a page or so, beyond which the processor does not prefetch by
        itself: the row below is prefetched.
        """
        kernel = self.kernel
        views = {expr.view for expr in walk(*self.exprs) if _in_rows(expr)}
        taps = Counter((view.buffer, view.strides) for view in views)
        window = kernel.how == "max" and len(kernel.outer) > 1
        rows = {}
        for view in views:
            least = CPU.page_bytes // 2 / view.buffer.dtype.itemsize
            steps = [stride for stride in view.strides if stride >= least]
            if steps and (window or taps[view.buffer, view.strides] > 1):
                rows[view] = min(steps)
        return rows

    def emit(self) -> Emitted:
        """Emit the loops."""
        if self.kernel.reduced:
            return self._reduction()
        if not self.kernel.shape:
            self._store([], 0, 1)
            return self.emitter.emitted(1)
        return self._transpose() if self._transposes() else self._map()

    # ---- maps ----------------------------------------------------------------------

    def _store(self, at: list[str], vector: int, width: int) -> None:
        values = self.emitter.expressions(self.exprs, at, vector, width)
        for value, view in zip(values, self.views, strict=True):
            if self.kernel.adds:
                old = self.emitter.load_view(view, at, vector, width)
                value = self.maths.add(old, value)
            self.emitter.store_view(value, view, at, vector, width)

    def _map(self) -> Emitted:
        kernel, parallel = self.kernel, self.kernel.shape[0]
        ranges = shared_ranges(kernel.shape)
        last = len(ranges) - 1
        repeats = kernel.adds and self.views[0].strides[last] == 0

        def row(at: list[str]) -> None:
            if repeats:
                self.emitter.nest(
                    ranges[last:], lambda inner: self._store([*at, *inner], last, 1)
                )
                return
            self.emitter.in_vectors(
                *ranges[last],
                lambda index, width: self._store([*at, index], last, width),
            )

        self.emitter.nest(ranges[:last], row)
        grain = 1
        if last == 0 and parallel != 1:
            grain = parallel if kernel.adds else CPU.map_grain
        return self.emitter.emitted(parallel, grain)

    def _transposes(self) -> bool:
        """Return whether a loop does nothing but exchange rows and columns."""
        (expr, *more), kernel = self.exprs, self.kernel
        if kernel.adds or more or not isinstance(expr, Load):
            return False
        if len(kernel.shape) != 2 or min(kernel.shape) < WIDTH:
            return False
        return self.views[0].strides[1] == 1 and expr.view.strides[0] == 1

    def _transpose(self) -> Emitted:
        """Exchange rows and columns, a square of vectors at a time."""
        (expr,), (target,) = self.exprs, self.views
        emitter, text = self.emitter, self.text
        assert isinstance(expr, Load)
        source, (rows, columns) = expr.view, self.kernel.shape
        across = columns // WIDTH * WIDTH

        def square(row: str, column: str) -> None:
            vectors = []
            for lane in range(WIDTH):
                at = [row, text.add(column, lane)]
                vectors.append(emitter.load_view(source, at, 0, WIDTH))
            for lane, vector in enumerate(self.maths.transposed(vectors)):
                at = [text.add(row, lane), column]
                emitter.store_view(vector, target, at, 1, WIDTH)

        def single(at: list[str]) -> None:
            emitter.store_view(emitter.load_view(source, at, 1, 1), target, at, 1, 1)

        count = text.let("sub nsw i64 %hi, %lo")
        down = text.add("%lo", text.let(f"and i64 {count}, {-WIDTH}"))

        def block(row: str) -> None:
            text.each(0, across, WIDTH, lambda column: square(row, column))
            emitter.nest(
                [(0, WIDTH), (across, columns)],
                lambda at: single([text.add(row, at[0]), at[1]]),
            )

        text.each("%lo", down, WIDTH, block)
        emitter.nest([(down, "%hi"), (0, columns)], single)
        return emitter.emitted(rows, WIDTH)

    # ---- reductions ----------------------------------------------------------------

    def _reduction(self) -> Emitted:
        kernel = self.kernel
        ranges = shared_ranges(kernel.outer)
        across = bool(ranges) and self._suits_lanes(len(ranges) - 1)
        if kernel.how == "argmax":
            self.emitter.nest(ranges, self._argmax)
        elif across:
            self._reduce_across(ranges)
        else:
            self.emitter.nest(ranges, self._reduce_along)
        grain = WIDTH if across and len(ranges) == 1 else 1
        return self.emitter.emitted(kernel.outer[0] if ranges else 1, grain)

    def _suits_lanes(self, axis: int) -> bool:
        """Return whether neighbours along an axis of the result lie side by side."""
        if self.kernel.shape[axis] < 8 or any(v.strides[axis] != 1 for v in self.views):
            return False
        for expr in walk(*self.exprs):
            if isinstance(expr, Load) and expr.view.strides[axis] not in (0, 1):
                return False
            if isinstance(expr, (Indirect, Uniform, Shuffled)):
                return False
        return True

    def _firsts(self, width: int, narrow: bool = False) -> list[Val]:
        """Return what each total starts from.

        Unless narrow, in float64 for sums, so that long ones keep their digits.
        """
        firsts = []
        for expr in self.exprs:
            wide = self.kernel.how == "sum" and expr.dtype.kind == "f" and not narrow
            dtype = F64 if wide else expr.dtype
            first = _identity(self.kernel.how, dtype)
            firsts.append(self.maths.constant(first, dtype, width))
        return firsts

    def _joined(self, total: Val, value: Val, how: str = "") -> Val:
        value = self.maths.cast(value, total.dtype)
        if (how or self.kernel.how) == "sum":
            return self.maths.add(total, value)
        return self.maths.extreme(total, value, True)

    def _joined_at(self, at: list[str], vector: int, totals: list[Val]) -> list[Val]:
        """Join the values at some indices to their totals, products by fma."""
        factors = [
            self._factors(expr, total)
            for expr, total in zip(self.exprs, totals, strict=True)
        ]
        flat = [factor for product in factors for factor in product]
        values = iter(self.emitter.expressions(flat, at, vector, totals[0].width))
        return [
            self._joined(total, next(values))
            if len(product) == 1
            else self.maths.fma(next(values), next(values), total)
            for total, product in zip(totals, factors, strict=True)
        ]

    def _factors(self, expr: Expr, total: Val) -> tuple[Expr, ...]:
        """Return the factors, if products are added up in their own type."""
        is_product = isinstance(expr, Apply) and expr.op == "multiply"
        is_sum = self.kernel.how == "sum" and expr.dtype.kind == "f"
        fits = is_product and is_sum and total.dtype == expr.dtype
        return expr.children if fits else (expr,)

    def _finish(self, totals: list[Val], at: list[str], width: int) -> None:
        vector = len(self.kernel.outer) - 1
        for total, view in zip(totals, self.views, strict=True):
            value = self.maths.cast(total, view.buffer.dtype)
            self.emitter.store_view(value, view, at, vector, width)

    def _reduce_across(self, ranges: list[Range]) -> None:
        """Lanes are neighbouring results; each adds up its own column."""
        axis = len(ranges) - 1
        size = self.kernel.shape[axis]

        def row(at: list[str]) -> None:
            if axis == 0:  # the range of columns is known only when it runs
                self.emitter.in_vectors(
                    *ranges[axis],
                    lambda index, width: self._columns(at, index, [width]),
                )
                return
            count = max(1, CPU.column_accumulators // len(self.views))
            panel = count * WIDTH
            middle = 0 if -(-size // WIDTH) <= count else size // panel * panel
            self.text.each(
                0,
                middle,
                panel,
                lambda index: self._columns(at, index, [WIDTH] * count),
            )
            if middle < size:
                self._columns(at, str(middle), vector_widths(size - middle))

        self.emitter.nest(ranges[:axis], row)

    def _columns(self, at: list[str], first: str, widths: list[int]) -> None:
        """Reduce some vectors of columns in one walk over the reduced axes."""
        axis, each = len(self.kernel.outer) - 1, len(self.views)
        columns = [self.text.add(first, v * WIDTH) for v in range(len(widths))]

        def firsts(narrow: bool = False) -> list[Val]:
            return [total for w in widths for total in self._firsts(w, narrow)]

        def add_up(inner: list[str], totals: list[Val]) -> list[Val]:
            sums = []
            for v, column in enumerate(columns):
                own = totals[v * each : (v + 1) * each]
                sums += self._joined_at([*at, column, *inner], axis, own)
            return sums

        totals = self._sums(firsts, add_up)
        for v, (column, width) in enumerate(zip(columns, widths, strict=True)):
            self._finish(totals[v * each : (v + 1) * each], [*at, column], width)

    def _sums(
        self,
        firsts: Callable[[bool], list[Val]],
        add_up: Callable[[list[str], list[Val]], list[Val]],
    ) -> list[Val]:
        """Carry totals through the reduced axes.

        Short runs are added up in their own type; their sums in a wider one, so that
        long sums keep their digits and conversions cost little.
        """
        kernel, text, run = self.kernel, self.text, CPU.narrow_sum
        reduced = range(len(kernel.outer), len(kernel.shape))
        count = math.prod(kernel.shape[axis] for axis in reduced)
        if kernel.how != "sum" or count <= run:
            return self._nested(reduced, [], firsts(True), add_up)
        size = kernel.shape[reduced[-1]]
        middle = size // run * run

        def runs(inner: list[str], totals: list[Val]) -> list[Val]:
            def add_run(start: str, stop: str, totals: list[Val]) -> list[Val]:
                sums = text.carry(
                    start,
                    stop,
                    1,
                    firsts(True),
                    lambda index, carried: add_up([*inner, index], carried),
                )
                return list(map(self._joined, totals, sums))

            totals = text.carry(
                0,
                middle,
                run,
                totals,
                lambda start, carried: add_run(start, text.add(start, run), carried),
            )
            return add_run(str(middle), str(size), totals) if middle < size else totals

        return self._nested(reduced[:-1], [], firsts(False), runs)

    def _nested(
        self,
        axes: range,
        at: list[str],
        totals: list[Val],
        body: Callable[[list[str], list[Val]], list[Val]],
    ) -> list[Val]:
        """Carry totals through some axes."""
        if not axes:
            return body(at, totals)
        return self.text.carry(
            0,
            self.kernel.shape[axes[0]],
            1,
            totals,
            lambda index, now: self._nested(axes[1:], [*at, index], now, body),
        )

    def _reduce_along(self, at: list[str]) -> None:
        """Lanes are neighbours along the last reduced axis, joined at the end."""
        kernel, outer = self.kernel, len(self.kernel.outer)
        last = len(kernel.shape) - 1
        size = kernel.shape[last]
        middle, rest = size // WIDTH * WIDTH, size % WIDTH
        narrow = math.prod(kernel.shape[outer:]) <= CPU.narrow_sum

        def through(start: int, stop: int, width: int) -> list[Val]:
            def vectors(here: list[str], totals: list[Val]) -> list[Val]:
                return self.text.carry(
                    start,
                    stop,
                    width,
                    totals,
                    lambda index, now: self._joined_at([*here, index], last, now),
                )

            firsts = self._firsts(width, narrow)
            totals = self._nested(range(outer, last), at, firsts, vectors)
            return [self._fold(total) for total in totals]

        parts = [through(0, middle, WIDTH)] if middle else []
        parts += [through(middle, size, rest)] if rest else []
        totals, *more = parts or [self._firsts(1)]  # there may be nothing to reduce
        for other in more:
            totals = list(map(self._joined, totals, other))
        self._finish(totals, at, 1)

    def _fold(self, vector: Val, how: str = "") -> Val:
        """Join the lanes of a vector, halves first: always in the same order."""
        maths, size = self.maths, 1 << (vector.width - 1).bit_length()
        if size > vector.width:
            first = _identity(how or self.kernel.how, vector.dtype)
            filler = maths.constant(first, vector.dtype, vector.width)
            vector = maths.picked(vector, filler, range(size))
        while vector.width > 1:
            half = vector.width // 2
            low = maths.picked(vector, vector, range(half))
            high = maths.picked(vector, vector, range(half, 2 * half))
            vector = self._joined(low, high, how)
        return vector

    # ---- the index of the largest --------------------------------------------------

    def _argmax(self, at: list[str]) -> None:
        """Find the first largest element; NaN counts as largest, as in NumPy."""
        maths, (expr,), axis = self.maths, self.exprs, len(self.kernel.shape) - 1
        dtype, size = expr.dtype, self.kernel.shape[axis]
        if dtype.kind == "f" and 1 < size <= WIDTH:
            self._finish([self._argmax_of_vector(expr, at)], at, 1)
            return
        first = self.emitter.expression(expr, [*at, "0"], axis, 1)

        def step(index: str, carried: list[Val]) -> list[Val]:
            best, best_index = carried
            value = self.emitter.expression(expr, [*at, index], axis, 1)
            if dtype.kind == "f":
                larger = maths.compare("fcmp ugt", value, best)
                known = maths.compare("fcmp ord", best, best)
                larger = maths.binary("and", larger, known)
            else:
                larger = maths.ordered("gt", value, best)
            return [
                maths.select(larger, value, best),
                maths.select(larger, Val(index, I64, 1), best_index),
            ]

        firsts = [first, maths.constant(0, I64, 1)]
        _, index = self.text.carry(1, size, 1, firsts, step)
        self._finish([index], at, 1)

    def _argmax_of_vector(self, expr: Expr, at: list[str]) -> Val:
        """Find the first largest of elements that fit one vector."""
        maths, text = self.maths, self.text
        axis, size = len(self.kernel.shape) - 1, self.kernel.shape[-1]
        values = self.emitter.expression(expr, [*at, "0"], axis, size)
        largest = maths.splat(self._fold(values, "max"), size)
        equal = maths.compare("fcmp oeq", values, largest)
        unknown = maths.compare("fcmp uno", values, values)
        hits = maths.binary("or", equal, unknown)
        bits = text.let(f"bitcast {hits.type} {hits.name} to i{size}")
        wide = text.let(f"zext i{size} {bits} to i64")
        text.declare("declare i64 @llvm.cttz.i64(i64, i1)")
        return Val(text.let(f"call i64 @llvm.cttz.i64(i64 {wide}, i1 true)"), I64, 1)


def _identity(how: str, dtype: np.dtype) -> float:
    """Return the number that changes no total."""
    if how == "sum":
        return 0
    return -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)
