"""fit, evaluate and predict."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion import config, keras2, tree
from ganglion.callbacks import CallbackList, History
from ganglion.training import data_adapters, fit_loop
from ganglion.training.data_adapters import Source, Table, as_rows, count
from ganglion.training.fit_loop import FitLoop, Validation
from ganglion.training.state import Logs
from ganglion.training.step_methods import StepMethods


class Trainer(StepMethods):
    """The part of a model that learns."""

    # ---- fit ---------------------------------------------------------------------

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
        check: bool = False,
        **kwargs: Any,
    ) -> History:
        """Train for a number of epochs.

        Arguments are Keras'. ``check=True`` looks through the data for NaN and
        infinity first and names the array and row.

        >>> import numpy as np, ganglion as keras
        >>> keras.utils.set_random_seed(1)
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(np.eye(2), [0.0, 1.0], epochs=3, verbose=0)
        >>> len(history.history["loss"])
        3
        """
        self._require_compiled("fit")
        self._step_cache.lock.refuse_training("fit")
        self.refuse_own_function("train")
        if "nb_epoch" in kwargs:
            keras2.note("`nb_epoch=`", "`epochs=`")
            epochs = kwargs.pop("nb_epoch")
        _refuse_unknown("fit", kwargs)
        fit_loop.check_epochs(epochs, initial_epoch)
        fit_loop.check_split(validation_split)
        frequency = fit_loop.checked_frequency(validation_freq)
        steps_per_epoch = count(steps_per_epoch, "steps_per_epoch")
        validation_steps = count(validation_steps, "validation_steps")
        count(batch_size, "batch_size")
        count(validation_batch_size, "validation_batch_size")
        x, y, batch_size, shuffles = as_rows(x, y, batch_size)
        shuffle = bool(shuffle if shuffles is None else shuffles)
        source = data_adapters.training_source(
            self,
            x,
            y,
            sample_weight,
            class_weight,
            shuffle,
            refused_for_streams={
                "y": y is not None,
                "sample_weight": sample_weight is not None,
                "validation_split": bool(validation_split),
                "batch_size": batch_size is not None,
            },
            batch_size=batch_size,
        )
        if isinstance(source, Table) and source.shuffle is not None:
            shuffle = source.shuffle
        held_out = None
        if validation_data is not None:
            size = validation_batch_size or batch_size
            held_out = data_adapters.validation_source(self, validation_data, size)
        elif validation_split:
            source, held_out = source.split(validation_split)
        for rows in (source, held_out):
            if check and isinstance(rows, Table):
                rows.check_finite()
        size, total = _size_and_steps(source, batch_size, stacklevel=4)
        epochs = _limited("epochs", epochs, config.max_epochs()) or 0
        steps_per_epoch = _limited_steps(steps_per_epoch, total)
        steps = steps_per_epoch or total
        called = self._callbacks(callbacks, verbose, steps, epochs, add_history=True)
        validation = Validation(
            self.evaluate_source,
            held_out,
            _validation_size(held_out, validation_batch_size or batch_size),
            validation_steps,
            frequency,
        )
        cache = self._step_cache
        loop = FitLoop(self, cache, called, source, size, shuffle, steps, validation)
        loop.train(initial_epoch, epochs)
        assert called.history is not None
        return called.history

    def _callbacks(
        self,
        callbacks: Any,
        verbose: Any,
        steps: int | None,
        epochs: int = 1,
        add_history: bool = False,
    ) -> CallbackList:
        return CallbackList(
            callbacks,
            add_history=add_history,
            add_progbar=verbose != 0,
            verbose=1 if verbose == "auto" else verbose,
            epochs=epochs,
            steps=steps,
            model=self,
        )

    # ---- evaluate and predict ------------------------------------------------------

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the loss and the metrics on data, without learning."""
        _refuse_unknown("evaluate", kwargs)
        self._require_compiled("evaluate")
        self.refuse_own_function("test")
        source, size, steps, called = self._prepared(
            x, y, sample_weight, batch_size, steps, callbacks, verbose
        )
        logs = self.evaluate_source(source, size, steps, called)
        return logs if return_dict else _as_list(logs, self.metrics_names)

    def evaluate_source(
        self,
        source: Source,
        size: int | None,
        steps: int | None,
        callbacks: CallbackList,
    ) -> Logs:
        """Return the loss and the metrics on a table or stream, by name."""
        total = -(-source.rows // size) if isinstance(source, Table) and size else None
        steps = _limited_steps(steps, total)
        hears_batches = callbacks.hears_batches_in("test")
        done, results = 0, None
        with self._step_cache.lock.own_metrics():
            self.reset_metrics()
            self.stop_evaluating = False
            callbacks.on_test_begin()
            for done, results in self._chunks(
                "test", source, size or 0, steps, callbacks
            ):
                if hears_batches:
                    callbacks.on_test_batch_end(done - 1, self.batch_logs(results))
                if self.stop_evaluating:
                    break
            logs = self.epoch_logs(results) if done else {}
            callbacks.on_test_end(logs)
        return logs

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Return the model's outputs for data."""
        self.refuse_own_function("predict")
        source, size, steps, called = self._prepared(
            x, None, None, batch_size, steps, callbacks, verbose
        )
        self.stop_predicting = False
        called.on_predict_begin()
        parts: list[Any] = []
        for done, outputs in self._chunks("predict", source, size, steps, called):
            parts.append(outputs)
            last = tree.map_leaves(lambda rows: rows[-1], outputs)  # of the steps
            called.on_predict_batch_end(done - 1, {"outputs": last})
            if self.stop_predicting:
                break
        called.on_predict_end()
        return _joined(parts)

    def _prepared(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        batch_size: int | None,
        steps: int | None,
        callbacks: Any,
        verbose: Any,
    ) -> tuple[Source, int, int | None, CallbackList]:
        steps = count(steps, "steps")
        count(batch_size, "batch_size")
        x, y, batch_size, _ = as_rows(x, y, batch_size)
        source = data_adapters.source(self, x, y, sample_weight, batch_size)
        size, total = _size_and_steps(source, batch_size, stacklevel=5)
        steps = _limited_steps(steps, total)
        return source, size, steps, self._callbacks(callbacks, verbose, steps or total)

    def _chunks(
        self,
        kind: str,
        source: Source,
        size: int,
        steps: int | None,
        callbacks: CallbackList,
    ) -> Iterator[tuple[int, Any]]:
        """Run `test` or `predict` over a source; yield steps done and results."""
        begin = getattr(callbacks, f"on_{kind}_batch_begin")
        cache = self._step_cache
        if isinstance(source, Table):
            if source.is_one_batch(size, steps):
                begin(0)
                yield 1, cache.run_batch(kind, source)
                return
            each = callbacks.needs_batches_in(kind)
            source, length = cache.padded(kind, source)
            cursor = cache.take_cursor()
            try:
                for done, results in fit_loop.run_epoch(
                    cache,
                    kind,
                    source,
                    size,
                    cursor=cursor,
                    steps=steps,
                    each_batch=each,
                    before=begin,
                ):
                    yield done, cache.buckets.cut(results, length)
            finally:
                cache.return_cursor(cursor)
            return
        source.restart()
        if kind == "predict" and data_adapters.is_never_compiled(self):
            for done, (x, _, _) in enumerate(source.batches(steps), 1):
                begin(done - 1)
                # Copies, because a model may return what it is given.
                yield done, tree.map_leaves(lambda rows: np.array([rows]), self(x))
            return
        batches = data_adapters.tables(self, source, steps)
        for done, (batch, _) in enumerate(batches, 1):
            begin(done - 1)
            yield done, cache.run_batch(kind, batch)
        source.end_epoch()

    # ---- one batch -----------------------------------------------------------------

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Take one step on one batch; return the loss and metrics of that batch."""
        self._require_compiled("train_on_batch")
        weights = data_adapters.class_weighted(y, sample_weight, class_weight)
        return self._on_batch("train", x, y, weights, return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Return the loss and metrics of one batch, without learning."""
        self._require_compiled("test_on_batch")
        return self._on_batch("test", x, y, sample_weight, return_dict)

    def _on_batch(
        self, kind: str, x: Any, y: Any, weight: Any, return_dict: bool
    ) -> Any:
        batch = data_adapters.table(self, x, y, weight)
        with self.between_steps():
            if kind == "train":
                self._step_cache.lock.refuse_training("train_on_batch")
            self.training_state.saved_metrics = None
            self.reset_metrics()
            logs = self.batch_logs(self._step_cache.run_batch(kind, batch))
        return logs if return_dict else _as_list(logs, self.metrics_names)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the model's outputs for one batch."""
        results = self._step_cache.run_batch("predict", data_adapters.table(self, x))
        return tree.map_leaves(lambda steps: steps[0], results)

    # ---- Keras 2 -------------------------------------------------------------------

    def fit_generator(self, generator: Any, *args: Any, **kwargs: Any) -> History:
        """Keras 2's name for `fit` on a generator."""
        keras2.note("`fit_generator`", "`fit`")
        kwargs.update(zip(_OLD_FIT_ORDER.split(), args, strict=False))
        generator = _as_steps(kwargs, "samples_per_epoch", "steps_per_epoch", generator)
        held_out = kwargs.get("validation_data")
        held_out = _as_steps(kwargs, "nb_val_samples", "validation_steps", held_out)
        if held_out is not None:
            kwargs["validation_data"] = held_out
        return self.fit(generator, **_without_workers(kwargs))

    def evaluate_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `evaluate` on a generator."""
        keras2.note("`evaluate_generator`", "`evaluate`")
        kwargs = {"verbose": 0, "steps": steps, **kwargs}
        generator = _as_steps(kwargs, "val_samples", "steps", generator)
        return self.evaluate(generator, **_without_workers(kwargs))

    def predict_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `predict` on a generator."""
        keras2.note("`predict_generator`", "`predict`")
        kwargs = {"verbose": 0, "steps": steps, **kwargs}
        generator = _as_steps(kwargs, "val_samples", "steps", generator)
        return self.predict(generator, **_without_workers(kwargs))


_OLD_FIT_ORDER = (
    "steps_per_epoch epochs verbose callbacks validation_data validation_steps "
    "class_weight max_queue_size workers use_multiprocessing shuffle initial_epoch"
)


def _as_steps(kwargs: dict[str, Any], samples: str, steps: str, generator: Any) -> Any:
    """Turn Keras 1's number of rows into one of batches; return the generator."""
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


def _size_and_steps(
    source: Source, batch_size: int | None, stacklevel: int
) -> tuple[int, int | None]:
    """Return the batch size (0 for a stream) and the number of steps, if known."""
    if not isinstance(source, Table):
        return 0, source.length
    size = source.batch_size
    if not size:
        size = data_adapters.checked_batch(batch_size, source.rows, stacklevel)
    return size, -(-source.rows // size)


def _limited_steps(steps: int | None, total: int | None) -> int | None:
    """Return the steps that were asked for, or the limit of `config`."""
    most = config.max_steps_per_epoch()
    is_below = most is None or (steps or total or most + 1) <= most
    return steps if is_below else _limited("steps_per_epoch", steps, most)


def _limited(name: str, value: int | None, most: int | None) -> int | None:
    """Return a number of epochs or steps, or the limit with a warning."""
    if not most or (value is not None and value <= most):
        return value
    warnings.warn(f"Limiting {name} to {most}", stacklevel=4)
    return most


def _validation_size(held_out: Source | None, batch_size: int | None) -> int | None:
    """Return the batch size of validation, None for a stream, which has its own."""
    if not isinstance(held_out, Table):
        return None
    size = held_out.batch_size or batch_size or data_adapters.DEFAULT_BATCH
    return min(size, held_out.rows)


def _joined(parts: list[Any]) -> Any:
    """Join the results of chunks, each (steps, batch, ...), into rows."""
    if len(parts) == 1:
        return tree.map_leaves(_as_rows, parts[0])
    columns = zip(*map(tree.flatten, parts), strict=True)
    joined = [np.concatenate(list(map(_as_rows, chunks))) for chunks in columns]
    return tree.pack(parts[0], joined)


def _as_rows(results: np.ndarray) -> np.ndarray:
    steps, batch, *row = results.shape
    return results.reshape(steps * batch, *row)  # not by -1: rows may be empty


def _as_list(logs: Logs, names: list[str]) -> Any:
    """Return the values in the order of the metrics, a lone loss as a number."""
    ordered = [name for name in names if name in logs]
    ordered += [name for name in logs if name not in ordered]
    values = [logs[name] for name in ordered]
    return values[0] if len(values) == 1 else values


_WORKERS = (  # by all their names since Keras 1
    "workers",
    "nb_worker",
    "use_multiprocessing",
    "pickle_safe",
    "max_queue_size",
    "max_q_size",
)


def _without_workers(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in _WORKERS}


def _refuse_unknown(verb: str, kwargs: dict[str, Any]) -> None:
    unknown = _without_workers(kwargs)
    if unknown != kwargs:
        keras2.note("`workers=`", "an argument of `PyDataset`", changes_defaults=False)
    if unknown:
        raise TypeError(f"`{verb}` does not know {', '.join(unknown)}.")
