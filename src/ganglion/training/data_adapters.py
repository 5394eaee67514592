"""What `fit`, `evaluate` and `predict` are given, as tables of rows or as batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import config, tree
from ganglion.random import shuffled
from ganglion.training.index_limits import ColumnLimit

DEFAULT_BATCH = 32


def as_array(x: Any, what: str) -> np.ndarray:
    """Return data as an array of a type we compute with; refuse what is none."""
    if hasattr(x, "detach"):  # a PyTorch tensor that may require a gradient
        x = x.detach().cpu().numpy()
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(
            f"`{what}` is no regular array ({error}): its rows have different shapes; "
            "pad them to one length."
        ) from None
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"`{what}` has the type {array.dtype}, which is not numbers: encode it as "
            f"numbers first, names by np.unique({what}, return_inverse=True)."
        )
    if array.dtype.kind == "f":
        array = array.astype(config.floatx(), copy=False)
    elif array.dtype.itemsize == 8:
        array = _narrowed(array, what)
    if not array.flags.c_contiguous:  # every chunk of steps would copy it
        array = np.ascontiguousarray(array)
    return seen_anew(array)


def seen_anew(array: np.ndarray) -> np.ndarray:
    """Return an array as an object of its own, of which a GPU makes a new copy.

    So what was changed in place is taken up. What nobody can change stays as it is.

    >>> fixed = np.zeros(3)
    >>> fixed.setflags(write=False)
    >>> seen_anew(fixed) is fixed, seen_anew(np.zeros(3)).base is None
    (True, False)
    """
    one: Any = array
    while isinstance(one, np.ndarray):
        if one.flags.writeable:
            return array.view()
        one = one.base
    return array


def _narrowed(array: np.ndarray, what: str) -> np.ndarray:
    if array.size and max(abs(int(array.min())), abs(int(array.max()))) >= 2**31:
        raise ValueError(f"`{what}` holds whole numbers beyond 32 bits; scale them.")
    return array.astype(np.int32)


def named_leaves(structure: Any, name: str) -> list[tuple[str, Any]]:
    """Return the leaves with a name each: ``x``, or ``x/0``, or ``x/key``."""
    if isinstance(structure, dict):
        keys: list[Any] = sorted(structure)
    elif isinstance(structure, (list, tuple)):
        keys = list(range(len(structure)))
    else:
        return [(name, structure)]
    return [
        leaf for key in keys for leaf in named_leaves(structure[key], f"{name}/{key}")
    ]


@dataclass(frozen=True)
class Signature:
    """All that the graph of a step depends on, and nothing else; hashable."""

    batch: int
    rows: int | None  # None: the batch itself is given, there is nothing to gather
    shuffle: bool
    columns: tuple[tuple[str, tuple[int, ...], str], ...]
    change: Any = None  # of the images of a batch, by its number and the order's seed


class Table:
    """Inputs, targets and weights as arrays with the same number of rows.

    >>> table = Table(np.zeros((5, 2)), [0, 1, 0, 1, 0])
    >>> table.rows, [name for name, _ in table.columns]
    (5, ['x', 'y'])
    """

    def __init__(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        self.x = _arrays(x, "x")
        self.y = _arrays(y, "y")
        self.sample_weight = _arrays(sample_weight, "sample_weight")
        parts = (self.x, "x"), (self.y, "y"), (self.sample_weight, "sample_weight")
        self.columns: list[tuple[str, np.ndarray]] = [
            (where, leaf)
            for part, name in parts
            for where, leaf in named_leaves(part, name)
            if leaf is not None  # labels that no loss needs, weights of no output
        ]
        self.rows = _common_rows(self.columns)
        # What a generator of changed images wants, None where there is none.
        self.batch_size: int | None = None
        self.shuffle: bool | None = None
        self.change: Any = None
        self._kept_limits: set[ColumnLimit] = set()

    def signature(self, batch: int, rows: int | None, shuffle: bool) -> Signature:
        """Return what a step over this table depends on."""
        columns = tuple(
            (name, array.shape[1:], array.dtype.name) for name, array in self.columns
        )
        return Signature(batch, rows, shuffle, columns, self.change)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the columns by name."""
        return dict(self.columns)

    def check(self, limits: Iterable[ColumnLimit]) -> None:
        """Refuse indices and labels out of range; what was looked at is known."""
        new = [limit for limit in limits if limit not in self._kept_limits]
        if not new:
            return
        arrays = self.arrays()
        for limit in new:
            limit.check(arrays[limit.column])
        self._kept_limits.update(new)

    def renew(self) -> None:
        """Let every backend look anew at what the arrays hold."""
        self._kept_limits.clear()
        self.columns = [(name, seen_anew(array)) for name, array in self.columns]

    def split(self, share: float) -> tuple[Table, Table]:
        """Cut off the last rows for validation, before any shuffling."""
        if not 0 < share < 1:
            raise ValueError(f"`validation_split` must lie in (0, 1), got {share}.")
        at = int(np.floor(self.rows * (1 - share)))
        if at == 0 or at == self.rows:
            raise ValueError(
                f"validation_split={share} of {self.rows} rows leaves one part empty."
            )
        return self._part(slice(0, at)), self._part(slice(at, None))

    def _part(self, rows: slice) -> Table:
        def cut(array: Any) -> Any:
            return None if array is None else array[rows]

        parts = (self.x, self.y, self.sample_weight)
        return Table(*(tree.map_leaves(cut, one) for one in parts))

    def check_finite(self) -> None:
        """Refuse NaN and infinity, naming the array and the first such row."""
        for name, array in self.columns:
            if array.dtype.kind != "f":
                continue
            bad = ~np.isfinite(array.reshape(self.rows, -1)).all(axis=1)
            if bad.any():
                row = int(np.argmax(bad))
                raise ValueError(
                    f"`{name}` holds NaN or infinity in {int(bad.sum())} rows, first "
                    f"in row {row}. Remove or replace them before training."
                )


def _arrays(structure: Any, name: str) -> Any:
    if structure is None:
        return None
    if isinstance(structure, list) and not _is_list_of_arrays(structure):
        structure = as_array(structure, name)
    leaves = named_leaves(structure, name)
    made = [None if leaf is None else as_array(leaf, where) for where, leaf in leaves]
    return tree.pack(structure, made)


def _is_list_of_arrays(values: list[Any]) -> bool:
    """Tell several inputs from one input written as nested lists of numbers."""
    if any(isinstance(one, (tuple, dict)) for one in values):
        values = tree.flatten(values)
    return any(one is None or hasattr(one, "shape") for one in values) and not all(
        np.ndim(one) == 0 for one in values if one is not None
    )


def _common_rows(columns: list[tuple[str, np.ndarray]]) -> int:
    lengths = {}
    for name, array in columns:
        if array.ndim == 0:
            raise ValueError(f"`{name}` is a single number; data needs rows.")
        lengths[name] = len(array)
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ValueError(f"The arrays differ in their number of rows: {text}.")
    rows = next(iter(lengths.values()))
    if rows == 0:
        raise ValueError(f"`{columns[0][0]}` is empty: there is nothing to learn from.")
    return rows


def checked_batch(batch_size: Any, rows: int) -> int:
    """Return the batch size; warn when it is larger than the data."""
    batch = DEFAULT_BATCH if batch_size is None else batch_size
    if not isinstance(batch, (int, np.integer)) or batch < 1:
        raise ValueError(f"`batch_size` must be a whole number >= 1, got {batch!r}.")
    if batch_size is not None and batch > rows:
        warnings.warn(
            f"batch_size={batch} is larger than the data: each epoch is one batch of "
            f"{rows} rows.",
            stacklevel=4,
        )
    return min(int(batch), rows)


def class_weighted(
    y: Any, sample_weight: Any, class_weight: dict[int, float] | None
) -> Any:
    """Return the weight of each row from the weight of its class."""
    if class_weight is None:
        return sample_weight
    if not isinstance(class_weight, dict):
        raise ValueError(
            "`class_weight` is a dictionary of class numbers and weights such as "
            f"{{0: 1.0, 1: 5.0}}, not {class_weight!r:.60}."
        )
    leaves = tree.flatten(y)
    if len(leaves) != 1:
        raise ValueError("`class_weight` works for models with one output only.")
    labels = np.asarray(leaves[0])
    if labels.ndim > 1 and labels.shape[-1] > 1:
        labels = labels.argmax(axis=-1)
    labels = labels.reshape(len(labels), -1)[:, 0].astype(int)
    weights = np.ones(len(labels), config.floatx())
    for number, weight in class_weight.items():
        weights[labels == int(number)] = weight
    return weights if sample_weight is None else weights * np.asarray(sample_weight)


def check_labels(
    labels: np.ndarray, classes: int, name: str, ignored: int | None = None
) -> None:
    """Refuse class numbers that the model has no output for."""
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int32)
    bad = (labels < 0) | (labels >= classes)
    if ignored is not None:
        bad &= labels != ignored
    if bad.any():
        row = int(np.argmax(bad.reshape(len(labels), -1).any(axis=1)))
        raise ValueError(
            f"Label {labels[row].ravel()[0]} in `{name}` (row {row}) is out of range: "
            f"the model has {classes} classes, 0 to {classes - 1}."
            + (" For one output of yes or no use binary_crossentropy." * (classes == 1))
        )


class Batches:
    """A stream of batches: a generator, a `PyDataset`, or any iterable of (x, y, w)."""

    def __init__(
        self,
        source: Any,
        shuffle: bool = False,
        seed: int = 0,
        class_weight: dict[int, float] | None = None,
    ) -> None:
        self._source = source
        self.class_weight = class_weight
        self._shuffle, self._seed = shuffle, seed
        self.pass_number, self.seen = 0, 0  # the pass, and its batches so far
        self._indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        self._open: Iterator[Any] | None = None
        self._began = False
        self.length = self._length()

    def _length(self) -> int | None:
        known = getattr(self._source, "num_batches", None)
        if known is not None and not callable(known):
            return int(known)
        try:
            return len(self._source)
        except TypeError:
            return None

    def batches(
        self, limit: int | None, done: int = 0
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yield one epoch: up to ``limit`` batches, or until the source ends.

        With a limit, an epoch goes on where the one before ended, as in Keras; at the
        end of the source it ends early. ``done`` of the epoch were seen before it was
        interrupted. A generator that ended in an earlier epoch yields nothing.
        """
        if limit is None and not done:
            self.restart()
        _call(self._source, "on_epoch_begin")
        wanted = self.length if limit is None else limit
        count, is_over = done, self._pass_is_over()
        if self._open is None:
            self._open = self._start(done)
        while (wanted is None or count < wanted) and not is_over:
            try:
                batch = next(self._open)
            except StopIteration:
                is_over = True
                break
            self._began = True
            self.seen += 1
            count += 1
            yield unpack(batch)
            is_over = self._pass_is_over()
        if is_over:
            self._open, self.seen = None, 0
            self.pass_number += 1
        if not self._began and not done:
            raise ValueError(
                "The generator yielded no batch: there is nothing to work on. A "
                "generator that was used before is at its end: make a new one."
            )
        is_short = count == 0 or (wanted is not None and count < wanted)
        if is_short or (is_over and self._is_generator()):
            warn_of_end(count, wanted)

    def _pass_is_over(self) -> bool:
        return self.length is not None and self.seen >= self.length

    def _is_generator(self) -> bool:
        return self.length is None and iter(self._source) is self._source

    def _start(self, done: int) -> Iterator[Any]:
        if not self._indexed:
            begun = iter(self._source)
            for _ in range(done):  # what an interrupted run has seen
                next(begun, None)
            return begun
        order: Any = range(len(self._source))
        if self._shuffle:
            order = shuffled(self._seed, self.pass_number, len(order)).tolist()
        return (self._source[index] for index in order[self.seen :])

    def restart(self) -> None:
        """Begin anew with the first batch of what can be read more than once."""
        self._open, self.seen = None, 0

    def end_epoch(self) -> None:
        """Tell a `PyDataset` that an epoch is over."""
        _call(self._source, "on_epoch_end")


def _call(source: Any, hook: str) -> None:
    method = getattr(source, hook, None)
    if method is not None:
        method()


def warn_of_end(count: int, wanted: int | None) -> None:
    """Say, in Keras' words, that the data has ended before the epoch."""
    of = "" if wanted is None else f" of {wanted}"
    warnings.warn(
        "Your input ran out of data; interrupting training. The data ended after "
        f"{count}{of} batches: make sure that it can generate at least "
        "`steps_per_epoch * epochs` batches, or lower `steps_per_epoch`.",
        stacklevel=3,
    )


def unpack(batch: Any) -> tuple[Any, Any, Any]:
    """Return (x, y, sample_weight) from what a generator yields.

    >>> unpack((1, 2))
    (1, 2, None)
    """
    if not isinstance(batch, tuple) and not (
        isinstance(batch, list) and len(batch) in (2, 3)
    ):
        return batch, None, None
    parts = tuple(batch)
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            f"A batch must be (x,), (x, y) or (x, y, sample_weight), not {len(parts)} "
            "parts."
        )
    return (*parts, None, None)[:3]


def is_stream(x: Any) -> bool:
    """Tell a source of batches from arrays."""
    if isinstance(x, (np.ndarray, list, tuple, dict)) or hasattr(x, "shape"):
        return False
    if hasattr(x, "__array__") or hasattr(x, "iloc"):
        return False
    return hasattr(x, "__iter__") or hasattr(x, "__next__") or hasattr(x, "__getitem__")
