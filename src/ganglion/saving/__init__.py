"""Saving and loading: `.keras` files, weights and checkpoints, in Keras 3's formats.

Files are written atomically, and read without executing anything.

>>> import tempfile
>>> import numpy as np
>>> import ganglion as keras
>>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
>>> with tempfile.TemporaryDirectory() as folder:
...     model.save(f"{folder}/model.keras")
...     again = keras.saving.load_model(f"{folder}/model.keras")
>>> bool(np.array_equal(model(np.eye(2)), again(np.eye(2))))
True
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ganglion import keras2
from ganglion.saving import (
    archive,
    h5,
    legacy,
    safetensors,
    state,
    torch_file,
    weights,
)
from ganglion.saving.editor import KerasFileEditor
from ganglion.saving.files import check_exists, local_path, reading, write_checked
from ganglion.saving.state_dict import load_state_dict, state_dict
from ganglion.serialization import (
    CustomObjectScope,
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)

__all__ = [
    "CustomObjectScope",
    "KerasFileEditor",
    "custom_object_scope",
    "deserialize_keras_object",
    "get_custom_objects",
    "get_registered_name",
    "get_registered_object",
    "load_checkpoint",
    "load_model",
    "load_state_dict",
    "load_weights",
    "model_from_json",
    "model_to_json",
    "register_keras_serializable",
    "save_checkpoint",
    "save_model",
    "save_weights",
    "serialize_keras_object",
    "state_dict",
]

_FREE_FOR_JSON = 900 << 20  # there are no weights to go by
_OLD_ENDINGS = (".h5", ".hdf5")
_SAFETENSORS = ".safetensors"
_TORCH_ENDINGS = (".pt", ".pth")


def save_model(
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    zipped: bool | None = None,
    **kwargs: Any,
) -> None:
    """Save a model: its layers, weights, optimizer and position in training.

    The ending chooses the format: `.keras`, or Keras 2's `.h5`.
    """
    if kwargs.pop("save_format", None):
        _check_save_format(filepath)
    keeps_optimizer = kwargs.pop("include_optimizer", True)
    if kwargs:
        raise ValueError(
            "The following argument(s) are not supported with this file format: "
            f"{', '.join(sorted(kwargs))}."
        )
    if zipped is False:
        raise ValueError("`zipped=False` is not supported: one file is written.")
    if not archive.is_model(model):  # a layer by itself, such as a FeatureSpace
        _write_model(model, filepath, overwrite, keeps_optimizer)
        return
    if model.built:
        _prepare_optimizer(model)
    with model.between_steps():
        _write_model(model, filepath, overwrite, keeps_optimizer)


def _check_save_format(filepath: Any) -> None:
    if not str(filepath).endswith((".keras", *_OLD_ENDINGS)):
        raise ValueError(
            "The `save_format` argument is deprecated: leave it out, and end the name "
            f"{str(filepath)!r} in `.keras` or `.h5`."
        )


def _write_model(
    model: Any, filepath: Any, overwrite: bool, keeps_optimizer: bool
) -> None:
    if isinstance(filepath, io.IOBase):
        archive.write(model, filepath)  # type: ignore[arg-type]
        return
    path = local_path(filepath)
    if path.suffix == ".keras":
        write_checked(path, lambda file: archive.write(model, file), overwrite)
    elif path.suffix in _OLD_ENDINGS and archive.is_model(model):
        keras2.note(
            f"`save` to a {path.suffix} file", "`.keras`", changes_defaults=False
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        h5.write_h5(
            path, lambda file: legacy.write(model, file, keeps_optimizer), overwrite
        )
    else:
        raise ValueError(
            f"Invalid filepath extension for saving: end the name {str(path)!r} in "
            "`.keras` (or in `.h5` for Keras 2's format)."
        )


def load_model(
    filepath: Any,
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,  # noqa: A002 (Keras' name)
    safe_mode: bool = True,
) -> Any:
    """Load a model that Ganglion or Keras saved.

    Nothing in a file is ever executed, so `safe_mode=False` changes nothing. A model
    that Ganglion saved in the middle of training resumes from there with
    ``fit(..., initial_epoch=int(model.training_state.epoch))``.
    """
    with reading(filepath):
        if isinstance(filepath, io.IOBase):
            return archive.read(filepath, custom_objects, compile)
        path = local_path(filepath)
        check_exists(path)
        if _is_hdf5(path):
            with h5.open_h5(path) as file:
                h5.check_seal(file)
                return legacy.read(file, custom_objects, compile)
        return archive.read(path, custom_objects, compile)


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n"


def save_weights(
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    max_shard_size: Any = None,
    **kwargs: Any,
) -> None:
    """Save the weights and the optimizer's state, as `.weights.h5`.

    `.safetensors`, `.pt` and `.pth` files hold the weights alone, under PyTorch's names
    and in its layout (see `state_dict`).
    """
    if max_shard_size is not None:
        raise ValueError("`max_shard_size` is not supported: one file is written.")
    skipped = kwargs.pop("objects_to_skip", None) or ()
    _refuse_unknown("save_weights", kwargs)
    _require_built(model, "save")
    path = local_path(filepath)
    if path.suffix == ".keras":
        raise ValueError(f"{path} is the name of a whole model: use `model.save`.")
    if path.suffix in (_SAFETENSORS, *_TORCH_ENDINGS):
        _write_tensors(model, path, overwrite, skipped)
        return
    if not path.name.endswith(".weights.h5"):
        keras2.note(
            "`save_weights` to a name without `.weights.h5`",
            "`.weights.h5` (it was written in that format)",
            changes_defaults=False,
        )
    if path.suffix not in (".h5", ".hdf5"):  # TensorFlow's checkpoints make folders
        path.parent.mkdir(parents=True, exist_ok=True)
    with model.between_steps():
        h5.write_h5(path, lambda file: weights.write(model, file, skipped), overwrite)


def _write_tensors(model: Any, path: Path, overwrite: bool, skipped: Any) -> None:
    if skipped:
        raise ValueError("`objects_to_skip` only supports '.weights.h5' files.")
    is_torch = path.suffix in _TORCH_ENDINGS
    write = torch_file.write_state_dict if is_torch else safetensors.write
    with model.between_steps():
        arrays = state_dict(model)
        write_checked(path, lambda file: write(file, arrays), overwrite)


def _read_tensors(model: Any, path: Path, skip_mismatch: bool) -> None:
    check_exists(path)
    if path.suffix in _TORCH_ENDINGS:
        arrays, is_ordered = torch_file.read_state_dict(path), True
    else:
        tensors = safetensors.read(path)
        arrays, is_ordered = tensors.arrays, tensors.is_ordered
    with model.between_steps():
        load_state_dict(model, arrays, skip_mismatch, is_ordered)


def load_weights(
    model: Any, filepath: Any, skip_mismatch: bool = False, **kwargs: Any
) -> None:
    """Load weights from a weights file, a `.keras` file or Keras 2's `.h5`.

    Or from a `.safetensors` file or a state dict of PyTorch (`.pt`, `.pth`), by their
    names or, where those are others, by order and shape (see `load_state_dict`).
    Nothing changes unless all weights fit, or `skip_mismatch` allows to load a part.
    """
    by_name = bool(kwargs.pop("by_name", False))
    if "objects_to_skip" in kwargs and not str(filepath).endswith(".weights.h5"):
        raise ValueError(
            "`objects_to_skip` only supports loading '.weights.h5' files, not "
            f"{str(filepath)!r}."
        )
    skipped = kwargs.pop("objects_to_skip", None) or ()
    if kwargs:
        raise ValueError(
            f"Invalid keyword arguments: {', '.join(sorted(kwargs))}. `load_weights` "
            "does not know them."
        )
    _require_built(model, "load")
    path = local_path(filepath)
    if path.suffix in (_SAFETENSORS, *_TORCH_ENDINGS):
        if by_name:
            raise ValueError(
                f"`by_name=True` is for Keras 2's '.h5' files: {path} goes by names "
                "where they fit anyway."
            )
        with reading(filepath):
            _read_tensors(model, path, skip_mismatch)
        return
    with reading(filepath), _opened_weights(path) as file, model.between_steps():
        h5.check_seal(file)
        if legacy.is_legacy(file):
            legacy.read_weights(model, file, by_name, skip_mismatch)
        elif by_name:
            raise ValueError(
                "`by_name=True` only supports loading legacy '.h5' or '.hdf5' files. "
                "Newer ones do not go by names: build the same layers, or pass "
                "`skip_mismatch=True`."
            )
        else:
            _prepare_optimizer(model)
            weights.read(model, file, skip_mismatch, skipped)
            weights.read_optimizers(model, file)


def _opened_weights(path: Path) -> Any:
    check_exists(path)
    if path.suffix == ".keras" and not _is_hdf5(path):
        return h5.open_h5(io.BytesIO(archive.read_weights(path)))
    return h5.open_h5(path)


def _refuse_unknown(name: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ValueError(f"`{name}` does not know {', '.join(sorted(kwargs))}.")


_DEEDS = {"save": "saving", "load": "loading weights into"}


def _require_built(model: Any, verb: str) -> None:
    # A model whose own step calls its parts is never called itself.
    if not model.built and not model.variables:
        raise ValueError(
            f"You are {_DEEDS[verb]} a model that has not yet been built. "
            f'"{model.name}" has no weights to {verb} yet: give it an Input, or call '
            "it on data first."
        )


def _prepare_optimizer(model: Any) -> None:
    # One that is built may know other weights than `fit` would train: those of an own
    # step.
    optimizer = model.optimizer if model.compiled else None
    if optimizer is not None and not optimizer.built:
        model.prepare_training()


def save_checkpoint(path: Any, model: Any) -> None:
    """Save everything a run needs to continue as if it had never stopped."""
    _require_built(model, "save")

    def write(file: Any) -> None:
        weights.write(model, file)
        state.write(model, file)

    with model.between_steps():
        h5.write_h5(local_path(path), write, True)


def load_checkpoint(path: Any, model: Any) -> int:
    """Load what `save_checkpoint` saved; return the epoch to continue with.

    ``fit(..., initial_epoch=that)`` continues, in the middle of the epoch if need be.
    A `.keras` file that Ganglion wrote is a checkpoint, too.
    """
    _require_built(model, "load")
    with (
        reading(path),
        _opened_weights(local_path(path)) as file,
        model.between_steps(),
    ):
        h5.check_seal(file)
        _prepare_optimizer(model)
        if weights.OWN_GROUP not in file:
            raise ValueError(
                "it is not a checkpoint of Ganglion, only weights: use "
                "`model.load_weights`."
            )
        weights.read(model, file)
        weights.read_optimizers(model, file)
        state.read(model, file)
    return int(model.training_state.epoch.array)


def model_to_json(model: Any, **kwargs: Any) -> str:
    """Return a model's configuration, without weights, as JSON text."""
    return archive.to_json(model, **kwargs)


def model_from_json(text: str, custom_objects: dict[str, Any] | None = None) -> Any:
    """Rebuild a model, with fresh weights, from the text of `model_to_json`."""
    with reading("The JSON text", len(text), floor=_FREE_FOR_JSON):
        return archive.from_json(text, custom_objects)
