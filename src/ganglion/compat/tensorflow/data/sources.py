"""The sources of a `tf.data.Dataset`: its class methods."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compat.tensorflow.data import elements
from ganglion.compat.tensorflow.dtypes import TensorSpec, as_dtype

INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2


@dataclass(frozen=True)
class Rows:
    """Elements that are rows of arrays, in an order that may be redrawn."""

    columns: Any  # a structure of arrays with equally many rows
    order: Callable[[], np.ndarray]
    count: int
    shuffled: bool = False  # entirely, again in every pass
    is_all: bool = True  # each row once, in order unless shuffled

    def take(self, chosen: np.ndarray) -> Any:
        """Return some rows as one element."""
        return elements.row_of(self.columns, chosen)


def from_tensor_slices(cls: Any, tensors: Any, name: str | None = None) -> Any:
    """Return the rows of arrays, one element a row."""
    columns = elements.as_arrays(tensors)
    if isinstance(tensors, list) and any(hasattr(part, "shape") for part in tensors):
        columns = elements.stacked([elements.as_arrays(part) for part in tensors])
    sizes = {len(column) for column in tree.flatten(columns) if column.ndim}
    if len(sizes) != 1 or any(not column.ndim for column in tree.flatten(columns)):
        raise ValueError(
            "from_tensor_slices needs arrays with equally many rows, got "
            f"{[column.shape for column in tree.flatten(columns)]}."
        )
    count = sizes.pop()
    return cls.of_rows(Rows(columns, lambda: np.arange(count), count))


def from_tensors(cls: Any, tensors: Any, name: str | None = None) -> Any:
    """Return a data set of a single element."""
    element = elements.as_arrays(tensors)
    return cls(lambda: iter([element]), 1)


def from_generator(
    cls: Any,
    generator: Callable[..., Iterable[Any]],
    output_types: Any = None,
    output_shapes: Any = None,
    args: Any = None,
    output_signature: Any = None,
    name: str | None = None,
) -> Any:
    """Return the elements that a function yields, called again in every pass."""
    if not callable(generator):
        raise TypeError(
            "from_generator needs a function that returns a generator, not "
            f"{type(generator).__name__}: pass the function itself, without ()."
        )
    arguments = [] if args is None else [elements.as_array(part) for part in args]
    types = output_types if output_signature is None else output_signature
    spec = output_signature
    if spec is None and output_types is not None and output_shapes is not None:
        spec = _specs(output_types, output_shapes)

    def start() -> Iterator[Any]:
        return (_typed(item, types) for item in generator(*arguments))

    return cls(start, spec=spec)


def range_(
    cls: Any, *args: int, output_type: Any = "int64", name: str | None = None
) -> Any:
    """Return integers, as Python's `range`."""
    return cls.from_tensor_slices(np.arange(*args, dtype=str(output_type)))


def zip_(cls: Any, *args: Any, datasets: Any = None, name: str | None = None) -> Any:
    """Return tuples of the elements of several data sets; the shortest ends it."""
    parts = datasets if datasets is not None else args
    parts = parts[0] if len(parts) == 1 and isinstance(parts, tuple) else parts
    leaves = tree.flatten(parts)

    def start() -> Iterator[Any]:
        passes_ = [part._start() for part in leaves]
        return (tree.pack(parts, list(group)) for group in zip(*passes_, strict=False))

    finite = [part._length for part in leaves if part._length >= 0]
    unknown = any(part._length == UNKNOWN_CARDINALITY for part in leaves)
    length = min(finite) if finite else INFINITE_CARDINALITY
    return cls(start, UNKNOWN_CARDINALITY if unknown else length)


def list_files(
    cls: Any,
    file_pattern: Any,
    shuffle: bool | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Return the names of files that fit a pattern, shuffled by default."""
    patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
    names = sorted(name for pattern in patterns for name in glob.glob(pattern))
    if not names:
        raise ValueError(f"No file fits the pattern {file_pattern!r}.")
    data = cls.from_tensor_slices(names)
    return data if shuffle is False else data.shuffle(len(names), seed)


def sample_from_datasets(
    cls: Any,
    datasets: list[Any],
    weights: Any = None,
    seed: int | None = None,
    stop_on_empty_dataset: bool = False,
    rerandomize_each_iteration: bool | None = None,
) -> Any:
    """Return elements drawn from several data sets at random."""
    draws = np.random.default_rng(drawn_seed(seed))

    def start() -> Iterator[Any]:
        open_ = [data._start() for data in datasets]
        chances = np.ones(len(open_)) if weights is None else np.array(weights, float)
        while chances.any():
            chosen = int(draws.choice(len(open_), p=chances / chances.sum()))
            try:
                yield next(open_[chosen])
            except StopIteration:
                if stop_on_empty_dataset:
                    return
                chances[chosen] = 0

    return cls(start)


def drawn_seed(seed: int | None) -> int:
    """Return a seed, drawn from NumPy's where none is given."""
    return int(np.random.randint(2**31)) if seed is None else int(seed)


def _typed(item: Any, types: Any) -> Any:
    """Return what a generator yields as arrays of the types that were promised."""
    # A list is a tensor where one is promised, else a row of them.
    is_row = isinstance(item, list) and isinstance(types, (list, tuple, type(None)))
    arrays = elements.as_arrays(tuple(item) if is_row else item)
    if types is None:
        return arrays
    promised = [getattr(kind, "dtype", kind) for kind in _flat_types(types)]
    leaves = tree.flatten(arrays)
    if len(leaves) != len(promised):
        raise TypeError(
            f"The generator yielded {len(leaves)} parts, but its signature has "
            f"{len(promised)}."
        )
    shapes = [getattr(kind, "shape", None) for kind in _flat_types(types)]
    typed = [
        leaf if str(kind) == "string" else leaf.astype(str(as_dtype(kind)), copy=False)
        for leaf, kind in zip(leaves, promised, strict=True)
    ]
    for leaf, kind, shape in zip(typed, promised, shapes, strict=True):
        if shape is not None and not _fits(leaf.shape, shape):
            raise TypeError(
                f"The generator yielded an array of shape {leaf.shape}, but its "
                f"signature says {TensorSpec(shape, kind)}."
            )
    return tree.pack(arrays, typed)


def _fits(shape: tuple[int, ...], promised: tuple[int | None, ...]) -> bool:
    return len(shape) == len(promised) and all(
        wanted is None or size == wanted
        for size, wanted in zip(shape, promised, strict=True)
    )


def _flat_types(types: Any) -> list[Any]:
    return [kind for kind in tree.flatten(types) if kind is not None]


def _specs(types: Any, shapes: Any) -> Any:
    if isinstance(types, (tuple, list)):
        return tuple(_specs(*pair) for pair in zip(types, shapes, strict=True))
    if isinstance(types, dict):
        return {key: _specs(types[key], shapes[key]) for key in types}
    return TensorSpec(shapes, types)
