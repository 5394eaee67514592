"""Winograd's convolution: close to exact in every pass, the same on any threads."""

from dataclasses import replace

import numpy as np
import pytest
from cpu_checks import compiled
from step_programs import program_of, step_of

from ganglion import config
from ganglion.compiler import reference
from ganglion.compiler.cpu import backend, pipeline
from ganglion.compiler.cpu.emit import emit_form, form_of
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan import lower_winograd
from ganglion.compiler.plan.interpreter import PlanInterpreter
from ganglion.compiler.plan.winograd import WinogradPoints

pytest.importorskip("llvmlite")

PASSES = ("conv", "conv_transpose", "conv_kernel")

# Taps, (images, height, width), channels in and out, padding of all four sides: images
# of one pixel, partial tiles, primes, channels below, between and above vectors.
CASES = [
    (3, (1, 1, 1), 1, 1, ((1, 1), (1, 1))),
    (3, (3, 5, 7), 3, 17, ((1, 1), (1, 1))),
    (3, (2, 5, 7), 8, 24, ((0, 0), (0, 0))),
    (3, (5, 13, 11), 17, 8, ((2, 0), (0, 1))),
    (3, (7, 8, 8), 32, 32, ((1, 1), (1, 1))),
    (3, (130, 4, 4), 48, 40, ((1, 1), (1, 1))),
    (3, (3, 16, 16), 24, 112, ((1, 1), (1, 1))),
    (3, (2, 3, 3), 4, 5, ((0, 0), (0, 0))),
    (3, (9, 6, 6), 64, 128, ((1, 1), (0, 0))),
    (3, (4, 6, 7), 20, 21, ((0, 0), (0, 0))),
    (5, (1, 1, 1), 1, 3, ((2, 2), (2, 2))),
    (5, (3, 5, 7), 3, 1, ((2, 2), (2, 2))),
    (5, (6, 12, 12), 24, 48, ((0, 0), (0, 0))),
    (5, (17, 7, 5), 17, 32, ((2, 1), (4, 0))),
    (5, (37, 6, 9), 48, 8, ((1, 2), (0, 3))),
    ((1, 3), (9, 5, 7), 17, 24, ((0, 0), (1, 1))),
    ((1, 5), (3, 1, 61), 24, 40, ((0, 0), (2, 2))),
    ((1, 4), (5, 2, 9), 8, 33, ((0, 0), (0, 0))),
]


@pytest.fixture(autouse=True)
def slow_third_cache(monkeypatch):
    """Plan for a processor that should not read weights again, on any machine."""
    monkeypatch.setattr(pipeline, "has_fast_third_cache", lambda: False)


@pytest.fixture
def always(monkeypatch):
    """Use Winograd's method wherever it is possible."""
    monkeypatch.setattr(lower_winograd, "worth", lambda *shapes: True)


@pytest.fixture
def choices():
    """Put the global choices back."""
    before = dict(config._choices)
    yield
    config._choices.update(before)


def pass_of(name, taps, images, ends, pairs, seed=0, stride=1):
    """Return the arrays of a pass and its attributes."""
    rng = np.random.default_rng(seed)
    inside, outside = ends
    taps = (taps, taps) if isinstance(taps, int) else taps
    strides = tuple(min(stride, size) for size in taps)
    out = [
        (n + lo + hi - size) // step + 1
        for n, (lo, hi), size, step in zip(
            images[1:], pairs, taps, strides, strict=True
        )
    ]
    arrays = {
        "x": rng.standard_normal((*images, inside)),
        "w": rng.standard_normal((*taps, inside, outside)),
        "dy": rng.standard_normal((images[0], *out, outside)),
    }
    window = {"strides": strides, "pairs": pairs, "dilation": (1, 1), "groups": 1}
    which, attrs = {
        "conv": (("x", "w"), {}),
        "conv_transpose": (("dy", "w"), {"spatial": tuple(images[1:])}),
        "conv_kernel": (("x", "dy"), {"kernel": taps}),
    }[name]
    chosen = [arrays[name].astype("float32") for name in which]
    return chosen, attrs | window


def kinds(plan):
    """Return which of Winograd's kernels a plan has."""
    names = {type(kernel).__name__ for kernel in plan.kernels}
    return {name for name in names if name.startswith("Winograd")}


def rounding(plan):
    """Return what the interpreter's result may be off: it rounds what is stored.

    Those are transformed weights, and points of images where they are stored.
    """
    return 2e-5 if "WinogradPoints" in kinds(plan) else 2e-6


def error(result, expected):
    """Return the largest error in parts of the largest value."""
    return np.abs(result - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("span", lower_winograd.SPANS)
@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sampled(3)
def test_passes_against_float64(always, monkeypatch, span, name, case):
    monkeypatch.setattr(lower_winograd, "SPANS", (span,))
    taps, images, inside, outside, pairs = case
    arrays, attrs = pass_of(name, taps, images, (inside, outside), pairs)
    exact = OPS[name].meaning(*(a.astype("float64") for a in arrays), **attrs)
    program = program_of(OPS[name], arrays, attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    plan = build(program)
    spans = {1 if taps == 1 else span for taps in np.atleast_1d(taps)}
    kernels = [kernel for kernel in plan.kernels if hasattr(kernel, "span")]
    assert {inputs for kernel in kernels for inputs in kernel.span} == spans
    result = compiled(program, 2).run(data, {}, 2)["y"]
    # A digit and a half of float32 go to the transforms' large and small factors.
    assert error(result[1], exact) < 4e-5
    meant = PlanInterpreter(plan).run(data, {}, 1)["y"][0]
    assert error(meant, exact) < rounding(plan)


# Taps, stride, (images, height, width), channels in and out, padding: taps that the
# strides divide and those that they do not, phases of unequal pixels; more taps than a
# tile has.
STRIDED = [
    (4, 2, (3, 14, 14), 16, 24, ((1, 1), (1, 1))),
    (3, 2, (5, 13, 12), 17, 8, ((1, 0), (0, 1))),
    (4, 2, (2, 9, 11), 8, 40, ((0, 0), (2, 1))),
    (6, 3, (4, 10, 8), 9, 16, ((2, 2), (1, 3))),
    (5, 2, (3, 12, 15), 24, 17, ((2, 2), (1, 2))),
    (7, 2, (3, 11, 9), 5, 33, ((3, 3), (2, 3))),
    (2, 1, (4, 9, 10), 20, 21, ((0, 1), (1, 0))),
    (4, 1, (4, 9, 10), 20, 21, ((1, 2), (2, 1))),
    ((1, 6), 2, (5, 2, 17), 9, 24, ((0, 0), (2, 1))),
    ((1, 5), 2, (3, 1, 40), 16, 17, ((0, 0), (2, 2))),
    (7, 1, (3, 11, 9), 16, 17, ((3, 3), (3, 3))),
    (6, 1, (2, 13, 12), 9, 24, ((0, 0), (5, 5))),
    (11, 2, (3, 17, 14), 8, 20, ((5, 4), (0, 1))),
    ((1, 9), 1, (5, 2, 31), 24, 12, ((0, 0), (4, 4))),
    ((1, 16), 1, (3, 1, 16), 8, 9, ((0, 0), (15, 0))),
    ((1, 13), 2, (3, 1, 40), 16, 17, ((0, 0), (0, 0))),
]


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("case", STRIDED, ids=str)
def test_strides_are_phases(always, monkeypatch, name, case):
    monkeypatch.setattr(lower_winograd, "_saves", lambda *sizes: True)
    taps, stride, images, inside, outside, pairs = case
    ends = inside, outside
    arrays, attrs = pass_of(name, taps, images, ends, pairs, stride=stride)
    exact = OPS[name].meaning(*(a.astype("float64") for a in arrays), **attrs)
    program = program_of(OPS[name], arrays, attrs)
    plan = build(program)
    assert kinds(plan) & {
        "WinogradConv",
        "WinogradSpread",
        "WinogradGrads",
        "WinogradPoints",
    }
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    meant = PlanInterpreter(plan).run(data, {}, 1)["y"][0]
    assert error(meant, exact) < rounding(plan)
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    assert error(results[0][1], exact) < 4e-5
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("taps", [3, 5, (1, 5)])
def test_any_number_of_threads(always, name, taps):
    pairs = ((0 if taps == (1, 5) else 1,) * 2, (2, 1))
    arrays, attrs = pass_of(name, taps, (61, 13, 14), (24, 40), pairs)
    program = program_of(OPS[name], arrays, attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


def test_strided_views_need_no_copy(always):
    """Images that are a slice of larger ones are read where they are."""
    from ganglion.compiler.ir.graph import Graph, Input, Program

    arrays, attrs = pass_of("conv", 3, (3, 9, 10), (16, 16), ((1, 1), (0, 2)))
    large = np.full((4, 12, 11, 16), np.nan, "float32")
    large[1:, 2:11, 1:] = arrays[0]
    x = Input("x0", large.shape, large.dtype)
    w = Input("x1", arrays[1].shape, arrays[1].dtype)
    starts, stops = (1, 2, 1, 0), (4, 11, 11, 16)
    part = OPS["slice"](x, starts=starts, stops=stops, steps=(1, 1, 1, 1))
    graph = Graph.of("conv", [x, w], {"y": OPS["conv"](part, w, **attrs)})
    program = Program(graph, ("x0", "x1"), (), ("y",))
    exact = OPS["conv"].meaning(*(a.astype("float64") for a in arrays), **attrs)
    result = backend.compile(program).run({"x0": large, "x1": arrays[1]}, {}, 1)["y"]
    assert error(result[0], exact) < 4e-5
    assert "slice" not in str(build(program))


# Of a few noisy images, a rounding may turn which pixel of a pool is the largest: then
# single gradients go elsewhere (with direct convolutions, too, at other batch sizes).
@pytest.mark.parametrize(
    ("name", "tolerance"), [("mnist-cnn", 1e-4), ("cifar10-cam", 2e-2)]
)
def test_training_steps_against_the_reference(always, name, tolerance):
    program, data, state = step_of(name, rows=8, batch=8, shuffle=False)
    data = {key: data[key] for key in program.data}
    assert {"WinogradConv", "WinogradGrads"} <= kinds(build(program))
    expected, result = ({k: a.copy() for k, a in state.items()} for _ in range(2))
    losses = reference.compile(program).run(data, expected, 1)
    others = backend.compile(program).run(data, result, 1)
    for key, array in losses.items():
        np.testing.assert_allclose(others[key], array, rtol=1e-4)
    for key, array in expected.items():
        moved = np.linalg.norm(array.astype("float64") - state[key])
        off = np.linalg.norm(array.astype("float64") - result[key])
        assert off <= tolerance * moved + 1e-6, key


def test_precise_is_direct(always, choices):
    arrays, attrs = pass_of("conv", 3, (4, 8, 8), (16, 16), ((1, 1), (1, 1)))
    program = program_of(OPS["conv"], arrays, attrs)
    assert kinds(build(program)) == {"WinogradWeights", "WinogradConv"}
    config.set_precise(True)
    assert not kinds(build(program))
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    exact = OPS["conv"].meaning(*(a.astype("float64") for a in arrays), **attrs)
    result = backend.compile(program).run(data, {}, 1)["y"][0]
    assert error(result, exact) < 1e-6


def test_precise_by_environment(choices, monkeypatch):
    config._choices["precise"] = None
    monkeypatch.delenv("GANGLION_PRECISE", raising=False)
    assert not config.precise()
    monkeypatch.setenv("GANGLION_PRECISE", "1")
    assert config.precise()
    config.set_precise(False)
    assert not config.precise()


@pytest.mark.parametrize(
    "change",
    [
        {"strides": (2, 1)},
        {"dilation": (1, 2)},
        {"groups": 2},
        {"pairs": ((3, 3),) * 2},
    ],
    ids=str,
)
def test_other_convolutions_are_left_alone(always, change):
    rng = np.random.default_rng(0)
    groups = change.get("groups", 1)
    x = rng.standard_normal((2, 9, 9, 16)).astype("float32")
    w = rng.standard_normal((3, 3, 16 // groups, 16)).astype("float32")
    window = {
        "strides": (1, 1),
        "pairs": ((1, 1),) * 2,
        "dilation": (1, 1),
        "groups": 1,
    }
    attrs = window | change
    program = program_of(OPS["conv"], [x, w], attrs)
    exact = OPS["conv"].meaning(x.astype("float64"), w.astype("float64"), **attrs)
    result = backend.compile(program).run({"x0": x, "x1": w}, {}, 1)["y"][0]
    assert bool(kinds(build(program))) == ("pairs" in change)
    assert error(result, exact) < 4e-5


def test_a_gradient_with_more_tiles_is_the_adjoint(always):
    """12×12 pixels have 9 tiles, the 8×8 outputs that they give only 4."""
    small, attrs = pass_of("conv_transpose", 5, (16, 12, 12), (24, 48), ((0, 0),) * 2)
    plan = build(program_of(OPS["conv_transpose"], small, attrs))
    assert "WinogradSpread" in kinds(plan)
    same, attrs = pass_of("conv_transpose", 5, (16, 12, 12), (24, 48), ((2, 2),) * 2)
    plan = build(program_of(OPS["conv_transpose"], same, attrs))
    assert "WinogradConv" in kinds(plan)


def test_the_size_of_tiles_suits_the_images():
    """Where the last tile of a row is mostly empty, smaller tiles cost less."""

    def span(taps, size, channels=32):
        shape = (128, size, size, channels)
        span, _ = lower_winograd._best(channels, shape, (taps, taps)).span
        return span

    assert [span(3, size) for size in (4, 8, 16, 32)] == [6, 6, 6, 6]
    assert [span(3, size) for size in (5, 6, 12)] == [8, 8, 8]
    assert span(5, 2) == 6
    assert [span(5, size) for size in (4, 8, 12, 28)] == [8, 8, 8, 8]


@pytest.fixture
def blocked(monkeypatch):
    """Store no points for convolutions: multiply them block by block."""
    monkeypatch.setattr(lower_winograd, "STORED_POINT_COST", np.inf)


@pytest.mark.parametrize(("images", "pieces"), [(64, 32), (16, 8)])
def test_pieces_are_no_larger_than_blocks_of_whole_images(blocked, images, pieces):
    """Where a cache holds half of a piece, twice as many pieces cost no more."""
    case = pass_of("conv", 3, (images, 8, 8), (256, 256), ((1, 1),) * 2)
    plan = build(program_of(OPS["conv"], *case))
    (kernel,) = (k for k in plan.kernels if isinstance(k, lower_winograd.WinogradConv))
    assert kernel.tiling.pieces == pieces
    assert kernel.tiling.aligned


@pytest.fixture
def fused(monkeypatch):
    """Store no points: multiply tiles as soon as they are transformed."""
    monkeypatch.setattr(lower_winograd, "MAX_STORED", 0)


def grads_of(arrays, attrs):
    """Return the kernel that adds up the products of a gradient."""
    plan = build(program_of(OPS["conv_kernel"], arrays, attrs))
    (kernel,) = (k for k in plan.kernels if isinstance(k, lower_winograd.WinogradGrads))
    return kernel


@pytest.mark.parametrize(("channels", "groups"), [((64, 128), 1), ((128, 128), 2)])
def test_few_slices_are_cut_into_rows_and_groups(always, fused, channels, groups):
    """Few slices, since each has its own sums, still give twelve threads work."""
    case = pass_of("conv_kernel", 3, (64, 8, 8), channels, ((1, 1),) * 2)
    kernel = grads_of(*case)
    assert kernel.row_groups > 1
    assert kernel.groups == groups
    assert kernel.parallel >= 12


@pytest.mark.parametrize("span", lower_winograd.SPANS)
@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("channels", [(24, 40), (9, 64)])
def test_rows_of_places_that_are_pieces(
    always, fused, monkeypatch, span, taps, channels
):
    monkeypatch.setattr(lower_winograd, "SPANS", (span,))
    monkeypatch.setattr(lower_winograd, "MAX_SUMS", 1)
    arrays, attrs = pass_of("conv_kernel", taps, (23, 9, 10), channels, ((1, 2),) * 2)
    kernel = grads_of(arrays, attrs)
    assert kernel.row_groups == span // 2
    assert (kernel.groups > 1) == (channels[1] == 64)
    program = program_of(OPS["conv_kernel"], arrays, attrs)
    exact = OPS["conv_kernel"].meaning(*(a.astype("f8") for a in arrays), **attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    assert error(results[0][1], exact) < 4e-5
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


# Images that threads share evenly, that are prime, and with tiles that end outside.
STORED = [
    (3, 1, (64, 8, 8), (160, 200), ((1, 1), (1, 1))),
    (3, 1, (61, 5, 7), (128, 120), ((1, 1), (0, 2))),
    (4, 2, (16, 14, 10), (128, 136), ((1, 1), (1, 1))),
]


@pytest.mark.parametrize("case", STORED, ids=str)
def test_large_sums_are_products_by_point(always, monkeypatch, case):
    """Points of a few tiles are stored, and added up in the order of tiles, too."""
    taps, stride, images, ends, pairs = case
    arrays, attrs = pass_of("conv_kernel", taps, images, ends, pairs, stride=stride)
    program = program_of(OPS["conv_kernel"], arrays, attrs)
    assert kinds(build(program)) == {"WinogradPoints", "WinogradKernel"}
    exact = OPS["conv_kernel"].meaning(*(a.astype("f8") for a in arrays), **attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    meant = PlanInterpreter(build(program)).run(data, {}, 1)["y"][0]
    assert error(meant, exact) < 2e-5
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    assert error(results[0][1], exact) < 4e-5
    monkeypatch.setattr(lower_winograd, "MAX_STORED", 0)
    assert "WinogradGrads" in kinds(build(program))
    results.append(compiled(program, 2).run(data, {}, 2)["y"])
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


def both_gradients(case, dy_of=lambda y, dy: dy):
    """Return a program of a convolution and of a gradient that reads its images."""
    taps, stride, images, ends, pairs = case
    (x, w), attrs = pass_of("conv", taps, images, ends, pairs, stride=stride)
    (_, dy), _ = pass_of("conv_kernel", taps, images, ends, pairs, stride=stride)
    arrays = {"x": x, "w": w, "dy": dy}
    inputs = {name: Input(name, a.shape, a.dtype) for name, a in arrays.items()}
    y = OPS["conv"](inputs["x"], inputs["w"], **attrs)
    dw = OPS["conv_kernel"](
        inputs["x"], dy_of(y, inputs["dy"]), kernel=(taps, taps), **attrs
    )
    graph = Graph.of("both", list(inputs.values()), {"y": y, "dw": dw})
    return Program(graph, tuple(inputs), (), ("y", "dw")), arrays


def storing(plan):
    """Return whether a convolution of a plan stores its points."""
    convs = [k for k in plan.kernels if isinstance(k, lower_winograd.WinogradConv)]
    return any(conv.stored for conv in convs)


@pytest.mark.parametrize("case", STORED, ids=str)
@pytest.mark.parametrize("by_point", [False, True])
def test_points_of_the_same_images_are_stored_once(always, monkeypatch, by_point, case):
    """By a convolution that multiplies them block by block, or stores them, too."""
    cost = 0 if by_point else np.inf
    monkeypatch.setattr(lower_winograd, "STORED_POINT_COST", cost)
    program, data = both_gradients(case)
    plan = build(program)
    transforms = [k for k in plan.kernels if isinstance(k, WinogradPoints)]
    assert len(transforms) == (2 if by_point else 1)
    assert storing(plan) is not by_point
    meant = PlanInterpreter(plan).run(data, {}, 1)
    results = [compiled(program, n).run(data, {}, 2) for n in (1, 2, 3)]
    others = [p for p in pipeline.PIPELINE.passes if p.name != "winograd-points"]
    without = replace(pipeline.PIPELINE, passes=tuple(others))
    monkeypatch.setattr(pipeline, "PIPELINE", without)
    plan = build(program)
    transforms = [k for k in plan.kernels if isinstance(k, WinogradPoints)]
    assert len(transforms) == (3 if by_point else 2)
    assert not storing(plan)
    apart = compiled(program, 2).run(data, {}, 2)
    for name in ("y", "dw"):
        assert error(meant[name][0], apart[name][0]) < 4e-5
        for result in results:
            np.testing.assert_array_equal(result[name], apart[name])


def test_points_are_not_kept_for_a_gradient_that_comes_later(always):
    """The gradient is made of what the convolution computes, as in a backward pass."""
    program, _ = both_gradients(STORED[0], lambda y, dy: OPS["multiply"](y, dy))
    assert not storing(build(program))


# Output channels in panels of one width, of two, and narrower than a vector.
BY_POINT = [
    (3, (64, 8, 8), (160, 192), ((1, 1), (1, 1))),
    (3, (61, 5, 7), (128, 80), ((1, 1), (0, 2))),
    (5, (9, 12, 10), (130, 135), ((2, 2), (2, 2))),
    (3, (7, 13, 11), (17, 5), ((1, 1), (1, 1))),
]


@pytest.mark.parametrize("name", ["conv", "conv_transpose"])
@pytest.mark.parametrize("case", BY_POINT, ids=str)
def test_many_weights_are_read_once(always, monkeypatch, name, case):
    """The sums are those of blocks of tiles: each point's, in order of the channels."""
    monkeypatch.setattr(lower_winograd, "MOST_CACHED_WEIGHTS", 0)
    monkeypatch.setattr(lower_winograd, "STORED_POINT_COST", 0)
    taps, images, ends, pairs = case
    arrays, attrs = pass_of(name, taps, images, ends, pairs)
    program = program_of(OPS[name], arrays, attrs)
    plan = build(program)
    assert {"WinogradPoints", "WinogradOutputs"} <= kinds(plan)
    exact = OPS[name].meaning(*(a.astype("f8") for a in arrays), **attrs)
    data = {f"x{i}": a for i, a in enumerate(arrays)}
    meant = PlanInterpreter(plan).run(data, {}, 1)["y"][0]
    assert error(meant, exact) < 2e-5
    results = [compiled(program, n).run(data, {}, 2)["y"] for n in (1, 2, 3)]
    assert error(results[0][1], exact) < 4e-5
    monkeypatch.setattr(lower_winograd, "STORED_POINT_COST", np.inf)
    assert "WinogradConv" in kinds(build(program))
    results.append(compiled(program, 2).run(data, {}, 2)["y"])
    for result in results:
        np.testing.assert_array_equal(result, results[0][:1].repeat(2, 0))


def test_points_are_stored_where_blocks_would_read_weights_more_often(monkeypatch):
    def stores(images, size, channels):
        x = (images, size, size, channels)
        arrays, attrs = pass_of("conv", 3, x[:3], (channels, channels), ((1, 1),) * 2)
        return "WinogradOutputs" in kinds(build(program_of(OPS["conv"], arrays, attrs)))

    assert stores(128, 8, 128)
    assert not stores(128, 32, 32)  # these weights stay in the cache
    assert not stores(128, 64, 64)
    monkeypatch.setattr(pipeline, "has_fast_third_cache", lambda: True)
    assert not stores(128, 8, 128)


def test_more_tiles_are_not_stored():
    arrays, attrs = pass_of("conv_kernel", 3, (64, 32, 32), (64, 64), ((1, 1),) * 2)
    plan = build(program_of(OPS["conv_kernel"], arrays, attrs))
    assert kinds(plan) == {"WinogradGrads", "WinogradKernel"}


@pytest.mark.parametrize("name", PASSES)
def test_where_it_is_worth_it(name):
    """Tiles that are mostly empty, few channels or few tiles are added up plainly."""

    def worth(images, size, ends, taps=3):
        shapes = [(images, size, size, channels) for channels in ends]
        return lower_winograd.worth(name, (taps, taps), (1, 1), *shapes)

    assert worth(128, 32, (32, 32))
    assert worth(128, 8, (128, 128))
    assert worth(128, 8, (24, 48), taps=5)
    assert not worth(128, 32, (3, 32))
    assert not worth(128, 1, (64, 64))
    assert not worth(128, 2, (64, 64))
    assert not worth(1, 8, (64, 64))


def test_precise_is_part_of_what_a_step_is_known_by(choices):
    from ganglion import recipes
    from ganglion.training.data_adapters import Table

    recipe = recipes.get("mnist-mlp")
    table = Table(np.zeros((4, *recipe.input_shape), "uint8"), np.zeros(4, "int32"))
    runner = recipes.build(recipe)._step_cache
    signature = table.signature(4, 4, False)
    _, first = runner.step("predict", table, signature)
    config.set_precise(not config.precise())
    _, second = runner.step("predict", table, signature)
    assert first is not second


def test_float64_is_never_transformed(always):
    arrays, attrs = pass_of("conv", 3, (4, 8, 8), (16, 16), ((1, 1), (1, 1)))
    wide = [array.astype("float64") for array in arrays]
    assert not kinds(build(program_of(OPS["conv"], wide, attrs)))


def test_more_channels_are_no_more_text(always):
    """Panels alike, and vectors of weights, are loops: LLVM compiles each once."""

    def lines_of(outside):
        arrays, attrs = pass_of("conv", 3, (8, 8, 8), (16, outside), ((1, 1), (1, 1)))
        plan = build(program_of(OPS["conv"], arrays, attrs))
        kernels = [k for k in plan.kernels if type(k).__name__.startswith("Winograd")]
        texts = [emit_form(form_of(kernel))[1] for kernel in kernels]
        return [text.count("\n") for text in texts]

    few, many = lines_of(64), lines_of(128)
    assert len(few) == 2
    assert many == few
