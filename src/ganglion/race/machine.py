"""The conditions of a race: machine, versions, commit, and sizes of engines."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ganglion import config
from ganglion.compiler import registry
from ganglion.config import DISTRIBUTION
from ganglion.race.engines import Engine

HERE = Path(__file__).parents[1]
BUSY = 0.25  # of the cores, before the race: more than that moves the times
LOAD = "load before"  # among the facts of the machine
_WIDTHS = (("avx512f", "AVX-512, 16 floats"), ("avx2", "AVX2, 8 floats"))
_FOR_GPU = {  # extras; of JAX's two, either is installed
    DISTRIBUTION: "cuda", "jax": "cuda12,cuda13", "tensorflow": "and-cuda",
}  # fmt: skip


# ---- for `ganglion info` -------------------------------------------------------------


def facts() -> dict[str, str]:
    """Return everything worth knowing for a bug report or a comparison of speeds."""
    known = {"ganglion": version("ganglion"), "python": platform.python_version()}
    known |= {name: version(name) for name in ("numpy", "llvmlite", "h5py")}
    known["system"] = platform.platform()
    known["processor"] = processor()
    known["cores"] = f"{cores()} usable, {config.threads()} threads in use"
    known["vectors"] = vector_width()
    known["bf16"] = bf16()
    known["barriers"] = barriers()
    if devices := gpu():
        known["gpu"] = devices
    for name, reason in registry.available().items():
        used = ", in use" if name == config.backend_in_use() else ""
        if name == "cuda" and registry.chosen_name() == "auto":
            used = ", for models that are worth it"
        known[f"  {name}"] = f"missing: {reason}" if reason else f"works{used}"
    return known


def kept() -> dict[str, str]:
    """Return the folder of Ganglion's files, and how large each part of it is."""
    parts = {"kept in": str(config.home())}
    try:
        folders = sorted(path for path in config.home().iterdir() if path.is_dir())
    except OSError:  # nothing was kept yet
        folders = []
    for folder in folders:
        sizes = [_bytes(path) for path in folder.rglob("*") if path.is_file()]
        parts[f"  {folder.name}"] = f"{sum(sizes) / 1e6:,.1f} MB in {len(sizes)} files"
    return parts


def version(package: str) -> str:
    """Return the version of an installed package; our own needs no installation.

    >>> version("ganglion") == config.VERSION
    True
    """
    if package in ("ganglion", DISTRIBUTION):
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
    """Return how many floats an instruction works on."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "NEON, 4 floats"
    flags = " ".join(line for line in _cpuinfo() if line.startswith("flags")).split()
    return next((text for flag, text in _WIDTHS if flag in flags), "unknown")


def bf16() -> str:
    """Return which instructions multiply bfloat16, if that is requested."""
    if registry.available()["cpu"]:  # a reason why it cannot run
        return "unknown"
    from ganglion.compiler.cpu import features

    return features.bf16()


def barriers() -> str:
    """Return how long threads take to wait for each other, as far as it is known."""
    if registry.available()["cpu"]:  # a reason why it cannot run
        return "unknown"
    from ganglion.compiler.cpu import machine

    figures = machine.barriers(config.threads())
    times = [f"{time:,.0f} ns on {count} threads" for count, time in figures.items()]
    return ", ".join(times) or "not measured: one thread, or a busy machine"


def gpu() -> str:
    """Return the names of NVIDIA's GPUs and their driver, "" if there are none."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    devices = [line.partition(", ") for line in _output(query).splitlines()]
    return "; ".join(f"{name}, driver {driver}" for name, _, driver in devices)


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _output(command: list[str]) -> str:
    """Return the output of a command, "" where it cannot be run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


# ---- for the results of a race -------------------------------------------------------


def about_machine(remark: str) -> dict[str, Any]:
    """Return remarks on this machine, and on the data where there is any."""
    known = {
        "cpu": processor(),
        "cores": cores(),
        "vectors": vector_width(),
        "memory": _memory(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "gpu": gpu(),
        LOAD: _load(),
    }
    return known | ({"data": remark} if remark else {})


def _load() -> str:
    load = config.load_average()
    return "" if load is None else f"{load:.2f}"


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return ""
    return f"{size / 2**30:.0f} GiB"


def with_current_load(before: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a race that is resumed: the higher load of both times."""
    loads = [str(before.get(LOAD) or ""), _load()]
    return before | {LOAD: max(loads, key=_number)}


def busy(machine: dict[str, Any], threads: int) -> str:
    """Return a warning that other work was running when a race began, or "".

    >>> busy({"load before": "0.10"}, 2), busy({"load before": "2.00"}, 2)[:22]
    ('', 'Other work was running')
    """
    load = str(machine.get(LOAD) or "")
    if not _number(load) > BUSY * threads:
        return ""
    return (
        f"Other work was running when the race began (load {load}): engines whose "
        "threads wait by spinning suffer most from it. Race on a quiet machine."
    )


def _number(text: str) -> float:
    """Return a number that may be missing, or be edited by hand; 0 then."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def commit() -> str:
    """Return the git commit of Ganglion's own source, "" outside of a checkout."""
    git = ["git", "-C", str(HERE)]
    if Path(_output([*git, "rev-parse", "--show-toplevel"])) != HERE.parents[1]:
        return ""
    changed = "+" if _output([*git, "status", "--porcelain", "--", str(HERE)]) else ""
    return _output([*git, "rev-parse", "HEAD"]) + changed


def versions(engines: Iterable[Engine]) -> dict[str, str]:
    """Return the version of every engine's packages.

    >>> versions([])["ganglion"] == version("ganglion")
    True
    """
    names = ["ganglion", "numpy"]
    for engine in engines:
        names += [owner(package) for package in engine.packages]
        names += ["jaxlib"] if engine.name == "jax" else []
    return {name: version(name) for name in dict.fromkeys(names)}


@cache
def _owners() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def owner(package: str) -> str:
    """Return the distribution that a package to import comes from."""
    return _owners().get(package, [package])[0]


# ---- sizes of engines ----------------------------------------------------------------


def install_size(engine: Engine, device: str = "cpu") -> int:
    """Return the bytes that an engine's packages take on disk, with all they need.

    On a GPU an engine needs more: an extra of its package. What several engines need
    counts for each of them, the standard library for none. Ganglion may be on the path
    only: then its checkout lists its requirements; outside of one, or if some of them
    are not installed, the size is 0, for unknown.
    """
    ours = engine.name.startswith("ganglion")
    names = [DISTRIBUTION] if ours else [owner(name) for name in engine.packages]
    extras = _FOR_GPU if device == "cuda" else {}
    sizes = _sizes([f"{name}[{extras.get(name, '')}]" for name in names])
    if not ours:
        return sum(sizes.values())
    del sizes[DISTRIBUTION]  # weighed where it is, installed by a link or copied
    needed = {name for need in needs(DISTRIBUTION, "") for name, _ in _parts(need)}
    if not needed or not all(sizes[name] for name in needed):
        return 0
    source = (path for path in HERE.rglob("*") if "__pycache__" not in path.parts)
    return sum(map(_bytes, source)) + sum(sizes.values())


def _sizes(requirements: list[str]) -> dict[str, int]:
    """Return the size of every package that is needed; 0 if it is missing."""
    left, packages = list(requirements), set[tuple[str, str]]()
    while left:
        new = _parts(left.pop()) - packages
        packages |= new
        for name, extra in new:
            left += needs(name, extra)
    return {name: _size(name) for name in {name for name, _ in packages}}


def _parts(requirement: str) -> set[tuple[str, str]]:
    """Return the package of a requirement, alone and with each of its extras.

    >>> sorted(_parts("Jax_Plugin[with-cuda] >=1; python_version > '3'"))
    [('jax-plugin', ''), ('jax-plugin', 'with-cuda')]
    """
    parsed = re.match(r"([\w.-]+)\s*(?:\[([^]]*)])?", requirement)
    name, extras = parsed.groups() if parsed else ("", "")
    names = f",{extras or ''}".split(",")
    return {(_normalized(name), _normalized(extra.strip())) for extra in names}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str, extra: str) -> list[str]:
    """Return the requirements of a package's extra, its own for the extra ""."""
    try:
        needed = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        needed = _needs_by_checkout() if name == DISTRIBUTION else []
    marker = re.compile(r"extra\s*==\s*[\"']([^\"']+)")
    return [
        requirement
        for requirement in needed
        if extra in map(_normalized, marker.findall(requirement) or [""])
    ]


def extras(name: str) -> list[str]:
    """Return the names of a package's extras."""
    try:
        return importlib.metadata.metadata(name).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        project = _checkout() if name == DISTRIBUTION else {}
        return list(project.get("optional-dependencies", {}))


@cache
def _checkout() -> dict[str, Any]:
    """Return the description of Ganglion's checkout; nothing outside of it."""
    try:
        content = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    project: dict[str, Any] = content.get("project", {})
    return project if project.get("name") == DISTRIBUTION else {}


@cache
def _needs_by_checkout() -> list[str]:
    """Return what Ganglion's own checkout says that it needs; nothing outside of one.

    Extras are marked as the metadata of an installed package marks them.
    """
    project = _checkout()
    extras = project.get("optional-dependencies", {})
    marked = [
        f"{requirement}; extra == '{key}'"
        for key, its in extras.items()
        for requirement in its
    ]
    return [*project.get("dependencies", []), *marked]


@cache
def _size(name: str) -> int:
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return 0
    return sum(_bytes(Path(str(file.locate()))) for file in files)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # removed meanwhile
        return 0
