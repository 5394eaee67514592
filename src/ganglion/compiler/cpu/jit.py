"""Machine code: LLVM IR compiled for a machine, and loaded or printed as assembly.

Kernels' functions are cached by the keys of their forms: in the process, then on disk.
A program compiles only kernels that no program had before, of whatever sizes, into a
few object files. The loop over steps, `step_loop.ll`, is LLVM IR as well: it runs the
calls of a tape.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any

from ganglion import config
from ganglion.compiler import cache as code_cache
from ganglion.compiler.cpu.emit import Form, Record, Signature, emit_form, form_of
from ganglion.compiler.cpu.plan import CpuPlan
from ganglion.compiler.cpu.text import Parameter
from ganglion.system.records import record

# Levels of x86-64, each with features that imply it.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": ("sse4.2", "popcnt"),
    "x86-64-v3": ("avx2", "fma", "bmi2"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
}
# Part of the cache's key: to be incremented when LLVM's passes change.
PASSES = 3


@record(guarded=True)
class Target:
    """A processor by LLVM's names; an empty triple is that of this system."""

    cpu: str
    features: str = ""
    triple: str = ""


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def host() -> Target:
    """Return this machine, or the less capable one that GANGLION_CPU names.

    ``GANGLION_CPU=x86-64-v3`` compiles code without AVX-512.
    """
    cpu = os.environ.get("GANGLION_CPU")
    return Target(_possible(cpu)) if cpu else _this_machine()


@cache
def _possible(cpu: str) -> str:
    """Return the name of a processor, if this machine can run its code.

    LLVM accepts any name, with a warning: the code would raise an illegal instruction,
    or be for a very old processor.
    """
    if family() != "x86":
        return cpu
    features = _llvm().get_host_cpu_features()
    can = [name for name, needs in _LEVELS.items() if all(map(features.get, needs))]
    if cpu not in can:
        problem = "is not one of" if cpu not in _LEVELS else "asks for more than"
        raise ValueError(
            f"GANGLION_CPU={cpu} {problem} what this machine has: {', '.join(can)}. "
            "Without it, code is compiled for the machine itself."
        )
    return cpu


@cache
def _this_machine() -> Target:
    llvm = _llvm()
    features = llvm.get_host_cpu_features().flatten()
    if "+avx512f" in features:
        features += ",-prefer-256-bit"
    return Target(llvm.get_host_cpu_name(), features)


def has_fast_third_cache() -> bool:
    """Return whether weights may be read from the third-level cache again and again.

    A core of AMD's (Zen 4) gets 65 GB/s or more from it, which hides behind products;
    one of Intel's (Sapphire Rapids) 29 GB/s, which does not.
    """
    return _this_machine().cpu.startswith("znver")


def _new_machine(target: Target) -> Any:
    llvm = _llvm()
    if not target.triple:
        chosen = llvm.Target.from_default_triple()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        chosen = llvm.Target.from_triple(target.triple)
    # Above level 1, LLVM schedules instructions again after register allocation, which
    # takes a sixth of the time for long kernels and makes none of them faster.
    return chosen.create_target_machine(
        cpu=target.cpu, features=target.features, opt=1, jit=not target.triple
    )


@cache
def machine(target: Target) -> Any:
    """Return LLVM's machine for a target."""
    return _new_machine(target)


def family() -> str:
    """Return "arm" or "x86"."""
    return "arm" if platform.machine().lower() in ("arm64", "aarch64") else "x86"


@cache
def identity(target: Target) -> str:
    """Return everything that machine code depends on besides its text."""
    llvm = _llvm()
    version = ".".join(map(str, llvm.llvm_version_info))
    triple = target.triple or llvm.get_default_triple()
    return f"llvm {version}, passes {PASSES}, {triple}, {target.cpu} {target.features}"


def linked(texts: Iterable[str], target: Target) -> Any:
    """Link modules, and return the result verified and optimised for a target."""
    llvm = _llvm()
    module = llvm.parse_assembly("")
    for text in texts:
        module.link_in(llvm.parse_assembly(text))
    return _optimised(module, machine(target))


def _optimised(module: Any, machine: Any) -> Any:
    llvm = _llvm()
    module.triple = machine.triple
    module.verify()
    # Kernels are emitted vectorized and unrolled: LLVM's -O2 took twice as long to
    # compile, and made no kernel faster.
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    passes = llvm.create_new_module_pass_manager()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, options))
    return module


def object_code(texts: Iterable[str], target: Target) -> bytes:
    """Return modules as a single object file."""
    return bytes(machine(target).emit_object(linked(texts, target)))


def object_codes(texts: Sequence[str], target: Target, threads: int) -> list[bytes]:
    """Return an object file for each module, compiled on several threads.

    Modules share object files: LLVM's passes take two milliseconds to begin, as long as
    it takes to compile a small kernel.
    """
    batches = _batches(texts, BATCHES_OF_THREAD * threads if threads > 1 else 1)
    if len(batches) == 1:
        return [object_code(batches[0], target)] * len(texts)
    from concurrent.futures import ThreadPoolExecutor  # only where there is work

    with ThreadPoolExecutor(min(len(batches), threads)) as pool:
        codes = pool.map(partial(_compiled, target), batches)
        code_of = {
            text: code
            for batch, code in zip(batches, codes, strict=True)
            for text in batch
        }
    return [code_of[text] for text in texts]


BATCHES_OF_THREAD = 2  # so that threads end at about the same time


def _batches(texts: Sequence[str], most: int) -> list[list[str]]:
    """Divide distinct texts into batches of about the same length, the longest first.

    >>> _batches(["aaaa", "b", "aaaa", "cc", "d"], 2)
    [['aaaa'], ['cc', 'b', 'd']]
    """
    distinct = sorted(dict.fromkeys(texts), key=len, reverse=True)
    batches: list[list[str]] = [[] for _ in range(min(most, len(distinct)))]
    lengths = [0] * len(batches)
    for text in distinct:
        shortest = lengths.index(min(lengths))
        batches[shortest].append(text)
        lengths[shortest] += len(text)
    return batches


def _compiled(target: Target, texts: Iterable[str]) -> bytes:
    """Compile modules in a context of their own, so that threads share nothing."""
    llvm, machine = _llvm(), _new_machine(target)
    with (
        llvm.create_context() as context,
        llvm.parse_assembly("", context) as module,
    ):
        for text in texts:
            module.link_in(llvm.parse_assembly(text, context))
        return _emitted(_optimised(module, machine), machine)


def _emitted(module: Any, machine: Any) -> bytes:
    """Return a module as an object file, without llvmlite's global lock.

    llvmlite lets a single thread at a time into LLVM, because most contexts are shared.
    """
    from llvmlite.binding import ffi

    emit = getattr(ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)
    if emit is None:  # another version of llvmlite
        return bytes(machine.emit_object(module))
    with ffi.OutputString() as error:
        memory = emit(machine, module, 1, error)
        if not memory:
            raise RuntimeError(str(error))
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(memory)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


def assembly(texts: Iterable[str], target: Target) -> str:
    """Return modules as assembly."""
    return str(machine(target).emit_assembly(linked(texts, target)))


# Engines of libraries that are gone. Disposing of one takes a lock in LLVM, which a
# finalizer, running at any time, could hold while another thread forks.
_discarded: deque[Any] = deque()


def dispose() -> None:
    """Free the machine code of libraries that are gone."""
    _discarded.clear()


class Library:
    """Object files loaded into this process, freed some time after this object."""

    def __init__(self, *codes: bytes) -> None:
        llvm = _llvm()
        dispose()
        # An engine takes ownership of its machine.
        self._engine = llvm.create_mcjit_compiler(
            llvm.parse_assembly(""), _new_machine(host())
        )
        for code in codes:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        weakref.finalize(self, _discarded.append, self._engine).atexit = False

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return int(self._engine.get_function_address(name))


# ---- the functions of kernels ------------------------------------------------------

Forms = Mapping[int, Form]  # of a plan, by number
Entry = tuple[Signature, bytes]  # of a function, and an object file that has it
CACHED_FUNCTIONS = 4096  # that stay loaded although no program uses them


@record(guarded=True)
class Function:
    """A function that is loaded for as long as this object lives."""

    signature: Signature
    library: Library
    address: int


def load(plan: CpuPlan) -> tuple[list[Record], dict[str, Function]]:
    """Return the calls of a step, and the functions that they call, by name."""
    target_name = identity(host())
    forms = [form_of(kernel) for kernel in plan.kernels]
    # Keys are long: each is hashed once, and represented by a number from then on.
    numbers: dict[Hashable, int] = {}
    called = [
        numbers.setdefault((n,) if form.key is None else form.key, len(numbers))
        for n, form in enumerate(forms)
    ]
    distinct = dict(zip(reversed(called), reversed(forms), strict=True))
    keys: dict[int, Hashable] = {
        n: n if form.key is None else (target_name, form.key)
        for n, form in distinct.items()
    }
    functions = _loaded.get(keys)
    missing = {n: form for n, form in distinct.items() if n not in functions}
    if missing:
        functions |= _load_forms(missing, target_name)
        with_key = [n for n, form in missing.items() if form.key is not None]
        _loaded.add({keys[n]: functions[n] for n in with_key})
    calls = [
        functions[n].signature.called(form)
        for n, form in zip(called, forms, strict=True)
    ]
    return calls, {f.signature.name: f for f in functions.values()}


def _load_forms(forms: Forms, target_name: str) -> dict[int, Function]:
    """Load the functions of some forms into a single library."""
    files = _ObjectFiles(target_name)
    entries = _read_forms(forms, target_name, files)
    missing = {n: form for n, form in forms.items() if n not in entries}
    if missing:
        entries |= _compile_forms(missing, target_name, files)
    # Forms with equal texts share a function, and functions share object files.
    library = Library(*dict.fromkeys(code for _, code in entries.values()))
    return {
        n: Function(signature, library, library.address(signature.name))
        for n, (signature, _) in entries.items()
    }


class _ObjectFiles:
    """The object files on disk, by their digests: each is read or written once."""

    def __init__(self, target_name: str) -> None:
        self._target_name = target_name
        self._codes: dict[str, bytes | None] = {}

    def read(self, digest: str) -> bytes | None:
        """Return an object file, None if it is missing or damaged."""
        if digest not in self._codes:
            self._codes[digest] = code_cache.read(self._path(digest))
        return self._codes[digest]

    def keep(self, code: bytes) -> str:
        """Write an object file; return its digest."""
        digest = hashlib.sha256(code).hexdigest()
        if self._codes.get(digest) is None:
            self._codes[digest] = code
            code_cache.keep(self._path(digest), code)
        return digest

    def _path(self, digest: str) -> Path:
        return code_cache.path_of(self._target_name, "object", digest)


def _read_forms(
    forms: Forms, target_name: str, files: _ObjectFiles
) -> dict[int, Entry]:
    """Return the entries of the forms whose machine code is on disk."""
    entries: dict[int, Entry] = {}
    for n, form in forms.items():
        entry = (
            code_cache.read(_path(form, target_name)) if form.key is not None else None
        )
        if entry is not None:
            signature, digest = _unpacked(entry)
            code = files.read(digest)
            if code is not None:
                entries[n] = signature, code
    return entries


def _compile_forms(
    forms: Forms, target_name: str, files: _ObjectFiles
) -> dict[int, Entry]:
    """Emit and compile some forms, and store their machine code on disk."""
    emitted = [emit_form(form) for form in forms.values()]
    codes = _codes([module for _, module in emitted], target_name, files)
    entries: dict[int, Entry] = {}
    for (n, form), (signature, module) in zip(forms.items(), emitted, strict=True):
        entries[n] = signature, codes[module]
        if form.key is not None:
            entry = _packed(signature, files.keep(codes[module]))
            code_cache.keep(_path(form, target_name), entry)
    return entries


def _codes(
    modules: Iterable[str], target_name: str, files: _ObjectFiles
) -> dict[str, bytes]:
    """Return object files with the functions of modules, from disk or compiled.

    Different kernels may have the same text: with other batch sizes, for example.
    """
    paths = {module: code_cache.path_of(target_name, module) for module in modules}
    codes: dict[str, bytes] = {}
    for module, path in paths.items():
        digest = code_cache.read(path)
        code = None if digest is None else files.read(digest.decode())
        if code is not None:
            codes[module] = code
    new = [module for module in paths if module not in codes]
    made = object_codes(new, host(), config.threads()) if new else []
    for module, code in zip(new, made, strict=True):
        codes[module] = code
        code_cache.keep(paths[module], files.keep(code).encode())
    return codes


def _path(form: Form, target_name: str) -> Path:
    return code_cache.path_of(target_name, repr(form.key))


def _packed(signature: Signature, digest: str) -> bytes:
    counts = [
        [count.number] if isinstance(count, Parameter) else count
        for count in (signature.parallel, signature.grain)
    ]
    return json.dumps([signature.name, signature.buffers, *counts, digest]).encode()


def _unpacked(entry: bytes) -> tuple[Signature, str]:
    name, buffers, *counts, digest = json.loads(entry)
    parallel, grain = (Parameter(*c) if isinstance(c, list) else c for c in counts)
    return Signature(name, tuple(buffers), parallel, grain), digest


class _LoadedFunctions:
    """A least-recently-used cache of the functions that this process has loaded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: OrderedDict[Hashable, Function] = OrderedDict()

    def get(self, keys: Mapping[int, Hashable]) -> dict[int, Function]:
        """Return the functions that are loaded, by the numbers of their keys."""
        with self._lock:
            loaded: dict[int, Function] = {}
            for number, key in keys.items():
                function = self._functions.get(key)
                if function is not None:
                    self._functions.move_to_end(key)
                    loaded[number] = function
            return loaded

    def add(self, functions: Mapping[Hashable, Function]) -> None:
        """Add functions; evict the least recently used ones if there are too many."""
        with self._lock:
            self._functions.update(functions)
            while len(self._functions) > CACHED_FUNCTIONS:
                self._functions.popitem(last=False)

    def clear(self) -> None:
        """Drop all functions, except for those that programs refer to."""
        with self._lock:
            self._functions.clear()


_loaded = _LoadedFunctions()


def forget_functions() -> None:
    """Drop the functions that no program uses."""
    _loaded.clear()


# ---- the native loop over steps ------------------------------------------------------

_PAUSES = {
    "x86": ("llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()"),
    "arm": ("llvm.aarch64.hint(i32)", "llvm.aarch64.hint(i32 1)"),
}
_FUTEX_CALLS = {"x86": "202", "arm": "98"}  # numbers of the system call
_YIELDS = {"windows": "SwitchToThread"}


@cache
def _template(name: str) -> Template:
    return Template((Path(__file__).parent / name).read_text())


def filled(name: str, **values: str) -> str:
    """Return a text file of this folder with its $names substituted."""
    template = _template(name)
    names = set(template.get_identifiers())
    if names != values.keys():
        raise KeyError(f"{name} has the names {sorted(names)}, not {sorted(values)}")
    return template.substitute(values)


def executor(family: str, system: str) -> str:
    """Return the module of the loop over steps.

    Spinning and flushing subnormals depend on the family, "x86" or "arm". On "linux",
    threads sleep on a futex; elsewhere, they yield.
    """
    declaration, pause = _PAUSES[family]
    if system == "linux":
        sleep = filled("sleep_futex.ll", futex=_FUTEX_CALLS[family])
    else:
        function = _YIELDS.get(system, "sched_yield")
        sleep = filled("sleep_yield.ll", yield_function=function)
    return filled(
        "step_loop.ll",
        pause_declaration=declaration,
        pause=pause,
        sleep=sleep,
        subnormals=filled(f"subnormals_{family}.ll"),
    )


class Executor:
    """The native loop over steps, as functions that Python can call."""

    def __init__(self) -> None:
        target, system = host(), sys.platform.replace("win32", "windows")
        text = executor(family(), system)
        path = code_cache.path_of(identity(target), text)
        code = code_cache.read(path)
        if code is None:
            code = object_code([text], target)
            code_cache.keep(path, code)
        self._library = Library(code)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.alone: Any = self._function("alone", pointer)
        self.lead: Any = self._function("lead", pointer, pointer, number)
        self.serve: Any = self._function("serve", pointer, number, number)
        self.script: Any = self._function("script", pointer, number, returns=number)
        # Sets whether this thread flushes subnormals to zero; returns whether it did.
        self.flush_subnormals: Any = self._function(
            "flush_subnormals", number, returns=number
        )

    def _function(self, name: str, *types: Any, returns: Any = None) -> Any:
        return ctypes.CFUNCTYPE(returns, *types)(self._library.address(name))


_loading = threading.Lock()
_executor: Executor | None = None


def native() -> Executor:
    """Return the executor of this process."""
    global _executor
    if _executor is None:
        # Of two threads that get here first, one would free the other's library.
        with _loading:
            _executor = _executor or Executor()
    return _executor
