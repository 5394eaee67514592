"""The CUDA backend's kernels, emulated on a CPU, against the reference."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import op_program, pure, ran, same
from cuda_cases import convolution, loops, product, random_graphs, training_step
from cuda_checks import LOSES, check, compiled, emulated
from layer_cases import CASES

from ganglion import config
from ganglion.compiler.cuda import (
    scan_scatter,
)
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import THREADS
from ganglion.compiler.ir import shaping
from ganglion.compiler.ir.contraction import scatter_add
from ganglion.compiler.ir.graph import Constant, Graph, Input, Program
from ganglion.compiler.ir.pointwise import multiply, negative
from ganglion.compiler.ir.pooling import max_pool, max_pool_back, sum_pool_back
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.kernels import Loop
from ganglion.compiler.plan.scan_scatter import PoolBack

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)
EXACT = {"float32": 2e-5, "float64": 1e-11}
# One of each kind of kernel and of each layer that has one of its own.
SOME = ("Conv1DTranspose", "DepthwiseConv1D", "Embedding", "SeparableConv1D")
SOME += ("MaxPooling1D", "AveragePooling2D", "Dropout", "Dot", "Concatenate")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op(name):
    op = OPS[name]
    drawn, attrs = op.domain(np.random.default_rng(0))
    drawn = [a.astype("f4") if a.dtype == np.float64 else a for a in drawn]
    attrs = {k: "float32" if v == "float64" else v for k, v in attrs.items()}
    program, data = op_program(op, drawn, attrs)
    check(program, data, {}, tolerance=EXACT["float32"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The loss does not depend on")
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.layer in SOME], ids=lambda case: case.id
)
@pytest.mark.sampled(2)
def test_layers_learn_as_in_the_reference(case):
    program, data, state = training_step(case, "float32")
    # Two steps: the second one sees what the first has written.
    check(program, data, state, steps=2, tolerance=10 * EXACT["float32"])


def test_the_negative_of_a_negative_number_is_no_decrement():
    x = Input("x", (4,), "float32")
    minus = shaping.broadcast(Constant(-0.5, "float32"), shape=(4,))
    graph = Graph.of("signs", [x], {"y": multiply(x, negative(minus))})
    program = Program(graph, ("x",), (), ("y",))
    check(program, {"x": np.arange(4, dtype="float32")}, {}, tolerance=0)


@pytest.mark.slow
def test_random_graphs_and_their_gradients():
    for program, data in random_graphs(6):
        check(program, data, {}, tolerance=1e-8)


@pytest.mark.parametrize("precise", ["tf32", "bf16", "float32"])
@pytest.mark.parametrize("size", [3, 17, 33])
def test_products_of_any_size(size, precise):
    program, data, state = product(size, "float32")
    # Sums of products lose as much as their largest terms.
    lost = LOSES[precise] * size
    check(program, data, state, tolerance=lost, precise=precise)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("size", [1, 7, 16, 33])
def test_loops_of_any_size(size, dtype):
    program, data, state = loops(size, dtype)
    check(program, data, state, tolerance=EXACT[dtype])


@pytest.mark.parametrize("size", [16, 34])
def test_loops_that_take_several_elements_at_a_time(size, monkeypatch):
    monkeypatch.setattr(TUNING, "busy_threads", 0)
    monkeypatch.setattr(TUNING, "several_results_elements", 0)
    program, data, state = loops(size, "float32")
    check(program, data, state, tolerance=EXACT["float32"])


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("layer", ["Dense", "LayerNormalization"])
def test_kernels_that_go_on_row_wise(layer, monkeypatch):
    monkeypatch.setattr(TUNING, "fewest_rows", 2)
    case = next(case for case in CASES if case.layer == layer)
    program, data, state = training_step(case, "float32")
    text = "".join(compiled(program).emission.functions.values())
    assert "int row0" in text
    check(program, data, state, steps=2, tolerance=10 * EXACT["float32"])


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("channels", [1, 17, 32])
def test_convolutions_of_any_size_on_tensor_cores(rows, channels):
    program, data, state = convolution(rows, channels)
    check(program, data, state, steps=2, tolerance=3e-2, precise="tf32")


def test_sums_of_long_products_are_added_in_parts():
    program, data, state = convolution(40, 16)
    executable = compiled(program, None, "tf32")
    assert "SPLIT_K = true" in "".join(executable.emission.functions.values())
    check(program, data, state, tolerance=3e-2, precise="tf32")


def test_equal_runs_have_equal_bits():
    program, data, state = convolution(5, 32)
    executable = compiled(program)
    data = {name: data[name] for name in program.data}
    same(ran(executable, data, state, 2), ran(executable, data, state, 2))


def test_old_gpus_multiply_exactly():
    program, data, state = convolution(5, 16)
    executable = compiled(program, emulated(75), "tf32")
    assert executable.emission.functions
    assert "tensor" not in "".join(executable.emission.functions.values())
    check(program, data, state, tolerance=2e-4, memory=emulated(75), precise="tf32")


@pytest.mark.parametrize("shape", [(8, 9), (33, 40), (3, 31, 70), (64, 8)])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_copies_that_transpose_an_array(shape, dtype):
    x = Input("x", shape, dtype)
    *rest, y, z = range(len(shape))
    transposed = shaping.transpose(x, axes=(*rest, z, y))
    program = pure(Graph.of("transpose", [x], {"y": transposed}))
    assert "square[" in "".join(compiled(program).emission.functions.values())
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    check(program, {"x": values}, {}, tolerance=0.0)


# ---- gradients of pooling --------------------------------------------------------


WINDOWS = [  # image, window, strides, pairs
    ((6, 8), (2, 2), (2, 2), ((0, 0), (0, 0))),  # every element in one
    ((7, 9), (2, 3), (2, 3), ((0, 0), (0, 0))),  # some in none
    ((7, 6), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((8, 9), (3, 2), (2, 1), ((0, 1), (1, 0))),
    ((9, 5), (2, 1), (3, 2), ((0, 0), (0, 0))),  # gaps between windows
    ((5, 4), (2, 2), (2, 2), ((1, 2), (2, 1))),  # windows of nothing but padding
    ((17,), (9,), (4,), ((3, 3),)),
    ((4, 3, 5), (2, 2, 2), (1, 2, 2), ((0, 1), (0, 1), (1, 0))),
]


def pool_gradients(image, window, strides, pairs, x=None, channels=4):
    """Return both gradients as a program, and what it runs on."""
    rng = np.random.default_rng(0)
    options = {"window": window, "strides": strides, "pairs": pairs}
    image_batch = Input("x", (3, *image, channels), "float32")
    y = max_pool(image_batch, **options)
    dy = Input("dy", y.shape, "float32")
    ends = {
        "largest": max_pool_back(image_batch, y, dy, **options),
        "all": sum_pool_back(dy, spatial=image, **options),
    }
    if x is None:  # few numbers: some are the largest of a window more than once
        x = rng.integers(0, 4, image_batch.shape)
    slopes = rng.normal(size=dy.shape)
    data = {"x": x.astype("float32"), "dy": slopes.astype("float32")}
    return pure(Graph.of("back", [image_batch, dy], ends)), data


@pytest.mark.parametrize("as_loops", [True, False])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_elements_get_the_gradients_of_their_windows(case, as_loops, monkeypatch):
    monkeypatch.setattr(TUNING, "fewest_depthwise_elements", 1 if as_loops else 1 << 30)
    program, data = pool_gradients(*case)
    check(program, data, {}, tolerance=1e-5)


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_with_nan_have_no_gradient(case):
    x = np.random.default_rng(1).normal(size=(3, *case[0], 4))
    x.ravel()[::11] = np.nan
    program, data = pool_gradients(*case, x=x)
    check(program, data, {}, tolerance=1e-5)


def test_no_window_waits_for_another():
    for case in WINDOWS:
        program, _ = pool_gradients(*case)
        kernels = build(program, GpuSpec(), after="fuse").kernels
        assert not any(isinstance(kernel, Loop) and kernel.adds for kernel in kernels)
        assert all(kernel.covers for kernel in kernels if isinstance(kernel, PoolBack))


# ---- rows added where indices say ------------------------------------------------


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
    indices = rng.integers(0, rows, count)
    return np.where(rng.random(count) < often, rows // 2, indices).astype(dtype)


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
def test_rows_of_any_type_are_added(dtype, kind):
    program, data = adding(20, drawn(20, 400, 0.3, kind), 6, dtype)
    check(program, data, {}, tolerance=1e-4 if dtype == "float32" else 1e-12)


def test_long_lists_of_indices_are_taken_in_turns(monkeypatch):
    monkeypatch.setattr(scan_scatter, "MOST_LISTED", THREADS)
    program, data = adding(9, drawn(9, 1500, 0.5), 4)
    check(program, data, {}, tolerance=1e-4)


def test_rows_are_added_in_the_same_order():
    program, data = adding(30, drawn(30, 2000, 0.4), 4)
    executable = compiled(program)
    first, again = (executable.run(data, {}, 1)["y"].tobytes() for _ in range(2))
    assert first == again
