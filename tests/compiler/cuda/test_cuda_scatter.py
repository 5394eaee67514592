"""Rows added where indices say, on a CPU that plays a GPU."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import pure
from cuda_checks import check, compiled

from ganglion.compiler.cuda import scan_scatter
from ganglion.compiler.cuda.text import THREADS
from ganglion.compiler.ir.contraction import scatter_add
from ganglion.compiler.ir.graph import Graph, Input

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


def adding(rows, index, width, dtype="float32"):
    """Return a program that adds random updates to rows, and what it runs on."""
    updates = Input("updates", (len(index), width), dtype)
    where = Input("where", index.shape, index.dtype.name)
    graph = Graph.of(
        "adding", [updates, where], {"y": scatter_add(updates, where, rows=rows)}
    )
    drawn = np.random.default_rng(1).normal(size=updates.shape).astype(dtype)
    return pure(graph), {"updates": drawn, "where": index}


def drawn(rows, count, often=0.0, dtype="int32"):
    """Return random indices, some of which are all the same."""
    rng = np.random.default_rng(0)
    found = rng.integers(0, rows, count)
    return np.where(rng.random(count) < often, rows // 2, found).astype(dtype)


@pytest.mark.parametrize(
    ("rows", "count", "width", "often"),
    [
        (1, 1, 1, 0.0),
        (7, 3, 5, 0.0),
        (40, 300, 12, 0.0),
        (3, 700, 2, 0.0),  # a bucket has more than there are threads
        (1000, 3000, 8, 0.6),
        (5, 900, 1030, 0.9),  # rows that are wider than a block
        (2000, 50, 33, 1.0),
    ],
)
def test_rows_are_added(rows, count, width, often):
    program, data = adding(rows, drawn(rows, count, often), width)
    check(program, data, {}, tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_of_any_type(dtype, kind):
    program, data = adding(20, drawn(20, 400, 0.3, kind), 6, dtype)
    check(program, data, {}, tolerance=1e-4 if dtype == "float32" else 1e-12)


def test_long_lists_are_taken_in_turns(monkeypatch):
    monkeypatch.setattr(scan_scatter, "MOST_LISTED", THREADS)
    program, data = adding(9, drawn(9, 1500, 0.5), 4)
    check(program, data, {}, tolerance=1e-4)


def test_sums_are_taken_in_the_same_order():
    program, data = adding(30, drawn(30, 2000, 0.4), 4)
    made = compiled(program)
    first, again = (made.run(data, {}, 1)["y"].tobytes() for _ in range(2))
    assert first == again
