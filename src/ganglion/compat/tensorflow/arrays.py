"""Functions on tensors that differ from ours in more than their names."""

from __future__ import annotations

import functools
import math
import operator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ganglion import ops, tree
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
    # A cell of Keras 2 passes on the `dtype` that a newer RNN does not give it.
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


def rank(input: Any) -> Any:  # noqa: A002
    """Return the number of axes."""
    return as_tensor(np.array(len(input.shape), np.int32))


def concat(values: Any, axis: Any) -> Any:
    """Return tensors joined along an axis; a single tensor is the only one."""
    parts = values if isinstance(values, (list, tuple)) else [values]
    return ops.concatenate(parts, axis)


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


def unravel_index(indices: Any, dims: Any) -> Any:
    """Return the index along every axis of flat indices, a row for each axis."""
    return ops.stack(ops.unravel_index(indices, tuple(known(dims, "unravel_index"))))


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
    value = on_value if on_value is not None else off_value
    kind = str(dtype or ops.convert_to_tensor(value).dtype)
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
    """Return the parts of a tensor along an axis, equal ones or of given sizes."""
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


def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False
) -> Any:
    """Return the indices that put the numbers along an axis in order."""
    is_falling = direction == "DESCENDING"
    return ops.argsort(ops.negative(values) if is_falling else values, axis=axis)
