"""What `compile(loss=..., metrics=...)` means: losses and metrics for each output.

Both containers are made from what the user wrote and settled at the first batch, when
the shapes are known. Labels, predictions and weights may be single or nested lists and
dictionaries; inside they are flat, in the order of the predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ganglion import config, losses, metrics, ops, tree
from ganglion.compiler.ir.graph import ShapeError
from ganglion.losses.base import Loss, LossFunctionWrapper
from ganglion.metrics.base import Mean, MeanMetricWrapper, Metric
from ganglion.serialization import look_up
from ganglion.training.outputs import Outputs, listed
from ganglion.variables import snake_case

Names = Sequence[str] | None

# These choose their function by the shapes of labels and predictions.
_ACCURACY = ("accuracy", "acc")
_CROSSENTROPY = ("crossentropy", "ce")


class CompiledLoss:
    """The total loss over all outputs.

    >>> loss = CompiledLoss("mse")
    >>> float(loss(np.array([[1.0], [2.0]]), np.array([[1.0], [4.0]])))
    2.0
    """

    def __init__(
        self, loss: Any, loss_weights: Any = None, output_names: Names = None
    ) -> None:
        if loss_weights is not None and not isinstance(
            loss_weights, (list, tuple, dict, int, float)
        ):
            raise ValueError(
                "`loss_weights` must be a number, or a list or dictionary with one "
                f"number per output, not {loss_weights!r}."
            )
        _check_names("keras.losses", loss, "loss", _CROSSENTROPY)
        self._given, self._weights = loss, loss_weights
        self._output_names = output_names
        self.parts: list[_Part | None] = []
        self.built = False

    @property
    def metrics(self) -> list[Mean]:
        """The trackers of the single losses, when there are several."""
        return [part.tracker for part in self.parts if part and part.tracker]

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the sum of the losses, each times its weight; None without any.

        The trackers take each loss without its weight.
        """
        predictions = Outputs(y_pred, self._output_names)
        if not self.built:
            self._build(y_true, predictions)
        wanted = [part is not None for part in self.parts]
        labels = predictions.align(y_true, "labels", wanted)
        weights = predictions.spread(sample_weight, wanted)
        values = [
            part.value(*batch)
            for part, *batch in zip(
                self.parts, labels, predictions.leaves, weights, strict=True
            )
            if part is not None
        ]
        return sum(values[1:], values[0]) if values else None

    def _build(self, y_true: Any, outputs: Outputs) -> None:
        given = outputs.assign(self._given, "loss")
        factors = [None] * len(given)
        if self._weights is not None:
            factors = outputs.assign(self._weights, "loss_weights", share=False)
        labels = outputs.align(y_true, "labels", [one is not None for one in given])
        chosen = [
            None if one is None else get_loss(one, label, prediction)
            for one, label, prediction in zip(
                given, labels, outputs.leaves, strict=True
            )
        ]
        several = sum(one is not None for one in chosen) > 1
        self.parts, seen = [], dict[str, int]()
        names = outputs.loss_names
        for loss, factor, output in zip(chosen, factors, names, strict=True):
            if loss is None:
                self.parts.append(None)
                continue
            name = _counted(f"{output or loss.name}_loss", seen)
            tracker = Mean(name=name) if several else None
            self.parts.append(_Part(loss, factor, tracker))
        self.built = True


class _Part(NamedTuple):
    """The loss of one output."""

    loss: Loss
    factor: float | None
    tracker: Mean | None

    def value(self, y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
        made = ops.cast(self.loss(y_true, y_pred, sample_weight), config.floatx())
        if made.shape != ():
            raise ShapeError(
                f"The loss {self.loss.name!r} (reduction={self.loss.reduction!r}) "
                f"gives an array of shape {tuple(made.shape)}, but training needs one "
                "number: use reduction='sum_over_batch_size' or 'sum'."
            )
        if self.tracker is not None:
            batch = tree.flatten(y_pred)[0].shape[0]
            self.tracker.update_state(made, sample_weight=batch)
        return made if self.factor is None else made * float(self.factor)


class CompiledMetrics:
    """The metrics of all outputs, with the names that Keras gives their results.

    >>> compiled = CompiledMetrics(["accuracy"])
    >>> compiled.update_state(np.array([1, 0]), np.array([[0.2, 0.8], [0.3, 0.7]]))
    >>> compiled.result()
    {'accuracy': 0.5}
    """

    def __init__(
        self,
        metrics: Any = None,
        weighted_metrics: Any = None,
        output_names: Names = None,
        loss: Any = None,
    ) -> None:
        for what, given in (
            ("metrics", metrics),
            ("weighted_metrics", weighted_metrics),
        ):
            if given and not isinstance(given, (list, tuple, dict)):
                raise ValueError(
                    f"`{what}` must be a list or a dictionary, not {given!r}: write "
                    f"{what}=[{given!r}]."
                )
            _check_names("keras.metrics", given, "metric", _ACCURACY + _CROSSENTROPY)
        self._given = (metrics, weighted_metrics)
        self._loss = loss
        self._output_names = output_names
        self._plain: list[list[Metric]] = []
        self._weighted: list[list[Metric]] = []
        self._prefixes: list[str] = []
        self.built = False

    @property
    def metrics(self) -> list[Metric]:
        """All metric objects, known after the first batch."""
        return [one for part in (*self._plain, *self._weighted) for one in part]

    @property
    def variables(self) -> list[Any]:
        """The state of all metrics."""
        return [variable for one in self.metrics for variable in one.variables]

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take one batch into account; only the weighted metrics see the weights."""
        outputs = Outputs(y_pred, self._output_names)
        if not self.built:
            self._build(y_true, outputs)
        wanted = [
            bool(plain or weighted)
            for plain, weighted in zip(self._plain, self._weighted, strict=True)
        ]
        if not any(wanted):
            return
        labels = outputs.align(y_true, "labels", wanted)
        weights = outputs.spread(sample_weight, wanted)
        rows = zip(labels, outputs.leaves, weights, strict=True)
        for number, (label, prediction, weight) in enumerate(rows):
            for one in self._plain[number]:
                one.update_state(label, prediction)
            for one in self._weighted[number]:
                one.update_state(label, prediction, sample_weight=weight)

    def _build(self, y_true: Any, outputs: Outputs) -> None:
        given = [outputs.assign_lists(one, "metrics") for one in self._given]
        wanted = [
            bool(plain or weighted) for plain, weighted in zip(*given, strict=True)
        ]
        if not any(wanted):
            self._plain, self._weighted = given
            self._prefixes = [""] * len(given[0])
            self.built = True
            return
        labels = outputs.align(y_true, "labels", wanted)
        try:
            used = outputs.assign(self._loss, "loss")
        except ValueError:  # the loss itself says what is wrong with it
            used = [None] * len(labels)

        def made(lists: list[list[Any]]) -> list[list[Metric]]:
            rows = zip(lists, labels, outputs.leaves, used, strict=True)
            return [[get_metric(one, *row) for one in ones] for ones, *row in rows]

        self._plain, self._weighted = made(given[0]), made(given[1])
        several = len(labels) > 1
        self._prefixes = [f"{n}_" if several and n else "" for n in outputs.names]
        self.built = True

    def reset_state(self) -> None:
        """Forget all batches."""
        for one in self.metrics:
            one.reset_state()

    def result(self) -> dict[str, Any]:
        """Return each metric's value by name; equal names are numbered."""
        found: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for prefix, part in zip(self._prefixes, self._plain, strict=True):
            for one in part:
                found[_counted(prefix + one.name, seen)] = one.result()
        for prefix, part in zip(self._prefixes, self._weighted, strict=True):
            for one in part:
                name = prefix + one.name
                if name in seen:
                    name = f"{prefix}weighted_{one.name}"
                found[_counted(name, seen)] = one.result()
        return _plain_numbers(found)


def _counted(name: str, seen: dict[str, int]) -> str:
    count = seen.get(name, 0)
    seen[name] = count + 1
    return f"{name}_{count}" if count else name


def _plain_numbers(found: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            made.update(_plain_numbers(value))
        else:
            array = np.asarray(value)
            made[name] = float(array) if array.ndim == 0 else array
    return made


def _is_named(identifier: Any, names: tuple[str, ...]) -> bool:
    return isinstance(identifier, str) and identifier.lower() in names


def _check_names(module: str, given: Any, what: str, special: tuple[str, ...]) -> None:
    """Refuse an unknown name when the model is compiled, not at the first batch."""
    for one in listed(given):
        if isinstance(one, str) and not _is_named(one, special):
            look_up(module, one, what)


def get_loss(identifier: Any, y_true: Any, y_pred: Any) -> Loss:
    """Return the loss object; "crossentropy" chooses by the shapes."""
    if isinstance(identifier, (list, tuple)) and len(identifier) == 1:
        identifier = identifier[0]
    loss = identifier
    if _is_named(identifier, _CROSSENTROPY):
        loss = getattr(losses, f"{_kind(y_true, y_pred)}_crossentropy")
    loss = losses.get(loss)
    if isinstance(loss, Loss):
        return loss
    name = identifier if isinstance(identifier, str) else object_name(loss)
    return LossFunctionWrapper(loss, name=name)


def get_metric(identifier: Any, y_true: Any, y_pred: Any, loss: Any = None) -> Metric:
    """Return the metric object; "accuracy" and "crossentropy" choose by the shapes."""
    metric = identifier
    if _is_named(identifier, _ACCURACY):
        functions = {
            "binary": metrics.BinaryAccuracy,
            "sparse_categorical": metrics.SparseCategoricalAccuracy,
            "categorical": metrics.CategoricalAccuracy,
        }
        metric = functions[_kind(y_true, y_pred)]()
    elif _is_named(identifier, _CROSSENTROPY):
        name = f"{_kind(y_true, y_pred)}_crossentropy"
        from_logits = bool(getattr(loss, "from_logits", False))
        fn = getattr(losses, name)
        metric = MeanMetricWrapper(fn, from_logits=from_logits)
    metric = metrics.get(metric)
    if metric is None:
        raise ValueError("A metric is None: leave it out of the list.")
    name = identifier if isinstance(identifier, str) else object_name(metric)
    if not isinstance(metric, Metric):
        metric = MeanMetricWrapper(metric)
    metric.name = name
    return metric


def object_name(thing: Any) -> str:
    """Return the name of a metric, a loss or a function."""
    if hasattr(thing, "name"):
        return str(thing.name)
    return snake_case(getattr(thing, "__name__", type(thing).__name__))


def _kind(y_true: Any, y_pred: Any) -> str:
    label, prediction = tuple(y_true.shape), tuple(y_pred.shape)
    if len(prediction) < 2 or prediction[-1] == 1:
        return "binary"
    is_sparse = len(label) < len(prediction) or label[-1:] == (1,)
    return "sparse_categorical" if is_sparse else "categorical"
