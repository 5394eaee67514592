"""What fused kernels are told about memory that others touch.

Some arrays are kept rounded, because only products read them; and what the launch
before does not write can be fetched while that one still runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ganglion.compiler.cuda.epilogue import Root, is_map
from ganglion.compiler.cuda.launches import Launch, fused_kernels_of
from ganglion.compiler.cuda.passes.prefetch import NEXT
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Contract, Kernel, Load, Loop


def mark_rounded(launches: Sequence[Launch]) -> None:
    """Keep what only products read, or plain sums, rounded as tensor cores take it."""
    spoiled: set[Root] = set()
    products: set[Root] = set()
    for _, fused in fused_kernels_of(launches):
        for kernel in fused.kernels:
            read = {root(b) for b in kernel.reads() if b.kind == "arena"}
            if isinstance(kernel, Contract):
                products |= {root(b) for b in kernel.reads() if b.dtype == np.float32}
            elif not _is_plain_sum(kernel):
                spoiled |= read
            if not isinstance(kernel, Contract) and not is_map(kernel):
                spoiled |= {root(b) for b in kernel.writes()}
    names = [name for kind, name in products - spoiled if kind == "arena"]
    found = frozenset((kind, name) for name in names for kind in ("arena", NEXT))
    for _, fused in fused_kernels_of(launches):
        fused.rounded = found


def _is_plain_sum(kernel: Kernel) -> bool:
    return (
        isinstance(kernel, Loop)
        and kernel.how == "sum"
        and all(isinstance(expr, Load) for expr, _ in kernel.outputs)
    )


def mark_ready(launches: Sequence[Launch], before: set[Root] | None) -> None:
    """Tell all what they read that the launch before theirs does not write.

    A launch starts when the one before it is under way, and so the one before that has
    come to its end. `before` is what is written right before the first launch; None if
    that is another program's launch.
    """
    for launch in launches:
        fused_kernels = [
            one for partition in launch.partitions for one in partition.fused_kernels
        ]
        for fused in fused_kernels:
            if before is not None:
                fused.ready = frozenset(fused.reads() - before)
        before = {one for fused in fused_kernels for one in fused.writes()}


def written_last(launches: Sequence[Launch]) -> set[Root]:
    """Return what the last launch writes, as the next step calls it."""
    fused_kernels = [fused for _, fused in fused_kernels_of(launches[-1:])]
    roots = {one for fused in fused_kernels for one in fused.writes()}
    return {("arena", name) if kind == NEXT else (kind, name) for kind, name in roots}
