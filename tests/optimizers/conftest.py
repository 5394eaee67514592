"""Fixtures of the tests of optimizers."""

from collections.abc import Iterator

import pytest

from ganglion import config


@pytest.fixture
def float64() -> Iterator[None]:
    config.set_floatx("float64")
    yield
    config.set_floatx("float32")
