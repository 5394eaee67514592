"""What this machine's processor can do besides what every one of its kind can."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache

ARCH_PRCTL = 158  # the system call, on x86-64
ARCH_REQ_XCOMP_PERM, XTILEDATA = 0x1023, 18  # to ask for a state; that of AMX' tiles


@cache
def host_features() -> Mapping[str, bool]:
    """Return the features of this machine's processor, by LLVM's names."""
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


def bf16() -> str:
    """Return what this machine's processor has for products of bfloat16."""
    has = host_features()
    known = ["AVX512-BF16"] if has.get("avx512bf16") else []
    if has.get("amx-bf16"):
        reason = amx_unavailable_reason()
        known.append(f"AMX (not used: {reason})" if reason else "AMX")
    return ", ".join(known) or "none: bfloat16 is multiplied as float32"


def multiplies_bf16() -> bool:
    """Return whether code may multiply pairs of bfloat16 and add them to float32.

    Not where GANGLION_CPU asks for a lesser processor: none of those can.
    """
    return not os.environ.get("GANGLION_CPU") and bool(
        host_features().get("avx512bf16")
    )


def multiplies_tiles() -> bool:
    """Return whether code may multiply whole tiles of bfloat16, by AMX.

    Asks the operating system for that, once: so only for those who want bfloat16.
    """
    return multiplies_bf16() and not amx_unavailable_reason()


@cache
def amx_unavailable_reason() -> str:
    """Return why this process cannot use AMX, "" if it can.

    Its tiles are 8 KB that a system has to keep for every thread. Linux does so for
    processes that ask for it, once for all of their threads, those of now and later;
    a process that is forked may as well.
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
    """Return whether smaller products had better copy the columns that they multiply.

    Intel's cores (Sapphire Rapids) are a quarter faster with columns side by side than
    with rows that lie a multiple of a cache's lines apart; AMD's (Zen 4) do not mind,
    and lose three hundredths by the copy. Transposed matrices of less than 2 MB are
    packed for Intel's, and copied as a whole for AMD's. The bits are the same.
    """
    import llvmlite.binding as llvm

    is_amd = llvm.get_host_cpu_name().startswith("znver")
    return bool(host_features().get("sse2")) and not is_amd
