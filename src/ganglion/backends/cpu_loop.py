"""Loop kernels in LLVM IR: maps, reductions, running sums, scatters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ganglion.backends.cpu_math import BOOL, F64, Maths
from ganglion.backends.cpu_random import Random
from ganglion.backends.cpu_text import (
    WIDTH,
    Text,
    Val,
    lanes,
    llvm_type,
    memory_type,
)
from ganglion.plan.kernel import (
    Apply,
    Buffer,
    Expr,
    Index,
    Indirect,
    Literal,
    Load,
    Loop,
    PoolBack,
    Scan,
    Scatter,
    Shuffled,
    Uniform,
    View,
    walk,
)

I64 = np.dtype("int64")


@dataclass(frozen=True)
class Emitted:
    """A kernel's text, what it is called with, and how it may be cut."""

    text: str
    declared: frozenset[str]
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int


class Emitter:
    """A kernel under construction: its function, and the buffers it is called with."""

    def __init__(self, name: str = "kernel") -> None:
        self.text = Text(name, "ptr noalias %args, i64 %lo, i64 %hi")
        self.maths = Maths(self.text)
        self.random = Random(self.text, self.maths)
        self.buffers: list[Buffer] = []
        self._bases: dict[Buffer, str] = {}

    def base(self, buffer: Buffer) -> str:
        """Return the address of a buffer; loaded at the top of the function."""
        if buffer not in self._bases:
            number = len(self.buffers)
            self.buffers.append(buffer)
            slot, name = self.text.fresh("slot"), self.text.fresh("base")
            self.text.prelude += [
                f"  {slot} = getelementptr inbounds ptr, ptr %args, i64 {number}",
                f"  {name} = load ptr, ptr {slot}, align 8",
            ]
            self._bases[buffer] = name
        return self._bases[buffer]

    def emitted(self, parallel: int, grain: int = 1) -> Emitted:
        """End the function."""
        return Emitted(
            self.text.finish(),
            frozenset(self.text.declared),
            tuple(self.buffers),
            parallel,
            grain,
        )

    # ---- memory --------------------------------------------------------------------

    def load(self, address: str, dtype: np.dtype, width: int) -> Val:
        """Load neighbouring elements."""
        kind = lanes(memory_type(dtype), width)
        align = dtype.itemsize
        name = self.text.let(f"load {kind}, ptr {address}, align {align}")
        if dtype == BOOL:
            zero = "0" if width == 1 else "zeroinitializer"
            name = self.text.let(f"icmp ne {kind} {name}, {zero}")
        return Val(name, dtype, width)

    def put(self, value: Val, address: str) -> None:
        """Store neighbouring elements."""
        name, kind = value.name, value.type
        if value.dtype == BOOL:
            kind = lanes("i8", value.width)
            name = self.text.let(f"zext {value.type} {name} to {kind}")
        align = value.dtype.itemsize
        self.text.do(f"store {kind} {name}, ptr {address}, align {align}")

    def load_view(self, view: View, at: list[str], vector: int, width: int) -> Val:
        """Load a view at some indices; `vector` is the axis that lanes run along."""
        index = self.text.affine(at, view.strides, view.offset)
        return self._spread(view.buffer, index, view.strides, vector, width)

    def _spread(
        self,
        buffer: Buffer,
        index: str,
        strides: tuple[int, ...],
        vector: int,
        width: int,
    ) -> Val:
        dtype, element = buffer.dtype, memory_type(buffer.dtype)
        base = self.base(buffer)
        step = strides[vector] if width > 1 else 0
        if width > 1 and step == 1:
            address = self.text.address(base, element, index)
            return self.load(address, dtype, width)
        if step == 0:
            one = self.load(self.text.address(base, element, index), dtype, 1)
            return self.maths.splat(one, width)
        parts = []
        for lane in range(width):
            place = self.text.add(index, str(lane * step))
            parts.append(self.load(self.text.address(base, element, place), dtype, 1))
        return self.maths.gathered(parts)

    def put_view(
        self, value: Val, view: View, at: list[str], vector: int, width: int
    ) -> None:
        """Store into a view."""
        index = self.text.affine(at, view.strides, view.offset)
        element, base = memory_type(view.buffer.dtype), self.base(view.buffer)
        if width == 1 or view.strides[vector] == 1:
            self.put(value, self.text.address(base, element, index))
            return
        for lane in range(width):
            place = self.text.add(index, str(lane * view.strides[vector]))
            one = self.maths.lane(value, lane)
            self.put(one, self.text.address(base, element, place))

    # ---- expressions ---------------------------------------------------------------

    def expression(self, expr: Expr, at: list[str], vector: int, width: int) -> Val:
        """Emit an expression at some indices."""
        return self.expressions([expr], at, vector, width)[0]

    def expressions(
        self, exprs: list[Expr], at: list[str], vector: int, width: int
    ) -> list[Val]:
        """Emit expressions that share what they have in common."""
        known: dict[int, Val] = {}
        loaded: dict[View, Val] = {}
        for one in walk(*exprs):
            if isinstance(one, Load) and one.view in loaded:
                known[id(one)] = loaded[one.view]
                continue
            known[id(one)] = self._one(one, at, vector, width, known)
            if isinstance(one, Load):
                loaded[one.view] = known[id(one)]
        return [known[id(expr)] for expr in exprs]

    def _one(
        self, expr: Expr, at: list[str], vector: int, width: int, known: dict[int, Val]
    ) -> Val:
        if isinstance(expr, Load):
            return self.load_view(expr.view, at, vector, width)
        if isinstance(expr, Literal):
            return self.maths.constant(expr.value, expr.dtype, width)
        if isinstance(expr, Index):
            return self._index(expr, at, vector, width)
        if isinstance(expr, Apply):
            args = [known[id(arg)] for arg in expr.args]
            return self.maths.apply(expr.op, args, expr.dtype)
        if isinstance(expr, Indirect):
            return self._indirect(expr, at, vector, width, known[id(expr.row)])
        if isinstance(expr, Uniform):
            element = known[id(expr.element)]
            return self.random.uniform(self.base(expr.state), element, expr.dtype)
        assert isinstance(expr, Shuffled)
        position = known[id(expr.position)]
        return self.random.shuffled(self.base(expr.state), position, expr.rows)

    def _index(self, expr: Index, at: list[str], vector: int, width: int) -> Val:
        base = Val(self.text.affine(at, expr.strides, expr.offset), I64, 1)
        wide = self.maths.splat(base, width)
        if width > 1 and expr.strides[vector]:
            steps = ", ".join(f"i64 {i * expr.strides[vector]}" for i in range(width))
            wide = Val(
                self.text.let(f"add {wide.type} {wide.name}, <{steps}>"), I64, width
            )
        return self.maths.cast(wide, expr.dtype)

    def _indirect(
        self, expr: Indirect, at: list[str], vector: int, width: int, row: Val
    ) -> Val:
        """Load from the row an index names; lanes may lie in different rows."""
        within = self.text.affine(at, expr.within, expr.offset)
        same_row = width == 1 or not _varies(expr.row, vector)
        if same_row:
            first = row if width == 1 else self.maths.lane(row, 0)
            start = self.text.times(self._as_index(first), expr.row_size)
            place = self.text.add(start, within)
            return self._spread(expr.table, place, expr.within, vector, width)
        parts = []
        for lane in range(width):
            one = self._as_index(self.maths.lane(row, lane))
            start = self.text.times(one, expr.row_size)
            place = self.text.add(start, within)
            place = self.text.add(place, str(lane * expr.within[vector]))
            element = memory_type(expr.table.dtype)
            address = self.text.address(self.base(expr.table), element, place)
            parts.append(self.load(address, expr.table.dtype, 1))
        return self.maths.gathered(parts)

    def _as_index(self, value: Val) -> str:
        return self.maths.cast(value, I64).name

    # ---- loops over axes -------------------------------------------------------------

    def nest(
        self, sizes: list[tuple[str, str]], body: Callable[[list[str]], None]
    ) -> None:
        """Run a body for every place of some ranges, the last one fastest."""

        def inside(depth: int, at: list[str]) -> None:
            if depth == len(sizes):
                body(at)
                return
            start, stop = sizes[depth]

            def step(index: str, _: list[str]) -> list[str]:
                inside(depth + 1, [*at, index])
                return []

            self.text.loop(start, stop, 1, step)

        inside(0, [])

    def lanes_of(self, start: str, stop: str, body: Callable[[str, int], None]) -> None:
        """Run a body along an axis, many lanes at a time, then one by one."""
        text = self.text
        if start == "0" and stop.isdigit():
            whole = str(int(stop) // WIDTH * WIDTH)
        else:
            count = text.let(f"sub nsw i64 {stop}, {start}")
            cut = text.let(f"and i64 {count}, {-WIDTH}")
            whole = text.add(start, cut)

        def many(index: str, _: list[str]) -> list[str]:
            body(index, WIDTH)
            return []

        def single(index: str, _: list[str]) -> list[str]:
            body(index, 1)
            return []

        text.loop(start, whole, WIDTH, many)
        if whole.isdigit() and stop.isdigit():
            if int(stop) > int(whole):  # the rest is one narrower vector
                body(whole, int(stop) - int(whole))
            return
        text.loop(whole, stop, 1, single)


def _varies(expr: Expr, axis: int) -> bool:
    """Tell whether an expression changes along an axis."""
    for one in walk(expr):
        if isinstance(one, Load) and one.view.strides[axis]:
            return True
        if isinstance(one, Index) and one.strides[axis]:
            return True
        if isinstance(one, Indirect) and one.within[axis]:
            return True
    return False


def emit_loop(kernel: Loop) -> Emitted:
    """Return a loop kernel as text."""
    emitter = Emitter()
    if kernel.reduced:
        return _reduction(emitter, kernel)
    if not kernel.shape:
        _store_one(emitter, kernel, [], 0, 1)
        return emitter.emitted(1)
    return _map(emitter, kernel)


def _store_one(
    emitter: Emitter, kernel: Loop, at: list[str], vector: int, width: int
) -> None:
    exprs = [expr for expr, _ in kernel.stored]
    values = emitter.expressions(exprs, at, vector, width)
    for value, (_, view) in zip(values, kernel.stored, strict=True):
        if kernel.adds:
            old = emitter.load_view(view, at, vector, width)
            value = emitter.maths.apply("add", [old, value], value.dtype)
        emitter.put_view(value, view, at, vector, width)


def _map(emitter: Emitter, kernel: Loop) -> Emitted:
    if _turns(kernel):
        return emit_turn(emitter, kernel)
    rank = len(kernel.shape)
    last = rank - 1
    ranges = [("0", str(n)) for n in kernel.shape]
    ranges[0] = ("%lo", "%hi")
    repeats = kernel.adds and kernel.target.strides[last] == 0

    def row(at: list[str]) -> None:
        if repeats:
            emitter.nest(
                [ranges[last]],
                lambda inner: _store_one(emitter, kernel, [*at, *inner], last, 1),
            )
            return
        emitter.lanes_of(
            *ranges[last],
            lambda index, width: _store_one(emitter, kernel, [*at, index], last, width),
        )

    emitter.nest(ranges[:last], row)
    grain = 64 if rank == 1 else 1
    parallel = 1 if kernel.adds and rank == 1 else kernel.shape[0]
    if parallel == 1:
        grain = 1
    if kernel.adds and rank == 1:
        return emitter.emitted(kernel.shape[0], kernel.shape[0])
    return emitter.emitted(parallel, grain)


def _turns(kernel: Loop) -> bool:
    """Tell whether a loop does nothing but exchange rows and columns."""
    if kernel.adds or kernel.more or not isinstance(kernel.expr, Load):
        return False
    if len(kernel.shape) != 2 or min(kernel.shape) < WIDTH:
        return False
    return kernel.target.strides[1] == 1 and kernel.expr.view.strides[0] == 1


def emit_turn(emitter: Emitter, kernel: Loop) -> Emitted:
    """Exchange rows and columns, a square of vectors at a time."""
    assert isinstance(kernel.expr, Load)
    text, source = emitter.text, kernel.expr.view
    rows, columns = kernel.shape
    blocks = columns // WIDTH * WIDTH

    def square(at: list[str]) -> None:
        row, column = at
        vectors = []
        for lane in range(WIDTH):
            place = [row, text.add(column, str(lane))]
            vectors.append(emitter.load_view(source, place, 0, WIDTH))
        for lane, vector in enumerate(_transposed(emitter, vectors)):
            place = [text.add(row, str(lane)), column]
            emitter.put_view(vector, kernel.target, place, 1, WIDTH)

    def one(at: list[str]) -> None:
        _store_one(emitter, kernel, at, 1, 1)

    count = text.let("sub nsw i64 %hi, %lo")
    whole = text.add("%lo", text.let(f"and i64 {count}, {-WIDTH}"))

    def block(row: str, _: list[str]) -> list[str]:
        def across(column: str, _: list[str]) -> list[str]:
            square([row, column])
            return []

        text.loop("0", str(blocks), WIDTH, across)
        emitter.nest(
            [("0", str(WIDTH)), (str(blocks), str(columns))],
            lambda at: one([text.add(row, at[0]), at[1]]),
        )
        return []

    text.loop("%lo", whole, WIDTH, block)
    emitter.nest([(whole, "%hi"), ("0", str(columns))], one)
    return emitter.emitted(rows, WIDTH)


def _transposed(emitter: Emitter, rows: list[Val]) -> list[Val]:
    """Exchange lanes between vectors in four rounds of pairs."""
    rows = list(rows)
    step = 1
    while step < WIDTH:
        made = list(rows)
        low = [i if not i & step else WIDTH + i - step for i in range(WIDTH)]
        high = [i + step if not i & step else WIDTH + i for i in range(WIDTH)]
        for i in range(WIDTH):
            if not i & step:
                made[i] = _shuffled(emitter, rows[i], rows[i | step], low)
                made[i | step] = _shuffled(emitter, rows[i], rows[i | step], high)
        rows, step = made, step * 2
    return rows


def _shuffled(emitter: Emitter, a: Val, b: Val, order: list[int]) -> Val:
    mask = ", ".join(f"i32 {i}" for i in order)
    name = emitter.text.let(
        f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{WIDTH} x i32> <{mask}>"
    )
    return Val(name, a.dtype, WIDTH)


def _reduction(emitter: Emitter, kernel: Loop) -> Emitted:
    outer = len(kernel.outer)
    ranges = [("0", str(n)) for n in kernel.outer]
    if outer:
        ranges[0] = ("%lo", "%hi")
    across = outer > 0 and _suits_lanes(kernel, outer - 1)
    if kernel.how == "argmax":
        emitter.nest(ranges, lambda at: _find(emitter, kernel, at))
    elif across:
        _reduce_across(emitter, kernel, ranges)
    else:
        emitter.nest(ranges, lambda at: _reduce_along(emitter, kernel, at))
    parallel = kernel.outer[0] if outer else 1
    grain = WIDTH if across and outer == 1 else 1
    return emitter.emitted(parallel, grain)


def _suits_lanes(kernel: Loop, axis: int) -> bool:
    """Tell whether neighbours along an axis of the result lie side by side."""
    if kernel.shape[axis] < 8 or any(v.strides[axis] != 1 for _, v in kernel.stored):
        return False
    for one in walk(*(expr for expr, _ in kernel.stored)):
        if isinstance(one, Load) and one.view.strides[axis] not in (0, 1):
            return False
        if isinstance(one, (Indirect, Uniform, Shuffled)):
            return False
    return True


def _wide(kernel: Loop, dtype: np.dtype) -> np.dtype:
    """Return the type to add up in: float64, so that long sums keep their digits."""
    return F64 if kernel.how == "sum" and dtype.kind == "f" else dtype


def _firsts(emitter: Emitter, kernel: Loop, width: int) -> list[Val]:
    """Return what each total starts from."""
    made = []
    for expr, _ in kernel.stored:
        dtype = _wide(kernel, expr.dtype)
        if kernel.how == "sum":
            start: float = 0
        else:
            start = -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)
        made.append(emitter.maths.constant(start, dtype, width))
    return made


def _joined(emitter: Emitter, kernel: Loop, total: Val, value: Val) -> Val:
    value = emitter.maths.cast(value, total.dtype)
    if kernel.how == "sum":
        return emitter.maths.apply("add", [total, value], total.dtype)
    return emitter.maths.extreme(total, value, True)


def _joined_at(
    emitter: Emitter, kernel: Loop, at: list[str], vector: int, totals: list[Val]
) -> list[Val]:
    exprs = [expr for expr, _ in kernel.stored]
    values = emitter.expressions(exprs, at, vector, totals[0].width)
    pairs = zip(totals, values, strict=True)
    return [_joined(emitter, kernel, total, value) for total, value in pairs]


def _carry(
    emitter: Emitter,
    span: tuple[int, int, int],
    totals: list[Val],
    body: Callable[[str, list[Val]], list[Val]],
) -> list[Val]:
    """Carry totals through a loop over (start, stop, step)."""

    def step(index: str, carried: list[str]) -> list[str]:
        inner = [Val(n, t.dtype, t.width) for n, t in zip(carried, totals, strict=True)]
        return [one.name for one in body(index, inner)]

    start, stop, by = span
    kinds = [(t.type, t.name) for t in totals]
    ends = emitter.text.loop(str(start), str(stop), by, step, kinds)
    return [Val(n, t.dtype, t.width) for n, t in zip(ends, totals, strict=True)]


def _inner_nest(
    emitter: Emitter,
    kernel: Loop,
    axes: range,
    at: list[str],
    totals: list[Val],
    body: Callable[[list[str], list[Val]], list[Val]],
) -> list[Val]:
    """Carry totals through some reduced axes."""
    if not axes:
        return body(at, totals)
    return _carry(
        emitter,
        (0, kernel.shape[axes[0]], 1),
        totals,
        lambda index, inner: _inner_nest(
            emitter, kernel, axes[1:], [*at, index], inner, body
        ),
    )


def _finish(
    emitter: Emitter, kernel: Loop, totals: list[Val], at: list[str], width: int
) -> None:
    vector = len(kernel.outer) - 1
    for total, (_, view) in zip(totals, kernel.stored, strict=True):
        value = emitter.maths.cast(total, view.buffer.dtype)
        emitter.put_view(value, view, at, vector, width)


def _reduce_across(
    emitter: Emitter, kernel: Loop, ranges: list[tuple[str, str]]
) -> None:
    """Lanes are neighbouring results; each adds up its own column."""
    axis = len(kernel.outer) - 1
    inner = range(axis + 1, len(kernel.shape))

    def row(at: list[str]) -> None:
        def column(index: str, width: int) -> None:
            here = [*at, index]
            totals = _inner_nest(
                emitter,
                kernel,
                inner,
                here,
                _firsts(emitter, kernel, width),
                lambda places, now: _joined_at(emitter, kernel, places, axis, now),
            )
            _finish(emitter, kernel, totals, here, width)

        emitter.lanes_of(*ranges[axis], column)

    emitter.nest(ranges[:axis], row)


def _reduce_along(emitter: Emitter, kernel: Loop, at: list[str]) -> None:
    """Lanes are neighbours along the last reduced axis, joined at the end."""
    last = len(kernel.shape) - 1
    size = kernel.shape[last]
    whole = size // WIDTH * WIDTH
    inner = range(len(kernel.outer), last)

    def through(start: int, stop: int, width: int) -> list[Val]:
        firsts = _firsts(emitter, kernel, width)
        if start == stop:
            return firsts
        return _inner_nest(
            emitter,
            kernel,
            inner,
            at,
            firsts,
            lambda here, totals: _carry(
                emitter,
                (start, stop, width),
                totals,
                lambda index, now: _joined_at(
                    emitter, kernel, [*here, index], last, now
                ),
            ),
        )

    many, single = through(0, whole, WIDTH), through(whole, size, 1)
    totals = [
        _joined(emitter, kernel, _fold(emitter, kernel, wide), one)
        for wide, one in zip(many, single, strict=True)
    ]
    _finish(emitter, kernel, totals, at, 1)


def _fold(emitter: Emitter, kernel: Loop, many: Val) -> Val:
    """Join the lanes of a vector, halves first: always in the same order."""
    parts = [emitter.maths.lane(many, i) for i in range(many.width)]
    while len(parts) > 1:
        half = len(parts) // 2
        pairs = zip(parts[:half], parts[half:], strict=True)
        parts = [_joined(emitter, kernel, a, b) for a, b in pairs]
    return parts[0]


def _find(emitter: Emitter, kernel: Loop, at: list[str]) -> None:
    """Find the first largest element; NaN counts as largest, as in NumPy."""
    maths, dtype = emitter.maths, kernel.expr.dtype
    axis = len(kernel.shape) - 1
    first = emitter.expression(kernel.expr, [*at, "0"], axis, 1)

    def step(index: str, carried: list[str]) -> list[str]:
        best, place = Val(carried[0], dtype, 1), Val(carried[1], I64, 1)
        value = emitter.expression(kernel.expr, [*at, index], axis, 1)
        if dtype.kind == "f":
            larger = maths.compare("fcmp ugt", value, best)
            known = maths.compare("fcmp ord", best, best)
            larger = maths.binary("and", larger, known)
        else:
            larger = maths.compare(
                "icmp sgt" if dtype.kind == "i" else "icmp ugt", value, best
            )
        here = Val(index, I64, 1)
        return [
            maths.select(larger, value, best).name,
            maths.select(larger, here, place).name,
        ]

    kinds = [(llvm_type(dtype), first.name), ("i64", "0")]
    ends = emitter.text.loop("1", str(kernel.shape[axis]), 1, step, kinds)
    _finish(emitter, kernel, [Val(ends[1], I64, 1)], at, 1)


def emit_scan(kernel: Scan) -> Emitted:
    """Return a running sum as text."""
    emitter = Emitter()
    rank = len(kernel.shape)
    ranges = [("0", str(n)) for n in kernel.shape[:-1]]
    if rank > 1:
        ranges[0] = ("%lo", "%hi")
    dtype = kernel.source.buffer.dtype

    def row(at: list[str]) -> None:
        def step(index: str, carried: list[str]) -> list[str]:
            here = [*at, index]
            value = emitter.load_view(kernel.source, here, 0, 1)
            old = Val(carried[0], dtype, 1)
            total = emitter.maths.apply("add", [old, value], dtype)
            emitter.put_view(total, kernel.target, here, 0, 1)
            return [total.name]

        zero = emitter.maths.constant(0, dtype, 1)
        stop = str(kernel.shape[-1])
        emitter.text.loop("0", stop, 1, step, [(zero.type, zero.name)])

    emitter.nest(ranges, row)
    return emitter.emitted(kernel.parallel)


def emit_scatter(kernel: Scatter) -> Emitted:
    """Return an adding of rows as text."""
    emitter = Emitter()
    text = emitter.text
    dtype = kernel.target.dtype

    def update(number: list[str]) -> None:
        at = text.address(
            emitter.base(kernel.index), memory_type(kernel.index.dtype), number[0]
        )
        row = emitter.maths.cast(emitter.load(at, kernel.index.dtype, 1), I64)
        start = text.times(row.name, kernel.row)
        source = text.times(number[0], kernel.row)

        def some(index: str, width: int) -> None:
            element = memory_type(dtype)
            to = text.address(
                emitter.base(kernel.target), element, text.add(start, index)
            )
            frm = text.address(
                emitter.base(kernel.updates), element, text.add(source, index)
            )
            old, new = emitter.load(to, dtype, width), emitter.load(frm, dtype, width)
            emitter.put(emitter.maths.apply("add", [old, new], dtype), to)

        emitter.lanes_of("0", str(kernel.row), some)

    emitter.nest([("0", str(kernel.count))], update)
    return emitter.emitted(1)


def emit_pool_back(kernel: PoolBack) -> Emitted:
    """Return the gradient of a pooling by maximum as text."""
    emitter = Emitter()
    maths, axis = emitter.maths, len(kernel.shape) - 1
    ranges = [("%lo", "%hi"), *(("0", str(n)) for n in kernel.shape[1:-1])]

    def window(at: list[str]) -> None:
        def channels(index: str, width: int) -> None:
            here = [*at, index]
            y = emitter.load_view(kernel.y, here, axis, width)
            dy = emitter.load_view(kernel.dy, here, axis, width)
            zero = maths.constant(0, dy.dtype, width)
            waiting = maths.constant(1, BOOL, width)
            for tap in kernel.taps:
                x_view = View(kernel.x.buffer, kernel.x.strides, kernel.x.offset + tap)
                to = View(kernel.dx.buffer, kernel.dx.strides, kernel.dx.offset + tap)
                x = emitter.load_view(x_view, here, axis, width)
                wins = maths.binary("and", waiting, maths.compare("fcmp oeq", x, y))
                new = maths.select(wins, dy, zero)
                if not kernel.covers:
                    old = emitter.load_view(to, here, axis, width)
                    new = maths.apply("add", [old, new], dy.dtype)
                emitter.put_view(new, to, here, axis, width)
                waiting = maths.binary("and", waiting, maths.logical_not(wins))

        emitter.lanes_of("0", str(kernel.shape[-1]), channels)

    emitter.nest(ranges, window)
    return emitter.emitted(kernel.shape[0])
