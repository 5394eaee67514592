"""The TensorBoard callback: metrics, learning rate and weights as event files."""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config, keras2
from ganglion.callbacks.base import Callback, Logs, per_chunk
from ganglion.callbacks.event_file import EventFile
from ganglion.callbacks.rates import learning_rates_of
from ganglion.callbacks.states import whole_number
from ganglion.files import write_file
from ganglion.layers import Embedding

# The name that the projector looks up in files of weights.
_EMBEDDING = "layer_with_weights-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE"
_OLD = ("batch_size", "write_grads", "embeddings_layer_names", "embeddings_data")


def _without_old(init: Callable[..., None]) -> Callable[..., None]:
    """Make `TensorBoard` accept, and ignore, arguments that Keras 2 had."""

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
        write_graph: Whether to write the model's layers, as a conceptual graph.
        write_images: Whether to write weights as images, with the histograms.
        write_steps_per_second: Whether to write the speed, too.
        update_freq: "epoch", "batch", or a number of steps between two writings of the
            metrics. Other than "epoch" makes training run step by step.
        profile_batch: Only 0: there is no profiler.
        embeddings_freq: Epochs between two files of weights for the projector.
        embeddings_metadata: The file with the labels of an embedding, or a dictionary
            of them by the names of layers.

    >>> TensorBoard("runs/first", update_freq="epoch").update_freq
    'epoch'
    """

    writes_folder = "log_dir"

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
        if profile_batch != 0:
            raise ValueError(
                f"TensorBoard: `profile_batch={profile_batch!r}` is not supported; use "
                "a profiler of the system."
            )
        self.write_images = write_images
        self.embeddings_freq = embeddings_freq
        self.embeddings_metadata = embeddings_metadata
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
        if self.write_graph and type(model).__name__ in ("Functional", "Sequential"):
            self._write_model()
        if self.embeddings_freq:
            self._write_projector()

    def _write_model(self) -> None:
        try:
            text = self.model.to_json()
        except (TypeError, ValueError) as error:
            warnings.warn(
                f"TensorBoard: the model is not shown, as its layers cannot be written "
                f"as JSON: {error}",
                stacklevel=2,
            )
            return
        self._file("train").model(text)

    def _write_projector(self) -> None:
        """Write which embeddings TensorBoard's projector is to show."""
        labels = self.embeddings_metadata
        paths = dict(labels) if isinstance(labels, dict) else {}
        entries = []
        for layer in self.model.layers:
            if isinstance(layer, Embedding):
                lines = [f'  tensor_name: "{_EMBEDDING}"']
                path = labels if isinstance(labels, str) else paths.pop(layer.name, "")
                lines += [f'  metadata_path: "{path}"'] if path else []
                entries.append("\n".join(["embeddings {", *lines, "}\n"]))
        if paths:
            known = ", ".join(sorted(paths))
            raise ValueError(
                f"`embeddings_metadata` names no Embedding layer: {known}."
            )
        path = Path(self.log_dir) / "projector_config.pbtxt"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(entries).encode())

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
        if train:
            train |= learning_rates_of(self.model)
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
            self._write_weights(epoch)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            name = f"keras_embedding.ckpt-{epoch}.weights.h5"
            self._file("train").flush()
            self.model.save_weights(str(Path(self.log_dir) / "train" / name))
        self._flush()

    def _write_weights(self, epoch: int) -> None:
        for weight in self.model.weights:
            tag = weight.path.replace(":", "_")
            self._file("train").histogram(f"{tag}/histogram", weight.numpy(), epoch)
            images = _as_images(weight.numpy()) if self.write_images else None
            if images is not None:
                self._file("train").image(f"{tag}/image", images, epoch)

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


def _as_images(weight: np.ndarray) -> np.ndarray | None:
    """Return a weight as images of bytes: a row, a matrix, or an image a kernel."""
    array = np.squeeze(weight)
    if array.ndim == 1:
        array = array[np.newaxis, np.newaxis, :, np.newaxis]
    elif array.ndim == 2:
        array = array.T if array.shape[0] > array.shape[1] else array
        array = array[np.newaxis, :, :, np.newaxis]
    elif array.ndim == 3:
        is_last = config.image_data_format() == "channels_last"
        array = np.moveaxis(array, -1, 0) if is_last else array
        array = array[..., np.newaxis]
    if array.ndim != 4 or array.shape[-1] not in (1, 3, 4):
        return None
    return np.clip(array * 255.5, 0, 255).astype("uint8")
