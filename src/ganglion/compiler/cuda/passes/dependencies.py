"""What work in launches is told about memory that others touch.

Some arrays are kept rounded, because only products read them; and what the launch
before does not write can be fetched while that one still runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ganglion.compiler.cuda.epilogue import Root, is_map
from ganglion.compiler.cuda.launches import Launch, works_of
from ganglion.compiler.cuda.passes.prefetch import NEXT
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Contract, Kernel, Load, Loop


def mark_rounded(launches: Sequence[Launch]) -> None:
    """Keep what only products read, or plain sums, rounded as tensor cores take it."""
    spoiled: set[Root] = set()
    products: set[Root] = set()
    for _, work in works_of(launches):
        for kernel in work.kernels:
            read = {root(b) for b in kernel.reads() if b.kind == "arena"}
            if isinstance(kernel, Contract):
                products |= {root(b) for b in kernel.reads() if b.dtype == np.float32}
            elif not _is_plain_sum(kernel):
                spoiled |= read
            if not isinstance(kernel, Contract) and not is_map(kernel):
                spoiled |= {root(b) for b in kernel.writes()}
    names = [name for kind, name in products - spoiled if kind == "arena"]
    found = frozenset((kind, name) for name in names for kind in ("arena", NEXT))
    for _, work in works_of(launches):
        work.rounded = found


def _is_plain_sum(kernel: Kernel) -> bool:
    return (
        isinstance(kernel, Loop)
        and kernel.how == "sum"
        and all(isinstance(expr, Load) for expr, _ in kernel.outputs)
    )


def mark_settled(launches: Sequence[Launch], before: set[Root] | None) -> None:
    """Tell all what they read that the launch before theirs does not write.

    A launch starts when the one before it is under way, and so the one before that has
    come to its end. `before` is what is written right before the first launch; None if
    that is another program's launch.
    """
    for launch in launches:
        works = [work for lane in launch.lanes for work in lane.works]
        for work in works:
            if before is not None:
                work.settled = frozenset(work.reads() - before)
        before = {one for work in works for one in work.writes()}


def written_last(launches: Sequence[Launch]) -> set[Root]:
    """Return what the last launch writes, as the next step calls it."""
    works = [work for _, work in works_of(launches[-1:])]
    roots = {one for work in works for one in work.writes()}
    return {("arena", name) if kind == NEXT else (kind, name) for kind, name in roots}
