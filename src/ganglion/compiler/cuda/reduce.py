"""Emit reductions as CUDA C: sums, maxima and argmaxima, in a deterministic order.

A block computes `across` adjacent results with `along` threads each, which take every
`along`-th element. A long reduction is also split over several blocks, the last of
which to finish combines their partial results in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cuda.elementwise import (
    MOST_BLOCKS,
    Bindings,
    cast,
    emit_epilogues,
    evaluate,
    evaluate_vectors,
    store_vector,
    vector_width,
)
from ganglion.compiler.cuda.fusion import BlockRows, FusedKernel
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    c_type,
    computed,
    is_wide,
    number,
    power_of_two,
)
from ganglion.compiler.plan.kernels import BufferKey, Indirect, Load, Loop, walk

F64 = np.dtype("float64")
WARP = 32  # threads
_JOINED = {
    "argmax": "take_better({total}, {value});",
    "sum": "{total} += {value};",
    "max": "{total} = larger({total}, {value});",
}


@dataclass(frozen=True)
class Tiling:
    """How a reduction is divided among threads and blocks."""

    across: int  # results of a block, or vectors of them
    along: int  # threads of each result
    splits: int  # blocks of each result
    beside: bool  # whether adjacent threads have adjacent results
    width: int = 1  # adjacent results of a thread
    each: int = 1  # of the threads of a result, that a single one stands for

    @property
    def threads(self) -> int:
        """The number of threads that there really are for a result."""
        return self.along // self.each

    @property
    def stride(self) -> int:
        """The distance between threads of the same result."""
        return self.across if self.beside else 1

    @property
    def per_warp(self) -> int:
        """How many threads of a warp have the same result."""
        return min(self.threads, max(WARP // self.stride, 1))


def choose_tiling(kernel: Loop, fused: FusedKernel, spec: GpuSpec) -> Tiling:
    """Return how to divide a reduction, depending on the memory layout it reads."""
    length = math.prod(kernel.shape[len(kernel.outer) :])
    beside = bool(kernel.outer) and _reads_beside(kernel)
    width = _results_per_thread(kernel, fused, length, spec) if beside else 1
    results = math.prod(kernel.outer) // width
    along, most_along, splits = 1, THREADS, 1
    if beside:  # threads of adjacent results read a line of memory, or part of it
        across = min(power_of_two(results), 32 // width)
        while across > 8 and results < across * spec.processors:
            across //= 2
        most_along = THREADS // across
    useful = min(-(-length // TUNING.reduced_per_thread), most_along)
    while along < useful and results * along < spec.threads:
        along *= 2
    while along < most_along and results * along < THREADS and along < length:
        along *= 2
    across = THREADS // along
    tiles = -(-results // across)
    if kernel.how != "argmax":
        most_splits = length // (along * TUNING.reduced_per_split)
        while splits * 2 <= most_splits and tiles * splits * 2 <= 4 * spec.processors:
            splits *= 2
    return Tiling(across, along, splits, beside, width)


def _results_per_thread(
    kernel: Loop, fused: FusedKernel, length: int, spec: GpuSpec
) -> int:
    """Return how many adjacent results a thread computes: several if all are busy."""
    is_large = math.prod(kernel.shape) >= TUNING.several_results_elements
    is_busy = length >= 64 or math.prod(kernel.outer) >= spec.threads
    if kernel.how == "argmax" or not is_large or not is_busy:
        return 1
    itemsize = max(view.buffer.dtype.itemsize for _, view in kernel.outputs)
    widest = 4 if len(kernel.outputs) <= 4 and itemsize <= 4 else 2
    return vector_width(fused, kernel.outer[-1], widest)


def _tiling_of_rows(
    tiling: Tiling, kernel: Loop, fused: FusedKernel, rows: BlockRows
) -> Tiling:
    """Return how a single block divides a reduction of its rows.

    With more rows than for a single model, a thread computes several adjacent results,
    which share loads, and stands for several of the threads of a result, in the order
    of their sums.
    """
    alone = math.prod(rows.of(kernel.shape, rows.alone)[: len(kernel.outer)])
    most = max(THREADS // power_of_two(alone), 1)
    along = min(tiling.along, most)
    of_rows = Tiling(THREADS // along, along, 1, tiling.beside)
    results = math.prod(rows.of(kernel.shape)[: len(kernel.outer)])
    if rows.count <= rows.alone or kernel.how == "argmax" or results <= of_rows.across:
        return of_rows
    if len(kernel.outer) > len(rows.axes):
        of_rows = replace(of_rows, width=vector_width(fused, kernel.outer[-1]))
    if tiling.beside or along > WARP:
        return of_rows
    threads = along
    while threads > 1 and results // of_rows.width * threads > THREADS:
        threads //= 2
    return replace(of_rows, across=THREADS // threads, each=along // threads)


def _reads_beside(kernel: Loop) -> bool:
    """Return whether most inputs of adjacent results are adjacent in memory."""
    outer, last = len(kernel.outer) - 1, len(kernel.shape) - 1
    votes = 0
    for expr in walk(*kernel.exprs):
        if isinstance(expr, Load):
            strides = expr.view.strides
        elif isinstance(expr, Indirect):
            strides = expr.within
        else:
            continue
        if any(strides[len(kernel.outer) :]):
            votes += (strides[outer] == 1) - (strides[last] == 1)
    return votes > 0 and kernel.shape[outer] > 1


def emit_reduction(
    fused: FusedKernel, spec: GpuSpec, rows: BlockRows | None = None
) -> Emitted:
    """Return the text of a reduction and its epilogues, of some rows if given."""
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    return _Reduction(fused, kernel, spec, rows).emitted()


class _Reduction:
    def __init__(
        self, fused: FusedKernel, kernel: Loop, spec: GpuSpec, rows: BlockRows | None
    ) -> None:
        whole = of_one_model = kernel  # whose order of summation many models keep
        if rows:
            of_one_model = replace(kernel, shape=rows.of(kernel.shape, rows.alone))
            kernel = replace(kernel, shape=rows.of(kernel.shape))
        self.rows = rows
        self.fused, self.kernel = fused, kernel
        tiling = choose_tiling(of_one_model, fused, spec)
        if rows:
            tiling = _tiling_of_rows(tiling, whole, fused, rows)
        self.tiling = tiling
        self.results = math.prod(kernel.outer) // tiling.width
        self.length = math.prod(kernel.shape[len(kernel.outer) :])
        self.tiles = -(-self.results // tiling.across)
        wide = is_wide(fused.buffers(), self.results, self.length)
        axes = rows.axes if rows else ()
        self.body = Body(wide, axes, fused.in_block)
        self.exprs = kernel.exprs
        self.dtypes = [self._total_dtype(expr.dtype) for expr in self.exprs]
        argmax = kernel.how == "argmax"
        self.types = [
            f"Best<{c_type(dtype)}>" if argmax else c_type(dtype)
            for dtype in self.dtypes
        ]
        self.totals = [f"total{i}" for i in range(len(self.types))]

    def _total_dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the type of a total: floats are summed in float64."""
        return F64 if self.kernel.how == "sum" and dtype.kind == "f" else dtype

    def _join(self, total: str, value: str) -> str:
        return _JOINED[self.kernel.how].format(total=total, value=value)

    def _each_lane(self, line: str) -> None:
        """Append a loop over a thread's results, numbered by `lane`."""
        self.body.unroll()
        self.body.do(f"for (int lane = 0; lane < {self.tiling.width}; lane++) {line}")

    def _join_each(self, value: Callable[[int], str]) -> None:
        """Combine each total, by its number, with a value."""
        for i, total in enumerate(self.totals):
            self._each_lane(self._join(f"{total}[lane]", value(i)))

    def _declare(self, totals: Sequence[str]) -> None:
        for kind, name in zip(self.types, totals, strict=True):
            self.body.do(f"{kind} {name}[{self.tiling.width}];")
        self._start(totals)

    def _start(self, totals: Sequence[str]) -> None:
        for total, dtype in zip(totals, self.dtypes, strict=True):
            if self.kernel.how == "argmax":
                self.body.do(f"{total}[0].index = -1;")
                continue
            first = "0"
            if self.kernel.how == "max":
                is_float = dtype.kind == "f"
                least = -math.inf if is_float else int(np.iinfo(dtype).min)
                first = number(least, dtype)
            self._each_lane(f"{total}[lane] = {first};")

    def emitted(self) -> Emitted:
        body, tiling, thread = self.body, self.tiling, self.body.thread
        if tiling.beside:
            x, g = f"{thread} % {tiling.across}", f"{thread} / {tiling.across}"
        else:
            x, g = f"{thread} / {tiling.threads}", f"{thread} % {tiling.threads}"
        body.do(f"const int x = {x}, g = {g};")
        tiles = self.tiles * tiling.splits
        with body.block(f"for (int tile = block; tile < {tiles}; tile += blocks)"):
            first = f"tile / {tiling.splits} * {tiling.across}"
            body.do(f"const {body.index} i = {first} + x;")
            self._declare(self.totals)
            with body.block(f"if (i < {self.results})"):
                self._accumulate()
            self._fold()
            if tiling.splits > 1:
                self._join_splits()
            finishes = f"g == 0 && i < {self.results}"
            with body.block(f"if ({finishes}{' && last' * (tiling.splits > 1)})"):
                self._finish()
        shared = len(self.types) * self._shared_each()
        if tiling.splits > 1:
            shared = max(shared, 16)  # of `am_last`
        return body.emitted(min(tiles, MOST_BLOCKS), shared)

    def _shared_each(self) -> int:
        """Return the bytes of shared memory in which warps exchange a total."""
        tiling = self.tiling
        groups = tiling.threads // tiling.per_warp
        size = 24 if self.kernel.how == "argmax" else 8
        return size * groups * tiling.width * tiling.across if groups > 1 else 0

    def _outer(self) -> list[str]:
        """Declare the indices of a thread's first result."""
        body, outer, width = self.body, self.kernel.outer, self.tiling.width
        if width == 1:
            return body.in_rows(body.indices("i", outer))
        at = body.indices("i", (*outer[:-1], outer[-1] // width))
        at[-1] = body.let(body.index, f"{at[-1]} * {width}", "i")
        return body.in_rows(at)

    def _accumulate(self) -> None:
        outer = self._outer()
        if self.tiling.each > 1:
            self._accumulate_for(outer, 0, 1, self.totals)
        else:
            self._accumulate_from(outer, "g", self.totals)

    def _accumulate_for(
        self, outer: list[str], first: int, apart: int, totals: Sequence[str]
    ) -> None:
        """Accumulate for every `apart`-th thread of a result; fold as they would."""
        each, body = self.tiling.each, self.body
        if apart == each:
            self._accumulate_from(outer, f"g + {first * self.tiling.threads}", totals)
            return
        self._accumulate_for(outer, first, 2 * apart, totals)
        others = [body.fresh("other") for _ in totals]
        self._declare(others)
        self._accumulate_for(outer, first + apart, 2 * apart, others)
        for total, other in zip(totals, others, strict=True):
            self._each_lane(self._join(f"{total}[lane]", f"{other}[lane]"))

    def _accumulate_from(
        self, outer: list[str], start: str, totals: Sequence[str]
    ) -> None:
        """Accumulate the elements of a thread of a result, beginning at `start`."""
        body, tiling = self.body, self.tiling
        step = tiling.along * tiling.splits
        if tiling.splits > 1:
            start = f"tile % {tiling.splits} * {tiling.along} + g"
        unrolled = 4 if len(self.types) <= 2 else 2
        if body.row_wise:  # few threads: each needs many loads in flight
            unrolled = 16
        if self.kernel.how == "sum":
            self._add_runs(outer, start, step, unrolled, totals)
            return
        head = f"for ({body.index} r = {start}; r < {self.length}; r += {step})"
        if self.length <= step:  # at most a single iteration
            head = f"if ({body.index} r = {start}; r < {self.length})"
        else:
            body.unroll(unrolled)
        with body.block(head):
            self._take(outer, totals)

    def _add_runs(
        self, outer: list[str], start: str, step: int, run: int, totals: Sequence[str]
    ) -> None:
        """Append sums of short runs in their own type, and of those in float64."""
        body, width = self.body, self.tiling.width
        run = min(run, -(-self.length // step))
        count = -(-self.length // (step * run))
        exact = self.length % (step * run) == 0
        # Row-wise blocks read shared memory: unrolling would only lengthen the code.
        unrolled = 1 if body.row_wise else 4
        with body.unrolled(f"for (int turn = 0; turn < {count}; turn++)", unrolled):
            body.do(f"const {body.index} r0 = {start} + turn * {step * run};")
            runs = [body.fresh("run") for _ in totals]
            for name, expr in zip(runs, self.exprs, strict=True):
                body.do(f"{c_type(expr.dtype)} {name}[{width}] = {{}};")
            with body.unrolled(f"for (int u = 0; u < {run}; u++)"):
                body.do(f"const {body.index} r = r0 + u * {step};")
                with body.block("" if exact else f"if (r < {self.length})"):
                    self._take(outer, runs)
            for total, name in zip(totals, runs, strict=True):
                self._each_lane(f"{total}[lane] += {name}[lane];")

    def _take(self, outer: list[str], totals: Sequence[str]) -> None:
        """Combine some totals with the elements at index `r`."""
        body, kernel, width = self.body, self.kernel, self.tiling.width
        at = [*outer, *body.indices("r", kernel.shape[len(kernel.outer) :], "r")]
        if width > 1:
            values = evaluate_vectors(body, self.exprs, at, width, {}, len(outer) - 1)
            for total, value in zip(totals, values, strict=True):
                self._each_lane(self._join(f"{total}[lane]", f"{value}[lane]"))
            return
        values = evaluate(body, self.exprs, Bindings(at))
        for kind, total, value in zip(self.types, totals, values, strict=True):
            if kernel.how == "argmax":
                body.do(f"{kind} found = {{{value}, r}};")
                value = "found"
            body.do(self._join(f"{total}[0]", value))

    def _fold(self) -> None:
        """Combine the totals of a result's threads in the first of them."""
        body, stride, per_warp = self.body, self.tiling.stride, self.tiling.per_warp
        if per_warp > 1:
            away = f"int away = {stride * per_warp // 2}"
            with body.unrolled(f"for ({away}; away >= {stride}; away /= 2)"):
                for kind, total in zip(self.types, self.totals, strict=True):
                    other = f"from_lane_above({total}[lane], away)"
                    joined = self._join(f"{total}[lane]", "other")
                    self._each_lane(f"{{ const {kind} other = {other}; {joined} }}")
        groups = self.tiling.threads // per_warp
        if groups > 1:
            self._fold_groups(groups)

    def _fold_groups(self, groups: int) -> None:
        """Combine the totals of a result's warps, in order."""
        body, across, width = self.body, self.tiling.across, self.tiling.width
        names = [f"group{i}" for i in range(len(self.types))]
        for i, (name, kind) in enumerate(zip(names, self.types, strict=True)):
            offset = i * self._shared_each()
            body.do(f"{kind}* {name} = ({kind}*)(shared_bytes + {offset});")
        with body.block(f"if (g % {self.tiling.per_warp} == 0)"):
            first = f"g / {self.tiling.per_warp} * {width * across} + x"
            for name, total in zip(names, self.totals, strict=True):
                self._each_lane(f"{name}[{first} + lane * {across}] = {total}[lane];")
        body.do("BARRIER;")
        with (
            body.block("if (g == 0)"),
            body.unrolled(f"for (int other = 1; other < {groups}; other++)"),
        ):
            offset_of = f"(other * {width} + lane) * {across} + x"
            self._join_each(lambda i: f"{names[i]}[{offset_of}]")
        body.do("BARRIER;")

    def _join_splits(self) -> None:
        """Let the last block to finish combine the partial results of all blocks."""
        body, splits, width = self.body, self.tiling.splits, self.tiling.width
        counters = body.scratch(self.tiles, "uint32")
        count = self.results * width
        parts = [body.scratch(splits * count, _scratch_type(t)) for t in self.dtypes]
        with body.block(f"if (g == 0 && i < {self.results})"):
            offset = f"tile % {splits} * {count} + i * {width}"
            for part, total in zip(parts, self.totals, strict=True):
                self._each_lane(f"{part}[{offset} + lane] = {total}[lane];")
        counter = f"{counters} + tile / {splits}"
        body.do(f"const bool last = am_last({counter}, {splits});")
        with body.block("if (last)"):
            self._start(self.totals)
            head = f"for (int s = g; s < {splits}; s += {self.tiling.along})"
            with (
                body.block(f"if (i < {self.results})"),
                body.unrolled(head, max(8 // width, 2)),
            ):
                self._join_each(
                    lambda i: f"{parts[i]}[s * {count} + i * {width} + lane]"
                )
            self._fold()

    def _finish(self) -> None:
        body, kernel, width = self.body, self.kernel, self.tiling.width
        at = self._outer()
        values: dict[BufferKey, str] = {}
        totals = zip(self.totals, self.dtypes, kernel.outputs, strict=True)
        for total, total_dtype, (_, view) in totals:
            dtype = computed(view.buffer.dtype)
            name = body.array(c_type(dtype), width, "out")
            if kernel.how == "argmax":
                value = f"({c_type(dtype)}){total}[lane].index"
            else:
                value = cast(f"{total}[lane]", total_dtype, dtype)
            self._each_lane(f"{name}[lane] = {value};")
            values[view.buffer.key] = name if width > 1 else f"{name}[0]"
            if view.buffer.key in self.fused.unstored:
                continue
            if width > 1:
                store_vector(body, name, view, at, width)
            else:
                body.do(f"{body.element(view, at)} = {name}[0];")
        flat = "i" if width == 1 else f"i * {width}"
        if self.rows:
            flat = f"row0 * {math.prod(kernel.outer) // self.rows.count} + {flat}"
        emit_epilogues(body, self.fused, flat, width, values)


def _scratch_type(dtype: np.dtype) -> str:
    """Return a type of scratch memory that is at least as large as a total's."""
    plain = ("float64", "float32", "int32", "int64")
    return dtype.name if dtype.name in plain else "uint64"
