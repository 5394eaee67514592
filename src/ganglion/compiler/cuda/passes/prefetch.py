"""Prefetch: a step draws, gathers and scales the batch of the next step.

Such kernels read nothing that training changes, so they run beside the step before
their own. So do copies of weights in another layout, which are written where the
weights are updated. Prefetched arrays are double-buffered: the buffers swap after each
step.
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
    """Move kernels that may run beside the step before into `prefetched`."""
    kernels = step.every
    pieces = [
        Piece(n, part)
        for n, kernel in enumerate(kernels)
        for part in _pieces_of(kernel)
    ]
    chosen = _Candidates(pieces, written_by(step.once)).prefetched
    prefetched = _merged(
        [piece.in_order() for n, piece in enumerate(pieces) if n in chosen]
    )
    others = _merged([piece for n, piece in enumerate(pieces) if n not in chosen])
    copies, names = _copies_before(prefetched, others)
    result = replace(
        step,
        prefetched=(*copies, *prefetched),
        every=tuple(rename_buffers(kernel, names) for kernel in others),
    )
    return result if result.double_buffered else step


def keep_prefetched_exact(step: StepKernels) -> StepKernels:
    """Keep arrays that prefetched kernels pass to each other in float32.

    Before the first step, a kernel may use a value in a register that it loads later:
    rounded to bfloat16 in memory, the two would differ.
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
    """A kernel, or a single output of it, and the number of that kernel.

    Pieces of a kernel can be merged as long as their axes are in the same `order`.
    """

    number: int
    kernel: Kernel
    order: tuple[int, ...] = ()

    def in_order(self) -> Piece:
        """Return the piece; a copy iterates in the order of its source, to be fused."""
        if isinstance(self.kernel, Loop) and is_copy(self.kernel):
            return Piece(self.number, *_along_source(self.kernel))
        return self


def _along_source(kernel: Loop) -> tuple[Loop, tuple[int, ...]]:
    """Return a copy with its axes in the order of its source, and their permutation.

    Axes that the source runs through backwards are reversed.

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
    """Return a map as a kernel for each of its outputs; other kernels as they are."""
    if not is_map(kernel):
        return [kernel]
    assert isinstance(kernel, Loop)
    return [replace(kernel, outputs=(output,)) for output in kernel.outputs]


def _merged(pieces: Sequence[Piece]) -> list[Kernel]:
    """Return kernels, with the pieces of each merged again."""
    kernels: dict[tuple[int, tuple[int, ...]], Kernel] = {}
    for piece in pieces:
        key, kernel = (piece.number, piece.order), piece.kernel
        first = kernels.get(key)
        if isinstance(first, Loop) and isinstance(kernel, Loop):
            kernel = replace(first, outputs=first.outputs + kernel.outputs)
        kernels[key] = kernel
    return list(kernels.values())


class _Candidates:
    """The pieces that may be prefetched: the greatest fixed point among all loops."""

    def __init__(self, pieces: Sequence[Piece], constants: set[BufferKey]) -> None:
        self._pieces, self._constants = pieces, constants
        self._uses = Uses([piece.kernel for piece in pieces])
        self.prefetched = {
            n for n, piece in enumerate(pieces) if isinstance(piece.kernel, Loop)
        }
        while excluded := {n for n in self.prefetched if not self._may_prefetch(n)}:
            self.prefetched -= excluded

    def _may_prefetch(self, number: int) -> bool:
        kernel = self._pieces[number].kernel
        if not all(map(self._may_write, kernel.writes())):
            return False
        return self._copies_old_state(number) or all(
            map(self._may_read, kernel.reads())
        )

    def _copies_old_state(self, number: int) -> bool:
        """Return whether a piece copies state before the step changes it."""
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
        is_constant = buffer.key in self._constants
        if buffer.kind == "arena" and not is_constant and not writers:
            return False
        return self.prefetched.issuperset(writers) and not any(
            map(self._copies_old_state, writers)
        )


def _copies_before(
    prefetched: Sequence[Kernel], others: Sequence[Kernel]
) -> tuple[list[Kernel], dict[BufferKey, BufferKey]]:
    """Copy state that prefetched kernels change, for others that read its old value."""
    changed = {key for key in written_by(prefetched) if key[0] == "state"}
    states = {b.key: b for kernel in others for b in kernel.reads() if b.key in changed}
    copies: list[Kernel] = []
    names: dict[BufferKey, BufferKey] = {}
    for key, state in states.items():
        copy = Buffer(f"{state.name} before", state.shape, state.dtype, "arena")
        steps = row_major(state.shape)
        value = Load(state.dtype, View(state, steps))
        copies.append(Loop.of("copy", state.shape, value, View(copy, steps)))
        names[key] = copy.key
    return copies, names
