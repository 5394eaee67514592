"""Runs code made for AMX on any processor: its instructions become functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template
from unittest.mock import patch

from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.products import amx_gemm, packing

NAMES = {
    "configure": amx_gemm.CONFIGURE,
    "release": amx_gemm.RELEASE,
    "zero": amx_gemm.ZERO,
    "load": amx_gemm.LOAD,
    "store": amx_gemm.STORE,
    "dot": amx_gemm.DOT,
}


def emulated(module: str) -> str:
    """Return a module with functions in place of AMX' instructions."""
    if f"@{amx_gemm.CONFIGURE}(" not in module:
        return module
    own = {word: f"amx.{word}d" for word in NAMES}
    definitions = (Path(__file__).parent / "amx_emulation.ll").read_text()
    lines = [line for line in module.splitlines() if "immarg" not in line]
    for word, name in NAMES.items():
        lines = [
            line.replace(f"@{name}(", f"@{own[word]}(")
            for line in lines
            if not line.startswith(f"declare void @{name}(")
        ]
    return "\n".join([*lines, Template(definitions).substitute(own)])


@contextmanager
def emulation() -> Iterator[None]:
    """Make code for AMX, emulated; what is kept of it, nobody else finds."""
    compiled, identity = jit.object_codes, jit.identity

    def compile_emulated(
        texts: Sequence[str], target: jit.Target, threads: int
    ) -> list[bytes]:
        return compiled([emulated(text) for text in texts], target, threads)

    with (
        patch.object(packing, "multiplies_tiles", lambda: True),
        patch.object(jit, "object_codes", compile_emulated),
        patch.object(jit, "identity", lambda target: f"{identity(target)}, emulated"),
    ):
        yield
