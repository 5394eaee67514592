"""A kernel under construction: memory, expressions and loops in LLVM IR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from ganglion.compiler.cpu import functions
from ganglion.compiler.cpu.text import (
    BOOL,
    I32,
    I64,
    WIDTH,
    Maths,
    Parameter,
    Position,
    Text,
    Val,
    is_known,
    lanes,
    llvm_type,
    memory_type,
    suffix,
)
from ganglion.compiler.ir.shaping import is_float
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Expr,
    Index,
    Indirect,
    Literal,
    Load,
    Shuffled,
    Uniform,
    View,
    walk,
)
from ganglion.system.records import record

Range = tuple[Position, Position]
Result = TypeVar("Result")
INVARIANT = "!invariant.load !0"  # of memory that does not change while a kernel runs


def shared_ranges(shape: Sequence[int]) -> list[Range]:
    """Return the ranges of some axes; threads share the first."""
    first: list[Range] = [("%lo", "%hi")] if shape else []
    return [*first, *((0, size) for size in shape[1:])]


@record(guarded=True)
class Emitted:
    """A kernel's text, the buffers it is called with, and its parallelism."""

    text: str
    declared: frozenset[str]
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int
    helpers: frozenset[str] = frozenset()  # definitions of functions that it calls


class Tail(NamedTuple):
    """The remainder of an axis: the number of live lanes in its vector, and a mask."""

    size: str
    mask: str


class Emitter:
    """A kernel under construction: its function and its arguments.

    Arguments are the addresses of buffers, followed by the values of parameters.
    """

    def __init__(self, parameters: int = 0, text: Text | None = None) -> None:
        self.text = text or Text("kernel", "ptr noalias %args, i64 %lo, i64 %hi")
        self.maths = Maths(self.text)
        self.buffers: list[Buffer] = []
        self.helpers: dict[str, Emitted] = {}  # functions that it calls, by name
        # Views whose values are not in memory, with functions that load them.
        self.held: dict[View, Callable[[list[str], int], Val]] = {}
        self._bases: dict[Buffer, str] = {}
        # Views to prefetch, with distances in elements.
        self.prefetched: dict[View, int] = {}
        self._parameters = parameters
        self.tail: Tail | None = None  # while emitting a masked remainder

    def base(self, buffer: Buffer) -> str:
        """Return the address of a buffer, loaded at the top of the function."""
        if buffer not in self._bases:
            if buffer not in self.buffers:
                self.buffers.append(buffer)
            number = self.buffers.index(buffer)
            slot, name = self.text.fresh("slot"), self.text.fresh("base")
            self.text.prelude += [
                f"  {slot} = getelementptr inbounds ptr, ptr %args, i64 {number}",
                f"  {name} = load ptr, ptr {slot}, align 8",
            ]
            self._bases[buffer] = name
        return self._bases[buffer]

    def address(self, buffer: Buffer, index: Position) -> str:
        """Return the address of an element of a buffer."""
        return self.text.address(self.base(buffer), memory_type(buffer.dtype), index)

    def helper(self, name: str, arguments: str) -> Emitter:
        """Return the emitter of a function that this one calls, with further arguments.

        It must be finished first, and has no buffers that are added later.
        """
        text = Text(name, f"ptr noalias %args, {arguments}")
        helper = Emitter(self._parameters, text)
        helper.buffers = self.buffers
        return helper

    def free_registers(self) -> None:
        """Call an empty function, which may use all vector registers.

        LLVM keeps constants of one loop in registers that sums of the next one need.
        """
        text = "define internal void @free_registers() noinline {\n  ret void\n}"
        self.helpers["free_registers"] = Emitted(text, frozenset(), (), 1, 1)
        self.text.do("call void @free_registers()")

    def emitted(self, parallel: int, grain: int = 1) -> Emitted:
        """Return the finished function."""
        for number in range(self._parameters):
            slot, at = f"%p{number}.at", len(self.buffers) + number
            self.text.prelude += [
                f"  {slot} = getelementptr inbounds i64, ptr %args, i64 {at}",
                f"  %p{number} = load i64, ptr {slot}, align 8",
            ]
        text, declared = self.text.finish(), frozenset(self.text.declared)
        declared = declared.union(
            *(helper.declared for helper in self.helpers.values())
        )
        helpers = frozenset(helper.text for helper in self.helpers.values())
        return Emitted(text, declared, tuple(self.buffers), parallel, grain, helpers)

    # ---- memory --------------------------------------------------------------------

    def load(self, address: str, dtype: np.dtype, width: int) -> Val:
        """Load adjacent elements."""
        kind = lanes(memory_type(dtype), width)
        if self.tail and width == WIDTH:
            name = self._masked_load(address, memory_type(dtype), dtype.itemsize)
        else:
            name = self.text.let(f"load {kind}, ptr {address}, align {dtype.itemsize}")
        if dtype == BOOL:
            zero = "0" if width == 1 else "zeroinitializer"
            name = self.text.let(f"icmp ne {kind} {name}, {zero}")
        return Val(name, dtype, width)

    def store(self, value: Val, address: str) -> None:
        """Store adjacent elements."""
        name, kind = value.name, value.type
        if value.dtype == BOOL:
            kind = lanes("i8", value.width)
            name = self.text.let(f"zext {value.type} {name} to {kind}")
        align = value.dtype.itemsize
        if self.tail and value.width == WIDTH:
            self._masked_store(name, address, memory_type(value.dtype), align)
        else:
            self.text.do(f"store {kind} {name}, ptr {address}, align {align}")

    def _masked_load(self, address: str, element: str, align: int) -> str:
        """Load the live lanes; the others are zero."""
        assert self.tail
        kind, mask = lanes(element, WIDTH), lanes("i1", WIDTH)
        function = f"llvm.masked.load.{suffix(element, WIDTH)}.p0"
        self.text.declare(f"declare {kind} @{function}(ptr, i32, {mask}, {kind})")
        return self.text.let(
            f"call {kind} @{function}(ptr {address}, i32 {align}, "
            f"{mask} {self.tail.mask}, {kind} zeroinitializer)"
        )

    def _masked_store(self, name: str, address: str, element: str, align: int) -> None:
        assert self.tail
        kind, mask = lanes(element, WIDTH), lanes("i1", WIDTH)
        function = f"llvm.masked.store.{suffix(element, WIDTH)}.p0"
        self.text.declare(f"declare void @{function}({kind}, ptr, i32, {mask})")
        self.text.do(
            f"call void @{function}({kind} {name}, ptr {address}, i32 {align}, "
            f"{mask} {self.tail.mask})"
        )

    def in_tail(self, count: str, body: Callable[[], Result]) -> Result:
        """Emit a body for the first lanes of vectors, at least one."""
        text, short = self.text, lanes("i32", WIDTH)
        narrow = Val(text.let(f"trunc i64 {count} to i32"), I32, 1)
        numbers = ", ".join(f"i32 {lane}" for lane in range(WIDTH))
        limit = self.maths.splat(narrow, WIDTH).name
        mask = text.let(f"icmp ult {short} <{numbers}>, {limit}")
        self.tail = Tail(count, mask)
        result = body()
        self.tail = None
        return result

    def _lane_offset(self, lane: int, step: int, width: int) -> str:
        """Return the offset of a lane from the first; 0 for a lane that is not live."""
        offset = self.text.times(str(lane), step)
        if lane == 0 or not self.tail or width != WIDTH:
            return offset
        is_live = self.text.let(f"icmp ugt i64 {self.tail.size}, {lane}")
        return self.text.let(f"select i1 {is_live}, i64 {offset}, i64 0")

    def load_view(self, view: View, at: list[str], vector: int, width: int) -> Val:
        """Load a view at some indices; `vector` is the axis that lanes run along."""
        if view in self.held:
            return self.held[view](at, width)
        index = self.text.affine(at, view.strides, view.offset)
        if view in self.prefetched and width > 1:
            farther = self.text.add(index, self.prefetched[view])
            self.prefetch(self.address(view.buffer, farther))
        return self._strided(view.buffer, index, view.strides[vector:], width)

    def prefetch(self, address: str, level: int = 2) -> None:
        """Prefetch a line of memory into the cache of some level."""
        self.text.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        how = f"i32 0, i32 {4 - level}, i32 1"  # for reading, locality, data
        self.text.do(f"call void @llvm.prefetch.p0(ptr {address}, {how})")

    def _strided(
        self, buffer: Buffer, index: str, strides: tuple[int, ...], width: int
    ) -> Val:
        """Load lanes whose distance is the first of some strides."""
        self.base(buffer)
        step = strides[0] if width > 1 else 0
        if step == 1:
            return self.load(self.address(buffer, index), buffer.dtype, width)
        if step == 0:
            scalar = self.load(self.address(buffer, index), buffer.dtype, 1)
            return self.maths.splat(scalar, width)
        scalars = []
        for lane in range(width):
            offset = self._lane_offset(lane, step, width)
            address = self.address(buffer, self.text.add(index, offset))
            scalars.append(self.load(address, buffer.dtype, 1))
        return self.maths.gathered(scalars)

    def store_view(
        self, value: Val, view: View, at: list[str], vector: int, width: int
    ) -> None:
        """Store into a view."""
        index = self.text.affine(at, view.strides, view.offset)
        self.base(view.buffer)
        if width == 1 or view.strides[vector] == 1:
            self.store(value, self.address(view.buffer, index))
            return
        for lane in range(width):
            step = self.text.times(str(lane), view.strides[vector])
            offset = self.text.add(index, step)
            scalar = self.maths.lane(value, lane)
            self.store(scalar, self.address(view.buffer, offset))

    # ---- expressions ---------------------------------------------------------------

    def expression(self, expr: Expr, at: list[str], vector: int, width: int) -> Val:
        """Emit an expression at some indices."""
        return self.expressions([expr], at, vector, width)[0]

    def expressions(
        self, exprs: list[Expr], at: list[str], vector: int, width: int
    ) -> list[Val]:
        """Emit expressions, with common subexpressions once."""
        return self.side_by_side(exprs, [at], vector, width)[0]

    def side_by_side(
        self, exprs: list[Expr], points: list[list[str]], vector: int, width: int
    ) -> list[list[Val]]:
        """Emit expressions at several points, interleaved op by op.

        A function is a long chain of dependent instructions: several independent chains
        hide their latency.
        """
        computed: list[dict[int, Val]] = [{} for _ in points]
        loaded: list[dict[View, Val]] = [{} for _ in points]
        for expr in walk(*exprs):
            for at, values, loads in zip(points, computed, loaded, strict=True):
                if isinstance(expr, Load):
                    if expr.view not in loads:
                        loads[expr.view] = self.load_view(expr.view, at, vector, width)
                    values[id(expr)] = loads[expr.view]
                else:
                    value = self._operation(expr, at, vector, width, values)
                    values[id(expr)] = value
        return [[values[id(expr)] for expr in exprs] for values in computed]

    def _operation(
        self, expr: Expr, at: list[str], vector: int, width: int, values: dict[int, Val]
    ) -> Val:
        if isinstance(expr, Apply):
            args = [values[id(arg)] for arg in expr.args]
            return functions.apply(self.maths, expr.op, args, expr.dtype)
        if isinstance(expr, Literal):
            if isinstance(expr.value, Parameter):
                return self._parameter(expr.value, expr.dtype, width)
            return self.maths.constant(expr.value, expr.dtype, width)
        if isinstance(expr, Index):
            return self._index(expr, at, vector, width)
        if isinstance(expr, Indirect):
            return self._indirect(expr, at, vector, width, values[id(expr.row)])
        if isinstance(expr, Uniform):
            state, element = self._random_state(expr.state), values[id(expr.element)]
            return functions.uniform(self.maths, state, element, expr.dtype)
        assert isinstance(expr, Shuffled)
        state, position = self._random_state(expr.state), values[id(expr.position)]
        return functions.shuffled(self.maths, state, position, expr.rows)

    def _random_state(self, state: Buffer) -> list[Val]:
        """Load the seed and the counter of a random state, each into 64 bits."""
        words = []
        for index in ("0", "1"):
            at = self.text.address(self.base(state), "i32", index)
            word = Val(self.text.let(f"load i32, ptr {at}, align 4"), functions.U32, 1)
            words.append(self.maths.cast(word, functions.U64))
        return words

    def _parameter(self, parameter: Parameter, dtype: np.dtype, width: int) -> Val:
        """Return a constant that is a parameter: the first bytes of its word."""
        kind = llvm_type(dtype)
        # Loaded where it is used, as a memory operand, to save a register.
        scalar = self.text.let(f"load {kind}, ptr {parameter}.at, align 8, {INVARIANT}")
        return self.maths.splat(Val(scalar, dtype, 1), width)

    def _index(self, expr: Index, at: list[str], vector: int, width: int) -> Val:
        first = Val(self.text.affine(at, expr.strides, expr.offset), I64, 1)
        index = self.maths.splat(first, width)
        step = expr.strides[vector] if width > 1 else 0
        if step != 0:
            numbers = ", ".join(f"i64 {lane}" for lane in range(width))
            steps = Val(f"<{numbers}>", I64, width)
            if step != 1:
                each = self.maths.splat(Val(str(step), I64, 1), width)
                steps = self.maths.multiply(steps, each)
            index = self.maths.add(index, steps)
        return self.maths.cast(index, expr.dtype)

    def _indirect(
        self, expr: Indirect, at: list[str], vector: int, width: int, row: Val
    ) -> Val:
        """Load from the row that an index selects; lanes may be in different rows."""
        within = self.text.affine(at, expr.within, expr.offset)
        if width == 1 or not varies(expr.row, vector):
            first = row if width == 1 else self.maths.lane(row, 0)
            start, exists = self.row_start(first, expr.rows, expr.row_size)
            index = self.text.add(start, within)
            value = self._strided(expr.table, index, expr.within[vector:], width)
            return self._or_nan(value, exists)
        scalars = []
        for lane in range(width):
            number = self.maths.lane(row, lane)
            start, exists = self.row_start(number, expr.rows, expr.row_size)
            index = self.text.add(start, within)
            offset = self._lane_offset(lane, expr.within[vector], width)
            index = self.text.add(index, offset)
            value = self.load(self.address(expr.table, index), expr.table.dtype, 1)
            scalars.append(self._or_nan(value, exists))
        return self.maths.gathered(scalars)

    def row_start(self, row: Val, rows: int, size: int) -> tuple[str, Val]:
        """Return the start of a row, and whether it exists; else that of row 0."""
        index = self.maths.cast(row, I64)
        count, zero = Val(str(rows), I64, 1), self.maths.constant(0, I64, 1)
        exists = self.maths.compare("icmp ult", index, count)
        safe = self.maths.select(exists, index, zero)
        return self.text.times(safe.name, size), exists

    def _or_nan(self, value: Val, exists: Val) -> Val:
        """Return NaN for a row that does not exist, so that the loss is NaN, too."""
        if not is_float(value.dtype):
            return value
        nan = self.maths.constant(math.nan, value.dtype, value.width)
        return self.maths.select(exists, value, nan)

    # ---- loops over axes -------------------------------------------------------------

    def nest(self, ranges: Sequence[Range], body: Callable[[list[str]], None]) -> None:
        """Emit nested loops over some ranges, the last one innermost."""

        def inside(at: list[str]) -> None:
            if len(at) == len(ranges):
                body(at)
            else:
                start, stop = ranges[len(at)]
                self.text.each(start, stop, 1, lambda index: inside([*at, index]))

        inside([])

    def pieces(self, count: int, body: Callable[[str], None]) -> Emitted:
        """Return the finished function: a loop of a body over a thread's pieces."""
        self.text.each("%lo", "%hi", 1, body)
        return self.emitted(count)

    def in_vectors(
        self,
        start: Position,
        stop: Position,
        body: Callable[[str, int], None],
        together: int = 1,
        masked: bool = False,
    ) -> None:
        """Emit a body along an axis: for several vectors together, then the remainder.

        The body gets an index and a number of elements. If the end is a parameter, the
        remainder is a masked vector, or single elements.
        """
        text, known = self.text, is_known(stop)

        def run(first: Position, width: int) -> Position:
            if known:
                end = text.rounded_down(stop, width)
            else:
                count = text.let(f"sub nsw i64 {stop}, {first}")
                end = text.add(str(first), text.rounded_down(count, width))
            text.each(first, end, width, lambda index: body(index, width))
            return end

        if together > 1:
            start = run(start, together * WIDTH)
        end = run(start, WIDTH)
        if known:
            if int(end) < int(stop):  # a narrower vector
                body(str(end), int(stop) - int(end))
        elif masked:
            count = text.let(f"sub nsw i64 {stop}, {end}")
            has_tail = text.let(f"icmp sgt i64 {count}, 0")
            vector = partial(body, str(end), WIDTH)
            text.when(has_tail, partial(self.in_tail, count, vector))
        else:
            text.each(end, stop, 1, lambda index: body(index, 1))

    def in_masked_vectors(
        self, start: Position, stop: Position, body: Callable[[str, int], None]
    ) -> None:
        """Emit a body along an axis in vectors that are all masked.

        For a long body, which is emitted only once.
        """
        text = self.text

        def vector(index: str) -> None:
            left = text.let(f"sub nsw i64 {stop}, {index}")
            full = text.let(f"icmp sgt i64 {left}, {WIDTH}")
            count = text.let(f"select i1 {full}, i64 {WIDTH}, i64 {left}")
            self.in_tail(count, partial(body, index, WIDTH))

        text.each(start, stop, WIDTH, vector)


def varies(expr: Expr, axis: int) -> bool:
    """Return whether an expression changes along an axis."""
    return any(
        (isinstance(part, Load) and part.view.strides[axis] != 0)
        or (isinstance(part, Index) and part.strides[axis] != 0)
        or (isinstance(part, Indirect) and part.within[axis] != 0)
        for part in walk(expr)
    )
