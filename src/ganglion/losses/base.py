"""The Loss: `call` gives a loss per sample, `__call__` weighs and reduces it."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config, dtype_policies, ops, tree
from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.hyperparameters import as_input
from ganglion.ops import op
from ganglion.ops.dispatch import astype, floating
from ganglion.serialization import (
    custom_object_scope,
    deserialize_keras_object,
    export,
    look_up,
    passed,
    resolve,
    serialize_keras_object,
    with_defaults,
)
from ganglion.tensors import get_keras_mask
from ganglion.variables import snake_case, unique_name

MEAN = "sum_over_batch_size"  # Keras' name of the default
REDUCTIONS = (MEAN, "sum", "mean", "mean_with_sample_weight", "none", None)


class Reduction:
    """Keras 2's names of the ways to reduce: `tf.keras.losses.Reduction.NONE`.

    >>> Reduction.SUM
    'sum'
    """

    AUTO = SUM_OVER_BATCH_SIZE = MEAN
    NONE, SUM = "none", "sum"

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all of them."""
        return ("auto", cls.NONE, cls.SUM, cls.SUM_OVER_BATCH_SIZE)


def checked_reduction(reduction: str | None) -> str | None:
    """Return the reduction; refuse a name that is none. Keras 2's "auto" is known."""
    if reduction == "auto":
        return MEAN
    if reduction not in REDUCTIONS:
        known = ", ".join(repr(name) for name in REDUCTIONS)
        raise ValueError(
            f"Invalid value for argument `reduction`: {reduction!r}. Use one of "
            f"{known}."
        )
    return reduction


def float_type(dtype: Any) -> str:
    """Return the compute type of a type or a policy; None is the default float type."""
    return dtype_policies.get(dtype).compute_dtype if dtype else config.floatx()


def to_array(structure: Any) -> Any:
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
        reduction: str | None = MEAN,
        dtype: Any = None,
    ) -> None:
        self.name = name or unique_name(snake_case(type(self).__name__))
        self.reduction = checked_reduction(reduction)
        self._dtype = float_type(dtype)

    @property
    def takes_class_numbers(self) -> bool:
        """Whether the labels are class numbers, which may stay integers."""
        return False

    @property
    def dtype(self) -> str:
        """The type the loss is computed in."""
        return self._dtype

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the loss of a batch, weighted and reduced.

        Samples that the mask of the predictions excludes do not count.
        """
        mask = get_keras_mask(y_pred)
        y_pred = tree.map_leaves(self._prediction, to_array(y_pred))
        y_true = tree.map_leaves(self._label, to_array(y_true))
        with origin.inside(self.name):
            values = self.call(y_true, y_pred)
            if values is None:
                raise TypeError(
                    f'The loss "{self.name}" returned None: does its function end '
                    "without `return`?"
                )
            for other in (get_keras_mask(values), self._mask(y_true, y_pred)):
                if other is not None:
                    mask = other if mask is None else ops.logical_and(mask, other)
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
    """A loss from a function of labels and predictions, called with fixed options.

    >>> import numpy as np
    >>> loss = LossFunctionWrapper(lambda y_true, y_pred: (y_true - y_pred) ** 4)
    >>> float(loss(np.array([[0.0]]), np.array([[2.0]])))
    16.0
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = MEAN,
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
        if not (tree.is_nested(y_pred) or tree.is_nested(y_true)):
            y_true, y_pred = same_rank(y_true, y_pred)
        elif len(predictions) == len(labels):
            pairs = [same_rank(*pair) for pair in zip(labels, predictions, strict=True)]
            y_true = tree.pack(y_true, [label for label, _ in pairs])
            y_pred = tree.pack(y_pred, [prediction for _, prediction in pairs])
        options = {n: as_input(self, n, value) for n, value in self._fn_kwargs.items()}
        return self.fn(y_true, y_pred, **options)

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
        config = super().get_config()
        if "fn" in inspect.signature(type(self).__init__).parameters:
            config["fn"] = serialize_keras_object(self.fn)
        return {**config, **serialize_keras_object(self._fn_kwargs)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        if isinstance(config.get("fn"), str):
            config = {**config, "fn": look_up("keras.losses", config["fn"], "loss")}
        return cls(**deserialize_keras_object(config))


class FunctionLoss(LossFunctionWrapper):
    """A loss class of Keras that wraps a function, and is registered under its name.

    Its options are the arguments of its `__init__`.
    """

    _function: Callable[..., Any]

    def __init_subclass__(cls, fn: Any = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if fn is None:
            return
        cls._function = staticmethod(fn)
        if "__init__" not in vars(cls):
            cls.__init__ = with_defaults(  # type: ignore[method-assign]
                FunctionLoss.__init__,
                f"{cls.__qualname__}.__init__",
                cls.__module__,
                name=fn.__name__,
            )
        export("keras.losses")(cls)

    def __init__(
        self,
        reduction: str | None = MEAN,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        self._set(locals())

    def _set(self, scope: dict[str, Any]) -> None:
        LossFunctionWrapper.__init__(self, self._function, **passed(scope))


def loss_function(*aliases: str, pairs: bool = True) -> Callable[[Any], Any]:
    """Register a loss function that works on arrays, Keras tensors and in a trace.

    It gets labels and predictions as pairs: of one float type and one shape.
    """

    def register(function: Any) -> Any:
        @functools.wraps(function)
        def compared(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
            label, prediction = paired(function.__name__, y_true, y_pred)
            return function(label, prediction, *args, **kwargs)

        loss: Any = op(compared if pairs else function)
        loss.aliases = aliases  # the metric's are the same
        return export("keras.losses", *aliases)(loss)

    return register


def paired(name: str, y_true: Any, y_pred: Any) -> tuple[Value, Value]:
    """Return labels and predictions of one float type and shape, or refuse them."""
    prediction = floating(y_pred)
    label, prediction = same_rank(astype(y_true, prediction.dtype), prediction)
    if not label.shape:  # one number for all, as a target of a regularizer
        label = ops.broadcast_to(label, prediction.shape)
    if label.shape != prediction.shape:
        raise ShapeError(
            f"{name}: labels and predictions must have the same shape, got "
            f"{label.shape} and {prediction.shape}. {_way_out(label, prediction)}"
        )
    return label, prediction


def _way_out(label: Value, prediction: Value) -> str:
    rows = prediction.shape[:-1]
    if prediction.shape[-1:] != (1,) and label.shape in (rows, (*rows, 1)):
        return (
            "For class numbers use sparse_categorical_crossentropy, or turn them into "
            "one-hot rows with keras.utils.to_categorical."
        )
    if label.size == prediction.size:
        return f"Reshape the labels to {prediction.shape}."
    return "Change the last layer (its units) or the labels, so that both are equal."


def ignored_mask(y_true: Any, y_pred: Any, ignored: int, axis: int) -> Any:
    """Return where the class number is not the one to ignore."""
    if len(y_true.shape) == len(y_pred.shape) and y_true.shape[axis] == 1:
        y_true = ops.squeeze(y_true, axis)
    return ops.not_equal(y_true, ignored)


def same_rank(x1: Any, x2: Any, expand_rank_1: bool = True) -> tuple[Any, Any]:
    """Make (N,) and (N, 1) agree, as Keras does before it compares or multiplies."""
    if len(x1.shape) == len(x2.shape) + 1:
        x1, x2 = _shed(x1, x2, expand_rank_1)
    elif len(x2.shape) == len(x1.shape) + 1:
        x2, x1 = _shed(x2, x1, expand_rank_1)
    return x1, x2


def _shed(longer: Any, shorter: Any, expand_rank_1: bool) -> tuple[Any, Any]:
    if longer.shape[-1] != 1:
        return longer, shorter
    if len(shorter.shape) == 1 and expand_rank_1:
        return longer, ops.expand_dims(shorter, -1)
    return ops.squeeze(longer, -1), shorter


def reduce_weighted(
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = MEAN,
    dtype: Any = None,
) -> Any:
    """Weigh losses per element and reduce them to one number (or not at all)."""
    values = ops.convert_to_tensor(values, dtype)
    if sample_weight is not None:
        sample_weight = ops.convert_to_tensor(sample_weight, values.dtype)
    check_mask_of_predictions(mask, values)
    weights = masked_weights(sample_weight, mask, values.dtype, reduction)
    if weights is not None:
        values, weights = fitted_weights(values, weights)
        values = values * weights
    return _reduce(values, weights, reduction)


def _reduce(values: Any, weights: Any, reduction: str | None) -> Any:
    shape = tuple(values.shape)
    if reduction in (None, "none") or shape in ((), (0,)):
        return values
    total = ops.sum(values)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and weights is not None:
        return ops.divide_no_nan(total, ops.sum(weights))
    return ops.divide(total, float(math.prod(shape) or 1))


def fitted_weights(values: Any, weights: Any) -> tuple[Any, Any]:
    """Give weights the axes of the losses: one weight per sample covers its steps."""
    values, weights = same_rank(values, weights)
    shape, weight_shape = tuple(values.shape), tuple(weights.shape)
    if (
        0 < len(weight_shape) < len(shape)
        and weight_shape == shape[: len(weight_shape)]
    ):
        weights = ops.reshape(
            weights, weight_shape + (1,) * (len(shape) - len(weight_shape))
        )
    elif shape and not broadcasts_to(shape, weight_shape):
        raise ShapeError(
            f"Sample weights of shape {weight_shape} do not fit values of shape "
            f"{shape}: give one weight per sample, of shape ({shape[0]},)."
        )
    return values, weights


def check_mask_of_predictions(mask: Any, values: Any) -> None:
    """Refuse a mask with more axes than losses have, or other sizes."""
    if mask is None or not values.shape:
        return
    shape, masked = (tuple(x.shape) for x in same_rank(values, mask))
    if masked != shape[: len(masked)] and not broadcasts_to(shape, masked):
        raise ShapeError(
            f"The predictions have a mask of shape {masked}, but one value is computed "
            f"for each of {shape}: the mask must have the first axes of that shape. "
            "End it by a layer without masks, such as Reshape, or write `compute_mask`."
        )


def broadcasts_to(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether an array of the second shape can be stretched to the first."""
    try:
        return np.broadcast_shapes(shape, other) == shape
    except ValueError:
        return False


def masked_weights(
    sample_weight: Any, mask: Any, dtype: Any, reduction: str | None
) -> Any:
    """Return the weights with zero where the mask is off.

    For a mean, the remaining losses count more, so that the mean is over valid ones.
    """
    if mask is None:
        return sample_weight
    weights = ops.cast(mask, dtype)
    if reduction in ("mean", MEAN):
        weights = weights * ops.divide_no_nan(
            float(math.prod(mask.shape)), ops.sum(weights)
        )
    if sample_weight is None:
        return weights
    weights, sample_weight = fitted_weights(weights, ops.cast(sample_weight, dtype))
    return weights * sample_weight


def per_sample(
    values: Any, sample_weight: Any, reduce: Callable[..., Any], dtype: Any
) -> tuple[Any, Any]:
    """Return weighted values and their weights, both with at most one axis."""
    values = ops.cast(to_array(values), dtype)
    if sample_weight is None:
        return _to_one_axis(values, reduce), None
    weights = ops.convert_to_tensor(sample_weight, dtype)
    values, weights = same_rank(values, weights)
    rank = len(weights.shape)
    if len(values.shape) > rank:
        values = reduce(values, axis=list(range(rank, len(values.shape))))
    values, weights = values * _stretched(weights, values), _stretched(weights, values)
    return _to_one_axis(values, reduce), _to_one_axis(weights, reduce)


def _to_one_axis(values: Any, reduce: Callable[..., Any]) -> Any:
    rank = len(values.shape)
    return reduce(values, axis=list(range(1, rank))) if rank > 1 else values


def _stretched(weights: Any, values: Any) -> Any:
    shape, weight_shape = tuple(values.shape), tuple(weights.shape)
    if not broadcasts_to(shape, weight_shape):
        raise ShapeError(
            f"Sample weights of shape {weight_shape} do not fit values of shape "
            f"{shape}: give one weight per sample."
        )
    return weights if shape == weight_shape else ops.broadcast_to(weights, shape)


# ---- by name -------------------------------------------------------------------------


def get(identifier: Any) -> Any:
    """Return the loss that a name, configuration, class or object means.

    >>> from ganglion import losses
    >>> losses.get("MeanSquaredError").name
    'mean_squared_error'
    """
    return resolve("keras.losses", identifier, "loss")


def serialize(loss: Any) -> Any:
    """Return plain data that names or rebuilds a loss."""
    return serialize_keras_object(loss)


def deserialize(name: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the loss that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        return get(name)
