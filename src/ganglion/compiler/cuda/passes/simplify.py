"""Changes to a plan's kernels that suit a GPU, before they are put into launches.

The planner cuts long sums into parts for the threads of a CPU; here they are put
together again, since a kernel cuts its own. What never changes is computed only once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields

from ganglion.compiler.cuda import epilogue
from ganglion.compiler.cuda.epilogue import Root, SplitContract, is_flat, is_map
from ganglion.compiler.cuda.passes.cse import eliminate_common_subexpressions
from ganglion.compiler.cuda.text import computed, root
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

EACH = 4096  # elements of a block of a map that adds up what it computes


@dataclass(frozen=True)
class StepKernels:
    """Kernels of every step, and those that run once, before the first."""

    once: tuple[Kernel, ...]
    every: tuple[Kernel, ...]

    def kept(self) -> set[Root]:
        """Return the memory that must not be used for anything else."""
        return {root(b) for one in self.once for b in one.writes()}


def simplify(kernels: Sequence[Kernel]) -> StepKernels:
    """Return equal kernels, fewer of them."""
    made = [one for one in kernels if not _is_empty(one)]
    return _constant_first(eliminate_common_subexpressions(_whole_sums(made)))


def _is_empty(kernel: Kernel) -> bool:
    return isinstance(kernel, Loop) and math.prod(kernel.outer) == 0


class Uses:
    """Who reads and writes what."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.readers: dict[Root, list[int]] = defaultdict(list)
        self.writers: dict[Root, list[int]] = defaultdict(list)
        for number, kernel in enumerate(kernels):
            for one in {root(b) for b in kernel.reads()}:
                self.readers[one].append(number)
            for one in {root(b) for b in kernel.writes()}:
                self.writers[one].append(number)


# ---- sums in parts -----------------------------------------------------------------


def _whole_sums(kernels: list[Kernel]) -> list[Kernel]:
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
            rest = _without(kernel, place)
            made = [new if n == source else one for n, one in enumerate(kernels)]
            made[number : number + 1] = [] if rest is None else [rest]
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


def _without(kernel: Loop, place: int) -> Loop | None:
    kept = [one for n, one in enumerate(kernel.outputs) if n != place]
    return replace(kernel, outputs=tuple(kept)) if kept else None


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


def split_long_contractions(
    kernels: Sequence[Kernel], split_k_of: Callable[[Contract], int]
) -> list[Kernel]:
    """Cut long contractions into as many parts as keep a GPU busy, then add those."""
    made: list[Kernel] = []
    for kernel in kernels:
        parts = split_k_of(kernel) if isinstance(kernel, Contract) else 1
        if parts == 1:
            made.append(kernel)
            continue
        assert isinstance(kernel, Contract)
        target = kernel.out.buffer
        name, dtype = f"{target.name} parts", computed(target.dtype)
        partial = Buffer(name, (parts, *target.shape), dtype, "arena")
        fields = {f.name: getattr(kernel, f.name) for f in dataclass_fields(kernel)}
        view = View(partial, kernel.out.strides, kernel.out.offset)
        made.append(SplitContract(**(fields | {"out": view, "parts": parts})))
        load = Load(dtype, View(partial, (1, target.size)))
        shape = (target.size, parts)
        made.append(Loop.of("sum", shape, load, View(target, (1,)), 1, "sum"))
    return made


def split_column_sums(
    sums: Sequence[Kernel], kernels: Sequence[Kernel]
) -> list[Kernel]:
    """Cut long sums by columns of what maps compute, so that those can take them.

    Each block of a map adds up its own rows; what the blocks have is added up after.
    """
    uses = Uses(kernels)
    makers = {
        one: kernels[numbers[0]]
        for one, numbers in uses.writers.items()
        if len(numbers) == 1
    }
    made: list[Kernel] = []
    for kernel in sums:
        parts = _row_parts(kernel, makers)
        if parts == 1:
            made.append(kernel)
            continue
        assert isinstance(kernel, Loop)
        made += _cut_rows(kernel, parts)
    return made


def _row_parts(kernel: Kernel, makers: dict[Root, Kernel]) -> int:
    """Return into how many parts of its rows a sum is cut."""
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.reduced != 1:
        return 1
    long = math.prod(kernel.shape) >= epilogue.FEWEST_SUMMED
    if not long or len(kernel.outer) != 1 or kernel.adds:
        return 1
    columns, rows = kernel.shape
    flat = [
        view.buffer
        for view in (e.view for e, _ in kernel.outputs if isinstance(e, Load))
        if (view.strides, view.offset) == ((1, columns), 0)
    ]
    maps = [one for one in flat if is_map(makers.get(root(one), kernel))]
    if len(maps) != len(kernel.outputs):
        return 1
    wanted = max(columns * rows // EACH, 1)
    return math.gcd(rows, 1 << (wanted - 1).bit_length())


def _cut_rows(kernel: Loop, parts: int) -> list[Loop]:
    """Return sums of parts of the rows, of each array, and the sums of those."""
    columns, rows = kernel.shape
    each = rows // parts

    def strides(old: Shape) -> Shape:
        return (old[1] * each, *old) if old else old

    made: list[Loop] = []
    lasts: list[tuple[Expr, View]] = []
    for expr, target in kernel.outputs:
        name = f"{target.buffer.name} rows"
        dtype = computed(target.buffer.dtype)
        held = Buffer(name, (parts, columns), dtype, "arena")
        cut = rewrite(expr, strides)
        shape = (parts, columns, each)
        made.append(Loop.of(kernel.name, shape, cut, View.whole(held), 1, "sum"))
        lasts.append((Load(held.dtype, View(held, (1, columns))), target))
    return [*made, Loop(kernel.name, (columns, parts), tuple(lasts), 1, "sum")]


# ---- what never changes ------------------------------------------------------------


def _constant_first(kernels: list[Kernel]) -> StepKernels:
    uses = Uses(kernels)
    once: list[Kernel] = []
    every: list[Kernel] = []
    known: set[Root] = set()
    for number, kernel in enumerate(kernels):
        if _is_constant(kernel, known) and (
            _alone(kernel, uses) or _filled(kernels, uses, number)
        ):
            once.append(kernel)
            if _alone(kernel, uses):
                known |= {root(b) for b in kernel.writes()}
        else:
            every.append(kernel)
    return StepKernels(tuple(once), tuple(every))


def _is_constant(kernel: Kernel, known: set[Root]) -> bool:
    if not is_map(kernel) or any(b.kind != "arena" for b in kernel.writes()):
        return False
    return all(b.kind == "constant" or root(b) in known for b in kernel.reads())


def _alone(kernel: Kernel, uses: Uses) -> bool:
    """Return whether nobody else writes what a kernel writes."""
    return all(len(uses.writers[root(b)]) == 1 for b in kernel.writes())


def _filled(kernels: list[Kernel], uses: Uses, number: int) -> bool:
    """Return whether what others write over a fill is the same places at every step."""
    kernel = kernels[number]
    assert isinstance(kernel, Loop)
    if len(kernel.outputs) > 1 or not isinstance(kernel.expr, Literal):
        return False
    what = root(kernel.target.buffer)
    first, *others = uses.writers[what]
    return (
        first == number
        and all(is_map(kernels[n]) for n in others)
        and all(n > others[-1] for n in uses.readers[what])
    )
