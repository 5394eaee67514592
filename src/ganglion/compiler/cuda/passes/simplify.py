"""Fewer kernels: nothing is computed twice, and what never changes only once.

The planner cuts long sums into parts for the threads of a CPU; here they are put
together again, since a kernel cuts its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ganglion.compiler.cuda.epilogue import Root, is_flat, is_map
from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.cuda.passes.rewrite import Uses, expression_key, map_buffers
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import (
    Axis,
    Buffer,
    Contract,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    Shape,
    View,
    rewrite,
    row_major,
)
from ganglion.compiler.plan.passes.collapse import collapse
from ganglion.compiler.plan.plan import Plan

Output = tuple[int, int]  # a kernel's number, and which of its results


def eliminate_common_subexpressions(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels that compute no temporary array that another one already is.

    Padded images are the most of them.
    """
    writers: dict[Root, list[Output]] = defaultdict(list)
    buffers: dict[Root, Buffer] = {}
    for number, kernel in enumerate(kernels):
        for which, buffer in enumerate(kernel.writes()):
            writers[root(buffer)].append((number, which))
            buffers[root(buffer)] = buffer
    first: dict[Any, Root] = {}
    same: dict[Root, Root] = {}
    gone: set[Output] = set()
    # What is ready first is kept: the others' readers come later.
    for key, outputs in sorted(writers.items(), key=lambda item: item[1][-1]):
        value = _value_key(kernels, buffers[key], outputs, same)
        if value is None:
            continue
        known = first.setdefault(value, key)
        pairs = zip(writers[known], outputs, strict=True)
        if known != key and not any(
            _changed(kernels, writers, start, last) for start, last in pairs
        ):
            same[key] = known
            gone |= set(outputs)

    def change(buffer: Buffer) -> Buffer:
        if root(buffer) not in same:
            return buffer
        known = buffers[same[root(buffer)]]
        return replace(buffer, name=known.name, alias_of=known.root)

    rest = _without(kernels, gone)
    return [map_buffers(kernel, change) for kernel in rest] if same else rest


def _without(kernels: Sequence[Kernel], gone: set[Output]) -> list[Kernel]:
    """Return kernels without some of their results."""
    rest: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop):
            outputs = enumerate(kernel.outputs)
            kept = tuple(one for i, one in outputs if (number, i) not in gone)
            if kept:
                rest.append(replace(kernel, outputs=kept))
        else:
            rest.append(kernel)
    return rest


def _value_key(
    kernels: Sequence[Kernel],
    buffer: Buffer,
    outputs: Sequence[Output],
    same: dict[Root, Root],
) -> Any:
    """Return what an array is computed from; None where that is not plain to see."""
    if buffer.kind != "arena":
        return None
    parts = []
    for number, which in outputs:
        kernel = kernels[number]
        if not is_map(kernel):
            return None
        assert isinstance(kernel, Loop)
        expr, view = kernel.outputs[which]
        key = expression_key(expr, same)
        parts.append((kernel.shape, view.strides, view.offset, key))
    return (buffer.shape, buffer.dtype, tuple(parts))


def _changed(
    kernels: Sequence[Kernel],
    writers: dict[Root, list[Output]],
    start: Output,
    last: Output,
) -> bool:
    """Return whether what a kernel reads has changed since an equal one before it."""
    read = {root(b) for b in kernels[last[0]].reads()}
    return any(start[0] < n <= last[0] for key in read for n, _ in writers.get(key, []))


# ---- sums in parts -----------------------------------------------------------------


def join_split_sums(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels with sums in parts put together."""
    kernels = list(kernels)
    while True:
        uses = Uses(kernels)
        for number, kernel in enumerate(kernels):
            joined = _joined(kernels, uses, number, kernel)
            if joined is not None:
                kernels = joined
                break
        else:
            return kernels


def _joined(
    kernels: list[Kernel], uses: Uses, number: int, kernel: Kernel
) -> list[Kernel] | None:
    """Return the kernels with one sum over parts and what made them put together."""
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.reduced != 1:
        return None
    for place, (expr, target) in enumerate(kernel.outputs):
        source = _only_source(kernels, uses, number, expr, target, kernel)
        if source is None:
            continue
        maker = kernels[source]
        if isinstance(maker, Contract):
            new = _summed_contract(maker, kernel, expr, target)
            if new is None:
                continue
            outputs = enumerate(kernel.outputs)
            rest = tuple(one for n, one in outputs if n != place)
            made = [new if n == source else one for n, one in enumerate(kernels)]
            made[number : number + 1] = [replace(kernel, outputs=rest)] if rest else []
            return made
        assert isinstance(maker, Loop)
        readers = _readers(kernels, uses, maker)
        whole = _summed_loop(maker, [kernels[n] for n in readers])
        if whole is not None:
            made = [whole if n == source else one for n, one in enumerate(kernels)]
            return [one for n, one in enumerate(made) if n not in readers]
    return None


def _readers(kernels: list[Kernel], uses: Uses, maker: Loop) -> list[int]:
    """Return who reads what a loop makes."""
    found = {n for _, view in maker.outputs for n in uses.readers[root(view.buffer)]}
    return sorted(found)


def _only_source(
    kernels: list[Kernel],
    uses: Uses,
    number: int,
    expr: Expr,
    target: View,
    kernel: Loop,
) -> int | None:
    """Return the kernel that made the parts, if nobody else needs them."""
    if not isinstance(expr, Load) or target.buffer.kind != "arena":
        return None
    parts = root(expr.view.buffer)
    if parts[0] != "arena" or uses.readers[parts] != [number]:
        return None
    if len(uses.writers[parts]) != 1 or not is_flat(target, kernel.outer):
        return None
    if len(uses.writers[root(target.buffer)]) != 1:
        return None
    (source,) = uses.writers[parts]
    return source if isinstance(kernels[source], (Contract, Loop)) else None


def _parts_first(expr: Expr, kernel: Loop) -> bool:
    """Return whether a sum runs over the first axis of an array, nothing else."""
    assert isinstance(expr, Load)
    size = math.prod(kernel.outer)
    wanted = (*row_major(kernel.outer), size)
    have = expr.view.strides
    whole = expr.view.offset == 0 and expr.view.buffer.size == size * kernel.shape[-1]
    return whole and all(
        n == 1 or a == b for n, a, b in zip(kernel.shape, have, wanted, strict=True)
    )


def _summed_contract(
    maker: Contract, kernel: Loop, expr: Expr, target: View
) -> Contract | None:
    parts, size = kernel.shape[-1], math.prod(kernel.outer)
    if not _parts_first(expr, kernel) or maker.out.offset:
        return None
    batch = list(maker.batch)
    inner = list(maker.inner)
    if parts > 1:
        found = [a for a in batch if a.size == parts and a.out == size]
        if len(found) != 1:
            return None
        batch.remove(found[0])
        inner.insert(0, Axis(parts, found[0].left, found[0].right))
    out = View(target.buffer, maker.out.strides)
    return replace(maker, batch=tuple(batch), inner=tuple(inner), out=out)


def _summed_loop(maker: Loop, readers: list[Kernel]) -> Kernel | None:
    """Join sums of sums: each of the first one's results is added up by a reader."""
    if maker.how != "sum" or not maker.outer:
        return None
    if any(not is_flat(view, maker.outer) for _, view in maker.outputs):
        return None
    if any(not _adds_parts(one, maker.outer[0]) for one in readers):
        return None
    kept = len(maker.outer) - 1

    def strides(old: Shape) -> Shape:
        return (*old[1 : 1 + kept], old[0], *old[1 + kept :]) if old else old

    targets: dict[Root, View] = {}
    for one in readers:
        assert isinstance(one, Loop)
        for expr, target in one.outputs:
            assert isinstance(expr, Load)
            key = root(expr.view.buffer)
            if key in targets:
                return None
            targets[key] = View(target.buffer, row_major(maker.outer[1:]))
    if targets.keys() != {root(view.buffer) for _, view in maker.outputs}:
        return None
    outputs = tuple(
        (rewrite(expr, strides), targets[root(view.buffer)])
        for expr, view in maker.outputs
    )
    whole = replace(
        maker,
        shape=strides(maker.shape),
        outputs=outputs,
        reduced=maker.reduced + 1,
    )
    return collapse(whole)


def _adds_parts(kernel: Kernel, parts: int) -> bool:
    """Return whether all that a kernel does is to add up parts of arrays."""
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.reduced != 1:
        return False
    return kernel.shape[-1] == parts and all(
        isinstance(expr, Load)
        and target.buffer.kind == "arena"
        and _parts_first(expr, kernel)
        and is_flat(target, kernel.outer)
        for expr, target in kernel.outputs
    )


# ---- what never changes ------------------------------------------------------------


def hoist_constants(plan: Plan) -> StepKernels:
    """Let what never changes be computed once, before the first step."""
    kernels = plan.kernels
    uses = Uses(kernels)
    once: list[Kernel] = []
    every: list[Kernel] = []
    known: set[Root] = set()
    for number, kernel in enumerate(kernels):
        alone = all(len(uses.writers[root(b)]) == 1 for b in kernel.writes())
        if _is_constant(kernel, known) and (alone or _is_fill(kernels, uses, number)):
            once.append(kernel)
            if alone:
                known |= {root(b) for b in kernel.writes()}
        else:
            every.append(kernel)
    return StepKernels(plan, tuple(every), tuple(once))


def _is_constant(kernel: Kernel, known: set[Root]) -> bool:
    if not is_map(kernel) or any(b.kind != "arena" for b in kernel.writes()):
        return False
    return all(b.kind == "constant" or root(b) in known for b in kernel.reads())


def _is_fill(kernels: Sequence[Kernel], uses: Uses, number: int) -> bool:
    """Return whether others write the same elements of a fill in every step."""
    kernel = kernels[number]
    assert isinstance(kernel, Loop)
    if len(kernel.outputs) > 1 or not isinstance(kernel.expr, Literal):
        return False
    key = root(kernel.target.buffer)
    first, *others = uses.writers[key]
    return (
        first == number
        and all(is_map(kernels[n]) for n in others)
        and all(n > others[-1] for n in uses.readers[key])
    )
