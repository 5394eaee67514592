"""Losses as classes, with the names, arguments and defaults of Keras."""

from __future__ import annotations

from typing import Any

from ganglion.losses import crossentropy, functions
from ganglion.losses.base import LossFunctionWrapper
from ganglion.serialization import export

_exported = export("keras.losses")
Reduction = str | None


@_exported
class MeanSquaredError(LossFunctionWrapper):
    """The mean of (y_true - y_pred)²."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "mean_squared_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.mean_squared_error, reduction, name, dtype)


@_exported
class MeanAbsoluteError(LossFunctionWrapper):
    """The mean of |y_true - y_pred|."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "mean_absolute_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.mean_absolute_error, reduction, name, dtype)


@_exported
class MeanAbsolutePercentageError(LossFunctionWrapper):
    """The mean error as a percentage of the label."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "mean_absolute_percentage_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            functions.mean_absolute_percentage_error, reduction, name, dtype
        )


@_exported
class MeanSquaredLogarithmicError(LossFunctionWrapper):
    """The mean squared error of log(1 + x)."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "mean_squared_logarithmic_error",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            functions.mean_squared_logarithmic_error, reduction, name, dtype
        )


@_exported
class CosineSimilarity(LossFunctionWrapper):
    """Minus the cosine of the angle between labels and predictions."""

    def __init__(
        self,
        axis: int = -1,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "cosine_similarity",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.cosine_similarity, reduction, name, dtype, axis=axis)


@_exported
class Huber(LossFunctionWrapper):
    """Squared near zero, straight beyond delta."""

    def __init__(
        self,
        delta: float = 1.0,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.huber, reduction, name, dtype, delta=delta)


@_exported
class LogCosh(LossFunctionWrapper):
    """The logarithm of the hyperbolic cosine of the error."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "log_cosh",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.log_cosh, reduction, name, dtype)


@_exported
class Hinge(LossFunctionWrapper):
    """max(1 - y_true y_pred, 0) for labels -1 and 1 (or 0 and 1)."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "hinge",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.hinge, reduction, name, dtype)


@_exported
class SquaredHinge(LossFunctionWrapper):
    """The square of the hinge loss."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "squared_hinge",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.squared_hinge, reduction, name, dtype)


@_exported
class CategoricalHinge(LossFunctionWrapper):
    """The hinge loss between the right class and the best wrong one."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "categorical_hinge",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.categorical_hinge, reduction, name, dtype)


@_exported
class KLDivergence(LossFunctionWrapper):
    """How far the predicted distribution is from the label's."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "kl_divergence",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.kl_divergence, reduction, name, dtype)


@_exported
class Poisson(LossFunctionWrapper):
    """y_pred - y_true log(y_pred), for counts."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "poisson",
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.poisson, reduction, name, dtype)


@_exported
class BinaryCrossentropy(LossFunctionWrapper):
    """The cross-entropy of yes/no predictions.

    >>> loss = BinaryCrossentropy(from_logits=True)
    >>> round(float(loss([[1.0], [0.0]], [[100.0], [100.0]])), 3)
    50.0
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            crossentropy.binary_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


@_exported
class BinaryFocalCrossentropy(LossFunctionWrapper):
    """The binary cross-entropy, with less weight on what is well predicted."""

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "binary_focal_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            crossentropy.binary_focal_crossentropy,
            reduction,
            name,
            dtype,
            apply_class_balancing=apply_class_balancing,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


@_exported
class CategoricalCrossentropy(LossFunctionWrapper):
    """The cross-entropy of one-hot labels (or other distributions)."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            crossentropy.categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


@_exported
class CategoricalFocalCrossentropy(LossFunctionWrapper):
    """The cross-entropy, with less weight on what is well predicted."""

    def __init__(
        self,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "categorical_focal_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            crossentropy.categorical_focal_crossentropy,
            reduction,
            name,
            dtype,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


@_exported
class SparseCategoricalCrossentropy(LossFunctionWrapper):
    """The cross-entropy of class numbers; the class to ignore costs nothing."""

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: Reduction = "sum_over_batch_size",
        axis: int = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(
            crossentropy.sparse_categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )


@_exported
class Dice(LossFunctionWrapper):
    """1 minus the overlap of two masks."""

    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "dice",
        axis: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(functions.dice, reduction, name, dtype, axis=axis)


@_exported
class Tversky(LossFunctionWrapper):
    """1 minus the overlap of two masks, its two kinds of error weighted."""

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = "tversky",
        axis: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            functions.tversky, reduction, name, dtype, alpha=alpha, beta=beta, axis=axis
        )
