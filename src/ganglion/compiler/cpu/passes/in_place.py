"""Make loops write in place: an elementwise result reuses the memory of its operand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from ganglion.compiler.cpu.plan import CpuPlan
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import Buffer, BufferKey, Kernel, Load, Loop, View
from ganglion.compiler.plan.plan import Uses, map_buffers
from ganglion.compiler.plan.time_loop import TimeLoop


def write_in_place(plan: CpuPlan) -> CpuPlan:
    """Return the plan with loops that overwrite operands without other readers.

    Slices take less of a thread's cache, and the arena is smaller. No barrier is added:
    the loop depends on the writer of its operand in any case.
    """
    loops = [(n, k) for n, k in enumerate(plan.kernels) if isinstance(k, Loop)]
    large = [(number, loop, views) for number, loop in loops if (views := _large(loop))]
    if not large:
        return plan
    uses, aliased = Uses(plan.kernels), _aliased(plan.kernels)
    successor: dict[BufferKey, Buffer] = {}
    for number, loop, views in large:
        for view in views:
            new = view.buffer
            if new.key in aliased or uses.writers[new.key] != [number]:
                continue
            for old in _read_in_place(loop, view):
                # A shared buffer must not become tile-local.
                fits = new not in plan.tile_local or old in plan.tile_local
                is_free = old.key not in aliased and old.key not in successor
                is_complete = uses.writers[old.key][-1] < number
                is_only_reader = uses.readers[old.key] == [number]
                if fits and is_free and is_complete and is_only_reader:
                    successor[old.key] = new
                    break
    for key in reversed(successor):
        successor[key] = successor.get(successor[key].key, successor[key])
    return replace(
        plan,
        kernels=tuple(_renamed(kernel, successor) for kernel in plan.kernels),
        tile_local=frozenset(b for b in plan.tile_local if b.key not in successor),
    )


def _aliased(kernels: Sequence[Kernel]) -> set[BufferKey]:
    """Return the arrays that have aliases, or are used in loops over time."""
    keys = set()
    for kernel in kernels:
        for buffer in (*kernel.reads(), *kernel.writes()):
            if buffer.alias_of or isinstance(kernel, TimeLoop):
                keys |= {buffer.key, buffer.root.key}
    return keys


def _large(loop: Loop) -> list[View]:
    """Return the views of large temporary arrays that a loop fills."""
    if loop.reduced or loop.adds:
        return []
    size = math.prod(loop.shape)
    views = (view for _, view in loop.outputs if view.buffer.kind == "arena")
    return [
        view
        for view in views
        if view.buffer.size == size and view.buffer.nbytes >= CPU.slice_bytes
    ]


def _read_in_place(loop: Loop, target: View) -> list[Buffer]:
    """Return the arrays of a target's type that a loop reads at its indices only."""
    new, access = target.buffer, (target.strides, target.offset)
    loads = (e.view.buffer for e in loop.leaves if isinstance(e, Load))
    return [
        old
        for old in dict.fromkeys(loads)
        if (old.kind, old.shape, old.dtype) == (new.kind, new.shape, new.dtype)
        and all(
            isinstance(e, Load) and (e.view.strides, e.view.offset) == access
            for e in loop.reading(old)
        )
    ]


def _renamed(kernel: Kernel, successor: dict[BufferKey, Buffer]) -> Kernel:
    if not any(b.key in successor for b in chain(kernel.reads(), kernel.writes())):
        return kernel
    return map_buffers(kernel, lambda buffer: successor.get(buffer.key, buffer))
