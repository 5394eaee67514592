"""The CUDA backend's kernels, run on a CPU that plays a GPU, against the reference."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import op_program, pure, ran, same
from cuda_cases import convolution, loops, product, random_graphs, training_step
from cuda_checks import LOSES, check, compiled, emulated
from layer_cases import CASES

from ganglion import config
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.ir import arrays
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.table import OPS

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
    "case", [c for c in CASES if c.layer in SOME], ids=lambda one: one.id
)
def test_layers_learn_as_in_the_reference(case):
    program, data, state = training_step(case, "float32")
    # Two steps: the second one sees what the first has written.
    check(program, data, state, steps=2, tolerance=10 * EXACT["float32"])


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


@pytest.mark.parametrize("layer", ["Dense", "LayerNormalization"])
def test_kernels_that_go_on_row_wise(layer, monkeypatch):
    monkeypatch.setattr(TUNING, "fewest_rows", 2)
    case = next(one for one in CASES if one.layer == layer)
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
    assert "PARTED = true" in "".join(executable.emission.functions.values())
    check(program, data, state, tolerance=3e-2, precise="tf32")


def test_equal_runs_have_equal_bits():
    program, data, state = convolution(17, 32)
    executable = compiled(program)
    given = {name: data[name] for name in program.data}
    same(ran(executable, given, state, 3), ran(executable, given, state, 3))


def test_old_gpus_multiply_exactly():
    program, data, state = convolution(5, 16)
    executable = compiled(program, emulated(75), "tf32")
    assert executable.emission.functions
    assert "tensor" not in "".join(executable.emission.functions.values())
    check(program, data, state, tolerance=2e-4, memory=emulated(75), precise="tf32")


@pytest.mark.parametrize("shape", [(8, 9), (33, 40), (3, 31, 70), (64, 8)])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_copies_that_turn_an_array(shape, dtype):
    x = Input("x", shape, dtype)
    *rest, y, z = range(len(shape))
    turned = arrays.transpose(x, axes=(*rest, z, y))
    program = pure(Graph.of("turn", [x], {"y": turned}))
    assert "square[" in "".join(compiled(program).emission.functions.values())
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    check(program, {"x": values}, {}, tolerance=0.0)
