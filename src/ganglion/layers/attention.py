"""Attention without heads: values averaged by how well their keys fit a query."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.hyperparameters import as_input
from ganglion.layers.arguments import choice, known_size, share
from ganglion.layers.base import Layer
from ganglion.serialization import export

__all__ = ["AdditiveAttention", "Attention"]

# Subtracted from the score of a masked value; float16 ends there.
_FAR_BELOW, _FAR_BELOW_IN_HALF = 1e9, 65504.0


def causal_mask(queries: int, keys: int) -> np.ndarray:
    """Return which keys each query may see: those that are not later than itself.

    >>> causal_mask(2, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    """
    return np.tri(queries, keys, dtype=bool)


@export("keras.layers")
class Attention(Layer):
    """Luong's attention: ``softmax(query @ key.T) @ value``.

    It is called on a list of (batch, steps, size): query, value and, if it is another,
    key. `mask` is a list, too: of the queries, whose outputs are zero where it is
    false, and of the values, which do not count there.

    >>> import numpy as np
    >>> query, value = np.zeros((1, 1, 2), "float32"), np.array([[[1.0], [3.0]]])
    >>> key = np.ones((1, 2, 2), "float32")
    >>> Attention()([query, value.astype("float32"), key])
    array([[[2.]]], dtype=float32)
    """

    scale: Any = None

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.use_scale = use_scale
        self.score_mode = choice(score_mode, "score_mode", ("dot", "concat"))
        self.dropout, self.seed = share(dropout, "dropout"), seed
        if self.dropout > 0:
            self.seed_generator = random.SeedGenerator(seed)

    def build(self, input_shape: Any) -> None:
        self._check_inputs(input_shape)
        self.scale = self.concat_score_weight = None
        if self.use_scale:
            self.scale = self.add_weight((), "ones", name="scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight(
                (), "ones", name="concat_score_weight"
            )

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: Any = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        self._check_inputs(inputs, mask)
        query, value, key = (*inputs, inputs[1])[:3]
        query_mask, value_mask = mask[:2] if mask else (None, None)
        scores = self._calculate_scores(query, key)
        allowed = self._calculate_score_mask(scores, value_mask, use_causal_mask)
        outputs, weights = self._apply_scores(scores, value, allowed, training)
        if query_mask is not None:
            is_valid = ops.expand_dims(ops.cast(query_mask, "bool"), -1)
            outputs = ops.where(is_valid, outputs, 0.0)
        return (outputs, weights) if return_attention_scores else outputs

    # The names by which subclasses in scripts change a step.

    def _calculate_scores(self, query: Any, key: Any) -> Any:
        """Return how well each key fits each query: (batch, queries, keys)."""
        if self.score_mode == "dot":
            scores = ops.matmul(query, ops.swapaxes(key, -2, -1))
            return scores if self.scale is None else scores * self.scale
        sums = ops.expand_dims(query, -2) + ops.expand_dims(key, -3)
        if self.scale is not None:
            sums = sums * self.scale
        return self.concat_score_weight * ops.sum(ops.tanh(sums), axis=-1)

    def _calculate_score_mask(
        self, scores: Any, v_mask: Any, use_causal_mask: bool
    ) -> Any:
        if v_mask is not None:
            v_mask = ops.expand_dims(ops.cast(v_mask, "bool"), -2)
        if not use_causal_mask:
            return v_mask
        causal = causal_mask(*scores.shape[-2:])[None]
        return causal if v_mask is None else ops.logical_and(v_mask, causal)

    def _apply_scores(
        self, scores: Any, value: Any, scores_mask: Any = None, training: Any = False
    ) -> tuple[Any, Any]:
        """Return the values averaged by the softmax of the scores, and that softmax."""
        if scores_mask is not None:
            is_half = scores.dtype == "float16"
            far = _FAR_BELOW_IN_HALF if is_half else _FAR_BELOW
            scores = ops.where(scores_mask, scores, scores - far)
        weights = ops.softmax(scores, axis=-1)
        if training and self.dropout > 0:
            rate = as_input(self, "dropout", self.dropout)
            weights = random.dropout(weights, rate, seed=self.seed_generator)
        return ops.matmul(weights, value), weights

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the mask of the queries: the outputs are as many."""
        self._check_inputs(inputs, mask)
        return mask[0] if mask else None

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return (*input_shape[0][:-1], input_shape[1][-1])

    def _check_inputs(self, inputs: Any, mask: Any = None) -> None:
        kind = type(self).__name__
        way = f"{kind}()([query, value]) or {kind}()([query, value, key])"
        if not isinstance(inputs, list):
            raise ValueError(
                f"{kind} layer must be called on a list of inputs: {way}, got "
                f"{_described(inputs)}."
            )
        if mask is not None and not isinstance(mask, list):
            raise ValueError(
                f"{kind} layer mask must be a list, [query_mask, value_mask], got "
                f"{_described(mask)}."
            )
        for name, values in (("inputs", inputs), ("mask", mask)):
            if values is not None and len(values) not in (2, 3):
                raise ValueError(
                    f"{kind} layer accepts {name} list of length 2 or 3: {way}, got "
                    f"{_described(values)}."
                )


def _described(values: Any) -> str:
    if isinstance(values, (list, tuple)):
        return f"a {type(values).__name__} of {len(values)}"
    return type(values).__name__


@export("keras.layers")
class AdditiveAttention(Attention):
    """Bahdanau's attention: scores are ``sum(scale * tanh(query + key))``.

    >>> import numpy as np
    >>> query, value = np.ones((1, 2, 4)), np.ones((1, 3, 4))
    >>> AdditiveAttention()([query, value]).shape
    (1, 2, 4)
    """

    def __init__(
        self, use_scale: bool = True, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(use_scale=use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape: Any) -> None:
        self._check_inputs(input_shape)
        self.scale = None
        if self.use_scale:
            size = known_size(self, input_shape[0], -1)
            self.scale = self.add_weight((size,), "glorot_uniform", name="scale")

    def _calculate_scores(self, query: Any, key: Any) -> Any:
        activity = ops.tanh(ops.expand_dims(query, -2) + ops.expand_dims(key, -3))
        if self.scale is not None:
            activity = activity * self.scale
        return ops.sum(activity, axis=-1)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config() | {"seed": self.seed}
        config.pop("score_mode", None)
        return config
