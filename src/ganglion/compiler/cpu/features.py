"""Optional features of this machine's processor."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache

ARCH_PRCTL = 158  # the system call, on x86-64
ARCH_REQ_XCOMP_PERM, XTILEDATA = 0x1023, 18  # request permission; for AMX's tiles


@cache
def host_features() -> Mapping[str, bool]:
    """Return the features of this machine's processor, by LLVM's names."""
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


def bf16() -> str:
    """Return the instructions that multiply bfloat16 on this processor, as text."""
    features = host_features()
    names = ["AVX512-BF16"] if features.get("avx512bf16") else []
    if features.get("amx-bf16"):
        reason = amx_unavailable_reason()
        names.append(f"AMX (not used: {reason})" if reason else "AMX")
    return ", ".join(names) or "none: bfloat16 is multiplied as float32"


def multiplies_bf16() -> bool:
    """Return whether code may use AVX512-BF16, which multiplies pairs of bfloat16.

    Not if GANGLION_CPU names a less capable processor: none of those has it.
    """
    return not os.environ.get("GANGLION_CPU") and bool(
        host_features().get("avx512bf16")
    )


def multiplies_tiles() -> bool:
    """Return whether code may use AMX, which multiplies tiles of bfloat16.

    This requests permission from the operating system, so call it only for bfloat16.
    """
    return multiplies_bf16() and not amx_unavailable_reason()


@cache
def amx_unavailable_reason() -> str:
    """Return why this process cannot use AMX, "" if it can.

    The system has to save 8 KB of tiles for every thread. Linux does so for processes
    that request it once, including future threads and forked processes.
    """
    needed = ("amx-tile", "amx-bf16", "avx512bf16")
    missing = [name for name in needed if not host_features().get(name)]
    if missing:
        return f"the processor has no {missing[0].upper()}"
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return "it is used on Linux with 64 bits alone"
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)
    if system.syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0:
        return ""
    return f"Linux refuses it: {os.strerror(ctypes.get_errno())}"


@cache
def gains_from_copies() -> bool:
    """Return whether smaller products should pack the columns that they multiply.

    Intel's cores (Sapphire Rapids) are a quarter faster with packed columns than with
    rows a multiple of a cache line apart; AMD's (Zen 4) are not, and lose 3% by the
    copy. Transposed matrices of less than 2 MB are packed on Intel, and copied entirely
    on AMD. Results have the same bits.
    """
    import llvmlite.binding as llvm

    is_zen = llvm.get_host_cpu_name().startswith("znver")
    return bool(host_features().get("sse2")) and not is_zen
