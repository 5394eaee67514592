"""Fewer kernels: nothing is computed twice, and what never changes only once."""

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

Output = tuple[int, int]  # a kernel's number, and which of its results


def eliminate_common_subexpressions(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels that compute no temporary array that another one already is.

    Most of them are padded images.
    """
    writers: dict[BufferKey, list[Output]] = defaultdict(list)
    buffers: dict[BufferKey, Buffer] = {}
    for number, kernel in enumerate(kernels):
        for which, buffer in enumerate(kernel.writes()):
            writers[buffer.key].append((number, which))
            buffers[buffer.key] = buffer
    first: dict[Any, BufferKey] = {}
    aliases: dict[BufferKey, BufferKey] = {}
    gone: set[Output] = set()
    # What is ready first is kept: the others' readers come later.
    for key, outputs in sorted(writers.items(), key=lambda item: item[1][-1]):
        value = _value_key(kernels, buffers[key], outputs, aliases)
        if value is None:
            continue
        known = first.setdefault(value, key)
        pairs = zip(writers[known], outputs, strict=True)
        if known != key and not any(
            _changed(kernels, writers, start, last) for start, last in pairs
        ):
            aliases[key] = known
            gone |= set(outputs)

    def change(buffer: Buffer) -> Buffer:
        if buffer.key not in aliases:
            return buffer
        known = buffers[aliases[buffer.key]]
        return replace(buffer, name=known.name, alias_of=known.root)

    rest = _without(kernels, gone)
    return [map_buffers(kernel, change) for kernel in rest] if aliases else rest


def _without(kernels: Sequence[Kernel], gone: set[Output]) -> list[Kernel]:
    """Return kernels without some of their results."""
    rest: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop):
            outputs = enumerate(kernel.outputs)
            left = tuple(output for i, output in outputs if (number, i) not in gone)
            if left:
                rest.append(replace(kernel, outputs=left))
        else:
            rest.append(kernel)
    return rest


def _value_key(
    kernels: Sequence[Kernel],
    buffer: Buffer,
    outputs: Sequence[Output],
    aliases: dict[BufferKey, BufferKey],
) -> Any:
    """Return what an array is computed from; None where that is unknown."""
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
    """Return whether what a kernel reads has changed since an equal one before it."""
    read = {b.key for b in kernels[last[0]].reads()}
    return any(start[0] < n <= last[0] for key in read for n, _ in writers.get(key, []))


def hoist_constants(plan: Plan) -> StepKernels:
    """Let what never changes be computed once, before the first step."""
    kernels = plan.kernels
    uses = Uses(kernels)
    once: list[Kernel] = []
    every: list[Kernel] = []
    known: set[BufferKey] = set()
    for number, kernel in enumerate(kernels):
        alone = all(len(uses.writers[b.key]) == 1 for b in kernel.writes())
        if _is_constant(kernel, known) and (alone or _is_fill(kernels, uses, number)):
            once.append(kernel)
            if alone:
                known |= {b.key for b in kernel.writes()}
        else:
            every.append(kernel)
    return StepKernels(plan, tuple(every), tuple(once))


def _is_constant(kernel: Kernel, known: set[BufferKey]) -> bool:
    if not is_map(kernel) or any(b.kind != "arena" for b in kernel.writes()):
        return False
    return all(b.kind == "constant" or b.key in known for b in kernel.reads())


def _is_fill(kernels: Sequence[Kernel], uses: Uses, number: int) -> bool:
    """Return whether others write the same elements of a fill in every step."""
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
