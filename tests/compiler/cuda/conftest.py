"""Emulated programs are large: they leave memory soon after their tests."""

import gc
import itertools
from collections.abc import Iterator

import pytest
from cuda_checks import EMULATED

from ganglion.compiler.cuda.target import TUNING

_tests = itertools.count(1)
EVERY = 2  # tests: each leaves 30 to 300 MB


@pytest.fixture(autouse=True)
def _let_go_of_programs() -> Iterator[None]:
    yield
    if next(_tests) % EVERY == 0:
        gc.collect()
        for memory in EMULATED:
            memory.free()


@pytest.fixture
def launches(monkeypatch) -> None:
    """Let small steps have launches, too, instead of one block for all."""
    monkeypatch.setattr(TUNING, "resident_products", -1)
