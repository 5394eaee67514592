"""A plan: kernels in order, and the buffers they work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ganglion.compiler.plan.kernels import Buffer, Kernel


@dataclass(frozen=True)
class Plan:
    """Kernels in order, and the buffers they work on; targets add what they need."""

    name: str
    kernels: tuple[Kernel, ...]
    data: dict[str, Buffer]
    state: dict[str, Buffer]
    results: dict[str, Buffer]

    def temporary_arrays(self) -> dict[Buffer, np.ndarray]:
        """Return memory for what is computed within a step: flat arrays."""
        touched = {b.root for kernel in self.kernels for b in kernel.writes()}
        return {b: np.zeros(b.size, b.dtype) for b in touched if b.kind == "arena"}

    def __str__(self) -> str:
        from ganglion.compiler.plan.printer import show

        return show(self)
