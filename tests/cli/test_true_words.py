"""What the package, the README and the pages of docs say of Ganglion is so."""

import importlib
import importlib.metadata
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer
from folders import ROOT

import ganglion
from ganglion import config
from ganglion.cli.app import app
from ganglion.race import machine
from ganglion.race.engines import engine

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
    assert PROJECT["scripts"] == {"ganglion": "ganglion.cli.app:main"}


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
    assert machine.versions([])["ganglion"] == config.VERSION


def test_a_checkout_says_what_ganglion_needs(monkeypatch):
    requires = importlib.metadata.requires

    def of_others(name):
        if name in ("ganglion", "ganglion-nn"):
            raise importlib.metadata.PackageNotFoundError(name)
        return requires(name)

    monkeypatch.setattr(importlib.metadata, "requires", of_others)
    assert machine.install_size(engine("ganglion")) > 50e6  # NumPy and LLVM alone


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


# ---- the pages -----------------------------------------------------------------------


def _commands():
    """Yield every command line that a page shows, with the page's name."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"^ +(ganglion [^\n]+)", text, re.M)
        inline = re.findall(r"`(ganglion [^`]+)`", re.sub(r"\n(?=\S)", " ", text))
        for line in (*blocks, *inline):
            yield path.name, re.split(r"\s#|\s\|\s|\s>\s", line)[0].strip()


def test_every_command_line_of_the_pages_is_one():
    program = typer.main.get_command(app)
    lines = sorted(set(_commands()))
    assert len(lines) > 40
    wrong = []
    for page, line in lines:
        words = [word for word in shlex.split(line)[1:] if word != "--help"]
        if words[0] in ("--install-completion", "--show-completion", "--version"):
            continue
        if "--formats" in words:  # it ends the command while it is being read
            continue
        context = program.make_context("ganglion", [], resilient_parsing=True)
        name, command, rest = program.resolve_command(context, words)
        try:
            command.make_context(name, rest, parent=context)
        except Exception as error:  # of Typer's own Click, which has no public name
            wrong.append(f"{page}: {line}: {error}")
    assert not wrong


def _found(path):
    """Return what a dotted name stands for, from `ganglion` on."""
    thing = ganglion
    for part in path.split("."):
        if part == "race":  # a part of the program that `import ganglion` leaves out
            importlib.import_module("ganglion.race.results")
        thing = getattr(thing, part)
    return thing


ROOMS = "config|utils|layers|ops|callbacks|models|optimizers|losses|metrics|datasets"


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_every_name_of_the_pages_is_there():
    wrong = []
    for path in PAGES:
        for code in re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8")):
            told = re.match(r"(?:ganglion|keras)\.(?!py\b)([a-z_]\w*(?:\.\w+)*)", code)
            told = told or re.match(rf"((?:{ROOMS})\.(?!py\b)\w+(?:\.\w+)*)", code)
            if told is None or told[1].endswith("_"):  # `config.set_...`
                continue
            try:
                _found(told[1])
            except (AttributeError, ImportError):
                wrong.append(f"{path.name}: {code}")
    absent = {"differences.md: layers.RandomWidth"}  # it says so
    assert set(wrong) == absent


def test_every_link_of_the_pages_leads_somewhere():
    wrong = [
        f"{path.name}: {link}"
        for path in PAGES
        for link in re.findall(r"\]\(([^)#:]+)", path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
        and not link.startswith("api/")  # pages that are made with the site
    ]
    assert not wrong


def test_every_file_that_a_page_names_is_there():
    tracked = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.suffix]
    kept = [path for path in tracked if path.startswith(("src/", "tests/", "docs/"))]
    wrong = [
        f"{page.name}: {name}"
        for page in [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "src").rglob("*.md")]
        for name in re.findall(
            r"`([\w/]+\.(?:py|ll|cuh))`", page.read_text(encoding="utf-8")
        )
        if not any(f"/{path}".endswith(f"/{name}") for path in kept)
        and name not in ("script.py", "model.py", "digits.py")
    ]
    assert not wrong


def _row(title):
    """Return the cell of a row of the guide's table of what is supported."""
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    return re.search(rf"^\| {title} \| (.*) \|$", text, re.M)[1]


def test_what_the_guide_calls_supported_is():
    optimizers = _row("optimizers").split(";")[0].split(", ")
    assert len(optimizers) > 10
    for name in optimizers:
        assert hasattr(ganglion.optimizers, name)
    for name in re.findall(r"`(\w+)`", _row("callbacks")):
        assert hasattr(ganglion.callbacks, name)
    for name in re.findall(r"`(\w+)`", _row("data sets")):
        assert name in ganglion.datasets.NAMES


def test_applications_are_there_and_not_called_absent():
    assert callable(ganglion.applications.EfficientNetLite0)
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    absent = re.search(r"^\| names that are not there \((.*?)\)", page, re.M)[1]
    for name in re.findall(r"`([\w.]+)`", absent):
        with pytest.raises(AttributeError):
            _found(name)
