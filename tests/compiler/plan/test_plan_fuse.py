"""Which loops the planner puts together."""

import numpy as np
import pytest

from ganglion.compiler.plan.kernels import Buffer, Load, Loop, View, chained
from ganglion.compiler.plan.passes.loops import SMALL_LOOP as SMALL
from ganglion.compiler.plan.passes.loops import fuse

LARGE = 1 << 16
FLOAT = np.dtype("float32")
RATE = View(Buffer("rate", (), FLOAT, "state"), (0,))


def state(name, size):
    return View.of(Buffer(name, (size,), FLOAT, "state"))


def update(target, *read):
    """Return a loop that adds arrays, and stores the sum in one of them."""
    total = chained("add", [Load(FLOAT, view) for view in (target, *read)])
    return Loop.of("update", target.buffer.shape, total, target)


def stored(kernels):
    return [[view.buffer.name for _, view in kernel.outputs] for kernel in kernels]


@pytest.mark.parametrize(
    ("size", "joined"), [(SMALL, True), (LARGE - 1, True), (LARGE, False)]
)
def test_a_number_that_both_read_joins_no_large_loops_of_a_gpu(size, joined):
    a, b = state("a", size), state("b", size)
    kernels = [update(a, RATE), update(b, RATE)]
    together = [["a", "b"]]
    assert stored(fuse(kernels, large_loop=LARGE)) == (
        together if joined else [["a"], ["b"]]
    )
    assert stored(fuse(kernels)) == together


def test_an_array_that_both_read_does():
    a, b, both = (state(name, LARGE) for name in ("a", "b", "both"))
    fused = fuse([update(a, both, RATE), update(b, both, RATE)], large_loop=LARGE)
    assert stored(fused) == [["a", "b"]]


def test_small_loops_that_share_nothing_are_one():
    a, b = state("a", SMALL), state("b", SMALL)
    assert stored(fuse([update(a, a), update(b, b)])) == [["a", "b"]]
    a, b = state("a", SMALL + 1), state("b", SMALL + 1)
    assert stored(fuse([update(a, a), update(b, b)])) == [["a"], ["b"]]
