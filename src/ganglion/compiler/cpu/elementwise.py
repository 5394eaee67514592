"""Emit loops as LLVM IR: maps, transposes and reductions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeGuard

import numpy as np

from ganglion.compiler.cpu.emitter import (
    Emitted,
    Emitter,
    Range,
    shared_ranges,
    varies,
)
from ganglion.compiler.cpu.text import (
    BOOL,
    F32,
    F64,
    I64,
    WIDTH,
    Position,
    Val,
    is_known,
    vector_widths,
)
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import (
    FUNCTIONS,
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


# Functions that are long dependent chains of vector instructions, without branches.
_CHAINS = FUNCTIONS - {"divide", "sqrt", "sin", "cos"}


def _is_chain(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.op in _CHAINS and expr.dtype == F32


def prefetched_rows(kernel: Loop) -> dict[View, int]:
    """Return the views to prefetch in software, each with a distance in elements.

    They read several rows of an array at once, about a page apart, which is too far for
    hardware prefetchers: the next row is prefetched.
    """
    views = {expr.view for expr in kernel.leaves if _in_rows(expr)}
    if not views:
        return {}
    taps = Counter((view.buffer, view.strides) for view in views)
    window = kernel.how == "max" and len(kernel.outer) > 1
    rows = {}
    for view in views:
        least = CPU.page_bytes // 2 / view.buffer.dtype.itemsize
        steps = [stride for stride in view.strides if stride >= least]
        if steps and (window or taps[view.buffer, view.strides] > 1):
            rows[view] = min(steps)
    return rows


class Facts(NamedTuple):
    """Properties of a loop's sizes, on which its text depends."""

    transposes: bool  # a large matrix, and does nothing else
    is_narrow: bool  # sums are short enough to be computed in their own type
    fits_vector: bool  # the elements of an argmax fit into a vector
    prefetched: Mapping[View, int]  # with distances

    @staticmethod
    def of(kernel: Loop) -> Facts:
        """Return the facts of a loop whose sizes are known."""
        shape = kernel.shape
        count = math.prod(shape[len(kernel.outer) :])
        return Facts(
            _transposes(kernel),
            kernel.how == "sum" and count <= CPU.narrow_sum,
            kernel.how == "argmax" and 1 < shape[-1] <= WIDTH,
            prefetched_rows(kernel),
        )


def _transposes(kernel: Loop) -> bool:
    (expr, target), *more = kernel.outputs
    if kernel.adds or kernel.reduced or more or not isinstance(expr, Load):
        return False
    if len(kernel.shape) != 2 or min(kernel.shape) < WIDTH:
        return False
    return target.strides[1] == 1 and expr.view.strides[0] == 1


def suits_lanes(kernel: Loop) -> bool:
    """Return whether a reduction is vectorized along its last outer axis.

    It is if its results and operands are contiguous along that axis.
    """
    axis = len(kernel.outer) - 1
    if axis < 0 or any(view.strides[axis] != 1 for _, view in kernel.outputs):
        return False
    size = kernel.shape[axis]
    if is_known(size) and size < CPU.lanes_worth_filling:  # parameters are larger
        return False
    return not any(
        is_gathered(expr, axis) or isinstance(expr, (Uniform, Shuffled))
        for expr in kernel.leaves
    )


def is_gathered(expr: Expr, axis: int) -> bool:
    """Return whether lanes along an axis are loaded by a gather."""
    if isinstance(expr, Load):
        return expr.view.strides[axis] not in (0, 1)
    if isinstance(expr, Indirect):
        return expr.within[axis] not in (0, 1) or varies(expr.row, axis)
    return False


# Ops that trap for a divisor of zero, which masked-off lanes have.
_QUOTIENTS = {"divide", "remainder"}


def fails_at_zero(expr: Expr) -> bool:
    """Return whether an expression is an integer division."""
    is_quotient = isinstance(expr, Apply) and expr.op in _QUOTIENTS
    return is_quotient and expr.dtype.kind != "f"


class LoopText:
    """A loop kernel under construction; its sizes may be parameters."""

    def __init__(
        self, kernel: Loop, facts: Facts | None = None, emitter: Emitter | None = None
    ) -> None:
        self.kernel, self.emitter = kernel, emitter or Emitter()
        self.text, self.maths = self.emitter.text, self.emitter.maths
        self.exprs, self.views = kernel.exprs, [view for _, view in kernel.outputs]
        self.facts = facts or Facts.of(kernel)
        self.emitter.prefetched = dict(self.facts.prefetched)
        self._can_mask = not any(map(fails_at_zero, walk(*self.exprs)))

    def emit(self) -> Emitted:
        """Return the text of the loop."""
        if self.kernel.reduced:
            return self._reduction()
        if not self.kernel.shape:
            self._store([[]], 0, 1)
            return self.emitter.emitted(1)
        return self._transpose() if self.facts.transposes else self._map()

    # ---- maps ----------------------------------------------------------------------

    def _store(self, points: list[list[str]], vector: int, width: int) -> None:
        computed = self.emitter.side_by_side(self.exprs, points, vector, width)
        for at, values in zip(points, computed, strict=True):
            for value, view in zip(values, self.views, strict=True):
                if self.kernel.adds:
                    old = self.emitter.load_view(view, at, vector, width)
                    value = self.maths.add(old, value)
                self.emitter.store_view(value, view, at, vector, width)

    def _map(self) -> Emitted:
        kernel, parallel = self.kernel, self.kernel.shape[0]
        ranges = shared_ranges(kernel.shape)
        self.map_over([], ranges)
        grain = 1
        if len(ranges) == 1 and parallel != 1:
            grain = parallel if kernel.adds else CPU.map_grain
        return self.emitter.emitted(parallel, grain)

    def map_over(self, before: list[str], ranges: list[Range]) -> None:
        """Emit the computation over `ranges` of the last axes, at indices `before`."""
        kernel, axis, last = self.kernel, len(ranges) - 1, len(before + ranges) - 1
        repeats = kernel.adds and self.views[0].strides[last] == 0
        has_chains = not kernel.adds and any(map(_is_chain, walk(*self.exprs)))
        interleaved = CPU.chains if has_chains else 1
        exprs, can_mask = kernel.every_expr, self._can_mask
        can_mask = can_mask and all(view.strides[last] == 1 for view in self.views)
        masked = can_mask and not any(is_gathered(expr, last) for expr in exprs)
        draws = any(isinstance(expr, (Uniform, Shuffled)) for expr in exprs)
        once = can_mask and draws and not is_known(ranges[axis][1])

        def row(at: list[str]) -> None:
            at = [*before, *at]
            if repeats:
                self.emitter.nest(
                    ranges[axis:], lambda inner: self._store([[*at, *inner]], last, 1)
                )
                return

            def store(index: str, width: int) -> None:
                starts = range(0, width, WIDTH)
                points = [[*at, self.text.add(index, start)] for start in starts]
                self._store(points, last, min(width, WIDTH))

            if once:
                self.emitter.in_masked_vectors(*ranges[axis], store)
            else:
                self.emitter.in_vectors(*ranges[axis], store, interleaved, masked)

        self.emitter.nest(ranges[:axis], row)

    def _transpose(self) -> Emitted:
        """Emit a transpose by squares of vectors."""
        (expr,), (target,) = self.exprs, self.views
        emitter, text = self.emitter, self.text
        assert isinstance(expr, Load)
        source, (rows, columns) = expr.view, self.kernel.shape
        across = text.rounded_down(columns, WIDTH)

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
        down = text.add("%lo", text.rounded_down(count, WIDTH))

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
        across = suits_lanes(kernel)
        if kernel.how == "argmax":
            self.emitter.nest(ranges, self._argmax)
        elif across:
            self._reduce_across(ranges)
        else:
            self.emitter.nest(ranges, self._reduce_along)
        grain = WIDTH if across and len(ranges) == 1 else 1
        return self.emitter.emitted(kernel.outer[0] if ranges else 1, grain)

    def _initial(self, width: int, narrow: bool = False) -> list[Val]:
        """Return the initial totals: of float sums in float64, unless narrow."""
        totals = []
        for expr in self.exprs:
            wide = self.kernel.how == "sum" and expr.dtype.kind == "f" and not narrow
            dtype = F64 if wide else expr.dtype
            identity = _identity(self.kernel.how, dtype)
            totals.append(self.maths.constant(identity, dtype, width))
        return totals

    def _joined(self, total: Val, value: Val, how: str = "") -> Val:
        value = self.maths.cast(value, total.dtype)
        if (how or self.kernel.how) == "sum":
            return self.maths.add(total, value)
        return self.maths.extreme(total, value, True)

    def _joined_at(self, at: list[str], vector: int, totals: list[Val]) -> list[Val]:
        """Combine totals with the values at some indices, products by fma."""
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
        """Return the factors of a product that is summed in its own type."""
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
        """Emit a reduction whose lanes are adjacent results."""
        axis = len(ranges) - 1
        size = self.kernel.shape[axis]
        count = max(1, CPU.column_accumulators // len(self.views))
        count = 1 << (count.bit_length() - 1)  # vectors of a panel: a power of two

        def row(at: list[str]) -> None:
            if axis == 0 or not is_known(size):
                self.emitter.in_vectors(
                    *ranges[axis],
                    lambda index, width: self._columns(at, index, vector_widths(width)),
                    together=1 if axis == 0 else count,
                    masked=self._can_mask,
                )
                return
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
        """Reduce some vectors of columns in a single pass over the reduced axes."""
        axis, each = len(self.kernel.outer) - 1, len(self.views)
        columns = [self.text.add(first, v * WIDTH) for v in range(len(widths))]

        def initial(narrow: bool = False) -> list[Val]:
            return [total for w in widths for total in self._initial(w, narrow)]

        def add_up(inner: list[str], totals: list[Val]) -> list[Val]:
            sums = []
            for v, column in enumerate(columns):
                of_column = totals[v * each : (v + 1) * each]
                sums += self._joined_at([*at, column, *inner], axis, of_column)
            return sums

        totals = self._sums(initial, add_up)
        for v, (column, width) in enumerate(zip(columns, widths, strict=True)):
            self._finish(totals[v * each : (v + 1) * each], [*at, column], width)

    def _sums(
        self,
        initial: Callable[[bool], list[Val]],
        add_up: Callable[[list[str], list[Val]], list[Val]],
    ) -> list[Val]:
        """Carry totals through the reduced axes.

        Short runs are summed in their own type, and the runs' sums in a wider type, so
        that long sums are accurate and conversions are few.
        """
        kernel, text, run = self.kernel, self.text, CPU.narrow_sum
        reduced = range(len(kernel.outer), len(kernel.shape))
        if kernel.how != "sum" or self.facts.is_narrow:
            return self._nested(reduced, [], initial(True), add_up)
        size = kernel.shape[reduced[-1]]
        middle = text.rounded_down(size, run)

        def runs(inner: list[str], totals: list[Val]) -> list[Val]:
            def add_run(start: str, stop: str, totals: list[Val]) -> list[Val]:
                sums = text.carry(
                    start,
                    stop,
                    1,
                    initial(True),
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
            return add_run(str(middle), str(size), totals) if middle != size else totals

        return self._nested(reduced[:-1], [], initial(False), runs)

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
        """Emit a reduction whose lanes are adjacent elements, combined at the end."""
        size = self.kernel.shape[-1]
        if not is_known(size):
            self._finish(self._along_unknown(at, str(size)), at, 1)
            return
        middle, remainder = size // WIDTH * WIDTH, size % WIDTH
        parts = [self._through(at, 0, middle, WIDTH)] if middle else []
        parts += [self._through(at, middle, size, remainder)] if remainder else []
        totals, *more = parts or [self._initial(1)]  # the axis may be empty
        for other in more:
            totals = list(map(self._joined, totals, other))
        self._finish(totals, at, 1)

    def _through(
        self, at: list[str], start: Position, stop: Position, width: int
    ) -> list[Val]:
        """Reduce a part of the last axis, with this many lanes."""
        last = len(self.kernel.shape) - 1

        def vectors(outer: list[str], totals: list[Val]) -> list[Val]:
            return self.text.carry(
                start,
                stop,
                width,
                totals,
                lambda index, now: self._joined_at([*outer, index], last, now),
            )

        initial = self._initial(width, self.facts.is_narrow)
        reduced = range(len(self.kernel.outer), last)
        totals = self._nested(reduced, at, initial, vectors)
        return [self._fold(total) for total in totals]

    def _along_unknown(self, at: list[str], size: str) -> list[Val]:
        """Reduce an axis whose length is a parameter.

        Complete vectors or the remainder may be empty, and are then ignored.
        """
        text, maths = self.text, self.maths
        middle = text.rounded_down(size, WIDTH)
        count = text.let(f"and i64 {size}, {WIDTH - 1}")
        full = self._through(at, 0, middle, WIDTH)
        has_tail = text.let(f"icmp ne i64 {count}, 0")
        once = text.let(f"zext i1 {has_tail} to i64")
        only = Val(text.let(f"icmp eq i64 {middle}, 0"), BOOL, 1)

        def joined(_: str, totals: list[Val]) -> list[Val]:
            parts = self.emitter.in_tail(
                count, lambda: self._through(at, middle, size, WIDTH)
            )
            return [
                maths.select(only, part, self._joined(total, part))
                for total, part in zip(totals, parts, strict=True)
            ]

        return text.carry(0, once, 1, full, joined)

    def _fold(self, vector: Val, how: str = "") -> Val:
        """Combine the lanes of a vector, halves first: in a fixed order."""
        maths, tail = self.maths, self.emitter.tail
        size = 1 << (vector.width - 1).bit_length()
        filler = maths.constant(
            _identity(how or self.kernel.how, vector.dtype), vector.dtype, vector.width
        )
        if size > vector.width:
            vector = maths.picked(vector, filler, range(size))
        if tail:
            live = Val(tail.mask, BOOL, vector.width)
            vector = maths.select(live, vector, filler)
        while vector.width > 1:
            half = vector.width // 2
            low = maths.picked(vector, vector, range(half))
            high = maths.picked(vector, vector, range(half, 2 * half))
            vector = self._joined(low, high, how)
            if tail:  # the upper half may have no live lane
                is_live = self.text.let(f"icmp ugt i64 {tail.size}, {half}")
                vector = maths.select(Val(is_live, BOOL, 1), vector, low)
        return vector

    # ---- argmax --------------------------------------------------------------------

    def _argmax(self, at: list[str]) -> None:
        """Find the index of the first maximum; NaN counts as largest, as in NumPy."""
        maths, (expr,), axis = self.maths, self.exprs, len(self.kernel.shape) - 1
        dtype, size = expr.dtype, self.kernel.shape[axis]
        if dtype.kind == "f" and self.facts.fits_vector:
            find = partial(self._argmax_of_vector, expr, at)
            if is_known(size):
                largest = find(size)
            else:
                largest = self.emitter.in_tail(str(size), partial(find, WIDTH))
            self._finish([largest], at, 1)
            return
        first = self.emitter.expression(expr, [*at, "0"], axis, 1)

        def step(index: str, carried: list[Val]) -> list[Val]:
            best, best_index = carried
            value = self.emitter.expression(expr, [*at, index], axis, 1)
            if dtype.kind == "f":
                larger = maths.compare("fcmp ugt", value, best)
                is_number = maths.compare("fcmp ord", best, best)
                larger = maths.binary("and", larger, is_number)
            else:
                larger = maths.ordered("gt", value, best)
            return [
                maths.select(larger, value, best),
                maths.select(larger, Val(index, I64, 1), best_index),
            ]

        initial = [first, maths.constant(0, I64, 1)]
        _, index = self.text.carry(1, size, 1, initial, step)
        self._finish([index], at, 1)

    def _argmax_of_vector(self, expr: Expr, at: list[str], size: int) -> Val:
        """Find the index of the first maximum of elements that fit into a vector."""
        maths, text, axis = self.maths, self.text, len(self.kernel.shape) - 1
        values = self.emitter.expression(expr, [*at, "0"], axis, size)
        largest = maths.splat(self._fold(values, "max"), size)
        equal = maths.compare("fcmp oeq", values, largest)
        is_nan = maths.compare("fcmp uno", values, values)
        hits = maths.binary("or", equal, is_nan)
        if self.emitter.tail:
            live = Val(self.emitter.tail.mask, BOOL, size)
            hits = maths.binary("and", hits, live)
        bits = text.let(f"bitcast {hits.type} {hits.name} to i{size}")
        wide = text.let(f"zext i{size} {bits} to i64")
        text.declare("declare i64 @llvm.cttz.i64(i64, i1)")
        return Val(text.let(f"call i64 @llvm.cttz.i64(i64 {wide}, i1 true)"), I64, 1)


def _identity(how: str, dtype: np.dtype) -> float:
    """Return the identity element of a reduction."""
    if how == "sum":
        return 0
    return -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)
