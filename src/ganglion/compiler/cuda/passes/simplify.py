"""Eliminate common subexpressions, and hoist constants out of the loop over steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.plan.epilogues import is_map
from ganglion.compiler.plan.kernels import (
    Buffer,
    BufferKey,
    Kernel,
    Literal,
    Loop,
)
from ganglion.compiler.plan.plan import Plan, Uses, expression_key, map_buffers

Output = tuple[int, int]  # the number of a kernel, and of one of its outputs


def eliminate_common_subexpressions(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels without those that compute an equal temporary array again.

    Most of these arrays are padded images.
    """
    writers: dict[BufferKey, list[Output]] = defaultdict(list)
    buffers: dict[BufferKey, Buffer] = {}
    for number, kernel in enumerate(kernels):
        for which, buffer in enumerate(kernel.writes()):
            writers[buffer.key].append((number, which))
            buffers[buffer.key] = buffer
    first: dict[Any, BufferKey] = {}
    aliases: dict[BufferKey, BufferKey] = {}
    removed: set[Output] = set()
    # Keep the array that is complete first: readers of the others come later.
    for key, outputs in sorted(writers.items(), key=lambda item: item[1][-1]):
        value = _value_key(kernels, buffers[key], outputs, aliases)
        if value is None:
            continue
        kept = first.setdefault(value, key)
        pairs = zip(writers[kept], outputs, strict=True)
        if kept != key and not any(
            _changed(kernels, writers, start, last) for start, last in pairs
        ):
            aliases[key] = kept
            removed |= set(outputs)

    def change(buffer: Buffer) -> Buffer:
        if buffer.key not in aliases:
            return buffer
        kept = buffers[aliases[buffer.key]]
        return replace(buffer, name=kept.name, alias_of=kept.root)

    remaining = _without(kernels, removed)
    return [map_buffers(k, change) for k in remaining] if aliases else remaining


def _without(kernels: Sequence[Kernel], removed: set[Output]) -> list[Kernel]:
    """Return kernels without some of their outputs."""
    remaining: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop):
            outputs = tuple(
                output
                for i, output in enumerate(kernel.outputs)
                if (number, i) not in removed
            )
            if outputs:
                remaining.append(replace(kernel, outputs=outputs))
        else:
            remaining.append(kernel)
    return remaining


def _value_key(
    kernels: Sequence[Kernel],
    buffer: Buffer,
    outputs: Sequence[Output],
    aliases: dict[BufferKey, BufferKey],
) -> Any:
    """Return a key of the values that an array has; None if it is not only mapped."""
    if buffer.kind != "arena":
        return None
    parts = []
    for number, which in outputs:
        kernel = kernels[number]
        if not is_map(kernel):
            return None
        assert isinstance(kernel, Loop)
        expr, view = kernel.outputs[which]
        key = expression_key(expr, aliases)
        parts.append((kernel.shape, view.strides, view.offset, key))
    return (buffer.shape, buffer.dtype, tuple(parts))


def _changed(
    kernels: Sequence[Kernel],
    writers: dict[BufferKey, list[Output]],
    start: Output,
    last: Output,
) -> bool:
    """Return whether a kernel's inputs have changed since an equal kernel before it."""
    read = {b.key for b in kernels[last[0]].reads()}
    return any(start[0] < n <= last[0] for key in read for n, _ in writers.get(key, []))


def hoist_constants(plan: Plan) -> StepKernels:
    """Return a step whose constant arrays are computed once, before the first step."""
    kernels = plan.kernels
    uses = Uses(kernels)
    once: list[Kernel] = []
    every: list[Kernel] = []
    constant: set[BufferKey] = set()
    for number, kernel in enumerate(kernels):
        writes = [b.key for b in kernel.writes()]
        is_only_writer = all(len(uses.writers[key]) == 1 for key in writes)
        if _is_constant(kernel, constant) and (
            is_only_writer or _is_fill(kernels, uses, number)
        ):
            once.append(kernel)
            if is_only_writer:
                constant.update(writes)
        else:
            every.append(kernel)
    return StepKernels(plan, tuple(every), tuple(once))


def _is_constant(kernel: Kernel, constant: set[BufferKey]) -> bool:
    if not is_map(kernel) or any(b.kind != "arena" for b in kernel.writes()):
        return False
    return all(b.kind == "constant" or b.key in constant for b in kernel.reads())


def _is_fill(kernels: Sequence[Kernel], uses: Uses, number: int) -> bool:
    """Return whether a kernel fills an array that others then partly overwrite.

    They write the same elements in every step, so the others keep their value.
    """
    kernel = kernels[number]
    assert isinstance(kernel, Loop)
    if len(kernel.outputs) > 1 or not isinstance(kernel.expr, Literal):
        return False
    key = kernel.target.buffer.key
    first, *others = uses.writers[key]
    return (
        first == number
        and all(is_map(kernels[n]) for n in others)
        and all(n > others[-1] for n in uses.readers[key])
    )
