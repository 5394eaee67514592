"""`tf.lookup`: tables from texts or numbers to others, in Python, outside of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ganglion.compat.tensorflow.arrays import known
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.layers.preprocessing import fingerprints
from ganglion.tensors import as_tensor


class TextFileIndex:
    """The parts of a line of a text file."""

    WHOLE_LINE, LINE_NUMBER = -2, -1


class KeyValueTensorInitializer:
    """Keys and values that are in tensors."""

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None
    ) -> None:
        self.keys, self.values = as_array(keys), as_array(values)
        if key_dtype is not None and str(key_dtype) != "string":
            self.keys = self.keys.astype(str(key_dtype))
        if value_dtype is not None and str(value_dtype) != "string":
            self.values = self.values.astype(str(value_dtype))


class TextFileInitializer(KeyValueTensorInitializer):
    """Keys and values that are the lines of a file, their parts or their numbers."""

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        # Not by `splitlines`, which also ends lines at other characters.
        text = Path(str(filename)).read_text("utf-8").removesuffix("\n")
        lines = text.split("\n")[:vocab_size]

        def parts(kind: Any, index: int, offset: int = 0) -> Any:
            if index == TextFileIndex.LINE_NUMBER:
                return [number + offset for number in range(len(lines))]
            texts = [
                line
                if index == TextFileIndex.WHOLE_LINE
                else line.split(delimiter)[index]
                for line in lines
            ]
            return texts if str(kind) == "string" else np.array(texts, str(kind))

        super().__init__(
            parts(key_dtype, key_index),
            parts(value_dtype, value_index, value_index_offset),
            key_dtype,
            value_dtype,
        )


class StaticHashTable:
    """A table that does not change, with a value for keys that are not in it.

    >>> words = KeyValueTensorInitializer(["a", "b"], [1, 2])
    >>> StaticHashTable(words, default_value=-1).lookup(["b", "z"]).tolist()
    [2, -1]
    """

    def __init__(
        self, initializer: Any, default_value: Any, name: str | None = None
    ) -> None:
        keys, values = initializer.keys, initializer.values
        self._table = dict(zip(keys.tolist(), values.tolist(), strict=True))
        if len(self._table) != len(keys):
            raise ValueError("tf.lookup.StaticHashTable: a key is there twice.")
        self._kind = values.dtype
        self._default = as_array(default_value).astype(self._kind).item()

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the values of keys."""
        array = as_array(known(keys, "lookup.StaticHashTable.lookup"))
        return as_tensor(self._found(array))

    def _found(self, keys: np.ndarray) -> np.ndarray:
        values = [self._table.get(key, self._default) for key in keys.ravel().tolist()]
        return np.array(values, self._kind).reshape(keys.shape)

    __getitem__ = __call__ = lookup

    def size(self, name: str | None = None) -> Any:
        """Return how many keys there are."""
        return as_tensor(np.array(len(self._table), np.int64))


class StaticVocabularyTable(StaticHashTable):
    """A table of words whose unknown ones go into buckets behind it."""

    def __init__(
        self, initializer: Any, num_oov_buckets: int, name: str | None = None
    ) -> None:
        super().__init__(initializer, -1)
        self._buckets = int(num_oov_buckets)

    def _found(self, keys: np.ndarray) -> np.ndarray:
        values = super()._found(keys).astype(np.int64)
        unknown = values == -1
        if unknown.any():
            words = [
                word if isinstance(word, bytes) else str(word).encode()
                for word in keys[unknown].tolist()
            ]
            buckets = fingerprints.buckets(words, self._buckets, None)
            values[unknown] = len(self._table) + np.asarray(buckets)
        return values

    def size(self, name: str | None = None) -> Any:
        """Return how many values there are, with those of unknown words."""
        return as_tensor(np.array(len(self._table) + self._buckets, np.int64))
