"""What a step can do for the next one: draw, gather and scale the next batch.

Such kernels need nothing that training changes, so they run beside the step before
theirs. So do copies of weights in another order: they are made where the weights are
updated. What is passed on is double-buffered: the two buffers swap after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.cuda.text import BF16, computed
from ganglion.compiler.plan.epilogues import is_copy, is_map
from ganglion.compiler.plan.kernels import (
    Buffer,
    BufferKey,
    Kernel,
    Load,
    Loop,
    View,
    row_major,
)
from ganglion.compiler.plan.plan import (
    Uses,
    map_buffers,
    read_by,
    rename_buffers,
    written_by,
)


def split_prefetch(step: StepKernels) -> StepKernels:
    """Separate kernels that may run beside the step before from the others."""
    kernels = step.every
    pieces = [
        Piece(n, part)
        for n, kernel in enumerate(kernels)
        for part in _pieces_of(kernel)
    ]
    chosen = _Candidates(pieces, written_by(step.once)).prefetched
    prefetched = _joined(
        [piece.in_order() for n, piece in enumerate(pieces) if n in chosen]
    )
    rest = _joined([piece for n, piece in enumerate(pieces) if n not in chosen])
    copies, names = _before(prefetched, rest)
    result = replace(
        step,
        prefetched=(*copies, *prefetched),
        every=tuple(rename_buffers(kernel, names) for kernel in rest),
    )
    return result if result.double_buffered else step


def keep_prefetched_exact(step: StepKernels) -> StepKernels:
    """Keep float32 what prefetched kernels make for each other.

    Before a first step, one may go on with what another has in registers, where later
    it reads what was stored: rounded, that would be something else.
    """
    halved = {
        b.key for kernel in step.prefetched for b in kernel.writes() if b.dtype == BF16
    }
    between = halved & read_by(step.prefetched)
    if not between:
        return step

    def change(buffer: Buffer) -> Buffer:
        exact = computed(buffer.dtype)
        return replace(buffer, dtype=exact) if buffer.key in between else buffer

    return step.map(lambda kernel: map_buffers(kernel, change))


@dataclass(frozen=True)
class Piece:
    """A kernel, or one of its outputs, and the kernel's number.

    Pieces of a kernel belong together as long as their axes are in the same `order`.
    """

    number: int
    kernel: Kernel
    order: tuple[int, ...] = ()

    def in_order(self) -> Piece:
        """Let a copy walk through what it reads, so that it can be fused there."""
        if isinstance(self.kernel, Loop) and is_copy(self.kernel):
            return Piece(self.number, *_along_source(self.kernel))
        return self


def _along_source(kernel: Loop) -> tuple[Loop, tuple[int, ...]]:
    """Return a copy whose axes are in the order of what it reads, and forward.

    Which axis is where now is returned, too.

    >>> import numpy as np
    >>> w = Buffer("w", (2, 3), np.dtype("float32"), "state")
    >>> t = Buffer("t", (3, 2), np.dtype("float32"), "arena")
    >>> load = Load(w.dtype, View(w, (-1, 3), 2))
    >>> loop, order = _along_source(Loop.of("copy", (3, 2), load, View(t, (2, 1))))
    >>> loop.shape, loop.expr.view.strides, loop.expr.view.offset, order
    ((2, 3), (3, 1), 0, (1, 0))
    >>> loop.target.strides, loop.target.offset
    ((1, -2), 4)
    """
    assert isinstance(kernel.expr, Load)
    source, target = kernel.expr.view, kernel.target
    axes = []
    begin, end = source.offset, target.offset
    for axis, (size, read, write) in enumerate(
        zip(kernel.shape, source.strides, target.strides, strict=True)
    ):
        if read < 0:
            begin, end = begin + (size - 1) * read, end + (size - 1) * write
            read, write = -read, -write
        axes.append((read, size, write, axis))
    axes.sort(reverse=True)
    reads, shape, writes, order = zip(*axes, strict=True) if axes else ((),) * 4
    load = replace(kernel.expr, view=View(source.buffer, reads, begin))
    out = View(target.buffer, writes, end)
    return replace(kernel, shape=shape, outputs=((load, out),)), order


def _pieces_of(kernel: Kernel) -> list[Kernel]:
    """Return a map as one kernel for each of its outputs."""
    if not is_map(kernel):
        return [kernel]
    assert isinstance(kernel, Loop)
    return [replace(kernel, outputs=(output,)) for output in kernel.outputs]


def _joined(pieces: Sequence[Piece]) -> list[Kernel]:
    """Put together again what was one kernel."""
    kernels: dict[tuple[int, tuple[int, ...]], Kernel] = {}
    for piece in pieces:
        key, kernel = (piece.number, piece.order), piece.kernel
        first = kernels.get(key)
        if isinstance(first, Loop) and isinstance(kernel, Loop):
            kernel = replace(first, outputs=first.outputs + kernel.outputs)
        kernels[key] = kernel
    return list(kernels.values())


class _Candidates:
    """The pieces that may be prefetched: all loops, less those that cannot."""

    def __init__(self, pieces: Sequence[Piece], known: set[BufferKey]) -> None:
        self._pieces, self._known = pieces, known
        self._uses = Uses([piece.kernel for piece in pieces])
        self.prefetched = {
            n for n, piece in enumerate(pieces) if isinstance(piece.kernel, Loop)
        }
        while wrong := {n for n in self.prefetched if not self._may_prefetch(n)}:
            self.prefetched -= wrong

    def _may_prefetch(self, number: int) -> bool:
        kernel = self._pieces[number].kernel
        if not all(map(self._may_write, kernel.writes())):
            return False
        return self._copies_old_state(number) or all(
            map(self._may_read, kernel.reads())
        )

    def _copies_old_state(self, number: int) -> bool:
        """Return whether a piece only copies state as it is before the step."""
        piece = self._pieces[number]
        if not isinstance(piece.kernel, Loop) or not is_copy(piece.kernel):
            return False
        assert isinstance(piece.kernel.expr, Load)
        source, target = piece.kernel.expr.view.buffer, piece.kernel.target.buffer
        changed = min(self._writer_numbers(source.key), default=-1) > piece.number
        return source.kind == "state" and target.kind == "arena" and changed

    def _writer_numbers(self, key: BufferKey) -> list[int]:
        return [self._pieces[n].number for n in self._uses.writers[key]]

    def _may_write(self, buffer: Buffer) -> bool:
        counts = buffer.kind == "state" and buffer.dtype.kind in "iu"
        if buffer.kind != "arena" and not counts:
            return False  # weights are never prefetched
        if not self.prefetched.issuperset(self._uses.writers[buffer.key]):
            return False
        order, readers = (
            self._writer_numbers(buffer.key),
            self._uses.readers[buffer.key],
        )
        others = [self._pieces[n].number for n in readers if n not in self.prefetched]
        if not others:
            return True
        if buffer.kind == "arena":
            return min(others) > max(order)
        return max(others) <= min(order)  # its value after the step is never read

    def _may_read(self, buffer: Buffer) -> bool:
        writers = self._uses.writers[buffer.key]
        if buffer.kind == "arena" and buffer.key not in self._known and not writers:
            return False
        return self.prefetched.issuperset(writers) and not any(
            map(self._copies_old_state, writers)
        )


def _before(
    prefetched: Sequence[Kernel], rest: Sequence[Kernel]
) -> tuple[list[Kernel], dict[BufferKey, BufferKey]]:
    """Copy the state that prefetched kernels change and others read unchanged."""
    changed = {key for key in written_by(prefetched) if key[0] == "state"}
    wanted = {b.key: b for kernel in rest for b in kernel.reads() if b.key in changed}
    copies: list[Kernel] = []
    names: dict[BufferKey, BufferKey] = {}
    for key, state in wanted.items():
        copy = Buffer(f"{state.name} before", state.shape, state.dtype, "arena")
        steps = row_major(state.shape)
        value = Load(state.dtype, View(state, steps))
        copies.append(Loop.of("copy", state.shape, value, View(copy, steps)))
        names[key] = copy.key
    return copies, names
