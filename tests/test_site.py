"""The navigation of the documentation site has every page, once."""

from __future__ import annotations

import re
from collections import Counter

from folders import ROOT

DOCS = ROOT / "docs"


def test_the_navigation_has_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = text.partition("\nnav:\n")[2]
    listed = Counter(re.findall(r"[\w/-]+\.md", nav))
    assert set(listed.values()) == {1}
    hook = (DOCS / "site_pages.py").read_text(encoding="utf-8")
    sources = dict(re.findall(r'^    "([\w-]+\.md)": "([\w/.]+\.md)",$', hook, re.M))
    assert all((ROOT / source).exists() for source in sources.values())
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    by_hook = {name for name in pages if name.startswith("recipes/")} | {"keras.md"}
    assert pages - by_hook | set(sources) == set(listed), "list it in mkdocs.yml"
