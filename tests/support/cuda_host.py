"""A driver that runs the backend's CUDA text on a CPU: g++ and fibres, no GPU.

Slow, and exact about threads, barriers and tensor-core fragments; so the meaning of
emitted kernels is checked wherever there is a C++ compiler.
"""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from folders import ROOT

from ganglion.compiler.cuda import prelude
from ganglion.compiler.cuda.target import GpuSpec

HEADER = (Path(__file__).parent / "cuda_host.h").read_text()
# Objects by the hash of their text: a later run of the tests compiles what is new.
CACHE = ROOT / ".pytest_cache" / "cuda_host"
MOST_OBJECTS = 3000
FLAGS = ("-std=c++17", "-O0", "-w", "-fPIC", "-ffp-contract=off", "-fno-exceptions")
# No library of C++'s: to look through it takes as long as to compile a small kernel.
LINKS = ("-shared", "-nostdlib", "-lm", "-lc", "-lgcc")
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([\d, ]+\) )?'
                        r"(\w+)\(([^)]*)\)")  # fmt: skip


def reason() -> str | None:
    """Return why kernels cannot be run here, None if they can."""
    if shutil.which("g++") is None:
        return "g++ is not installed"
    if platform.machine() not in ("x86_64", "AMD64"):
        return "fibres are written for x86-64"
    return None


@cache
def _version() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout


def _write(path: Path, make: Callable[[Path], object]) -> Path:
    """Write a file under another name and rename it: other workers may do the same."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        make(part)
        part.replace(path)
    return path


def _compile(*arguments: str | Path, text: str = "") -> None:
    command = ["g++", *FLAGS, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000] + text[-3000:]


@cache
def _prelude() -> Path:
    """Return what stands above every kernel, precompiled: two thirds of g++'s time."""
    text = prelude.header(HEADER)
    key = hashlib.sha256((text + _version()).encode()).hexdigest()[:32]
    path = _write(CACHE / f"{key}.h", lambda part: part.write_text(text))
    _write(
        path.with_suffix(".h.gch"),
        lambda part: _compile("-x", "c++-header", path, "-o", part),
    )
    return path


def _object(text: str) -> bytes:
    """Return the shared object of a text, compiled now or by an earlier run."""
    identity = "\n".join([text, *FLAGS, *LINKS, _version()])
    key = hashlib.sha256(identity.encode()).hexdigest()
    path = CACHE / f"{key}.so"
    if path.exists():
        os.utime(path)
        return path.read_bytes()
    _write(path, lambda part: _compile("-x", "c++", "-", *LINKS, "-o", part, text=text))
    objects = sorted(CACHE.glob("*.so"), key=lambda path: path.stat().st_mtime)
    for old in objects[:-MOST_OBJECTS]:
        old.unlink(missing_ok=True)
    return path.read_bytes()


def _wrapped(source: str) -> str:
    """Return CUDA text as C++, with `run_NAME(blocks, models, ...)` for each kernel."""
    assert source.startswith(prelude.header())
    text = f'#include "{_prelude()}"' + source.removeprefix(prelude.header())
    for name, parameters in _SIGNATURE.findall(source):
        kinds = [
            parameter.rsplit(" ", 1)[0]
            for parameter in parameters.split(", ")
            if parameter
        ]
        casts = ", ".join(f"({kind})arguments[{i}]" for i, kind in enumerate(kinds))
        text += (
            f"\nstatic void call_{name}(void** arguments) {{ {name}({casts}); }}"
            f'\nextern "C" void run_{name}(int blocks, int models, int shared, '
            "void** arguments) {\n  emulated_shared = shared;"
            "\n  emulated_blocks = blocks, emulated_models = models;"
            "\n  for (emulated_model = 0; emulated_model < models; emulated_model++)"
            f"\n    run_blocks(blocks, call_{name}, arguments);\n}}\n"
        )
    return text


class HostDriver:
    """Everything that the backend asks of a GPU, done by this machine's CPU."""

    name = "an emulated GPU"
    cores = 0  # few and large texts: g++ is slow to start

    def __init__(self, capability: int = 90) -> None:
        self.spec = GpuSpec(capability)
        self.allocated: dict[int, np.ndarray] = {}
        self.log: list[str] = []
        self._folder = tempfile.TemporaryDirectory()
        self._recording: list[Any] | None = None
        self._compiling = threading.Lock()

    def use(self) -> None:
        pass

    def compiler(self) -> str:
        # Programs are kept by this name: one for each text that stands above kernels.
        return f"g++ for an emulated sm_{self.spec.capability}, {_prelude().stem}"

    def compile(self, source: str) -> bytes:
        with self._compiling:  # threads that want the same text wait for one of them
            return _object(_wrapped(source))

    def load(self, code: bytes, functions: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        path = Path(self._folder.name) / f"{hashlib.sha256(code).hexdigest()}.load.so"
        if not path.exists():  # what is loaded must not be written again
            part = path.with_suffix(f".{threading.get_ident()}.part")
            part.write_bytes(code)
            part.replace(path)
        library = ctypes.CDLL(str(path))
        return library, {name: getattr(library, f"run_{name}") for name in functions}

    def unload(self, module: Any) -> None:
        self.log.append("unload")
        _ctypes.dlclose(module._handle)

    def allow_shared(self, function: Any, nbytes: int) -> None:
        assert nbytes <= 227 * 1024

    def prefer_shared(self, function: Any) -> None:
        pass

    def allocate(self, nbytes: int) -> int:
        raw = np.full(nbytes + 256, 0xFF, np.uint8)
        address = -(-raw.ctypes.data // 256) * 256
        self.allocated[address] = raw
        return address

    def free(self, address: int) -> None:
        del self.allocated[address]

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        ctypes.memset(address, byte, nbytes)

    def upload(self, address: int, array: np.ndarray) -> None:
        self.log.append("upload")
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, array: np.ndarray, address: int) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def copy(self, address: int, from_address: int, nbytes: int) -> None:
        ctypes.memmove(address, from_address, nbytes)

    def copy_rows(
        self,
        address: int,
        stride: int,
        from_address: int,
        from_stride: int,
        shape: tuple[int, int],
    ) -> None:
        rows, nbytes = shape
        for row in range(rows):
            to = address + row * stride
            ctypes.memmove(to, from_address + row * from_stride, nbytes)

    def upload_rows(self, address: int, rows: np.ndarray, stride: int) -> None:
        for number, row in enumerate(rows):
            ctypes.memmove(address + number * stride, row.ctypes.data, row.nbytes)

    def download_rows(self, rows: np.ndarray, address: int, stride: int) -> None:
        for number, row in enumerate(rows):
            ctypes.memmove(row.ctypes.data, address + number * stride, row.nbytes)

    def host_array(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, np.uint8)

    def free_host(self, array: np.ndarray) -> None:
        pass

    def arguments(self, addresses: Sequence[int]) -> Any:
        return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)

    def launch(
        self,
        function: Any,
        blocks: tuple[int, int],
        threads: int,
        shared: int,
        arguments: Any,
    ) -> None:
        if self._recording is not None:
            self._recording.append((function, blocks, threads, shared, arguments))
            return
        assert threads == 256
        function(*blocks, shared, arguments)

    def begin_capture(self) -> None:
        assert self._recording is None
        self._recording = []

    def end_capture(self) -> Any:
        graph, self._recording = self._recording, None
        return graph

    def replay(self, graph: Any) -> None:
        for launch in graph:
            self.launch(*launch)

    def forget(self, graph: Any) -> None:
        pass

    def wait(self) -> None:
        pass

    def memory(self) -> tuple[int, int]:
        return 0, 0
