"""`tf.data.Dataset`: a chain of lazy steps over elements, which are structures."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compat.tensorflow.data import elements, grouping, passes, sources
from ganglion.compat.tensorflow.data.mapping import Mapping
from ganglion.compat.tensorflow.data.sources import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Rows,
    drawn_seed,
)
from ganglion.compat.tensorflow.objects import OutOfRangeError
from ganglion.system.prefetch import prefetched

AUTOTUNE = -1


class DatasetIterator:
    """One pass over a data set, whose elements hold tensors."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        return elements.as_tensors(next(self._items))

    def get_next(self) -> Any:
        """Return the next element."""
        for element in self:
            return element
        raise OutOfRangeError("tf.data: end of sequence")

    def get_next_as_optional(self) -> Optional:
        """Return the next element, or that there is none."""
        return Optional(list(itertools.islice(self, 1)))


class Optional:
    """An element, or none."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def has_value(self) -> Any:
        """Return whether there is an element."""
        return elements.as_tensors(np.array(bool(self._items)))

    def get_value(self) -> Any:
        """Return the element."""
        if not self._items:
            raise ValueError("The data set has ended: there is no element.")
        return self._items[0]


class Options:
    """Hints for TensorFlow's runtime, which has no counterpart here."""

    def __init__(self) -> None:
        self.experimental_optimization = _Hints()
        self.threading = _Hints()
        self.autotune = _Hints()
        self.experimental_distribute = _Hints()
        self.deterministic: bool | None = None
        self.experimental_deterministic: bool | None = None


class _Hints:
    """Attributes that may be set; none of them changes what a data set yields."""


class Dataset:
    """A data set as in TensorFlow, made by `from_tensor_slices` and similar methods.

    >>> data = Dataset.from_tensor_slices([1, 2, 3]).map(lambda x: 10 * x).batch(2)
    >>> [batch.tolist() for batch in data.as_numpy_iterator()]
    [[10, 20], [30]]
    """

    def __init__(
        self,
        start: Callable[[], Iterator[Any]],
        length: int = UNKNOWN_CARDINALITY,
        *,
        rows: Rows | None = None,
        batches_of: tuple[Rows, int] | None = None,
        spec: Any = None,
        batched: bool = False,
    ) -> None:
        self._start = start
        self._length = length
        self._rows = rows
        self._batches_of = batches_of  # rows and how many a batch, for `fit`
        self._spec = spec
        self._batched = batched

    # ---- sources ---------------------------------------------------------------------

    from_tensor_slices = classmethod(sources.from_tensor_slices)
    from_tensors = classmethod(sources.from_tensors)
    from_generator = classmethod(sources.from_generator)
    range = classmethod(sources.range_)
    zip = classmethod(sources.zip_)
    list_files = classmethod(sources.list_files)
    sample_from_datasets = classmethod(sources.sample_from_datasets)
    choose_from_datasets = classmethod(grouping.choose_from_datasets)
    counter = classmethod(grouping.counter)
    random = classmethod(grouping.random)
    load = classmethod(grouping.load)

    @classmethod
    def from_batches(cls, batches: Any) -> Dataset:
        """Return the batches of a `PyDataset`, or of any list of them, as elements."""
        return cls(lambda: map(elements.as_arrays, batches), len(batches), batched=True)

    @classmethod
    def of_rows(cls, rows: Rows) -> Dataset:
        """Return the rows of arrays as elements."""

        def start() -> Iterator[Any]:
            return (rows.take(number) for number in rows.order())

        return cls(start, rows.count, rows=rows)

    # ---- order ---------------------------------------------------------------------

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> Dataset:
        """Return the elements in random order, drawn from the next `buffer_size`."""
        buffer_size = int(buffer_size)
        if buffer_size < 1:
            raise ValueError(f"`buffer_size` must be at least 1, got {buffer_size}.")
        fixed = drawn_seed(seed)
        lasting = np.random.default_rng(fixed)
        is_fresh = reshuffle_each_iteration is not False

        def draws() -> np.random.Generator:
            return lasting if is_fresh else np.random.default_rng(fixed)

        if self._rows is not None:
            rows = self._rows
            mixes_all = buffer_size >= rows.count

            def order() -> np.ndarray:
                if mixes_all:
                    return draws().permutation(rows.order())
                mixed = passes.shuffled(rows.order().tolist(), buffer_size, draws())
                return np.fromiter(mixed, np.int64, rows.count)

            is_whole = mixes_all and is_fresh and rows.is_all
            return Dataset.of_rows(
                replace(rows, order=order, shuffled=is_whole, is_all=is_whole)
            )
        return self._derived(
            lambda: passes.shuffled(self._start(), buffer_size, draws())
        )

    def take(self, count: int, name: str | None = None) -> Dataset:
        """Return the first elements; all if `count` is -1."""
        return self._cut(0, count if count >= 0 else None)

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """Return all but the first elements; none if `count` is -1."""
        return self._cut(count, None) if count >= 0 else self._cut(0, 0)

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Dataset:
        """Return every `num_shards`-th element, from the one numbered `index` on."""
        if not 0 <= index < num_shards:
            raise ValueError(
                f"`index` {index} must be below `num_shards` {num_shards}."
            )
        return self._cut(index, None, num_shards)

    def _cut(self, begin: int, end: int | None, step: int = 1) -> Dataset:
        if self._rows is not None:
            rows = self._rows
            count = len(range(rows.count)[begin:end:step])
            return Dataset.of_rows(
                replace(
                    rows,
                    order=lambda: rows.order()[begin:end:step],
                    count=count,
                    shuffled=rows.shuffled and count == rows.count,
                    is_all=rows.is_all and count == rows.count,
                )
            )
        length = self._length
        if length >= 0:
            length = len(range(length)[begin:end:step])
        elif length == INFINITE_CARDINALITY and end is not None:
            length = len(range(end)[begin::step])
        return self._derived(
            lambda: itertools.islice(self._start(), begin, end, step), length
        )

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """Return the elements several times, or without an end."""
        times = None if count is None or count < 0 else count

        def start() -> Iterator[Any]:
            for _ in itertools.count() if times is None else range(times):
                is_empty = True
                for element in self._start():
                    is_empty = False
                    yield element
                if is_empty:
                    return

        length = self._length
        if times is None:
            length = INFINITE_CARDINALITY if length else 0
        elif length > 0 or not times:
            length *= times
        return self._derived(start, length)

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """Return the elements of this data set, then those of another."""
        lengths = (self._length, dataset._length)
        length = sum(lengths) if min(lengths) >= 0 else min(lengths)
        if INFINITE_CARDINALITY in lengths:
            length = INFINITE_CARDINALITY
        return self._derived(
            lambda: itertools.chain(self._start(), dataset._start()), length
        )

    def cache(self, filename: str = "", name: str | None = None) -> Dataset:
        """Return the same elements, kept in memory after the first whole pass."""
        if filename:
            raise NotImplementedError(
                "tf.data.Dataset.cache(filename): elements are kept in memory only. "
                "Leave `filename` out, or save arrays with NumPy and open them with "
                "np.load(..., mmap_mode='r')."
            )
        if self._rows is not None and not self._rows.shuffled:
            return self
        kept: list[Any] = []
        is_full = False

        def start() -> Iterator[Any]:
            nonlocal is_full
            if is_full:
                yield from kept
                return
            fresh: list[Any] = []
            for element in self._start():
                fresh.append(element)
                yield element
            kept[:], is_full = fresh, True

        return self._derived(start)

    def prefetch(self, buffer_size: int, name: str | None = None) -> Dataset:
        """Return the same elements, made ahead in a thread."""
        if self._rows is not None or self._batches_of is not None:
            return self  # gathering rows takes no time worth a thread
        ahead = 2 if buffer_size == AUTOTUNE else max(int(buffer_size), 1)
        return self._derived(lambda: prefetched(self._start(), ahead))

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Return pairs of a number and an element."""

        def pairs() -> Iterator[Any]:
            for number, element in enumerate(self._start(), start):
                yield np.array(number, np.int64), element

        return Dataset(pairs, self._length)

    # ---- other elements --------------------------------------------------------------

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Dataset:
        """Return the results of a function for every element."""
        if kwargs:
            raise TypeError(
                f"tf.data.Dataset.map has no argument {next(iter(kwargs))!r}."
            )
        threads = num_parallel_calls or 1
        mapping = Mapping(map_func)

        def start() -> Iterator[Any]:
            if threads > 1:
                return passes.in_threads(mapping.one, self._start(), threads)
            return mapping.over(self._start())

        return Dataset(start, self._length, batched=self._batched)

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Return the elements that a function holds true."""

        def start() -> Iterator[Any]:
            return (
                element
                for element in self._start()
                if bool(elements.called(predicate, element))
            )

        return self._derived(start, UNKNOWN_CARDINALITY)

    def take_while(
        self, predicate: Callable[..., Any], name: str | None = None
    ) -> Dataset:
        """Return the elements before the first that a function holds false."""
        return self._derived(
            lambda: itertools.takewhile(
                lambda element: bool(elements.called(predicate, element)),
                self._start(),
            ),
            UNKNOWN_CARDINALITY,
        )

    def flat_map(
        self, map_func: Callable[..., Dataset], name: str | None = None
    ) -> Dataset:
        """Return the elements of the data sets that a function makes, one by one."""
        return self.interleave(map_func, cycle_length=1)

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Return elements of several data sets in turn, which a function creates."""
        cycle = cycle_length if cycle_length and cycle_length > 0 else os.cpu_count()

        def start() -> Iterator[Any]:
            parts = (_called_on(map_func, item)._start() for item in self._start())
            return passes.interleaved(parts, cycle or 1, block_length or 1)

        return Dataset(start)

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Return windows of elements, each a data set."""

        def start() -> Iterator[Any]:
            for window in passes.windows(
                self._start(), size, shift or size, stride, drop_remainder
            ):
                yield _windows_of(window)

        return _Nested(start)

    def scan(
        self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None
    ) -> Dataset:
        """Return the results of a function of every element and a state."""

        def start() -> Iterator[Any]:
            state = elements.as_arrays(initial_state)
            for element in self._start():
                state, result = scan_func(
                    elements.as_tensors(state), elements.as_tensors(element)
                )
                state = elements.as_arrays(state)
                yield elements.as_arrays(result)

        return Dataset(start, self._length)

    def unbatch(self, name: str | None = None) -> Dataset:
        """Return the rows of every element as separate elements."""
        if self._batches_of is not None:
            return Dataset.of_rows(self._batches_of[0])

        def start() -> Iterator[Any]:
            for element in self._start():
                for number in range(len(tree.flatten(element)[0])):
                    yield elements.row_of(element, number)

        return Dataset(start)

    # ---- batches ---------------------------------------------------------------------

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Return elements stacked, `batch_size` of them in each."""
        size = _checked_size(batch_size)
        rows = self._rows
        length = _in_batches(self._length, size, drop_remainder)

        def gathered() -> Iterator[Any]:
            assert rows is not None
            order = rows.order()
            for begin in range(0, length * size, size):
                yield rows.take(order[begin : begin + size])

        def collected() -> Iterator[Any]:
            groups = passes.grouped(self._start(), size, drop_remainder)
            return map(elements.stacked, groups)

        keeps_all = rows is not None and (not drop_remainder or rows.count % size == 0)
        return Dataset(
            collected if rows is None else gathered,
            length,
            batches_of=(rows, size) if rows is not None and keeps_all else None,
            batched=not drop_remainder,
        )

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Return elements of many sizes stacked, each filled up to the largest."""
        size = _checked_size(batch_size)

        def start() -> Iterator[Any]:
            for group in passes.grouped(self._start(), size, drop_remainder):
                yield elements.padded(group, padded_shapes, padding_values)

        length = _in_batches(self._length, size, drop_remainder)
        return Dataset(start, length, batched=True)

    bucket_by_sequence_length = grouping.bucket_by_sequence_length
    group_by_window = grouping.group_by_window
    rebatch = grouping.rebatch
    rejection_resample = grouping.rejection_resample
    save = grouping.save
    unique = grouping.unique

    def ignore_errors(
        self, log_warning: bool = False, name: str | None = None
    ) -> Dataset:
        """Return the elements without those that raise errors."""

        def start() -> Iterator[Any]:
            items = self._start()
            while True:
                try:
                    yield next(items)
                except StopIteration:
                    return
                except Exception as error:
                    if log_warning:
                        warnings.warn(f"An element was left out: {error}", stacklevel=2)

        return self._derived(start, UNKNOWN_CARDINALITY)

    # ---- using it --------------------------------------------------------------------

    def __iter__(self) -> DatasetIterator:
        return DatasetIterator(self._start())

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Return an iterator over elements whose leaves are NumPy's."""
        return (elements.mapped(lambda x: x[()], item) for item in self._start())

    def __len__(self) -> int:
        if self._length < 0:
            kind = "infinite" if self._length == INFINITE_CARDINALITY else "unknown"
            raise TypeError(f"The data set's length is {kind}.")
        return self._length

    def __bool__(self) -> bool:
        return True

    def cardinality(self, name: str | None = None) -> Any:
        """Return the number of elements, -1 if infinite, -2 if unknown."""
        # Scripts call `tf.data.Dataset.cardinality` on data of Keras' utilities, too.
        length = self._length if isinstance(self, Dataset) else len(self)
        return elements._as_tensor(np.array(length, np.int64))

    def get_single_element(self, name: str | None = None) -> Any:
        """Return the only element."""
        items = list(itertools.islice(self._start(), 2))
        if len(items) != 1:
            raise ValueError("The data set does not have exactly one element.")
        return elements.as_tensors(items[0])

    def reduce(
        self,
        initial_state: Any,
        reduce_func: Callable[..., Any],
        name: str | None = None,
    ) -> Any:
        """Return the state after a function was called with every element."""
        state = elements.as_tensors(elements.as_arrays(initial_state))
        for element in self._start():
            state = reduce_func(state, elements.as_tensors(element))
        return state

    def apply(self, transformation_func: Callable[[Any], Any]) -> Any:
        """Return the result of a function of the data set."""
        return transformation_func(self)

    def options(self) -> Options:
        """Return hints for a runtime, none of which is set."""
        return Options()

    def with_options(self, options: Any, name: str | None = None) -> Dataset:
        """Return the same data set: hints for TensorFlow's runtime change nothing."""
        return self

    @property
    def element_spec(self) -> Any:
        """The types and shapes of an element."""
        if self._spec is None:
            first = next(self._start(), None)
            if first is None:
                raise ValueError("The data set is empty: its elements have no shape.")
            self._spec = elements.spec_of(first, self._batched)
        return self._spec

    def as_rows(self) -> dict[str, Any] | None:
        """Return the rows for `fit`, where batches are nothing but rows of arrays."""
        if self._batches_of is None:
            return None
        rows, size = self._batches_of
        parts = rows.columns
        is_pair = isinstance(parts, tuple) and len(parts) == 2
        if not rows.is_all or not is_pair or rows.count == 0:
            return None
        if any(leaf.dtype.kind == "O" for leaf in tree.flatten(parts)):
            return None
        x, y = parts
        shuffle = rows.shuffled
        return {"x": x, "y": y, "batch_size": min(size, rows.count), "shuffle": shuffle}

    def _derived(
        self, start: Callable[[], Iterator[Any]], length: int | None = None
    ) -> Dataset:
        """Return a data set with elements like these."""
        return Dataset(
            start,
            self._length if length is None else length,
            spec=self._spec,
            batched=self._batched,
        )

    def __repr__(self) -> str:
        return f"<Dataset of {self._length if self._length >= 0 else '?'} elements>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"tensorflow.data.Dataset.{name}: Ganglion's data sets do not have it. Use "
            "`map`, `filter` and `from_generator`, or pass a generator to `fit`."
        )


class _Nested(Dataset):
    """A data set of data sets, which are passed on unchanged."""

    def __iter__(self) -> Any:
        return self._start()

    def as_numpy_iterator(self) -> Iterator[Any]:
        return self._start()


def _windows_of(window: list[Any]) -> Any:
    """Return a window of elements: a data set for every part of them."""

    def of_part(part: list[Any]) -> Dataset:
        return Dataset(lambda: iter(part), len(part))

    first = window[0]
    if isinstance(first, tuple):
        return tuple(of_part(list(part)) for part in zip(*window, strict=True))
    if isinstance(first, dict):
        return {key: of_part([item[key] for item in window]) for key in first}
    return of_part(window)


def _called_on(function: Callable[..., Any], item: Any) -> Any:
    leaves = tree.flatten(item)
    if any(isinstance(leaf, Dataset) for leaf in leaves):
        return function(*item) if isinstance(item, tuple) else function(item)
    return elements.called(function, item)


def _checked_size(batch_size: Any) -> int:
    size = int(batch_size)
    if size < 1:
        raise ValueError(f"`batch_size` must be at least 1, got {size}.")
    return size


def _in_batches(length: int, size: int, drop_remainder: bool) -> int:
    if length < 0:
        return length
    return length // size if drop_remainder else -(-length // size)
