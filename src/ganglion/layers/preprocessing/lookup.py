"""StringLookup and IntegerLookup: words and numbers as indices of a vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion.layers.preprocessing.index_lookup import IndexLookup, whole_numbers
from ganglion.layers.preprocessing.vocabulary import NumberTable, WordTable
from ganglion.layers.preprocessing.words import (
    as_bytes,
    as_text,
    as_text_array,
    text_array,
)
from ganglion.serialization import export, passed


@export("keras.layers")
class StringLookup(IndexLookup):
    """Words as indices of a vocabulary, or as ones and counts in a row.

    >>> layer = StringLookup(vocabulary=["cat", "dog"])
    >>> layer(["dog", "cat", "cow"])
    array([2, 1, 0])
    >>> layer.get_vocabulary()
    ['[UNK]', 'cat', 'dog']
    """

    _table_type = WordTable

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: str | None = None,
        oov_token: str | None = "[UNK]",
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        salt: Any = None,
        **kwargs: Any,
    ) -> None:
        arguments = passed(locals())
        self.encoding = arguments.pop("encoding")
        super().__init__(vocabulary_dtype="string", **arguments)

    def _flat(self, inputs: Any) -> tuple[list[bytes], tuple[int, ...]]:
        what = f'The input of layer "{self.name}"'
        array = as_text_array(inputs, what)
        return as_bytes(array, what), array.shape

    def _token(self, word: Any) -> bytes | None:
        if word is None or isinstance(word, bytes):
            return word
        if not isinstance(word, str):
            raise TypeError(
                f'The vocabulary of layer "{self.name}" must hold texts, got '
                f"{word!r:.40}: IntegerLookup takes numbers."
            )
        return word.encode()

    def _shown(self, token: Any) -> str:
        return as_text(token, self.encoding)

    def _array_of(self, tokens: list[Any], shape: tuple[int, ...]) -> np.ndarray:
        return text_array(tokens, shape, self.encoding)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"encoding": self.encoding}


@export("keras.layers")
class IntegerLookup(IndexLookup):
    """Integers as indices of a vocabulary, or as ones and counts in a row.

    >>> IntegerLookup(vocabulary=[12, 36])([[36, 7]])
    array([[2, 0]])
    """

    _table_type = NumberTable

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: int | None = None,
        oov_token: int | None = -1,
        vocabulary: Any = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        oov_method: str = "floormod",
        salt: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if vocabulary_dtype != "int64":
            raise ValueError(
                f"`vocabulary_dtype` is 'int64', got {vocabulary_dtype!r}."
            )
        super().__init__(**passed(locals()))

    def _flat(self, inputs: Any) -> tuple[Any, tuple[int, ...]]:
        numbers = whole_numbers(inputs, f'Layer "{self.name}"')
        return numbers.reshape(-1), numbers.shape

    def _token(self, word: Any) -> int | None:
        if word is None:
            return None
        if isinstance(word, (str, bytes)) or int(word) != word:
            raise TypeError(
                f'The vocabulary of layer "{self.name}" must hold integers, got '
                f"{word!r:.40}: StringLookup takes texts."
            )
        return int(word)

    def _token_of_line(self, line: str) -> int:
        return int(line)

    def _shown(self, token: Any) -> Any:
        return token

    def _array_of(self, tokens: list[Any], shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(tokens, np.int64).reshape(shape)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"vocabulary_dtype": self.vocabulary_dtype}
