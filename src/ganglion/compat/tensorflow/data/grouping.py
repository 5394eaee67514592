"""Steps of a data set that regroup its elements, and its files."""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files, tree
from ganglion.compat.tensorflow.data import elements, sources
from ganglion.saving import h5
from ganglion.saving.files import reading
from ganglion.system import budget

_STRUCTURE = "structure.json"


def group_by_window(
    self: Any,
    key_func: Callable[..., Any],
    reduce_func: Callable[[Any, Any], Any],
    window_size: int | None = None,
    window_size_func: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return the results of a function for windows of elements with the same key."""

    def start() -> Iterator[Any]:
        waiting: dict[int, list[Any]] = {}

        def reduced(key: int) -> Iterator[Any]:
            window = waiting.pop(key)
            part = type(self)(lambda: iter(window), len(window))
            return reduce_func(
                elements.as_tensors(np.array(key, np.int64)), part
            )._start()

        for element in self._start():
            key = int(elements.called(key_func, element))
            size = window_size
            if window_size_func is not None:
                size = window_size_func(elements.as_tensors(np.array(key, np.int64)))
            waiting.setdefault(key, []).append(element)
            if len(waiting[key]) == int(size):  # type: ignore[arg-type]
                yield from reduced(key)
        for key in sorted(waiting):
            yield from reduced(key)

    return type(self)(start, batched=True)


def bucket_by_sequence_length(
    self: Any,
    element_length_func: Callable[..., Any],
    bucket_boundaries: Any,
    bucket_batch_sizes: Any,
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
    name: str | None = None,
) -> Any:
    """Return batches of elements of similar length, filled up to one length."""
    bounds = [int(bound) for bound in bucket_boundaries]
    sizes = [int(size) for size in bucket_batch_sizes]
    if len(sizes) != len(bounds) + 1:
        raise ValueError(
            f"bucket_by_sequence_length: {len(bounds)} boundaries make "
            f"{len(bounds) + 1} buckets, but there are {len(sizes)} batch sizes."
        )
    if pad_to_bucket_boundary:
        raise NotImplementedError(
            "bucket_by_sequence_length(pad_to_bucket_boundary=True) is not supported: "
            "leave it out, and rows are filled up to the longest of a batch."
        )

    def key(*parts: Any) -> int:
        return bisect.bisect_right(bounds, int(element_length_func(*parts)))

    def batch(number: Any, window: Any) -> Any:
        size = sizes[int(number)]
        if no_padding:
            return window.batch(size, drop_remainder)
        return window.padded_batch(size, padded_shapes, padding_values, drop_remainder)

    return group_by_window(self, key, batch, window_size_func=lambda k: sizes[int(k)])


def unique(self: Any, name: str | None = None) -> Any:
    """Return the elements without those that were there before."""

    def start() -> Iterator[Any]:
        seen: set[Any] = set()
        for element in self._start():
            key = element.item()
            if key not in seen:
                seen.add(key)
                yield element

    return self._derived(start, sources.UNKNOWN_CARDINALITY)


def rebatch(
    self: Any, batch_size: Any, drop_remainder: bool = False, name: str | None = None
) -> Any:
    """Return the same rows in batches of another size, or of several in turn."""
    sizes = [int(size) for size in np.atleast_1d(batch_size)]
    if len(sizes) == 1:
        return self.unbatch().batch(sizes[0], drop_remainder)
    raise NotImplementedError(
        "tf.data.Dataset.rebatch: `batch_size` must be one number; write a generator "
        "for batches of several sizes, and `from_generator`."
    )


def rejection_resample(
    self: Any,
    class_func: Callable[..., Any],
    target_dist: Any,
    initial_dist: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Return pairs of a class and an element, drawn with the requested classes."""
    target = np.asarray(target_dist, np.float64)
    draws = np.random.default_rng(sources.drawn_seed(seed))

    def start() -> Iterator[Any]:
        counts = np.ones(len(target))
        for element in self._start():
            label = int(elements.called(class_func, element))
            counts[label] += 1
            known = counts / counts.sum() if initial_dist is None else initial_dist
            ratio = target / np.maximum(np.asarray(known, np.float64), 1e-12)
            if draws.random() < ratio[label] / ratio.max():
                yield np.array(label, np.int32), element

    return type(self)(start)


def choose_from_datasets(
    cls: Any, datasets: Any, choice_dataset: Any, stop_on_empty_dataset: bool = True
) -> Any:
    """Return elements of several data sets, in the order that another gives."""

    def start() -> Iterator[Any]:
        open_ = [data._start() for data in datasets]
        for choice in choice_dataset._start():
            try:
                yield next(open_[int(choice)])
            except StopIteration:
                if stop_on_empty_dataset:
                    return

    return cls(start)


def counter(
    cls: Any,
    start: int = 0,
    step: int = 1,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """Return integers without an end."""
    kind = np.dtype(str(dtype))
    return cls(
        lambda: (np.array(number, kind) for number in itertools.count(start, step)),
        sources.INFINITE_CARDINALITY,
    )


def random(
    cls: Any,
    seed: Any = None,
    name: str | None = None,
) -> Any:
    """Return random integers without an end."""
    fixed = sources.drawn_seed(seed)

    def start() -> Iterator[Any]:
        draws = np.random.default_rng(fixed)
        while True:
            yield np.array(draws.integers(2**32), np.int64)

    return cls(start, sources.INFINITE_CARDINALITY)


# ---- files ---------------------------------------------------------------------------


def save(
    self: Any,
    path: Any,
) -> None:
    """Write all elements into a folder."""
    items = list(self._start())
    if not items:
        raise ValueError("tf.data.Dataset.save: the data set is empty.")
    if any(leaf.dtype.kind == "O" for leaf in tree.flatten(items[0])):
        raise NotImplementedError(
            "tf.data.Dataset.save: texts are not written. Save their tokens, or write "
            "the texts to files and read those with `tf.data.TextLineDataset`."
        )
    folder = Path(str(path))
    folder.mkdir(parents=True, exist_ok=True)

    def fill(file: Any) -> None:
        for number, item in enumerate(items):
            for part, leaf in enumerate(tree.flatten(item)):
                file.create_dataset(f"{number}/{part}", data=leaf)

    h5.write_h5(folder / "elements.h5", fill)
    structure = json.dumps(_plain(items[0]))
    files.write_file(folder / _STRUCTURE, structure.encode())


def _plain(structure: Any) -> Any:
    """Return the shape of a structure as JSON has it."""
    if isinstance(structure, dict):
        return {str(key): _plain(part) for key, part in structure.items()}
    return list(map(_plain, structure)) if isinstance(structure, tuple) else 0


def _with_tuples(structure: Any) -> Any:
    if isinstance(structure, dict):
        return {key: _with_tuples(part) for key, part in structure.items()}
    is_list = isinstance(structure, list)
    return tuple(map(_with_tuples, structure)) if is_list else structure


def load(
    cls: Any,
    path: Any,
    element_spec: Any = None,
) -> Any:
    """Return the elements that `save` wrote into a folder."""
    folder = Path(str(path))
    file_path = folder / "elements.h5"
    with reading(file_path), h5.open_h5(file_path) as file:
        h5.check_seal(file)
        structure = _with_tuples(
            budget.parsed_json(files.read_file(folder / _STRUCTURE))
        )
        items = [
            tree.pack(
                structure,
                [np.array(file[f"{n}/{part}"]) for part in range(len(file[str(n)]))],
            )
            for n in range(len(file))
        ]
    return cls(lambda: iter(items), len(items))
