"""TextVectorization: texts as rows of word indices, or of counts."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ganglion.layers.arguments import choice, positive
from ganglion.layers.construction import as_plain_data
from ganglion.layers.preprocessing.adapting import batches_of, is_iterable_of_batches
from ganglion.layers.preprocessing.encoding import encoded_dtype, output_mode_of
from ganglion.layers.preprocessing.host import HostLayer
from ganglion.layers.preprocessing.index_lookup import (
    DROPPED,
    MODES,
    refuse_path,
)
from ganglion.layers.preprocessing.lookup import StringLookup
from ganglion.layers.preprocessing.words import as_bytes, as_text_array, text_array
from ganglion.serialization import export

_PUNCTUATION = string.punctuation.encode()
_STANDARDIZE = ("lower_and_strip_punctuation", "lower", "strip_punctuation")
_SPLIT = ("whitespace", "character")
Rows = list[Sequence[bytes]]


@export("keras.layers")
class TextVectorization(HostLayer):
    """Texts, split into words, as rows of indices or of counts.

    >>> layer = TextVectorization(output_sequence_length=4)
    >>> layer.adapt(["the cat", "the dog, the mat"])
    >>> layer.get_vocabulary()[:4]
    ['', '[UNK]', 'the', 'mat']
    >>> layer(["The mat!", "the unknown cat"])
    array([[2, 3, 0, 0],
           [2, 1, 5, 0]])
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: str | Callable[..., Any] | None = "lower_and_strip_punctuation",
        split: str | Callable[..., Any] | None = "whitespace",
        ngrams: int | tuple[int, ...] | None = None,
        output_mode: str = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        has_vocabulary = kwargs.pop("has_input_vocabulary", vocabulary is not None)
        size = kwargs.pop("vocabulary_size", None)
        if kwargs.get("dtype") == "string":
            kwargs.pop("dtype")
        super().__init__(name=name, **kwargs)
        self.refuse_option("sparse", sparse)
        self.refuse_option("ragged", ragged)
        self._standardize = _chosen(standardize, "standardize", _STANDARDIZE)
        self._split = _chosen(split, "split", _SPLIT)
        self._output_mode = output_mode_of(output_mode, MODES)
        self._ngrams_arg, self._ngrams = ngrams, _widths(ngrams)
        self._length = _sequence_length(output_sequence_length, self._output_mode)
        self._encoding, self._has_input_vocabulary = encoding, has_vocabulary
        self._lookup_layer = StringLookup(
            max_tokens=max_tokens,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            pad_to_max_tokens=pad_to_max_tokens,
            mask_token="",
            output_mode=self._output_mode,
            has_input_vocabulary=has_vocabulary,
            encoding=encoding,
            vocabulary_size=size,
        )

    # ---- from texts to words -----------------------------------------------------

    def _words(self, inputs: Any) -> tuple[Rows, tuple[int, ...]]:
        """Return the words of each row, and the shape of the texts."""
        what = f'The input of layer "{self.name}"'
        array = as_text_array(inputs, what)
        if callable(self._standardize):
            plain = text_array(as_bytes(array, what), array.shape, self._encoding)
            what = "What `standardize` returned"
            array = as_text_array(self._standardize(plain.astype(str)), what)
        texts = self._standardized(as_bytes(array, what))
        self._check_shape(array.shape)
        rows: Rows
        if self._split is None:
            rows = _unsplit(texts, array.shape)
        else:
            rows = self._split_texts(texts)
        if self._ngrams is not None:
            rows = [_ngrams_of(row, self._ngrams) for row in rows]
        return rows, array.shape

    def _standardized(self, texts: list[bytes]) -> list[bytes]:
        # Of ASCII characters alone, as TensorFlow's functions do.
        how = self._standardize
        if how in ("lower", "lower_and_strip_punctuation"):
            texts = [text.lower() for text in texts]
        if how in ("strip_punctuation", "lower_and_strip_punctuation"):
            texts = [text.translate(None, _PUNCTUATION) for text in texts]
        return texts

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) > 2:
            raise ValueError(
                f'Layer "{self.name}" takes texts of the shape (rows,) or (rows, 1), '
                f"got {shape}."
            )
        if self._split is not None and shape[1:] not in ((), (1,)):
            raise ValueError(
                f'Layer "{self.name}" splits texts, one in each row: the input must '
                f"have the shape (rows,) or (rows, 1), got {shape}. Words that are "
                "split already take `split=None`."
            )

    def _split_texts(self, texts: list[bytes]) -> Rows:
        if self._split == "whitespace":
            return [text.split() for text in texts]
        if self._split == "character":
            return [
                [letter.encode() for letter in text.decode("utf-8", "replace")]
                for text in texts
            ]
        assert callable(self._split)
        array = text_array(texts, (len(texts),), self._encoding)
        rows = self._split(array.astype(str))
        rows = rows.to_list() if hasattr(rows, "to_list") else rows  # a ragged tensor
        rows = rows.numpy() if hasattr(rows, "numpy") else rows
        name = "What `split` returned"
        return [as_bytes(as_text_array(list(row), name), name) for row in rows]

    # ---- calling -----------------------------------------------------------------

    def call(self, inputs: Any) -> np.ndarray:
        rows, shape = self._words(inputs)
        words = list(chain.from_iterable(rows))
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        lookup, mode = self._lookup_layer, self._output_mode
        if mode not in ("int", "one_hot"):
            outputs = lookup.rows(words, lengths)
        else:
            fill = 0 if mode == "int" else DROPPED
            indices = lookup.indices_of(words)
            outputs = _filled(indices, lengths, self._length, fill)
            if mode == "one_hot":
                is_column = self._split is None and outputs.shape[-1] == 1
                outputs = outputs[:, 0] if is_column else outputs
                depth = np.arange(lookup.checked_depth())
                outputs = (outputs[..., None] == depth).astype(self.output_dtype)
        return outputs[0] if shape == () or self._is_one_row(shape) else outputs

    def _is_one_row(self, shape: tuple[int, ...]) -> bool:
        return self._split is None and len(shape) == 1

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape for an input shape (None: any size)."""
        batch, *rest = input_shape
        if self._output_mode == "int":
            is_as_it_was = self._split is None and self._ngrams is None
            length = rest[-1] if rest and is_as_it_was else None
            return (batch, self._length or length)
        depth = self._lookup_layer.depth
        if self._output_mode != "one_hot":
            return (batch, depth)
        is_column = self._split is None and rest[-1:] == [1]
        return (batch, depth) if is_column else (batch, None, depth)

    @property
    def output_dtype(self) -> str:
        return encoded_dtype(self._output_mode)

    @property
    def compute_dtype(self) -> str:
        """Texts."""
        return "string"

    @property
    def variable_dtype(self) -> str:
        """Texts."""
        return "string"

    # ---- the vocabulary ----------------------------------------------------------

    def adapt(
        self, data: Any, batch_size: int | None = None, steps: int | None = None
    ) -> None:
        """Learn the vocabulary of texts: the most frequent words first.

        Args:
            data: An array or a list of texts, or an iterable of batches of them.
            batch_size: Not needed: all texts are looked at.
            steps: The number of batches to look at, of an iterable.
        """
        self.reset_state()
        if is_iterable_of_batches(data):
            for batch in batches_of(data, steps):
                self.update_state(batch)
        else:
            array = as_text_array(data, "The data of `adapt`")
            # Alone, each text of a list is a row.
            self.update_state(array[:, None] if array.ndim == 1 else array)
        self._lookup_layer.refuse_no_tokens()
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Count the words of a batch; each text is a document."""
        rows, _ = self._words(data)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        self._lookup_layer.count_rows(list(chain.from_iterable(rows)), lengths)

    def finalize_state(self) -> None:
        """Make the vocabulary from the counts."""
        self._lookup_layer.finalize_state()

    def reset_state(self) -> None:
        """Discard the counts; the vocabulary stays."""
        self._lookup_layer.reset_state()

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """Return the words, each at the index that the layer gives for it."""
        return self._lookup_layer.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Return the number of indices, with those for padding and unknown words."""
        return self._lookup_layer.vocabulary_size()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Take a list of words, or a file with a word in each line, as vocabulary."""
        self._lookup_layer.set_vocabulary(vocabulary, idf_weights)

    # ---- configuration and files -------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        lookup = self._lookup_layer
        return self.own_config(
            max_tokens=lookup.max_tokens,
            standardize=as_plain_data(self._standardize),
            split=as_plain_data(self._split),
            ngrams=self._ngrams_arg,
            output_mode=self._output_mode,
            output_sequence_length=self._length,
            pad_to_max_tokens=lookup.pad_to_max_tokens,
            sparse=False,
            ragged=False,
            vocabulary=lookup.input_vocabulary,
            idf_weights=lookup.input_idf_weights,
            encoding=self._encoding,
            vocabulary_size=lookup.vocabulary_size(),
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        refuse_path(config)
        ngrams = config.get("ngrams")
        ngrams = tuple(ngrams) if isinstance(ngrams, list) else ngrams
        return super().from_config({**config, "ngrams": ngrams})

    def get_build_config(self) -> dict[str, Any]:
        return {"input_shape": None}

    def save_own_variables(self, store: Any) -> None:
        self._lookup_layer.save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        self._lookup_layer.load_own_variables(store)

    def asset_files(self) -> dict[str, bytes]:
        """Return the files that a `.keras` archive keeps beside the weights."""
        return self._lookup_layer.asset_files()

    def use_asset_files(self, assets: dict[str, bytes], folder: str) -> None:
        """Take the vocabulary that `asset_files` has kept."""
        self._lookup_layer.use_asset_files(assets, folder)

    def save_assets(self, dir_path: Any) -> None:
        """Write the vocabulary into a folder."""
        self._lookup_layer.save_assets(dir_path)

    def load_assets(self, dir_path: Any) -> None:
        """Take the vocabulary that `save_assets` wrote into a folder."""
        self._lookup_layer.load_assets(dir_path)


def _chosen(value: Any, name: str, choices: tuple[str, ...]) -> Any:
    return value if value is None or callable(value) else choice(value, name, choices)


def _widths(ngrams: Any) -> tuple[int, ...] | None:
    """Return the numbers of words that are joined."""
    if ngrams is None:
        return None
    widths = ngrams if isinstance(ngrams, tuple) else (ngrams,)
    if not widths or not all(type(width) is int and width > 0 for width in widths):
        raise ValueError(
            f"`ngrams` is an integer or a tuple of them, from 1 up; got {ngrams!r}."
        )
    return widths if isinstance(ngrams, tuple) else tuple(range(1, ngrams + 1))


def _sequence_length(value: Any, mode: str) -> int | None:
    if value is None:
        return None
    if mode != "int":
        raise ValueError(
            "`output_sequence_length` must not be set if `output_mode` is not `'int'`. "
            f"Received: output_mode={mode!r}"
        )
    return positive(value, "output_sequence_length")


def _unsplit(texts: list[bytes], shape: tuple[int, ...]) -> Rows:
    """Return the rows of texts that are not split; a flat list is a single row."""
    width = shape[-1] if shape else 1
    rows = len(texts) // width if width else 0
    return [texts[row * width : (row + 1) * width] for row in range(rows)]


def _ngrams_of(words: Sequence[bytes], widths: tuple[int, ...]) -> list[bytes]:
    """Return the words of each width, those of the first width first.

    >>> _ngrams_of([b"a", b"b", b"c"], (1, 2))
    [b'a', b'b', b'c', b'a b', b'b c']
    """
    return [
        b" ".join(words[start : start + width])
        for width in widths
        for start in range(len(words) - width + 1)
    ]


def _filled(
    indices: np.ndarray, lengths: np.ndarray, length: int | None, fill: int
) -> np.ndarray:
    """Return rows of different lengths as an array, padded at the end or truncated."""
    if length is None:
        length = int(lengths.max(initial=0))
    outputs = np.full((len(lengths), length), fill, np.int64)
    ends = np.cumsum(lengths)
    within = np.arange(len(indices)) - np.repeat(ends - lengths, lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    fits = within < length
    outputs[rows[fits], within[fits]] = indices[fits]
    return outputs
