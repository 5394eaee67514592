"""Numbers below the normal range are zero while compiled code runs, and only then."""

import numpy as np
import pytest
from cpu_checks import compiled, pure, ran

from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.host import host_op
from ganglion.compiler.ir.pointwise import multiply

SMALL = np.full((64, 64), 1e-20, "float32")  # whose square is subnormal


def squared_on_the_host():
    return float(np.square(SMALL[0, :1])[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_results_and_operands_are_flushed(threads):
    a, b = Input("a", SMALL.shape, "float32"), Input("b", SMALL.shape, "float32")
    program = pure(Graph.of("product", [a, b], {"y": multiply(a, b)}))
    executable = compiled(program, threads)
    _, results = ran(executable, {"a": SMALL, "b": SMALL}, {}, 1)
    assert not results["y"].any()
    subnormal = np.full_like(SMALL, 1e-40)
    large = np.full_like(SMALL, 1e30)
    _, results = ran(executable, {"a": subnormal, "b": large}, {}, 1)
    assert not results["y"].any()
    assert squared_on_the_host() > 0


def test_host_calls_are_not_flushed():
    seen = []

    def look(x):
        seen.append(squared_on_the_host())
        return x

    passed = host_op("looked", lambda x: (x.shape, x.dtype), look)
    a = Input("a", SMALL.shape, "float32")
    y = multiply(passed(a), a)
    program = pure(Graph.of("call", [a], {"y": y}))
    _, results = ran(compiled(program, 1), {"a": SMALL}, {}, 1)
    assert seen
    assert min(seen) > 0
    assert not results["y"].any()
