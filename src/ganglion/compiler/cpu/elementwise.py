"""Loop kernels in LLVM IR: maps and reductions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from ganglion.compiler.cpu.emitter import I64, Emitted, Emitter
from ganglion.compiler.cpu.pointwise import F64
from ganglion.compiler.cpu.scan_scatter import emit_turn
from ganglion.compiler.cpu.text import WIDTH, Val, llvm_type
from ganglion.compiler.plan.kernels import (
    Apply,
    Expr,
    Indirect,
    Load,
    Loop,
    Shuffled,
    Uniform,
    View,
    children,
    walk,
)

PAGE = 4096  # bytes
RUN = 32  # elements that are added up in their own type
ACCUMULATORS = 8  # vectors of totals that a walk over the rows carries


def emit_loop(kernel: Loop) -> Emitted:
    """Return a loop kernel as text."""
    emitter = Emitter()
    emitter.ahead = _ahead(kernel)
    if kernel.reduced:
        return _reduction(emitter, kernel)
    if not kernel.shape:
        _store_one(emitter, kernel, [], 0, 1)
        return emitter.emitted(1)
    return _map(emitter, kernel)


def _ahead(kernel: Loop) -> dict[View, int]:
    """Return the views that walk through several rows of an array at once.

    Each row is a page or so, and the processor does not look ahead beyond a page: what
    comes below is asked for.
    """
    views = {one.view for one in walk(*kernel.exprs) if _in_rows(one)}
    taps = Counter((view.buffer, view.strides) for view in views)
    window = kernel.how == "max" and len(kernel.shape) - kernel.reduced > 1
    found = {}
    for view in views:
        steps = [s for s in view.strides if s * view.buffer.dtype.itemsize >= PAGE // 2]
        if steps and (window or taps[view.buffer, view.strides] > 1):
            found[view] = min(steps)
    return found


def _in_rows(one: Expr) -> TypeGuard[Load]:
    return isinstance(one, Load) and one.view.buffer.nbytes > 16 * PAGE


def _store_one(
    emitter: Emitter, kernel: Loop, at: list[str], vector: int, width: int
) -> None:
    exprs = kernel.exprs
    values = emitter.expressions(exprs, at, vector, width)
    for value, (_, view) in zip(values, kernel.outputs, strict=True):
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
    """Return whether a loop does nothing but exchange rows and columns."""
    if kernel.adds or len(kernel.outputs) > 1 or not isinstance(kernel.expr, Load):
        return False
    if len(kernel.shape) != 2 or min(kernel.shape) < WIDTH:
        return False
    return kernel.target.strides[1] == 1 and kernel.expr.view.strides[0] == 1


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
    """Return whether neighbours along an axis of the result lie side by side."""
    if kernel.shape[axis] < 8 or any(v.strides[axis] != 1 for _, v in kernel.outputs):
        return False
    for one in walk(*kernel.exprs):
        if isinstance(one, Load) and one.view.strides[axis] not in (0, 1):
            return False
        if isinstance(one, (Indirect, Uniform, Shuffled)):
            return False
    return True


def _wide(kernel: Loop, dtype: np.dtype) -> np.dtype:
    """Return the type to add up in: float64, so that long sums keep their digits."""
    return F64 if kernel.how == "sum" and dtype.kind == "f" else dtype


def _firsts(
    emitter: Emitter, kernel: Loop, width: int, narrow: bool = False
) -> list[Val]:
    """Return what each total starts from."""
    made = []
    for expr, _ in kernel.outputs:
        dtype = expr.dtype if narrow else _wide(kernel, expr.dtype)
        made.append(emitter.maths.constant(_start(kernel, dtype), dtype, width))
    return made


def _start(kernel: Loop, dtype: np.dtype) -> float:
    """Return the number that changes no total."""
    if kernel.how == "sum":
        return 0
    return -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _joined(emitter: Emitter, kernel: Loop, total: Val, value: Val) -> Val:
    value = emitter.maths.cast(value, total.dtype)
    if kernel.how == "sum":
        return emitter.maths.apply("add", [total, value], total.dtype)
    return emitter.maths.extreme(total, value, True)


def _joined_at(
    emitter: Emitter, kernel: Loop, at: list[str], vector: int, totals: list[Val]
) -> list[Val]:
    factors = [
        _factors(kernel, expr, total)
        for (expr, _), total in zip(kernel.outputs, totals, strict=True)
    ]
    flat = [one for some in factors for one in some]
    values = iter(emitter.expressions(flat, at, vector, totals[0].width))
    made = []
    for total, some in zip(totals, factors, strict=True):
        value = next(values)
        if len(some) == 1:
            made.append(_joined(emitter, kernel, total, value))
        else:
            made.append(emitter.maths.fma(value, next(values), total))
    return made


def _factors(kernel: Loop, expr: Expr, total: Val) -> tuple[Expr, ...]:
    """Return what is multiplied, if products are added up in their own type."""
    if kernel.how != "sum" or expr.dtype.kind != "f" or total.dtype != expr.dtype:
        return (expr,)
    is_product = isinstance(expr, Apply) and expr.op == "multiply"
    return children(expr) if is_product else (expr,)


def _carry(
    emitter: Emitter,
    span: tuple[int | str, int | str, int],
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


def _finish(
    emitter: Emitter, kernel: Loop, totals: list[Val], at: list[str], width: int
) -> None:
    vector = len(kernel.outer) - 1
    for total, (_, view) in zip(totals, kernel.outputs, strict=True):
        value = emitter.maths.cast(total, view.buffer.dtype)
        emitter.put_view(value, view, at, vector, width)


def _reduce_across(
    emitter: Emitter, kernel: Loop, ranges: list[tuple[str, str]]
) -> None:
    """Lanes are neighbouring results; each adds up its own column."""
    axis = len(kernel.outer) - 1
    size = kernel.shape[axis]

    def row(at: list[str]) -> None:
        if axis == 0:  # which columns, is known only when it runs
            emitter.lanes_of(
                *ranges[axis],
                lambda index, width: _columns(emitter, kernel, at, index, [width]),
            )
            return
        many = max(1, ACCUMULATORS // len(kernel.outputs))
        vectors = _widths(size)
        whole = 0 if len(vectors) <= many else size // (WIDTH * many) * WIDTH * many

        def panel(index: str, _: list[str]) -> list[str]:
            _columns(emitter, kernel, at, index, [WIDTH] * many)
            return []

        emitter.text.loop("0", str(whole), WIDTH * many, panel)
        if whole < size:
            _columns(emitter, kernel, at, str(whole), _widths(size - whole))

    emitter.nest(ranges[:axis], row)


def _widths(size: int) -> list[int]:
    """Cut neighbours into vectors.

    >>> _widths(40)
    [16, 16, 8]
    """
    return [WIDTH] * (size // WIDTH) + [size % WIDTH] * bool(size % WIDTH)


def _columns(
    emitter: Emitter, kernel: Loop, at: list[str], first: str, widths: list[int]
) -> None:
    """Reduce some vectors of columns in one walk over the reduced axes."""
    axis, each = len(kernel.outer) - 1, len(kernel.outputs)
    places = [emitter.text.add(first, str(v * WIDTH)) for v in range(len(widths))]

    def firsts(narrow: bool = False) -> list[Val]:
        return [t for w in widths for t in _firsts(emitter, kernel, w, narrow)]

    def add_up(inner: list[str], totals: list[Val]) -> list[Val]:
        made = []
        for v, place in enumerate(places):
            own = totals[v * each : (v + 1) * each]
            made += _joined_at(emitter, kernel, [*at, place, *inner], axis, own)
        return made

    totals = _sums(emitter, kernel, firsts, add_up)
    for v, (place, width) in enumerate(zip(places, widths, strict=True)):
        own = totals[v * each : (v + 1) * each]
        _finish(emitter, kernel, own, [*at, place], width)


def _sums(
    emitter: Emitter,
    kernel: Loop,
    firsts: Callable[[bool], list[Val]],
    add_up: Callable[[list[str], list[Val]], list[Val]],
) -> list[Val]:
    """Carry totals through the reduced axes.

    Short runs are added up as they are; their sums in a wider type, so that the digits
    of long ones are kept and converting costs little.
    """
    reduced = range(len(kernel.outer), len(kernel.shape))
    if kernel.how != "sum" or math.prod(kernel.shape[a] for a in reduced) <= RUN:
        return _nested(emitter, kernel, reduced, [], firsts(True), add_up)

    def runs(inner: list[str], totals: list[Val]) -> list[Val]:
        size = kernel.shape[reduced[-1]]
        whole = size // RUN * RUN

        def run(start: str, stop: str, now: list[Val]) -> list[Val]:
            short = _carry(
                emitter,
                (start, stop, 1),
                firsts(True),
                lambda index, carried: add_up([*inner, index], carried),
            )
            pairs = zip(now, short, strict=True)
            return [_joined(emitter, kernel, total, one) for total, one in pairs]

        totals = _carry(
            emitter,
            (0, whole, RUN),
            totals,
            lambda start, now: run(start, emitter.text.add(start, str(RUN)), now),
        )
        return run(str(whole), str(size), totals) if whole < size else totals

    return _nested(emitter, kernel, reduced[:-1], [], firsts(False), runs)


def _nested(
    emitter: Emitter,
    kernel: Loop,
    axes: range,
    at: list[str],
    totals: list[Val],
    body: Callable[[list[str], list[Val]], list[Val]],
) -> list[Val]:
    """Carry totals through some axes."""
    if not axes:
        return body(at, totals)
    return _carry(
        emitter,
        (0, kernel.shape[axes[0]], 1),
        totals,
        lambda index, inner: _nested(
            emitter, kernel, axes[1:], [*at, index], inner, body
        ),
    )


def _reduce_along(emitter: Emitter, kernel: Loop, at: list[str]) -> None:
    """Lanes are neighbours along the last reduced axis, joined at the end."""
    last = len(kernel.shape) - 1
    size = kernel.shape[last]
    whole, rest = size // WIDTH * WIDTH, size % WIDTH
    inner = range(len(kernel.outer), last)
    short = math.prod(kernel.shape[len(kernel.outer) :]) <= RUN

    def through(start: int, stop: int, width: int) -> list[Val]:
        def vectors(here: list[str], totals: list[Val]) -> list[Val]:
            return _carry(
                emitter,
                (start, stop, width),
                totals,
                lambda index, now: _joined_at(
                    emitter, kernel, [*here, index], last, now
                ),
            )

        firsts = _firsts(emitter, kernel, width, narrow=short)
        made = _nested(emitter, kernel, inner, at, firsts, vectors)
        return [_fold(emitter, kernel, one) for one in made]

    parts = [through(0, whole, WIDTH)] if whole else []
    parts += [through(whole, size, rest)] if rest else []
    if not parts:  # nothing to reduce
        parts = [_firsts(emitter, kernel, 1)]
    totals = parts[0]
    for more in parts[1:]:
        pairs = zip(totals, more, strict=True)
        totals = [_joined(emitter, kernel, a, b) for a, b in pairs]
    _finish(emitter, kernel, totals, at, 1)


def _fold(emitter: Emitter, kernel: Loop, many: Val) -> Val:
    """Join the lanes of a vector, halves first: always in the same order."""
    size = 1 << (many.width - 1).bit_length()
    if size > many.width:
        start = _start(kernel, many.dtype)
        filler = emitter.maths.constant(start, many.dtype, many.width)
        many = emitter.maths.picked(many, filler, range(size))
    while many.width > 1:
        half = many.width // 2
        low = emitter.maths.picked(many, many, range(half))
        high = emitter.maths.picked(many, many, range(half, 2 * half))
        many = _joined(emitter, kernel, low, high)
    return many


def _find(emitter: Emitter, kernel: Loop, at: list[str]) -> None:
    """Find the first largest element; NaN counts as largest, as in NumPy."""
    maths, dtype = emitter.maths, kernel.expr.dtype
    axis = len(kernel.shape) - 1
    if dtype.kind == "f" and 1 < kernel.shape[axis] <= WIDTH:
        _finish(emitter, kernel, [_find_in_vector(emitter, kernel, at)], at, 1)
        return
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


def _find_in_vector(emitter: Emitter, kernel: Loop, at: list[str]) -> Val:
    """Find the first largest of elements that fit one vector."""
    maths, text = emitter.maths, emitter.text
    axis, size = len(kernel.shape) - 1, kernel.shape[-1]
    values = emitter.expression(kernel.expr, [*at, "0"], axis, size)
    largest = maths.splat(_fold(emitter, replace(kernel, how="max"), values), size)
    same = maths.compare("fcmp oeq", values, largest)
    unknown = maths.compare("fcmp uno", values, values)
    hits = maths.binary("or", same, unknown)
    bits = text.let(f"bitcast {hits.type} {hits.name} to i{size}")
    wide = text.let(f"zext i{size} {bits} to i64")
    text.declare("declare i64 @llvm.cttz.i64(i64, i1)")
    return Val(text.let(f"call i64 @llvm.cttz.i64(i64 {wide}, i1 true)"), I64, 1)
