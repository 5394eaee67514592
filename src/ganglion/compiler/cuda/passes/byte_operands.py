"""Operands of products that are bytes: they stay bytes, and sums are scaled.

Images come as bytes, and what a first layer multiplies is each of them times a number.
As bytes they take a quarter of the memory, and of the time to fetch them. A product
multiplies them as they are, which no precision rounds, and scales its sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cuda.epilogue import Root, is_flat, is_map
from ganglion.compiler.cuda.passes.cse import map_buffers
from ganglion.compiler.cuda.text import root
from ganglion.compiler.cuda.tiling import Product, on_tensor_cores
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Contract,
    Expr,
    Kernel,
    Literal,
    Loop,
)

BYTE, F32 = np.dtype("uint8"), np.dtype("float32")
CHUNK = 16  # bytes that are copied at once


@dataclass(frozen=True, eq=False)
class Scaled(Buffer):
    """Bytes, of which each stands for itself times a number."""

    scale: float = 1.0

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype.name}{list(self.shape)} × {self.scale:g}"


def keep_bytes(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Keep what only products read as bytes, where it is scaled bytes."""
    made: dict[Root, tuple[Loop, Expr, Scaled]] = {}
    for kernel in kernels:
        if isinstance(kernel, Loop) and (found := _scaled(kernel)):
            made[root(kernel.target.buffer)] = (kernel, *found)
    kept = {one for one in made if _suits(one, made[one][2], kernels)}

    def change(buffer: Buffer) -> Buffer:
        return made[root(buffer)][2] if root(buffer) in kept else buffer

    result = []
    for kernel in kernels:
        if isinstance(kernel, Loop) and root(kernel.target.buffer) in kept:
            _, source, scaled = made[root(kernel.target.buffer)]
            target = replace(kernel.target, buffer=scaled)
            kernel = replace(kernel, outputs=((source, target),))
        elif isinstance(kernel, Contract):
            kernel = map_buffers(kernel, change)
        result.append(kernel)
    return result


def _scaled(kernel: Loop) -> tuple[Expr, Scaled] | None:
    """Return the bytes that a map scales, and what it stores if it leaves them so."""
    target = kernel.target
    whole = (
        is_map(kernel) and len(kernel.outputs) == 1 and is_flat(target, kernel.outer)
    )
    if not whole or target.buffer.kind != "arena" or target.buffer.dtype != F32:
        return None
    expr, scale = kernel.expr, 1.0
    if isinstance(expr, Apply) and expr.op == "multiply":
        factors = [one for one in expr.args if isinstance(one, Literal)]
        others = [one for one in expr.args if not isinstance(one, Literal)]
        if len(factors) != 1:
            return None
        scale, (expr,) = float(factors[0].value), others
    if not isinstance(expr, Apply) or expr.op != "cast" or expr.args[0].dtype != BYTE:
        return None
    one = target.buffer
    return expr.args[0], Scaled(one.name, one.shape, BYTE, one.kind, scale=scale)


def _suits(made: Root, scaled: Scaled, kernels: Iterable[Kernel]) -> bool:
    """Whether all that read an array are products that copy it in whole chunks."""
    users = [one for one in kernels if any(root(b) == made for b in one.reads())]
    writers = [one for one in kernels if any(root(b) == made for b in one.writes())]
    return (
        len(writers) == 1
        and bool(users)
        and all(_copies_bytes(one, made, scaled) for one in users)
    )


def _copies_bytes(kernel: Kernel, made: Root, scaled: Scaled) -> bool:
    if not isinstance(kernel, Contract) or not on_tensor_cores(kernel, "tf32"):
        return False
    if root(kernel.left.buffer) != made or root(kernel.right.buffer) == made:
        return False
    left = replace(kernel.left, buffer=scaled)
    return Product(replace(kernel, left=left)).lanes("left") == CHUNK
