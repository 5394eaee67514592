"""What is decided by the size of a product, decided for small ones as for large.

Some tests change what the compiler decides by: every program is planned anew.
"""

from dataclasses import replace

import pytest

from ganglion.compiler.cpu import backend, pipeline
from ganglion.compiler.cpu.passes import skip_zeros
from ganglion.compiler.cpu.products import small_gemm
from ganglion.compiler.cpu.tuning import CPU


@pytest.fixture(autouse=True)
def _planned_anew(monkeypatch):
    monkeypatch.setattr(backend, "LOADED", backend.LoadedPrograms(capacity=0))


@pytest.fixture
def listed_zeros(monkeypatch):
    """Zeros are left out of small products, too."""
    for module in (pipeline, skip_zeros):
        monkeypatch.setattr(module, "CPU", replace(CPU, listed_product=0))


@pytest.fixture
def own_tiles(monkeypatch):
    """Small products have tiles made for their shapes, too."""
    monkeypatch.setattr(
        small_gemm, "CPU", replace(CPU, small_product=0, plain_product=0)
    )


@pytest.fixture
def copied_columns(monkeypatch):
    """Products of few rows and columns copy columns, on any machine, in many blocks."""
    sizes = {"copied_rows": 8, "copied_columns": 16, "copied_panel": 1024}
    tuning = replace(CPU, epilogue_product=0, **sizes)
    monkeypatch.setattr(small_gemm, "CPU", tuning)
    monkeypatch.setattr(small_gemm, "gains_from_copies", lambda: True)
