"""Texts as lists of word numbers: how Keras' files are read, and rows are chosen.

Keras keeps such lists as a pickled array. They are read by `system.pickles`, which
calls nothing: the three names that stand in such a file (an array, its type, and how it
is made) are data here. Any other name, and any element that is not a list of whole
numbers, is refused.
"""

import dataclasses
import io
import itertools
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ganglion.datasets.decode import Record, npy, npy_head
from ganglion.datasets.keras_files import KerasFile
from ganglion.datasets.loading import DataSet
from ganglion.system import budget
from ganglion.system.pickles import Dialect, Machine, Name, RefusedError

Words = npt.NDArray[np.int32]
Labels = npt.NDArray[np.int64]
TextSplit = tuple[npt.NDArray[np.object_], Labels]


class _Columns(NamedTuple):
    words: Words
    lengths: Words
    labels: Labels
    parts: Words


class Texts(Record, _Columns):
    """Texts, one after the other; their lengths, their labels, and the sizes of parts.

    A part is the training data or the test data, where they are published apart.
    """

    __slots__ = ()

    def rows(self) -> list[Words]:
        """Return the words of each text."""
        return np.split(self.words, np.cumsum(self.lengths)[:-1])


# ---- pickled lists ---------------------------------------------------------------


@dataclass
class _PickledArray:
    items: list[Any] = field(default_factory=list)


class _PickledType:
    """The type of such an array: `object`."""


def _new_array(kind: Any, shape: Any, code: Any) -> _PickledArray:
    if kind != Name("numpy.ndarray") or shape != (0,) or code != b"b":
        raise RefusedError("it makes an array in an unusual way")
    return _PickledArray()


def _new_type(code: Any, *flags: Any) -> _PickledType:
    if code not in ("O", "O4", "O8", b"O", b"O4", b"O8"):
        raise RefusedError(f"it holds an array of {code!r:.20}, not of lists")
    return _PickledType()


def _fill(value: Any, state: Any) -> None:
    if isinstance(value, _PickledType):
        return  # byte order and alignment, which do not matter to lists
    match value, state:
        case _PickledArray(), (1, (int(count),), _PickledType(), False | 0, list(rows)):
            if len(rows) == count:
                value.items = rows
                return
    raise RefusedError("it fills an array in an unusual way")


_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
LISTS = Dialect(
    subject="an array of lists of numbers",
    item="array of lists",
    calls={
        **{f"{module}._reconstruct": _new_array for module in _MULTIARRAY},
        "numpy.dtype": _new_type,
    },
    names={"numpy.ndarray"},
    set_state=_fill,
)


def lists(data: bytes) -> list[list[int]]:
    """Return the lists of numbers in an ``.npy`` file that holds them as a pickle."""
    file = io.BytesIO(data)
    shape, dtype = npy_head(file)
    if dtype != np.dtype(object) or len(shape) != 1:
        raise ValueError(f"it is an array of {dtype} of shape {shape}, not of lists")
    array = Machine(data, LISTS, file.tell()).run()
    rows: list[Any] = array.items if isinstance(array, _PickledArray) else [None]
    is_sound = len(rows) == math.prod(shape) and all(type(row) is list for row in rows)
    if not is_sound or not set(map(type, itertools.chain(*rows))) <= {int}:
        raise RefusedError("it holds something else than lists of integers")
    return rows


def from_keras(data: bytes, members: Sequence[tuple[str, str]]) -> Texts:
    """Decode Keras' file of texts.

    Args:
        data: The bytes of the file.
        members: The names of texts and labels in it, for each part.
    """
    file = io.BytesIO(data)
    words, lengths, labels = [], [], []
    with zipfile.ZipFile(file) as archive:
        for x_name, y_name in members:
            with archive.open(f"{x_name}.npy") as packed:
                rows = lists(budget.drain(packed, x_name))
            lengths.append(np.array([len(row) for row in rows], np.int32))
            flat = itertools.chain.from_iterable(rows)
            words.append(np.fromiter(flat, np.int32, int(lengths[-1].sum())))
            labels.append(npy(file, archive, f"{y_name}.npy").astype(np.int64))
            if labels[-1].shape != lengths[-1].shape:
                raise ValueError(f"{y_name} has {labels[-1].shape} labels")
    parts = np.array([len(part) for part in lengths], np.int32)
    return Texts(
        np.concatenate(words), np.concatenate(lengths), np.concatenate(labels), parts
    )


# ---- the selection of words and texts ------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The arguments of `load_data` that choose words and texts."""

    num_words: int | None
    skip_top: int
    maxlen: int | None
    start_char: int | None
    oov_char: int | None
    index_from: int

    def numbered(self, rows: Sequence[Words]) -> list[Words]:
        """Return texts with the start character, and numbers from `index_from` on."""
        if self.start_char is None:
            return [row + (self.index_from or 0) for row in rows]
        start = np.array([self.start_char], np.int32)
        return [np.concatenate([start, row + self.index_from]) for row in rows]

    def short_enough(
        self, rows: list[Words], labels: Labels
    ) -> tuple[list[Words], Labels]:
        """Return the texts that are shorter than `maxlen`, and their labels."""
        if not self.maxlen:
            return rows, labels
        kept = [number for number, row in enumerate(rows) if len(row) < self.maxlen]
        if not kept:
            shortest = min(map(len, rows), default=0)
            raise ValueError(
                f"No text is shorter than maxlen={self.maxlen}: the shortest has "
                f"{shortest} words. Give a larger `maxlen`."
            )
        return [rows[number] for number in kept], labels[kept]

    def known_words(self, rows: list[Words]) -> list[Words]:
        """Return texts in which rare and the most frequent words are replaced."""
        # As in Keras, the largest number itself is left out if no limit is given.
        limit = self.num_words or max(
            (row.max() for row in rows if len(row)), default=0
        )

        def known(row: Words) -> Words:
            is_known = (row >= self.skip_top) & (row < limit)
            if self.oov_char is None:
                return row[is_known]
            return np.where(is_known, row, np.int32(self.oov_char))

        return [known(row) for row in rows]


def as_split(rows: Sequence[Words], labels: Labels) -> TextSplit:
    """Return texts as Keras does: an array of lists."""
    texts = np.empty(len(rows), object)
    texts[:] = [row.tolist() for row in rows] if len(rows) else []
    return texts, labels


# ---- the number of each word -----------------------------------------------------


class _Json(NamedTuple):
    json: npt.NDArray[np.uint8]


class WordIndex(Record, _Json):
    """A text of JSON with the number of each word."""

    __slots__ = ()

    def table(self) -> dict[str, int]:
        """Return the number of each word."""
        table: dict[str, int] = budget.parsed_json(self.json.tobytes())
        return table


def _write_json(file: IO[bytes], index: WordIndex) -> None:
    file.write(index.json.tobytes())


def word_index(name: str, title: str, md5: str) -> DataSet:
    """Return the data set that holds the number of each word, kept as it comes.

    Args:
        name: The name of its file without the ending.
        title: Its name in messages.
        md5: The sum of the file; Keras publishes no other.
    """

    def decoded(data: bytes) -> Record:
        return WordIndex(np.frombuffer(data, np.uint8))

    file = KerasFile(f"{name}.json", md5, WordIndex, decoded)
    return dataclasses.replace(
        file.data_set(name, title, ((), ())),
        read=lambda kept: file.decoded(budget.drain(kept, file.name)),
        write=_write_json,
        kept_as=file.name,
    )
