"""The base of StringLookup and IntegerLookup: a vocabulary and indices in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config, files
from ganglion.layers.arguments import choice
from ganglion.layers.preprocessing.adapting import (
    TokenCounts,
    batches_of,
    is_iterable_of_batches,
)
from ganglion.layers.preprocessing.encoding import (
    counted,
    encoded,
    encoded_dtype,
    encoded_shape,
    output_mode_of,
)
from ganglion.layers.preprocessing.fingerprints import buckets, salt_of
from ganglion.layers.preprocessing.host import HostLayer
from ganglion.layers.preprocessing.vocabulary import (
    Token,
    parsed_word_list,
    read_word_list,
    refuse_repeated,
    word_list,
)

MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")
DROPPED = -2  # in the place of a masked word, where it is not counted
VOCABULARY_FILE = "vocabulary.txt"


class IndexLookup(HostLayer):
    """The base of both lookups: a vocabulary, and how to find indices in it.

    The vocabulary begins with the mask token (of "int" outputs) and the tokens of what
    is out of vocabulary; `_tokens` are those behind.
    """

    _table_type: type

    def __init__(
        self,
        max_tokens: int | None,
        num_oov_indices: int,
        mask_token: Any,
        oov_token: Any,
        vocabulary_dtype: str,
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        oov_method: str = "floormod",
        name: str | None = None,
        salt: Any = None,
        **kwargs: Any,
    ) -> None:
        self._frozen_vocab_size = kwargs.pop("vocabulary_size", None)
        has_vocabulary = kwargs.pop("has_input_vocabulary", vocabulary is not None)
        kwargs.pop("dtype", None)  # the vocabulary has its own, as in Keras
        super().__init__(name=name, **kwargs)
        _check_sizes(max_tokens, num_oov_indices, pad_to_max_tokens)
        self.output_mode = output_mode_of(output_mode, MODES)
        self.refuse_sparse(sparse, self.output_mode)
        self.oov_method = choice(oov_method, "oov_method", ("floormod", "farmhash"))
        self.max_tokens, self.num_oov_indices = max_tokens, num_oov_indices
        self.mask_token, self.oov_token = mask_token, oov_token
        self.vocabulary_dtype, self.invert = vocabulary_dtype, invert
        self.sparse, self.pad_to_max_tokens = False, pad_to_max_tokens
        self.salt = salt_of(salt, type(self).__name__)
        self._check_combinations(idf_weights, has_vocabulary)
        is_path = isinstance(vocabulary, (str, os.PathLike))
        # A file's words are saved with the model, not the path of the file.
        self.input_vocabulary = None if is_path else _plain_list(vocabulary)
        self.input_idf_weights = _plain_list(idf_weights)
        self._has_input_vocabulary = has_vocabulary
        self._tokens: list[Token] = []
        self.idf_weights: np.ndarray | None = None
        self._table = self._new_table()
        self._counts = TokenCounts()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)

    def _check_combinations(self, idf_weights: Any, has_vocabulary: bool) -> None:
        is_tf_idf = self.output_mode == "tf_idf"
        if self.invert and self.output_mode != "int":
            raise ValueError(
                "`output_mode` must be `'int'` when `invert` is true. Received: "
                f"output_mode={self.output_mode!r}"
            )
        if idf_weights is not None and not is_tf_idf:
            raise ValueError(
                "`idf_weights` should only be set if `output_mode` is `'tf_idf'`. "
                f"Received: output_mode={self.output_mode!r}"
            )
        if is_tf_idf and has_vocabulary and idf_weights is None:
            raise ValueError(
                "A `vocabulary` for `output_mode='tf_idf'` needs its `idf_weights`; "
                "`adapt` finds both."
            )
        is_whole = self.vocabulary_dtype != "string"
        if self.salt is not None and is_whole and self.oov_method != "farmhash":
            raise ValueError("`salt` needs `oov_method='farmhash'`.")

    # ---- the vocabulary ----------------------------------------------------------

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Return the words, each at the index that the layer gives for it."""
        words = [self._shown(token) for token in self._tokens]
        return [*self._special_tokens(), *words] if include_special_tokens else words

    def vocabulary_size(self) -> int:
        """Return the number of indices, with those for mask and unknown words."""
        return len(self._tokens) + self._token_start()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Take a list of words, or a file with a word in each line, as vocabulary."""
        is_tf_idf = self.output_mode == "tf_idf"
        if is_tf_idf != (idf_weights is not None):
            raise ValueError(
                f"`idf_weights` are {'needed' if is_tf_idf else 'refused'} with "
                f"`output_mode={self.output_mode!r}`."
            )
        if isinstance(vocabulary, (str, os.PathLike)):
            if is_tf_idf:
                raise ValueError(
                    "`output_mode='tf_idf'` takes no vocabulary file: read its lines "
                    "and give them with their `idf_weights`."
                )
            self._use(read_word_list(vocabulary, self._token_of_line))
            return
        tokens = self._as_tokens(vocabulary)
        special = [self._token(token) for token in self._special_tokens()]
        start = len(special)
        begins_so = start > 0 and tokens[:start] == special
        self._use(tokens[start:] if begins_so else tokens)
        if is_tf_idf:
            self._set_idf_weights(idf_weights, len(tokens), begins_so)

    def _as_tokens(self, vocabulary: Any) -> list[Token]:
        if hasattr(vocabulary, "numpy"):
            vocabulary = vocabulary.numpy()
        words = list(vocabulary)
        if not words:
            raise ValueError(
                f'Layer "{self.name}" cannot take an empty vocabulary: give it at '
                "least one word, or call `adapt` on data."
            )
        return [self._token(word) for word in words]

    def _use(self, tokens: list[Token]) -> None:
        """Check tokens and make the table of them."""
        refuse_repeated(tokens)
        special = self._special_tokens()
        reserved = [self.mask_token] if self.mask_token is not None else []
        if self.invert and self.oov_token is not None:
            reserved.append(self.oov_token)
        for word in reserved:
            if self._token(word) in set(tokens):
                kind = "mask" if word is self.mask_token else "OOV"
                raise ValueError(
                    f"Found reserved {kind} token at unexpected location in "
                    f"`vocabulary`. Leave {word!r} out, or begin the vocabulary with "
                    f"{special}."
                )
        size = self._token_start() + len(tokens)
        if self.max_tokens is not None and size > self.max_tokens:
            raise ValueError(
                f"The vocabulary has {size} entries ({len(special)} of them for mask "
                f"and unknown words), but `max_tokens` is {self.max_tokens}."
            )
        self._freeze_size(size)
        self._tokens = tokens
        self._table = self._new_table()

    def _freeze_size(self, size: int) -> None:
        before = self._frozen_vocab_size
        is_fixed = self.output_mode != "int" and not self.pad_to_max_tokens
        if is_fixed and before is not None and before != size:
            raise RuntimeError(
                f'Layer "{self.name}" gives rows of {before} numbers, and a vocabulary '
                f"of {size} would change that: make a new layer, or set `max_tokens` "
                "and `pad_to_max_tokens=True`."
            )
        self._frozen_vocab_size = size

    def _set_idf_weights(self, weights: Any, words: int, with_special: bool) -> None:
        values = np.asarray(weights, np.float64)
        if values.ndim != 1 or len(values) < words:
            raise ValueError(
                f"`idf_weights` must be a list of {words} numbers, one for each word "
                f"of the vocabulary, got the shape {values.shape}."
            )
        if len(values) > words and not (with_special and self.pad_to_max_tokens):
            raise ValueError(
                f"`idf_weights` has {len(values)} numbers for {words} words."
            )
        values = values[:words]
        if not with_special:  # of unknown words nothing is known but the average
            values = np.pad(
                values, (self._token_start(), 0), constant_values=values.mean()
            )
        self.idf_weights = self._padded(values)

    def _padded(self, weights: np.ndarray) -> np.ndarray:
        if self.pad_to_max_tokens and self.max_tokens is not None:
            weights = np.pad(weights, (0, self.max_tokens - len(weights)))
        return weights.astype(config.floatx())

    def _special_tokens(self) -> list[Any]:
        masks = [self.mask_token] * self._oov_start()
        return masks + [self.oov_token] * self.num_oov_indices

    def _oov_start(self) -> int:
        return int(self.mask_token is not None and self.output_mode == "int")

    def _token_start(self) -> int:
        return self._oov_start() + self.num_oov_indices

    @property
    def depth(self) -> int | None:
        """The length of an encoded row, None before it is known."""
        return self.max_tokens if self.pad_to_max_tokens else self._frozen_vocab_size

    # ---- adapting ----------------------------------------------------------------

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Learn the vocabulary of data: the most frequent words first.

        Args:
            data: An array or a list, or an iterable of batches.
            steps: The number of batches to look at, of an iterable.
        """
        self.reset_state()
        if is_iterable_of_batches(data):
            for batch in batches_of(data, steps):
                self.update_state(batch)
        else:
            tokens, shape = self._flat(data)
            # Alone, each word of a list is a row.
            self.count_rows(
                tokens, np.full(*_rows(shape if shape[1:] else (*shape, 1)))
            )
        self.refuse_no_tokens()
        self.finalize_state()

    def refuse_no_tokens(self) -> None:
        """Refuse data without a single word."""
        if not self._counts.tokens:
            raise ValueError(
                f'Layer "{self.name}": `adapt` got no data, or only empty texts. Give '
                "it at least one word."
            )

    def update_state(self, data: Any) -> None:
        """Count the words of a batch; each row is a document."""
        tokens, shape = self._flat(data)
        self.count_rows(tokens, np.full(*_rows(shape if shape[1:] else (1, *shape))))

    def count_rows(self, tokens: Sequence[Token], lengths: np.ndarray) -> None:
        """Count words that lie in rows of some lengths."""
        if self._has_input_vocabulary:
            raise ValueError(
                f'Layer "{self.name}" was given its vocabulary: nothing is left to '
                "adapt. Leave out `vocabulary=` to learn it from data."
            )
        self._counts.add(tokens, lengths, documents=self.output_mode == "tf_idf")

    def finalize_state(self) -> None:
        """Make the vocabulary from the counts; with equal counts, in falling order."""
        if self._has_input_vocabulary or not self._counts.tokens:
            self._frozen_vocab_size = self.vocabulary_size()
            return
        special = {self._token(self.mask_token), self._token(self.oov_token)}
        tokens = self._counts.most_common(without=special)
        if self.max_tokens:
            tokens = tokens[: max(self.max_tokens - self._token_start(), 0)]
        self._use(tokens)
        if self.output_mode == "tf_idf":
            rarity = self._counts.rarity(tokens).astype(config.floatx())
            average = rarity.mean() if rarity.size else 0
            front = np.full(self._token_start(), average)
            self.idf_weights = self._padded(np.concatenate([front, rarity]))
        self.reset_state()

    def reset_state(self) -> None:
        """Discard the counts; the vocabulary stays."""
        self._counts = TokenCounts()

    # ---- calling -----------------------------------------------------------------

    def call(self, inputs: Any) -> Any:
        if self.invert:
            return self._inverted(whole_numbers(inputs, type(self).__name__))
        tokens, shape = self._flat(inputs)
        indices = self.indices_of(tokens).reshape(shape)
        if self.output_mode == "int":
            return indices
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        counts = encoded(indices, mode, self.checked_depth(), config.floatx())
        return self._weighted(counts)

    def rows(self, tokens: Sequence[Token], lengths: np.ndarray) -> np.ndarray:
        """Return the counts of words that lie in rows of different lengths."""
        numbers = np.repeat(np.arange(len(lengths)), lengths)
        binary = self.output_mode == "multi_hot"
        depth = self.checked_depth()
        counts = counted(self.indices_of(tokens), numbers, len(lengths), depth, binary)
        return self._weighted(counts.astype(config.floatx()))

    def _weighted(self, counts: np.ndarray) -> np.ndarray:
        return counts * self.idf_weights if self.output_mode == "tf_idf" else counts

    def checked_depth(self) -> int:
        """Return the length of an encoded row; refuse a layer without vocabulary."""
        depth = self.depth
        missing_weights = self.output_mode == "tf_idf" and self.idf_weights is None
        if depth is None or missing_weights:
            raise RuntimeError(
                f"When using `output_mode={self.output_mode}` and "
                f"`pad_to_max_tokens=False`, the vocabulary must be known: give layer "
                f'"{self.name}" its `vocabulary=`, or call `adapt` on data, before it '
                "is called."
            )
        return depth

    def indices_of(self, tokens: Sequence[Token]) -> np.ndarray:
        """Return the index of each token, of unknown ones too."""
        indices = self._table.find(tokens)
        unknown = np.flatnonzero(indices == -1)
        if not unknown.size:
            return indices
        if self.num_oov_indices == 0:
            examples = [
                self._shown(tokens[position]) for position in unknown[:5].tolist()
            ]
            raise ValueError(
                f'Layer "{self.name}" has `num_oov_indices=0`, but got values that '
                f"are not in its vocabulary: {examples}. Set `num_oov_indices=1`."
            )
        indices[unknown] = self._oov_start()
        if self.num_oov_indices > 1:
            indices[unknown] += self._oov_buckets([tokens[i] for i in unknown.tolist()])
        return indices

    def _oov_buckets(self, tokens: list[Token]) -> np.ndarray:
        if self.vocabulary_dtype != "string":
            if self.oov_method == "floormod":
                return np.asarray(tokens, np.int64) % self.num_oov_indices
            tokens = [str(token).encode() for token in tokens]
        return buckets(tokens, self.num_oov_indices, self.salt)  # type: ignore[arg-type]

    def _inverted(self, indices: np.ndarray) -> np.ndarray:
        positions = indices.reshape(-1) - self._token_start()
        fits = (positions >= 0) & (positions < len(self._tokens))
        unknown = self._token(self.oov_token)
        words = [
            self._tokens[position] if is_there else unknown
            for position, is_there in zip(
                positions.tolist(), fits.tolist(), strict=True
            )
        ]
        if self.mask_token is not None:
            mask = self._token(self.mask_token)
            pairs = zip(indices.reshape(-1).tolist(), words, strict=True)
            words = [word if index else mask for index, word in pairs]
        return self._array_of(words, indices.shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return encoded_shape(tuple(input_shape), self.output_mode, self.depth)

    @property
    def output_dtype(self) -> str:
        if self.invert:
            return self.vocabulary_dtype
        return encoded_dtype(self.output_mode)

    @property
    def compute_dtype(self) -> str:
        """The type of the vocabulary."""
        return self.vocabulary_dtype

    @property
    def variable_dtype(self) -> str:
        """The type of the vocabulary."""
        return self.vocabulary_dtype

    # ---- differences of words and numbers, for subclasses ------------------------

    def _new_table(self) -> Any:
        start = self._token_start()
        tokens, indices = list(self._tokens), [*range(start, start + len(self._tokens))]
        if self.mask_token is not None:
            tokens.append(self._token(self.mask_token))
            indices.append(0 if self.output_mode == "int" else DROPPED)
        return self._table_type(tokens, indices)

    def _flat(self, inputs: Any) -> tuple[Any, tuple[int, ...]]:
        raise NotImplementedError

    def _token(self, word: Any) -> Any:
        raise NotImplementedError

    def _token_of_line(self, line: str) -> Any:
        return self._token(line)

    def _shown(self, token: Any) -> Any:
        raise NotImplementedError

    def _array_of(self, tokens: list[Any], shape: tuple[int, ...]) -> np.ndarray:
        raise NotImplementedError

    # ---- configuration and files -------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return self.own_config(
            invert=self.invert,
            max_tokens=self.max_tokens,
            num_oov_indices=self.num_oov_indices,
            oov_token=self.oov_token,
            mask_token=self.mask_token,
            output_mode=self.output_mode,
            sparse=self.sparse,
            pad_to_max_tokens=self.pad_to_max_tokens,
            idf_weights=self.input_idf_weights,
            vocabulary=self.input_vocabulary,
            vocabulary_size=self._frozen_vocab_size,
            oov_method=self.oov_method,
            salt=self.salt,
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        refuse_path(config)
        return super().from_config(config)

    def get_build_config(self) -> dict[str, Any]:
        return {}

    def save_own_variables(self, store: Any) -> None:
        if self.output_mode == "tf_idf" and self.idf_weights is not None:
            store["idf_weights"] = self.idf_weights

    def load_own_variables(self, store: Any) -> None:
        if self.output_mode == "tf_idf" and "idf_weights" in store:
            self.idf_weights = np.asarray(store["idf_weights"], config.floatx())

    def asset_files(self) -> dict[str, bytes]:
        """Return the files that a `.keras` archive keeps beside the weights."""
        if self.input_vocabulary is not None or not self._tokens:
            return {}  # in the configuration, or nothing there
        return {VOCABULARY_FILE: word_list(self.get_vocabulary(), self.name)}

    def use_asset_files(self, assets: dict[str, bytes], folder: str) -> None:
        """Take the vocabulary of `asset_files`; `folder` is named in errors."""
        if self.input_vocabulary is not None or VOCABULARY_FILE not in assets:
            return
        name, data = f"{folder}/{VOCABULARY_FILE}", assets[VOCABULARY_FILE]
        special = self._special_tokens()
        self._use(parsed_word_list(data, name, self._token_of_line, special))
        if self.output_mode == "tf_idf":
            if self.idf_weights is None:
                raise ValueError(f"{name}: there are no `idf_weights` for the words.")
            self._set_idf_weights(self.idf_weights, self.vocabulary_size(), True)

    def save_assets(self, dir_path: Any) -> None:
        """Write the vocabulary into a folder."""
        for name, data in self.asset_files().items():
            files.write_file(Path(dir_path) / name, data)

    def load_assets(self, dir_path: Any) -> None:
        """Take the vocabulary that `save_assets` wrote into a folder."""
        path = Path(dir_path) / VOCABULARY_FILE
        if path.is_file():
            self.use_asset_files({VOCABULARY_FILE: path.read_bytes()}, str(dir_path))


def refuse_path(config: dict[str, Any]) -> None:
    """Refuse a configuration that names a file: it may come from anywhere."""
    if isinstance(config.get("vocabulary"), str):
        raise ValueError(
            f"The configuration names a vocabulary file, {config['vocabulary']!r:.80}, "
            "which is not read: a model's words lie in its own archive. Call "
            "`set_vocabulary` with the file."
        )


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of rows and how many words each holds."""
    return shape[0] if shape else 1, int(np.prod(shape[1:]))


def _check_sizes(
    max_tokens: int | None, num_oov_indices: int, pad_to_max_tokens: bool
) -> None:
    if max_tokens is not None and max_tokens <= 1:
        raise ValueError(
            f"If set, `max_tokens` must be greater than 1. Received: {max_tokens}"
        )
    if pad_to_max_tokens and max_tokens is None:
        raise ValueError("If pad_to_max_tokens is True, must set `max_tokens`.")
    if num_oov_indices < 0:
        raise ValueError(
            "`num_oov_indices` must be greater than or equal to 0. Received: "
            f"{num_oov_indices}"
        )


def _plain_list(values: Any) -> Any:
    """Return an array or a tensor as a list, as configurations hold it."""
    if values is None:
        return None
    if hasattr(values, "numpy"):
        values = values.numpy()
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    return [word.decode() if isinstance(word, bytes) else word for word in values]


def whole_numbers(inputs: Any, owner: str) -> np.ndarray:
    """Return numbers as 64-bit integers, as TensorFlow casts them."""
    if hasattr(inputs, "numpy"):
        inputs = inputs.numpy()
    array = np.asarray(inputs)
    if array.dtype.kind not in "biuf" and array.size:
        raise TypeError(
            f"{owner} takes integers, got {array.dtype}: use StringLookup for text."
        )
    return array.astype(np.int64)
