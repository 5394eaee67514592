"""What this machine is: versions, processor, vector width, backends."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from ganglion import config
from ganglion.compiler import choice, registry

_PACKAGES = ("numpy", "llvmlite", "h5py")
_WIDTHS = (("avx512f", "AVX-512, 16 floats"), ("avx2", "AVX2, 8 floats"))


def facts() -> dict[str, str]:
    """Return everything worth knowing for a bug report or a comparison of speeds."""
    found = {"ganglion": version("ganglion"), "python": platform.python_version()}
    found.update({name: version(name) for name in _PACKAGES})
    found["system"] = platform.platform()
    found["processor"] = processor()
    found["cores"] = f"{cores()} usable, {config.threads()} threads in use"
    found["vectors"] = vector_width()
    if devices := gpu():
        found["gpu"] = devices
    for name, reason in registry.available().items():
        used = ", in use" if name == config.backend() else ""
        if name == "cuda" and choice.shown() == "auto":
            used = ", for models that are worth it"
        found[f"  {name}"] = f"missing: {reason}" if reason else f"works{used}"
    return found


def kept() -> dict[str, str]:
    """Return what is kept on disk: where, and how large each part of it is."""
    parts = {"kept in": str(config.home())}
    for folder in sorted(_folders(config.home())):
        sizes = [size for size in map(_size, folder.rglob("*")) if size is not None]
        parts[f"  {folder.name}"] = f"{sum(sizes) / 1e6:,.1f} MB in {len(sizes)} files"
    return parts


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:  # somebody removed it meanwhile
        return None


def _folders(home: Path) -> list[Path]:
    try:
        return [path for path in home.iterdir() if path.is_dir()]
    except OSError:  # nothing was kept yet
        return []


def version(package: str) -> str:
    """Return the version of an installed package; our own needs no installation.

    >>> version("ganglion") == config.VERSION
    True
    """
    if package in ("ganglion", config.DISTRIBUTION):
        return config.VERSION
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """Return the processor's name."""
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def vector_width() -> str:
    """Return how many floats one instruction works on."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "NEON, 4 floats"
    flags = " ".join(line for line in _cpuinfo() if line.startswith("flags")).split()
    for flag, text in _WIDTHS:
        if flag in flags:
            return text
    return "unknown"


def gpu() -> str:
    """Return the names of NVIDIA's GPUs and their driver, "" without one."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = [line.partition(", ") for line in done.stdout.strip().splitlines()]
    return "; ".join(f"{name}, driver {driver}" for name, _, driver in found)


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
