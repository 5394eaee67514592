"""`ganglion.ops` against NumPy: on arrays, in a trace, and on Keras tensors."""

from __future__ import annotations

import inspect
import math

import numpy as np
import ops_cases_edges  # noqa: F401 (adds its calls to the table)
import ops_cases_nn  # noqa: F401
import pytest
from ops_cases import CALLS, Call, I, M, N, P, V, X
from ops_cases_numpy import EAGER_CALLS
from ops_titles import assert_equal, title

from ganglion import config, ops, tree
from ganglion.compiler.ir.graph import Graph, Input, Value, evaluate
from ganglion.compiler.ir.simplify import simplify
from ganglion.ops import complex_numbers, ctc, fourier, linalg
from ganglion.symbolic import KerasTensor
from ganglion.variables import Scope, Variable

# What the table does not call, and the tests below do.
ELSEWHERE = {
    "associative_scan",
    "cond",
    "convert_to_numpy",
    "custom_gradient",
    "dtype",
    "fori_loop",
    "get_item",
    "getitem",
    "image",
    "is_tensor",
    "jvp",
    "map",
    "ndim",
    "op",
    "scan",
    "shape",
    "size",
    "switch",
    "vectorize",
    "vectorized_map",
    "while_loop",
}


def widened(leaf):
    """Let the reference compute in float64, so that only our rounding counts."""
    is_float = isinstance(leaf, np.ndarray) and leaf.dtype == np.float32
    return leaf.astype("float64") if is_float else leaf


def expected_of(call: Call) -> list[np.ndarray]:
    assert call.expected is not None
    args, kwargs = tree.map_leaves(widened, (call.args, call.kwargs))
    with np.errstate(all="ignore"):
        result = call.expected(*args, **kwargs)
    parts = result if isinstance(result, (list, tuple)) else [result]
    return [np.asarray(part) for part in parts]


CHECKED = [c for c in (*CALLS, *EAGER_CALLS) if c.expected is not None]


@pytest.mark.parametrize("call", CHECKED, ids=title)
def test_on_arrays(call: Call) -> None:
    result = tree.flatten(getattr(ops, call.name)(*call.args, **call.kwargs))
    wanted = expected_of(call)
    assert len(result) == len(wanted)
    for got, right in zip(result, wanted, strict=True):
        assert_equal(got, right, call.name)


def with_inputs(call: Call) -> tuple[tuple, dict, dict[Value, np.ndarray]]:
    """Replace the arrays of a call by inputs of a trace."""
    known: dict[Value, np.ndarray] = {}

    def lifted(leaf):
        if not isinstance(leaf, np.ndarray):
            return leaf
        result = Input(f"x{len(known)}", leaf.shape, leaf.dtype)
        known[result] = leaf
        return result

    args, kwargs = tree.map_leaves(lifted, (call.args, call.kwargs))
    return args, kwargs, known


@pytest.mark.parametrize("call", CALLS, ids=title)
def test_in_a_trace_and_on_keras_tensors(call: Call) -> None:
    """The same numbers come out of a graph, and Keras tensors know shape and type."""
    function = getattr(ops, call.name)
    right = tree.flatten(function(*call.args, **call.kwargs))
    args, kwargs, known = with_inputs(call)
    with Scope():
        result = tree.flatten(function(*args, **kwargs))
    assert all(isinstance(value, Value) for value in result)
    graph = Graph.of(
        "g", list(known), {str(i): value for i, value in enumerate(result)}
    )
    actual = evaluate(list(simplify(graph).outputs.values()), known)
    for value, array, wanted in zip(result, actual, right, strict=True):
        assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(array, wanted)
    if not known:
        return

    def symbolic(leaf):
        return KerasTensor(leaf.shape, leaf.dtype) if isinstance(leaf, Input) else leaf

    args, kwargs = tree.map_leaves(symbolic, (args, kwargs))
    for tensor, wanted in zip(
        tree.flatten(function(*args, **kwargs)), right, strict=True
    ):
        assert isinstance(tensor, KerasTensor)
        assert (tensor.shape, tensor.dtype) == (wanted.shape, wanted.dtype.name)


@pytest.mark.parametrize("call", EAGER_CALLS, ids=title)
def test_a_shape_that_depends_on_data_is_refused_in_a_trace(call: Call) -> None:
    args, kwargs, _ = with_inputs(call)
    with (
        Scope(),
        pytest.raises(NotImplementedError, match=r"ops\.\w+: the shape"),
    ):
        getattr(ops, call.name)(*args, **kwargs)


@pytest.mark.parametrize("call", EAGER_CALLS, ids=title)
def test_a_size_that_depends_on_data_is_unknown_on_keras_tensors(call: Call) -> None:
    args, kwargs, _ = with_inputs(call)
    tensors, options = tree.map_leaves(
        lambda x: KerasTensor(x.shape, x.dtype) if isinstance(x, Input) else x,
        (args, kwargs),
    )
    function = getattr(ops, call.name)
    right = tree.flatten(function(*call.args, **call.kwargs))
    results = tree.flatten(function(*tensors, **options))
    for tensor, array in zip(results, right, strict=True):
        assert tensor.dtype == array.dtype.name
        pairs = zip(tensor.shape, array.shape, strict=True)
        assert all(size in (None, exact) for size, exact in pairs)
    assert any(None in tensor.shape for tensor in results)


def test_every_function_is_in_the_table_and_has_a_docstring() -> None:
    rooms = (complex_numbers, ctc, fourier, linalg)  # see test_linalg
    elsewhere = ELSEWHERE.union(*(room.__all__ for room in rooms))
    called = {item.name for item in (*CALLS, *EAGER_CALLS)} | elsewhere
    assert set(ops.__all__) == called
    assert len(ops.__all__) == len(set(ops.__all__))
    for name in ops.__all__:
        assert inspect.getdoc(getattr(ops, name)), name


# ---- unknown batch size --------------------------------------------------------------

BATCHED = [
    (lambda x: ops.sum(x, axis=-1), (None, 7)),
    (lambda x: ops.mean(x, axis=0), (7, 4)),
    (lambda x: x + ops.ones((4,)), (None, 7, 4)),
    (lambda x: ops.reshape(x, (-1, 28)), (None, 28)),
    (lambda x: ops.reshape(x, (-1,)), (None,)),
    (lambda x: ops.transpose(x, (1, 0, 2)), (7, None, 4)),
    (lambda x: ops.concatenate([x, x], axis=1), (None, 14, 4)),
    (lambda x: ops.concatenate([x, x], axis=0), (None, 7, 4)),
    (lambda x: ops.matmul(x, ops.ones((4, 9))), (None, 7, 9)),
    (lambda x: x[:, 2:5], (None, 3, 4)),
    (lambda x: x[:, -1], (None, 4)),
    (lambda x: x[0], (7, 4)),
    (lambda x: x[..., None], (None, 7, 4, 1)),
    (lambda x: ops.argmax(x, axis=-1), (None, 7)),
    (lambda x: ops.einsum("bij,bkj->bik", x, x), (None, 7, 7)),
    (lambda x: ops.einsum(x, [0, 1, 2], x, [0, 3, 2], [0, 1, 3]), (None, 7, 7)),
    (lambda x: ops.softmax(x), (None, 7, 4)),
    (lambda x: ops.max_pool(x, 3), (None, 2, 4)),
    (lambda x: ops.zeros_like(x), (None, 7, 4)),
    (lambda x: ops.expand_dims(x, 1), (None, 1, 7, 4)),
    (lambda x: ops.split(x, 2, axis=-1)[1], (None, 7, 2)),
]


@pytest.mark.parametrize(("function", "shape"), BATCHED)
def test_a_batch_of_unknown_size_stays_unknown(function, shape) -> None:
    x = KerasTensor((None, 7, 4))
    result = function(x)
    assert isinstance(result, KerasTensor)
    assert result.shape == shape


def test_a_keras_tensor_knows_the_ops_that_made_it() -> None:
    x = KerasTensor((None, 4))
    result = ops.relu(x * 2.0)
    assert result.call is not None
    history = result._keras_history
    assert history == (history.operation, 0, 0)
    assert history.operation.name.startswith("relu")
    assert not hasattr(x, "_keras_history")
    assert result.call.inputs[0].call.inputs == [x]
    with pytest.raises(TypeError, match="cannot be used as a boolean"):
        bool(x > 0)
    with pytest.raises(TypeError, match="cannot be used as a boolean"):
        bool(x == 0.0)
    with pytest.raises(ValueError, match=r"Use `ganglion\.ops`"):
        np.asarray(x)


def test_a_list_finds_the_keras_tensor_it_holds() -> None:
    x, y, z = KerasTensor((None, 4)), KerasTensor((None, 4)), KerasTensor((2, 7))
    assert y in [z, x, y]
    assert y not in [x, z]
    assert [x, y, z].index(z) == 2
    assert isinstance(x == y, KerasTensor)  # still an op, as of arrays


def test_several_axes_for_one_are_refused_by_name() -> None:
    for x in (M, KerasTensor((2, 3))):
        with pytest.raises(TypeError, match=r"`axis` must be one .* got \(0, 1\)"):
            ops.cumsum(x, axis=(0, 1))


# ---- types ---------------------------------------------------------------------------

TYPES = [
    (lambda: ops.add(M, 1.5), "float32"),
    (lambda: ops.add(M, 1), "float32"),
    (lambda: ops.add(M, True), "float32"),
    (lambda: ops.add(I, 1), "int32"),
    (lambda: ops.add(I, 1.5), "float32"),
    (lambda: ops.add(I.astype("int64"), I), "int64"),
    (lambda: ops.add(I.astype("uint8"), 1), "uint8"),
    (lambda: ops.add(M > 0, 1), "int32"),
    (lambda: ops.add(M > 0, 1.5), "float32"),
    (lambda: ops.add(M > 0, I), "int32"),
    (lambda: ops.add(M, np.float64(2)), "float64"),
    (lambda: ops.add(M, I), "float32"),
    (lambda: ops.add(1, 2), "int32"),
    (lambda: ops.add(1, 2.0), "float32"),
    (lambda: ops.divide(I, I + 9), "float32"),
    (lambda: ops.divide(I, 2), "float32"),
    (lambda: ops.mean(I), "float32"),
    (lambda: ops.exp(I), "float32"),
    (lambda: ops.exp(M.astype("float64")), "float64"),
    (lambda: ops.sum(I), "int32"),
    (lambda: ops.sum(I.astype("uint8")), "uint32"),
    (lambda: ops.sum(I.astype("int8")), "int32"),
    (lambda: ops.square(I), "int32"),
    (lambda: ops.power(I, 2), "int32"),
    (lambda: ops.where(I > 0, 1, 0), "int32"),
    (lambda: ops.where(I > 0, 1.0, 0), "float32"),
    (lambda: ops.one_hot(I, 3), "float32"),
    (lambda: ops.one_hot(I, 3, dtype="int32"), "int32"),
    (lambda: ops.argmax(M), "int32"),
    (lambda: ops.matmul(I, I.T.copy()), "int32"),
    (lambda: ops.arange(3), "int32"),
    (lambda: ops.arange(3.0), "float32"),
    (lambda: ops.zeros((2,)), "float32"),
    (lambda: ops.convert_to_tensor([1, 2]), "int32"),
    (lambda: ops.convert_to_tensor([1.0, 2]), "float32"),
    (lambda: ops.convert_to_tensor([True]), "bool"),
    (lambda: ops.clip(I, 0, 1), "int32"),
]


@pytest.mark.parametrize(("make", "dtype"), TYPES)
def test_types_follow_keras(make, dtype: str) -> None:
    assert make().dtype == dtype


def test_float64_throughout() -> None:
    config.set_floatx("float64")
    try:
        wide = M.astype("float64")
        for result in (
            ops.exp(wide),
            wide * ops.ones((3,)),
            ops.mean(I),
            ops.add(I, 0.5),
        ):
            assert result.dtype == np.float64
        np.testing.assert_allclose(ops.gelu(wide), ops.gelu(M), rtol=1e-4)
        assert ops.add(wide, M).dtype == np.float64
    finally:
        config.set_floatx("float32")


def test_operators_are_the_functions() -> None:
    with Scope(concrete=True):
        v, w = Variable(M, name="v"), Variable(P, name="w")
        pairs = [
            (v + 1, M + 1), (1 + v, 1 + M), (v - w, M - P), (2 - v, 2 - M),
            (v * w, M * P), (v / w, M / P), (1 / w, 1 / P), (v // w, M // P),
            (v % w, M % P), (w**2, P**2), (2**w, 2**P), (-v, -M), (abs(v), abs(M)),
            (v @ N, M @ N), (v < w, M < P), (v <= w, M <= P), (v > w, M > P),
            (v >= w, M >= P), ((v > 0) & (w > 1), (M > 0) & (P > 1)),
            ((v > 0) | (w > 1), (M > 0) | (P > 1)), (~(v > 0), ~(M > 0)),
            (v[0], M[0]), (P + v, P + M), (P * v, P * M), (P / v, P / M),
        ]  # fmt: skip
        result = evaluate([item for item, _ in pairs])
    for got, (_, right) in zip(result, pairs, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6)


def test_equality_compares_elements_but_finds_variables_by_identity() -> None:
    x, v, w = Input("x", (3,), "float32"), Variable(V), Variable(V)
    result = [x == V[1], x != V[1], x == v]
    assert evaluate(result, {x: V})[0].tolist() == [False, True, False]
    assert evaluate(result, {x: V})[1].tolist() == [True, False, True]
    assert evaluate(result, {x: V})[2].all()
    assert (v == V[1]).tolist() == [False, True, False]
    assert (KerasTensor((None, 3)) == 1.0).dtype == "bool"
    assert [v, w].index(w) == 1
    assert len({v, w, x}) == 3


def test_einsum_with_numbered_axes_and_the_options_of_backends() -> None:
    square = np.arange(9.0, dtype="float32").reshape(3, 3)
    for call in (
        (square, [0, 0]),
        (square, [1, 0]),
        (square, [0, 1], square, [1, 2]),
        (square, [..., 1], square, [2, 1], [2, ...]),
    ):
        wanted = np.einsum(*call)
        np.testing.assert_allclose(ops.einsum(*call, optimize=True), wanted)


def test_functions_of_tensorflow_and_jax_refuse_symbolic_tensors_by_name() -> None:
    tensor = KerasTensor((None, 3))
    with pytest.raises(ValueError, match="input to a TensorFlow function"):
        tensor.__tf_tensor__()
    with pytest.raises(ValueError, match="input to a JAX function"):
        tensor.__jax_array__()


# ---- the rest ------------------------------------------------------------------------


def test_shapes_sizes_and_types() -> None:
    tensor = KerasTensor((None, 3))
    assert ops.shape(X) == (2, 3, 4)
    assert ops.shape(tensor) == (None, 3)
    assert ops.shape([[1, 2]]) == (1, 2)
    assert (ops.ndim(X), ops.ndim(tensor), ops.ndim(3)) == (3, 2, 0)
    assert (ops.size(X), ops.size(tensor)) == (24, None)
    assert (ops.dtype(X), ops.dtype(tensor), ops.dtype(1)) == (
        "float32",
        "float32",
        "int32",
    )
    assert not ops.is_tensor(X)
    assert ops.is_tensor(ops.abs(X))
    assert ops.is_tensor(Input("x", (2,), "float32"))
    assert not ops.is_tensor([1.0])
    assert ops.convert_to_numpy(Variable(V)).tolist() == V.tolist()
    with pytest.raises(TypeError, match="has no numbers"):
        ops.convert_to_numpy(Input("x", (2,), "float32"))


def test_a_choice_computes_one_side_or_picks_in_a_trace() -> None:
    assert ops.cond(np.True_, lambda: 1, lambda: 1 / 0) == 1
    flag, x = Input("flag", (), "bool"), Input("x", (3,), "float32")
    result = ops.cond(flag, lambda: (x + 1.0, x), lambda: (x * 2.0, -x))
    for on, right in ((True, (V + 1, V)), (False, (V * 2, -V))):
        actual = evaluate(list(result), {flag: np.array(on), x: V})
        for got, wanted in zip(actual, right, strict=True):
            assert np.array_equal(got, wanted)


def test_loops_are_written_out() -> None:
    assert ops.fori_loop(2, 5, lambda i, total: total + i, 0) == 9
    wanted = np.stack([row @ row.T for row in X])
    for loop in (ops.map, ops.vectorized_map):
        result = loop(lambda row: ops.matmul(row, ops.transpose(row)), X)
        np.testing.assert_allclose(result, wanted, rtol=1e-6)
    pair = ops.map(lambda xs: {"sum": xs[0] + xs[1]}, (M, P))
    np.testing.assert_array_equal(pair["sum"], M + P)


def test_probabilities_from_softmax_or_sigmoid_keep_far_errors() -> None:
    """Both cross-entropies go back to the logits, so a gap of 100 costs 100."""
    logits = np.array([[100.0, 0.0]], "float32")
    with Scope(concrete=True):
        soft = ops.softmax(logits)
        result = ops.categorical_crossentropy(np.array([[0.0, 1.0]], "f4"), soft)
        sparse = ops.sparse_categorical_crossentropy(np.array([1]), soft)
        yes = ops.binary_crossentropy(np.array([[0.0, 1.0]], "f4"), ops.sigmoid(logits))
        actual = evaluate([result, sparse, yes])
    assert actual[0].tolist() == [100]
    assert actual[1].tolist() == [100]
    assert actual[2] == pytest.approx(np.array([[100, math.log(2)]]))
    clipped = ops.categorical_crossentropy(
        np.array([[0.0, 1.0]], "f4"), np.array([[1.0, 0.0]], "f4")
    )
    assert clipped == pytest.approx(-math.log(1e-7), rel=1e-6)


REFUSALS = [
    (lambda: ops.add(M, N), r"shapes \(2, 3\) and \(3, 5\) do not fit together"),
    (lambda: ops.sum(M, axis=2), "axis 2 is out of bounds for an array of 2 axes"),
    (lambda: ops.reshape(M, (4, -1)), r"cannot reshape \(2, 3\) into \(4, -1\)"),
    (lambda: ops.reshape(M, (-1, -1)), "at most one unknown dimension"),
    (lambda: ops.squeeze(M, 0), r"cannot squeeze \(2, 3\) on axis 0"),
    (lambda: ops.split(M, 2, axis=1), "3 rows do not split into 2"),
    (lambda: ops.matmul(M, M), "inner sizes differ"),
    (lambda: ops.matmul(M, 2.0), "a scalar is not a matrix; use multiply"),
    (lambda: ops.einsum("ij,jk->ik", M, M), "einsum"),
    (lambda: ops.einsum("ij,jk->ik", M, M.T, casting="no"), "takes no casting"),
    (lambda: ops.einsum("iii->i", M), "does not name the axes"),
    (lambda: ops.einsum("ii->i", M), "is both 2 and 3"),
    (lambda: ops.einsum("...i->i", M), "has no '...' in its result"),
    (lambda: ops.einsum("ij,jk->il", M, M.T), "must name axes of the arrays"),
    (lambda: ops.split(M, 2, axis=1), "ops.array_split makes parts of nearly"),
    (lambda: ops.split(M, 0), "at least one"),
    (lambda: ops.repeat(M, [1, 2, 3], axis=0), "3 numbers for 2 rows"),
    (lambda: ops.repeat(M, -1), "cannot repeat"),
    (lambda: ops.tile(M, -1), "cannot repeat"),
    (
        lambda: ops.pad(V, 1, mode="reflect", constant_values=0),
        "can only be provided when",
    ),
    (lambda: ops.rot90(M, axes=(0, 0)), "two different axes"),
    (lambda: ops.rot90(M, axes=(1, -1)), "two different axes"),
    (lambda: ops.rot90(M, axes=0), "two different axes"),
    (lambda: ops.rot90(V), "at least two axes"),
    (lambda: ops.flip(M, axis=2), "axis 2 is out of bounds"),
    (lambda: ops.transpose(M, axes=(0, 0)), "valid permutation"),
    (lambda: ops.expand_dims(M, (0, 0)), "named twice"),
    (lambda: ops.arange(0, 1, 0), "must not be 0"),
    (lambda: ops.linspace(0, 1, -1), "must not be negative"),
    (lambda: ops.max(np.zeros((1, 0), "float32")), "maximum of no elements"),
    (lambda: ops.slice(M, (1,), (1, 1)), "`start_indices` must match"),
    (lambda: ops.slice(M, (1,), (1,)), "`inputs` must match .* in `shape`"),
    (lambda: ops.reshape(M, (-2, 3)), "non-negative integer"),
    (lambda: ops.slice_update(M, (1, 1), M), "leaves an array"),
    (lambda: ops.take_along_axis(M, [0], axis=0), "as many axes"),
    (lambda: ops.where(M > 0, M), "either both should be `None`"),
    (lambda: ops.pad(M, 1, mode="wrap"), "mode 'wrap' is not supported"),
    (lambda: ops.pad(M, 5, mode="reflect"), "a mirror of 5 from an axis of 2"),
    (lambda: ops.norm(M, ord=3), "over 2 axes is not a norm"),
    (lambda: ops.norm(M, ord="nuc", axis=1), "over 1 axes is not a norm"),
    (lambda: ops.top_k(M, 4), "k is 4, but rows have 3 elements"),
    (lambda: ops.tril(V), "a triangle needs matrices"),
    (lambda: ops.scatter_update(M, [[0, 0]], [1.0], "sub"), "Unsupported reduction"),
    (lambda: ops.conv(X[None], np.ones((2, 2, 3, 1))), "channels"),
    (lambda: ops.max_pool(X, 2, data_format="rows_first"), "channels_last"),
    (lambda: ops.max_pool(X, 2, padding="full"), "Unknown padding 'full'"),
    (lambda: ops.max_pool(X, 0), "`pool_size` must be 1 positive numbers"),
    (lambda: ops.categorical_crossentropy(V, M), "differ in shape"),
    (lambda: ops.sparse_categorical_crossentropy(V, M), "do not fit predictions"),
    (lambda: ops.add(M, "a"), "Cannot use|do not fit|could not convert"),
    (lambda: ops.add(M > 0, M > 0), "needs numbers, got bool"),
]


@pytest.mark.parametrize(("make", "text"), REFUSALS)
def test_what_does_not_fit_is_refused_in_words(make, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        make()


def test_long_windows_of_few_channels() -> None:
    rng = np.random.default_rng(5)
    x, kernel = rng.standard_normal((2, 500, 2)), rng.standard_normal((300, 2, 3))
    result = ops.conv(x, kernel, padding="valid")
    for row in range(2):
        for unit in range(3):
            parts = [
                np.correlate(x[row, :, channel], kernel[:, channel, unit], "valid")
                for channel in range(2)
            ]
            np.testing.assert_allclose(result[row, :, unit], sum(parts), rtol=1e-9)
