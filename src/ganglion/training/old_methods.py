"""Methods of models in Keras 1 and 2; each notes the name that replaced it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Self

from ganglion import keras2, ops, tree
from ganglion.callbacks import History
from ganglion.system.records import record
from ganglion.training.step_methods import StepMethods
from ganglion.training.trainer import Trainer, without_workers


class _AddedMetrics(list[Any]):
    """A list of a model's metrics: what is appended to it, the model tracks."""

    kind: str

    def __init__(self, model: Any, items: list[Any]) -> None:
        super().__init__(items)
        self._model = model

    def append(self, item: Any) -> None:
        super().append(item)
        self._model._await_metric(self.kind, item)

    def extend(self, items: Any) -> None:
        for item in items:
            self.append(item)

    def __iadd__(self, items: Any) -> Self:  # type: ignore[misc]
        self.extend(items)
        return self


class _NamesOfMetrics(_AddedMetrics):
    kind = "names"


class _TensorsOfMetrics(_AddedMetrics):
    kind = "tensors"


class OldMethods(StepMethods):
    """The methods and properties of a model that Keras 3 has removed."""

    @property
    def compiled_loss(self) -> Callable[..., Any]:
        """Keras 2's function of targets and predictions: the loss, which it tracks."""
        keras2.note("`compiled_loss`", "`compute_loss`", changes_defaults=False)
        return self._loss_of_keras2

    def _loss_of_keras2(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        regularization_losses: Any = None,
    ) -> Any:
        if self._compile_loss is None:
            raise ValueError("`compiled_loss` needs a loss: give `compile` one.")
        total = self._compile_loss(y_true, y_pred, sample_weight)
        for loss in regularization_losses or ():
            total = total + ops.sum(loss)
        self._loss_tracker.update_state(total)
        return total

    @property
    def compiled_metrics(self) -> Any:
        """Keras 2's metrics of `compile` as one: `update_state(y_true, y_pred)`."""
        keras2.note(
            "`compiled_metrics`", "a loop over `self.metrics`", changes_defaults=False
        )
        return _MetricsOfCompile(self)

    @property
    def metrics_names(self) -> list[str]:
        """The names of the metrics; Keras 2's scripts append those of their tensors."""
        return _NamesOfMetrics(self, super().metrics_names)

    @metrics_names.setter
    def metrics_names(self, names: list[str]) -> None:
        """Accept the list again, as `+=` gives it."""

    @property
    def metrics_tensors(self) -> list[Any]:
        """Keras 2's list, to which scripts append Keras tensors that are reported."""
        keras2.note("`metrics_tensors`", "`add_metric`", changes_defaults=False)
        return _TensorsOfMetrics(self, [])

    @metrics_tensors.setter
    def metrics_tensors(self, tensors: list[Any]) -> None:
        """Accept the list again, as `+=` gives it."""

    def _await_metric(self, kind: str, part: Any) -> None:
        """Report a tensor as soon as both its name and itself are known."""
        awaited = vars(self).setdefault(
            "_awaited_metrics", {"names": [], "tensors": []}
        )
        awaited[kind].append(part)
        while awaited["names"] and awaited["tensors"]:
            self.add_metric(awaited["tensors"].pop(0), awaited["names"].pop(0))

    def fit_generator(self, generator: Any, *args: Any, **kwargs: Any) -> History:
        """Keras 2's name for `fit` on a generator."""
        keras2.note("`fit_generator`", "`fit`")
        kwargs.update(zip(_OLD_FIT_ORDER.split(), args, strict=False))
        generator = _as_steps(kwargs, "samples_per_epoch", "steps_per_epoch", generator)
        held_out = kwargs.get("validation_data")
        held_out = _as_steps(kwargs, "nb_val_samples", "validation_steps", held_out)
        if held_out is not None:
            kwargs["validation_data"] = held_out
        return self.fit(generator, **without_workers(kwargs))

    def evaluate_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `evaluate` on a generator."""
        keras2.note("`evaluate_generator`", "`evaluate`")
        kwargs = {"verbose": 0, "steps": steps, **kwargs}
        generator = _as_steps(kwargs, "val_samples", "steps", generator)
        return self.evaluate(generator, **without_workers(kwargs))

    def predict_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `predict` on a generator."""
        keras2.note("`predict_generator`", "`predict`")
        kwargs = {"verbose": 0, "steps": steps, **kwargs}
        generator = _as_steps(kwargs, "val_samples", "steps", generator)
        return self.predict(generator, **without_workers(kwargs))


@record(guarded=True)
class _MetricsOfCompile:
    """The metrics of a model's `compile`, as scripts for Keras 2 update them."""

    model: Trainer

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch to all of them."""
        self.model.update_metrics(y_true, y_pred, sample_weight)


_OLD_FIT_ORDER = (
    "steps_per_epoch epochs verbose callbacks validation_data validation_steps "
    "class_weight max_queue_size workers use_multiprocessing shuffle initial_epoch"
)


def _as_steps(kwargs: dict[str, Any], samples: str, steps: str, generator: Any) -> Any:
    """Turn Keras 1's number of rows into a number of batches; return the generator."""
    if samples not in kwargs:
        return generator
    rows = int(kwargs.pop(samples))
    keras2.note(f"`{samples}=`", f"`{steps}=`, which counts batches")
    if isinstance(generator, (tuple, list)):
        return generator  # arrays, of which all are used
    size = getattr(generator, "batch_size", None)
    if size is None:
        first = next(generator)
        generator = itertools.chain([first], generator)
        size = len(tree.flatten(first)[0])
    kwargs[steps] = -(-rows // int(size))
    return generator
