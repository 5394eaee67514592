"""The data of `fit`, `evaluate` and `predict`, as tables of rows or as streams.

Arrays become a `Table`, whose rows a compiled step gathers; generators, a `PyDataset`
or a `DataLoader` become a `Stream` of batches. Both are checked against the model
before anything runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ganglion import config, keras2, tree
from ganglion.compiler.ir.shaping import is_float
from ganglion.layers.preprocessing.words import as_text_array, is_text
from ganglion.ops.index_limits import Limit
from ganglion.system.prefetch import ahead_if_slow
from ganglion.system.records import record
from ganglion.training.compile_utils import Outputs, get_loss, is_structured
from ganglion.training.host_rows import MOST_BYTES, RowBatches, split_row
from ganglion.training.lazy_rows import LazyRows, as_lazy
from ganglion.training.state import FunctionalGraph, HostPart, TrainableModel
from ganglion.training.streams import ClassWeight, Stream, unpack

DEFAULT_BATCH = 32
PADDING = "padding"  # the column of a padded table: how many times longer it became


def count(value: Any, name: str, least: int = 1) -> int | None:
    """Return an integer of at least ``least``; None means no choice.

    >>> count(0, "steps_per_epoch")
    Traceback (most recent call last):
    ValueError: `steps_per_epoch` must be an integer >= 1, got 0.
    """
    if value is None:
        return None
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"`{name}` must be an integer >= {least}, got {value!r}.")
    return int(value)


# ---- tables ------------------------------------------------------------------------


def as_array(x: Any, name: str) -> np.ndarray:
    """Return data as an array of a type that steps compute with; refuse other data."""
    array = x if type(x) is np.ndarray else _made_array(x, name)
    if array.dtype == object and _holds_numbers(array):
        array = array.astype(config.floatx())
    if is_float(array.dtype):
        array = array.astype(config.floatx(), copy=False)
    else:
        array = _as_whole_numbers(array, name)
    # Every chunk of steps would copy an array that is not contiguous.
    return fresh_view(np.asarray(array, order="C"))


def _as_whole_numbers(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "biu":
        raise TypeError(
            f"`{name}` has the type {array.dtype}, which is not numbers: encode it as "
            f"numbers first, names by np.unique({name}, return_inverse=True), or begin "
            "the model with a layer for text and an Input(..., dtype='string')."
        )
    if not array.dtype.isnative:  # files of other machines: compiled code has ours
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.itemsize == 8:
        if array.size and max(abs(int(array.min())), abs(int(array.max()))) >= 2**31:
            raise ValueError(f"`{name}` holds integers beyond 32 bits; scale them.")
        array = array.astype(np.int32)
    return array


def _made_array(x: Any, name: str) -> np.ndarray:
    if hasattr(x, "detach"):  # a PyTorch tensor that may require a gradient
        x = x.detach().cpu().numpy()
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(
            f"`{name}` is not a regular array ({error}): its rows have different "
            "shapes; pad them to one length."
        ) from None
    if hasattr(x, "iloc") and array.ndim == 1 and name != "sample_weight":
        array = array[:, np.newaxis]  # a series of pandas is a column, as in Keras
    return array


def _holds_numbers(array: np.ndarray) -> bool:
    """Return whether all objects are numbers, as in a table with bool columns."""
    return all(isinstance(x, (Real, np.bool_)) for x in array.flat)


def as_host_array(x: Any, name: str) -> np.ndarray:
    """Return data that the host computes with as an array: text, or any numbers."""
    if is_text(x):
        return as_text_array(x, f"`{name}`")
    array = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
    has_wide_numbers = array.dtype.kind in "iu" and array.dtype.itemsize == 8
    return array if has_wide_numbers else as_array(array, name)


def fresh_view(array: np.ndarray) -> np.ndarray:
    """Return an array as a new object, so that a GPU copies it again.

    This makes changes in place visible. Read-only arrays are returned unchanged.

    >>> fixed = np.zeros(3)
    >>> fixed.setflags(write=False)
    >>> fresh_view(fixed) is fixed, fresh_view(np.zeros(3)).base is None
    (True, False)
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return array.view()
        owner = owner.base
    return array


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


class Signature(NamedTuple):
    """Everything about its data that the graph of a step depends on; hashable."""

    batch: int
    rows: int | None  # None: the table is one batch, there is nothing to gather
    shuffle: bool
    columns: tuple[tuple[str, tuple[int, ...], np.dtype], ...]  # as a step sees them
    structure: Hashable  # of x, y and weights, whose leaves are the columns' names
    change: Any = None  # of the images of a batch, by its number and the order's seed


class Batch(NamedTuple):
    """The structures of x, y and weights, whose leaves are arrays or column names."""

    x: Any
    y: Any
    sample_weight: Any

    def map(self, function: Callable[[Any], Any]) -> Batch:
        """Apply a function to every leaf that is there."""

        def apply(leaf: Any) -> Any:
            return None if leaf is None else function(leaf)

        x, y, sample_weight = self
        return Batch(
            tree.map_leaves(apply, x),
            tree.map_leaves(apply, y),
            tree.map_leaves(apply, sample_weight),
        )


@record(guarded=True)
class ColumnLimit:
    """A range for the numbers of a column, or for a part of them."""

    column: str
    part: Callable[[np.ndarray], np.ndarray]
    limit: Limit

    def check(self, array: np.ndarray) -> None:
        """Refuse a column that holds a number out of range, naming its row."""
        numbers = self.part(array)
        if is_float(numbers.dtype):
            numbers = np.trunc(numbers)  # as a cast to integers does
        elif numbers.dtype.kind == "b":
            numbers = numbers.astype(np.uint8)
        index = self.limit.first_bad(numbers)
        if index is not None:
            where = f"`{self.column}` (row {index[0]})"
            raise self.limit.error(float(numbers[index]), where)


class Table:
    """Inputs, targets and weights as arrays with the same number of rows.

    Only a batch for a step that the user wrote may have different numbers of rows.

    >>> table = Table(np.zeros((5, 2)), [0, 1, 0, 1, 0])
    >>> table.rows, [name for name, _ in table.columns]
    (5, ['x', 'y'])
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        may_differ: bool = False,
    ) -> None:
        self.parts = Batch(
            _arrays(x, "x"), _arrays(y, "y"), _arrays(sample_weight, "sample_weight")
        )
        self.columns: list[tuple[str, np.ndarray]] = []
        self._is_nested = False
        self.names = Batch(*map(self._named, self.parts, Batch._fields))
        self._structure: Hashable = repr(self.names) if self._is_nested else self.names
        self.rows = _common_rows(self.columns, may_differ)
        # What a generator of augmented images needs, else None.
        self.batch_size: int | None = None
        self.shuffle: bool | None = None
        self.change: Any = None
        self._checked: set[ColumnLimit] = set()

    def as_keras2_list(self) -> list[np.ndarray]:
        """Return inputs, targets and weights as Keras 2 passed them to callbacks."""
        x, y, weights = (
            [leaf for leaf in tree.flatten(part) if leaf is not None]
            for part in self.parts
        )
        columns = [a[:, None] if a.ndim == 1 else a for a in (*x, *y)]
        return columns + (weights or [np.ones(self.rows) for _ in y])

    def _named(self, structure: Any, part: str) -> Any:
        """Add the columns of a part; return their names in its structure."""
        if isinstance(structure, np.ndarray):
            self.columns.append((part, structure))
            return part
        if structure is None:
            return None
        self._is_nested = True
        leaves = named_leaves(structure, part)
        # Labels that no loss needs and weights of no output may be None.
        self.columns += [(name, leaf) for name, leaf in leaves if leaf is not None]
        known = [None if leaf is None else name for name, leaf in leaves]
        return tree.pack(structure, known)

    def signature(self, batch: int, rows: int | None, shuffle: bool) -> Signature:
        """Return the signature of a step over this table."""
        columns = [
            (name, (batch, *array.shape[1:]) if rows else array.shape, array.dtype)
            for name, array in self.columns
        ]
        structure, change = self._structure, self.change
        return Signature(batch, rows, shuffle, tuple(columns), structure, change)

    def is_one_batch(self, size: int, steps: int | None) -> bool:
        """Return whether all rows are one batch, so that none need be gathered.

        A generator's change of its images depends on the position in the epoch.
        """
        return self.rows <= size and steps in (None, 1) and self.change is None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the columns by name."""
        return dict(self.columns)

    def check(self, limits: Iterable[ColumnLimit]) -> None:
        """Refuse indices and labels out of range; each limit is checked once."""
        for limit in limits:
            if limit not in self._checked:
                limit.check(self.arrays()[limit.column])
                self._checked.add(limit)

    def renew(self) -> None:
        """Make every backend read the arrays again."""
        self._checked.clear()
        self.columns = [(name, fresh_view(array)) for name, array in self.columns]

    def split(self, share: float) -> tuple[Table, Table]:
        """Split off the last rows for validation, before any shuffling."""
        at = split_row(self.rows, share)
        first = self.parts.map(lambda array: array[:at])
        return Table(*first), Table(*self.parts.map(lambda array: array[at:]))

    def check_finite(self) -> None:
        """Refuse NaN and infinity, naming the array and the first such row."""
        for name, array in self.columns:
            if array.dtype.kind != "f":
                continue
            bad = ~np.isfinite(array.reshape(self.rows, -1)).all(axis=1)
            if bad.any():
                raise ValueError(
                    f"`{name}` holds NaN or infinity in {int(bad.sum())} rows, first "
                    f"in row {int(np.argmax(bad))}. Remove or replace them before "
                    "training."
                )


def _arrays(
    structure: Any, name: str, convert: Callable[[Any, str], np.ndarray] = as_array
) -> Any:
    if structure is None:
        return None
    is_nested = isinstance(structure, (dict, list, tuple))
    if not is_nested or (
        isinstance(structure, list) and not _is_list_of_inputs(structure)
    ):
        return convert(structure, name)
    leaves = named_leaves(structure, name)
    arrays = [None if leaf is None else convert(leaf, path) for path, leaf in leaves]
    return tree.pack(structure, arrays)


def _is_list_of_inputs(values: list[Any]) -> bool:
    """Return whether these are several inputs, not one as nested lists of numbers."""
    if any(isinstance(value, (tuple, dict)) for value in values):
        values = tree.flatten(values)
    return any(value is None or hasattr(value, "shape") for value in values) and not (
        all(np.ndim(value) == 0 for value in values if value is not None)
    )


def _common_rows(
    columns: list[tuple[str, np.ndarray]], may_differ: bool = False
) -> int:
    for name, array in columns:
        if array.ndim == 0:
            raise ValueError(f"`{name}` is a single number; data needs rows.")
    rows = len(columns[0][1])
    if not may_differ and any(len(array) != rows for _, array in columns):
        text = ", ".join(f"{name} has {len(array)}" for name, array in columns)
        raise ValueError(f"The arrays differ in their number of rows: {text}.")
    if rows == 0:
        raise ValueError(f"`{columns[0][0]}` is empty: there are no rows.")
    return rows


def checked_batch(batch_size: Any, rows: int, stacklevel: int) -> int:
    """Return the batch size; warn when it is larger than the data."""
    batch = DEFAULT_BATCH if batch_size is None else batch_size
    if not isinstance(batch, (int, np.integer)) or batch < 1:
        raise ValueError(f"`batch_size` must be an integer >= 1, got {batch!r}.")
    if batch_size is not None and batch > rows:
        warnings.warn(
            f"batch_size={batch} is larger than the data: each epoch is one batch of "
            f"{rows} rows.",
            stacklevel=stacklevel,
        )
    return min(int(batch), rows)


def class_weighted(
    y: Any, sample_weight: Any, class_weight: ClassWeight, held_out: float = 0.0
) -> Any:
    """Return the weight of each row from the weight of its class.

    Rows that are `held_out` at the end, by their share, keep their own weights.
    """
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
    if held_out and not keras2.is_own:  # Keras 2 itself weighted them before the split
        weights[split_row(len(weights), held_out) :] = 1
    return weights if sample_weight is None else weights * np.asarray(sample_weight)


# ---- the data of a model ------------------------------------------------------------

Source = Table | Stream


def as_rows(x: Any, y: Any, batch_size: Any) -> tuple[Any, Any, Any, bool | None]:
    """Return x, y, the batch size and whether to shuffle.

    A folder of images is a stream of batches that lies in memory: its rows are gathered
    inside the compiled step, not in Python. As in Keras, a `batch_size` beside batches
    that are already made counts for nothing.
    """
    method = getattr(x, "as_rows", None)
    rows = method() if callable(method) else None
    if rows is None or y is not None:
        return x, y, batch_size, None
    return rows["x"], rows["y"], rows["batch_size"], rows["shuffle"]


def is_stream(x: Any) -> bool:
    """Return whether this is a source of batches, not arrays."""
    if isinstance(x, (np.ndarray, list, tuple, dict)) or hasattr(x, "shape"):
        return False
    if hasattr(x, "__array__") or hasattr(x, "iloc"):
        return False
    return hasattr(x, "__iter__") or hasattr(x, "__next__") or hasattr(x, "__getitem__")


def training_source(
    model: TrainableModel,
    x: Any,
    y: Any,
    sample_weight: Any,
    class_weight: ClassWeight,
    shuffle: bool,
    refused_for_streams: dict[str, bool],
    batch_size: int | None = None,
    held_out: float = 0.0,
) -> Source:
    """Return the data of `fit`, of whose rows a share may be `held_out` at the end."""
    if x is None:
        raise ValueError("`fit` needs data: arrays x and y, or a generator.")
    if not is_stream(x):
        weight = class_weighted(y, sample_weight, class_weight, held_out)
        return rows(model, x, y, weight, batch_size, shuffle)
    for name, is_given in refused_for_streams.items():
        if is_given:
            raise ValueError(
                f"`{name}` cannot be given with a generator: its batches hold x, y and "
                "sample weights."
            )
    if changes_in_the_step(x):
        return _changing_table(model, x, class_weight)
    seed = int(model.training_state.order.array[0])
    return Stream(x, shuffle=shuffle, seed=seed, class_weight=class_weight)


def changes_in_the_step(x: Any) -> bool:
    """Return whether these are batches of images that a compiled step can change."""
    in_the_step = getattr(x, "in_the_step", None)
    return callable(in_the_step) and in_the_step()


def _changing_table(
    model: TrainableModel, x: Any, class_weight: ClassWeight = None
) -> Table:
    """Return the unchanged rows of a generator's batches, with their change."""
    inputs, y, weight = x.columns()
    rows = table(model, inputs, y, class_weighted(y, weight, class_weight))
    rows.batch_size = min(x.batch_size, rows.rows)
    rows.shuffle, rows.change = x.shuffle, x.change
    return rows


def validation_source(
    model: TrainableModel, validation_data: Any, batch_size: int | None = None
) -> Source:
    """Return the source for `validation_data`."""
    x, y, own_size, shuffle = as_rows(validation_data, None, None)
    if shuffle is not None:
        held_out = table(model, x, y)
        held_out.batch_size = own_size
        return held_out
    if is_stream(validation_data):
        return source(model, validation_data)
    is_tuple = isinstance(validation_data, (tuple, list))
    if model.has_own_steps and not is_tuple:
        return rows(model, validation_data, None, None, batch_size)
    if not is_tuple or not 2 <= len(validation_data) <= 3:
        raise ValueError(
            "`validation_data` must be (x, y), (x, y, sample_weight) or a source of "
            f"batches, not {type(validation_data).__name__}."
        )
    x, y, weight = unpack(tuple(validation_data))
    return rows(model, x, y, weight, batch_size)


def source(
    model: TrainableModel,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
) -> Source:
    """Return the data of `evaluate` and `predict`."""
    if isinstance(x, (Table, Stream)):
        return x
    if not is_stream(x):
        return rows(model, x, y, sample_weight, batch_size)
    # In order only: what is predicted follows the order of the batches.
    if changes_in_the_step(x) and not x.shuffle:
        return _changing_table(model, x)
    return Stream(x)


def rows(
    model: TrainableModel,
    x: Any,
    y: Any,
    sample_weight: Any,
    batch_size: int | None = None,
    shuffle: bool = False,
) -> Source:
    """Return arrays as a table, or as a stream of batches.

    A stream is for rows that are read batch by batch, and for models whose host part
    computes much.
    """
    _build_on_text(model, x)
    part = host_part(model)
    if part is None and all(map(_is_plain, tree.flatten([x, y, sample_weight]))):
        return table(model, x, y, sample_weight)
    x = tree.map_leaves(as_lazy, x)
    y = tree.map_leaves(as_lazy, y)
    sample_weight = tree.map_leaves(as_lazy, sample_weight)
    is_lazy = LazyRows in map(type, tree.flatten([x, y, sample_weight]))
    if part is None and not is_lazy:
        return table(model, x, y, sample_weight)
    parts = Batch(
        _arrays(x, "x", as_column)
        if part is None
        else _arrays(_ordered_inputs(model, x), "x", as_host_rows),
        _arrays(y, "y", as_column),
        _arrays(sample_weight, "sample_weight", as_column),
    )
    named = zip(parts, Batch._fields, strict=True)
    leaves = [leaf for part in named for leaf in named_leaves(*part)]
    count = _common_rows([leaf for leaf in leaves if leaf[1] is not None])
    is_table = part is not None and not is_lazy and part.reason_against_steps is None
    if is_table and part is not None and part.row_bytes() * count <= MOST_BYTES:
        return table(model, *parts)
    batches = RowBatches(tuple(parts), count, checked_batch(batch_size, count, 6))
    return Stream(batches, shuffle, int(model.training_state.order.array[0]))


def _is_plain(column: Any) -> bool:
    """Return whether this is an array in memory, or nothing."""
    return column is None or type(column) is np.ndarray


def as_column(x: Any, name: str) -> Any:
    """Return data as an array; rows that are read batch by batch are left unchanged."""
    return x if isinstance(x, LazyRows) else as_array(x, name)


def as_host_rows(x: Any, name: str) -> Any:
    """Return data for the host as an array; lazy rows are left unchanged."""
    return x if isinstance(x, LazyRows) else as_host_array(x, name)


def tables(
    model: TrainableModel, stream: Stream, limit: int | None, done: int = 0
) -> Iterator[tuple[Table, int]]:
    """Yield an epoch of a stream as tables, each with the batches seen with it.

    Batches that take time are prepared ahead in a thread, including the host part of a
    model: a step waits only if batches are slower than it is. The first batch is drawn
    in the calling thread, as a model may be built on it.
    """
    drawn = ((batch, stream.seen) for batch in stream.batches(limit, done))

    def prepared(item: tuple[tuple[Any, Any, Any], int]) -> tuple[Table, int]:
        (x, y, weight), seen = item
        weight = class_weighted(y, weight, stream.class_weight)
        return table(model, x, y, weight, is_batch=True), seen

    return ahead_if_slow(map(prepared, drawn))


def host_part(model: TrainableModel) -> HostPart | None:
    """Return the part of a model that runs on the host, None if it has none."""
    return None if model._network is None else model._network.host_part


def is_never_compiled(model: TrainableModel) -> bool:
    """Return whether a model returns text or looks up computed values on the host."""
    part = host_part(model)
    return part is not None and part.reason_against_steps is not None


def _build_on_text(model: TrainableModel, x: Any) -> None:
    """Build a Sequential without an Input on text: no trace could."""
    if model._network is None and is_text(x):
        if not hasattr(model, "_stack"):
            raise TypeError(
                f'The model "{model.name}" has a `call` of its own, which is compiled, '
                "and text is not: call its layers for text on the data before `fit`, "
                "or make it a functional model."
            )
        model.build((None, *np.shape(x)[1:]))


def _ordered_inputs(model: TrainableModel, x: Any) -> Any:
    network = model._network
    assert network is not None
    if isinstance(x, dict):
        x = {key: _alone_as_array(part) for key, part in x.items()}
    if isinstance(network.inputs, dict):
        return network.matched(x)
    return _in_order(x, network.input_names) if isinstance(x, dict) else x


def _alone_as_array(part: Any) -> Any:
    """Return a list of numbers or texts as an array, a list of inputs as it is."""
    is_column = isinstance(part, list) and not _is_list_of_inputs(part)
    return np.asarray(part) if is_column else part


def table(
    model: TrainableModel,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    is_batch: bool = False,
) -> Table:
    """Return arrays as a table, in the order of the model's inputs and outputs."""
    _build_on_text(model, x)
    network = model._network
    if network is None or (model.has_own_steps and network.host_part is None):
        may_differ = is_batch and model.has_own_steps
        return Table(x, y, sample_weight, may_differ=may_differ)
    x = _ordered_inputs(model, x)
    _check_inputs(network, x)
    if network.host_part is not None:
        x = network.host_part.run(_arrays(x, "x", as_host_array))
    if isinstance(y, dict) and not isinstance(network.outputs, dict):
        y = _in_order(y, network.output_names)
    rows = Table(x, y, sample_weight)
    if y is not None and model.loss is not None and not model.overrides_loss:
        _check_targets(network, model.chosen_loss, rows.parts.y)
    return rows


def _in_order(data: dict[str, Any], names: list[str]) -> Any:
    if not set(names) <= set(data):
        return data
    picked = [data[name] for name in names]
    return picked if len(picked) > 1 else picked[0]


def _check_inputs(network: FunctionalGraph, x: Any) -> None:
    """Raise for rows in place of inputs, and for a row in place of a batch of rows."""
    tensors = network.flat_inputs
    is_list = isinstance(x, (list, tuple)) and len(x) > 0
    if is_list and len(x) == len(tensors):
        for tensor, part, name in zip(tensors, x, network.input_names, strict=True):
            operation = getattr(tensor.call, "operation", None)
            if part is None and not getattr(operation, "optional", False):
                raise ValueError(
                    f'The input "{name}" is not optional, but its data is None.'
                )
    is_list = is_list and all(hasattr(part, "shape") for part in x)
    if is_list and len(x) != len(tensors):
        raise ValueError(
            f"`x` is a list of {len(x)} arrays, which means one array for each "
            f"input, but the model has {len(tensors)} input(s). Stack rows with "
            "np.array(x), and give labels apart, as `y`."
        )
    for tensor, array in zip(tensors, x if is_list else [x], strict=False):
        shape = getattr(array, "shape", None)
        wanted = tensor.shape[1:]
        if shape is None or len(shape) != len(wanted) or not shape:
            continue
        lacks_channel = wanted[-1] == 1 and tuple(shape[1:]) == wanted[:-1]
        if tuple(shape) == wanted and not lacks_channel:
            raise ValueError(
                f"`x` has shape {tuple(shape)}, that of a single row: the model takes "
                f"batches of shape {tensor.shape}. Add the axis: x[None]."
            )


def _check_targets(network: FunctionalGraph, loss: Any, y: Any) -> None:
    """Refuse class numbers that the model has no output for."""
    outputs = Outputs(network.outputs, network.output_names)
    if is_structured(loss, outputs):  # a step finds out which loss is of which output
        return
    chosen = outputs.assign(loss, "loss")
    labels = outputs.align(y, "labels", [loss is not None for loss in chosen])
    for identifier, output, array in zip(chosen, outputs.leaves, labels, strict=True):
        classes = output.shape[-1]
        if identifier is None or classes is None:
            continue
        resolved = get_loss(identifier, array, output)
        if resolved.takes_class_numbers:
            ignored = getattr(resolved, "ignore_class", None)
            _check_labels(array, classes, ignored)


def _check_labels(labels: np.ndarray, classes: int, ignored: int | None) -> None:
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int32)
    bad = (labels < 0) | (labels >= classes)
    if ignored is not None:
        bad &= labels != ignored
    if bad.any():
        row = int(np.argmax(bad.reshape(len(labels), -1).any(axis=1)))
        raise ValueError(
            f"Label {labels[row].ravel()[0]} in `y` (row {row}) is out of range: "
            f"the model has {classes} classes, 0 to {classes - 1}."
            + (" For one output of yes or no use binary_crossentropy." * (classes == 1))
        )
