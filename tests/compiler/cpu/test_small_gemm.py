"""Small products by one text: the bits of tiles that are made for a shape."""

import math
from dataclasses import replace

import pytest
from cpu_checks import arrays_of, check, compiled, pure, ran, same

from ganglion.compiler.cpu.emit import form_of
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.products import small_gemm
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.contraction import conv, matmul
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import exp, maximum, subtract
from ganglion.compiler.ir.shaping import fill, transpose
from ganglion.compiler.plan.kernels import Contract


def product(rows, inner, columns, dtype="float32", *, turned=False, batch=()):
    """Return a product of matrices; data as it is given would have its zeros listed."""
    shape = (*batch, inner, rows) if turned else (*batch, rows, inner)
    x, w = Input("x", shape, dtype), Input("w", (*batch, inner, columns), dtype)
    left = transpose(exp(x), axes=(1, 0)) if turned else exp(x)
    return pure(Graph.of("product", [x, w], {"y": matmul(left, w)}))


def convolution(dtype="float32"):
    x, w = Input("x", (3, 9, 8, 4), dtype), Input("w", (4, 2, 4, 21), dtype)
    window = {"strides": (2, 1), "dilation": (1, 1), "pairs": ((0, 0),) * 2}
    y = conv(exp(x), w, **window, groups=1)
    return pure(Graph.of("conv", [x, w], {"y": y}))


def products(program):
    return [k for k in build(program).kernels if isinstance(k, Contract)]


SHAPES = [(1, 4, 1), (3, 1, 40), (8, 9, 16), (15, 33, 47), (33, 70, 100), (70, 21, 7)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_products_have_the_same_bits(monkeypatch, shape, turned, dtype):
    program = product(*shape, dtype, turned=turned)
    arrays = arrays_of(program)
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
    by_one_text = [ran(compiled(program, n), arrays, {}, 1) for n in (1, 3)]
    monkeypatch.setattr(
        small_gemm, "CPU", replace(CPU, small_product=0, plain_product=0)
    )
    for result in by_one_text:
        same(result, ran(compiled(program, 1), arrays, {}, 1))


WIDE = [(33, 70, 100), (70, 21, 40), (130, 300, 129)]  # and rows enough to copy columns


@pytest.mark.usefixtures("copied_columns")
@pytest.mark.parametrize("shape", WIDE)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_copied_columns_change_no_bit(monkeypatch, shape, turned, dtype):
    program = product(*shape, dtype, turned=turned)
    arrays = arrays_of(program)
    (kernel,) = products(program)
    assert small_gemm.kind_of(kernel)[0].copied
    copied = [ran(compiled(program, n), arrays, {}, 1) for n in (1, 3)]
    monkeypatch.setattr(small_gemm, "gains_from_copies", lambda: False)
    for result in copied:
        same(result, ran(compiled(program, 1), arrays, {}, 1))


@pytest.mark.parametrize(
    "program",
    [product(9, 20, 35, batch=(5,)), product(9, 20, 35, batch=(3, 2)), convolution()],
    ids=["batch", "two axes", "convolution"],
)
def test_further_axes(monkeypatch, program):
    arrays = arrays_of(program)
    assert all(small_gemm.is_small(kernel) for kernel in products(program))
    result = ran(compiled(program, 2), arrays, {}, 1)
    monkeypatch.setattr(
        small_gemm, "CPU", replace(CPU, small_product=0, plain_product=0)
    )
    same(result, ran(compiled(program, 1), arrays, {}, 1))


def row_product(inner, columns, dtype, activation):
    x, w = Input("x", (1, inner), dtype), Input("w", (inner, columns), dtype)
    return pure(Graph.of("row", [x, w], {"y": matmul(activation(exp(x)), w)}))


def rectified(x):
    """Return a value of which a third is zero."""
    return maximum(subtract(x, fill(0.65, x)), fill(0, x))


@pytest.mark.parametrize("activation", [exp, rectified])
@pytest.mark.parametrize("inner", [256, 272, 380])
@pytest.mark.parametrize("columns", [256, 300, 1043])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_stream_their_matrix_with_the_bits_of_tiles(
    monkeypatch, inner, columns, dtype, activation
):
    program = row_product(inner, columns, dtype, activation)
    arrays = arrays_of(program)
    (kernel,) = products(program)
    assert small_gemm.kind_of(kernel)[0].streams
    is_listed = activation is rectified and inner * columns >= CPU.listed_product
    assert (kernel.nonzeros is not None) is is_listed
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
    streamed = [ran(compiled(program, n), arrays, {}, 1) for n in (1, 3)]
    tuning = replace(small_gemm.CPU, streamed_columns=10**6)
    monkeypatch.setattr(small_gemm, "CPU", tuning)
    for result in streamed:
        same(result, ran(compiled(program, 1), arrays, {}, 1))


@pytest.mark.parametrize("rows", [2, 9])
def test_products_of_more_rows_have_tiles(rows):
    (kernel,) = products(product(rows, 256, 512))
    assert not small_gemm.kind_of(kernel)[0].streams


def test_one_text_serves_all_sizes():
    keys = {form_of(k).key for shape in SHAPES[1:5] for k in products(product(*shape))}
    assert len(keys) == 1


@pytest.mark.usefixtures("copied_columns")
def test_code_with_room_for_fewer_columns_is_another(monkeypatch):
    """The room is a part of the text: code that is found must not have less."""

    def key():
        (kernel,) = products(product(*WIDE[0]))
        return form_of(kernel).key

    small = key()
    tuning = replace(small_gemm.CPU, copied_panel=2 * small_gemm.CPU.copied_panel)
    monkeypatch.setattr(small_gemm, "CPU", tuning)
    assert key() != small


def test_large_products_have_tiles_of_their_own():
    size = math.isqrt(CPU.plain_product)
    (kernel,) = products(product(size, 3, size))
    assert form_of(kernel).key[0] == "constant"
