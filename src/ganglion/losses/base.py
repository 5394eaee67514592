"""The Loss: `call` gives a loss per sample, `__call__` weighs and reduces it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config, ops, tree
from ganglion.compiler.ir import origin
from ganglion.losses.reduction import checked_reduction, reduce_weighted, same_rank
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    look_up,
    serialize_keras_object,
)
from ganglion.variables import snake_case, unique_name


def float_type(dtype: Any) -> str:
    """Return the name of a type; None is the default float type."""
    if isinstance(dtype, dict):
        dtype = dtype.get("config", {}).get("name")
    return np.dtype(getattr(dtype, "name", dtype) or config.floatx()).name


def whole(structure: Any) -> Any:
    """Turn nested lists of numbers into an array; leave lists of arrays alone."""
    leaves = tree.flatten(structure)
    if isinstance(structure, (list, tuple)) and all(
        isinstance(leaf, (bool, int, float, np.generic)) for leaf in leaves
    ):
        return np.asarray(structure)
    return structure


@export("keras.losses")
class Loss:
    """Base class of losses: subclass it and write `call` in ops.

    >>> class Error(Loss):
    ...     def call(self, y_true, y_pred):
    ...         return ops.mean(ops.square(y_pred - y_true), axis=-1)
    >>> float(Error()([[1.0, 2.0]], [[1.0, 4.0]]))
    2.0
    """

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> None:
        self.name = name or unique_name(snake_case(type(self).__name__))
        self.reduction = checked_reduction(reduction)
        self._dtype = float_type(dtype)

    @property
    def takes_class_numbers(self) -> bool:
        """Whether the labels are class numbers, which may stay whole numbers."""
        return False

    @property
    def dtype(self) -> str:
        """The type the loss is computed in."""
        return self._dtype

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the loss of a batch, weighted and reduced."""
        y_pred = tree.map_leaves(self._prediction, whole(y_pred))
        y_true = tree.map_leaves(self._label, whole(y_true))
        with origin.inside(self.name):
            values = self.call(y_true, y_pred)
            mask = self._mask(y_true, y_pred)
            return reduce_weighted(
                values, sample_weight, mask, self.reduction, self.dtype
            )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss of each sample."""
        raise NotImplementedError(f"{type(self).__name__} does not define `call`.")

    def _prediction(self, y_pred: Any) -> Any:
        # A value of the right type passes untouched: the cross-entropies look for the
        # softmax or sigmoid that made it.
        return ops.convert_to_tensor(y_pred, self.dtype)

    def _label(self, y_true: Any) -> Any:
        return ops.convert_to_tensor(y_true, self.dtype)

    def _mask(self, y_true: Any, y_pred: Any) -> Any:
        return None

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal loss."""
        return {"name": self.name, "reduction": self.reduction}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a loss from its configuration."""
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


@export("keras.losses")
class LossFunctionWrapper(Loss):
    """A loss from a function of labels and predictions, called with fixed options."""

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.fn = fn
        self._fn_kwargs = kwargs
        vars(self).update(kwargs)  # `loss.from_logits` and the like can be read

    def call(self, y_true: Any, y_pred: Any) -> Any:
        predictions, labels = tree.flatten(y_pred), tree.flatten(y_true)
        if len(predictions) == len(labels):
            pairs = [same_rank(*pair) for pair in zip(labels, predictions, strict=True)]
            y_true = tree.pack(y_true, [label for label, _ in pairs])
            y_pred = tree.pack(y_pred, [prediction for _, prediction in pairs])
        return self.fn(y_true, y_pred, **self._fn_kwargs)

    @property
    def takes_class_numbers(self) -> bool:
        return bool(getattr(self.fn, "takes_class_numbers", False))

    def _label(self, y_true: Any) -> Any:
        label = ops.convert_to_tensor(y_true)
        if self.takes_class_numbers and np.issubdtype(label.dtype, np.integer):
            return label
        return super()._label(label)

    def _mask(self, y_true: Any, y_pred: Any) -> Any:
        ignored = self._fn_kwargs.get("ignore_class")
        if ignored is None or not self.takes_class_numbers:
            return None
        return ignored_mask(y_true, y_pred, ignored, self._fn_kwargs.get("axis", -1))

    def get_config(self) -> dict[str, Any]:
        made = super().get_config()
        if "fn" in inspect.signature(type(self).__init__).parameters:
            made["fn"] = serialize_keras_object(self.fn)
        return {**made, **serialize_keras_object(self._fn_kwargs)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        if isinstance(config.get("fn"), str):
            config = {**config, "fn": look_up("keras.losses", config["fn"], "loss")}
        return cls(**deserialize_keras_object(config))


def ignored_mask(y_true: Any, y_pred: Any, ignored: int, axis: int = -1) -> Any:
    """Return where the class number is not the one to ignore."""
    if len(y_true.shape) == len(y_pred.shape) and y_true.shape[axis] == 1:
        y_true = ops.squeeze(y_true, axis)
    return ops.not_equal(y_true, ignored)
