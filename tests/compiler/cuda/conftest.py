"""Emulated programs are large: they leave memory soon after their tests."""

import gc
import itertools
from collections.abc import Iterator

import pytest
from cuda_checks import emulated

_tests = itertools.count(1)
EVERY = 8  # tests; looking for garbage takes a tenth of a second


@pytest.fixture(autouse=True)
def _let_go_of_programs() -> Iterator[None]:
    yield
    if next(_tests) % EVERY == 0:
        gc.collect()
        if emulated.cache_info().currsize:
            emulated().free()
