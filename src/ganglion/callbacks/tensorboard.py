"""The TensorBoard callback: metrics, learning rate and weights as event files."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ganglion import keras2
from ganglion.callbacks.base import Callback, Logs, per_chunk
from ganglion.callbacks.event_file import EventFile
from ganglion.callbacks.rates import learning_rate_of
from ganglion.callbacks.states import whole_number

_OLD = ("batch_size", "write_grads", "embeddings_layer_names", "embeddings_data")


def _without_old(init: Callable[..., None]) -> Callable[..., None]:
    """Let `TensorBoard` take, and leave out, arguments that Keras 2 had."""

    @functools.wraps(init)
    def init_without_old(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in _OLD:
            if name in kwargs:
                old = f"`TensorBoard({name}=)`"
                keras2.note(old, "left out", changes_defaults=False)
                del kwargs[name]
        init(self, *args, **kwargs)

    return init_without_old


class TensorBoard(Callback):
    """Writes what TensorBoard shows; neither it nor TensorFlow is needed to write.

    The metrics of epochs are ``epoch_loss``, ``epoch_accuracy``, ... in the folders
    ``train`` and ``validation`` of the log folder, those of steps ``batch_loss``, ...

    Args:
        log_dir: The folder.
        histogram_freq: Epochs between two histograms of all weights, 0 for none.
        write_graph: Accepted, as Keras' default is True; the graph is not written.
        write_images: Not supported.
        write_steps_per_second: Whether to write the speed, too.
        update_freq: "epoch", "batch", or a number of steps between two writings of the
            metrics. Other than "epoch" makes training run step by step.
        profile_batch: Not supported.
        embeddings_freq: Not supported.
        embeddings_metadata: Not supported.
    """

    @_without_old
    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: str | int = "epoch",
        profile_batch: Any = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: Any = None,
    ) -> None:
        super().__init__()
        _refuse("write_images", write_images, "use `histogram_freq` to see weights")
        _refuse("profile_batch", profile_batch, "use a profiler of the system")
        _refuse("embeddings_freq", embeddings_freq, "save the embedding's weights")
        _refuse("embeddings_metadata", embeddings_metadata, "leave it out")
        self.log_dir, self.histogram_freq = os.fspath(log_dir), histogram_freq
        self.write_graph = write_graph
        self.write_steps_per_second = write_steps_per_second
        self.update_freq = 1 if update_freq == "batch" else update_freq
        if self.update_freq != "epoch" and not isinstance(self.update_freq, int):
            raise ValueError(
                f"TensorBoard does not know update_freq={update_freq!r}: use 'epoch', "
                "'batch' or a number of batches."
            )
        self.counts_batches = self.update_freq != "epoch"
        self._files: dict[str, EventFile] = {}
        self._step = 0
        self._batch_start = self._epoch_start = 0.0
        self._iterations_before = 0

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._files = {}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._step = 0

    def get_state(self) -> dict[str, Any]:
        return {"step": self._step}

    def set_state(self, state: dict[str, Any]) -> None:
        self._step = whole_number(state, "step")

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._flush()

    def on_test_end(self, logs: Logs | None = None) -> None:
        iterations = self._iterations()
        if iterations is not None:
            for name, value in (logs or {}).items():
                tag = f"evaluation_{name}_vs_iterations"
                self._file("validation").scalar(tag, value, iterations)
        self._flush()

    @per_chunk
    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self._step += 1
        self._batch_start = time.monotonic()

    @per_chunk
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self.update_freq == "epoch" or self._step % int(self.update_freq):
            return
        file = self._file("train")
        if self.write_steps_per_second:
            taken = max(time.monotonic() - self._batch_start, 1e-9)
            file.scalar("batch_steps_per_second", 1.0 / taken, self._step)
        for name, value in (logs or {}).items():
            file.scalar(f"batch_{name}", value, self._step)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch_start = time.monotonic()
        self._iterations_before = self._iterations() or 0

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        train = {k: v for k, v in (logs or {}).items() if not k.startswith("val_")}
        rate = learning_rate_of(self.model)
        if train and rate is not None:
            train["learning_rate"] = rate
        if train and self.write_steps_per_second:
            taken = max(time.monotonic() - self._epoch_start, 1e-9)
            steps = (self._iterations() or 0) - self._iterations_before
            train["steps_per_second"] = steps / taken
        for name, value in train.items():
            self._file("train").scalar(f"epoch_{name}", value, epoch)
        for name, value in (logs or {}).items():
            if name.startswith("val_"):
                tag = f"epoch_{name.removeprefix('val_')}"
                self._file("validation").scalar(tag, value, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            for weight in self.model.weights:
                tag = f"{weight.path}/histogram"
                self._file("train").histogram(tag, weight.numpy(), epoch)
        self._flush()

    def _iterations(self) -> int | None:
        iterations = getattr(self.model.optimizer, "iterations", None)
        return None if iterations is None else int(iterations)

    def _file(self, kind: str) -> EventFile:
        if kind not in self._files:
            self._files[kind] = EventFile(Path(self.log_dir) / kind)
        return self._files[kind]

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()


def _refuse(name: str, value: Any, instead: str) -> None:
    if value:
        raise ValueError(
            f"TensorBoard: `{name}={value!r}` is not supported; {instead}."
        )
