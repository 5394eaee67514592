"""Cache blocking: which kernels run slice by slice; wrong segments are refused."""

from dataclasses import replace

import numpy as np
import pytest
from step_programs import step_of

from ganglion.compiler.cpu import backend, tuning
from ganglion.compiler.cpu.passes import cache_blocking
from ganglion.compiler.cpu.passes.cache_blocking import arrange, conflict, tile_local
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.plan import Segment
from ganglion.compiler.ir.graph import Constant, Graph, Input, Program
from ganglion.compiler.ir.pointwise import add, divide, multiply, subtract
from ganglion.compiler.ir.shaping import broadcast, reshape, sum_
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Apply, Buffer, Contract, Load, Loop, View
from ganglion.compiler.plan.passes.graph import one_pass
from ganglion.compiler.plan.plan import PlanError


@pytest.fixture(scope="module")
def plan():
    program, _, _ = step_of("mnist-cnn", rows=256, batch=128)
    return build(program)


def test_a_convolution_and_its_statistics_share_a_segment(plan):
    names = [[k.name for k in plan.kernels[b.first : b.last]] for b in plan.segments]
    assert ["winograd_conv" in name and "sum" in name for name in names].count(
        True
    ) == 1
    large = [b for b, name in zip(plan.segments, names, strict=True) if "conv" in name]
    assert [segment.slices for segment in large] == [32]


def of_convolution(segments, kernels):
    """Return the segment of the first convolution, and the others."""
    names = [[k.name for k in kernels[b.first : b.last]] for b in segments]
    (number,) = [i for i, name in enumerate(names) if "conv" in name]
    return segments[number], [*segments[:number], *segments[number + 1 :]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_small_batch_and_the_thin_product_of_it_share_a_segment(shuffle):
    """Reading images alone could be cut finer, but little would be gained by it."""
    plan = build(step_of("mnist-perceptron", 256, 128, shuffle=shuffle)[0])
    (segment,) = plan.segments
    assert (segment.first, segment.slices) == (0, 8)


def test_no_barrier_stands_inside_of_a_segment(plan):
    for segment in plan.segments:
        marks = plan.execution[segment.first : segment.last]
        assert not any(mark.barrier for mark in marks[:-1])
        assert not any(mark.one_thread for mark in marks)


def test_what_only_a_segment_touches_is_tile_local(plan):
    (back,) = [k for k in plan.kernels if k.name == "conv_kernel"]
    assert back.right.buffer in plan.tile_local  # the gradient before the convolution
    for buffer in plan.tile_local:
        users = [n for n, k in enumerate(plan.kernels) if touches(k, buffer)]
        segment = plan.segment_of()[users[0]]
        assert segment.first <= users[0] <= users[-1] < segment.last


def touches(kernel, buffer):
    return any(
        touched.name == buffer.name for touched in (*kernel.reads(), *kernel.writes())
    )


def test_what_is_read_later_or_by_other_slices_does_not_pass():
    x, t, y, z = (
        Buffer(name, (64, 32), np.dtype("float32"), kind)
        for name, kind in (
            ("x", "data"),
            ("t", "arena"),
            ("y", "arena"),
            ("z", "arena"),
        )
    )

    def copy(source, target):
        view = View.of(source)
        return Loop.of("copy", (64, 32), Load(x.dtype, view), View.of(target))

    kernels = [copy(x, t), copy(t, y), copy(y, z)]
    assert tile_local(kernels, [Segment(0, 2, 32)]) == {t}
    assert tile_local(kernels, [Segment(0, 3, 32)]) == {t, y, z}
    upside_down = Load(x.dtype, View(t, (-32, 1), 63 * 32))
    reversed_ = replace(kernels[1], outputs=((upside_down, kernels[1].target),))
    assert tile_local([kernels[0], reversed_], [Segment(0, 2, 32)]) == {y}


def test_who_makes_slices_for_a_later_member_joins():
    """It could run before the segment, but what it makes would leave the cache."""
    x, z, p, t, y = (
        Buffer(name, (64, 4096), np.dtype("float32"), kind)
        for name, kind in zip("xzpty", ["data"] * 2 + ["arena"] * 3, strict=True)
    )

    def loop(target, *sources):
        loads = tuple(Load(x.dtype, View.of(source)) for source in sources)
        return Loop.of("add", x.shape, Apply(x.dtype, "add", loads), View.of(target))

    kernels = [loop(p, x, x), loop(t, z, z), loop(y, p, t)]
    assert arrange(kernels) == (kernels, (Segment(0, 3, 32),))


@pytest.mark.parametrize(("columns", "slices"), [(4096, [16]), (65536, [32, 16])])
def test_large_slices_are_not_made_larger_for_a_kernel_of_few(columns, slices):
    """A kernel with half as many units joins only where a slice stays small."""
    x, t, u, v = (
        Buffer(name, (32, columns), np.dtype("float32"), kind)
        for name, kind in zip("xtuv", ["data"] + ["arena"] * 3, strict=True)
    )

    def loop(source, target, rows):
        strides = (32 // rows * columns, columns, 1)
        load = Load(x.dtype, View(source, strides))
        shape = (rows, 32 // rows, columns)
        return Loop.of("copy", shape, load, View(target, strides))

    kernels = [loop(x, t, 32), loop(t, u, 32), loop(u, v, 16), loop(v, x, 16)]
    _, segments = arrange(kernels)
    assert [segment.slices for segment in segments] == slices


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_a_slice_of_its_own_gives_a_thread_the_same_bits(threads, monkeypatch):
    monkeypatch.setattr(tuning, "CPU", replace(tuning.CPU, worth_stealing=0.0))
    program, data, state = step_of("mnist-cnn", rows=130, batch=48)
    data = {n: np.ascontiguousarray(data[n]) for n in program.data}
    results = []
    for kept in (True, False):
        compiled = backend.compile(program)
        assert compiled.plan.tile_local
        if not kept:
            compiled.plan = replace(compiled.plan, tile_local=frozenset())
        compiled.poisons, compiled.forced_threads = True, threads
        own = {name: array.copy() for name, array in state.items()}
        compiled.run(data, own, 2)
        results.append(own)
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array, err_msg=name)


def test_a_segment_that_needs_all_of_another_kernel_is_found(plan):
    first, others = of_convolution(plan.segments, plan.kernels)
    assert conflict(plan.kernels, plan.segments) is None
    longer = replace(first, last=first.last + 1)  # adds up what all slices made
    wrong = conflict(plan.kernels, (longer, *others))
    assert wrong == (first.last, first.last)


def test_reading_another_slice_is_found():
    x, t, y = (
        Buffer(name, (64, 32), np.dtype("float32"), kind)
        for name, kind in (("x", "data"), ("t", "arena"), ("y", "arena"))
    )
    forward, backward = View.of(t), View(t, (-32, 1), 63 * 32)
    first = Loop.of("copy", (64, 32), Load(x.dtype, View.of(x)), forward)
    same = Loop.of("copy", (64, 32), Load(t.dtype, forward), View.of(y))
    other = Loop.of("copy", (64, 32), Load(t.dtype, backward), View.of(y))
    segment = Segment(0, 2, 32)
    assert conflict([first, same], [segment]) is None
    assert conflict([first, other], [segment]) == (0, 1)


def test_slices_that_do_not_divide_a_kernel_are_found(plan):
    wrong = replace(plan.segments[0], slices=31)
    assert conflict(plan.kernels, (wrong,)) == (wrong.first, wrong.first)


def test_a_plan_with_a_wrong_segment_is_refused(monkeypatch):
    program, _, _ = step_of("mnist-cnn", rows=256, batch=128)
    arranged = cache_blocking.arrange

    def longer(kernels):
        kernels_in_order, segments = arranged(kernels)
        first, _ = of_convolution(segments, kernels_in_order)
        return kernels_in_order, (replace(first, last=first.last + 1),)

    monkeypatch.setattr(cache_blocking, "arrange", longer)
    with pytest.raises(PlanError, match="cannot share a segment"):
        build(program)


@pytest.mark.parametrize("batch", [1, 7, 16, 31, 48, 100, 128])
def test_any_batch_gives_the_same_bits_on_any_number_of_threads(batch):
    program, data, state = step_of("mnist-cnn", rows=130, batch=batch)
    compiled = backend.compile(program)
    compiled.poisons = True
    results = []
    for threads in (1, 2, 3):
        compiled.forced_threads = threads
        own = {name: array.copy() for name, array in state.items()}
        compiled.run({n: np.ascontiguousarray(data[n]) for n in program.data}, own, 2)
        results.append(own)
    for other in results[1:]:
        for name, array in results[0].items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)


# ---- mean and variance in one pass -------------------------------------------------


def moments(shape, bias=False):
    x = Input("x", shape, "float32")
    b = Input("b", shape[-1:], "float32")
    axes = tuple(range(len(shape) - 1))
    count = np.float32(np.prod(shape[:-1]))
    value = add(x, broadcast(b, shape=shape)) if bias else multiply(x, x)
    kept = (1,) * len(axes) + shape[-1:]
    number = broadcast(Constant(count), shape=kept)
    mean = divide(reshape(sum_(value, axes=axes), shape=kept), number)
    away = subtract(value, broadcast(mean, shape=shape))
    squares = sum_(multiply(away, away), axes=axes)
    outputs = {"mean": reshape(mean, shape=shape[-1:]), "squares": squares}
    return Graph.of("moments", [x, b], outputs)


@pytest.mark.parametrize("shape", [(32, 16, 16, 5), (97, 64, 1), (4096, 17)])
@pytest.mark.parametrize("offset", [0.0, 3.0, 1000.0])
@pytest.mark.parametrize("bias", [False, True])
def test_one_pass_is_as_exact_as_two(shape, offset, bias):
    rng = np.random.default_rng(3)
    x = (rng.normal(size=shape) + offset).astype("float32")
    b = rng.normal(size=shape[-1:]).astype("float32")
    graph = moments(shape, bias)
    assert len(one_pass(graph).nodes) != len(graph.nodes)
    program = Program(graph, ("x", "b"), (), ("mean", "squares"))
    value = x + b if bias else x * x
    exact = value.astype("float64")
    axes = tuple(range(len(shape) - 1))
    mean = exact.mean(axes)
    squares = ((exact - mean) ** 2).sum(axes)
    for compiled in (backend.compile(program), PlanInterpreter(build(program))):
        result = compiled.run({"x": x, "b": b}, {}, 1)
        np.testing.assert_allclose(result["mean"][0], mean, rtol=3e-7)
        # The data has 24 bits: around 1000 a distance of about 1 has 14 of them left.
        np.testing.assert_allclose(result["squares"][0], squares, rtol=2e-5)


def test_equal_values_have_no_variance_at_all():
    graph = moments((32, 16, 16, 5), bias=True)
    program = Program(graph, ("x", "b"), (), ("mean", "squares"))
    x = np.full((32, 16, 16, 5), 0.1, "float32")
    data = {"x": x, "b": np.full(5, 0.7, "float32")}
    result = backend.compile(program).run(data, {}, 1)
    np.testing.assert_array_equal(result["squares"][0], 0)


@pytest.mark.parametrize("size", [2, 3, 10, 15, 16, 17])
def test_argmax_takes_the_first_and_knows_nan(size):
    rng = np.random.default_rng(size)
    x = rng.integers(0, 3, (40, size)).astype("float32")
    x[3, 1], x[4, :] = np.nan, np.nan
    x[5, :] = -np.inf
    tensor = Input("x", x.shape, "float32")
    node = OPS["argmax"](tensor, axis=1)
    graph = Graph.of("find", [tensor], {"found": node})
    program = Program(graph, ("x",), (), ("found",))
    result = backend.compile(program).run({"x": x}, {}, 1)["found"][0]
    np.testing.assert_array_equal(result, np.argmax(x, axis=1))


# ---- narrow products -----------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 3, 10, 15])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_narrow_products_are_turned_around(columns, batch):
    rng = np.random.default_rng(columns)
    x = rng.normal(size=(*batch, 21, 50)).astype("float32")
    g = rng.normal(size=(*batch, 21, columns)).astype("float32")
    tensors = Input("x", x.shape, "float32"), Input("g", g.shape, "float32")
    axes = (*range(len(batch)), len(batch) + 1, len(batch))
    node = OPS["matmul"](OPS["transpose"](tensors[0], axes=axes), tensors[1])
    graph = Graph.of("narrow", tensors, {"found": node})
    program = Program(graph, ("x", "g"), (), ("found",))
    plan = build(program)
    (product,) = [kernel for kernel in plan.kernels if isinstance(kernel, Contract)]
    assert [axis.size for axis in product.columns] == [50]
    result = backend.compile(program).run({"x": x, "g": g}, {}, 1)["found"][0]
    exact = np.swapaxes(x, -1, -2).astype("float64") @ g
    np.testing.assert_allclose(result, exact, atol=1e-5)


def test_products_that_are_added_up_are_rounded_once():
    a, b = Input("a", (2, 32), np.float32), Input("b", (2, 32), np.float32)
    total = sum_(multiply(a, b), axes=(0,))
    program = Program(Graph.of("dot", [a, b], {"y": total}), ("a", "b"), (), ("y",))
    near = 1 + 2.0**-12
    first = np.repeat(np.float32([[1.0], [near]]), 32, axis=1)
    other = np.repeat(np.float32([[-1.0], [near]]), 32, axis=1)
    result = backend.compile(program).run({"a": first, "b": other}, {}, 1)["y"][0]
    np.testing.assert_array_equal(result, np.float32(2.0**-11 + 2.0**-24))


def test_a_tall_product_shares_a_segment_with_what_is_around_it():
    """Its rows are cut as a batch is: what passes on stays in a thread's cache."""
    rng = np.random.default_rng(0)
    shapes = {"x": (2048, 24), "first": (24, 40), "second": (40, 24)}
    data = {name: rng.normal(size=n).astype("float32") for name, n in shapes.items()}
    x, first, second = (Input(name, shapes[name], "float32") for name in shapes)
    hidden = OPS["tanh"](OPS["matmul"](add(x, x), first))
    graph = Graph.of("tall", [x, first, second], {"y": OPS["matmul"](hidden, second)})
    program = Program(graph, tuple(shapes), (), ("y",))
    plan = build(program)
    (segment,) = plan.segments
    names = [kernel.name for kernel in plan.kernels[segment.first : segment.last]]
    assert names.count("matmul") == 2
    assert segment.slices == 32
    expected = np.tanh(2 * data["x"] @ data["first"]) @ data["second"]
    executable = backend.compile(program)
    results = []
    for threads in (1, 3):
        executable.forced_threads = threads
        results.append(executable.run(data, {}, 1)["y"][0])
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
