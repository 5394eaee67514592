"""Training: fit, evaluate and predict, the one loop behind them all."""

from __future__ import annotations

from typing import Any

from ganglion import keras2, tree
from ganglion.callbacks import CallbackList, History
from ganglion.training import counts, model_data
from ganglion.training.compilation import Compilable, Logs
from ganglion.training.data_adapters import (
    DEFAULT_BATCH,
    Table,
    checked_batch,
    class_weighted,
)
from ganglion.training.fit_loop import Session, Validation
from ganglion.training.step_cache import joined


class Trainer(Compilable):
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
        self._runner.turns.refuse_training("fit")
        if "nb_epoch" in kwargs:
            keras2.note("`nb_epoch=`", "`epochs=`")
            epochs = kwargs.pop("nb_epoch")
        rest = _without_workers(kwargs)
        if rest != kwargs:
            keras2.note(
                "`workers=`", "an argument of `PyDataset`", changes_defaults=False
            )
        if rest:
            raise TypeError(f"`fit` does not know {', '.join(rest)}.")
        counts.check_epochs(epochs, initial_epoch)
        counts.check_split(validation_split)
        validation_freq = counts.frequency(validation_freq)
        steps_per_epoch = counts.count(steps_per_epoch, "steps_per_epoch")
        validation_steps = counts.count(validation_steps, "validation_steps")
        counts.count(batch_size, "batch_size")
        counts.count(validation_batch_size, "validation_batch_size")
        x, y, batch_size, rows = model_data.opened(x, y, batch_size)
        shuffle = rows.get("shuffle", shuffle)
        source = model_data.training_source(
            self,
            x,
            y,
            sample_weight,
            class_weight,
            bool(shuffle),
            {
                "y": y is not None,
                "sample_weight": sample_weight is not None,
                "validation_split": bool(validation_split),
                "batch_size": batch_size is not None,
            },
        )
        shuffle = _shuffles(source, shuffle)
        held_out = None
        if validation_data is not None:
            held_out = model_data.validation_source(self, validation_data)
        elif validation_split and isinstance(source, Table):
            source, held_out = source.split(validation_split)
        for one in (source, held_out):
            if check and isinstance(one, Table):
                one.check_finite()
        size, total = _size_and_steps(source, batch_size)
        calls = self._callbacks(
            callbacks, verbose, steps_per_epoch or total, epochs, add_history=True
        )
        Session(
            self,
            self._runner,
            calls,
            source,
            size,
            bool(shuffle),
            steps_per_epoch or total,
            Validation(
                held_out,
                _validation_size(held_out, validation_batch_size or batch_size),
                validation_steps,
                validation_freq,
            ),
        ).train(initial_epoch, epochs)
        assert calls.history is not None
        return calls.history

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
        rest = _without_workers(kwargs)
        if rest != kwargs:
            keras2.note(
                "`workers=`", "an argument of `PyDataset`", changes_defaults=False
            )
        if rest:
            raise TypeError(f"`evaluate` does not know {', '.join(rest)}.")
        self._require_compiled("evaluate")
        steps = counts.count(steps, "steps")
        counts.count(batch_size, "batch_size")
        x, y, batch_size, _ = model_data.opened(x, y, batch_size)
        source = model_data.source(self, x, y, sample_weight)
        size, total = _size_and_steps(source, batch_size)
        calls = self._callbacks(callbacks, verbose, steps or total)
        logs = self.evaluate_source(source, size, steps, calls)
        return logs if return_dict else _as_list(logs, self.metrics_names)

    def evaluate_source(
        self, source: Any, size: int | None, steps: int | None, calls: CallbackList
    ) -> Logs:
        """Return the loss and the metrics on a table or stream, by name."""
        logs: Logs = {}
        with self._runner.turns.session():
            self.reset_metrics()
            self.stop_evaluating = False
            calls.on_test_begin()
            for done in self._each_chunk("test", source, size or 0, steps, calls):
                logs = self.get_metrics_result()
                calls.on_test_batch_end(done - 1, logs)
                if self.stop_evaluating:
                    break
            calls.on_test_end(logs)
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
        steps = counts.count(steps, "steps")
        counts.count(batch_size, "batch_size")
        x, _, batch_size, _ = model_data.opened(x, None, batch_size)
        source = model_data.source(self, x)
        size, total = _size_and_steps(source, batch_size)
        calls = self._callbacks(callbacks, verbose, steps or total)
        self.stop_predicting = False
        calls.on_predict_begin()
        parts: list[Any] = []
        for done in self._each_chunk("predict", source, size, steps, calls, parts):
            calls.on_predict_batch_end(done - 1, {"outputs": parts[-1]})
            if self.stop_predicting:
                break
        calls.on_predict_end()
        return joined(parts)

    def _each_chunk(
        self,
        kind: str,
        source: Any,
        size: int,
        steps: int | None,
        calls: CallbackList,
        parts: list[Any] | None = None,
    ) -> Any:
        """Run `test` or `predict` over a source; yield the number of steps done."""
        begin = getattr(calls, f"on_{kind}_batch_begin")
        if not isinstance(source, Table):
            source.restart()
            for done, (x, y, weight) in enumerate(source.batches(steps), 1):
                begin(done - 1)
                results = self._runner.once(kind, model_data.table(self, x, y, weight))
                if parts is not None:
                    parts.append(results)
                yield done
            source.end_epoch()
            return
        with self._runner.cursor() as cursor:
            for done, results in self._runner.epoch(
                kind,
                source,
                size,
                cursor=cursor,
                steps=steps,
                each_batch=calls.needs_batches_in(kind),
                before=begin,
            ):
                if parts is not None:
                    parts.append(results)
                yield done

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
        weights = class_weighted(y, sample_weight, class_weight)
        return self._one("train", x, y, weights, return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Return the loss and metrics of one batch, without learning."""
        self._require_compiled("test_on_batch")
        return self._one("test", x, y, sample_weight, return_dict)

    def _one(self, kind: str, x: Any, y: Any, weight: Any, return_dict: bool) -> Any:
        batch = model_data.table(self, x, y, weight)
        with self._runner.turns.take():
            if kind == "train":
                self._runner.turns.refuse_training("train_on_batch")
            self.training_state.saved_metrics = None
            self.reset_metrics()
            self._runner.once(kind, batch)
            logs = self.get_metrics_result()
        return logs if return_dict else _as_list(logs, self.metrics_names)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the model's outputs for one batch."""
        results = self._runner.once("predict", model_data.table(self, x))
        return tree.map_leaves(lambda one: one[0], results)

    # ---- Keras 2 -------------------------------------------------------------------

    def fit_generator(self, generator: Any, *args: Any, **kwargs: Any) -> History:
        """Keras 2's name for `fit` on a generator."""
        keras2.note("`fit_generator`", "`fit`")
        names = (
            "steps_per_epoch",
            "epochs",
            "verbose",
            "callbacks",
            "validation_data",
            "validation_steps",
        )
        kwargs.update(zip(names, args, strict=False))
        return self.fit(generator, **_without_workers(kwargs))

    def evaluate_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `evaluate` on a generator."""
        keras2.note("`evaluate_generator`", "`evaluate`")
        kwargs.setdefault("verbose", 0)
        return self.evaluate(generator, steps=steps, **_without_workers(kwargs))

    def predict_generator(
        self, generator: Any, steps: Any = None, **kwargs: Any
    ) -> Any:
        """Keras 2's name for `predict` on a generator."""
        keras2.note("`predict_generator`", "`predict`")
        kwargs.setdefault("verbose", 0)
        return self.predict(generator, steps=steps, **_without_workers(kwargs))


def _shuffles(source: Any, shuffle: Any) -> bool:
    chosen = source.shuffle if isinstance(source, Table) else None
    return bool(shuffle) if chosen is None else chosen


def _size_and_steps(source: Any, batch_size: int | None) -> tuple[int, int | None]:
    """Return the batch size and the number of steps; 0 and what is known of streams."""
    if not isinstance(source, Table):
        return 0, source.length
    size = source.batch_size or checked_batch(batch_size, source.rows)
    return size, -(-source.rows // size)


def _validation_size(held_out: Any, batch_size: int | None) -> int | None:
    """Return the batch size of validation, None for a stream, which has its own."""
    if not isinstance(held_out, Table):
        return None
    return min(held_out.batch_size or batch_size or DEFAULT_BATCH, held_out.rows)


def _as_list(logs: Logs, names: list[str]) -> Any:
    """Return the values in the order of the metrics, a lone loss as a number."""
    ordered = [name for name in names if name in logs]
    ordered += [name for name in logs if name not in ordered]
    values = [logs[name] for name in ordered]
    return values[0] if len(values) == 1 else values


def _without_workers(kwargs: dict[str, Any]) -> dict[str, Any]:
    dropped = ("workers", "use_multiprocessing", "max_queue_size", "pickle_safe")
    return {name: one for name, one in kwargs.items() if name not in dropped}
