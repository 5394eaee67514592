"""Checks of what is installed: Python, Ganglion itself, what it needs, its extras."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ganglion import config
from ganglion.cli.findings import Finding, Status
from ganglion.config import DISTRIBUTION
from ganglion.race import machine

TESTED = ((3, 11), (3, 13))  # as `requires-python`; a test compares the two
FOR_DEVELOPERS = ("dev", "docs")
RIVALS = "rivals"  # each of them by itself: few need all
OPTIONAL = {
    "images": "your own photographs: `train --images`, `predict`, `cam`",
    "pretrained": "a start from ImageNet's weights: `train --pretrained`",
    "ray": "races and sweeps on a cluster",
    "sklearn": "estimators and searches of scikit-learn",
    "optuna": "searches by Optuna",
    "cuda": "NVIDIA GPUs",
    "onnx": "ONNX files, out and in: `export`, `load_onnx`",
    "serve": "a model over HTTP: `serve`",
}


def python() -> Iterator[Finding]:
    """Check the version of Python."""
    text = f"{platform.python_version()}, {sys.executable}"
    oldest, newest = TESTED
    if not oldest <= sys.version_info[:2] <= newest:
        wanted = f"{_dotted(oldest)} to {_dotted(newest)}"
        mend = f"Make an environment with Python {wanted}, and install there."
        yield Finding("python", Status.PROBLEM, text, mend)
    elif sys.maxsize < 2**32:
        mend = "Install a Python of 64 bits: there is no llvmlite for others."
        yield Finding("python", Status.PROBLEM, f"{text}, of 32 bits", mend)
    else:
        yield Finding("python", Status.OK, text)


def distribution() -> Iterator[Finding]:
    """Check that Ganglion is the one that is installed, and no other's."""
    here = Path(config.__file__).parent
    if _version("ganglion") is not None:
        text = "the package `ganglion` of somebody else is installed in the same folder"
        mend = (
            f"pip uninstall ganglion; pip install --force-reinstall --no-deps "
            f"{DISTRIBUTION}"
        )
        yield Finding("ganglion", Status.PROBLEM, text, mend)
    installed = _version(DISTRIBUTION)
    if installed not in (None, config.VERSION):
        text = f"{config.VERSION} in {here}, but pip has {installed} on its list"
        mend = "Look for a second copy: PYTHONPATH, or an old checkout."
        yield Finding("ganglion", Status.WARNING, text, mend)
    else:
        yield Finding("ganglion", Status.OK, f"{config.VERSION}, {here}")


def requirements() -> Iterator[Finding]:
    """Check the packages that Ganglion requires."""
    for requirement in machine.needs(DISTRIBUTION, ""):
        name, wanted = parsed(requirement)
        version = _version(name)
        command = f'pip install "{name}{wanted}"'
        if version is None:
            yield Finding(name, Status.PROBLEM, "is not installed", command)
        elif not fits(version, wanted):
            text = f"{version} does not fit: Ganglion needs {wanted}"
            yield Finding(name, Status.PROBLEM, text, command)
        else:
            yield Finding(name, Status.OK, version)


def extras() -> Iterator[Finding]:
    """Report which extras are installed, and what the others are for."""
    for extra in machine.extras(DISTRIBUTION):
        if extra in FOR_DEVELOPERS:
            continue
        needed = [parsed(text) for text in machine.needs(DISTRIBUTION, extra)]
        if extra == RIVALS:
            yield from _rivals(needed)
        else:
            yield _extra(extra, needed)


def _extra(extra: str, needed: Iterable[tuple[str, str]]) -> Finding:
    command = f'pip install "{DISTRIBUTION}[{extra}]"'
    versions = {name: _version(name) for name, _ in needed}
    texts = [f"{name} {version}" for name, version in versions.items() if version]
    if not texts:
        purpose = OPTIONAL.get(extra, "")
        text = "not installed" + (f"; for {purpose}" if purpose else "")
        return Finding(extra, Status.OK, text, command)
    wrong = [
        f"{name} {version or 'is not installed'} ({wanted or 'any'} is needed)"
        for name, wanted in needed
        if (version := versions[name]) is None or not fits(version, wanted)
    ]
    if wrong:
        return Finding(extra, Status.WARNING, ", ".join(wrong), command)
    return Finding(extra, Status.OK, ", ".join(texts))


def _rivals(needed: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Check each rival of the race; any build of TensorFlow will do."""
    missing = []
    for name, wanted in needed:
        version = _version(name) or _version(name.removesuffix("-cpu"))
        if version is None:
            missing.append(name)
        elif not fits(version, wanted):
            text = f"{version} was not raced with: published tables have {wanted}"
            command = f'pip install "{name}{wanted}"'
            yield Finding(name, Status.WARNING, text, command)
        else:
            yield Finding(name, Status.OK, version)
    if missing:
        text = f"not installed, to race with: {', '.join(missing)}"
        command = f'pip install "{DISTRIBUTION}[{RIVALS}]"'
        yield Finding(RIVALS, Status.OK, text, command)


# ---- versions ------------------------------------------------------------------------


def parsed(requirement: str) -> tuple[str, str]:
    """Return the name of a requirement and which versions of it will do.

    >>> parsed('ray[client]>=2.40; extra == "ray"')
    ('ray', '>=2.40')
    """
    bare = requirement.partition(";")[0].strip()
    match = re.match(r"([\w.-]+)\s*(?:\[[^]]*\])?\s*(.*)", bare)
    return (match[1], match[2].replace(" ", "")) if match else (bare, "")


def fits(version: str, wanted: str) -> bool:
    """Return whether a version is accepted.

    >>> fits("2.13.0+cpu", "==2.13.0"), fits("0.50.0", ">=0.45,<0.50")
    (True, False)
    >>> fits("3.15.1", "==3.15.*"), fits("13.0", ">=13")
    (True, True)
    """
    return all(_keeps(version, part) for part in wanted.split(",") if part)


def _keeps(version: str, condition: str) -> bool:
    match = re.fullmatch(r"(==|!=|>=|<=|<|>|~=)([\w.*+!]+)", condition)
    if match is None:
        return True  # a condition of a kind that we never write
    sign, text = match.groups()
    if text.endswith(".*"):
        least = _numbers(text[:-2])
        return (_numbers(version)[: len(least)] == least) is (sign == "==")
    ours, theirs = _padded(_numbers(version), _numbers(text))
    return {
        "==": ours == theirs,
        "!=": ours != theirs,
        ">=": ours >= theirs,
        "<=": ours <= theirs,
        "<": ours < theirs,
        ">": ours > theirs,
        "~=": ours >= theirs and ours[0] == theirs[0],
    }[sign]


def _numbers(version: str) -> list[int]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    return [int(part) for part in release[0].split(".")] if release else []


def _padded(*lists: list[int]) -> list[list[int]]:
    longest = max(map(len, lists))
    return [numbers + [0] * (longest - len(numbers)) for numbers in lists]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
