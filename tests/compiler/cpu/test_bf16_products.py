"""Products of float32 with operands rounded to bfloat16, where that is asked for."""

import ctypes
import errno
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from amx_emulation import emulation
from cpu_checks import compiled, pure, ran, same

import ganglion as keras
from ganglion.compiler.cpu import features, jit
from ganglion.compiler.cpu.emit import _module, form_of
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.products import packing
from ganglion.compiler.cpu.products.amx_gemm import AmxContraction
from ganglion.compiler.cpu.products.packed_gemm import PackedContraction
from ganglion.compiler.cpu.products.packing import PackedKind, Rounding, parametrized
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import tanh
from ganglion.compiler.ir.shaping import transpose
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Contract

BLOCKS = {"packed_columns": 64, "packed_block_rows": 64, "merged_rows": 64}
BLOCKS |= {"packed_grain": 1, "amx_columns": 64, "amx_inner": 32}
LAYOUTS = ["nn", "nt", "tn", "tt"]
SIZES = [(28, 64, 32), (33, 65, 70), (57, 1, 129), (130, 515, 48)]


@pytest.fixture(autouse=True)
def asked_for(monkeypatch):
    monkeypatch.setenv("GANGLION_PRECISION", "bf16")


@pytest.fixture(params=["tiles", "emulated tiles", "pairs", "float32"])
def processor(request, monkeypatch):
    """Let the processor multiply bfloat16 in one way or another."""
    way = request.param
    if way != "float32" and not packing.multiplies_bf16():
        pytest.skip("this processor cannot multiply bfloat16")
    if way == "tiles" and not packing.multiplies_tiles():
        pytest.skip("this processor has no AMX")
    if way == "emulated tiles":
        with emulation():
            yield way
        return
    monkeypatch.setattr(packing, "multiplies_tiles", lambda: way == "tiles")
    monkeypatch.setattr(packing, "multiplies_bf16", lambda: way != "float32")
    yield way


def product(rows, inner, columns, layout="nn", dtype="float32", batch=()):
    """Return a product and what it runs on."""
    shapes = [
        (*batch, *(shape[::-1] if letter == "t" else shape))
        for shape, letter in zip(((rows, inner), (inner, columns)), layout, strict=True)
    ]
    inputs = [Input(n, s, dtype) for n, s in zip("xw", shapes, strict=True)]
    axes = (*range(len(batch)), len(batch) + 1, len(batch))
    left, right = (
        transpose(value, axes=axes) if letter == "t" else value
        for value, letter in zip(inputs, layout, strict=True)
    )
    draw = np.random.default_rng(rows * inner + columns)
    arrays = {v.name: draw.normal(size=v.shape).astype(dtype) for v in inputs}
    return pure(Graph.of("product", inputs, {"y": matmul(left, right)})), arrays


def meaning(arrays, layout):
    """Return the product of rounded operands, and how far float32 sums may be off."""
    x, w = (arrays[name].astype(ml_dtypes.bfloat16).astype("f8") for name in "xw")
    x, w = (
        v.swapaxes(-1, -2) if t == "t" else v
        for v, t in zip((x, w), layout, strict=True)
    )
    size = np.abs(x) @ np.abs(w)
    return x @ w, size * x.shape[-1] * np.finfo("f4").eps + 1e-30


def result_of(executable, arrays):
    return ran(executable, arrays, {}, 1)[1]["y"][0]


def check_meaning(program, arrays, layout):
    result = result_of(compiled(program, 1), arrays)
    expected, allowed = meaning(arrays, layout)
    assert (np.abs(result - expected) <= allowed).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES)
def test_operands_are_rounded_and_sums_are_float32(processor, sizes, layout):
    program, arrays = product(*sizes, layout)
    (kernel,) = [k for k in build(program).kernels if isinstance(k, Contract)]
    assert kernel.rounded
    assert kernel.packed
    check_meaning(program, arrays, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_do_not_depend_on_threads(processor, layout, monkeypatch):
    sizes = (300, 301, 302)
    if processor == "emulated tiles":  # slow: as many blocks of less
        monkeypatch.setattr(packing, "CPU", replace(CPU, **BLOCKS))
        sizes = (103, 70, 131)
    program, arrays = product(*sizes, layout)
    check_meaning(program, arrays, layout)
    expected = ran(compiled(program, 1), arrays, {}, 1)
    for threads in (2, 5):
        same(ran(compiled(program, threads), arrays, {}, 1), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_small_products_have_the_same_meaning(rows, layout, batch):
    program, arrays = product(rows, 40, 50, layout, batch=batch)
    check_meaning(program, arrays, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epilogues_go_on_with_every_tile(processor, layout):
    program, arrays = product(97, 40, 145, layout)
    (y,) = program.graph.outputs.values()
    graph = Graph.of("product", program.graph.inputs, {"y": tanh(y)})
    program = pure(graph)
    (kernel,) = [k for k in build(program).kernels if isinstance(k, Contract)]
    assert kernel.epilogue
    result = result_of(compiled(program, 1), arrays)
    expected, allowed = meaning(arrays, layout)
    assert (np.abs(result - np.tanh(expected)) <= allowed + 1e-6).all()


def test_the_interpreter_rounds_as_well():
    program, arrays = product(40, 30, 50)
    result = result_of(PlanInterpreter(build(program)), arrays)
    expected, allowed = meaning(arrays, "nn")
    assert (np.abs(result - expected) <= allowed).all()


def test_special_numbers_stay_what_they_are(processor):
    program, arrays = product(28, 2, 32)
    arrays["w"][...] = [[1.0], [0.0]]
    arrays["x"][:, 1] = 0
    arrays["x"][0, 0], arrays["x"][1, 0] = np.inf, np.nan
    arrays["x"][2, 0] = np.float32(1 + 2**-8)  # a half: to even
    arrays["x"][3, 0] = np.float32(1 + 3 * 2**-8)
    result = result_of(compiled(program, 1), arrays)
    assert (result[0] == np.inf).all()
    assert np.isnan(result[1]).all()
    assert (result[2] == 1).all()
    assert (result[3] == 1 + 2**-6).all()


def test_doubles_are_not_rounded():
    program, arrays = product(40, 30, 50, dtype="float64")
    result = result_of(compiled(program, 1), arrays)
    np.testing.assert_allclose(result, arrays["x"] @ arrays["w"], rtol=1e-12)


def test_nothing_is_rounded_unless_asked_for(monkeypatch):
    program, arrays = product(40, 30, 50)
    monkeypatch.setenv("GANGLION_PRECISION", "tf32")  # GPUs alone have it
    result = result_of(compiled(program, 1), arrays)
    exact = arrays["x"].astype("f8") @ arrays["w"]
    np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-5)
    assert np.abs(meaning(arrays, "nn")[0] - exact).max() > 1e-3


def assembly(rounding, cpu, left=False, right=False):
    kind = PackedKind(np.dtype("f4"), 0, left, right, False, False, rounding)
    product, grid, parameters = parametrized(kind)
    packs = AmxContraction if rounding is Rounding.AMX else PackedContraction
    packed = packs(product, grid, False, parameters, rounding)
    text = _module("k", packed.emit())
    return jit.assembly([text], jit.Target(cpu, triple="x86_64-unknown-linux-gnu"))


@pytest.mark.parametrize("cpu", ["sapphirerapids", "cooperlake", "znver4"])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_processors_that_can_multiply_pairs(cpu, left, right):
    text = assembly(Rounding.PAIRS, cpu, left, right)
    assert "vdpbf16ps" in text
    assert "vcvtne2ps2bf16" in text
    assert "vfmadd" not in text


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_processors_that_multiply_tiles(left, right):
    text = assembly(Rounding.AMX, "sapphirerapids", left, right)
    assert text.count("tdpbf16ps") == 4 + 2 + 2 + 1
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1
    assert "vdpbf16ps" not in text
    assert "vfmadd" not in text


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "skylake-avx512"])
def test_processors_that_cannot(cpu):
    text = assembly(Rounding.WIDENED, cpu)
    assert "vdpbf16ps" not in text
    assert "vfmadd" in text


def test_a_lesser_processor_multiplies_float32(monkeypatch):
    monkeypatch.setenv("GANGLION_CPU", "x86-64-v3")
    assert not packing.multiplies_bf16()
    assert not packing.multiplies_tiles()


def test_code_for_tiles_is_found_by_processors_with_tiles_alone(monkeypatch):
    monkeypatch.setattr(packing, "multiplies_tiles", lambda: False)

    def keys():
        kernels = build(product(64, 64, 64)[0]).kernels
        return {form_of(k).key for k in kernels if isinstance(k, Contract)}

    plain = keys()
    with emulation():
        assert keys().isdisjoint(plain)


def intel(monkeypatch, error=0, **features_of_it):
    """Stand on a processor of Intel's, whose system answers with an error."""
    asked = []

    def syscall(*numbers):
        asked.append(numbers)
        ctypes.set_errno(error)
        return -1 if error else 0

    has = {"avx512bf16": True, "amx-bf16": True, "amx-tile": True} | features_of_it
    monkeypatch.delenv("GANGLION_CPU", raising=False)
    monkeypatch.setattr(features, "host_features", lambda: has)
    monkeypatch.setattr(
        ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=syscall)
    )
    monkeypatch.setattr(features.sys, "platform", "linux")
    reason = features.amx_unavailable_reason.__wrapped__
    monkeypatch.setattr(features, "amx_unavailable_reason", reason)
    return asked


def test_linux_is_asked_for_tiles(monkeypatch):
    asked = intel(monkeypatch)
    assert features.multiplies_tiles()
    assert asked == [(158, 0x1023, 18)]
    assert features.bf16() == "AVX512-BF16, AMX"


def test_a_system_that_refuses_tiles(monkeypatch):
    intel(monkeypatch, errno.EOPNOTSUPP)
    assert not features.multiplies_tiles()
    text = "AVX512-BF16, AMX (not used: Linux refuses it: Operation not supported)"
    assert features.bf16() == text


def test_a_processor_whose_tiles_are_not_saved(monkeypatch):
    assert not intel(monkeypatch, **{"amx-tile": False})
    assert not features.multiplies_tiles()
    text = "AVX512-BF16, AMX (not used: the processor has no AMX-TILE)"
    assert features.bf16() == text


def test_nobody_is_asked_for_tiles_where_a_lesser_processor_is_wanted(monkeypatch):
    asked = intel(monkeypatch)
    monkeypatch.setenv("GANGLION_CPU", "x86-64-v4")
    assert not features.multiplies_tiles()
    assert not asked


def test_training_in_bf16_comes_close_to_float32(processor, monkeypatch):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(256, 40)).astype("f4")
    y = np.tanh(x @ draw.normal(size=(40, 33)) / 6).astype("f4")

    def trained(precision):
        monkeypatch.setenv("GANGLION_PRECISION", precision)
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(64, "gelu"), keras.layers.Dense(33)]
        model = keras.Sequential([keras.Input((40,)), *layers])
        model.compile("adam", "mse")
        history = model.fit(x, y, batch_size=64, epochs=5, verbose=0)
        return np.array(history.history["loss"])

    rounded, exact = trained("bf16"), trained("float32")
    assert (rounded != exact).any()
    np.testing.assert_allclose(rounded, exact, rtol=0.02)
