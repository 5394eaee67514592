"""A plan as LLVM IR text: one function a kernel, and the calls of a step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ganglion.compiler.cpu.elementwise import LoopText
from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.gemm import Contraction
from ganglion.compiler.cpu.scan_scatter import emit_pool_back, emit_scan, emit_scatter
from ganglion.compiler.cpu.skip_zeros import NonzeroBits, Nonzeros
from ganglion.compiler.cpu.sparse import BitContraction, NonzeroLists, emit_bits
from ganglion.compiler.cpu.time_loop import emit_time_loop
from ganglion.compiler.cpu.winograd import Weights
from ganglion.compiler.cpu.winograd_conv import Conv, Grads
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
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.compiler.plan.winograd import (
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradSpread,
    WinogradWeights,
)

EMITTERS: dict[type[Kernel], Callable[[Any], Emitted]] = {
    Loop: lambda k: LoopText(k).emit(),
    Contract: lambda k: (BitContraction if k.bits else Contraction)(k).emit(),
    PoolBack: emit_pool_back,
    Scan: emit_scan,
    Scatter: emit_scatter,
    Nonzeros: lambda k: NonzeroLists(k).emit(),
    NonzeroBits: emit_bits,
    TimeLoop: lambda k: emit_time_loop(k, emit_kernel),
    WinogradWeights: lambda k: Weights().emit(k),
    WinogradConv: lambda k: Conv(k).emit(),
    WinogradSpread: lambda k: Conv(k).emit(),
    WinogradGrads: lambda k: Grads(k).emit(),
    WinogradKernel: lambda k: Weights().emit_back(k),
}


@dataclass(frozen=True)
class Record:
    """One call of a step: a function by its hash, its buffers, how threads split it."""

    function: str
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int


def emit(plan: Plan) -> tuple[dict[str, str], list[Record]]:
    """Return every function's module by its hash, and the calls of a step in order."""
    modules: dict[str, str] = {}
    records = []
    for kernel in plan.kernels:
        emitted = emit_kernel(kernel)
        _check_buffers(kernel, emitted)
        name = "k" + hashlib.sha256(emitted.text.encode()).hexdigest()[:24]
        if name not in modules:
            modules[name] = _module(name, emitted)
        records.append(Record(name, emitted.buffers, emitted.parallel, emitted.grain))
    return modules, records


def emit_kernel(kernel: Kernel) -> Emitted:
    """Return a kernel as text."""
    return EMITTERS[type(kernel)](kernel)


def _check_buffers(kernel: Kernel, emitted: Emitted) -> None:
    """Refuse code that touches buffers its kernel does not name: barriers need them."""
    named = {*kernel.reads(), *kernel.writes()}
    hidden = [b for b in emitted.buffers if b not in named and b.kind != "constant"]
    if hidden:
        raise AssertionError(f"{kernel.name} does not name {hidden}")


def _module(name: str, emitted: Emitted) -> str:
    text = emitted.text.replace("define void @kernel(", f"define void @{name}(", 1)
    declared, helpers = sorted(emitted.declared), sorted(emitted.helpers)
    return "\n".join([*declared, text, *helpers, "attributes #0 = { nounwind }", ""])
