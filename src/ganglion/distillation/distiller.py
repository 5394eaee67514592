"""Distiller: a student that learns from labels and from a teacher in the same step."""

from __future__ import annotations

from typing import Any

from ganglion import metrics as metric_kinds
from ganglion import ops, tree
from ganglion.distillation.losses import DistillationLoss, as_losses
from ganglion.models.model import Model
from ganglion.models.sequential import Sequential
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    serialize_keras_object,
)

_FINAL = "final_output"


@export("keras.distillation")
class Distiller(Model):
    """Trains a student on its own loss and on the outputs of a teacher.

    The loss is `student_loss_weight` times that of the labels plus
    `1 - student_loss_weight` times the weighted sum of the distillation losses. The
    teacher is frozen; `predict` is that of the student.

    Args:
        teacher: A trained model.
        student: The model to train, with inputs and outputs of the same shapes.
        distillation_losses: A `DistillationLoss`, or a list of them.
        distillation_loss_weights: Their weights; 1 each by default.
        student_loss_weight: How much the labels count, from 0 to 1.
        name: Its name.

    >>> import numpy as np
    >>> import ganglion as keras
    >>> from ganglion.distillation import LogitsDistillation
    >>> teacher = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> student = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> distiller = Distiller(teacher, student, LogitsDistillation())
    >>> distiller.compile("adam", "mse")
    >>> history = distiller.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
    """

    def __init__(
        self,
        teacher: Any,
        student: Any,
        distillation_losses: Any,
        distillation_loss_weights: Any = None,
        student_loss_weight: float = 0.5,
        name: str = "distiller",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        _check_models(teacher, student)
        self.teacher, self.student = teacher, student
        self.student_loss_weight = _checked_share(student_loss_weight)
        self._set_losses(distillation_losses, distillation_loss_weights)
        for loss in self.distillation_losses:
            loss.validate_model_compatibility(teacher, student)
        self._teacher_features = self._extractor(teacher, "teacher_layer_name")
        self._student_features = self._extractor(student, "student_layer_name")
        teacher.trainable = False
        self.student_loss_tracker = metric_kinds.Mean(name="student_loss")
        self.distillation_loss_tracker = metric_kinds.Mean(name="distillation_loss")
        self.total_loss_tracker = metric_kinds.Mean(name="total_loss")

    def _set_losses(self, losses: Any, weights: Any) -> None:
        if losses is None:
            raise ValueError(
                "`distillation_losses` must not be None: give a LogitsDistillation, a "
                "FeatureDistillation, or a list of such losses."
            )
        if not isinstance(losses, (list, tuple)):
            losses, weights = [losses], None
        if weights is None:
            weights = [1.0] * len(losses)
        if len(weights) != len(losses):
            raise ValueError(
                f"{len(losses)} distillation losses need as many weights, got "
                f"{len(weights)}."
            )
        self.distillation_losses: list[DistillationLoss] = list(losses)
        self.distillation_loss_weights = list(weights)

    def _extractor(self, model: Any, attribute: str) -> Model | None:
        """Return a model with the outputs of all layers that the losses compare."""
        names = [getattr(loss, attribute, None) for loss in self.distillation_losses]
        wanted = dict.fromkeys(name for name in names if name)
        if not wanted:
            return None
        is_stack = isinstance(model, Sequential)
        outputs = {_FINAL: model.layers[-1].output if is_stack else model.output}
        outputs |= {name: model.get_layer(name=name).output for name in wanted}
        return Model(model.inputs, outputs, name=f"{model.name}_features")

    def compile(  # type: ignore[override]
        self,
        optimizer: Any = "adam",
        loss: Any = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """Compile with the loss of the student on labels, which is required."""
        if loss is None:
            raise ValueError("`loss`, the loss of the student, must not be None.")
        if metrics is not None and not isinstance(metrics, (list, tuple)):
            raise ValueError(f"`metrics` must be a list, got {metrics!r}.")
        self._student_loss = as_losses(loss)
        super().compile(optimizer=optimizer, loss=None, metrics=metrics, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        return self.student(inputs, training=training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        if y_pred is None:
            y_pred = self(x, training=training)
        share = self.student_loss_weight
        of_labels: Any = 0.0
        if share > 0.0 and y is not None:
            values = tree.map_structure(
                lambda loss, label, output: ops.mean(loss(label, output)),
                self._student_loss,
                y,
                y_pred,
            )
            of_labels = ops.sum(ops.stack(tree.flatten(values)))
        of_teacher = self._distilled(x, y_pred) if share < 1.0 else 0.0
        total = ops.add(share * of_labels, (1.0 - share) * of_teacher)
        self.student_loss_tracker.update_state(of_labels)
        self.distillation_loss_tracker.update_state(of_teacher)
        self.total_loss_tracker.update_state(total)
        return total

    def _distilled(self, x: Any, y_pred: Any) -> Any:
        """Return the weighted sum of the distillation losses."""
        if self._teacher_features is not None:
            teacher = self._teacher_features(x, training=False)
        else:
            teacher = {_FINAL: self.teacher(x, training=False)}
        student = {_FINAL: y_pred}
        if self._student_features is not None:
            student = self._student_features(x, training=True)
        total: Any = 0.0
        pairs = zip(
            self.distillation_losses, self.distillation_loss_weights, strict=True
        )
        for loss, weight in pairs:
            outputs = teacher[_FINAL], y_pred
            layer = getattr(loss, "teacher_layer_name", None)
            if layer is not None:
                name = getattr(loss, "student_layer_name", None) or _FINAL
                outputs = teacher[layer], student[name]
            loss.validate_outputs(*outputs)
            value = loss.compute_loss(*outputs)
            if len(getattr(value, "shape", ())) > 0:
                raise ValueError(
                    f"{type(loss).__name__}.compute_loss must return one number, not "
                    f"an array of shape {tuple(value.shape)}."
                )
            total = ops.add(total, ops.multiply(weight, value))
        return total

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": super().get_config()["dtype"],
            "teacher": serialize_keras_object(self.teacher),
            "student": serialize_keras_object(self.student),
            "distillation_losses": [
                serialize_keras_object(loss) for loss in self.distillation_losses
            ],
            "distillation_loss_weights": list(self.distillation_loss_weights),
            "student_loss_weight": self.student_loss_weight,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        arguments = {
            name: deserialize_keras_object(value, custom_objects)
            for name, value in config.items()
        }
        return cls(**arguments)


def _checked_share(weight: Any) -> float:
    if not isinstance(weight, (int, float)) or not 0.0 <= weight <= 1.0:
        raise ValueError(
            f"`student_loss_weight` must be a number from 0 to 1, got {weight!r}."
        )
    return weight


def _check_models(teacher: Any, student: Any) -> None:
    """Refuse models whose inputs or outputs do not fit each other."""
    for role, model in (("teacher", teacher), ("student", student)):
        if not isinstance(model, Model):
            raise ValueError(f"The {role} must be a Model, got {type(model).__name__}.")
    for end in ("inputs", "outputs"):
        tensors = [getattr(model, end, None) for model in (teacher, student)]
        if any(part is None for part in tensors):
            continue  # a subclass that does not know them yet
        tree.map_structure(
            lambda first, second, end=end: _check_tensors(end, first, second), *tensors
        )


def _check_tensors(end: str, first: Any, second: Any) -> None:
    sizes = zip(first.shape, second.shape, strict=False)
    fits = all(a == b or None in (a, b) for a, b in sizes)
    if len(first.shape) != len(second.shape) or not fits:
        raise ValueError(
            f"The {end} of teacher and student must have the same shapes: "
            f"{first.shape} and {second.shape}."
        )
    if first.dtype != second.dtype:
        raise ValueError(
            f"The {end} of teacher and student must have the same types: "
            f"{first.dtype} and {second.dtype}."
        )
