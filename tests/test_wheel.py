"""What `pip install` brings: a wheel that works by itself, and never a rival."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from folders import PACKAGE, ROOT, SUPPORT

from ganglion import config
from ganglion.race.engines import ENGINES

building = pytest.importorskip("hatchling.build", reason="hatchling is not installed")
RIVALS = {"tensorflow-cpu"} | {
    package for engine in ENGINES.values() for package in engine.packages
} - {"llvmlite"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    folder, before = tmp_path_factory.mktemp("dist"), Path.cwd()
    os.chdir(ROOT)
    try:
        return folder / building.build_wheel(str(folder))
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = {
        f"ganglion/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= names
    about = f"ganglion_nn-{config.VERSION}.dist-info/"
    assert all(name.startswith(about) for name in names - files)


def test_an_installation_never_pulls_a_rival(metadata: Message) -> None:
    needed = metadata.get_all("Requires-Dist") or []
    always = {_name(line) for line in needed if "extra ==" not in line}
    assert "numpy" in always
    assert not always & RIVALS
    by_extra = {
        extra: {_name(line) for line in needed if _is_for(line, extra)}
        for extra in metadata.get_all("Provides-Extra") or []
    }
    with_rivals = {extra for extra, names in by_extra.items() if names & RIVALS}
    assert with_rivals == {"rivals"}
    assert {"torch", "keras", "jax", "tensorflow-cpu"} <= by_extra["rivals"]


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found[0].lower()


def _is_for(requirement: str, extra: str) -> bool:
    return re.search(rf"extra == ['\"]{extra}['\"]", requirement) is not None


def test_the_version_is_that_of_the_code_and_of_the_citation(
    metadata: Message,
) -> None:
    assert metadata["Version"] == config.VERSION
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {config.VERSION}\n" in cited


def test_the_wheel_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    options = ["--no-compile", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([*pip, *options, str(wheel)], check=True)
    environment = os.environ | {"PYTHONPATH": str(target)}
    smoke = [sys.executable, "-P", str(SUPPORT / "smoke.py"), str(target)]
    done = subprocess.run(
        smoke, env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"ganglion {config.VERSION} works\n")
