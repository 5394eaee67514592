"""What a race ran on: the machine, versions, the commit, and what engines weigh."""

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
from ganglion.config import DISTRIBUTION
from ganglion.race import machine
from ganglion.race.engines import Engine

HERE = Path(__file__).parents[1]
BUSY = 0.25  # of the cores, before the race: more than that moves the times
LOAD = "load before"  # among the facts of the machine
_ALWAYS = ("ganglion", "numpy")
_FOR_GPU = {  # extras; of JAX's two, one is installed
    DISTRIBUTION: "cuda", "jax": "cuda12,cuda13", "tensorflow": "and-cuda",
}  # fmt: skip


def about_machine(remark: str) -> dict[str, Any]:
    """Return what to know of this machine, and of the data where there is a remark."""
    found = {
        "cpu": machine.processor(),
        "cores": machine.cores(),
        "vectors": machine.vector_width(),
        "memory": _memory(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "gpu": machine.gpu(),
        LOAD: _load(),
    }
    return found | ({"data": remark} if remark else {})


def _load() -> str:
    load = config.load_average()
    return "" if load is None else f"{load:.2f}"


def gone_on(before: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a race that goes on: the higher load of both times."""
    loads = [str(before.get(LOAD) or ""), _load()]
    return before | {LOAD: max(loads, key=_number)}


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return ""
    return f"{size / 2**30:.0f} GiB"


def commit() -> str:
    """Return the git commit of Ganglion's own source, "" outside of a checkout."""
    inside = ["git", "-C", str(HERE)]
    if Path(_said([*inside, "rev-parse", "--show-toplevel"])) != HERE.parents[1]:
        return ""
    changed = "+" if _said([*inside, "status", "--porcelain", "--", str(HERE)]) else ""
    return _said([*inside, "rev-parse", "HEAD"]) + changed


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def versions(engines: Iterable[Engine]) -> dict[str, str]:
    """Return the version of every engine's packages.

    >>> versions([])["ganglion"] == machine.version("ganglion")
    True
    """
    names = [*_ALWAYS]
    for engine in engines:
        names += [_owner(package) for package in engine.packages]
        names += ["jaxlib"] if engine.name == "jax" else []
    return {name: machine.version(name) for name in dict.fromkeys(names)}


@cache
def _owners() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _owner(package: str) -> str:
    return _owners().get(package, [package])[0]


def install_size(engine: Engine, device: str = "cpu") -> int:
    """Return the bytes that an engine's packages take on disk, with all they need.

    On a GPU an engine needs more: an extra of its package. What several engines need
    counts for each of them, what the standard library brings for none. Ganglion may be
    on the path only: then its checkout says what it needs; outside of one, or where
    some of that is not installed, the size is 0, for not known.
    """
    ours = engine.name.startswith("ganglion")
    names = [DISTRIBUTION] if ours else [_owner(one) for one in engine.packages]
    extras = _FOR_GPU if device == "cuda" else {}
    sizes = _sizes([f"{one}[{extras.get(one, '')}]" for one in names])
    if ours:
        del sizes[DISTRIBUTION]  # weighed where it lies, installed by a link or copied
        needed = {name for one in _needs(DISTRIBUTION, "") for name, _ in _parts(one)}
        is_known = needed and all(sizes[name] for name in needed)
        return _size_of_source() + sum(sizes.values()) if is_known else 0
    return sum(sizes.values())


def _sizes(requirements: list[str]) -> dict[str, int]:
    """Return the size of every package that is needed; of a missing one it is 0."""
    left, found = list(requirements), set[tuple[str, str]]()
    while left:
        new = _parts(left.pop()) - found
        found |= new
        for name, extra in new:
            left += _needs(name, extra)
    return {name: _size(name) for name in {name for name, _ in found}}


def _parts(requirement: str) -> set[tuple[str, str]]:
    """Return the package of a requirement, alone and with each of its extras.

    >>> sorted(_parts("Jax_Plugin[with-cuda] >=1; python_version > '3'"))
    [('jax-plugin', ''), ('jax-plugin', 'with-cuda')]
    """
    found = re.match(r"([\w.-]+)\s*(?:\[([^]]*)])?", requirement)
    name, extras = found.groups() if found else ("", "")
    return {
        (_plain(name), _plain(one.strip())) for one in f",{extras or ''}".split(",")
    }


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _needs(name: str, extra: str) -> list[str]:
    """Return what a package needs for an extra, or always, if that is ""."""
    try:
        wanted = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        wanted = _needs_by_checkout() if name == DISTRIBUTION else []
    extras = [re.findall(r"extra\s*==\s*[\"']([^\"']+)", one) or [""] for one in wanted]
    pairs = zip(wanted, extras, strict=True)
    return [one for one, its in pairs if extra in map(_plain, its)]


@cache
def _needs_by_checkout() -> list[str]:
    """Return what Ganglion's own checkout says that it needs; nothing outside of one.

    Extras are marked as the metadata of an installed package marks them.
    """
    try:
        told = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return []
    project = told.get("project", {})
    if project.get("name") != DISTRIBUTION:
        return []
    extras = project.get("optional-dependencies", {})
    marked = [f"{one}; extra == '{key}'" for key, its in extras.items() for one in its]
    return [*project.get("dependencies", []), *marked]


def _size(name: str) -> int:
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return 0
    return sum(_bytes(Path(str(one.locate()))) for one in files)


def _size_of_source() -> int:
    """Return the size of Ganglion itself, wherever it is installed from."""
    files = (one for one in HERE.rglob("*") if "__pycache__" not in one.parts)
    return sum(map(_bytes, files))


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _number(text: str) -> float:
    """Return a number that may be missing, or be edited by hand; 0 then."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def busy(machine: dict[str, Any], threads: int) -> str:
    """Say that other work was running when a race began, "" if there was none.

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
