"""Kernels of their own kind: turning, running sums, scattering, pooling back."""

from __future__ import annotations

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.pointwise import BOOL
from ganglion.compiler.cpu.text import WIDTH, Val, memory_type
from ganglion.compiler.plan.kernels import Load, Loop, PoolBack, Scan, Scatter, View


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
        for lane, vector in enumerate(transposed(emitter, vectors)):
            place = [text.add(row, str(lane)), column]
            emitter.put_view(vector, kernel.target, place, 1, WIDTH)

    def one(at: list[str]) -> None:
        emitter.put_view(emitter.load_view(source, at, 1, 1), kernel.target, at, 1, 1)

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


def transposed(emitter: Emitter, rows: list[Val]) -> list[Val]:
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
        row = emitter.load(at, kernel.index.dtype, 1)
        start, exists = emitter.row_start(row, kernel.target.shape[0], kernel.row)
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
            new = emitter.or_zero(new, exists)  # nothing for a row that is not there
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
            dy = emitter.load_view(kernel.dy, here, axis, width)
            elements = emitter.expressions(list(kernel.elements), here, axis, width)
            if kernel.largest:
                largest = emitter.load_view(kernel.largest, here, axis, width)
            else:
                largest = elements[0]
                for x in elements[1:]:
                    largest = maths.extreme(largest, x, True)
            zero = maths.constant(0, dy.dtype, width)
            if kernel.above is not None:
                level = maths.constant(kernel.above, dy.dtype, width)
                over = maths.compare("fcmp ogt", largest, level)
                dy = maths.select(over, dy, zero)
            waiting = maths.constant(1, BOOL, width)
            for tap, x in zip(kernel.taps, elements, strict=True):
                to = View(kernel.dx.buffer, kernel.dx.strides, kernel.dx.offset + tap)
                same = maths.compare("fcmp oeq", x, largest)
                wins = maths.binary("and", waiting, same)
                new = maths.select(wins, dy, zero)
                if not kernel.covers:
                    old = emitter.load_view(to, here, axis, width)
                    new = maths.apply("add", [old, new], dy.dtype)
                emitter.put_view(new, to, here, axis, width)
                waiting = maths.binary("and", waiting, maths.logical_not(wins))

        emitter.lanes_of("0", str(kernel.shape[-1]), channels)

    emitter.nest(ranges, window)
    return emitter.emitted(kernel.shape[0])
