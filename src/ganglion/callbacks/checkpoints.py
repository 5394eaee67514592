"""Callbacks that save the model, or the state needed to resume an interrupted run."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files, keras2
from ganglion.callbacks.base import Callback, Logs, per_chunk
from ganglion.callbacks.monitor import MonitorCallback
from ganglion.callbacks.results import Results
from ganglion.callbacks.states import best_of, whole_number
from ganglion.progress import print_message


class _SaveFrequency:
    """Counts training steps over epochs, up to the next saving."""

    def __init__(self, frequency: Any, owner: str) -> None:
        is_whole = isinstance(frequency, (int, np.integer))
        is_whole = is_whole and not isinstance(frequency, bool)
        if frequency != "epoch" and (not is_whole or frequency < 1):
            raise ValueError(
                f"Unrecognized save_freq: {frequency!r}. Invalid value for {owner}: "
                "use 'epoch' or a number of batches."
            )
        self.frequency, self.counts_batches = frequency, frequency != "epoch"
        self._since_saving = 0
        self._last_batch: int | None = None

    def is_due(self, batch: int) -> bool:
        """Return whether to save after this step."""
        if not self.counts_batches:
            return False
        new_epoch = self._last_batch is None or batch <= self._last_batch
        self._since_saving += batch + 1 if new_epoch else batch - self._last_batch  # type: ignore[operator]
        self._last_batch = batch
        if self._since_saving < self.frequency:
            return False
        self._since_saving = 0
        return True

    def get_state(self) -> dict[str, Any]:
        return {"since_saving": self._since_saving, "last_batch": self._last_batch}

    def set_state(self, state: dict[str, Any]) -> None:
        self._since_saving = whole_number(state, "since_saving")
        last = state["last_batch"]
        self._last_batch = None if last is None else whole_number(state, "last_batch")


def _with_period(init: Callable[..., None]) -> Callable[..., None]:
    """Make `ModelCheckpoint` accept Keras 2's `period`, too."""

    @functools.wraps(init)
    def init_with_period(
        self: Any, *args: Any, period: int | None = None, **kwargs: Any
    ) -> None:
        init(self, *args, **kwargs)
        if period is not None:
            new = "`save_freq=`, in batches"
            keras2.note("`ModelCheckpoint(period=)`", new, changes_defaults=False)
            self.period = max(int(period), 1)

    return init_with_period


class ModelCheckpoint(MonitorCallback):
    """Saves the model or its weights, every epoch or every given number of steps.

    Args:
        filepath: Where to; ``{epoch:02d}``, ``{val_loss:.2f}`` and the like are filled
            in. Ends in ``.keras`` or ``.h5``; with `save_weights_only`, in
            ``.weights.h5`` (Keras 2's other names are accepted with a warning).
        monitor: The metric that decides which model is best.
        verbose: 1 for messages.
        save_best_only: Whether to save only models that are better than all before.
        save_weights_only: Whether to save the weights instead of the model.
        mode: "min", "max", or "auto" to go by the metric.
        save_freq: "epoch", or a number of steps.
        initial_value_threshold: The best value so far.

    >>> ModelCheckpoint("best.keras", monitor="val_accuracy", save_best_only=True).mode
    'auto'
    """

    period = 1  # Keras 2: epochs between saves

    writes_file = "filepath"

    @_with_period
    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__(monitor, mode, initial_value_threshold)
        self.filepath, self.verbose = os.fspath(filepath), verbose
        self.save_best_only, self.save_weights_only = save_best_only, save_weights_only
        self.save_freq = save_freq
        self._frequency = _SaveFrequency(save_freq, "ModelCheckpoint")
        self.counts_batches = self._frequency.counts_batches
        self._epoch = 0
        _check_ending(self.filepath, save_weights_only)

    def get_state(self) -> dict[str, Any]:
        return {"best": self.best, **self._frequency.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.best = best_of(state)
        self._frequency.set_state(state)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch

    @per_chunk
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self._frequency.is_due(batch):
            self._save(self._epoch, batch, logs or {})

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if not self.counts_batches and (epoch + 1) % self.period == 0:
            self._save(epoch, None, logs or {})

    def _save(self, epoch: int, batch: int | None, logs: Logs) -> None:
        path = self._path(epoch, batch, logs)
        if not self._should_save(epoch, path, logs):
            return
        if os.path.isdir(path):
            raise IsADirectoryError(
                f"ModelCheckpoint cannot write {path!r}: it is a folder. Give the path "
                "of a file."
            )
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if self.save_weights_only:
            self.model.save_weights(path, overwrite=True)
        else:
            self.model.save(path, overwrite=True)
        if self.verbose > 0:
            print_message(f"\nEpoch {epoch + 1}: finished saving model to {path}")

    def _path(self, epoch: int, batch: int | None, logs: Logs) -> str:
        fields = Results({"epoch": epoch + 1, **logs})
        if batch is not None:
            fields.setdefault("batch", batch + 1)
        try:
            return self.filepath.format_map(fields)
        except KeyError as error:
            raise KeyError(
                f"ModelCheckpoint cannot fill in {error} in {self.filepath!r}. "
                f"There are: {', '.join(sorted(fields))}."
            ) from None

    def _should_save(self, epoch: int, path: str, logs: Logs) -> bool:
        head = f"\nEpoch {epoch + 1}:"
        if not self.save_best_only:
            if self.verbose > 0:
                print_message(f"{head} saving model to {path}")
            return True
        current = self.monitored(logs)
        if current is None:
            return True  # as Keras does: better one file too many than none
        best = "None" if self.best is None else f"{self.best:.5f}"
        improved = self._is_improvement(current, self.best)
        if improved:
            self.best = current
            text = f"improved from {best} to {current:.5f}, saving model to {path}"
        else:
            text = f"did not improve from {best}"
        if self.verbose > 0:
            print_message(f"{head} {self.monitor} {text}")
        return improved


def _check_ending(path: str, weights_only: bool) -> None:
    """Refuse now what `save` or `save_weights` would refuse after the first epoch."""
    if weights_only and path.endswith(".keras"):
        raise ValueError(
            "ModelCheckpoint with `save_weights_only=True` needs a path that ends in "
            f"'.weights.h5', not {path!r}: '.keras' is a whole model."
        )
    if not weights_only and not path.endswith((".keras", ".h5", ".hdf5")):
        raise ValueError(
            "ModelCheckpoint needs a path that ends in '.keras' (or in '.h5' for Keras "
            f"2's format), not {path!r}."
        )


class BackupAndRestore(Callback):
    """Saves the state of training in a folder, and resumes from there.

    When `fit` runs again with the same folder after an interruption, it begins after
    the last epoch that was backed up, with callbacks as they were: the best value, the
    patience that is left (`Callback.get_state`). A backup is whole at every moment: the
    new one is written beside the old before the old is given up.

    Args:
        backup_dir: The folder; nothing else may use it.
        save_freq: "epoch", or a number of steps. From a backup within an epoch, the
            epoch resumes at that step.
        double_checkpoint: Whether to keep the backup before the last, too, and use it
            if the last one is damaged.
        delete_checkpoint: Whether to remove the folder when training is done.

    >>> BackupAndRestore("backup", save_freq=100).save_freq
    100
    """

    writes_folder = "backup_dir"

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        if not backup_dir:
            raise ValueError(
                "Empty `backup_dir` argument passed: BackupAndRestore needs a folder."
            )
        self.backup_dir, self.save_freq = Path(backup_dir), save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self._frequency = _SaveFrequency(save_freq, "BackupAndRestore")
        self.counts_batches = self._frequency.counts_batches
        self._epoch = 0

    def get_state(self) -> dict[str, Any]:
        return self._frequency.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._frequency.set_state(state)

    @property
    def _index(self) -> Path:
        return self.backup_dir / "training_metadata.json"

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not getattr(self.model, "built", True):
            raise ValueError(
                "BackupAndRestore needs a model that is built before `fit`: give it an "
                "Input, or call it on a batch of data."
            )
        from ganglion import saving

        for backup in self._backups():
            path = self.backup_dir / backup["file"]
            try:
                saving.load_checkpoint(path, self.model)
            except (OSError, ValueError) as error:
                if _is_of_another_model(error):
                    raise
                warnings.warn(
                    f"The backup {path} cannot be used and is left out: {error}",
                    stacklevel=2,
                )
            else:
                self.model.initial_epoch = self._epoch = backup["epoch"]
                return

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch = epoch + 1
        if not self.counts_batches:
            self._back_up(0)

    @per_chunk
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self._frequency.is_due(batch):
            self._back_up(batch + 1)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self.model.initial_epoch = 0
        if self.delete_checkpoint and self.backup_dir.exists():
            shutil.rmtree(self.backup_dir)

    def _backups(self) -> list[dict[str, Any]]:
        """Return the backups there are, the newest first."""
        try:
            index = json.loads(files.read_file(self._index))
            return [_backup(entry["file"]) for entry in index["backups"]]
        except FileNotFoundError:
            return self._backups_without_index()
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            backups = self._backups_without_index()
            then = "look for them by their names" if backups else "start anew"
            warnings.warn(
                f"The list of backups {self._index} is damaged ({error}): I {then}.",
                stacklevel=3,
            )
            return backups

    def _backups_without_index(self) -> list[dict[str, Any]]:
        names = [path.name for path in self.backup_dir.glob("*.checkpoint")]
        known = [_backup(name) for name in names if _NAME.fullmatch(name)]
        known.sort(key=lambda backup: (backup["epoch"], backup["batch"]), reverse=True)
        return known

    def _back_up(self, batch: int) -> None:
        from ganglion import saving

        self.backup_dir.mkdir(parents=True, exist_ok=True)
        name = f"epoch-{self._epoch}-batch-{batch}.checkpoint"
        saving.save_checkpoint(self.backup_dir / name, self.model)
        old = [backup for backup in self._backups() if backup["file"] != name]
        spared = 1 if self.double_checkpoint else 0
        index = {"backups": [_backup(name), *old[:spared]]}
        files.write_file(self._index, json.dumps(index).encode())
        for backup in old[spared:]:
            (self.backup_dir / backup["file"]).unlink(missing_ok=True)


_NAME = re.compile(r"epoch-(\d+)-batch-(\d+)\.checkpoint")


def _backup(name: str) -> dict[str, Any]:
    """Return the position of a backup, read off the name of a file in its folder."""
    fields = _NAME.fullmatch(name)
    if fields is None:
        raise ValueError(f"{name!r:.80} is not a backup")
    return {"file": name, "epoch": int(fields[1]), "batch": int(fields[2])}


def _is_of_another_model(error: Exception) -> bool:
    """Return whether a backup is sound, but does not fit the model."""
    from ganglion.saving.weights import MismatchError

    return any(isinstance(e, MismatchError) for e in (error, error.__cause__))
