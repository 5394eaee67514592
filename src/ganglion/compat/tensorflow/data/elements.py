"""Elements of a data set: structures of arrays, which are stacked, padded and cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import ops, tree
from ganglion.compat.tensorflow.dtypes import DType, TensorSpec
from ganglion.tensors import as_tensor


def as_array(x: Any) -> np.ndarray:
    """Return a leaf as an array of the type that TensorFlow gives it.

    >>> as_array(1.5).dtype.name, as_array([1, 2]).dtype.name, as_array("a").item()
    ('float32', 'int32', b'a')
    """
    if hasattr(x, "detach"):
        x = x.detach().cpu()
    is_typed = hasattr(x, "dtype")
    array = np.asarray(x)
    if array.dtype.kind == "S" and not is_typed:
        array = np.asarray(x, object)  # NumPy's own bytes lose zeros at their end
    if array.dtype.kind in "UST" or (array.dtype.kind == "O" and array.size):
        return np.vectorize(_as_bytes, otypes=[object])(array)
    if not is_typed and array.dtype == np.float64:
        return array.astype(np.float32)
    if not is_typed and array.dtype == np.int64:
        return array.astype(np.int32)
    return array


def _as_bytes(text: Any) -> bytes:
    if isinstance(text, (bytes, str)):
        return text if isinstance(text, bytes) else text.encode()
    raise TypeError(
        f"Rows of a data set must be numbers or texts of one shape, got {text!r:.60}. "
        "Pad what has many lengths, or use `from_generator`."
    )


def as_arrays(structure: Any) -> Any:
    """Return a structure with arrays for leaves; a list is one array, as in tf.data."""
    if isinstance(structure, dict):
        return {key: as_arrays(part) for key, part in structure.items()}
    if isinstance(structure, tuple):
        parts = [as_arrays(part) for part in structure]
        has_names = hasattr(structure, "_fields")
        return type(structure)(*parts) if has_names else tuple(parts)
    if structure is None:
        return None
    return as_array(structure)


def mapped(function: Callable[..., Any], *structures: Any) -> Any:
    """Apply a function to the leaves of equal structures."""
    first = structures[0]
    leaves = [tree.flatten(structure) for structure in structures]
    results = [
        None if group[0] is None else function(*group)
        for group in zip(*leaves, strict=True)
    ]
    return tree.pack(first, results)


def as_tensors(structure: Any) -> Any:
    """Return a structure as functions of the user see it: with tensors for leaves."""
    return mapped(_as_tensor, structure)


def _as_tensor(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array  # a data set: what `window` gives
    is_text = array.dtype.kind == "O"
    return as_tensor(array) if is_text else ops.convert_to_tensor(array)


def row_of(rows: Any, index: Any) -> Any:
    """Return a row of a structure of arrays, or some: as arrays, a single text too."""
    return mapped(lambda column: column[index, ...], rows)


def called(function: Callable[..., Any], element: Any) -> Any:
    """Call a function on an element; the parts of a tuple are its arguments."""
    seen = as_tensors(element)
    is_plain_tuple = isinstance(seen, tuple) and not hasattr(seen, "_fields")
    return function(*seen) if is_plain_tuple else function(seen)


def stacked(elements: Sequence[Any]) -> Any:
    """Return elements as one, with an axis in front."""
    try:
        return mapped(lambda *parts: np.stack(parts), *elements)
    except ValueError:
        shapes = {tuple(map(np.shape, tree.flatten(part))) for part in elements}
        raise ValueError(
            "The elements of a batch have different shapes: "
            f"{', '.join(map(str, sorted(shapes)))}. Use `padded_batch`, or make them "
            "alike in a `map` before `batch`."
        ) from None


def padded(elements: Sequence[Any], shapes: Any, values: Any) -> Any:
    """Return elements as one, each filled up to the largest size of every axis."""
    count = len(tree.flatten(elements[0]))
    wanted = [None] * count if shapes is None else _shapes(shapes, elements[0])
    fill = tree.flatten(values) if values is not None else [None] * count
    fill = fill * count if len(fill) == 1 else fill
    columns = zip(*map(tree.flatten, elements), strict=True)
    leaves = [
        _padded(arrays, shape, value)
        for arrays, shape, value in zip(columns, wanted, fill, strict=True)
    ]
    return tree.pack(elements[0], leaves)


def _shapes(shapes: Any, element: Any) -> list[Any]:
    """Return one shape a leaf; a shape is itself a tuple or a list of sizes."""
    if isinstance(element, dict):
        pairs = [(shapes[key], element[key]) for key in sorted(element)]
    elif isinstance(element, tuple):
        pairs = list(zip(shapes, element, strict=True))
    else:
        return [shapes]
    return [shape for pair in pairs for shape in _shapes(*pair)]


def _padded(arrays: Sequence[np.ndarray], shape: Any, value: Any) -> np.ndarray:
    largest = np.max([array.shape for array in arrays], axis=0).astype(int).tolist()
    sizes = (
        largest
        if shape is None
        else [
            size if size is not None and size >= 0 else most
            for size, most in zip(shape, largest, strict=True)
        ]
    )
    if any(most > size for most, size in zip(largest, sizes, strict=True)):
        raise ValueError(
            f"padded_batch: an element of size {largest} does not fit into the padded "
            f"shape {sizes}."
        )
    default = b"" if arrays[0].dtype.kind == "O" else 0
    result = np.full(
        (len(arrays), *sizes), default if value is None else value, arrays[0].dtype
    )
    for number, array in enumerate(arrays):
        row = result[number : number + 1]  # an array still, where it is one number
        row[(slice(None), *map(slice, array.shape))] = array
    return result


def spec_of(element: Any, batched: bool) -> Any:
    """Return the types and shapes of an element, its first size open in a batch."""

    def spec(array: np.ndarray) -> TensorSpec:
        shape = (None, *array.shape[1:]) if batched and array.ndim else array.shape
        name = "string" if array.dtype.kind == "O" else array.dtype.name
        return TensorSpec(shape, DType(name))

    return mapped(spec, element)
