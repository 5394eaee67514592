"""The CPU compiler's functions: how exact, their edges, the same bits in every lane.

While compiled code runs, processors take numbers below the normal range for zero: an
argument of that size may count as itself or as zero, and so may a result.
"""

import math

import numpy as np
import pytest

from ganglion.compiler.cpu import emit
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.shaping import fill
from ganglion.compiler.ir.table import OPS

pytest.importorskip("llvmlite")
from ganglion.compiler.cpu import backend

ALLOWED = 2.0  # units of the last place; measured maxima stand in `functions`
TINY = float(np.finfo(np.float32).tiny)  # the smallest number of the normal range


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


EXACT = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sin": lambda x: np.sin(np.where(np.isinf(x), np.nan, x)),
    "cos": lambda x: np.cos(np.where(np.isinf(x), np.nan, x)),
}
_EDGES = [
    *(0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1.5, -7),
    *(1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, -3.4028235e38),
    *(88.72283, 88.72284, -87.33654, -103.27893, -103.97208, -104.5, -17.4, 9.02),
    *(0.625, 0.9277344, 3.92, -1 + 2**-24, -1.0000001, 1 + 2**-23, 1 - 2**-24),
    *(2**23 + 1, 2**24, 2**24 + 2, -(2**23) - 1, 2**17, 131072.02, 1e30, -150.5),
]
EDGES = np.array(_EDGES, np.float32)


def patterns(count, seed=0):
    """Draw numbers evenly over all patterns of bits: every exponent, both signs."""
    step = 2**32 // count
    starts = np.arange(count, dtype=np.uint64) * step
    drawn = np.random.default_rng(seed).integers(0, step, count, np.uint64)
    return (starts + drawn).astype(np.uint32).view(np.float32)


def everyday(count, seed=1):
    """Draw numbers of the sizes that models compute with, and some around one."""
    rng = np.random.default_rng(seed)
    parts = [rng.uniform(-size, size, count) for size in (1, 10, 100)]
    parts.append(1 + rng.uniform(-1e-3, 1e-3, count))
    return np.concatenate(parts).astype(np.float32)


def compiled(build_output, *arrays):
    """Return a function of arrays like these, compiled from a graph."""
    inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    graph = Graph.of("f", inputs, {"y": build_output(*inputs)})
    names = tuple(x.name for x in inputs)
    program = backend.compile(Program(graph, names, (), ("y",)))

    def call(*arrays):
        return program.run(dict(zip(names, arrays, strict=True)), {}, 1)["y"][0]

    return call


def run(name, *arrays):
    return compiled(OPS[name], *arrays)(*arrays)


def flushed(x):
    """Return numbers with zeros, of the same sign, for those below the normal range."""
    return np.where(np.abs(x) < TINY, np.copysign(0, x), x).astype(x.dtype)


def exact_results(function, *arrays):
    """Return float64 results, of tiny arguments as they are, and taken for zeros."""
    with np.errstate(all="ignore"):
        return [
            function(*(taken(a).astype(np.float64) for a in arrays))
            for taken in (lambda a: a, flushed)
        ]


def error_of(ours, function, *arrays):
    """Return the distance to the nearer of the exact results, infinite from NaN."""
    exact = exact_results(function, *arrays)
    return np.min(np.nan_to_num([ulps(ours, each) for each in exact], nan=np.inf), 0)


def ulps(ours, exact):
    """Return the distance to a float64 number in float32's last place there.

    Zero is right for what may be rounded to a number below the normal range.
    """
    may_be_zero = np.abs(exact) < TINY * (1 + ALLOWED * 2.0**-23)
    exact = np.where(may_be_zero & (ours == 0), 0.0, exact)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(exact)))
        exponent = np.where(np.isfinite(exponent), np.maximum(exponent, -126), -126)
        distance = np.abs(ours.astype(np.float64) - exact) / np.exp2(exponent - 23)
        rounded = exact.astype(np.float32)
    settled = (ours == rounded) | (np.isnan(ours) & np.isnan(rounded))
    return np.where(settled & ~np.isfinite(distance), 0, distance)


def assert_same_numbers(ours, *possible):
    """Compare each number with those that it may be, tiny ones as zeros, with signs."""
    ours, possible = flushed(ours), [flushed(expected) for expected in possible]
    same = [
        (np.isnan(ours) & np.isnan(expected))
        | (
            (ours == expected)
            & ((ours != 0) | (np.signbit(ours) == np.signbit(expected)))
        )
        for expected in possible
    ]
    wrong = ~np.any(same, 0)
    assert not wrong.any(), (ours[wrong], [expected[wrong] for expected in possible])


@pytest.mark.parametrize("name", EXACT)
def test_functions_are_exact_to_two_places(name):
    x = np.concatenate([patterns(2**20), everyday(2**16), EDGES])
    error = error_of(run(name, x), EXACT[name], x)
    worst = int(np.argmax(error))
    print(f"{name}: {error[worst]:.2f} at {x[worst]!r}")
    assert error[worst] <= ALLOWED, f"at {x[worst]!r}"


@pytest.mark.parametrize("name", EXACT)
def test_edges_are_numpys(name):
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45], np.float32)
    special = np.concatenate([special, [np.float32(-1), np.float32(-2)]])
    possible = [a.astype(np.float32) for a in exact_results(EXACT[name], special)]
    settled = np.all([~np.isfinite(a) | (np.abs(a) < TINY) for a in possible], 0)
    ours = run(name, special)
    assert_same_numbers(ours[settled], *(a[settled] for a in possible))


def test_powers_are_exact_to_two_places():
    rng = np.random.default_rng(3)
    x = np.concatenate([patterns(2**18), np.abs(everyday(2**16)), everyday(2**16)])
    y = np.concatenate([rng.permutation(patterns(2**18)), everyday(2**16, 5)])
    y = np.concatenate([y, np.round(everyday(2**16, 6))])
    bases, exponents = (a.ravel() for a in np.meshgrid(EDGES, EDGES))
    x, y = np.concatenate([x, bases]), np.concatenate([y, exponents])
    error = error_of(run("power", x, y), np.power, x, y)
    worst = int(np.argmax(error))
    print(f"power: {error[worst]:.2f}")
    assert error[worst] <= ALLOWED, f"at {x[worst]!r} ** {y[worst]!r}"


def test_corners_of_powers_are_numpys():
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(EDGES, EDGES))
    exact = exact_results(np.power, x, y)
    with np.errstate(all="ignore"):
        possible = [a.astype(np.float32) for a in exact]
    ours = run("power", x, y)
    pairs = zip(possible, exact, strict=True)
    settled = [~np.isfinite(a) | (a == 0) | (np.abs(e) == 1) for a, e in pairs]
    settled = np.all(settled, 0)
    assert settled.sum() > 1000
    assert_same_numbers(ours[settled], *(a[settled] for a in possible))


@pytest.mark.parametrize("exponent", [1, 2, 3, -1, 0.5, -0.5, 0, 2.5])
def test_a_known_exponent_changes_no_meaning(exponent):
    x = np.concatenate([patterns(2**14), everyday(2**12), EDGES])
    ours = compiled(lambda a: OPS["power"](a, fill(exponent, a)), x)(x)

    def power(base):
        # An array of exponents: for a single 0.5 NumPy takes roots, of -inf too.
        return np.power(base, np.full(base.shape, float(exponent)))

    assert np.max(error_of(ours, power, x)) <= ALLOWED
    with np.errstate(all="ignore"):
        possible = [a.astype(np.float32) for a in exact_results(power, x)]
    settled = np.all([~np.isfinite(a) | (a == 0) for a in possible], 0)
    assert_same_numbers(ours[settled], *(a[settled] for a in possible))


FUNCTIONS = [*EXACT, "power"]


def inputs_of(name, x):
    return (x, np.roll(x, 5)) if name == "power" else (x,)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_the_same_in_a_vector_and_in_the_rest(name):
    """Fifteen elements have no room for a vector: they are computed one by one."""
    x = np.concatenate([patterns(2900), everyday(700), EDGES])
    x = x[: len(x) // 240 * 240]
    arrays = inputs_of(name, x)
    vectors = compiled(OPS[name], *arrays)(*arrays)
    single = compiled(OPS[name], *(a[:15] for a in arrays))
    rows = [np.reshape(a, (-1, 15)) for a in arrays]
    parts = [single(*row) for row in zip(*rows, strict=True)]
    both = np.concatenate(parts).view(np.uint32), vectors.view(np.uint32)
    number = ~np.isnan(vectors)
    np.testing.assert_array_equal(both[0][number], both[1][number])
    assert np.isnan(np.concatenate(parts)[~number]).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_the_same_on_lesser_machines(name, monkeypatch):
    arrays = inputs_of(name, np.concatenate([patterns(2**12), everyday(700), EDGES]))
    here = run(name, *arrays)
    if not runs_avx2():
        pytest.skip("no AVX2 here")
    monkeypatch.setenv("GANGLION_CPU", "x86-64-v3")
    np.testing.assert_array_equal(run(name, *arrays), here)


def runs_avx2():
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return bool(features.get("avx2")) and bool(features.get("fma"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_lane_leaves_the_vector(name):
    """Only sines of huge angles ask the C library, in a loop that seldom runs."""
    arrays = inputs_of(name, np.ones(64, np.float32))
    inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    graph = Graph.of("f", inputs, {"y": OPS[name](*inputs)})
    names = tuple(x.name for x in inputs)
    modules, _ = emit.emit_plan(build(Program(graph, names, (), ("y",))))
    text = "\n".join(modules.values())
    calls = text.count("call float @") - text.count("call float @llvm.")
    assert calls <= (2 if name in ("sin", "cos") else 0)


NUMBERS = np.array([np.nan, -np.inf, np.inf, -2, -1e-45, 1e-45, 0.5, 1, 3], np.float32)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_two(name):
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(NUMBERS, NUMBERS))
    with np.errstate(invalid="ignore"):
        expected = getattr(np, name)(flushed(x), flushed(y))
    np.testing.assert_array_equal(flushed(run(name, x, y)), expected)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("bound", [0.0, 1.0, -np.inf, np.nan])
@pytest.mark.parametrize("first", [True, False])
def test_extremes_with_a_constant(name, bound, first):
    x = np.resize(NUMBERS, 40)

    def output(a):
        return OPS[name](*((fill(bound, a), a) if first else (a, fill(bound, a))))

    with np.errstate(invalid="ignore"):
        expected = getattr(np, name)(flushed(x), np.float32(bound))
    np.testing.assert_array_equal(flushed(compiled(output, x)(x)), expected)


@pytest.mark.parametrize("divisor", [2, -0.25, 2.0**100, 3, 2.0**-120])
def test_quotients_by_constants_are_exact(divisor):
    x = np.concatenate([patterns(2**12), EDGES])
    ours = compiled(lambda a: OPS["divide"](a, fill(divisor, a)), x)(x)
    with np.errstate(all="ignore"):
        assert_same_numbers(ours, flushed(x) / np.float32(divisor))
