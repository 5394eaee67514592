"""Functions on tensors that differ from ours in more than their names."""

from __future__ import annotations

import functools
import math
import operator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ganglion import ops, random, tree
from ganglion.compat.tensorflow.objects import TensorArray
from ganglion.compiler.ir.graph import UnknownNumbersError, Value
from ganglion.ops.dispatch import op
from ganglion.symbolic import KerasTensor
from ganglion.tensors import Tensor, as_tensor
from ganglion.variables import Variable, read


class UnknownArgumentError(UnknownNumbersError, NotImplementedError):
    """A function needs numbers that are only traced; `tf.function` runs as Python."""


def zeros(shape: Any, dtype: Any = "float32") -> Any:
    """Return zeros of a shape, empty texts where the type is that of texts."""
    if str(dtype) == "string":
        return as_tensor(np.full(tuple(known(shape, "zeros").tolist()), b"", object))
    # A cell of Keras 2 hands on the `dtype` that a newer RNN does not tell it.
    return ops.zeros(shape, None if dtype is None else str(dtype))


def is_known(*arrays: Any) -> bool:
    """Return whether all of these are arrays with numbers, not traced ones."""
    leaves = tree.flatten(arrays)
    return not any(isinstance(leaf, (Value, KerasTensor)) for leaf in leaves)


def known(x: Any, name: str) -> np.ndarray:
    """Return the numbers of a tensor; refuse one that is being traced.

    They carry no gradients: what has any goes through ops, at places found by numbers.
    """
    if is_known(x):
        return np.asarray(x)
    leaves = tree.flatten(x)
    if not any(isinstance(leaf, KerasTensor) for leaf in leaves):
        with suppress(UnknownNumbersError):  # a layer called on arrays knows them
            return np.asarray(tree.pack(x, [np.asarray(leaf) for leaf in leaves]))
    raise UnknownArgumentError(
        f"tf.{name}: its result depends on numbers that a compiled step does not "
        "know beforehand. Call it outside of `tf.function`, layers and `fit`, or "
        "compute with a mask instead."
    )


def constant(value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Return a tensor; one number fills a shape."""
    if isinstance(value, (str, bytes)) or _is_text(value):
        from ganglion.compat.tensorflow.data.elements import as_array

        return as_tensor(as_array(value))
    tensor = ops.convert_to_tensor(value, dtype)
    if shape is None or tuple(tensor.shape) == tuple(shape):
        return tensor
    is_number = not len(tensor.shape)
    return (ops.broadcast_to if is_number else ops.reshape)(tensor, tuple(shape))


def fill(dims: Any, value: Any) -> Any:
    """Return a tensor of one number, in the type of that number."""
    return ops.broadcast_to(ops.convert_to_tensor(value), dims)


def _is_text(value: Any) -> bool:
    leaves = tree.flatten(value) if isinstance(value, (list, tuple)) else [value]
    return bool(leaves) and all(
        isinstance(leaf, (str, bytes)) or getattr(leaf, "dtype", None) in ("O", "U")
        for leaf in leaves[:1]
    )


def is_tensor(x: Any) -> bool:
    """Return whether this is a tensor, or a variable."""
    return isinstance(x, (Value, KerasTensor, Variable, Tensor))


def identity(input: Any) -> Any:  # noqa: A002 (TensorFlow's name)
    """Return a tensor with the same numbers."""
    return ops.convert_to_tensor(input)


def shape(input: Any, out_type: Any = "int32") -> Any:  # noqa: A002
    """Return the sizes of the axes, which are known while a step is traced."""
    sizes = ops.shape(input)
    if None not in sizes:
        return as_tensor(np.array(sizes, str(out_type)))
    return UnknownSizes(
        _size_along(input, axis) if size is None else size
        for axis, size in enumerate(sizes)
    )


@op
def _size_along(x: Any, axis: int) -> Any:
    """Return the size of an axis: a Keras tensor of one that is known later."""
    return read(np.int32(read(x).shape[axis]))


class UnknownSizes(tuple[Any, ...]):
    """The sizes of a Keras tensor, computed with as if they were one tensor."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        return UnknownSizes(part) if isinstance(key, slice) else part

    def _each(self, function: Any, other: Any) -> UnknownSizes:
        others = other if isinstance(other, (list, tuple)) else [other] * len(self)
        return UnknownSizes(map(function, self, others))

    def __mul__(self, other: Any) -> UnknownSizes:
        return self._each(operator.mul, other)

    def __floordiv__(self, other: Any) -> UnknownSizes:
        return self._each(operator.floordiv, other)

    def __add__(self, other: Any) -> UnknownSizes:
        return self._each(operator.add, other)

    def __sub__(self, other: Any) -> UnknownSizes:
        return self._each(operator.sub, other)


def size(input: Any, out_type: Any = "int32") -> Any:  # noqa: A002
    """Return how many numbers there are."""
    count = ops.size(input)
    if count is None:
        return functools.reduce(operator.mul, shape(input))
    return as_tensor(np.array(count, str(out_type)))


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Return a matrix with ones on its diagonal, or a batch of them."""
    matrix = ops.eye(int(num_rows), num_columns, dtype=str(dtype))
    if batch_shape is None:
        return matrix
    sizes = [int(size) for size in known(batch_shape, "eye")]
    return ops.broadcast_to(matrix, (*sizes, *matrix.shape))


def rank(input: Any) -> Any:  # noqa: A002
    """Return the number of axes."""
    return as_tensor(np.array(len(input.shape), np.int32))


def argmax(input: Any, axis: Any = None, output_type: Any = "int64") -> Any:  # noqa: A002
    """Return the index of the largest number along an axis, the first by default."""
    return ops.cast(ops.argmax(input, 0 if axis is None else axis), str(output_type))


def argmin(input: Any, axis: Any = None, output_type: Any = "int64") -> Any:  # noqa: A002
    """Return the index of the smallest number along an axis, the first by default."""
    return ops.cast(ops.argmin(input, 0 if axis is None else axis), str(output_type))


def add_n(inputs: Any) -> Any:
    """Return the sum of several tensors."""
    total = inputs[0]
    for part in inputs[1:]:
        total = ops.add(total, part)
    return total


def squared_difference(x: Any, y: Any) -> Any:
    """Return (x - y)²."""
    return ops.square(ops.subtract(x, y))


def multiply_no_nan(x: Any, y: Any) -> Any:
    """Return x y, and 0 where y is 0, whatever x is."""
    return ops.where(ops.equal(y, 0), ops.zeros_like(x), ops.multiply(x, y))


def erfc(x: Any) -> Any:
    """Return 1 - erf(x)."""
    return ops.subtract(1.0, ops.erf(x))


def xlogy(x: Any, y: Any) -> Any:
    """Return x log(y), and 0 where x is 0, whatever y is."""
    is_zero = ops.equal(x, 0)
    safe = ops.where(is_zero, ops.ones_like(y), y)
    return ops.where(is_zero, ops.zeros_like(y), ops.multiply(x, ops.log(safe)))


def zero_fraction(value: Any) -> Any:
    """Return the part of the numbers that is zero."""
    return ops.mean(ops.cast(ops.equal(value, 0), "float32"))


def segment_max(data: Any, segment_ids: Any, num_segments: Any) -> Any:
    """Return the largest of each segment's rows, the lowest number of an empty one."""
    largest = ops.segment_max(data, segment_ids, num_segments)
    return ops.maximum(largest, _limits(data).min)


def segment_min(data: Any, segment_ids: Any, num_segments: Any) -> Any:
    """Return the least of each segment's rows, the largest number of an empty one."""
    least = ops.segment_min(data, segment_ids, num_segments)
    return ops.minimum(least, _limits(data).max)


def _limits(data: Any) -> np.iinfo[Any] | np.finfo[Any]:
    kind = np.dtype(str(data.dtype))
    return np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)


def sorted_segment_max(data: Any, segment_ids: Any) -> Any:
    """Return the largest of each segment's rows, 0 for an empty one."""
    largest = ops.segment_max(data, segment_ids)
    return _without_empty(largest, data, segment_ids)


def sorted_segment_min(data: Any, segment_ids: Any) -> Any:
    """Return the least of each segment's rows, 0 for an empty one."""
    return _without_empty(ops.segment_min(data, segment_ids), data, segment_ids)


def _without_empty(values: Any, data: Any, segment_ids: Any) -> Any:
    count = ops.segment_sum(ops.ones_like(data), segment_ids)
    return ops.where(ops.equal(count, 0), ops.zeros_like(values), values)


def segment_sqrt_n(data: Any, segment_ids: Any, num_segments: Any) -> Any:
    """Return the sum of each segment's rows over the root of their number."""
    total = ops.segment_sum(data, segment_ids, num_segments)
    mean = segment_mean(data, segment_ids, num_segments)
    ones = ops.ones((data.shape[0], *(1 for _ in data.shape[1:])), data.dtype)
    count = ops.segment_sum(ones, segment_ids, num_segments)
    return ops.where(ops.equal(count, 0), total, mean * ops.sqrt(count))


def segment_mean(data: Any, segment_ids: Any, num_segments: Any = None) -> Any:
    """Return the mean of the rows of each segment, 0 of one without rows."""
    total = ops.segment_sum(data, segment_ids, num_segments)
    ones = ops.ones((data.shape[0], *(1 for _ in data.shape[1:])), data.dtype)
    count = ops.segment_sum(ones, segment_ids, num_segments)
    return ops.divide(total, ops.maximum(count, 1))


def count_nonzero(
    input: Any,  # noqa: A002
    axis: Any = None,
    keepdims: bool = False,
    dtype: Any = "int64",
) -> Any:
    """Return how many elements are not zero."""
    found = ops.cast(ops.not_equal(input, 0), str(dtype))
    return ops.cast(ops.sum(found, axis=axis, keepdims=keepdims), str(dtype))


def bincount(
    arr: Any, weights: Any = None, minlength: Any = 0, axis: Any = None
) -> Any:
    """Return how often each integer occurs in all, or in each row of a matrix."""
    if axis is None:
        arr = ops.ravel(arr)
        weights = None if weights is None else ops.ravel(weights)
    elif axis not in (-1, len(arr.shape) - 1):
        raise ValueError(f"tf.math.bincount: axis must be None or -1, not {axis!r}.")
    return ops.bincount(arr, weights, minlength or 0)


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: Any = "int32",
) -> Any:
    """Return how often a class (a row) was taken for another (a column)."""
    if num_classes is None:
        both = known([labels, predictions], "math.confusion_matrix without num_classes")
        num_classes = int(both.max()) + 1
    truth = ops.one_hot(labels, num_classes, dtype="float32")
    guess = ops.one_hot(predictions, num_classes, dtype="float32")
    if weights is not None:
        truth = ops.multiply(truth, ops.expand_dims(ops.cast(weights, "float32"), -1))
    return ops.cast(ops.matmul(ops.transpose(truth), guess), str(dtype))


def cumsum(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """Return sums of all numbers up to each, or before it, from either end."""
    return _cumulated(ops.cumsum, 0, x, axis, exclusive, reverse)


def cumprod(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """Return products of all numbers up to each, or before it, from either end."""
    return _cumulated(ops.cumprod, 1, x, axis, exclusive, reverse)


def _cumulated(
    cumulate: Any, start: int, x: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    if reverse:
        x = _cumulated(cumulate, start, ops.flip(x, axis), axis, exclusive, False)
        return ops.flip(x, axis)
    if exclusive:  # not by a difference, which is NaN after an infinity
        rank = len(np.shape(x))
        axis %= rank
        widths = [(int(number == axis), 0) for number in range(rank)]
        padded = ops.pad(x, widths, constant_values=start)
        x = padded[(slice(None),) * axis + (slice(-1),)]
    return cumulate(x, axis)


def matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """Return the product of matrices, either transposed first."""
    a = matrix_transpose(a) if transpose_a else a
    b = matrix_transpose(b) if transpose_b else b
    return ops.matmul(a, b)


def matvec(a: Any, b: Any) -> Any:
    """Return the product of matrices with vectors."""
    return ops.squeeze(ops.matmul(a, ops.expand_dims(b, -1)), -1)


def concat(values: Any, axis: Any) -> Any:
    """Return tensors joined along an axis; a single tensor is the only one."""
    parts = values if isinstance(values, (list, tuple)) else [values]
    return ops.concatenate(parts, axis)


def diag(diagonal: Any) -> Any:
    """Return matrices with zeros around their diagonals, the rows of a tensor."""
    shape = tuple(diagonal.shape)
    return set_diag(ops.zeros((*shape, shape[-1]), str(diagonal.dtype)), diagonal)


def tensor_diag(diagonal: Any) -> Any:
    """Return a tensor of twice the axes, zero where its two indices differ."""
    shape = tuple(diagonal.shape)
    return ops.reshape(diag(ops.reshape(diagonal, (-1,))), (*shape, *shape))


def tensor_diag_part(input: Any) -> Any:  # noqa: A002
    """Return the elements whose first and second half of indices are equal."""
    shape = tuple(input.shape[: len(input.shape) // 2])
    count = math.prod(shape)
    diagonal = ops.diagonal(ops.reshape(input, (count, count)))
    return ops.reshape(diagonal, shape)


def set_diag(input: Any, diagonal: Any) -> Any:  # noqa: A002
    """Return matrices with another diagonal."""
    rows, columns = input.shape[-2:]
    is_diagonal = np.eye(rows, columns, dtype=bool)
    shape = (*diagonal.shape, 1) if rows <= columns else (*diagonal.shape[:-1], 1, -1)
    return ops.where(is_diagonal, ops.reshape(diagonal, shape), input)


def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Return the singular values first, then the left and right vectors."""
    parts = ops.svd(tensor, full_matrices=full_matrices, compute_uv=compute_uv)
    if not compute_uv:
        return parts
    left, values, right = parts
    return values, left, matrix_transpose(right)


def adjoint(matrix: Any) -> Any:
    """Exchange the last two axes, of conjugates."""
    return ops.conj(ops.swapaxes(matrix, -1, -2))


def matrix_transpose(a: Any) -> Any:
    """Exchange the last two axes."""
    return ops.swapaxes(a, -1, -2)


def norm(
    tensor: Any,
    ord: Any = "euclidean",  # noqa: A002 (TensorFlow's name)
    axis: Any = None,
    keepdims: bool = False,
) -> Any:
    """Return the norm of vectors; of all numbers where no axis is given."""
    if ord not in ("euclidean", "fro", 1, 2, np.inf):
        raise ValueError(f"tf.norm: ord={ord!r} is not supported; use 1, 2 or np.inf.")
    magnitude = ops.abs(tensor)
    if ord == 1:
        return ops.sum(magnitude, axis, keepdims=keepdims)
    if ord == np.inf:
        return ops.max(magnitude, axis, keepdims=keepdims)
    return ops.sqrt(ops.sum(ops.square(magnitude), axis, keepdims=keepdims))


def normalize(tensor: Any, ord: Any = "euclidean", axis: Any = None) -> Any:  # noqa: A002
    """Return vectors of length one, and the lengths."""
    length = norm(tensor, ord, axis, keepdims=True)
    return ops.divide(tensor, length), length


def band_part(input: Any, num_lower: int, num_upper: int) -> Any:  # noqa: A002
    """Return matrices with zeros away from the diagonal; -1 keeps a whole side."""
    result = input if num_upper < 0 else ops.tril(input, int(num_upper))
    return result if num_lower < 0 else ops.triu(result, -int(num_lower))


def global_norm(t_list: Any) -> Any:
    """Return the norm of all numbers of several tensors."""
    squares = [ops.sum(ops.square(part)) for part in t_list if part is not None]
    return ops.sqrt(add_n(squares))


def clip_by_global_norm(t_list: Any, clip_norm: Any) -> Any:
    """Return tensors scaled so that their common norm is at most this, and the norm."""
    length = global_norm(t_list)
    factor = ops.divide(clip_norm, ops.maximum(length, clip_norm))
    clipped = [None if part is None else ops.multiply(part, factor) for part in t_list]
    return clipped, length


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None) -> Any:
    """Return a tensor scaled so that its norm is at most this."""
    length = norm(t, axis=axes, keepdims=True)
    return ops.divide(ops.multiply(t, clip_norm), ops.maximum(length, clip_norm))


def range_(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None) -> Any:
    """Return numbers from a start to a limit, which are known while tracing, too."""
    bounds = (0, start, delta) if limit is None else (start, limit, delta)
    if any(isinstance(bound, KerasTensor) for bound in bounds):
        kind = None if dtype is None else str(dtype)
        return ops.arange(bounds[0], bounds[1], bounds[2], dtype=kind)
    plain = [known(bound, "range") for bound in bounds]
    if dtype is None:
        typed = [x.dtype for x, b in zip(plain, bounds, strict=True) if _has_type(b)]
        is_float = any(bound.dtype.kind == "f" for bound in plain)
        default = np.float32 if is_float else np.int32
        dtype = np.result_type(*typed) if typed else default
    first, last, step = (bound.item() for bound in plain)
    return as_tensor(np.arange(first, last, step).astype(str(np.dtype(dtype))))


def _has_type(bound: Any) -> bool:
    return hasattr(bound, "dtype")


def gather(params: Any, indices: Any, axis: Any = None, batch_dims: int = 0) -> Any:
    """Return rows, or parts along another axis, by their indices."""
    indices = ops.convert_to_tensor(indices)
    shape, places = tuple(params.shape), tuple(indices.shape)
    batches = batch_dims + (len(places) if batch_dims < 0 else 0)
    axis = batches if axis is None else axis % len(shape)
    if batches == 0:
        return ops.take(params, indices, axis=axis)
    # The axis comes behind those of the batch, then all others are one.
    before, after = range(batches, axis), range(axis + 1, len(shape))
    rows = ops.transpose(params, (*range(batches), axis, *before, *after))
    count, width = math.prod(shape[:batches]), math.prod(rows.shape[batches + 1 :])
    flat = ops.reshape(indices, (count, -1, 1))
    parts = ops.take_along_axis(
        ops.reshape(rows, (count, shape[axis], width)),
        ops.broadcast_to(flat, (count, flat.shape[1], width)),
        axis=1,
    )
    inner = len(places) - batches
    parts = ops.reshape(parts, (*places, *rows.shape[batches + 1 :]))
    middle = range(batches + inner, batches + inner + len(before))
    return ops.transpose(
        parts,
        (
            *range(batches),
            *middle,
            *range(batches, batches + inner),
            *range(batches + inner + len(before), len(parts.shape)),
        ),
    )


def gather_nd(params: Any, indices: Any, batch_dims: int = 0) -> Any:
    """Return parts of a tensor by tuples of indices, which lie on the last axis."""
    indices = ops.cast(ops.convert_to_tensor(indices), "int32")
    if batch_dims:
        outer = tuple(indices.shape[:-1])
        grids = np.indices(outer[:batch_dims], dtype=np.int32)
        rest = (1,) * (len(outer) - batch_dims)
        own = [np.broadcast_to(g.reshape(*g.shape, *rest), outer) for g in grids]
        indices = ops.concatenate([np.stack(own, axis=-1), indices], axis=-1)
    depth = ops.shape(indices)[-1]
    sizes = [int(size) for size in params.shape]
    rest = tuple(sizes[depth:])
    flat = ops.reshape(params, (-1, *rest))
    strides = np.cumprod([1, *sizes[1:depth][::-1]])[::-1].astype(np.int32)
    places = ops.sum(ops.multiply(indices, strides), axis=-1)
    return ops.take(flat, places, axis=0)


def tensor_scatter_nd_add(tensor: Any, indices: Any, updates: Any) -> Any:
    """Return a tensor with updates added at tuples of indices."""
    shape = tuple(int(size) for size in tensor.shape)
    return ops.add(tensor, ops.scatter(indices, updates, shape))


def to_dense(sp_input: Any, default_value: Any = 0) -> Any:
    """Return the numbers of a sparse tensor among others that are all the same."""
    indices, values, shape = sp_input
    shape = tuple(int(size) for size in shape)
    values = ops.convert_to_tensor(values)
    if not default_value:
        return ops.scatter(indices, values, shape)
    others = ops.full(shape, default_value, values.dtype)
    return ops.scatter_update(others, indices, values)


def strided_slice(input_: Any, begin: Any, end: Any, strides: Any = None) -> Any:
    """Return a part of a tensor, along each axis by its step."""
    bounds = [known(part, "strided_slice").tolist() for part in (begin, end)]
    steps = [1] * len(bounds[0])
    if strides is not None:
        steps = known(strides, "strided_slice").tolist()
    return input_[tuple(map(slice, *bounds, steps))]


class Unique(NamedTuple):
    """Different elements, and where each element stands among them."""

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """Different elements, where each stands among them, and how often each is there."""

    y: Any
    idx: Any
    count: Any


def unique(x: Any) -> Unique:
    """Return the elements in the order of their first places, and where each stands."""
    return Unique(*unique_with_counts(x)[:2])


def unique_with_counts(x: Any) -> UniqueWithCounts:
    """Return what `unique` does, and how often each element is there."""
    from ganglion.compat.tensorflow.data.elements import as_array

    values, first, inverse, counts = np.unique(
        as_array(x if isinstance(x, (list, tuple)) else known(x, "unique")),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    order = np.argsort(first)
    places = np.argsort(order)[inverse.ravel()].astype(np.int32)
    parts = values[order], places, counts[order].astype(np.int32)
    return UniqueWithCounts(*map(as_tensor, parts))


def meshgrid(*args: Any, indexing: str = "xy") -> Any:
    """Return the coordinates of all points of a grid."""
    return ops.meshgrid(*args, indexing=indexing)


def foldl(fn: Any, elems: Any, initializer: Any = None) -> Any:
    """Return what a function makes of the first two elements, and each next one."""
    steps = scan(fn, elems, initializer)
    return tree.map_structure(lambda step: step[-1], steps)


def foldr(fn: Any, elems: Any, initializer: Any = None) -> Any:
    """Return what a function makes of the last two elements, and each one before."""
    turned = tree.map_structure(lambda part: ops.flip(part, axis=0), elems)
    return foldl(fn, turned, initializer)


def scan(fn: Any, elems: Any, initializer: Any = None) -> Any:
    """Return every stage of a function that takes its result and the next element."""
    first = initializer
    if initializer is None:
        first = tree.map_structure(lambda part: part[0], elems)
        elems = tree.map_structure(lambda part: part[1:], elems)

    def step(carry: Any, element: Any) -> tuple[Any, Any]:
        after = fn(carry, element)
        return after, after

    _, stages = ops.scan(step, first, elems)
    if initializer is not None:
        return stages
    return tree.map_structure(
        lambda start, rest: ops.concatenate([ops.expand_dims(start, 0), rest], 0),
        first,
        stages,
    )


def switch_case(branch_index: Any, branch_fns: Any) -> Any:
    """Return what the function of this number gives, the last one without such."""
    count = len(branch_fns)
    index = ops.cast(branch_index, "int32")
    is_known_branch = ops.logical_and(
        ops.greater_equal(index, 0), ops.less(index, count)
    )
    return ops.switch(ops.where(is_known_branch, index, count - 1), list(branch_fns))


def map_fn(
    fn: Any,
    elems: Any,
    dtype: Any = None,
    infer_shape: bool = True,
    fn_output_signature: Any = None,
) -> Any:
    """Return a function's result for every row, in the requested type."""
    kinds = dtype if fn_output_signature is None else fn_output_signature
    results = ops.map(fn, elems)
    if kinds is None or isinstance(kinds, (list, tuple, dict)):
        return results
    kind = str(getattr(kinds, "dtype", kinds))
    return results if kind == "string" else ops.cast(results, kind)


def while_loop(
    cond: Any,
    body: Any,
    loop_vars: Any,
    shape_invariants: Any = None,
    maximum_iterations: Any = None,
) -> Any:
    """Return the state of a loop after its last step; shapes stay as they are."""
    if any(isinstance(each, TensorArray) for each in tree.flatten(loop_vars)):
        raise NotImplementedError(
            "tf.while_loop: a tf.TensorArray as a loop variable is not supported: it "
            "may grow. Collect what each step computes with tf.scan or tf.map_fn, or "
            "write it into a tensor with tf.tensor_scatter_nd_update."
        )
    return ops.while_loop(cond, body, loop_vars, maximum_iterations)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: int = 100, dtype: Any = "int32"
) -> Any:
    """Return how many numbers are in each of equal parts of a range."""
    low, high = (float(edge) for edge in value_range)
    share = (ops.ravel(values) - low) / (high - low) * nbins
    bins = ops.clip(ops.cast(ops.floor(share), "int32"), 0, nbins - 1)
    return ops.cast(ops.sum(ops.one_hot(bins, nbins, dtype="float32"), 0), str(dtype))


def polyval(coeffs: Any, x: Any) -> Any:
    """Return a polynomial, the highest power first, at x."""
    total = ops.zeros_like(x)
    for factor in coeffs:
        total = total * x + factor
    return total


def case(
    pred_fn_pairs: Any,
    default: Any = None,
    exclusive: bool = False,
    strict: bool = False,
) -> Any:
    """Return what the function behind the first true condition gives."""
    pairs = list(
        pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs
    )
    if default is None:
        default = pairs.pop()[1]
    for condition, function in reversed(pairs):
        default = _conditional(condition, function, default)
    return default()


def _conditional(condition: Any, function: Any, otherwise: Any) -> Any:
    return lambda: ops.cond(condition, function, otherwise)


def dynamic_partition(data: Any, partitions: Any, num_partitions: int) -> list[Any]:
    """Return the rows of each part."""
    parts = known(partitions, "dynamic_partition")
    return [
        boolean_mask(data, parts == number) for number in range(int(num_partitions))
    ]


def reverse_sequence(
    input: Any,  # noqa: A002
    seq_lengths: Any,
    seq_axis: int = 1,
    batch_axis: int = 0,
) -> Any:
    """Return sequences whose first steps are in reverse order."""
    if (seq_axis, batch_axis) != (1, 0):
        raise NotImplementedError(
            "tf.reverse_sequence: only seq_axis=1 with batch_axis=0 is supported; "
            "bring the axes there with `tf.transpose`, and back."
        )
    steps = ops.arange(int(input.shape[1]))
    lengths = ops.expand_dims(ops.cast(seq_lengths, "int32"), 1)
    mirrored = ops.where(steps < lengths, lengths - 1 - steps, steps)
    return gather(input, mirrored, axis=1, batch_dims=1)


def scatter_nd_sub(tensor: Any, indices: Any, updates: Any) -> Any:
    """Return a tensor with updates subtracted at tuples of indices."""
    return tensor_scatter_nd_add(tensor, indices, ops.negative(updates))


def logdet(matrix: Any) -> Any:
    """Return the logarithm of the determinant of positive definite matrices."""
    return ops.slogdet(matrix)[1]


def unravel_index(indices: Any, dims: Any) -> Any:
    """Return the index along every axis of flat indices, a row for each axis."""
    return ops.stack(ops.unravel_index(indices, tuple(known(dims, "unravel_index"))))


def reduce_mean(input_tensor: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the mean; that of integers is one, too, as in TensorFlow."""
    tensor = ops.convert_to_tensor(input_tensor)
    means = ops.mean(tensor, axis, keepdims)
    kind = str(tensor.dtype)
    return ops.cast(means, kind) if "int" in kind else means


def boolean_mask(tensor: Any, mask: Any, axis: int | None = None) -> Any:
    """Return the rows that a mask holds true, from an axis on, the first by default."""
    chosen, first = known(mask, "boolean_mask").astype(bool), int(axis or 0)
    shape = tuple(tensor.shape)
    rest = shape[first + chosen.ndim :]
    rows = ops.reshape(tensor, (*shape[:first], chosen.size, *rest))
    return ops.take(rows, np.flatnonzero(chosen), axis=first)


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return x or y for each number; alone, the indices of what is true."""
    if x is None and y is None:
        places = np.argwhere(known(condition, "where with one argument"))
        return ops.convert_to_tensor(places.astype(np.int64))
    return ops.where(condition, x, y)


def one_hot(
    indices: Any,
    depth: int,
    on_value: Any = None,
    off_value: Any = None,
    axis: Any = None,
    dtype: Any = None,
) -> Any:
    """Return vectors with one number on, the others off."""
    axis = -1 if axis is None else axis
    if on_value is None and off_value is None:
        return ops.one_hot(
            indices, int(depth), axis=axis, dtype=str(dtype or "float32")
        )
    given = on_value if on_value is not None else off_value
    kind = str(dtype or ops.convert_to_tensor(given).dtype)
    on, off = 1 if on_value is None else on_value, off_value or 0
    hot = ops.one_hot(indices, int(depth), axis=axis, dtype="bool")
    return ops.where(hot, ops.cast(on, kind), ops.cast(off, kind))


def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0
) -> Any:
    """Return a tensor with more on its sides."""
    widths = known(paddings, "pad").tolist()
    if mode.upper() == "CONSTANT":
        return ops.pad(tensor, widths, "constant", constant_values)
    return ops.pad(tensor, widths, mode.lower())


def ensure_shape(x: Any, shape: Any) -> Any:
    """Return a tensor; refuse one that does not have this shape."""
    sizes = tuple(x.shape)
    fits = len(sizes) == len(shape) and all(
        wanted is None or size is None or size == wanted
        for size, wanted in zip(sizes, shape, strict=True)
    )
    if not fits:
        raise ValueError(f"A tensor of shape {sizes} is not one of {tuple(shape)}.")
    return x


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = "bool") -> Any:
    """Return which steps of sequences are within their lengths."""
    if maxlen is None:
        maxlen = int(known(lengths, "sequence_mask without maxlen").max())
    steps = ops.arange(int(maxlen))
    mask = ops.less(steps, ops.expand_dims(ops.cast(lengths, "int32"), -1))
    return ops.cast(mask, str(dtype))


def slice_(input_: Any, begin: Any, size: Any) -> Any:
    """Return a part of a tensor; a size of -1 is the remainder."""
    starts = known(begin, "slice").tolist()
    sizes = known(size, "slice").tolist()
    shape = [
        total - start if count == -1 else count
        for start, count, total in zip(starts, sizes, input_.shape, strict=True)
    ]
    return ops.slice(input_, starts, shape)


def split(value: Any, num_or_size_splits: Any, axis: int = 0) -> Any:
    """Return the parts of a tensor along an axis, alike or of given sizes."""
    if isinstance(num_or_size_splits, (int, np.integer)):
        return ops.split(value, int(num_or_size_splits), axis=axis)
    sizes = known(num_or_size_splits, "split").tolist()
    if -1 in sizes:
        rest = int(value.shape[axis]) - sum(size for size in sizes if size != -1)
        sizes = [rest if size == -1 else size for size in sizes]
    return ops.split(value, np.cumsum(sizes)[:-1].tolist(), axis=axis)


def sort(values: Any, axis: int = -1, direction: str = "ASCENDING") -> Any:
    """Return the numbers along an axis in order."""
    ordered = ops.sort(values, axis=axis)
    return ops.flip(ordered, axis) if direction == "DESCENDING" else ordered


class TopK(NamedTuple):
    """The largest numbers, and where they stand."""

    values: Any
    indices: Any


def top_k(input: Any, k: int = 1, sorted: bool = True) -> TopK:  # noqa: A002
    """Return the largest numbers along the last axis."""
    return TopK(*ops.top_k(input, int(k), sorted=sorted))


def argsort(values: Any, axis: int = -1, direction: str = "ASCENDING") -> Any:
    """Return the indices that put the numbers along an axis in order."""
    is_falling = direction == "DESCENDING"
    return ops.argsort(ops.negative(values) if is_falling else values, axis=axis)


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    seed: Any = None,
) -> Any:
    """Return random numbers, or random integers below a bound."""
    if str(dtype).startswith(("int", "uint")):
        if maxval is None:
            raise ValueError("tf.random.uniform of integers needs `maxval`.")
        return random.randint(shape, minval, maxval, dtype=str(dtype), seed=seed)
    top = 1 if maxval is None else maxval
    return random.uniform(shape, minval, top, dtype=str(dtype), seed=seed)


def gamma(
    shape: Any, alpha: Any, beta: Any = None, dtype: Any = "float32", seed: Any = None
) -> Any:
    """Return random numbers of a gamma distribution, a shape of them for each alpha."""
    sizes = (*known(shape, "random.gamma").tolist(), *np.shape(alpha))
    draws = random.gamma(sizes, alpha, dtype=str(dtype), seed=seed)
    return draws if beta is None else ops.divide(draws, beta)


_lasting_seeds: dict[int, random.SeedGenerator] = {}


def lasting_seed(seed: int) -> random.SeedGenerator:
    """Return what draws other numbers at every call, as a seed does in TensorFlow."""
    if seed not in _lasting_seeds:
        _lasting_seeds[seed] = random.SeedGenerator(seed % 2**31)
    return _lasting_seeds[seed]


def forget_seeds() -> None:
    """Restart the random numbers of every seed."""
    _lasting_seeds.clear()


def seed_of(seed: Any) -> int:
    """Return one number for TensorFlow's two."""
    first, second = known(seed, "random.stateless").tolist()
    return (int(first) * 0x9E3779B1 + int(second)) % 2**31


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Return random numbers that depend on a seed alone."""
    return uniform(shape, minval, maxval, dtype, seed_of(seed))


def poisson(shape: Any, lam: Any, dtype: Any = "float32", seed: Any = None) -> Any:
    """Return counts of events, `shape` of them for each rate."""
    rates = known(lam, "random.poisson")
    sizes = (*np.asarray(shape).tolist(), *rates.shape)
    start = random.randint((), 0, 2**31 - 1, seed=seed)
    counts = np.random.default_rng(int(start)).poisson(rates, sizes)
    return as_tensor(counts.astype(str(dtype)))


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
) -> Any:
    """Return normal random numbers that depend on a seed alone."""
    return random.normal(shape, mean, stddev, dtype=str(dtype), seed=seed_of(seed))
