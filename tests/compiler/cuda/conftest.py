"""Emulated programs are large: they leave memory soon after their tests."""

import gc
from collections.abc import Iterator

import pytest
from cuda_checks import EMULATED

from ganglion.compiler.cuda.target import TUNING

MOST_BYTES = 300e6  # that programs may hold until they are looked for


@pytest.fixture(autouse=True)
def _let_go_of_programs() -> Iterator[None]:
    yield
    buffers = (memory.driver.allocated.values() for memory in EMULATED)
    if sum(buffer.nbytes for held in buffers for buffer in held) > MOST_BYTES:
        gc.collect()
        for memory in EMULATED:
            memory.free()


@pytest.fixture
def launches(monkeypatch) -> None:
    """Let small steps have launches, too, instead of one block for all."""
    monkeypatch.setattr(TUNING, "resident_products", -1)
