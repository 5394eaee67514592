"""Reductions in CUDA C: sums, maxima and their places, always in the same order.

A block has `across` results side by side and `along` threads for each of them, which
take every `along`-th element; a long reduction is also cut over blocks, and the last of
them to finish adds up the parts, in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cuda import pointwise
from ganglion.compiler.cuda.elementwise import (
    MOST_BLOCKS,
    emit_epilogues,
    lanes_of,
    store_lanes,
)
from ganglion.compiler.cuda.epilogue import FusedKernel, Root, lanes_allowed
from ganglion.compiler.cuda.expressions import Places, evaluate
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
    root,
)
from ganglion.compiler.plan.kernels import Indirect, Load, Loop, walk

F64 = np.dtype("float64")
WARP = 32  # threads that see each other's registers


@dataclass(frozen=True)
class Tiling:
    """How a reduction is shared: threads beside each other, along, and blocks."""

    across: int
    along: int
    splits: int
    lanes_across: bool  # neighbouring threads have neighbouring results
    lanes: int = 1  # results of one thread


def choose_tiling(kernel: Loop, fused: FusedKernel, spec: GpuSpec) -> Tiling:
    """Return how to share a reduction, by where its elements lie."""
    results = math.prod(kernel.outer)
    length = math.prod(kernel.shape[len(kernel.outer) :])
    lanes_across = bool(kernel.outer) and _beside(kernel)
    lanes = _lanes(kernel, fused, length, spec) if lanes_across else 1
    results //= lanes
    along = 1
    most = THREADS
    if lanes_across:  # a line of memory at a time, or a part of it
        across = min(power_of_two(results), 32 // lanes)
        while across > 8 and results < across * spec.processors:
            across //= 2
        most = THREADS // across
    while (
        along < most
        and along * TUNING.reduced_per_thread < length
        and results * along < spec.threads
    ):
        along *= 2
    while along < most and results * along < THREADS and along < length:
        along *= 2
    across = THREADS // along
    tiles = -(-results // across)
    splits = 1
    if kernel.how != "argmax":
        while (
            tiles * splits * 2 <= 4 * spec.processors
            and along * splits * 2 * TUNING.reduced_per_split <= length
        ):
            splits *= 2
    return Tiling(across, along, splits, lanes_across, lanes)


def _lanes(kernel: Loop, fused: FusedKernel, length: int, spec: GpuSpec) -> int:
    """Return how many neighbouring results a thread has, where there is much to add."""
    much = length >= 64 or math.prod(kernel.outer) >= spec.threads
    if (
        kernel.how == "argmax"
        or math.prod(kernel.shape) < TUNING.several_results_elements
        or not much
    ):
        return 1
    widest = max(view.buffer.dtype.itemsize for _, view in kernel.stored)
    most = 4 if len(kernel.stored) <= 4 and widest <= 4 else 2
    return lanes_allowed(fused, kernel.outer[-1], most)


def _width(kind: str) -> int:
    """Return the room that a total needs: more where it has a place, too."""
    return 24 if "Best" in kind else 8


def _beside(kernel: Loop) -> bool:
    """Return whether what neighbouring results add up lies side by side in memory."""
    outer, last = len(kernel.outer) - 1, len(kernel.shape) - 1
    votes = 0
    for one in walk(*(expr for expr, _ in kernel.stored)):
        strides = None
        if isinstance(one, Load):
            strides = one.view.strides
        elif isinstance(one, Indirect):
            strides = one.within
        if strides is not None and any(strides[len(kernel.outer) :]):
            votes += (strides[outer] == 1) - (strides[last] == 1)
    return votes > 0 and kernel.shape[outer] > 1


def emit_reduction(fused: FusedKernel, spec: GpuSpec, rows: int = 0) -> Emitted:
    """Return a reduction and its epilogues as text, of some rows where it says so."""
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    return _Reduction(fused, kernel, spec, rows).emitted()


class _Reduction:
    def __init__(
        self, fused: FusedKernel, kernel: Loop, spec: GpuSpec, rows: int
    ) -> None:
        self.each = math.prod(kernel.outer[1:])
        if rows:
            kernel = replace(kernel, shape=(rows, *kernel.shape[1:]))
        self.fused, self.kernel = fused, kernel
        self.cut = choose_tiling(kernel, fused, spec)
        if rows:  # one block does it all: in one turn, if it can
            most = max(THREADS // power_of_two(math.prod(kernel.outer)), 1)
            along = min(self.cut.along, most)
            self.cut = Tiling(THREADS // along, along, 1, self.cut.lanes_across)
        self.results = math.prod(kernel.outer) // self.cut.lanes
        self.length = math.prod(kernel.shape[len(kernel.outer) :])
        self.tiles = -(-self.results // self.cut.across)
        wide = is_wide(fused.buffers(), self.results, self.length)
        self.body = Body(wide, row_wise=rows > 0)
        self.types = [self._type(expr.dtype) for expr, _ in kernel.stored]
        self.totals = [f"total{i}" for i in range(len(self.types))]

    def _type(self, dtype: np.dtype) -> str:
        if self.kernel.how == "argmax":
            return f"Best<{c_type(dtype)}>"
        # Sums in float64, so that long ones keep their digits.
        wide = self.kernel.how == "sum" and dtype.kind == "f"
        return c_type(F64 if wide else dtype)

    def _first(self, dtype: np.dtype) -> str:
        how = self.kernel.how
        if how == "argmax":
            return "{0, -1}"
        if how == "sum":
            return "0"
        if dtype.kind == "f":
            return number(-math.inf, dtype)
        return number(int(np.iinfo(dtype).min), dtype)

    def _join(self, total: str, value: str) -> str:
        how = self.kernel.how
        if how == "argmax":
            return f"take_better({total}, {value});"
        if how == "sum":
            return f"{total} += {value};"
        return f"{total} = larger({total}, {value});"

    def _each_lane(self, line: str) -> None:
        """Append a line for each of a thread's results; LANE stands for its number."""
        self.body.lines.append("#pragma unroll")
        head = f"for (int lane = 0; lane < {self.cut.lanes}; lane++)"
        self.body.do(f"{head} {line.replace('LANE', 'lane')}")

    def _start(self) -> None:
        for total, (expr, _) in zip(self.totals, self.kernel.stored, strict=True):
            first = self._first(expr.dtype)
            if first.startswith("{"):
                self.body.do(f"{total}[0].place = -1;")
            else:
                self._each_lane(f"{total}[LANE] = {first};")

    def emitted(self) -> Emitted:
        body, cut = self.body, self.cut
        number_of = f"tile < {self.tiles * cut.splits}"
        if cut.lanes_across:
            body.do(f"const int x = THREAD % {cut.across}, g = THREAD / {cut.across};")
        else:
            body.do(f"const int x = THREAD / {cut.along}, g = THREAD % {cut.along};")
        with body.block(f"for (int tile = block; {number_of}; tile += blocks)"):
            body.do(f"const {body.index} i = tile / {cut.splits} * {cut.across} + x;")
            for kind, name in zip(self.types, self.totals, strict=True):
                body.do(f"{kind} {name}[{cut.lanes}];")
            self._start()
            with body.block(f"if (i < {self.results})"):
                self._accumulate()
            self._fold()
            self._join_splits()
            wanted = f"g == 0 && i < {self.results}"
            with body.block(f"if ({wanted}{' && last' * (cut.splits > 1)})"):
                self._finish()
        blocks = min(self.tiles * cut.splits, MOST_BLOCKS)
        return body.emitted(blocks, self._shared())

    def _shared(self) -> int:
        groups = self.cut.along // self._near
        if groups == 1:
            return 16
        widths = sum(map(_width, self.types))
        return max(widths * groups * self.cut.lanes * self.cut.across, 16)

    def _outer(self) -> list[str]:
        """Name the places of a thread's first result."""
        body, outer = self.body, self.kernel.outer
        if self.cut.lanes == 1:
            return body.in_rows(body.places("i", outer))
        at = body.places("i", (*outer[:-1], outer[-1] // self.cut.lanes))
        at[-1] = body.let(body.index, f"{at[-1]} * {self.cut.lanes}", "i")
        return at

    def _accumulate(self) -> None:
        body, kernel, cut = self.body, self.kernel, self.cut
        outer = self._outer()
        start, step = "g", cut.along * cut.splits
        if cut.splits > 1:
            start = f"tile % {cut.splits} * {cut.along} + g"
        together = 4 if len(self.types) <= 2 else 2
        if body.row_wise:  # few threads: each must ask for much at a time
            together = 16
        if kernel.how == "sum":
            self._add_runs(outer, start, step, together)
            return
        head = f"for ({body.index} r = {start}; r < {self.length}; r += {step})"
        if self.length <= step:  # one turn at most
            head = f"if ({body.index} r = {start}; r < {self.length})"
        else:
            body.lines.append(f"#pragma unroll {together}")
        with body.block(head):
            self._take(outer, self.totals)

    def _add_runs(self, outer: list[str], start: str, step: int, run: int) -> None:
        """Add up short runs as they are, and only those in float64."""
        body, lanes = self.body, self.cut.lanes
        run = min(run, -(-self.length // step))
        whole = self.length % (step * run) == 0
        turns = -(-self.length // (step * run))
        # What is near needs no more at a time, and long code takes long to be fetched.
        body.lines.append(f"#pragma unroll {1 if body.row_wise else 4}")
        with body.block(f"for (int turn = 0; turn < {turns}; turn++)"):
            body.do(f"const {body.index} r0 = {start} + turn * {step * run};")
            runs = [body.fresh("run") for _ in self.totals]
            for name, (expr, _) in zip(runs, self.kernel.stored, strict=True):
                body.do(f"{c_type(expr.dtype)} {name}[{lanes}] = {{}};")
            body.lines.append("#pragma unroll")
            with body.block(f"for (int u = 0; u < {run}; u++)"):
                body.do(f"const {body.index} r = r0 + u * {step};")
                with body.block("" if whole else f"if (r < {self.length})"):
                    self._take(outer, runs)
            for total, name in zip(self.totals, runs, strict=True):
                self._each_lane(f"{total}[LANE] += {name}[LANE];")

    def _take(self, outer: list[str], totals: Sequence[str]) -> None:
        """Join the elements at a place `r` to some totals."""
        body, kernel, lanes = self.body, self.kernel, self.cut.lanes
        inner = body.places("r", kernel.shape[len(kernel.outer) :], "r")
        exprs = [expr for expr, _ in kernel.stored]
        at = [*outer, *inner]
        if lanes > 1:
            values = lanes_of(body, exprs, at, lanes, {}, len(outer) - 1)
            for total, value in zip(totals, values, strict=True):
                self._each_lane(self._join(f"{total}[LANE]", f"{value}[LANE]"))
            return
        values = evaluate(body, exprs, Places(at))
        for kind, total, value in zip(self.types, totals, values, strict=True):
            if kernel.how == "argmax":
                body.do(f"{kind} found = {{{value}, r}};")
                value = "found"
            body.do(self._join(f"{total}[0]", value))

    @property
    def _unit(self) -> int:
        """How far threads of the same result are apart."""
        return self.cut.across if self.cut.lanes_across else 1

    @property
    def _near(self) -> int:
        """How many threads of a warp have the same result."""
        return min(self.cut.along, max(WARP // self._unit, 1))

    def _fold(self) -> None:
        """Join what the threads along a result have; its first thread gets it."""
        body, unit, near = self.body, self._unit, self._near
        if near > 1:
            body.lines.append("#pragma unroll")
            head = f"for (int away = {unit * near // 2}; away >= {unit}; away /= 2)"
            with body.block(head):
                for kind, total in zip(self.types, self.totals, strict=True):
                    other = (
                        f"const {kind} other = from_lane_above({total}[LANE], away);"
                    )
                    joined = self._join(f"{total}[LANE]", "other")
                    self._each_lane(f"{{ {other} {joined} }}")
        groups = self.cut.along // near
        if groups > 1:
            self._fold_groups(groups)

    def _fold_groups(self, groups: int) -> None:
        """Join what the warps along a result have, in their order."""
        body, cut = self.body, self.cut
        size, at, names = groups * cut.lanes * cut.across, 0, []
        for number_of, kind in enumerate(self.types):
            names.append(f"group{number_of}")
            body.do(f"{kind}* {names[-1]} = ({kind}*)(shared_bytes + {at * size});")
            at += _width(kind)
        with body.block(f"if (g % {self._near} == 0)"):
            first = f"g / {self._near} * {cut.lanes * cut.across} + x"
            for name, total in zip(names, self.totals, strict=True):
                place = f"{first} + LANE * {cut.across}"
                self._each_lane(f"{name}[{place}] = {total}[LANE];")
        body.do("BARRIER;")
        with body.block("if (g == 0)"):
            body.lines.append("#pragma unroll")
            with body.block(f"for (int other = 1; other < {groups}; other++)"):
                for name, total in zip(names, self.totals, strict=True):
                    place = f"(other * {cut.lanes} + LANE) * {cut.across} + x"
                    joined = self._join(f"{total}[LANE]", f"{name}[{place}]")
                    self._each_lane(joined)
        body.do("BARRIER;")

    def _join_splits(self) -> None:
        """Let the last block that comes to an end join the parts of all."""
        body, cut = self.body, self.cut
        if cut.splits == 1:
            return
        counters = body.scratch(self.tiles, "uint32")
        count = self.results * cut.lanes
        parts = []
        for kind in self.types:
            dtype = {"double": "float64", "float": "float32"}.get(kind)
            dtype = dtype or {"int": "int32", "long long": "int64"}.get(kind, "uint64")
            parts.append(body.scratch(cut.splits * count, dtype))
        with body.block(f"if (g == 0 && i < {self.results})"):
            place = f"tile % {cut.splits} * {count} + i * {cut.lanes}"
            for part, total in zip(parts, self.totals, strict=True):
                self._each_lane(f"{part}[{place} + LANE] = {total}[LANE];")
        body.do(
            f"const bool last = am_last({counters} + tile / {cut.splits}, "
            f"{cut.splits});"
        )
        with body.block("if (last)"):
            self._start()
            with body.block(f"if (i < {self.results})"):
                body.lines.append(f"#pragma unroll {max(8 // cut.lanes, 2)}")
                head = f"for (int s = g; s < {cut.splits}; s += {cut.along})"
                with body.block(head):
                    for part, total in zip(parts, self.totals, strict=True):
                        value = f"{part}[s * {count} + i * {cut.lanes} + LANE]"
                        self._each_lane(self._join(f"{total}[LANE]", value))
            self._fold()

    def _finish(self) -> None:
        body, kernel, lanes = self.body, self.kernel, self.cut.lanes
        places = self._outer()
        held: dict[Root, str] = {}
        for total, (expr, view) in zip(self.totals, kernel.stored, strict=True):
            dtype = computed(view.buffer.dtype)
            kind = c_type(dtype)
            name = body.fresh("out")
            body.do(f"{kind} {name}[{lanes}];")
            if kernel.how == "argmax":
                self._each_lane(f"{name}[LANE] = ({kind}){total}[LANE].place;")
            else:
                wide = F64 if kernel.how == "sum" else expr.dtype
                wide = wide if expr.dtype.kind == "f" else expr.dtype
                value = pointwise.cast(f"{total}[LANE]", wide, dtype)
                self._each_lane(f"{name}[LANE] = {value};")
            held[root(view.buffer)] = name if lanes > 1 else f"{name}[0]"
            if root(view.buffer) in self.fused.unstored:
                continue
            if lanes > 1:
                store_lanes(body, name, view, places, lanes)
            else:
                body.do(f"{body.element(view, places)} = {name}[0];")
        flat = "i" if lanes == 1 else f"i * {lanes}"
        if body.row_wise:
            flat = f"row0 * {self.each} + i"
        emit_epilogues(body, self.fused, flat, lanes, held)
