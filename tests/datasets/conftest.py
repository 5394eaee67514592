"""An empty cache, no network, and a web server on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from datasets_fakes import Site, go_offline, use_home


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return use_home(monkeypatch, tmp_path / "home")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch, tmp_path / "empty")


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()
