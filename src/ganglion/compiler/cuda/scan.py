"""Kernels that are no plain loops: adding in place, and running sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ganglion.compiler.cuda.elementwise import MOST_BLOCKS
from ganglion.compiler.cuda.expressions import Places, evaluate
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    is_wide,
)
from ganglion.compiler.plan.kernels import Loop, Scan


def _each(body: Body, count: int) -> str:
    """Return the head of a loop in which every thread takes its places."""
    start = f"{body.index} i = ({body.index})block * THREADS + THREAD"
    return f"for ({start}; i < {count}; i += blocks * THREADS)"


def _blocks(count: int) -> int:
    return min(-(-count // THREADS), MOST_BLOCKS)


# ---- adding in place ---------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Axes of a target that overlap only with one another, and how far they reach."""

    axes: tuple[int, ...]
    unit: int  # every place of the group is a multiple of it
    places: int


def groups_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[Group]:
    """Cut the axes of a target into groups whose places add up without overlap.

    >>> [g.axes for g in groups_of((4, 8, 3, 16), (160, 16, 16, 1))]
    [(3,), (1, 2), (0,)]
    """
    axes = [
        a for a, (n, s) in enumerate(zip(shape, strides, strict=True)) if s and n > 1
    ]
    axes.sort(key=lambda a: (abs(strides[a]), a))
    groups: list[Group] = []
    current: list[int] = []
    span = 0
    for position, axis in enumerate(axes):
        rest = math.gcd(*(strides[a] for a in axes[position:]))
        if current and rest > span:
            groups.append(_group(current, shape, strides))
            current = []
        current.append(axis)
        span += (shape[axis] - 1) * abs(strides[axis])
    if current:
        groups.append(_group(current, shape, strides))
    return groups


def _group(axes: list[int], shape: tuple[int, ...], strides: tuple[int, ...]) -> Group:
    unit = math.gcd(*(strides[a] for a in axes))
    span = sum((shape[a] - 1) * abs(strides[a]) for a in axes)
    return Group(tuple(axes), unit, span // unit + 1)


def emit_adds(kernel: Loop) -> Emitted:
    """Add expressions to what is there: each thread has one place of the target.

    It finds all places of the loop that add to it, and adds them in the loops' order.
    """
    assert len(kernel.outputs) == 1
    shape, strides = kernel.shape, kernel.target.strides
    groups = groups_of(shape, strides)
    count = math.prod(one.places for one in groups)
    if math.prod(shape) == 0:
        count = 0
    body = Body(is_wide([*kernel.reads(), *kernel.writes()], count))
    kind = c_type(kernel.target.buffer.dtype)
    # Places count from the lowest address.
    low = sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s < 0)
    with body.block(_each(body, count)):
        found = body.places("i", [one.places for one in groups], "q")
        at = affine(found, [g.unit for g in groups], kernel.target.offset + low)
        target = f"{body.pointer(kernel.target.buffer)}[{at}]"
        body.do(f"{kind} total = {target};")
        places = ["0"] * len(shape)
        solved: list[tuple[Group, int, str]] = []
        for group, q in zip(groups, found, strict=True):
            largest = max(group.axes, key=lambda a: shape[a])
            if len(group.axes) == 1:
                places[largest] = _turned(q, largest, shape, strides)
            else:
                solved.append((group, largest, q))
        _search(body, kernel, places, solved)
        body.do(f"{target} = total;")
    return body.emitted(_blocks(count))


def _turned(
    place: str, axis: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> str:
    """Return an index by its distance from the lowest address."""
    return place if strides[axis] > 0 else f"({shape[axis] - 1} - {place})"


def _search(
    body: Body, kernel: Loop, places: list[str], solved: list[tuple[Group, int, str]]
) -> None:
    """Run through all places of the loop that lie at the target's place."""
    shape, strides = kernel.shape, kernel.target.strides
    kept = {a for group, _, _ in solved for a in group.axes}
    free = [
        a
        for a, (n, s) in enumerate(zip(shape, strides, strict=True))
        if n > 1 and ((s == 0) or (a in kept and all(a != x for _, x, _ in solved)))
    ]
    depth = 0
    for axis in free:
        name = body.fresh("a")
        body.do(f"for (int {name} = 0; {name} < {shape[axis]}; {name}++) {{")
        places[axis] = name
        depth += 1
    for group, axis, q in solved:
        others = [a for a in group.axes if a != axis]
        distances = [_turned(places[a], a, shape, strides) for a in others]
        taken = affine(distances, [abs(strides[a]) // group.unit for a in others])
        rest = body.let(body.index, f"{q} - ({taken})", "rest")
        step = abs(strides[axis]) // group.unit
        fits = f"{rest} < 0 || {rest} / {step} >= {shape[axis]}"
        if step > 1:
            fits += f" || {rest} % {step} != 0"
        body.do(f"if ({fits}) continue;")
        solution = body.let(body.index, f"{rest} / {step}", "s")
        places[axis] = _turned(solution, axis, shape, strides)
    (value,) = evaluate(body, [kernel.expr], Places(places))
    body.do(f"total += {value};")
    for _ in range(depth):
        body.do("}")


# ---- running sums ------------------------------------------------------------------

SHORT_SCAN = 64


def emit_scan(kernel: Scan) -> Emitted:
    """Return a running sum: a thread a row, or a block a row where rows are long."""
    rows, length = math.prod(kernel.shape[:-1]), kernel.shape[-1]
    dtype = kernel.source.buffer.dtype
    body = Body(is_wide([*kernel.reads(), *kernel.writes()], rows * length))
    kind = c_type(dtype)
    if length <= SHORT_SCAN or rows >= 16 * length:
        with body.block(_each(body, rows if length else 0)):
            at = body.places("i", kernel.shape[:-1])
            body.do(f"{kind} total = 0;")
            with body.block(f"for (int k = 0; k < {length}; k++)"):
                body.do(f"total += {body.element(kernel.source, [*at, 'k'])};")
                body.do(f"{body.element(kernel.target, [*at, 'k'])} = total;")
        return body.emitted(_blocks(rows))
    body.do(f"{kind}* sums = ({kind}*)shared_bytes;")
    with body.block(f"for ({body.index} i = block; i < {rows}; i += blocks)"):
        at = body.places("i", kernel.shape[:-1])
        body.do(f"{kind} carried = 0;")
        with body.block(f"for (int first = 0; first < {length}; first += THREADS)"):
            body.do("const int k = first + THREAD;")
            value = body.element(kernel.source, [*at, "k"])
            body.do(f"{kind} mine = k < {length} ? {value} : ({kind})0;")
            body.do("sums[THREAD] = mine;")
            body.do("BARRIER;")
            with body.block("for (int step = 1; step < THREADS; step *= 2)"):
                body.do("if (THREAD >= step) mine += sums[THREAD - step];")
                body.do("BARRIER;")
                body.do("sums[THREAD] = mine;")
                body.do("BARRIER;")
            target = body.element(kernel.target, [*at, "k"])
            body.do(f"if (k < {length}) {target} = carried + mine;")
            body.do("carried += sums[THREADS - 1];")
            body.do("BARRIER;")
    return body.emitted(min(rows, MOST_BLOCKS), THREADS * dtype.itemsize)
