"""What the package, the README and the pages of docs say of Ganglion is so."""

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import ganglion
from ganglion import config, machine
from ganglion.race import facts
from ganglion.rivals import engine

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# The index's `ganglion` belongs to somebody else: nobody may be sent there.
INSTALLS_ANOTHERS = re.compile(
    r"pip3? install(?: -\S+)* [\"'`]?ganglion(?![\w-])|(?<![\w-])ganglion\[[a-z]"
)


def test_no_text_sends_users_to_the_ganglion_of_somebody_else():
    asked = [*PAGES, *SOURCES, ROOT / "Makefile", ROOT / "CONTRIBUTING.md"]
    wrong = [
        f"{path.name}: {line.strip()}"
        for path in asked
        for line in path.read_text(encoding="utf-8").splitlines()
        if INSTALLS_ANOTHERS.search(line)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    ["pip install ganglion", 'pip install "ganglion[images]"', "`ganglion[cuda]`"],
)
def test_such_a_text_would_be_seen(text):
    assert INSTALLS_ANOTHERS.search(text)
    assert not INSTALLS_ANOTHERS.search(text.replace("ganglion", "ganglion-nn"))


def test_the_distribution_has_a_name_of_its_own():
    assert PROJECT["name"] == config.DISTRIBUTION == "ganglion-nn"
    assert PROJECT["scripts"] == {"ganglion": "ganglion.cli:main"}


def test_the_version_stands_in_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert ganglion.__version__ == machine.version("ganglion") == config.VERSION


def test_another_package_named_ganglion_is_not_taken_for_ours(monkeypatch):
    def version(name):
        if name == "ganglion":
            return "99.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert machine.version("ganglion") == config.VERSION
    assert facts.versions([])["ganglion"] == config.VERSION


def test_a_checkout_says_what_ganglion_needs(monkeypatch):
    requires = importlib.metadata.requires

    def of_others(name):
        if name in ("ganglion", "ganglion-nn"):
            raise importlib.metadata.PackageNotFoundError(name)
        return requires(name)

    monkeypatch.setattr(importlib.metadata, "requires", of_others)
    assert facts.install_size(engine("ganglion")) > 50e6  # NumPy and LLVM alone


def test_the_readme_gives_the_size_installed_beside_the_download():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    told = re.search(r"(\d+) MB to download, about (\d+) MB installed", text)
    assert told
    assert 60 < int(told[1]) < 110
    assert 200 < int(told[2]) < 350


def test_the_package_is_marked_as_typed():
    assert (Path(ganglion.__file__).parent / "py.typed").is_file()
    kept = subprocess.run(
        ["git", "ls-files", "src/ganglion/py.typed"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if kept.returncode == 0:  # a checkout: what git does not hold is in no wheel
        assert kept.stdout.strip()
