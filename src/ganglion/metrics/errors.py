"""Losses as metrics: the same functions, averaged over the epoch."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.losses import crossentropy, functions
from ganglion.losses.base import whole
from ganglion.losses.functions import cosine, paired
from ganglion.metrics.accuracy import metric_function
from ganglion.metrics.base import registered
from ganglion.metrics.reduction import Mean, MeanMetricWrapper


@metric_function
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Return the cosine of the angle: 1 where the directions agree."""
    return cosine(y_true, y_pred, axis=axis)


@registered("mse", "MSE")
class MeanSquaredError(MeanMetricWrapper):
    """The mean of (y_true - y_pred)²."""

    def __init__(
        self, name: str | None = "mean_squared_error", dtype: Any = None
    ) -> None:
        super().__init__(functions.mean_squared_error, name, dtype)


@registered("mae", "MAE")
class MeanAbsoluteError(MeanMetricWrapper):
    """The mean of |y_true - y_pred|."""

    def __init__(
        self, name: str | None = "mean_absolute_error", dtype: Any = None
    ) -> None:
        super().__init__(functions.mean_absolute_error, name, dtype)


@registered("mape", "MAPE")
class MeanAbsolutePercentageError(MeanMetricWrapper):
    """The mean error as a percentage of the label."""

    def __init__(
        self, name: str | None = "mean_absolute_percentage_error", dtype: Any = None
    ) -> None:
        super().__init__(functions.mean_absolute_percentage_error, name, dtype)


@registered("msle", "MSLE")
class MeanSquaredLogarithmicError(MeanMetricWrapper):
    """The mean squared error of log(1 + x)."""

    def __init__(
        self, name: str | None = "mean_squared_logarithmic_error", dtype: Any = None
    ) -> None:
        super().__init__(functions.mean_squared_logarithmic_error, name, dtype)


@registered("cosine_proximity")
class CosineSimilarity(MeanMetricWrapper):
    """The cosine of the angle between labels and predictions."""

    def __init__(
        self, name: str | None = "cosine_similarity", dtype: Any = None, axis: int = -1
    ) -> None:
        super().__init__(cosine_similarity, name, dtype, axis=axis)


@registered("log_cosh", "logcosh")
class LogCoshError(MeanMetricWrapper):
    """The logarithm of the hyperbolic cosine of the error."""

    def __init__(self, name: str | None = "logcosh", dtype: Any = None) -> None:
        super().__init__(functions.log_cosh, name, dtype)


@registered()
class Hinge(MeanMetricWrapper):
    """max(1 - y_true y_pred, 0) for labels -1 and 1 (or 0 and 1)."""

    def __init__(self, name: str | None = "hinge", dtype: Any = None) -> None:
        super().__init__(functions.hinge, name, dtype)


@registered()
class SquaredHinge(MeanMetricWrapper):
    """The square of the hinge loss."""

    def __init__(self, name: str | None = "squared_hinge", dtype: Any = None) -> None:
        super().__init__(functions.squared_hinge, name, dtype)


@registered()
class CategoricalHinge(MeanMetricWrapper):
    """The hinge loss between the right class and the best wrong one."""

    def __init__(
        self, name: str | None = "categorical_hinge", dtype: Any = None
    ) -> None:
        super().__init__(functions.categorical_hinge, name, dtype)


@registered("kl_divergence", "kld", "KLD", "kullback_leibler_divergence")
class KLDivergence(MeanMetricWrapper):
    """How far the predicted distribution is from the label's."""

    def __init__(self, name: str | None = "kl_divergence", dtype: Any = None) -> None:
        super().__init__(functions.kl_divergence, name, dtype)


@registered()
class Poisson(MeanMetricWrapper):
    """y_pred - y_true log(y_pred), for counts."""

    def __init__(self, name: str | None = "poisson", dtype: Any = None) -> None:
        super().__init__(functions.poisson, name, dtype)


@registered("bce", "BCE")
class BinaryCrossentropy(MeanMetricWrapper):
    """The cross-entropy of yes/no predictions."""

    def __init__(
        self,
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ) -> None:
        super().__init__(
            crossentropy.binary_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
        )


@registered()
class CategoricalCrossentropy(MeanMetricWrapper):
    """The cross-entropy of one-hot labels."""

    def __init__(
        self,
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ) -> None:
        super().__init__(
            crossentropy.categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


@registered()
class SparseCategoricalCrossentropy(MeanMetricWrapper):
    """The cross-entropy of class numbers."""

    def __init__(
        self,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ) -> None:
        super().__init__(
            crossentropy.sparse_categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )


@registered("rmse", "RMSE")
class RootMeanSquaredError(Mean):
    """The root of the mean of (y_true - y_pred)² over all elements.

    >>> metric = RootMeanSquaredError()
    >>> metric.update_state([[0, 1], [0, 0]], [[1, 1], [0, 0]])
    >>> float(metric.result())
    0.5
    """

    def __init__(
        self, name: str | None = "root_mean_squared_error", dtype: Any = None
    ) -> None:
        super().__init__(name, dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        squares = squared_errors(whole(y_true), whole(y_pred))
        super().update_state(squares, sample_weight=sample_weight)

    def result(self) -> Any:
        return ops.sqrt(super().result())


@ops.op
def squared_errors(y_true: Any, y_pred: Any) -> Any:
    """Return (y_true - y_pred)², element by element."""
    label, prediction = paired("root_mean_squared_error", y_true, y_pred)
    return ops.square(prediction - label)
