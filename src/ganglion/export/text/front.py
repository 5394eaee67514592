"""The front of a model: layers for text, lookups and hashes before its graph, as steps.

In training they run on the host; an exported file contains them. A step returns whole
numbers, indices or counts, which are inputs of the file's graph; the encoding of these
(one-hot rows, weights of words) becomes the beginning of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ganglion import layers, ops
from ganglion.export.ports import Port
from ganglion.layers.preprocessing.index_lookup import DROPPED
from ganglion.symbolic import KerasTensor

INT64 = np.dtype("int64")
UNKNOWN = -1  # the index of a word that no table has, where a layer refuses those


@dataclass(frozen=True)
class Salt:
    """The key of a hash of words: FarmHash without a key, SipHash with one."""

    key: tuple[int, int] | None = None

    @staticmethod
    def of(layer: Any) -> Salt:
        """Return the salt of a layer."""
        return Salt(None if layer.salt is None else tuple(layer.salt))


@dataclass(frozen=True)
class Table:
    """A vocabulary: keys (bytes or integers), and the index of each.

    Args:
        keys: Distinct keys.
        values: The index of each key.
        unknown: The first index for unknown keys.
        buckets: How many such indices there are.
        by_hash: Whether unknown numbers are spread over these by a hash of their text.
        salt: The salt of that hash.
    """

    keys: tuple[Any, ...]
    values: tuple[int, ...]
    unknown: int
    buckets: int = 1
    by_hash: bool = True
    salt: Salt = Salt()

    @staticmethod
    def of(lookup: Any) -> Table:
        """Return the table of a `StringLookup` or `IntegerLookup`."""
        start, tokens = lookup._token_start(), list(lookup._tokens)
        values = list(range(start, start + len(tokens)))
        if lookup.mask_token is not None:
            tokens.append(lookup._token(lookup.mask_token))
            values.append(0 if lookup.output_mode == "int" else DROPPED)
        unknown = lookup._oov_start() if lookup.num_oov_indices else UNKNOWN
        return Table(
            tuple(tokens),
            tuple(values),
            unknown,
            lookup.num_oov_indices,
            lookup.oov_method == "farmhash",
            Salt.of(lookup),
        )


@dataclass(frozen=True)
class Step:
    """A layer on the host: the values that it reads, and its result.

    Values are numbered: the inputs of the file, then the results of steps.
    """

    layer: Any
    sources: tuple[int, ...]
    result: Port  # int64


@dataclass(frozen=True)
class LookUp(Step):
    """Words or integers as indices of a table."""

    table: Table


@dataclass(frozen=True)
class Vectorize(Step):
    """Texts as rows of indices of their words, or of how often each word occurs."""

    table: Table
    lower: bool
    strip: bool
    by_character: bool
    widths: tuple[int, ...]  # of n-grams
    counts: bool


@dataclass(frozen=True)
class Hash(Step):
    """Words or integers as numbers of buckets."""

    bins: int
    mask: Any
    salt: Salt


@dataclass(frozen=True)
class Cross(Step):
    """Combinations of words and integers as numbers of buckets."""

    bins: int


Finish = Callable[[Any], Any]
Known = dict[KerasTensor, tuple[int, Finish]]


@dataclass(frozen=True)
class Front:
    """Everything that runs before the graph of a file.

    Args:
        inputs: The inputs of the file.
        steps: The steps in order.
        crossing: The numbers of the values that are inputs of the graph.
        finishes: The functions that the graph first applies to each of those.
    """

    inputs: tuple[Port, ...]
    steps: tuple[Step, ...]
    crossing: tuple[int, ...]
    finishes: tuple[Finish, ...]

    @cached_property
    def values(self) -> tuple[Port, ...]:
        """All values."""
        return (*self.inputs, *(step.result for step in self.steps))

    @cached_property
    def begins_with(self) -> tuple[Port, ...]:
        """The inputs of the graph."""
        return tuple(self.values[number] for number in self.crossing)

    @property
    def is_plain(self) -> bool:
        """Whether the graph uses all of its inputs without encoding them."""
        return all(finish is _identity for finish in self.finishes)

    def finished(self, values: Sequence[Any]) -> list[Any]:
        """Return the inputs of the graph, encoded as the layers do."""
        pairs = zip(self.finishes, values, strict=True)
        return [finish(value) for finish, value in pairs]


def front_of(network: Any, inputs: Sequence[Port]) -> Front:
    """Return the front of a functional model; refuse layers that no file can hold."""
    reader = _Reader(inputs)
    known: Known = {
        tensor: (number, _identity) for number, tensor in enumerate(network.flat_inputs)
    }
    crossing = reader.read(network.host_part, known)
    return Front(
        tuple(inputs),
        tuple(reader.steps),
        tuple(number for number, _ in crossing),
        tuple(finish for _, finish in crossing),
    )


class _Reader:
    """Collects the steps of a host part, including those of nested models."""

    def __init__(self, inputs: Sequence[Port]) -> None:
        self._inputs = inputs
        self.steps: list[Step] = []

    def read(self, part: Any, known: Known) -> list[tuple[int, Finish]]:
        """Return the values that cross over to the graph, in order."""
        if part.reason_against_steps is not None:
            raise ValueError(part.reason_against_steps)
        for call in part.calls:
            known[call.outputs] = self._added(call, known)
        crossing = [known[tensor] for tensor in part.outputs]
        for call in part.nested:
            inner = call.operation._network
            passed = [known[tensor] for tensor in call.inputs]
            crossing += self.read(
                inner.host_part, dict(zip(inner.flat_inputs, passed, strict=True))
            )
        return crossing

    def _added(self, call: Any, known: Known) -> tuple[int, Finish]:
        layer = call.operation
        make = next((m for kind, m in _MAKERS.items() if isinstance(layer, kind)), None)
        if make is None:
            name = getattr(layer, "name", None) or getattr(layer, "__name__", "?")
            raise ValueError(
                f'Layer "{name}" ({type(layer).__name__}) lies before a layer for text '
                "or categories, where exported files have lookups and hashes alone: "
                "put it behind, or compute what it does in the data."
            )
        sources = [known[tensor] for tensor in call.inputs]
        if any(finish is not _identity for _, finish in sources):
            raise _refused(layer, "reads what another such layer has encoded")
        values = [*self._inputs, *(step.result for step in self.steps)]
        numbers = tuple(number for number, _ in sources)
        step, finish = make(layer, numbers, [values[number] for number in numbers])
        # A layer may be called twice, or have the name of an input.
        name = f"{step.result.name}/{len(self.steps)}"
        result = replace(step.result, name=name)
        self.steps.append(replace(step, result=result))
        return len(values), finish


def _refused(layer: Any, reason: str) -> ValueError:
    return ValueError(
        f'Layer "{layer.name}" ({type(layer).__name__}) {reason}, which no exported '
        "file can: export the model that begins behind it, and compute its numbers "
        "where the model is called."
    )


def _result(layer: Any, shape: Sequence[int]) -> Port:
    return Port(layer.name, tuple(shape), INT64)


# ---- layers --------------------------------------------------------------------------


def _text_vectorization(
    layer: Any, numbers: tuple[int, ...], sources: Sequence[Port]
) -> tuple[Step, Finish]:
    for what in ("standardize", "split"):
        if callable(getattr(layer, f"_{what}")):
            raise _refused(layer, f"has a Python function for `{what}`")
    if layer._split is None:
        raise _refused(layer, "takes texts that are split already (`split=None`)")
    (source,) = sources
    if source.size != 1:
        raise ValueError(
            f'Layer "{layer.name}" takes one text a row, the input "{source.name}" has '
            f"rows of shape {source.shape}."
        )
    lookup, mode = layer._lookup_layer, layer._output_mode
    counts = mode not in ("int", "one_hot")
    size = lookup.checked_depth() if counts else layer._length
    if size is None:
        raise ValueError(
            f'Layer "{layer.name}" gives rows as long as the longest text of a batch, '
            "and an exported file has fixed sizes: give it `output_sequence_length`."
        )
    how = layer._standardize or ""
    step = Vectorize(
        layer,
        numbers,
        _result(layer, (size,)),
        Table.of(lookup),
        "lower" in how,
        "strip" in how,
        layer._split == "character",
        layer._ngrams or (1,),
        counts,
    )
    return step, partial(_counted, layer=lookup) if counts else _identity


def _lookup(
    layer: Any, numbers: tuple[int, ...], sources: Sequence[Port]
) -> tuple[Step, Finish]:
    (source,) = sources
    step = LookUp(layer, numbers, _result(layer, source.shape), Table.of(layer))
    depth = 0 if layer.output_mode == "int" else layer.checked_depth()
    return step, _encoding(layer, depth)


def _hashing(
    layer: Any, numbers: tuple[int, ...], sources: Sequence[Port]
) -> tuple[Step, Finish]:
    (source,) = sources
    mask = layer.mask_value if layer.num_bins > 1 else None
    if mask is not None and not source.is_text and source.dtype.kind == "f":
        raise _refused(layer, "compares numbers with a point with its `mask_value`")
    result = _result(layer, source.shape)
    step = Hash(layer, numbers, result, layer.num_bins, mask, Salt.of(layer))
    return step, _encoding(layer, layer.num_bins)


def _crossing(
    layer: Any, numbers: tuple[int, ...], sources: Sequence[Port]
) -> tuple[Step, Finish]:
    step = Cross(layer, numbers, _result(layer, sources[0].shape), layer.num_bins)
    return step, _encoding(layer, layer.num_bins)


_MAKERS: dict[type, Callable[..., tuple[Step, Finish]]] = {
    layers.TextVectorization: _text_vectorization,
    layers.StringLookup: _lookup,
    layers.IntegerLookup: _lookup,
    layers.Hashing: _hashing,
    layers.HashedCrossing: _crossing,
}


# ---- the first steps of the graph ----------------------------------------------------


def _identity(value: Any) -> Any:
    return value


def _encoding(layer: Any, depth: int) -> Finish:
    if layer.output_mode != "int":
        return partial(_encoded, layer=layer, depth=depth)
    return partial(ops.cast, dtype="int32") if layer.dtype == "int32" else _identity


def _encoded(indices: Any, layer: Any, depth: int) -> Any:
    """Return indices as one-hot rows or as counts; indices out of range are ignored."""
    mode, dtype = layer.output_mode, layer.output_dtype
    if mode == "one_hot":
        if indices.ndim > 1 and indices.shape[-1] == 1:
            indices = ops.squeeze(indices, -1)
        return ops.one_hot(indices, depth, dtype=dtype)
    counts = ops.sum(ops.one_hot(indices, depth, dtype=dtype), axis=1)
    return _weighted(counts, layer)


def _counted(counts: Any, layer: Any) -> Any:
    counts = ops.cast(counts, "int32")  # small processors have no floats of 64 bits
    return _weighted(ops.cast(counts, layer.output_dtype), layer)


def _weighted(counts: Any, layer: Any) -> Any:
    if layer.output_mode == "multi_hot":
        return ops.minimum(counts, 1)
    if layer.output_mode == "tf_idf":
        return counts * layer.idf_weights
    return counts
