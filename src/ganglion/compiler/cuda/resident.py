"""What a block that takes many steps has in its shared memory, and when it waits.

Everything that is computed is there, and the variables of its model, which it copies
before the first step and back after the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ganglion.compiler.cuda.fusion import FusedKernel
from ganglion.compiler.cuda.launches import SHARED_ALIGNMENT, Schedule
from ganglion.compiler.cuda.text import THREADS, Emitted
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Expr,
    Index,
    Literal,
    Load,
    Loop,
    Shuffled,
    View,
)
from ganglion.compiler.plan.plan import rounded

_SCRATCH = ("scratch", "")  # what the threads of a kernel tell each other


@dataclass(frozen=True)
class Ahead:
    """A loop over the rows of a batch that is computed for several steps at a time.

    Few threads would take as long for one step: they draw the order of the rows, which
    is a long chain of numbers for each.
    """

    fused: FusedKernel  # for all those steps
    key: BufferKey
    steps: int
    size: int  # elements of one step


@dataclass(frozen=True)
class ResidentMemory:
    """Where arrays are in a block's shared memory; which kernels need no barrier."""

    offsets: Mapping[BufferKey, int]
    end: int  # bytes in all
    independent: Collection[int]
    ahead: Mapping[int, Ahead]  # by the number of a kernel

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        every: Sequence[FusedKernel],
        bodies: Sequence[Emitted],
        ahead: Mapping[int, Ahead],
    ) -> ResidentMemory:
        """Give each array of a step its place."""
        end = rounded(max(body.shared for body in bodies), SHARED_ALIGNMENT)
        offsets = {key: end + start for key, start in schedule.offsets.items()}
        end += rounded(schedule.arena, SHARED_ALIGNMENT)
        sizes: dict[BufferKey, int] = defaultdict(int)  # at most, of what is made ahead
        for buffer in (buffer for body in bodies for buffer in body.buffers):
            sizes[buffer.key] = max(sizes[buffer.key], buffer.nbytes)
        persistent = [key for key in sizes if key[0] == "state"]
        for key in (*persistent, *(each.key for each in ahead.values())):
            offsets[key] = end
            end += rounded(sizes[key], SHARED_ALIGNMENT)
        ranges = {
            key: (start, start + sizes[key])
            for key, start in offsets.items()
            if key in sizes
        }
        return cls(offsets, end, _independent(every, bodies, ranges), ahead)


def _independent(
    every: Sequence[FusedKernel],
    bodies: Sequence[Emitted],
    ranges: Mapping[BufferKey, tuple[int, int]],
) -> set[int]:
    """Return which kernels need no barrier before them.

    They do not write what others read or write since the last barrier, nor the other
    way round. Arrays share memory, and so do sums over threads.
    """

    def meet(some: Iterable[BufferKey], others: Collection[BufferKey]) -> bool:
        for key in some:
            start, end = ranges.get(key, (0, 0))
            for other in others:
                first, last = ranges.get(other, (0, 0))
                if key == other or (start < last and first < end):
                    return True
        return False

    result: set[int] = set()
    read: set[BufferKey] = set()
    written: set[BufferKey] = set()
    for number, (fused, body) in enumerate(zip(every, bodies, strict=True)):
        reads, writes = fused.reads(), set(fused.writes())
        if body.shared:
            writes.add(_SCRATCH)
        if number and not meet(reads, written) and not meet(writes, read | written):
            result.add(number)
        else:
            read, written = set(), set()
        read, written = read | reads, written | writes
    return result


# ---- several steps at a time ---------------------------------------------------------


def made_ahead(every: Sequence[FusedKernel], most: int) -> dict[int, Ahead]:
    """Return the loops that draw the order of rows, each for so many steps at most."""
    advances = {
        key: step
        for fused in every
        for kernel in fused.kernels
        if isinstance(kernel, Loop)
        for expr, view in kernel.outputs
        for key, step in [_advance(expr, view.buffer)]
        if step
    }
    found: dict[int, Ahead] = {}
    for number, fused in enumerate(every):
        kernel, *others = fused.kernels
        if others or not isinstance(kernel, Loop) or len(kernel.outputs) > 1:
            continue
        position = _shuffled_position(kernel)
        (rows,) = kernel.shape if len(kernel.shape) == 1 else (0,)
        if position is None or not rows or advances.get(position) != rows:
            continue
        if (steps := min(THREADS // rows, most)) > 1:
            target = replace(kernel.target.buffer, shape=(steps * rows,))
            outputs = ((kernel.expr, View.of(target)),)
            longer = replace(kernel, shape=(steps * rows,), outputs=outputs)
            found[number] = Ahead(FusedKernel(longer), target.key, steps, rows)
    return found


def _advance(expr: Expr, buffer: Buffer) -> tuple[BufferKey, int]:
    """Return by how much a step advances a counter, 0 if it is none."""
    if isinstance(expr, Apply) and expr.op == "add":
        load, step = expr.args
        counts = isinstance(load, Load) and load.view.buffer.key == buffer.key
        if counts and isinstance(step, Literal):
            return buffer.key, int(step.value)
    return buffer.key, 0


def _shuffled_position(kernel: Loop) -> BufferKey | None:
    """Return the counter from which on rows are drawn, if that is all a loop does."""
    expr = kernel.expr
    if not isinstance(expr, Shuffled) or not isinstance(expr.position, Apply):
        return None
    if expr.position.op != "add" or len(expr.position.args) != 2:
        return None
    load, index = expr.position.args
    if not isinstance(load, Load) or not isinstance(index, Index):
        return None
    is_plain = index.strides == (1,) and index.offset == 0 and kernel.target.offset == 0
    return load.view.buffer.key if is_plain else None
