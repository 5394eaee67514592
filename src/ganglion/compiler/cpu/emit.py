"""A plan as LLVM IR text: one function a kernel, and the loop that runs them all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ganglion.compiler.cpu.elementwise import emit_loop
from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.gemm import emit_contract
from ganglion.compiler.cpu.scan_scatter import emit_pool_back, emit_scan, emit_scatter
from ganglion.compiler.cpu.skip_zeros import NonzeroBits, Nonzeros
from ganglion.compiler.cpu.sparse import emit_nonzeros
from ganglion.compiler.cpu.sparse_conv import emit_bits, emit_with_bits
from ganglion.compiler.cpu.winograd import emit_winograd
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Kernel,
    Loop,
    PoolBack,
    Scan,
    Scatter,
)
from ganglion.compiler.plan.plan import Plan


@dataclass(frozen=True)
class Record:
    """One call of a step: a function by its hash, its buffers, how to cut it."""

    function: str
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int


def emit(plan: Plan) -> tuple[dict[str, str], list[Record]]:
    """Return every function's module by its hash, and the calls of a step in order."""
    modules: dict[str, str] = {}
    records = []
    for kernel in plan.kernels:
        made = emit_kernel(kernel)
        _check_buffers(kernel, made)
        name = "k" + hashlib.sha256(made.text.encode()).hexdigest()[:24]
        if name not in modules:
            modules[name] = _module(name, made)
        records.append(Record(name, made.buffers, made.parallel, made.grain))
    return modules, records


def _check_buffers(kernel: Kernel, made: Emitted) -> None:
    """Refuse code that touches what its kernel does not name: barriers rely on it."""
    named = {*kernel.reads(), *kernel.writes()}
    hidden = [b for b in made.buffers if b not in named and b.kind != "constant"]
    if hidden:
        raise AssertionError(f"{kernel.name} does not name {hidden}")


def emit_kernel(kernel: Kernel) -> Emitted:
    """Return a kernel as text."""
    if isinstance(kernel, Loop):
        return emit_loop(kernel)
    if isinstance(kernel, Contract):
        return emit_with_bits(kernel) if kernel.bits else emit_contract(kernel)
    if isinstance(kernel, PoolBack):
        return emit_pool_back(kernel)
    if isinstance(kernel, Scan):
        return emit_scan(kernel)
    if isinstance(kernel, Scatter):
        return emit_scatter(kernel)
    if isinstance(kernel, Nonzeros):
        return emit_nonzeros(kernel)
    if isinstance(kernel, NonzeroBits):
        return emit_bits(kernel)
    return emit_winograd(kernel)


def _module(name: str, made: Emitted) -> str:
    text = made.text.replace("define void @kernel(", f"define void @{name}(", 1)
    return "\n".join([*sorted(made.declared), text, "attributes #0 = { nounwind }", ""])
