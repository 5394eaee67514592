"""Convolutions skip the zeros of data: which ones do, and that nothing else changes."""

import math

import numpy as np
import pytest
from cpu_checks import check, compiled, ran, same
from sparse_data import KINDS, pixels
from step_programs import step_of

from ganglion import config
from ganglion.compiler.cpu import emit, jit
from ganglion.compiler.cpu.jit import Target
from ganglion.compiler.cpu.passes.skip_zeros import LOADED, NonzeroBits, Word
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.contraction import conv, conv_kernel
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.pointwise import add, cast, fill, multiply
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.kernels import Axis, Buffer, Contract, View

pytestmark = pytest.mark.usefixtures("listed_zeros", "own_tiles")

pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def marked(plan):
    """Return the names of the convolutions that go by bits."""
    return sorted(
        kernel.name
        for kernel in plan.kernels
        if isinstance(kernel, Contract) and kernel.bits
    )


def kernels_of_bits(plan):
    return [kernel for kernel in plan.kernels if isinstance(kernel, NonzeroBits)]


def passes(
    images,
    taps,
    columns,
    *,
    strides=1,
    dilation=1,
    pad=0,
    groups=1,
    dtype="float32",
    stored="uint8",
    change=None,
):
    """Return a convolution of scaled data, and the gradient of its kernel."""
    x = Input("x", images, stored)
    data = cast(x, dtype=dtype)
    data = change(data) if change else multiply(data, fill(1 / 255, data))
    w = Input("w", (*taps, images[-1] // groups, columns), dtype)
    window = {
        "strides": (strides,) * len(taps),
        "dilation": (dilation,) * len(taps),
        "pairs": ((pad, pad),) * len(taps),
        "groups": groups,
    }
    y = conv(data, w, **window)
    dy = Input("dy", y.shape, dtype)
    dw = conv_kernel(data, dy, kernel=taps, **window)
    graph = Graph.of("passes", [x, w, dy], {"y": y, "dw": dw})
    return Program(graph, ("x",), ("w", "dy"), ("y", "dw"))


def sample(program, kind, seed=0):
    """Return data of a kind, and what it is multiplied by."""
    rng = np.random.default_rng(seed)
    shapes = {source.name: source for source in program.graph.inputs}
    shape = shapes["x"].shape
    x = pixels(kind, shape[0], math.prod(shape[1:]), seed).reshape(shape)
    state = {
        name: rng.normal(size=shapes[name].shape).astype(shapes[name].dtype)
        for name in ("w", "dy")
    }
    return {"x": x.astype(shapes["x"].dtype)}, state


def plain(program, data, state):
    """Return what comes out if all zeros are multiplied."""
    config.set_precise(True)
    try:
        assert not kernels_of_bits(build(program))
        return ran(compiled(program, 1), data, state, 1)
    finally:
        config.set_precise(False)


BOTH = ["conv", "conv_kernel"]
SIZES = {
    "as of MNIST": ((5, 28, 28, 1), (5, 5), 24, {}),
    "one image": ((1, 9, 9, 1), (5, 5), 24, {}),
    "primes": ((3, 11, 13, 1), (5, 7), 17, {}),
    "odd images": ((7, 9, 7, 1), (4, 5), 5, {}),
    "thin": ((7, 12, 40, 1), (4, 4), 16, {}),
    "colours": ((4, 16, 16, 3), (3, 3), 15, {}),
    "strides": ((2, 30, 30, 2), (5, 5), 33, {"strides": 2}),
    "dilation": ((3, 20, 20, 1), (5, 5), 31, {"dilation": 2}),
    "wide images": ((2, 19, 70, 1), (3, 7), 70, {}),
    "a frame": ((3, 10, 10, 1), (5, 5), 24, {"pad": 2}),
    "groups": ((2, 12, 12, 4), (5, 5), 10, {"groups": 2}),
    "volumes": ((2, 6, 8, 9, 1), (3, 3, 3), 12, {}),
    "large windows": ((2, 24, 24, 3), (11, 11), 20, {"strides": 3}),
    "single pixels": ((66, 5, 5, 1), (5, 5), 24, {}),
}
ONLY = {"single pixels": [], "large windows": ["conv"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SIZES)
def test_all_ways_agree(name, kind):
    images, taps, columns, more = SIZES[name]
    program = passes(images, taps, columns, **more)
    plan = build(program)
    assert marked(plan) == ONLY.get(name, BOTH)
    users = [
        kernel
        for kernel in plan.kernels
        if isinstance(kernel, Contract) and kernel.bits
    ]
    assert len(kernels_of_bits(plan)) == len({user.left.buffer for user in users})
    data, state = sample(program, kind)
    check(program, data, state, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SIZES)
def test_sums_have_the_bits_of_plain_ones(name, kind):
    images, taps, columns, more = SIZES[name]
    program = passes(images, taps, columns, **more)
    data, state = sample(program, kind)
    expected = plain(program, data, state)
    for threads in (1, 2, 3, 4):
        same(ran(compiled(program, threads), data, state, 1), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_double_precision(kind):
    program = passes((3, 14, 15, 1), (5, 5), 21, dtype="float64")
    assert marked(build(program)) == BOTH
    data, state = sample(program, kind)
    check(program, data, state, rtol=1e-11, atol=1e-11)
    same(ran(compiled(program, 2), data, state, 1), plain(program, data, state))


def test_dense_and_empty_images_in_one_batch():
    """Which way is taken is decided row by row: all of them must meet."""
    program = passes((6, 28, 28, 1), (5, 5), 24)
    data, state = sample(program, "full")
    data["x"][1] = 0
    data["x"][2, :14] = 0
    data["x"][3, :, :20] = 0
    data["x"][5] *= np.random.default_rng(0).random((28, 28, 1)) < 0.3
    same(ran(compiled(program, 2), data, state, 1), plain(program, data, state))


def test_what_is_not_a_number_is_marked():
    program = passes((2, 12, 12, 1), (5, 5), 24, stored="float32")
    data, state = sample(program, "empty")
    data["x"][0, 6, 6] = np.nan
    data["x"][1, 0, 0] = np.inf
    _, result = ran(compiled(program, 2), data, state, 1)
    y = np.isfinite(result["y"][0]).all(axis=-1)
    assert not y[0, 2:7, 2:7].any()
    assert y[0, :2].all()
    assert np.argwhere(~y[1]).tolist() == [[0, 0]]
    assert not np.isfinite(result["dw"][0]).any(axis=-1)[0, 0]


def test_the_interpreter_goes_by_the_bits():
    """A wrong bit is a bug of the planner: it must show without machine code."""
    program = passes((2, 12, 12, 1), (5, 5), 24)
    data, state = sample(program, "full")
    plan = build(program)
    (bits,) = kernels_of_bits(plan)
    right = PlanInterpreter(plan).run(data, dict(state), 1)
    empty = np.zeros(bits.source.shape, bits.source.dtype)
    other = Buffer("empty", empty.shape, empty.dtype, "constant", empty)
    object.__setattr__(bits, "source", other)
    wrong = PlanInterpreter(plan).run(data, dict(state), 1)
    for name in ("y", "dw"):
        assert np.abs(right[name]).max() > 1
        assert not wrong[name].any()


# ---- which convolutions ------------------------------------------------------------


def test_an_offset_makes_zeros_go_away():
    moved = passes((2, 12, 12, 1), (5, 5), 24, change=lambda x: add(x, fill(1, x)))
    assert marked(build(moved)) == []
    as_it_is = passes((2, 12, 12, 1), (5, 5), 24, change=lambda x: x)
    assert marked(build(as_it_is)) == BOTH


def test_a_buffer_of_nothing_but_zeros_is_no_data():
    zeros = passes((2, 12, 12, 1), (5, 5), 24, change=lambda x: fill(0, x))
    assert marked(build(zeros)) == []


def test_few_taps_or_columns_are_not_worth_it():
    assert marked(build(passes((2, 12, 12, 1), (3, 3), 24))) == ["conv_kernel"]
    assert marked(build(passes((2, 12, 12, 1), (5, 5), 3))) == []


def test_many_channels_do_not_fit_a_word():
    assert marked(build(passes((2, 6, 6, 40), (2, 2), 5))) == []


def test_the_first_convolution_skips_zeros_and_others_do_not():
    plan = build(step_of("mnist-cnn", rows=130, batch=128)[0])
    assert marked(plan) == BOTH
    assert "bits0:uint8[128, 98] = where" in str(plan)
    assert "· mnist-cnn/conv2d/kernel:float32[5, 5, 1, 24]  at bits0" in str(plan)
    (bits,) = kernels_of_bits(plan)
    (segment,) = [b for b in plan.segments if bits in plan.kernels[b.first : b.last]]
    assert (
        segment.last > segment.first + 1
    )  # made beside what is read or written anyway


def contraction(rows, inner, columns):
    """Return a contraction of some axes, each (size, stride in left, in right)."""
    left, right, out = (
        Buffer(name, (4096,), np.dtype("float32"), "arena") for name in "abc"
    )
    return Contract(
        "made up",
        (Axis(1, 4096),),
        tuple(Axis(size, step) for size, step in rows),
        (Axis(columns, 0, 1, 1),),
        tuple(Axis(*numbers) for numbers in inner),
        View(left, (1,)),
        View(right, (1,)),
        View(out, (1,)),
    )


@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [
        ([(24, 28), (24, 1)], [(5, 28, 120), (5, 1, 24)], 24),
        ([(5, 28), (5, 1)], [(24, 28, 576), (24, 1, 24)], 24),
        ([(5, 64), (9, 1)], [(60, 64, 960), (56, 2, 16)], 16),
        ([(8, 99), (11, 6)], [(7, 99, 420), (14, 1, 20)], 20),
    ],
)
def test_words_have_every_place_once(rows, inner, columns):
    product = contraction(rows, inner, columns)
    word = Word.of(product)
    assert word.rows <= product.rows[-1].size
    assert word.width * word.middle.size <= 64
    assert word.width + (word.rows - 1) * product.rows[-1].left <= LOADED

    def offsets(axes):
        sizes = [axis.size for axis in axes]
        return [
            tuple(
                sum(i * getattr(axis, side) for i, axis in zip(at, axes, strict=True))
                for side in ("left", "right")
            )
            for at in np.ndindex(*sizes)
        ]

    assert offsets((*word.outer, word.middle, word.last)) == offsets(product.inner)


# ---- training, and other processors --------------------------------------------------


@pytest.mark.parametrize("batch", [1, 13, 64])
def test_training_is_the_same_for_any_number_of_threads(batch):
    program, data, state = step_of("mnist-cnn", rows=80, batch=batch)
    data = {key: data[key] for key in program.data}
    data["x"] = pixels("holes", 80, 784).reshape(data["x"].shape)
    results = [ran(compiled(program, n), data, state, 2) for n in (1, 2, 3, 4)]
    for other in results[1:]:
        same(other, results[0])
    data["x"][:] = 0  # no pixel at all
    after, _ = ran(compiled(program, 2), data, state, 1)
    kernel = "mnist-cnn/conv2d/kernel"
    np.testing.assert_array_equal(after[kernel], state[kernel])


@pytest.mark.parametrize(
    "target",
    [
        Target("x86-64-v3", triple="x86_64-unknown-linux-gnu"),
        Target("generic", "+neon", triple="aarch64-unknown-linux-gnu"),
    ],
    ids=["AVX2", "NEON"],
)
def test_the_kernels_compile_for(target):
    modules, _ = emit.emit_plan(build(passes((3, 11, 13, 1), (5, 7), 17)))
    assert "fm" in jit.assembly(modules.values(), target)


@pytest.mark.skipif(jit.family() != "x86", reason="not an x86 processor")
def test_avx2_code_gives_the_same(monkeypatch, tmp_path):
    if "+avx2" not in jit.host().features:
        pytest.skip("the processor has no AVX2")
    program = passes((3, 15, 29, 1), (5, 5), 37)
    for kind in KINDS:
        data, state = sample(program, kind)
        here = ran(compiled(program, 1), data, state, 1)
        with monkeypatch.context() as patch:
            patch.setenv("GANGLION_CPU", "x86-64-v3")
            patch.setenv("GANGLION_HOME", str(tmp_path))
            same(ran(compiled(program, 2), data, state, 1), here)
