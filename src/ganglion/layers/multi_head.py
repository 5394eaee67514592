"""Attention with heads: MultiHeadAttention, and GroupQueryAttention with fewer keys."""

from __future__ import annotations

import functools
import string
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers.activating import Softmax
from ganglion.layers.arguments import keep, positive, share
from ganglion.layers.attention import causal_mask
from ganglion.layers.base import Layer
from ganglion.layers.construction import as_plain_data
from ganglion.layers.dropout import Dropout
from ganglion.layers.einsum_dense import EinsumDense
from ganglion.serialization import export
from ganglion.tensors import without_mask

__all__ = ["GroupQueryAttention", "GroupedQueryAttention", "MultiHeadAttention"]

Shape = tuple[int | None, ...]


class _HeadedAttention(Layer):
    """Projections to heads, attention of each head by itself, a projection back."""

    dropout: float
    use_bias: bool
    use_gate: bool
    sliding_window: int | None
    seed: Any
    attention_axes: Any
    kernel_initializer: Any
    bias_initializer: Any
    output_shape: tuple[int, ...] | None = None
    _query_heads: tuple[int, int]  # how many, and their size
    _key_heads: tuple[int, int]
    _value_heads: tuple[int, int]
    _inner_regularizer: Any  # of the activity of each projection

    def _keep(self, scope: dict[str, Any]) -> None:
        keep(self, scope)
        self.supports_masking = True
        self.dropout = share(self.dropout, "dropout")
        if self.sliding_window is not None:
            self.sliding_window = positive(self.sliding_window, "sliding_window")
        self._sliding_window = self.sliding_window
        # The compiler chooses how attention is computed: this is what Keras allows.
        self._flash_attention = bool(scope["flash_attention"])
        if self._flash_attention and self.dropout > 0:
            raise ValueError(
                "Dropout is not supported when flash attention is enabled. Set "
                "`dropout=0.0`, or leave `flash_attention` out."
            )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("flash_attention", None)  # how to compute is no part of a file
        regularizer = as_plain_data(self._inner_regularizer)
        return config | {"activity_regularizer": regularizer}

    # ---- building --------------------------------------------------------------

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:  # type: ignore[override]
        """Make the projections, in the order in which files have their weights."""
        key_shape = value_shape if key_shape is None else key_shape
        _check_keys(value_shape, key_shape)
        read = (self._query_heads[0], self._value_heads[1])
        self._query_dense = self._projection("query", query_shape, self._query_heads)
        self._key_dense = self._projection("key", key_shape, self._key_heads)
        if self.use_gate:
            self._gate_dense = self._projection("gate", query_shape, read)
        self._value_dense = self._projection("value", value_shape, self._value_heads)
        self._build_attention(len(value_shape) + 1)
        self._output_dense = self._projection(
            "attention_output",
            (*query_shape[:-1], *read),
            self.output_shape or (query_shape[-1],),
            summed=2,
        )

    def compute_output_shape(
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> Shape:
        _check_keys(value_shape, value_shape if key_shape is None else key_shape)
        return (*query_shape[:-1], *(self.output_shape or (query_shape[-1],)))

    def _projection(
        self,
        name: str,
        shape: Any,
        outputs: tuple[int, ...],
        summed: int = 1,
    ) -> EinsumDense:
        """Make and build the dense layer from the last axes of a shape to others."""
        letters = iter(string.ascii_lowercase)
        free, inner, new = (
            "".join(next(letters) for _ in range(count))
            for count in (len(shape) - summed, summed, len(outputs))
        )
        options = {
            f"{kind}_{word}": getattr(self, f"{kind}_{word}")
            for kind in ("kernel", "bias")
            for word in ("regularizer", "constraint")
        }
        dense = EinsumDense(
            f"{free}{inner},{inner}{new}->{free}{new}",
            (None,) * (len(free) - 1) + outputs,
            activation="sigmoid" if name == "gate" else None,
            bias_axes=new if self.use_bias else None,
            kernel_initializer=_another(self.kernel_initializer),
            bias_initializer=_another(self.bias_initializer),
            activity_regularizer=self._inner_regularizer,
            name=name,
            dtype=self.dtype_policy,
            **options,
        )
        dense.build(tuple(shape))
        return dense

    def _build_attention(self, rank: int) -> None:
        """Prepare attention over projected inputs of this many axes."""
        axes = self.attention_axes
        axes = range(1, rank - 2) if axes is None else axes
        self.attention_axes = tuple(a if a >= 0 else rank - 1 + a for a in axes)
        self._dot_product_equation, self._combine_equation = _equations(
            rank, self.attention_axes
        )
        over = len(self.attention_axes)
        self._softmax = Softmax(axis=tuple(range(-over, 0)), dtype=self.dtype_policy)
        self._dropout_layer = Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy
        )

    # ---- calling ---------------------------------------------------------------

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        key = value if key is None else key
        allowed = self._compute_attention_mask(
            query,
            value,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
        )
        # The layers inside work on each step: masks are taken care of here.
        query, value, key = map(without_mask, (query, value, key))
        options = {"return_attention_scores": True} if return_attention_scores else {}
        outputs, scores = self._compute_attention(
            self._query_dense(query),
            self._key_dense(key),
            self._value_dense(value),
            allowed,
            training,
            **options,
        )
        if self.use_gate:
            outputs = outputs * self._gate_dense(query)
        outputs = self._output_dense(outputs)
        return (outputs, scores) if return_attention_scores else outputs

    # The names by which subclasses in scripts change a step.

    def _compute_attention_mask(
        self,
        query: Any,
        value: Any,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        """Return which keys a query may see: (batch, queries, keys), or None: all."""
        masks = [
            ops.expand_dims(ops.cast(mask, "bool"), axis)
            for mask, axis in ((query_mask, -1), (value_mask, -2), (key_mask, -2))
            if mask is not None
        ]
        if use_causal_mask:
            masks.append(self._compute_causal_mask(query, value))
        if self.sliding_window is not None:
            masks.append(self._compute_sliding_window_mask(query, value))
        if attention_mask is not None:
            masks.insert(0, ops.cast(attention_mask, "bool"))
        allowed = masks[0] if masks else None
        for mask in masks[1:]:
            allowed = ops.logical_and(allowed, mask)
        return allowed

    def _compute_causal_mask(self, query: Any, value: Any = None) -> Any:
        keys = query if value is None else value
        return causal_mask(query.shape[1], keys.shape[1])[None]

    def _compute_sliding_window_mask(self, query: Any, value: Any = None) -> Any:
        keys = query if value is None else value
        rows, columns = np.ogrid[: query.shape[1], : keys.shape[1]]
        return (np.abs(rows - columns) < self.sliding_window)[None]

    def _compute_attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        training: Any = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> tuple[Any, Any]:
        """Return what each head reads, and the scores where they are requested.

        The mask of `call` is causal already, where that is wanted.
        """
        if self._flash_attention and return_attention_scores:
            raise ValueError(
                "Returning attention scores is not supported when flash attention is "
                "enabled. Please disable flash attention to access attention scores."
            )
        if use_causal_mask:
            causal = self._compute_causal_mask(query, key)
            masks = [causal] if attention_mask is None else [attention_mask, causal]
            attention_mask = functools.reduce(ops.logical_and, masks)
        attention_mask = self._over_heads(attention_mask, query)
        scale = self._query_heads[1] ** -0.5
        if not self.dropout and not return_attention_scores and query.ndim == 4:
            outputs = ops.dot_product_attention(
                query, key, value, mask=attention_mask, scale=scale
            )
            return outputs, None
        key, value = _each_head(query, key), _each_head(query, value)
        scores = ops.einsum(self._dot_product_equation, key, query * scale)
        scores = self._softmax(scores, mask=attention_mask)
        weights = self._dropout_layer(scores, training=training)
        return ops.einsum(self._combine_equation, weights, value), scores

    def _over_heads(self, mask: Any, query: Any) -> Any:
        """Return a mask with the axes of the scores: those of the heads are added."""
        if mask is None:
            return None
        over = len(self.attention_axes)
        sizes = list(mask.shape)
        missing = query.ndim - 1 + over - len(sizes)
        sizes[len(sizes) - 2 * over : len(sizes) - 2 * over] = [1] * missing
        return ops.reshape(mask, sizes)


def _another(initializer: Any) -> Any:
    """Return a copy of an initializer; without a fixed seed, it draws other numbers."""
    if not hasattr(initializer, "get_config"):
        return initializer
    return type(initializer).from_config(initializer.get_config())


def _each_head(query: Any, shared: Any) -> Any:
    """Repeat the heads of keys or values, so that each head of the query has its own.

    Both are (batch, ..., heads, size).
    """
    times = query.shape[-2] // shared.shape[-2]
    return shared if times == 1 else ops.repeat(shared, times, axis=-2)


def _equations(rank: int, axes: tuple[int, ...]) -> tuple[str, str]:
    """Return the einsums of keys with queries, and of the scores with values.

    The axes of attention are other ones in the query and in the key; all else, but the
    last, which is summed over, goes side by side.
    """
    query = string.ascii_lowercase[:rank]
    new = iter(string.ascii_lowercase[rank:])
    key = "".join(next(new) if i in axes else x for i, x in enumerate(query))
    shared = [x for i, x in enumerate(query[:-1]) if i not in axes]
    scores = "".join(
        shared + [query[axis] for axis in axes] + [key[axis] for axis in axes]
    )
    return f"{key},{query}->{scores}", f"{scores},{key}->{query}"


def _check_keys(value_shape: Any, key_shape: Any) -> None:
    if tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
        raise ValueError(
            "All dimensions of `value` and `key`, except the last one, must be equal: "
            f"there is a key for each value. Received: value_shape={value_shape} and "
            f"key_shape={key_shape}"
        )


@export("keras.layers")
class MultiHeadAttention(_HeadedAttention):
    """Attention by several heads, each over its own projection of the inputs.

    >>> import numpy as np
    >>> x = np.ones((1, 3, 8), "float32")
    >>> MultiHeadAttention(num_heads=2, key_dim=4)(x, x, use_causal_mask=True).shape
    (1, 3, 8)
    """

    num_heads: int
    key_dim: int

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: Any = None,
        attention_axes: Any = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_gate: bool = False,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._keep(locals())
        self.value_dim = self.key_dim
        if value_dim is not None:
            self.value_dim = positive(value_dim, "value_dim")
        self._query_heads = self._key_heads = (self.num_heads, self.key_dim)
        self._value_heads = (self.num_heads, self.value_dim)
        self.output_shape = _sizes_or_none(output_shape, "output_shape")
        self.attention_axes = _sizes_or_none(attention_axes, "attention_axes")
        # As in Keras, it applies to the outputs of the projections, not of this layer.
        self._inner_regularizer = self.activity_regularizer
        self.activity_regularizer = None

    @property
    def query_dense(self) -> EinsumDense:
        """The projection of the query."""
        return self._query_dense

    @property
    def key_dense(self) -> EinsumDense:
        """The projection of the key."""
        return self._key_dense

    @property
    def value_dense(self) -> EinsumDense:
        """The projection of the value."""
        return self._value_dense

    @property
    def output_dense(self) -> EinsumDense:
        """The projection of what the heads read."""
        return self._output_dense


def _sizes_or_none(value: Any, name: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    sizes = (value,) if isinstance(value, (int, np.integer)) else value
    if not isinstance(sizes, (list, tuple)) or not all(
        isinstance(n, (int, np.integer)) for n in sizes
    ):
        raise ValueError(
            f"Invalid `{name}`: it must be an integer, a list or tuple of them, or "
            f"None, got {value!r}."
        )
    return tuple(int(n) for n in sizes) or None


@export("keras.layers", name="GroupQueryAttention")
class GroupedQueryAttention(_HeadedAttention):
    """Attention in which groups of heads of the query share a head of keys and values.

    >>> import numpy as np
    >>> x = np.ones((1, 3, 8), "float32")
    >>> GroupQueryAttention(4, num_query_heads=4, num_key_value_heads=2)(x, x).shape
    (1, 3, 8)
    """

    head_dim: int
    num_query_heads: int
    num_key_value_heads: int
    attention_axes = None

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_gate: bool = False,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._keep(locals())
        self._query_heads = (self.num_query_heads, self.head_dim)
        self._key_heads = (self.num_key_value_heads, self.head_dim)
        self._value_heads = self._key_heads
        self._inner_regularizer = self.activity_regularizer
        if self.num_query_heads % self.num_key_value_heads:
            raise ValueError(
                f"`num_query_heads` must be a multiple of `num_key_value_heads`, got "
                f"{num_query_heads} and {num_key_value_heads}."
            )

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:  # type: ignore[override]
        for name, shape in (("query", query_shape), ("value", value_shape)):
            if len(shape) != 3:
                raise ValueError(
                    f'Layer "{self.name}": `{name}` must be (batch, steps, size), got '
                    f"{shape}."
                )
        super().build(query_shape, value_shape, key_shape)

    def compute_output_shape(
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> Shape:
        if query_shape[-1] != value_shape[-1]:
            raise ValueError(
                "The last dimension of `query_shape` and `value_shape` must be equal, "
                f"but are {query_shape[-1]}, {value_shape[-1]}."
            )
        return super().compute_output_shape(query_shape, value_shape, key_shape)


GroupQueryAttention = GroupedQueryAttention
