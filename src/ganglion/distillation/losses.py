"""Distillation losses: how far a student's outputs are from a teacher's."""

from __future__ import annotations

from typing import Any

from ganglion import losses, ops, tree
from ganglion.serialization import export, serialize_keras_object

_exported = export("keras.distillation")


def as_losses(loss: Any) -> Any:
    """Return losses for names, in the same structure; None stays None."""
    return tree.map_leaves(
        lambda each: losses.get(each) if isinstance(each, str) else each, loss
    )


@_exported
class DistillationLoss:
    """Base class: subclass it and write `compute_loss`, which returns one number.

    >>> class Farthest(DistillationLoss):
    ...     def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
    ...         return ops.max(ops.abs(teacher_outputs - student_outputs))
    """

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        """Return how far the student's outputs are from the teacher's."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `compute_loss`."
        )

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        """Refuse outputs that cannot be compared."""
        tree.assert_same_structure(teacher_outputs, student_outputs)

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        """Refuse models that this loss cannot compare; this class accepts all."""


class _Compared(DistillationLoss):
    """A loss, or a structure of losses, between outputs of the same structure."""

    loss: Any

    def _set_loss(self, loss: Any) -> None:
        self.loss = as_losses(loss)
        if all(each is None for each in tree.flatten(self.loss)):
            raise ValueError(
                f"{type(self).__name__}: at least one `loss` must not be None."
            )

    def _total(self, function: Any, teacher: Any, student: Any) -> Any:
        values = tree.map_structure(function, self.loss, teacher, student)
        return ops.sum(ops.stack(tree.flatten(values)))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make an equal loss from its configuration."""
        return cls(**{**config, "loss": _restored(config["loss"])})


def _restored(plain: Any) -> Any:
    if isinstance(plain, dict) and "class_name" not in plain:
        return {name: _restored(part) for name, part in plain.items()}
    if isinstance(plain, (list, tuple)):
        return type(plain)(_restored(part) for part in plain)
    return losses.deserialize(plain)


@_exported
class FeatureDistillation(_Compared):
    """Compares outputs of two layers, or the outputs of the models.

    Args:
        loss: A loss, or one for each output; None leaves an output out.
        teacher_layer_name: The layer of the teacher; None for its outputs.
        student_layer_name: The layer of the student; None for its outputs.

    >>> import numpy as np
    >>> loss = FeatureDistillation("mse", "dense_1", "dense_3")
    >>> float(loss.compute_loss(np.zeros((1, 2)), np.ones((1, 2))))
    1.0
    """

    def __init__(
        self,
        loss: Any = "mse",
        teacher_layer_name: str | None = None,
        student_layer_name: str | None = None,
    ) -> None:
        self.teacher_layer_name = teacher_layer_name
        self.student_layer_name = student_layer_name
        self._set_loss(loss)

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        names = {
            "teacher": (teacher, self.teacher_layer_name),
            "student": (student, self.student_layer_name),
        }
        if all(name is None for _, name in names.values()):
            return
        for role, (model, _) in names.items():
            if getattr(model, "inputs", None) is None:
                raise ValueError(
                    f"FeatureDistillation with names of layers needs models of Keras "
                    f"tensors, but the {role} is a subclass: leave the names out, or "
                    "use LogitsDistillation."
                )
        for role, (model, name) in names.items():
            if name is not None:
                try:
                    model.get_layer(name=name)
                except ValueError as error:
                    raise ValueError(f"In the {role} model: {error}") from error

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        super().validate_outputs(teacher_outputs, student_outputs)
        try:
            tree.assert_same_structure(self.loss, teacher_outputs)
        except ValueError as error:
            raise ValueError(
                "FeatureDistillation: `loss` and the outputs do not have the same "
                f"structure. {error}"
            ) from error

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        def mean(loss: Any, teacher: Any, student: Any) -> Any:
            return 0.0 if loss is None else ops.mean(loss(teacher, student))

        return self._total(mean, teacher_outputs, student_outputs)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal loss."""
        return {
            "loss": serialize_keras_object(self.loss),
            "teacher_layer_name": self.teacher_layer_name,
            "student_layer_name": self.student_layer_name,
        }


@_exported
class LogitsDistillation(_Compared):
    """Compares the outputs of two models, divided by a temperature.

    A `KLDivergence` object compares their softmax, and is multiplied by the squared
    temperature; any other loss, also one given by its name, compares the outputs
    themselves.

    Args:
        temperature: What the outputs are divided by.
        loss: A loss, or one for each output; None leaves an output out.

    >>> import numpy as np
    >>> loss = LogitsDistillation(temperature=2.0)
    >>> scores = np.array([[2.0, 1.0]])
    >>> round(float(loss.compute_loss(scores, scores)), 3)
    0.0
    """

    def __init__(self, temperature: float = 3.0, loss: Any = "kl_divergence") -> None:
        self._set_loss(loss)
        if not isinstance(temperature, (int, float)) or not temperature > 0:
            raise ValueError(
                f"`temperature` must be a number above 0, got {temperature!r}."
            )
        self.temperature = temperature

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        return self._total(self._compared, teacher_outputs, student_outputs)

    def _compared(self, loss: Any, teacher: Any, student: Any) -> Any:
        if loss is None:
            return 0.0
        teacher = ops.divide(teacher, self.temperature)
        student = ops.divide(student, self.temperature)
        if not isinstance(loss, losses.KLDivergence):
            return ops.mean(loss(teacher, student))
        divergence = loss(ops.softmax(teacher, axis=-1), ops.softmax(student, axis=-1))
        return ops.mean(divergence) * self.temperature**2

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal loss."""
        return {
            "temperature": self.temperature,
            "loss": serialize_keras_object(self.loss),
        }
