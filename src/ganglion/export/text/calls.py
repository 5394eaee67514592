"""The steps before a graph as calls of `routines`, with tables and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion.export.planning import ALIGNMENT
from ganglion.export.text import routines
from ganglion.export.text.front import (
    INT64,
    Cross,
    Front,
    Hash,
    LookUp,
    Salt,
    Step,
    Table,
    Vectorize,
)

_DIGITS = 20  # of a 64-bit integer, with its sign
_MODULUS = 2**64


@dataclass(frozen=True)
class InputArgument:
    """An argument: the input of the model with this number."""

    number: int


@dataclass(frozen=True)
class Memory:
    """An argument: the workspace from this byte on."""

    start: int


Argument = int | np.ndarray | InputArgument | Memory


@dataclass(frozen=True)
class RoutineCall:
    """A call of a routine; `source` is the type of its `Source`, if there is any."""

    routine: str
    arguments: tuple[Argument, ...]
    source: np.dtype | None = None


class FrontCode:
    """The calls that run before a graph for some rows, and where their results lie.

    Args:
        front: The steps.
        rows: How many rows are computed at once.
        start: The first byte of the workspace that is free.
        tables: A cache of the arrays of vocabularies, by their tables.
    """

    def __init__(
        self, front: Front, rows: int, start: int, tables: dict[Table, Any]
    ) -> None:
        self._front, self._rows, self._tables = front, rows, tables
        self.end = start
        self._places: list[InputArgument | Memory] = [
            InputArgument(number) for number in range(len(front.inputs))
        ]
        self.calls: list[RoutineCall] = []
        for step in front.steps:
            place = self._memory(rows * step.result.size * INT64.itemsize)
            self.calls += self._of_step(step, place)
            self._places.append(place)

    def place(self, name: str) -> InputArgument | Memory:
        """Return the address of an input of the graph, by its name."""
        names = [value.name for value in self._front.values]
        return self._places[names.index(name)]

    def arrays(self) -> list[np.ndarray]:
        """Return the tables that routines read."""
        arguments = [argument for call in self.calls for argument in call.arguments]
        return [a for a in arguments if isinstance(a, np.ndarray)]

    def _memory(self, size: int) -> Memory:
        place = Memory(-(-self.end // ALIGNMENT) * ALIGNMENT)
        self.end = place.start + size
        return place

    # ---- steps -------------------------------------------------------------------

    def _of_step(self, step: Step, out: Memory) -> list[RoutineCall]:
        count = self._rows * step.result.size
        if isinstance(step, Vectorize):
            return [self._vectorize(step, out)]
        if isinstance(step, Cross):
            return list(self._cross(step, count, out))
        (number,) = step.sources
        if isinstance(step, LookUp):
            return list(self._look_up(step, number, count, out))
        assert isinstance(step, Hash)
        return list(self._hash(step, number, count, out))

    def _vectorize(self, step: Vectorize, out: Memory) -> RoutineCall:
        table = step.table
        most = max(map(len, table.keys), default=0)
        split = routines.CHARACTERS if step.by_character else routines.SPACES
        return RoutineCall(
            "vectorize",
            (
                self._places[step.sources[0]], self._rows, out, step.result.size,
                int(step.counts), self._memory(most), most, self._memory(16),
                int(step.lower), int(step.strip), split,
                np.array(step.widths, np.int64), len(step.widths),
                *self._words(table), table.unknown % _MODULUS,
            ),
        )  # fmt: skip

    def _look_up(
        self, step: LookUp, number: int, count: int, out: Memory
    ) -> Iterator[RoutineCall]:
        table = step.table
        salt = _salted(table.salt)
        more = (table.unknown % _MODULUS, table.buckets)
        if self._front.values[number].is_text:
            words = self._words(table)
            arguments = (self._places[number], count, out, *words, *more, *salt)
            yield RoutineCall("look_words_up", arguments)
            return
        order = np.argsort(np.array(table.keys, np.int64))
        keys, values = (
            np.array(column, np.int64)[order] for column in (table.keys, table.values)
        )
        numbers = yield from self._whole(number, count)
        by_hash = (int(table.by_hash), self._memory(_DIGITS))
        arguments = (numbers, count, out, keys, values, len(keys), *more, *by_hash)
        yield RoutineCall("look_numbers_up", (*arguments, *salt))

    def _hash(
        self, step: Hash, number: int, count: int, out: Memory
    ) -> Iterator[RoutineCall]:
        has_mask, salt = step.mask is not None, _salted(step.salt)
        bins = step.bins - has_mask
        if self._front.values[number].is_text:
            mask = step.mask.encode() if isinstance(step.mask, str) else step.mask
            is_word = isinstance(mask, bytes)  # a number is no word's mask
            length = len(mask) if is_word else _MODULUS - 1
            letters = _letters(mask if is_word else b"")
            mask_arguments = (int(has_mask), letters, length)
            place = self._places[number]
            yield RoutineCall(
                "hash_words", (place, count, out, bins, *mask_arguments, *salt)
            )
            return
        numbers = yield from self._whole(number, count)
        mask = int(step.mask or 0) % _MODULUS
        digits = self._memory(_DIGITS)
        arguments = (numbers, count, out, digits, bins, int(has_mask), mask, *salt)
        yield RoutineCall("hash_numbers", arguments)

    def _cross(self, step: Cross, count: int, out: Memory) -> Iterator[RoutineCall]:
        yield RoutineCall("begin_cross", (out, count))
        for number in step.sources:
            if self._front.values[number].is_text:
                place = self._places[number]
                yield RoutineCall("cross_words", (place, count, out))
            else:
                numbers = yield from self._whole(number, count)
                yield RoutineCall("cross_numbers", (numbers, count, out))
        yield RoutineCall("end_cross", (out, count, step.bins))

    def _whole(self, number: int, count: int) -> Any:
        """Return the address of numbers as int64, after a call that converts them."""
        dtype = self._front.values[number].dtype
        if dtype == INT64:
            return self._places[number]
        place = self._memory(count * INT64.itemsize)
        yield RoutineCall("as_whole", (self._places[number], count, place), dtype)
        return place

    def _words(self, table: Table) -> Sequence[Argument]:
        if table not in self._tables:
            self._tables[table] = word_table(table)
        words: Sequence[Argument] = self._tables[table]
        return words


def _salted(salt: Salt) -> tuple[int, int, int]:
    first, second = salt.key or (0, 0)
    return int(salt.key is not None), first % _MODULUS, second % _MODULUS


def word_table(table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, Any]:
    """Return slots, starts and letters of words, the mask of a slot, and the indices.

    Words are concatenated; at least half of the slots are empty.
    """
    words = table.keys
    size = 1 << max(2 * len(words), 2).bit_length()
    slots = np.zeros(size, np.int32)
    for entry, word in enumerate(words, 1):
        slot = _slot_of(word, size - 1)
        while slots[slot]:
            slot = (slot + 1) & (size - 1)
        slots[slot] = entry
    starts = np.zeros(len(words) + 1, np.int32)
    np.cumsum([len(word) for word in words], out=starts[1:])
    letters = _letters(b"".join(words))
    return slots, starts, letters, size - 1, np.array(table.values, np.int64)


def _letters(text: bytes) -> np.ndarray:
    return np.frombuffer(text or b"\0", np.uint8)  # C has no empty arrays


def _slot_of(word: bytes, mask: int) -> int:
    """As `routines.slot_of`."""
    number = 14695981039346656037
    for letter in word:
        number = (number ^ letter) * 1099511628211 % _MODULUS
    return (number ^ (number >> 32)) & mask
