"""How one block takes many steps: which kernels when, and where their arrays are.

All arrays of a step are in the block's shared memory. The order of rows is drawn for
several steps at a time, and what comes from far away is fetched for the next step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ganglion.compiler.cuda.fusion import FusedKernel, InBlock
from ganglion.compiler.cuda.launches import (
    SHARED_ALIGNMENT,
    Launch,
    Schedule,
    fused_kernels_of,
)
from ganglion.compiler.cuda.text import THREADS, Emitted
from ganglion.compiler.plan.epilogues import is_flat, is_map
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    BufferKey,
    Expr,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Shuffled,
    View,
)
from ganglion.compiler.plan.plan import rounded

BANKS = 32  # of shared memory, each of 4 bytes
_SCRATCH = ("scratch", "")  # what the threads of a kernel tell each other


def run_in_block(schedule: Schedule) -> Schedule:
    """Note how one block runs kernels: where arrays and their first threads are.

    Rows of as many elements as there are banks of shared memory, or of several times as
    many, would all begin in the same one, and threads that read a column wait for each
    other: elements of such rows change places. Small loops that run side by side begin
    with different warps, from the last one on: the first ones have most of the others.
    """
    swizzled = {
        buffer.key: buffer.shape[-1]
        for _, fused in fused_kernels_of(schedule.every)
        for buffer in fused.buffers()
        if buffer.kind in ("arena", "state") and _has_aligned_rows(buffer)
    }
    for key in schedule.step.persistent:  # these are not in shared memory
        swizzled.pop(key, None)
    warps = THREADS // 32
    for launch in schedule.every:
        busy = 0
        for fused in launch.fused_kernels:
            needed, first = _warps_needed(fused.kernel), 0
            if needed < warps:
                busy += needed
                first = -busy % warps
            fused.in_block = InBlock(swizzled, first)
    return replace(schedule)


def _warps_needed(kernel: Kernel) -> int:
    """Return how many warps have something to do in a kernel."""
    most = THREADS // 32
    if not isinstance(kernel, Loop):
        return most
    return min(-(-math.prod(kernel.shape) // 32), most)


def _has_aligned_rows(buffer: Buffer) -> bool:
    """Return whether all rows of an array would begin in the same bank."""
    is_matrix = len(buffer.shape) > 1 and buffer.size > buffer.shape[-1]
    return is_matrix and buffer.dtype == np.float32 and buffer.shape[-1] % BANKS == 0


@dataclass(frozen=True)
class Ahead:
    """A loop over the rows of a batch that is computed for several steps at a time.

    Few threads would take as long for one step: they draw the order of the rows, which
    is a long chain of numbers for each, and gather what is at one place in each row.
    """

    fused: FusedKernel  # for all those steps
    keys: frozenset[BufferKey]  # of its arrays
    steps: int
    size: int  # elements of one step


@dataclass(frozen=True)
class Turn:
    """A kernel of a step, or of the next one, and in which steps it is run."""

    fused: FusedKernel
    ahead: Ahead | None = None
    before_steps: bool = False  # once, for the first one
    for_next: bool = False

    @property
    def emitted(self) -> FusedKernel:
        """The kernel as it is written."""
        return self.ahead.fused if self.ahead else self.fused


@dataclass(frozen=True)
class ResidentMemory:
    """Where arrays are in a block's shared memory; which kernels need no barrier."""

    turns: Sequence[Turn]
    offsets: Mapping[BufferKey, int]
    end: int  # bytes in all
    independent: Collection[int]
    swizzled: Mapping[BufferKey, int]  # see `run_in_block`

    @cached_property
    def ahead(self) -> dict[BufferKey, Ahead]:
        """What is made ahead, by its arrays."""
        ahead = [turn.ahead for turn in self.turns if turn.ahead]
        return {key: each for each in ahead for key in each.keys}

    @classmethod
    def of(
        cls, schedule: Schedule, turns: Sequence[Turn], bodies: Sequence[Emitted]
    ) -> ResidentMemory:
        """Give each array of a step its place."""
        end = rounded(max(body.shared for body in bodies), SHARED_ALIGNMENT)
        offsets = {key: end + start for key, start in schedule.offsets.items()}
        end += rounded(schedule.arena, SHARED_ALIGNMENT)
        sizes: dict[BufferKey, int] = defaultdict(int)  # at most, of what is made ahead
        for buffer in (buffer for body in bodies for buffer in body.buffers):
            sizes[buffer.key] = max(sizes[buffer.key], buffer.nbytes)
        persistent = [key for key in sizes if key[0] == "state"]
        longer = {key for turn in turns if turn.ahead for key in turn.ahead.keys}
        for key in (*persistent, *sorted(longer)):
            offsets[key] = end
            end += rounded(sizes[key], SHARED_ALIGNMENT)
        ranges = {
            key: (start, start + sizes[key])
            for key, start in offsets.items()
            if key in sizes
        }
        in_block = turns[0].fused.in_block
        assert in_block is not None
        independent = _independent(turns, bodies, ranges)
        return cls(turns, offsets, end, independent, in_block.swizzled)


def _independent(
    turns: Sequence[Turn],
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
    for number, (turn, body) in enumerate(zip(turns, bodies, strict=True)):
        reads, writes = turn.fused.reads(), set(turn.fused.writes())
        if body.shared:
            writes.add(_SCRATCH)
        if turn.before_steps:  # and behind these is a barrier
            continue
        if not meet(reads, written) and not meet(writes, read | written):
            result.add(number)
        else:
            read, written = set(), set()
        read, written = read | reads, written | writes
    return result


# ---- several steps at a time ---------------------------------------------------------


def turns_of(schedule: Schedule, most: int) -> list[Turn]:
    """Return all that a block does in a step; what is made ahead, for `most` steps."""
    every = [fused for _, fused in fused_kernels_of(schedule.every)]
    ahead = _made_ahead(every, most)
    turns = [Turn(fused, ahead.get(id(fused))) for fused in every]
    if not _is_fetched_first(schedule) or turns[0].ahead is None:
        return turns
    order, fetch, *others = turns
    last = len(others) - sum(1 for _ in schedule.every[-1].fused_kernels)
    return [
        replace(order, before_steps=True),
        replace(fetch, before_steps=True),
        *others[:last],
        replace(order, ahead=_of_next_step(turns[0].ahead), for_next=True),
        *others[last:],
        replace(fetch, for_next=True),
    ]


def fetched_first(schedule: Schedule) -> set[BufferKey]:
    """Return what a step begins with, and the one before it has fetched by then."""
    if not _is_fetched_first(schedule):
        return set()
    return {key for launch in schedule.every[:2] for key in launch.writes()}


def _is_fetched_first(schedule: Schedule) -> bool:
    """Return whether a step begins with the order of its rows, and with some data.

    Both can be there when it begins: nothing but these loops waits for the order, and
    nobody needs the data any more when a step ends.
    """
    first = [list(launch.fused_kernels) for launch in schedule.every[:2]]
    if len(schedule.every) < 5 or list(map(len, first)) != [1, 1]:
        return False
    (order,), (fetch,) = first
    every = [fused for _, fused in fused_kernels_of(schedule.every)]
    if not is_map(fetch.kernel) or id(order) not in _made_ahead(every, 2):
        return False
    *before, last = ({*_touched([launch])} for launch in schedule.every)
    written = {key for launch in schedule.every[:-1] for key in launch.writes()}
    return (
        {key for key in fetch.reads() if key[0] != "data"} <= order.writes()
        and all(key[0] == "arena" for key in fetch.writes())
        and (order.reads() - order.writes()).isdisjoint(written)
        and order.writes().isdisjoint(before[-1] | last)
        and fetch.writes().isdisjoint(last)
    )


def _touched(launches: Iterable[Launch]) -> Iterator[BufferKey]:
    """Yield all that launches read or write."""
    for _, fused in fused_kernels_of(launches):
        yield from fused.reads() | fused.writes()


def _of_next_step(ahead: Ahead) -> Ahead:
    """Return what is made ahead from the next step on."""
    kernel = ahead.fused.kernel
    assert isinstance(kernel, Loop)
    assert isinstance(kernel.expr, Shuffled)
    position = kernel.expr.position
    load, index = position.children
    assert isinstance(index, Index)
    position = position.with_children(load, replace(index, offset=ahead.size))
    outputs = ((replace(kernel.expr, position=position), kernel.target),)
    later = replace(kernel, outputs=outputs)
    return replace(ahead, fused=replace(ahead.fused, kernel=later))


def _made_ahead(every: Sequence[FusedKernel], most: int) -> dict[int, Ahead]:
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
    for fused in every:
        kernel, *epilogues = fused.kernels
        if not isinstance(kernel, Loop) or len(kernel.outputs) > 1:
            continue
        position = _shuffled_position(kernel)
        (rows,) = kernel.shape if len(kernel.shape) == 1 else (0,)
        if position is None or not rows or advances.get(position) != rows:
            continue
        if not all(_reads_data(epilogue, kernel) for epilogue in epilogues):
            continue
        if (steps := min(THREADS // rows, most)) > 1:
            longer = [_for_steps(loop, steps) for loop in (kernel, *fused.epilogues)]
            keys = frozenset(b.key for loop in longer for b in loop.writes())
            ahead = replace(fused, kernel=longer[0], epilogues=longer[1:])
            found[id(fused)] = Ahead(ahead, keys, steps, rows)
    return found


def _reads_data(epilogue: Kernel, producer: Loop) -> bool:
    """Return whether an epilogue of one axis reads only its producer, and data."""
    return (
        isinstance(epilogue, Loop)
        and epilogue.shape == producer.shape
        and all(is_flat(view, epilogue.shape) for _, view in epilogue.outputs)
        and all(
            buffer.kind == "data" or buffer.key == producer.target.buffer.key
            for buffer in epilogue.reads()
        )
    )


def _for_steps(loop: Loop, steps: int) -> Loop:
    """Return a loop over the rows of one step for those of several."""
    shape = (steps * loop.shape[0],)
    outputs = [
        (expr, View.of(replace(view.buffer, shape=shape)))
        for expr, view in loop.outputs
    ]
    return replace(loop, shape=shape, outputs=tuple(outputs))


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
