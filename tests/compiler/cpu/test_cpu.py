"""The CPU compiler against the reference: every op, every layer, any graph and size."""

import numpy as np
import pytest
from cpu_checks import check, op_program, pure, training_step
from graph_maker import Maker
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import CASES

from ganglion import config
from ganglion.compiler.cpu import pipeline
from ganglion.compiler.cpu.elementwise import suits_lanes
from ganglion.compiler.ir import arrays, contraction, pointwise, shaping
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.table import OPS

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

# Sums in another order, and functions within 2 ulp, differ by some units of the type.
TOLERANCE = {"float32": 2e-5, "float64": 1e-11}
AWKWARD = (1, 2, 3, 7, 13, 15, 16, 17, 31, 33)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op(name, dtype):
    op = OPS[name]
    for seed in range(2):
        drawn, attrs = op.domain(np.random.default_rng(seed))
        if dtype == "float32":
            drawn = [a.astype("f4") if a.dtype == np.float64 else a for a in drawn]
            attrs = {k: dtype if v == "float64" else v for k, v in attrs.items()}
        program, data = op_program(op, drawn, attrs)
        check(program, data, {}, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# ---- layers --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The loss does not depend on")
@pytest.mark.parametrize("floatx", TOLERANCE)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.sampled(3)
def test_every_layer_learns_as_in_the_reference(case, floatx):
    config.set_backend("numpy")
    config.set_floatx(floatx)
    program, data, state = training_step(case, floatx)
    # Two steps: the second one sees what the first has written.
    tolerance = 10 * TOLERANCE[floatx]
    check(program, data, state, steps=2, rtol=tolerance, atol=tolerance)


# ---- any graph -----------------------------------------------------------------------


class Larger(Maker):
    """Grows graphs of sizes around the width of a vector."""

    def __init__(self, data, dtype):
        super().__init__(data, dtype, smooth=True)
        sizes = [(17, 5), (5, 17), (33,), (16, 3), (1, 31)]
        shapes = data.draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=3))
        self.inputs = [Input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes)]
        self.values = list(self.inputs)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 12))
def test_random_graphs_and_their_gradients(data, steps):
    graph = Larger(data, "float64").graph(steps)
    last = graph.outputs["last"]
    loss = pointwise.sin(shaping.sum_(last, axes=tuple(range(last.ndim))))
    slopes = gradients(loss, graph.inputs)
    ends = {f"slope {k.name}": v for k, v in slopes.items()} | dict(graph.outputs)
    program = Graph.of("random", graph.inputs, ends)
    rng = np.random.default_rng(steps)
    drawn = {x.name: rng.uniform(-1, 1, x.shape) for x in program.inputs}
    check(pure(program), drawn, {}, rtol=1e-8, atol=1e-8)


# ---- awkward sizes -------------------------------------------------------------------


@pytest.mark.parametrize("size", AWKWARD)
def test_products_of_any_size(size):
    rng = np.random.default_rng(size)
    for m, k, n in ((size, 5, 17), (3, size, 2), (2, 7, size), (size, size, size)):
        a = Input("a", (m, k), "float64")
        b = Input("b", (k, n), "float64")
        product = contraction.matmul(a, b)
        flipped = contraction.matmul(
            shaping.transpose(b, axes=(1, 0)), shaping.transpose(a, axes=(1, 0))
        )
        graph = Graph.of("products", [a, b], {"ab": product, "ba": flipped})
        data = {"a": rng.normal(size=(m, k)), "b": rng.normal(size=(k, n))}
        check(pure(graph), data, {}, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", AWKWARD)
def test_loops_of_any_size(size):
    rng = np.random.default_rng(size)
    x = Input("x", (size, 3, size), "float64")
    ends = {
        "map": pointwise.exp(x),
        "rows": shaping.sum_(x, axes=(2,)),
        "columns": shaping.sum_(x, axes=(0,)),
        "all": shaping.sum_(x, axes=(0, 1, 2)),
        "largest": arrays.max_(x, axes=(0, 2)),
        "transposed": pointwise.negative(shaping.transpose(x, axes=(2, 0, 1))),
    }
    data = {"x": rng.normal(size=x.shape)}
    check(pure(Graph.of("loops", [x], ends)), data, {}, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize("channels", [1, 3, 16, 17])
def test_convolutions_of_any_size(rows, channels):
    config.set_backend("numpy")
    case_of = next(case for case in CASES if case.layer == "Conv2D")
    arguments = {"filters": channels, "kernel_size": 3, "padding": "same"}
    case = type(case_of)("Conv2D", ((rows, 7, 9, channels),), arguments)
    program, data, state = training_step(case, "float32")
    # Winograd's transforms lose another digit.
    check(program, data, state, steps=2, rtol=5e-4, atol=5e-4)


# Kernel, strides, padding before and behind, and groups; some outputs meet no tap.
PHASES = [
    ((4, 4), (2, 2), ((1, 1), (1, 1)), 1),
    ((3, 5), (2, 3), ((0, 1), (2, 1)), 2),
    ((1, 2), (2, 1), ((0, 0), (0, 0)), 1),
    ((2, 2), (3, 2), ((0, 0), (1, 0)), 1),
    ((3, 3), (2, 2), ((0, 1), (1, 0)), 6),
    ((3,), (2,), ((1, 1),), 1),
    ((3, 2, 2), (2, 1, 2), ((1, 0), (0, 1), (0, 0)), 1),
]


@pytest.mark.parametrize(("kernel", "strides", "pairs", "groups"), PHASES)
def test_transposed_convolutions_of_any_strides(kernel, strides, pairs, groups):
    """Each phase of the outputs is a convolution of its own."""
    spatial = (9, 8, 7)[: len(kernel)]
    window = {"strides": strides, "pairs": pairs, "dilation": (1,) * len(kernel)}
    x = Input("x", (3, *spatial, 6), "float64")
    w = Input("w", (*kernel, 6 // groups, 12), "float64")
    y = contraction.conv(x, w, **window, groups=groups)
    dy = Input("dy", y.shape, "float64")
    spread = contraction.conv_transpose(dy, w, **window, groups=groups, spatial=spatial)
    rng = np.random.default_rng(0)
    data = {value.name: rng.normal(size=value.shape) for value in (dy, w)}
    graph = Graph.of("spread", [dy, w], {"dx": spread})
    check(pure(graph), data, {}, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 8, 17, 70])
def test_sums_of_rows_of_a_table(size):
    """Lanes are columns of the table; a row that is not there makes NaN."""
    table = Input("table", (9, size), "float64")
    index = Input("index", (4, 5), "int32")
    rows = contraction.gather(table, index)
    ends = {"sum": shaping.sum_(rows, axes=(1,)), "max": arrays.max_(rows, axes=(0, 1))}
    rng = np.random.default_rng(size)
    chosen = rng.integers(0, 9, index.shape).astype("int32")
    data = {"table": rng.normal(size=table.shape), "index": chosen}
    graph = pure(Graph.of("bag", [table, index], ends))
    check(graph, data, {}, rtol=1e-12, atol=1e-12)
    chosen[1, 2] = 9
    check(graph, data, {}, rtol=1e-12, atol=1e-12)
    sums = [k for k in pipeline.build(graph).kernels if getattr(k, "reduced", 0)]
    assert [suits_lanes(kernel) for kernel in sums] == [size >= 8] * 2


@pytest.mark.parametrize(
    ("kernel", "multiplier"), [((3, 3), 1), ((4, 5), 2), ((2,), 1)]
)
def test_gradients_of_depthwise_kernels(kernel, multiplier):
    """Several taps are added up in one walk, channels in the lanes."""
    rank = len(kernel)
    window = {
        "strides": (2,) * rank,
        "pairs": ((1, 0),) * rank,
        "dilation": (1,) * rank,
    }
    x = Input("x", (6, *(9, 10)[:rank], 18), "float64")
    w = Input("w", (*kernel, 1, 18 * multiplier), "float64")
    dy = Input("dy", contraction.conv(x, w, **window, groups=18).shape, "float64")
    slope = contraction.conv_kernel(x, dy, **window, groups=18, kernel=kernel)
    rng = np.random.default_rng(0)
    data = {value.name: rng.normal(size=value.shape) for value in (x, dy)}
    graph = Graph.of("depthwise", [x, dy], {"dw": slope})
    check(pure(graph), data, {}, rtol=1e-12, atol=1e-12)
