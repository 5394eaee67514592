"""The Callback, and the list that calls them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ganglion import tree
from ganglion.callbacks import states
from ganglion.callbacks.results import Results
from ganglion.config import closest

Logs = dict[str, Any]
Hook = TypeVar("Hook", bound=Callable[..., Any])

# The hooks that run around a single step, by what is running. The first two of `train`
# are the older spelling, which the default hooks pass on to.
_BATCH_HOOKS = {
    "train": (
        "on_batch_begin",
        "on_batch_end",
        "on_train_batch_begin",
        "on_train_batch_end",
    ),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
    "predict": ("on_predict_batch_begin", "on_predict_batch_end"),
}


def per_chunk(hook: Hook) -> Hook:
    """Mark a batch hook that is content to be called once after many steps."""
    hook._per_chunk = True  # type: ignore[attr-defined]
    return hook


class Callback:
    """Hooks that run at the beginnings and ends of training, epochs and batches.

    A callback that overrides a batch hook makes training run step by step, with a call
    for every batch; otherwise many steps run at a time. A batch hook decorated
    with `per_chunk` is called after every chunk of steps, with the last step's number.

    >>> class Announce(Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         print("epoch", epoch, "ends with loss", logs["loss"])
    >>> Announce().on_epoch_end(0, {"loss": 0.5})
    epoch 0 ends with loss 0.5

    A callback with state that persists between epochs returns it in `get_state`, and
    takes it back by `set_state`: checkpoints contain it.
    """

    validation_data: Any = None  # in Keras 2, the arrays that `fit` validates on
    counts_batches = False  # whether to be called after every single step of training
    # The attributes with the file and the folder that it writes to: copies of it, one a
    # model, must not all write to the same.
    writes_file: str | None = None
    writes_folder: str | None = None

    def __init__(self) -> None:
        self.params: dict[str, Any] | None = None
        self._model: Any = None

    @property
    def model(self) -> Any:
        """The model in training."""
        # Own subclasses often forget `super().__init__()`.
        return getattr(self, "_model", None)

    def set_params(self, params: dict[str, Any] | None) -> None:
        """Take the parameters of `fit`: verbose, epochs and steps."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Take the model."""
        self._model = model

    def get_state(self) -> dict[str, Any] | None:
        """Return the state that a resumed run needs, None for nothing.

        Plain data: numbers, texts, None, NumPy arrays, and lists and dictionaries of
        them. It is written into every checkpoint and `.keras` file while `fit` runs,
        or after it was interrupted.
        """
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` returned; runs after `on_train_begin`."""

    def needs_batches_in(self, mode: str) -> bool:
        """Return whether to run step by step in mode "train", "test" or "predict"."""
        counts = mode == "train" and self.counts_batches
        return counts or any(_wants_each(self, name) for name in _BATCH_HOOKS[mode])

    @per_chunk
    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a training step (older spelling)."""

    @per_chunk
    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a training step (older spelling)."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Run before an epoch; epochs count from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Run after an epoch, with all metrics; those of validation are ``val_...``."""

    @per_chunk
    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a training step; steps count from 0."""
        self.on_batch_begin(batch, logs=logs)

    @per_chunk
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a training step, with the metrics of the epoch so far."""
        self.on_batch_end(batch, logs=logs)

    @per_chunk
    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a step of `evaluate` or of validation."""

    @per_chunk
    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a step of `evaluate` or of validation."""

    @per_chunk
    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a step of `predict`."""

    @per_chunk
    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a step of `predict`."""

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Run once before training."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Run once after training."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Run before `evaluate` or validation."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Run after `evaluate` or validation."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Run before `predict`."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Run after `predict`."""


_HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def _wants_each(callback: Any, name: str) -> bool:
    hook = getattr(callback, name, None)
    # `_is_default` is the mark of callbacks that derive from Keras' own class.
    is_content = hasattr(hook, "_per_chunk") or getattr(hook, "_is_default", False)
    return hook is not None and not is_content


def _wants_each_step(callback: Any, name: str) -> bool:
    """Return whether a hook, or the older spelling that it calls, needs every step."""
    older = name.replace("_train_", "_")
    return _wants_each(callback, name) or _wants_each(callback, older)


def _does_something(callback: Any, name: str) -> bool:
    hook = getattr(callback, name, None)
    is_ours = getattr(hook, "__func__", None) is getattr(Callback, name)
    return not (hook is None or is_ours or getattr(hook, "_is_default", False))


class History(Callback):
    """The metrics of every epoch; `fit` returns one.

    ``history.history["loss"]`` is a list with a number per epoch, ``history.epoch`` the
    epochs' numbers. Of one of many models, ``history.message`` says why it ended early.

    >>> import numpy as np
    >>> import ganglion as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(np.ones((4, 2)), np.ones(4), epochs=3, verbose=0)
    >>> history.epoch, list(history.history)
    ([0, 1, 2], ['loss'])
    """

    may_lag = True

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = Results()
        self.epoch: list[int] = []
        self.message: str | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.epoch = []

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
        self.model.history = self


class LambdaCallback(Callback):
    """A callback made of functions.

    Args:
        on_epoch_begin: Function of the epoch and the logs.
        on_epoch_end: Function of the epoch and the logs.
        on_train_begin: Function of the logs.
        on_train_end: Function of the logs.
        on_train_batch_begin: Function of the step and the logs.
        on_train_batch_end: Function of the step and the logs.
        **kwargs: Functions for the other hooks of `Callback`, by name.

    >>> show = LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs))
    >>> show.on_epoch_end(0, {"loss": 0.5})
    0 {'loss': 0.5}
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        named = {k: v for k, v in locals().items() if k.startswith("on_")}
        for name, function in (named | kwargs).items():
            # Other names are attributes, as in Keras; but a hook that is misspelled
            # would never be called.
            if name not in _HOOKS and name.startswith("on_"):
                raise TypeError(
                    f"LambdaCallback knows no hook {name!r}. {closest(name, _HOOKS)}"
                )
            if function is not None:
                setattr(self, name, function)


class CallbackList(Callback):
    """All callbacks as one.

    Args:
        callbacks: The callbacks, in the order they are called.
        add_history: Whether to add a `History` unless there is one.
        add_progbar: Whether to add a `ProgbarLogger` unless there is a logger.
        model: The model in training.
        **params: What `Callback.set_params` gets: verbose, epochs, steps.

    >>> from ganglion.callbacks import LambdaCallback
    >>> seen = []
    >>> tell = LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    >>> CallbackList([tell]).on_epoch_end(0, {})
    >>> seen
    [0]
    """

    def __init__(
        self,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ) -> None:
        super().__init__()
        self._waiting: tuple[str, int, Logs] | None = None  # a hook not yet called
        self.callbacks: list[Any] = []
        self._ended: states.EpochEnd | None = None
        for callback in tree.flatten(callbacks) if callbacks else []:
            self.append(callback)
        if add_history and self.history is None:
            self.append(History())
        if add_progbar and not any(
            getattr(callback, "shows_progress", False) for callback in self.callbacks
        ):
            from ganglion.callbacks.loggers import ProgbarLogger

            self.append(ProgbarLogger())
        self.set_model(model)
        self.set_params(params)

    def append(self, callback: Any) -> None:
        """Add a callback at the end; refuse other objects."""
        if inspect.isclass(callback):
            raise TypeError(
                f"{callback.__name__} is a class: pass an instance, "
                f"`callbacks=[{callback.__name__}(...)]`."
            )
        if not hasattr(callback, "set_model") or not hasattr(callback, "on_epoch_end"):
            raise TypeError(
                f"{callback!r} is not a callback: derive a class from "
                "`ganglion.callbacks.Callback`, or use a LambdaCallback."
            )
        self.callbacks.append(callback)

    @property
    def history(self) -> History | None:
        """The `History` among the callbacks, None if there is none."""
        histories = (c for c in reversed(self.callbacks) if isinstance(c, History))
        return next(histories, None)

    @property
    def stop_training(self) -> bool:
        """Whether a callback has requested a stop (``model.stop_training = True``)."""
        return bool(getattr(self.model, "stop_training", False))

    @property
    def needs_batches(self) -> bool:
        """Whether some callback must see every step, whatever is running."""
        return any(self.needs_batches_in(mode) for mode in _BATCH_HOOKS)

    def needs_batches_in(self, mode: str) -> bool:
        return bool(self.callbacks) and any(
            callback.needs_batches_in(mode)
            if isinstance(callback, Callback)
            else any(_wants_each(callback, name) for name in _BATCH_HOOKS[mode])
            for callback in self.callbacks
        )

    def hears_batches_in(self, mode: str) -> bool:
        """Return whether some callback does anything before or after batches."""
        return any(
            _does_something(callback, name)
            for callback in self.callbacks
            for name in _BATCH_HOOKS[mode]
        )

    @property
    def may_lag(self) -> bool:
        """Whether all callbacks may get results of an epoch after later ones."""
        # Inherited hooks are not the class's own.
        return all(vars(type(c)).get("may_lag", False) for c in self.callbacks)

    @property
    def has_foreign(self) -> bool:
        """Whether a callback is the user's, which may even change the data."""
        return any(
            isinstance(callback, LambdaCallback)
            or not type(callback).__module__.startswith("ganglion.")
            for callback in self.callbacks
        )

    def set_validation_data(self, arrays: list[Any]) -> None:
        """Set what Keras 2 set on callbacks: inputs, targets, weights."""
        for callback in self.callbacks:
            known = getattr(callback, "validation_data", None)
            if known is None or known is vars(callback).get("_validation_told"):
                callback.validation_data = callback._validation_told = arrays

    def set_model(self, model: Any) -> None:
        if model is None:
            return
        super().set_model(model)
        if not self.callbacks:
            return
        if self.history is not None:
            model.history = self.history
        for callback in self.callbacks:
            callback.set_model(model)

    def _group(self, index: int) -> tuple[int, int]:
        """Return the first and last of the steps that share a call of batch hooks."""
        size = int(getattr(self.model, "steps_per_execution", 1))
        if size == 1:
            return index, index
        first = index - index % size
        return first, first + size - 1

    def call_batch_hook(self, name: str, index: int, logs: Logs) -> None:
        """Call the hook of every callback; of several steps, once for all.

        As in Keras, the number is that of the last step of a whole group. A hook that
        is content to be called after many steps is called as they come.
        """
        first, last = self._group(index)
        is_begin = name.endswith("_begin")
        is_due = index == (first if is_begin else last)
        self._waiting = None if is_due or is_begin else (name, index, logs)
        for callback in self.callbacks:
            if is_due or not _wants_each_step(callback, name):
                getattr(callback, name)(index, logs)

    def call_waiting_hook(self) -> None:
        """Call the hook of a last group that was not whole."""
        if self._waiting is None:
            return
        (name, index, logs), self._waiting = self._waiting, None
        for callback in self.callbacks:
            if _wants_each_step(callback, name):
                getattr(callback, name)(self._group(index)[1], logs)

    def set_params(self, params: dict[str, Any] | None) -> None:
        self.params = params
        if params:
            for callback in self.callbacks:
                callback.set_params(params)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._ended = states.EpochEnd(epoch, plain_logs(logs))
        for callback in self.callbacks:
            # Before the call: a callback that saves has seen this epoch itself.
            self._ended.called += 1
            callback.on_epoch_end(epoch, self._ended.logs)

    def get_state(self) -> dict[str, Any]:
        return states.states_of(self.callbacks, self._ended)

    def set_state(self, state: dict[str, Any]) -> None:
        if states.take_up(self.callbacks, state) and state.get("is_over"):
            self.model.stop_training = True


def plain_logs(logs: Logs | None) -> Logs:
    """Return the logs sorted by name, with Python floats, nested ones flattened.

    >>> import numpy as np
    >>> plain_logs({"loss": np.float32(0.5), "accuracy": 1})
    {'accuracy': 1.0, 'loss': 0.5}
    """
    plain: Logs = Results()
    for name, value in sorted((logs or {}).items()):
        if isinstance(value, dict):
            plain.update(plain_logs(value))
            continue
        try:
            plain[name] = float(value)
        except (TypeError, ValueError):
            plain[name] = value
    return plain


def _make_dispatch(name: str) -> Callable[..., None]:
    """Return a hook of `CallbackList` that calls the hook of every callback."""
    numbered = "batch" in name or "epoch" in name

    def with_number(self: CallbackList, index: int, logs: Logs | None = None) -> None:
        if not self.callbacks:
            return
        # One dictionary for all: entries that a callback adds (the learning rate) reach
        # the next ones and the history.
        shared = plain_logs(logs)
        if "batch" in name:
            self.call_batch_hook(name, index, shared)
            return
        self.call_waiting_hook()
        for callback in self.callbacks:
            getattr(callback, name)(index, shared)

    def without_number(self: CallbackList, logs: Logs | None = None) -> None:
        if not self.callbacks:
            return
        self.call_waiting_hook()
        shared = plain_logs(logs)
        for callback in self.callbacks:
            getattr(callback, name)(shared)

    hook: Callable[..., None] = with_number if numbered else without_number
    hook.__name__, hook.__doc__ = name, f"Call `{name}` of every callback."
    return hook


for _name in _HOOKS:
    if _name not in vars(CallbackList):
        setattr(CallbackList, _name, _make_dispatch(_name))
