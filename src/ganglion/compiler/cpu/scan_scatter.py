"""Emit scans, scatters and gradients of max pooling as LLVM IR."""

from __future__ import annotations

from ganglion.compiler.cpu.emitter import Emitted, Emitter, shared_ranges
from ganglion.compiler.cpu.text import BOOL, Val, memory_type
from ganglion.compiler.plan.kernels import View
from ganglion.compiler.plan.scan_scatter import PoolBack, Scan, Scatter


def emit_scan(kernel: Scan) -> Emitted:
    """Return the text of a running sum."""
    emitter = Emitter()
    zero = emitter.maths.constant(0, kernel.source.buffer.dtype, 1)

    def row(at: list[str]) -> None:
        def step(index: str, carried: list[Val]) -> list[Val]:
            value = emitter.load_view(kernel.source, [*at, index], 0, 1)
            total = emitter.maths.add(carried[0], value)
            emitter.store_view(total, kernel.target, [*at, index], 0, 1)
            return [total]

        emitter.text.carry(0, kernel.shape[-1], 1, [zero], step)

    emitter.nest(shared_ranges(kernel.shape[:-1]), row)
    return emitter.emitted(kernel.parallel)


def emit_scatter(kernel: Scatter) -> Emitted:
    """Return the text that adds rows to the rows of a target at indices."""
    emitter = Emitter()
    text, maths, dtype = emitter.text, emitter.maths, kernel.target.dtype

    def update(number: list[str]) -> None:
        address = emitter.address(kernel.index, number[0])
        row = emitter.load(address, kernel.index.dtype, 1)
        start, exists = emitter.row_start(row, kernel.target.shape[0], kernel.row)
        source = text.times(number[0], kernel.row)

        def add(index: str, width: int) -> None:
            to, element = emitter.base(kernel.target), memory_type(dtype)
            to = text.address(to, element, text.add(start, index))
            origin = emitter.base(kernel.updates)
            origin = text.address(origin, element, text.add(source, index))
            old, new = (emitter.load(a, dtype, width) for a in (to, origin))
            zero = maths.constant(0, dtype, width)
            new = maths.select(exists, new, zero)  # nothing for a row that is missing
            emitter.store(maths.add(old, new), to)

        emitter.in_vectors(0, kernel.row, add)

    emitter.nest([(0, kernel.count)], update)
    return emitter.emitted(1)


def emit_pool_back(kernel: PoolBack) -> Emitted:
    """Return the text of max pooling's gradient, which the first maximum gets."""
    emitter = Emitter()
    maths, axis = emitter.maths, len(kernel.shape) - 1

    def channels(at: list[str], width: int) -> None:
        dy = emitter.load_view(kernel.dy, at, axis, width)
        elements = emitter.expressions(list(kernel.elements), at, axis, width)
        if kernel.largest:
            largest = emitter.load_view(kernel.largest, at, axis, width)
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
            equal = maths.compare("fcmp oeq", x, largest)
            wins = maths.binary("and", waiting, equal)
            new = maths.select(wins, dy, zero)
            if not kernel.covers:
                old = emitter.load_view(to, at, axis, width)
                new = maths.add(old, new)
            emitter.store_view(new, to, at, axis, width)
            waiting = maths.binary("and", waiting, maths.logical_not(wins))

    def window(at: list[str]) -> None:
        size = kernel.shape[-1]
        emitter.in_vectors(0, size, lambda index, w: channels([*at, index], w))

    emitter.nest(shared_ranges(kernel.shape[:-1]), window)
    return emitter.emitted(kernel.shape[0])
