"""Linear algebra, Fourier transforms, complex numbers and CTC: host calls."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from op_checks import slopes

from ganglion import (
    Input,
    KerasTensor,
    config,
    layers,
    losses,
    models,
    ops,
    tree,
)
from ganglion.compiler.ir import shaping
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Constant, evaluate
from ganglion.compiler.ir.graph import Input as Source

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


SQUARE = normal(2, 3, 3) + 2 * np.eye(3, dtype="float32")
DEFINITE = SQUARE @ SQUARE.swapaxes(-1, -2)
FACTOR = np.linalg.cholesky(DEFINITE)
TALL, WIDE = normal(2, 5, 3), normal(2, 3, 5)
PAIR = (normal(2, 4, 8), normal(2, 4, 8))
WAVE = normal(2, 60)
LABELS = np.array([[1, 2, 2, 0], [3, 0, 0, 0]], "int32")
LENGTHS = np.array([3, 1], "int32"), np.array([7, 5], "int32")
SCORES = normal(2, 7, 5)
COMPLEX = (PAIR[0] + 1j * PAIR[1]).astype("complex64")


class Case(NamedTuple):
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def case(name: str, *args: Any, **kwargs: Any) -> Case:
    return Case(name, args, kwargs)


REAL = [
    case("cholesky", DEFINITE),
    case("cholesky", DEFINITE, upper=True),
    case("cholesky_inverse", FACTOR),
    case("cholesky_inverse", FACTOR.swapaxes(-1, -2), upper=True),
    case("det", SQUARE),
    case("inv", SQUARE),
    case("logdet", DEFINITE),
    case("slogdet", SQUARE),
    case("solve", SQUARE, normal(2, 3, 4)),
    case("solve", SQUARE, normal(2, 3)),
    case("solve_triangular", SQUARE, normal(2, 3, 2)),
    case("solve_triangular", SQUARE, normal(2, 3), lower=True),
    case("lstsq", TALL[0], normal(5)),
    case("lstsq", WIDE[0], normal(3, 2)),
    case("pinv", TALL),
    case("svd", TALL, compute_uv=False),
    case("norm", TALL, ord="nuc", axis=(1, 2)),
    case("norm", TALL, ord=2, axis=(1, 2), keepdims=True),
    case("fft", PAIR),
    case("fft2", PAIR),
    case("ifft2", PAIR),
    case("rfft", PAIR[0]),
    case("rfft", PAIR[0], fft_length=5),
    case("rfft", PAIR[0], fft_length=11),
    case("irfft", PAIR),
    case("irfft", PAIR, fft_length=7),
    case("irfft", PAIR, fft_length=20),
    case("stft", WAVE, 10, 5, 16),
    case("stft", WAVE, 10, 5, 16, window=None, center=False),
    case("extract_sequences", WAVE, 10, 3),
    case("ctc_loss", LABELS, SCORES, *LENGTHS),
    case("ctc_loss", LABELS, SCORES, *LENGTHS, mask_index=4),
    case("ctc_loss", np.array([[1, 0, 2, 0], [0, 0, 3, 0]]), SCORES, *LENGTHS),
]
# These have no gradient, or results that are not unique.
OTHERS = [
    case("matrix_rank", TALL),
    case("matrix_rank", np.ones((2, 3, 3), "float32")),
    case("ctc_decode", SCORES, LENGTHS[1]),
    case("ctc_decode", SCORES, LENGTHS[1], merge_repeated=False),
    case(
        "ctc_decode",
        SCORES[:, :4],
        np.array([4, 3], "int32"),
        strategy="beam_search",
        beam_width=400,  # every label there is: what is left out is up to the search
        top_paths=3,
    ),
    case("view_as_complex", np.stack(PAIR, -1)),
    case("view_as_real", COMPLEX),
    case("isreal", np.array([1 + 1j, 2, 3j], "complex64")),
    case("view", np.arange(8, dtype="float16").reshape(2, 4), dtype="int16"),
    case("view", np.arange(8, dtype="int16").reshape(2, 4), dtype="float16"),
    case("real", COMPLEX),
    case("imag", COMPLEX),
    case("imag", PAIR[0]),
    case("power", COMPLEX, COMPLEX),
    case("conj", COMPLEX),
    case("angle", COMPLEX),
    case("angle", PAIR[0]),
    case("polar", np.abs(PAIR[0]), PAIR[1]),
]


def title(entry: Case) -> str:
    shapes = [str(getattr(arg, "shape", arg)) for arg in tree.flatten(entry.args)]
    options = [f"{key}={value}" for key, value in entry.kwargs.items()]
    return f"{entry.name}({', '.join([*shapes, *options])})"


def ours(entry: Case) -> list[np.ndarray]:
    function = getattr(ops, entry.name)
    return tree.flatten(function(*entry.args, **entry.kwargs))


@pytest.mark.rivals
@pytest.mark.parametrize("entry", [*REAL, *OTHERS], ids=title)
def test_keras_gives_the_same(keras, entry):
    function = getattr(keras.ops, entry.name)
    args = tree.map_leaves(
        lambda x: keras.ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x,
        entry.args,
    )
    theirs = tree.flatten(function(*args, **entry.kwargs))
    for got, right in zip(ours(entry), theirs, strict=True):
        right = keras.ops.convert_to_numpy(right)
        assert (got.shape, got.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("entry", REAL, ids=title)
def test_gradients_are_slopes(entry):
    leaves = tree.flatten(entry.args)
    drawn = [
        x.astype("float64") if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
        for x in leaves
    ]
    sources = [
        Source(f"x{i}", x.shape, x.dtype)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else x
        for i, x in enumerate(drawn)
    ]
    results = tree.flatten(
        getattr(ops, entry.name)(*tree.pack(entry.args, sources), **entry.kwargs)
    )
    weights = np.random.default_rng(7)
    total: Any = 0.0
    for result in results:
        if result.dtype.kind == "f":
            weighted = result * Constant(weights.uniform(-1, 1, result.shape))
            total = total + shaping.sum_(weighted, axes=tuple(range(weighted.ndim)))
    known = {
        source: x
        for source, x in zip(sources, drawn, strict=True)
        if isinstance(source, Source)
    }
    found = gradients(total, known)
    for source, slope in found.items():
        (value,) = evaluate([slope], known)
        right = slopes(total, known, source)
        if entry.name == "cholesky":  # which only reads one half: ours is of both
            value, right = (
                value + value.swapaxes(-1, -2),
                right + right.swapaxes(-1, -2),
            )
        np.testing.assert_allclose(value, right, rtol=2e-5, atol=2e-5)
    assert found


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 3), (2, 3, 5)])
def test_decompositions_give_their_matrix_back(shape):
    x = normal(*shape)
    q, r = ops.qr(x)
    np.testing.assert_allclose(q @ r, x, atol=1e-5)
    q, r = ops.qr(x, mode="complete")
    assert q.shape[-1] == shape[-2]
    np.testing.assert_allclose(q @ r, x, atol=1e-5)
    u, s, vt = ops.svd(x, full_matrices=False)
    np.testing.assert_allclose((u * s[:, None]) @ vt, x, atol=1e-5)
    assert [part.shape[-1] for part in ops.svd(x)] == [
        shape[1],
        min(shape[1:]),
        shape[2],
    ]
    lu, pivots = ops.lu_factor(x)
    assert (lu.shape, pivots.shape) == (x.shape, (2, min(shape[1:])))


def test_eigenvectors():
    symmetric = DEFINITE
    values, vectors = ops.eigh(symmetric)
    np.testing.assert_allclose(
        symmetric @ vectors, vectors * values[:, None], rtol=1e-4, atol=1e-4
    )
    values, vectors = ops.eig(SQUARE)
    assert values.dtype == vectors.dtype == np.complex64
    np.testing.assert_allclose(SQUARE @ vectors, vectors * values[:, None], atol=1e-4)


@pytest.mark.parametrize("name", ["qr", "svd", "eigh"])
def test_gradients_of_decompositions_are_slopes(name):
    """Signs of vectors are arbitrary: what is differentiated does not show them."""
    x = (DEFINITE if name == "eigh" else TALL).astype("float64")
    source = Source("x", x.shape, "float64")
    moved = source + ops.swapaxes(source, -1, -2) if name == "eigh" else source
    if name == "svd":
        u, s, vt = ops.svd(moved, full_matrices=False)
        product = ops.matmul(u * ops.expand_dims(s * s, -2), vt)
    elif name == "qr":
        q, r = ops.qr(moved)
        product = ops.matmul(q * q, r * r)
    else:
        values, vectors = ops.eigh(moved)
        product = ops.matmul(vectors * ops.expand_dims(values * values, -2), vectors**2)
    weights = Constant(np.random.default_rng(1).uniform(-1, 1, product.shape))
    total = shaping.sum_(product * weights, axes=(0, 1, 2))
    (slope,) = evaluate([gradients(total, [source])[source]], {source: x})
    right = slopes(total, {source: x}, source)
    np.testing.assert_allclose(slope, right, rtol=1e-4, atol=1e-4)


def test_what_has_no_gradient_says_so():
    source = Source("x", (3, 5), "float64")
    for call in (lambda: ops.qr(source)[0], lambda: ops.svd(source)[0]):
        with pytest.raises(ValueError, match="has no gradient"):
            gradients(shaping.sum_(call(), axes=(0, 1)), [source])


def test_pieces_are_put_together_again():
    for options in ({}, {"window": "hamming"}):
        pieces = ops.stft(WAVE, 16, 4, 16, **options)
        again = ops.istft(pieces, 16, 4, 16, length=60, **options)
        np.testing.assert_allclose(again, WAVE, atol=1e-5)


def test_pieces_without_a_window_are_added_as_they_are():
    pieces = ops.stft(WAVE, 16, 4, 16, window=None)
    again = ops.istft(pieces, 16, 4, 16, length=60, window=None)
    np.testing.assert_allclose(again[16:40], 4 * WAVE[16:40], atol=1e-5)


def test_pairs_become_complex_numbers_of_64_bits():
    for kind in ("float16", "float32", "float64"):
        numbers = ops.view_as_complex(np.array([[1, 2]], kind))
        assert numbers.dtype == "complex64"
        np.testing.assert_array_equal(numbers, [1 + 2j])


def test_shapes_of_keras_tensors():
    x = Input((5, 3))
    assert [part.shape for part in ops.svd(x)] == [
        (None, 5, 5),
        (None, 3),
        (None, 3, 3),
    ]
    assert ops.det(Input((3, 3))).shape == (None,)
    real, imaginary = ops.stft(Input((None,)), 10, 5, 16)
    assert real.shape == imaginary.shape == (None, None, 9)
    assert ops.irfft((Input((9,)), Input((9,)))).shape == (None, 16)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_they_run_within_a_training_step(backend):
    config.set_backend(backend)
    try:
        inputs = Input((4, 4))
        x = layers.Dense(4)(inputs)
        product = ops.matmul(x, ops.transpose(x, (0, 2, 1)))
        definite = product + 3.0 * np.eye(4, dtype="float32")
        solved = ops.solve(definite, inputs)
        model = models.Model(inputs, ops.logdet(definite) + ops.sum(solved, (1, 2)))
        model.compile("sgd", losses.MeanSquaredError())
        data = normal(16, 4, 4), normal(16)
        history = model.fit(*data, epochs=3, verbose=0, shuffle=False).history["loss"]
        assert history[-1] < history[0]
    finally:
        config.set_backend("numpy")


def test_arithmetic_of_complex_numbers_is_not_compiled():
    pairs = Input((3, 2))
    numbers = ops.view_as_complex(pairs)
    config.set_backend("cpu")
    try:
        parts = models.Model(pairs, ops.real(ops.conj(numbers)))
        np.testing.assert_array_equal(parts.predict(np.ones((2, 3, 2)), verbose=0), 1)
        product = models.Model(pairs, ops.real(numbers * numbers))
        with pytest.raises(ValueError, match="complex numbers are not compiled"):
            product.predict(np.ones((2, 3, 2)), verbose=0)
    finally:
        config.set_backend("numpy")


def test_jvp_is_the_slope_along_a_direction():
    x, along = normal(3), normal(3)
    value, slope = ops.jvp(lambda v: ops.sin(v) * ops.sum(v), (x,), (along,))
    np.testing.assert_allclose(value, np.sin(x) * x.sum(), rtol=1e-5)
    right = np.cos(x) * along * x.sum() + np.sin(x) * along.sum()
    np.testing.assert_allclose(slope, right, rtol=1e-4)
    _, _, extra = ops.jvp(lambda v: (v * v, 7), (x,), (along,), has_aux=True)
    assert extra == 7


def test_jvp_on_keras_tensors_has_the_shapes_of_its_function():
    x, along = KerasTensor((None, 3)), KerasTensor((None, 3))

    def squares(v):
        return v * v, ops.mean(v, axis=-1, keepdims=True)

    value, slope, mean = ops.jvp(squares, (x,), (along,), has_aux=True)
    assert (value.shape, slope.shape, mean.shape) == ((None, 3), (None, 3), (None, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.inv(np.ones(3)), "rank >= 2"),
        (lambda: ops.det(np.ones((2, 3))), "square"),
        (lambda: ops.inv(np.zeros((2, 2))), "singular"),
        (lambda: ops.cholesky(-np.eye(2)), "positive definite"),
        (lambda: ops.solve(np.eye(2), np.ones(3)), "incompatible shapes"),
        (lambda: ops.qr(np.eye(2), mode="raw"), "mode"),
        (lambda: ops.fft(np.ones(3)), "tuple of two tensors"),
        (lambda: ops.fft((np.ones(3), np.ones(4))), "same shape"),
        (lambda: ops.stft(normal(20), 10, 5, 8), "fft_length"),
        (lambda: ops.stft(normal(20), 8, 4, 8, window="box"), "window"),
        (lambda: ops.ctc_decode(SCORES, LENGTHS[1], strategy="best"), "strategy"),
        (lambda: ops.view_as_complex(np.ones((2, 3))), "size 2"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
