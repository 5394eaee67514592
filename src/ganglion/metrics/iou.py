"""Intersection over union, for pictures where every pixel has a class."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.dtypes import is_float_dtype
from ganglion.losses.base import to_array
from ganglion.metrics.base import Configured, registered
from ganglion.ops import op
from ganglion.ops.dispatch import astype
from ganglion.serialization import passed
from ganglion.variables import read

__all__ = [
    "BinaryIoU", "IoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU",
]  # fmt: skip


@op
def confusion_matrix(
    y_true: Any,
    y_pred: Any,
    classes: int,
    sample_weight: Any = None,
    ignore_class: int | None = None,
    dtype: Any = "int64",
) -> Any:
    """Count how often each class (row) was taken for each class (column).

    Class numbers out of range count nowhere.
    """
    numbers = "int32" if dtype == "int64" else dtype  # of classes, which are few
    label = ops.reshape(astype(y_true, numbers), (-1,))
    prediction = ops.reshape(astype(y_pred, numbers), (-1,))
    columns = ops.one_hot(prediction, classes)
    if sample_weight is not None:
        weights = ops.reshape(
            astype(astype(sample_weight, numbers), columns.dtype), (-1,)
        )
        columns = columns * ops.expand_dims(weights, -1)
    if ignore_class is not None:
        valid = ops.cast(ops.not_equal(label, ignore_class), columns.dtype)
        columns = columns * ops.expand_dims(valid, -1)
    rows = ops.transpose(ops.one_hot(label, classes))
    return ops.cast(ops.matmul(rows, columns), dtype)


@registered()
class IoU(Configured):
    """The mean over chosen classes of intersection over union.

    >>> metric = IoU(num_classes=2, target_class_ids=[0])
    >>> metric.update_state([0, 0, 1, 1], [0, 1, 0, 1])
    >>> round(float(metric.result()), 4)
    0.3333
    """

    target_class_ids: Any

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Any,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        # 32 bits hold the pixels of some thousand large images.
        super().__init__(name=name, dtype="int64" if dtype in (None, "int") else dtype)
        if not isinstance(num_classes, (int, np.integer)):
            raise ValueError(f"`num_classes` must be a number, got {num_classes!r}.")
        if max(target_class_ids) >= num_classes:
            raise ValueError(
                f"Class {max(target_class_ids)} is out of range: there are "
                f"{num_classes} classes, from 0."
            )
        self.num_classes = num_classes
        self.target_class_ids = list(target_class_ids)
        self.ignore_class, self.axis = ignore_class, axis
        self.sparse_y_true, self.sparse_y_pred = sparse_y_true, sparse_y_pred
        shape = (num_classes, num_classes)
        self.total_cm = self.add_variable(
            shape, "zeros", self.dtype, name="total_confusion_matrix"
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_true, y_pred = to_array(y_true), to_array(y_pred)
        if not self.sparse_y_true:
            y_true = ops.argmax(y_true, axis=self.axis)
        if not self.sparse_y_pred:
            y_pred = ops.argmax(y_pred, axis=self.axis)
        if _loses_fractions(sample_weight, self.dtype):
            warnings.warn(
                f"The weights are float, the counts are {self.dtype}: casting cuts "
                "their fractions off. Use whole weights, or `dtype='float32'`.",
                stacklevel=2,
            )
        options = (sample_weight, self.ignore_class, self.dtype)
        self.total_cm.assign_add(
            confusion_matrix(y_true, y_pred, self.num_classes, *options)
        )

    def result(self) -> Any:
        return _mean_iou(self.total_cm, self.target_class_ids)


def _loses_fractions(weights: Any, dtype: str) -> bool:
    return is_float_dtype(getattr(weights, "dtype", "int32")) and "int" in dtype


@op
def _mean_iou(total: Any, chosen: list[int]) -> Any:
    matrix = astype(read(total), config.floatx())
    right = ops.sum(matrix * np.eye(matrix.shape[0], dtype=matrix.dtype), axis=0)
    union = ops.sum(matrix, axis=0) + ops.sum(matrix, axis=1) - right
    indices = np.array(chosen, "int32")
    right, union = (ops.take(x, indices, axis=0) for x in (right, union))
    fuzz = config.epsilon()
    valid = union > 1e-9
    shares = ops.where(valid, right / (union + fuzz), 0.0)
    return ops.sum(shares) / (ops.sum(ops.cast(valid, matrix.dtype)) + fuzz)


@registered()
class BinaryIoU(IoU):
    """Intersection over union of two classes, separated by a threshold.

    >>> metric = BinaryIoU()
    >>> metric.update_state([0, 1, 1, 0], [0.1, 0.9, 0.3, 0.2])
    >>> round(float(metric.result()), 3)
    0.583
    """

    def __init__(
        self,
        target_class_ids: Any = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(2, target_class_ids, name=name, dtype=dtype)
        self.threshold = threshold

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_pred = ops.greater_equal(to_array(y_pred), float(self.threshold))
        super().update_state(y_true, ops.cast(y_pred, self.dtype), sample_weight)


@registered()
class MeanIoU(IoU):
    """The mean of intersection over union of all classes.

    >>> metric = MeanIoU(num_classes=2)
    >>> metric.update_state([0, 1, 1, 0], [0, 1, 0, 0])
    >>> round(float(metric.result()), 3)
    0.583
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(target_class_ids=range(num_classes), **passed(locals()))


@registered()
class OneHotIoU(IoU):
    """Intersection over union for one-hot labels.

    >>> metric = OneHotIoU(num_classes=2, target_class_ids=[0])
    >>> metric.update_state([[1, 0], [0, 1]], [[0.9, 0.1], [0.7, 0.3]])
    >>> round(float(metric.result()), 3)
    0.5
    """

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Any,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(sparse_y_true=False, **passed(locals()))


@registered()
class OneHotMeanIoU(MeanIoU):
    """The mean of intersection over union of all classes, for one-hot labels.

    >>> metric = OneHotMeanIoU(num_classes=2)
    >>> metric.update_state([[1, 0], [0, 1]], [[0.9, 0.1], [0.7, 0.3]])
    >>> round(float(metric.result()), 3)
    0.25
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(sparse_y_true=False, **passed(locals()))
