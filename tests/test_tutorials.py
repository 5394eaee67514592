"""Every code block of the tutorials and how-to pages runs, from top to bottom."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import image_files
import pytest
from folders import ROOT

from ganglion import config
from ganglion.datasets import glyphs, mnist

DOCS = ROOT / "docs"
PAGES = [
    DOCS / "start.md",
    *sorted((DOCS / "tutorials").glob("*.md")),
    *sorted((DOCS / "howto").glob("*.md")),
]
# Importing these takes longer than all the rest: such pages run with `--all`.
NEEDS = {"howto/sklearn.md": "sklearn", "howto/pytorch.md": "torch"}
# Compiling their convolutions takes longer than computing a few on the reference.
CONVOLUTIONS = ("tutorials/digits.md", "tutorials/photos.md")


def blocks_of(page: Path) -> list[tuple[int, str]]:
    """Return the Python code of a page, each block with the line that it begins at."""
    text = page.read_text(encoding="utf-8")
    fenced = re.compile(r"^( *)```python\n(.*?)^\1```", flags=re.M | re.S)
    return [
        (text.count("\n", 0, match.start(2)) + 1, textwrap.dedent(match[2]))
        for match in fenced.finditer(text)
    ]


def _case(page: Path) -> Any:
    name = page.relative_to(DOCS).as_posix()
    return pytest.param(name, marks=[pytest.mark.more] if name in NEEDS else [])


@pytest.fixture(scope="module")
def digits() -> Any:
    return glyphs.load_data(train=200, test=100)


@pytest.fixture
def small(
    digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let a page find little data, train for moments, and write into a folder."""
    monkeypatch.setattr(mnist, "load_data", lambda *_: digits)
    image_files.folder(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    config.set_max_epochs(1)
    yield
    config.set_max_epochs(None)


@pytest.mark.filterwarnings("ignore:Limiting epochs to 1")
@pytest.mark.parametrize("name", [_case(page) for page in PAGES])
def test_the_page_runs_from_top_to_bottom(name: str, small: None) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if name in CONVOLUTIONS:
        config.set_backend("numpy")
    page = DOCS / name
    names: dict[str, Any] = {"__name__": page.stem}
    for line, block in blocks_of(page):
        code = compile("\n" * (line - 1) + block, str(page), "exec")
        exec(code, names)


def test_there_is_code_on_every_tutorial() -> None:
    without = [page.name for page in PAGES if not blocks_of(page)]
    assert without == ["index.md"]
