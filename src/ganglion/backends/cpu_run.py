"""The CPU backend's runtime: compile, cache, lay out memory, run on threads."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config
from ganglion.backends import cpu_emit
from ganglion.backends.base import Program
from ganglion.plan.build import build
from ganglion.plan.kernel import Buffer, Plan


def missing() -> str | None:
    """Say why this backend cannot run here, None if it can."""
    try:
        import llvmlite.binding  # noqa: F401
    except (ImportError, OSError) as error:
        return f"llvmlite cannot be loaded ({error}); pip install llvmlite"
    return None


def compile(program: Program) -> CompiledProgram:  # noqa: A001 (the backends' verb)
    """Compile a program for this machine."""
    return CompiledProgram(build(program))


@cache
def _machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    if "+avx512f" in features:
        features += ",-prefer-256-bit"
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True
    )


def _object(name: str, text: str) -> bytes:
    """Return the machine code of a module, from the cache where it is known."""
    import llvmlite.binding as llvm

    machine = _machine()
    key = f"{cpu_emit.GENERATOR} {llvm.llvm_version_info} {machine.triple} "
    key += f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()} {text}"
    path = _cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.o"
    known = _read_checked(path)
    if known is not None:
        return known
    made = _compiled(text)
    _keep(path, made)
    return made


def _compiled(text: str) -> bytes:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)
    return bytes(_machine().emit_object(module))


def _cache_folder() -> Path:
    from platformdirs import user_cache_dir

    home = os.environ.get("GANGLION_HOME") or user_cache_dir("ganglion")
    return Path(home) / "kernels"


_DIGEST = 32


def _read_checked(path: Path) -> bytes | None:
    """Return a cached object, None where there is none or it is damaged."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    code = raw[_DIGEST:]
    return code if hashlib.sha256(code).digest() == raw[:_DIGEST] else None


def _keep(path: Path, code: bytes) -> None:
    """Write beside and rename; a cache that cannot be written is no error."""
    beside = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(hashlib.sha256(code).digest() + code)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)


def _family() -> str:
    return "arm" if platform.machine().lower() in ("arm64", "aarch64") else "x86"


class _Library:
    """Functions loaded into this process."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        import llvmlite.binding as llvm

        self._engine = llvm.create_mcjit_compiler(
            llvm.parse_assembly(""), _machine_for_engine()
        )
        for name, text in modules.items():
            code = llvm.ObjectFileRef.from_data(_object(name, text))
            self._engine.add_object_file(code)
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return int(self._engine.get_function_address(name))


def _machine_for_engine() -> Any:
    """Return a machine of its own: an engine takes its machine over."""
    import llvmlite.binding as llvm

    _machine()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), opt=3, jit=True
    )


def _aligned(nbytes: int) -> np.ndarray:
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class CompiledProgram:
    """A plan as machine code, its memory, and the calls of a step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        modules, self._calls = cpu_emit.emit(plan)
        modules["execute"] = cpu_emit.executor(_family())
        self._library = _Library(modules)
        self._arena = _aligned(plan.arena)
        self._constants = {
            one: np.ascontiguousarray(one.array)
            for call in self._calls
            for one in call.buffers
            if one.kind == "constant"
        }
        types = [ctypes.c_void_p] + [ctypes.c_int64] * 4
        types += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        signature = ctypes.CFUNCTYPE(None, *types)
        self._execute: Callable[..., None] = signature(self._library.address("execute"))
        self._barrier = _aligned(192)

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
    ) -> dict[str, np.ndarray]:
        """Advance the state arrays in place; return the results of every step."""
        arrays = {n: np.ascontiguousarray(a) for n, a in data.items()} | dict(state)
        results = {
            name: np.empty((steps, *one.shape), one.dtype)
            for name, one in self.plan.results.items()
        }
        records, arguments, moving = self._laid_out(arrays | results)
        self._barrier[:] = 0
        count = max(1, min(config.threads(), self._useful_threads()))

        def work(thread: int) -> None:
            self._execute(
                records.ctypes.data,
                len(self._calls),
                steps,
                thread,
                count,
                self._barrier.ctypes.data,
                moving.ctypes.data,
                len(moving) // 2,
            )

        helpers = [threading.Thread(target=work, args=(i,)) for i in range(1, count)]
        for one in helpers:
            one.start()
        work(0)
        for one in helpers:
            one.join()
        del arguments
        return results

    def _useful_threads(self) -> int:
        """Return one for programs too small to share."""
        return 64 if self.plan.arena > 65536 else 1

    def _laid_out(
        self, arrays: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the records, the pointers they refer to, and those that move on."""
        total = sum(len(call.buffers) for call in self._calls)
        pointers = np.zeros(max(total, 1), np.int64)
        records = np.zeros((len(self._calls), cpu_emit.RECORD_WORDS), np.int64)
        moving: list[int] = []
        at = 0
        for number, call in enumerate(self._calls):
            start = pointers.ctypes.data + 8 * at
            for one in call.buffers:
                pointers[at] = self._pointer(one, arrays)
                if one.kind == "result":
                    moving += [pointers.ctypes.data + 8 * at, one.nbytes]
                at += 1
            function = self._library.address(call.function)
            records[number] = (function, start, call.parallel, call.grain)
        return records, pointers, np.array(moving, np.int64)

    def _pointer(self, buffer: Buffer, arrays: Mapping[str, np.ndarray]) -> int:
        if buffer.kind == "arena":
            return int(self._arena.ctypes.data) + self.plan.offsets[buffer]
        if buffer.kind == "constant":
            return int(self._constants[buffer].ctypes.data)
        return int(arrays[buffer.name].ctypes.data)
