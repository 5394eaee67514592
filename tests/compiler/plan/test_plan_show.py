"""A plan as text: what loops have in common is said once."""

import numpy as np
import pytest
from step_programs import step_of

from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.plan.kernels import Apply, Buffer, Literal, Load, Loop, View
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.printer import show

F32, F64 = np.dtype("float32"), np.dtype("float64")
X, Y = (Buffer(name, (4,), F32, "arena") for name in "xy")


def shown(expr):
    loop = Loop.of("map", (4,), expr, View(Y, (1,)))
    return show(Plan("p", [loop], (), (), {})).split("\n")[1:]


def x():
    return Load(F32, View(X, (1,)))


def test_what_is_used_twice_has_a_name():
    """Equal expressions are one, whether or not they are the same object."""
    first, second = (Apply(F32, "exp", (x(),)) for _ in range(2))
    head, named = shown(Apply(F32, "add", (first, second)))
    assert head.endswith("y@[1] = add(e1, e1)")
    assert named.strip() == "with: e1 = exp(x@[1])"


def test_what_is_used_once_and_arrays_have_none():
    (line,) = shown(Apply(F32, "add", (Apply(F32, "exp", (x(),)), x())))
    assert line.endswith("y@[1] = add(exp(x@[1]), x@[1])")


def test_what_only_looks_alike_is_not_one():
    wide = Apply(F64, "cast", (Apply(F32, "exp", (x(),)),))
    narrow = Apply(F32, "cast", (Apply(F32, "exp", (x(),)),))
    text = "\n".join(shown(Apply(F32, "add", (narrow, wide))))
    assert "add(cast(e1), cast(e1))" in text
    near = [Apply(F32, "multiply", (x(), Literal(F32, v))) for v in (0.1, 0.1 + 1e-9)]
    (line,) = shown(Apply(F32, "add", tuple(near)))
    assert "e1" not in line


@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-cnn", "cifar10-cam"])
def test_lines_of_recipes_can_be_read(name):
    program, _, _ = step_of(name, rows=8, batch=4)
    assert max(map(len, show(build(program)).split("\n"))) < 1000
