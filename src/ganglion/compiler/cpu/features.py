"""What this machine's processor can do besides what every one of its kind can."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache


@cache
def host_features() -> Mapping[str, bool]:
    """Return the features of this machine's processor, by LLVM's names."""
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


def bf16() -> str:
    """Return what this machine's processor has for products of bfloat16."""
    names = {"avx512bf16": "AVX512-BF16", "amx-bf16": "AMX (not used)"}
    known = [text for name, text in names.items() if host_features().get(name)]
    return ", ".join(known) or "none: bfloat16 is multiplied as float32"


def multiplies_bf16() -> bool:
    """Return whether code may multiply pairs of bfloat16 and add them to float32.

    Not where GANGLION_CPU asks for a lesser processor: none of those can.
    """
    return not os.environ.get("GANGLION_CPU") and bool(
        host_features().get("avx512bf16")
    )


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
