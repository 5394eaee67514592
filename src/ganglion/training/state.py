"""What training knows of a model: its protocol, where a run stands, and its lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ganglion.system import forks
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
    """A model as `fit`, `evaluate` and `predict` see it (`Compilable` documents it)."""

    name: str
    built: bool
    optimizer: Optimizer
    loss: Any
    training_state: TrainingState
    stop_training: bool
    initial_epoch: int
    _loss_tracker: Mean

    @property
    def _network(self) -> FunctionalGraph | None: ...
    @property
    def metrics(self) -> list[Metric]: ...
    @property
    def overrides_loss(self) -> bool: ...
    @property
    def trainable_weights(self) -> Sequence[Variable]: ...
    @property
    def compute_loss(self) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def build(self, input_shape: Any) -> None: ...
    def prepare_training(self) -> list[Variable]: ...
    def update_metrics(self, y: Any, y_pred: Any, sample_weight: Any) -> None: ...
    def reset_metrics(self) -> None: ...
    def restore_metrics(self) -> None: ...
    def get_metrics_result(self) -> Logs: ...


# ---- where a run stands ----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cursor:
    """Where a run through the rows of some data stands; steps advance it in place.

    Training has the cursor of the model's state. Every evaluation and prediction has
    one of its own, so that they can run beside each other.
    """

    position: np.ndarray  # the row at which the next step starts
    order: np.ndarray  # the seed of shuffling, and the number of the pass

    def start_pass(self) -> None:
        """Go back to the first row, in a new order."""
        self.position[...] = 0
        self.order[1] += 1


class TrainingState:
    """Where a model's training stands in its data and its epochs.

    One object, so that models have no attributes such as `epoch` or `order`, which
    subclasses want for themselves.
    """

    def __init__(self) -> None:
        self.position = _counter("position", 0)  # the row at which the next step starts
        self.epoch = _counter("epoch", 0)  # how many are finished
        self.first_bad_step = _counter("first_bad_step", -1)  # its loss was not finite
        # The seed of shuffling, and the number of the pass through the data.
        order = np.array([draw_seed(), 0], "uint32")
        self.order = Variable(order, trainable=False, name="order")
        self.steps_done = 0  # of an epoch that was interrupted
        self.saved_metrics: dict[str, list[np.ndarray]] | None = None
        self.was_loaded = False
        # Those of the `fit` that runs, or was interrupted; and their states in a file.
        self.callbacks: CallbackList | None = None
        self.saved_callbacks: dict[str, Any] | None = None
        # The metrics of an epoch whose steps are done and whose validation is not.
        self.epoch_logs: Logs | None = None

    def callback_states(self) -> dict[str, Any] | None:
        """Return what callbacks remember of a run that is not over, as plain data."""
        if self.callbacks is None:
            return self.saved_callbacks
        is_over = self.callbacks.stop_training and not self.steps_done
        return self.callbacks.get_state() | {"is_over": is_over}

    @property
    def cursor(self) -> Cursor:
        """Where training stands in its data."""
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


# ---- threads -----------------------------------------------------------------------


@dataclass
class _ThreadMetrics:
    """The metrics of a thread inside of `evaluate`, or of a `fit` that may call it."""

    depth: int = 0
    fits: int = 0
    sums: dict[Variable, np.ndarray] | None = None  # while other threads run


class ModelLock:
    """Lets the threads that use one model run one at a time, a chunk of steps each.

    `predict` and `evaluate` may be called from any number of threads, also while
    another one trains. But a step reads weights that another step writes, and the sums
    of metrics are variables of the model: each thread finds them as it left them.
    """

    def __init__(self, model: TrainableModel) -> None:
        self._model = model
        self._running, self._queue = threading.Lock(), threading.Lock()
        self._owner: int | None = None  # the thread that is running now
        self._threads: dict[threading.Thread, _ThreadMetrics] = {}
        self._last: threading.Thread | None = None  # whose sums the metrics hold

    @contextmanager
    def acquired(self) -> Iterator[None]:
        """Use the model while no other thread does; the lock is reentrant.

        Callbacks run without it: they may wait for other threads.
        """
        if self._owner == threading.get_ident():
            yield
            return
        with forks.held_off():
            with (
                self._queue
            ):  # a thread that comes again and again lets waiting ones in
                self._running.acquire()
            try:
                self._owner = threading.get_ident()
                self._switch_metrics(threading.current_thread())
                yield
            finally:
                self._owner = None
                self._running.release()

    def _switch_metrics(self, thread: threading.Thread) -> None:
        before, self._last = self._last, thread
        if before is thread:
            return
        if before in self._threads:
            self._threads[before].sums = {
                variable: variable.numpy()
                for metric in self._model.metrics
                for variable in metric.variables
            }
        saved = self._threads.get(thread)
        if saved is not None and saved.sums is not None:
            self._model.reset_metrics()  # some may be newer than the sums
            for variable, array in saved.sums.items():
                variable.assign(array)
            saved.sums = None

    @contextmanager
    def own_metrics(self, *, fits: bool = False) -> Iterator[None]:
        """Separate this thread's metrics from those of others inside of this block.

        A model can be trained by one thread at a time only.
        """
        thread = threading.current_thread()
        with self.acquired():
            if fits:
                self.refuse_training("fit")
            entry = self._threads.setdefault(thread, _ThreadMetrics())
            entry.depth += 1
            entry.fits += fits
        try:
            yield
        finally:
            entry.depth -= 1
            entry.fits -= fits
            if not entry.depth:
                self._threads.pop(thread, None)

    def refuse_training(self, verb: str) -> None:
        """Raise an error if another thread is training the model."""
        here = threading.current_thread()
        for thread, entry in list(self._threads.items()):
            # One that is not alive was left behind by a fork.
            if entry.fits and thread is not here and thread.is_alive():
                raise RuntimeError(
                    f'`{verb}`: the model "{self._model.name}" is being trained by '
                    f'another thread ("{thread.name}"), and only one can train it at a '
                    "time. Wait until that `fit` returns, or train a copy: "
                    "models.clone_model(model)."
                )
