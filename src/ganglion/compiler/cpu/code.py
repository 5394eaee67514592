"""One function a kernel: as LLVM IR, and as machine code.

Functions are known by the keys of their forms, and loaded before, found on disk, or
emitted and compiled: a program compiles only those of its kernels that no program
before it had, whatever their sizes were.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganglion import config
from ganglion.compiler import cache
from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.elementwise import LoopText
from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.gemm import Contraction
from ganglion.compiler.cpu.host_calls import emit_host_call
from ganglion.compiler.cpu.packed_gemm import (
    PackedContraction,
    PackedKind,
    packed_buffers,
)
from ganglion.compiler.cpu.plan import CpuPlan
from ganglion.compiler.cpu.scan_scatter import emit_pool_back, emit_scan, emit_scatter
from ganglion.compiler.cpu.skip_zeros import NonzeroBits, Nonzeros
from ganglion.compiler.cpu.small_gemm import ProductKind, ProductText
from ganglion.compiler.cpu.sparse import BitContraction, NonzeroLists, emit_bits
from ganglion.compiler.cpu.templates import Form, LoopTemplate, form_of
from ganglion.compiler.cpu.text import Parameter
from ganglion.compiler.cpu.time_loop import emit_time_loop
from ganglion.compiler.cpu.winograd import Weights
from ganglion.compiler.cpu.winograd_conv import Conv, Grads
from ganglion.compiler.plan.host_call import HostCall
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

# ---- kernels as text -----------------------------------------------------------------

EMITTERS: dict[type[Kernel], Callable[[Any], Emitted]] = {
    Loop: lambda k: LoopText(k).emit(),
    Contract: lambda k: _contraction(k).emit(),
    PoolBack: emit_pool_back,
    Scan: emit_scan,
    Scatter: emit_scatter,
    HostCall: emit_host_call,
    Nonzeros: lambda k: NonzeroLists(k).emit(),
    NonzeroBits: emit_bits,
    TimeLoop: lambda k: emit_time_loop(k, emit_kernel),
    WinogradWeights: lambda k: Weights().emit(k),
    WinogradConv: lambda k: Conv(k).emit(),
    WinogradSpread: lambda k: Conv(k).emit(),
    WinogradGrads: lambda k: Grads(k).emit(),
    WinogradKernel: lambda k: Weights().emit_back(k),
}


def _contraction(
    kernel: Contract,
) -> Contraction | BitContraction | PackedContraction:
    if kernel.packed:
        return PackedContraction.of(kernel)
    return BitContraction(kernel) if kernel.bits else Contraction(kernel)


@dataclass(frozen=True)
class Record:
    """One call of a step: a function by its hash, its arguments, how threads split it.

    Arguments are the addresses of buffers, then the values of parameters.
    """

    function: str
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int
    parameters: tuple[int, ...] = ()

    @property
    def grains(self) -> int:
        """How many parts threads may take at most: the last may be smaller."""
        return -(-self.parallel // self.grain)


def emit(plan: Plan) -> tuple[dict[str, str], list[Record]]:
    """Return every function's module by its hash, and the calls of a step in order."""
    modules: dict[str, str] = {}
    records = []
    for kernel in plan.kernels:
        form = form_of(kernel)
        signature, module = emit_form(form)
        modules[signature.name] = module
        records.append(signature.called(form))
    return modules, records


@dataclass(frozen=True)
class Signature:
    """How a function is called: with which buffers of a form, by their numbers.

    How threads may split it is a number, or a parameter.
    """

    name: str
    buffers: tuple[int, ...]
    parallel: int
    grain: int

    def called(self, form: Form) -> Record:
        """Return the call of a kernel of this form."""
        buffers = tuple([form.buffers[number] for number in self.buffers])
        parallel, grain = form.value(self.parallel), form.value(self.grain)
        return Record(self.name, buffers, parallel, grain, form.values)


def emit_form(form: Form) -> tuple[Signature, str]:
    """Return how the function of a form is called, and its module."""
    template = form.template()
    if isinstance(template, LoopTemplate):
        loop = LoopText(template.kernel, template.facts, template.parameters)
        emitted, buffers = loop.emit(), template.buffers
    elif isinstance(template, ProductKind):
        product = ProductText(template)
        emitted, buffers = product.emit(), product.buffers
    elif isinstance(template, PackedKind):
        packed = PackedContraction.told(template)
        emitted, buffers = packed.emit(), packed_buffers(packed.kernel)
    else:
        emitted, buffers = emit_kernel(template), form.buffers
        _check_buffers(template, emitted)
    name = "k" + hashlib.sha256(emitted.text.encode()).hexdigest()[:24]
    numbers = {buffer: number for number, buffer in enumerate(buffers)}
    passed = tuple(numbers[buffer] for buffer in emitted.buffers)
    signature = Signature(name, passed, emitted.parallel, emitted.grain)
    return signature, _module(name, emitted)


def emit_kernel(kernel: Kernel) -> Emitted:
    """Return a kernel as text."""
    return EMITTERS[type(kernel)](kernel)


def _check_buffers(kernel: Kernel, emitted: Emitted) -> None:
    """Refuse code that touches buffers its kernel does not name: barriers need them."""
    named = {*kernel.reads(), *kernel.writes()}
    hidden = [b for b in emitted.buffers if b not in named and b.kind != "constant"]
    if hidden:
        raise AssertionError(f"{kernel.name} does not name {hidden}")


_END_OF_MODULE = "attributes #0 = { nounwind }\n!0 = !{}\n"


def _module(name: str, emitted: Emitted) -> str:
    text = emitted.text.replace("define void @kernel(", f"define void @{name}(", 1)
    declared, helpers = sorted(emitted.declared), sorted(emitted.helpers)
    return "\n".join([*declared, text, *helpers, _END_OF_MODULE])


# ---- machine code ------------------------------------------------------------------

Entry = tuple[Signature, bytes]  # how a function is called, and its machine code
KEPT = 4096  # functions that stay loaded when no program has them any more


@dataclass(frozen=True)
class Function:
    """A function that is loaded for as long as this is there."""

    signature: Signature
    library: jit.Library
    address: int


def load(plan: CpuPlan) -> tuple[list[Record], dict[str, Function]]:
    """Return the calls of a step, and the functions that they call, by name."""
    target = jit.identity(jit.host())
    forms = [form_of(kernel) for kernel in plan.kernels]
    keys: list[Hashable] = [
        (target, form.key) if form.key is not None else number
        for number, form in enumerate(forms)
    ]
    functions = _loaded.get(keys)
    missing = {
        key: form for key, form in zip(keys, forms, strict=True) if key not in functions
    }
    if missing:
        functions |= _load(missing, target)
        _loaded.add({key: functions[key] for key in missing if isinstance(key, tuple)})
    ordered = [functions[key] for key in keys]
    calls = [f.signature.called(form) for f, form in zip(ordered, forms, strict=True)]
    return calls, {function.signature.name: function for function in ordered}


def _load(forms: Mapping[Hashable, Form], target: str) -> dict[Hashable, Function]:
    """Load the functions of some forms, all at once: that takes hardly longer."""
    entries = _read(forms, target)
    missing = {key: form for key, form in forms.items() if key not in entries}
    if missing:
        entries |= _compile(missing, target)
    # Forms may differ, and their texts not: a library has each name once.
    codes = {signature.name: code for signature, code in entries.values()}
    library = jit.Library(*codes.values())
    return {
        key: Function(signature, library, library.address(signature.name))
        for key, (signature, _) in entries.items()
    }


def _read(forms: Mapping[Hashable, Form], target: str) -> dict[Hashable, Entry]:
    """Return the forms whose machine code is on disk, with that."""
    entries: dict[Hashable, Entry] = {}
    for key, form in forms.items():
        entry = cache.read(_path(form, target)) if form.key is not None else None
        if entry is not None:
            entries[key] = _unpacked(entry)
    return entries


def _compile(forms: Mapping[Hashable, Form], target: str) -> dict[Hashable, Entry]:
    """Emit and compile some forms, and keep their machine code."""
    emitted = [emit_form(form) for form in forms.values()]
    modules = [module for _, module in emitted]
    codes = jit.object_codes(modules, jit.host(), config.threads())
    entries: dict[Hashable, Entry] = {}
    for (key, form), (signature, _), code in zip(
        forms.items(), emitted, codes, strict=True
    ):
        entries[key] = signature, code
        if form.key is not None:
            cache.keep(_path(form, target), _packed(signature, code))
    return entries


def _path(form: Form, target: str) -> Path:
    return cache.path_of(target, repr(form.key))


def _packed(signature: Signature, code: bytes) -> bytes:
    counts = [
        [count.number] if isinstance(count, Parameter) else count
        for count in (signature.parallel, signature.grain)
    ]
    head = json.dumps([signature.name, signature.buffers, *counts])
    return head.encode() + b"\n" + code


def _unpacked(entry: bytes) -> tuple[Signature, bytes]:
    head, _, code = entry.partition(b"\n")
    name, buffers, *counts = json.loads(head)
    parallel, grain = (Parameter(*c) if isinstance(c, list) else c for c in counts)
    return Signature(name, tuple(buffers), parallel, grain), code


class _Loaded:
    """The functions that this process has loaded, those last used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: OrderedDict[Hashable, Function] = OrderedDict()

    def get(self, keys: Sequence[Hashable]) -> dict[Hashable, Function]:
        """Return those of some functions that are loaded."""
        with self._lock:
            loaded = {
                key: self._functions[key] for key in keys if key in self._functions
            }
            for key in loaded:
                self._functions.move_to_end(key)
            return loaded

    def add(self, functions: Mapping[Hashable, Function]) -> None:
        """Keep some functions, instead of others that were not used for longest."""
        with self._lock:
            self._functions.update(functions)
            while len(self._functions) > KEPT:
                self._functions.popitem(last=False)

    def clear(self) -> None:
        """Keep none but those that programs hold."""
        with self._lock:
            self._functions.clear()


_loaded = _Loaded()


def forget() -> None:
    """Let go of the functions that no program uses."""
    _loaded.clear()
