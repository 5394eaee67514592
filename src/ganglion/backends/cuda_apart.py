"""Updates of several weights in one loop, taken apart.

The planner puts loops of one shape together, so that threads of a CPU meet less often:
equal layers' weights are updated by one. On a GPU, each is better updated where its own
gradient is: the product that makes it goes on with it, and need not store it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ganglion.backends.cuda_text import root
from ganglion.backends.cuda_work import Root, Stored, is_map
from ganglion.plan.kernel import Kernel, Loop, sources

FEWEST = 1 << 16  # weights that are worth a kernel of their own


def apart(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Yield kernels; large updates that share no large array are loops of their own."""
    for one in kernels:
        if isinstance(one, Loop) and _updates_much(one):
            for (expr, target), *more in _groups(one):
                yield replace(one, expr=expr, target=target, more=tuple(more))
        else:
            yield one


def _updates_much(loop: Loop) -> bool:
    large = is_map(loop) and math.prod(loop.shape) >= FEWEST
    return large and any(b.kind == "state" for b in loop.writes())


def _groups(loop: Loop) -> list[Stored]:
    """Return what a loop stores, in groups that have nothing to do with each other."""
    groups: list[tuple[set[Root], Stored]] = []
    written = {root(b) for b in loop.writes()}
    for expr, view in loop.stored:
        read = {root(b): b.size for b in sources(expr)}
        touched = {one for one, size in read.items() if size >= FEWEST} | {
            one for one in (*read, root(view.buffer)) if one in written
        }
        met = [one for one in groups if one[0] & touched]
        groups = [one for one in groups if not one[0] & touched]
        touched = touched.union(*(known for known, _ in met))
        stored = [one for _, group in met for one in group]
        groups.append((touched, (*stored, (expr, view))))
    return [stored for _, stored in groups]
