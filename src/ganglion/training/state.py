"""The protocol of a model in training, and the state of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ganglion.system.records import record
from ganglion.variables import Variable, draw_seed

if TYPE_CHECKING:
    from ganglion.callbacks import CallbackList
    from ganglion.metrics import Mean, Metric
    from ganglion.optimizers import Optimizer
    from ganglion.symbolic import KerasTensor

Logs = dict[str, Any]


class HostPart(Protocol):
    """The part of a functional model that runs on the host, before a step."""

    @property
    def reason_against_steps(self) -> str | None: ...
    def row_bytes(self) -> float: ...
    def run(self, inputs: Any) -> Any: ...


class FunctionalGraph(Protocol):
    """The graph of a functional model, as far as its data is checked against it."""

    inputs: Any
    outputs: Any
    flat_inputs: list[KerasTensor]

    @property
    def input_names(self) -> list[str]: ...
    @property
    def output_names(self) -> list[str]: ...
    @property
    def host_part(self) -> HostPart | None: ...
    def matched(self, data: Any) -> Any: ...


class TrainableModel(Protocol):
    """A model as `fit`, `evaluate` and `predict` see it (`Trainer` documents it)."""

    name: str
    built: bool
    optimizer: Optimizer
    loss: Any
    training_state: TrainingState
    stop_training: bool
    run_eagerly: bool
    initial_epoch: int
    _loss_tracker: Mean

    @property
    def _network(self) -> FunctionalGraph | None: ...
    @property
    def metrics(self) -> list[Metric]: ...
    @property
    def overrides_loss(self) -> bool: ...
    @property
    def chosen_loss(self) -> Any: ...
    @property
    def has_own_steps(self) -> bool: ...
    @property
    def trainable_weights(self) -> Sequence[Variable]: ...
    @property
    def chosen_weights(self) -> list[Variable] | None: ...
    @property
    def compute_loss(self) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def build(self, input_shape: Any) -> None: ...
    def prepare_training(self) -> list[Variable]: ...
    def update_metrics(self, y: Any, y_pred: Any, sample_weight: Any) -> None: ...
    def reset_metrics(self) -> None: ...
    def restore_metrics(self) -> None: ...
    def get_metrics_result(self) -> Logs: ...
    def logs_of(self, metrics: list[Metric]) -> Logs: ...
    def names_of(self, metrics: list[Metric]) -> list[str]: ...
    def batch_logs(self, results: Any) -> Logs: ...
    def epoch_logs(self, results: Any) -> Logs: ...


# ---- overridden methods -----------------------------------------------------------

# The methods of each kind of step that a user may override.
_METHODS = {
    "train": ("train_step", "compute_metrics"),
    "test": ("test_step", "compute_metrics"),
    "predict": ("predict_step",),
}


def default(method: Any) -> Any:
    """Mark a method as Ganglion's: unless it is overridden, a step need not call it."""
    method.is_default = True
    return method


def is_default(model: Any, method: str) -> bool:
    """Return whether a method of a model is Ganglion's, not the user's."""
    return getattr(getattr(model, method), "is_default", False)


def is_own(model: Any, kind: str) -> bool:
    """Return whether a step of this kind calls a method that the user wrote."""
    return not all(is_default(model, method) for method in _METHODS[kind])


# ---- the state of a run ----------------------------------------------------------


@record(eq=False, guarded=True)
class Cursor:
    """The position of a run in its data; steps advance it in place.

    Training uses the cursor of the model's state. Every evaluation and prediction has
    its own, so that they can run concurrently.
    """

    position: np.ndarray  # the row at which the next step starts
    order: np.ndarray  # the seed of shuffling, and the number of the pass

    def start_pass(self) -> None:
        """Go back to the first row, and advance the pass of the shuffled order."""
        self.position[...] = 0
        self.order[1] += 1


class TrainingState:
    """The position of a model's training in its data and its epochs.

    A single object, so that models have no attributes such as `epoch` or `order`, which
    subclasses may use for themselves.
    """

    def __init__(self) -> None:
        self.position = _counter("position", 0)  # the row at which the next step starts
        self.epoch = _counter("epoch", 0)  # how many are finished
        self.first_bad_step = _counter("first_bad_step", -1)  # its loss was not finite
        # The seed of shuffling, and the number of the pass through the data.
        order = np.array([draw_seed(), 0], "uint32")
        self.order = Variable(order, trainable=False, name="order")
        self.steps_done = 0  # of an epoch that was interrupted
        self.pads_batches = False  # their lengths differ: see `buckets`
        self.saved_metrics: dict[str, list[np.ndarray]] | None = None
        self.was_loaded = False
        # Of the `fit` that runs or was interrupted; and their states from a file.
        self.callbacks: CallbackList | None = None
        self.saved_callbacks: dict[str, Any] | None = None
        # The metrics of an epoch whose steps are done and whose validation is not.
        self.epoch_logs: Logs | None = None

    def callback_states(self) -> dict[str, Any] | None:
        """Return the states of the callbacks of an unfinished run, as plain data."""
        if self.callbacks is None:
            return self.saved_callbacks
        is_over = self.callbacks.stop_training and not self.steps_done
        return self.callbacks.get_state() | {"is_over": is_over}

    @property
    def cursor(self) -> Cursor:
        """The cursor of training."""
        return Cursor(self.position.array, self.order.array)

    def start_epoch(self, epoch: int) -> dict[str, Any] | None:
        """Resume this epoch if it was loaded half done, or begin at its start.

        Return the states of callbacks if a run is resumed that has some, else None.
        """
        states, self.saved_callbacks = self.saved_callbacks, None
        if not (self.was_loaded and int(self.epoch.array) == epoch):
            self.steps_done, self.saved_metrics, self.epoch_logs = 0, None, None
            states = None
            if int(self.position.array):
                self.cursor.start_pass()
        self.was_loaded = False
        return states

    def end_epoch(self, epoch: int) -> None:
        """Count an epoch (from 0) as finished."""
        self.epoch.array[...] = epoch + 1
        self.steps_done, self.epoch_logs = 0, None


def _counter(name: str, start: int) -> Variable:
    return Variable(np.full((), start, "int32"), trainable=False, name=name)
