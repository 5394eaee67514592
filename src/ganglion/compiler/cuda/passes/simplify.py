"""Eliminate common subexpressions, hoist constants, compare the results of ReLUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganglion.compiler.cuda.fusion import is_sign_test, is_zero
from ganglion.compiler.cuda.launches import StepKernels
from ganglion.compiler.plan.epilogues import is_map
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    BufferKey,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    Shape,
    mapped,
    sources,
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


# ---- gradients of ReLUs --------------------------------------------------------------


def compare_results(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let gradients of ReLUs compare results, so that inputs need not be stored.

    A result is positive exactly where the ReLU's input is, in the precision in which it
    is stored.
    """
    return _compared(kernels, None)[0]


def compare_results_alone(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The same where nothing else reads the inputs: others would read both arrays."""
    changed, compared = _compared(kernels, None)
    uses = Uses(changed)

    def is_read_by(number: int, buffer: Buffer) -> bool:
        return buffer.kind == "arena" and set(uses.readers[buffer.key]) <= {number}

    alone = {
        result.key
        for result in compared
        if any(is_read_by(result.number, b) for b in sources(result.before))
    }
    return _compared(kernels, alone)[0] if alone else list(kernels)


_Key = tuple[Shape, str]


@dataclass(frozen=True)
class _Result:
    """The result of a ReLU, and its input."""

    key: _Key
    number: int  # of the kernel
    before: Expr
    load: Load

    def is_changed(self, uses: Uses, number: int) -> bool:
        """Return whether the input or the result has changed before another kernel."""
        return any(
            self.number < writer < number
            for buffer in sources(self.before, self.load)
            for writer in uses.writers[buffer.key]
        )


def _compared(
    kernels: Sequence[Kernel], chosen: Collection[_Key] | None
) -> tuple[list[Kernel], set[_Result]]:
    """Return kernels that compare results, of `chosen` ReLUs or all, and those."""
    uses, results, compared = Uses(kernels), dict[_Key, _Result](), set[_Result]()
    changed: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if not isinstance(kernel, Loop) or not is_map(kernel):
            changed.append(kernel)
            continue

        def compare(expr: Expr, number: int = number, loop: Loop = kernel) -> Expr:
            if not is_sign_test(expr):
                return expr
            zero, before = expr.children
            result = results.get((loop.shape, expression_key(before)))
            if result is None or result.is_changed(uses, number):
                return expr
            compared.add(result)
            return expr.with_children(zero, result.load)

        outputs = [(mapped(expr, compare), view) for expr, view in kernel.outputs]
        changed.append(replace(kernel, outputs=tuple(outputs)))
        for expr, view in kernel.outputs:
            if isinstance(expr, Apply) and expr.op == "maximum":
                before, least = expr.args
                key = kernel.shape, expression_key(before)
                if chosen is not None and key not in chosen:
                    continue
                if is_zero(least) and view.buffer.kind == "arena":
                    load = Load(expr.dtype, view)
                    results[key] = _Result(key, number, before, load)
    return changed, compared
