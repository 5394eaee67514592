"""CategoryEncoding and Discretization: categories of numbers, in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.layers.arguments import positive, refuse
from ganglion.layers.base import Layer
from ganglion.layers.preprocessing.adapting import batches_of, is_iterable_of_batches
from ganglion.layers.preprocessing.encoding import (
    encoded_dtype,
    encoded_shape,
    output_mode_of,
)
from ganglion.layers.preprocessing.host import numbers_from
from ganglion.layers.preprocessing.words import is_text
from ganglion.serialization import export


class _Encoder(Layer):
    """A layer that takes lists of numbers, too, and encodes integers."""

    output_mode: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call on Keras tensors, inside of a trace, or on arrays and lists."""
        if args and is_text(args[0]):
            raise TypeError(
                f'Layer "{self.name}" ({type(self).__name__}) takes numbers, got text: '
                "put a StringLookup or Hashing layer before it."
            )
        args = tuple(numbers_from(arg) for arg in args)
        return super().__call__(*args, **kwargs)

    def _encoded(self, indices: Any, depth: int, weights: Any = None) -> Any:
        """Encode integers; "multi_hot" and "count" join the second axis."""
        dtype = encoded_dtype(self.output_mode, "int32")
        if self.output_mode == "int":
            return ops.cast(indices, dtype)
        if indices.ndim == 0:
            indices = ops.expand_dims(indices, -1)
        if self.output_mode == "multi_hot":
            return ops.multi_hot(indices, depth, dtype=dtype)
        if self.output_mode == "count":
            ones = ops.one_hot(indices, depth, dtype=dtype)
            if weights is not None:
                ones = ones * ops.expand_dims(ops.cast(weights, dtype), -1)
            return ops.sum(ones, axis=1 if indices.ndim > 1 else 0)
        if indices.ndim > 1 and indices.shape[-1] == 1:
            indices = ops.squeeze(indices, -1)
        return ops.one_hot(indices, depth, dtype=dtype)


@export("keras.layers")
class CategoryEncoding(_Encoder):
    """Integers as ones in a row, or as counts.

    >>> CategoryEncoding(num_tokens=4, output_mode="count")([[0, 1, 1]])
    array([[1., 2., 0., 0.]], dtype=float32)
    """

    def __init__(
        self,
        num_tokens: int | None = None,
        output_mode: str = "multi_hot",
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        refuse(self, "sparse", sparse)
        modes = ("count", "one_hot", "multi_hot")
        if output_mode not in (*modes, "binary"):
            raise ValueError(
                f"Unknown arg for output_mode: {output_mode}. Use one of {modes}."
            )
        self.output_mode = output_mode_of(output_mode, modes)
        if num_tokens is None:
            raise ValueError(
                "num_tokens must be set to use this layer: it is the number of "
                "categories; IntegerLookup learns them from data."
            )
        if num_tokens < 1:
            raise ValueError(f"`num_tokens` must be >= 1, got {num_tokens}.")
        self.num_tokens = positive(num_tokens, "num_tokens")
        self.sparse = False

    def call(self, inputs: Any, count_weights: Any = None) -> Any:
        if count_weights is not None and self.output_mode != "count":
            raise ValueError(
                "`count_weights` is not used when `output_mode` is not `'count'`. "
                f"Received: output_mode={self.output_mode!r}"
            )
        indices = ops.cast(inputs, "int32")
        return self._encoded(indices, self.num_tokens, count_weights)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("sparse", None)  # Keras does not write it
        return config


@export("keras.layers")
class Discretization(_Encoder):
    """Numbers as the number of the bin they lie in.

    >>> layer = Discretization(bin_boundaries=[0.0, 1.0, 2.0])
    >>> layer([[-1.5, 1.0, 3.4, 0.5]])
    array([[0, 2, 3, 1]], dtype=int32)
    """

    def __init__(
        self,
        bin_boundaries: Any = None,
        num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str = "int",
        sparse: bool = False,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        refuse(self, "sparse", sparse)
        self.output_mode = output_mode_of(
            output_mode, ("int", "one_hot", "multi_hot", "count")
        )
        if (num_bins is None) == (bin_boundaries is None):
            problem = "Both `num_bins` and `bin_boundaries` are set: "
            raise ValueError(
                f"{'' if num_bins is None else problem}set either `num_bins` or "
                "`bin_boundaries`. `adapt` finds the bins for a number of them. "
                f"Received: num_bins={num_bins!r}, bin_boundaries={bin_boundaries!r}"
            )
        self.num_bins = None if num_bins is None else positive(num_bins, "num_bins")
        self.bin_boundaries = _boundaries(bin_boundaries)
        self.epsilon, self.sparse = epsilon, False
        self.summary = _NOTHING

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Find boundaries between which about equally many numbers lie.

        Args:
            data: An array, or an iterable of batches.
            steps: The number of batches to look at, of an iterable.
        """
        if self.num_bins is None:
            raise ValueError(
                f'Layer "{self.name}" was given its `bin_boundaries`: nothing is left '
                "to adapt. Give `num_bins` in their place."
            )
        self.reset_state()
        if is_iterable_of_batches(data) or isinstance(data, (list, tuple)):
            for batch in batches_of(data, steps):
                self.update_state(batch)
        else:
            self.update_state(data)
        if not self.summary.size:
            raise ValueError(f'Layer "{self.name}": `adapt` got no data.')
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Take in a batch."""
        array = np.asarray(data)
        if array.dtype.kind not in "biuf" and array.size:
            raise TypeError(
                f"`adapt` of Discretization needs numbers, got {array.dtype}."
            )
        summary = _summarized(array.astype("float32"), self.epsilon)
        merged = np.concatenate((summary, self.summary), axis=1)
        merged = merged[:, np.argsort(merged[0])]
        self.summary = _compressed(merged, self.epsilon)

    def finalize_state(self) -> None:
        """Compute the boundaries from the collected data."""
        if self.num_bins is not None and self.summary.size:
            bins = _compressed(self.summary, 1.0 / self.num_bins)
            self.bin_boundaries = bins[0, :-1].tolist()

    def reset_state(self) -> None:
        """Discard what `adapt` has collected; the boundaries stay."""
        self.summary = _NOTHING

    def call(self, inputs: Any) -> Any:
        if self.bin_boundaries is None:
            raise ValueError(
                f'You need to give layer "{self.name}" its `bin_boundaries`, or to '
                "call `adapt` on data before it is called."
            )
        numbers = ops.cast(inputs, config.floatx())
        boundaries = np.asarray(self.bin_boundaries, config.floatx())
        if boundaries.size:
            above = ops.expand_dims(numbers, -1) >= boundaries
            indices = ops.sum(ops.cast(above, "int32"), axis=-1)
        else:
            indices = ops.zeros_like(numbers, dtype="int32")
        return self._encoded(indices, len(self.bin_boundaries) + 1)

    @property
    def output_dtype(self) -> str:
        """The type of the layer's outputs."""
        return encoded_dtype(self.output_mode, "int32")

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape, also before `adapt`."""
        learned = self.bin_boundaries is not None
        depth = len(self.bin_boundaries or ()) + 1 if learned else self.num_bins
        return encoded_shape(tuple(input_shape), self.output_mode, depth)

    def load_own_variables(self, store: Any) -> None:
        """Take the summary that older files of Keras hold."""
        if "0" in store:
            self.summary = np.asarray(store["0"], "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            "bin_boundaries": self.bin_boundaries,
            "num_bins": self.num_bins,
            "epsilon": self.epsilon,
            "output_mode": self.output_mode,
            "sparse": self.sparse,
            "name": self.name,
            "dtype": self.dtype,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        # After `adapt` there are both, which `__init__` refuses.
        learned = config.get("num_bins") is not None
        rest = {**config, "bin_boundaries": None} if learned else config
        layer = super().from_config(rest)
        if learned:
            layer.bin_boundaries = _boundaries(config.get("bin_boundaries"))
        return layer


# A summary of numbers: values in order, and how many numbers each stands for.
_NOTHING = np.zeros((2, 0), "float32")


def _summarized(values: np.ndarray, epsilon: float) -> np.ndarray:
    """Return a summary of numbers: all of them, or about ``1 / epsilon``."""
    ordered = np.sort(values.reshape(-1))
    step = max(ordered.size * epsilon, 1)
    kept = ordered[int(step - 1) :: int(step)]
    return np.stack([kept, np.ones_like(kept) * step])


def _compressed(summary: np.ndarray, epsilon: float) -> np.ndarray:
    """Return a summary as values at equal shares of the numbers."""
    if summary.shape[1] * epsilon < 1:
        return summary
    shares = epsilon + np.arange(0.0, 1.0, epsilon)
    totals = summary[1].cumsum()
    share_so_far = totals / totals[-1]
    values = np.interp(shares, share_so_far, summary[0])
    totals = np.interp(shares, share_so_far, totals)
    weights = np.diff(totals, prepend=0)
    return np.stack((values, weights)).astype("float32")


def _boundaries(values: Any) -> list[float] | None:
    """Return the boundaries of bins as a list; refuse boundaries that do not rise."""
    if values is None:
        return None
    boundaries = np.asarray(values, float).tolist()
    if boundaries != sorted(boundaries):
        raise ValueError(f"`bin_boundaries` must rise, got {boundaries}.")
    return boundaries
