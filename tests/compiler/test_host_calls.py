"""Host calls: ops that run in Python within a step, on every backend that can."""

from __future__ import annotations

import numpy as np
import pytest

from ganglion.compiler import reference, registry
from ganglion.compiler.cpu import backend as cpu
from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cuda import pipeline as cuda
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.host import host_op, host_record, items
from ganglion.compiler.ir.scan import make_scan
from ganglion.compiler.ir.shaping import sum_
from ganglion.compiler.ir.simplify import simplify
from ganglion.compiler.plan.interpreter import PlanInterpreter

cube = host_op(
    "cube",
    lambda x: (x.shape, x.dtype),
    lambda x: x * x * x,
    lambda node, g: [p.multiply(g, thrice(p.multiply(*node.inputs * 2)))],
)
thrice = host_op("thrice", lambda x: (x.shape, x.dtype), lambda x: 3 * x)
halves = host_record(
    "halves",
    lambda x: [((x.shape[0] // 2, *x.shape[1:]), x.dtype)] * 2,
    lambda x: np.split(x, 2),
    lambda node, slopes: [joined(*slopes)],
)
joined = host_op(
    "joined",
    lambda a, b: ((2 * a.shape[0], *a.shape[1:]), a.dtype),
    lambda a, b: np.concatenate([a, b]),
)


def failing(x: np.ndarray) -> np.ndarray:
    if x.max() > 100:
        raise ArithmeticError("too large")
    return x


checked = host_op("checked", lambda x: (x.shape, x.dtype), failing)


def step(x_shape=(4, 3)) -> Program:
    """Return a step with both kinds of calls, and a state that is trained."""
    x, w = Input("x", x_shape, "float32"), Input("w", x_shape, "float32")
    first, second = items(halves(p.multiply(x, w)))
    loss = sum_(p.multiply(cube(first), p.add(second, second)), axes=(0, 1))
    slope = gradients(loss, [w])[w]
    outputs = {"loss": loss, "w": p.subtract(w, slope)}
    graph = simplify(Graph.of("step", [x, w], outputs))
    return Program(graph, ("x",), ("w",), ("loss",))


def values(shape=(4, 3)):
    rng = np.random.default_rng(0)
    return (rng.uniform(-0.5, 0.5, shape).astype("float32") for _ in range(2))


def run(executable, steps=3, **options):
    x, w = values()
    results = executable.run({"x": x}, {"w": w}, steps, **options)
    return results["loss"], w


@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_steps_call_the_host_and_agree_with_the_reference(threads):
    compiled = cpu.compile(step())
    compiled.forced_threads, compiled.poisons = threads, True
    expected = run(reference.compile(step()))
    for one, other in zip(run(compiled), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for one, other in zip(run(PlanInterpreter(build(step()))), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_gradient_is_made_of_host_calls_and_ops():
    x, w = (array.astype("float64") for array in values())
    first, second = np.split(x * w, 2)
    slope = np.concatenate([6 * first**2 * second, 2 * first**3]) * x
    _, new = run(reference.compile(step()), 1)
    np.testing.assert_allclose(new, w - slope, rtol=1e-5)


def test_a_loop_over_time_calls_the_host_at_every_step():
    x = Input("x", (5, 2, 3), "float32")
    start = Input("start", (2, 3), "float32")

    def body(carries, slices):
        total = p.add(carries[0], cube(slices[0]))
        return [total], [total]

    (last,), _ = make_scan(body, [start], [x], 5)
    program = Program(
        simplify(Graph.of("loop", [x, start], {"last": last})),
        ("x", "start"), (), ("last",),
    )  # fmt: skip
    data = {
        "x": np.linspace(-1, 1, 30, dtype="float32").reshape(5, 2, 3),
        "start": np.ones((2, 3), "float32"),
    }
    compiled = cpu.compile(program).run(data, {}, 1)["last"]
    np.testing.assert_allclose(
        compiled, reference.compile(program).run(data, {}, 1)["last"], rtol=1e-6
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_host_call_raises_comes_out_and_the_state_stays(threads):
    w = Input("w", (2,), "float32")
    grown = checked(p.multiply(w, p.add(w, w)))
    graph = Graph.of("grow", [w], {"w": grown, "top": sum_(grown, axes=(0,))})
    program = Program(graph, (), ("w",), ("top",))
    compiled = cpu.compile(program)
    compiled.forced_threads = threads
    state = np.array([1, 2], "float32")
    with pytest.raises(ArithmeticError, match="too large") as caught:
        compiled.run({}, {"w": state}, 9)
    assert "a host call" in caught.value.__notes__[0]
    np.testing.assert_array_equal(state, [1, 2])
    assert compiled.run({}, {"w": state}, 1)["top"] == 10  # and it can go on


def test_a_result_of_another_shape_or_type_is_refused_by_name():
    wrong = host_op("wrong", lambda x: (x.shape, x.dtype), lambda x: x.astype("int8"))
    x = Input("x", (2,), "float32")
    program = Program(Graph.of("g", [x], {"y": p.add(wrong(x), x)}), ("x",), (), ("y",))
    with pytest.raises(TypeError, match=r"wrong should return float32\[2\], not int8"):
        cpu.compile(program).run({"x": np.ones(2, "float32")}, {}, 1)


def test_machine_code_with_host_calls_is_cached(monkeypatch):
    run(cpu.compile(step()))
    jit.forget_functions()  # what is loaded by now: it is to be found on disk
    monkeypatch.setattr(jit, "emit_form", lambda form: pytest.fail("not cached"))
    run(cpu.compile(step()))


def test_a_gpu_refuses_and_auto_stays_on_the_cpu(monkeypatch):
    with pytest.raises(NotImplementedError, match=r"cube, halves.*GANGLION_BACKEND"):
        cuda.build(step(), GpuSpec())
    monkeypatch.setattr(registry.driver, "unavailable_reason", lambda: None)
    monkeypatch.setattr(registry.config, "backend_choice", lambda: "auto")
    assert registry.backend_for(step(), on_gpu=True) != "cuda"
