"""Keras 2's `.h5` files: the model in attributes, the weights layer by layer."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np

from ganglion import keras2, serialization
from ganglion.saving import archive, h5
from ganglion.saving.weights import MismatchError
from ganglion.system import budget
from ganglion.system.terminal import lines
from ganglion.variables import uninitialized

_HEADER_LIMIT = 64_512  # HDF5 cannot hold more in one attribute


def is_legacy(file: Any) -> bool:
    """Return whether a file has Keras 2's layout, not Keras 3's."""
    has_names = "layer_names" in file.attrs or "layer_names0" in file.attrs
    return has_names or "model_weights" in file


# ---- writing ---------------------------------------------------------------------


def write(model: Any, file: Any, keeps_optimizer: bool = True) -> None:
    """Write a model into an open HDF5 file, with its optimizer if requested."""
    for layer in model._flatten_layers():
        if getattr(layer, "asset_files", dict)():
            raise ValueError(
                f'Layer "{layer.name}" has learned its vocabulary, for which the old '
                "`.h5` format has no place: save the model as a `.keras` file, or give "
                "the layer `vocabulary=layer.get_vocabulary()`."
            )
    entry = json.loads(archive.to_json(model))
    training = entry.pop("compile_config", None)
    plain = {"class_name": entry["class_name"], "config": entry["config"]}
    file.attrs["keras_version"] = archive.KERAS_VERSION
    file.attrs["backend"] = "ganglion"
    _put_text(file, "model_config", json.dumps(plain))
    write_weights(model, file.create_group("model_weights"))
    if training and keeps_optimizer:
        optimizer = training.pop("optimizer")
        short = {key: optimizer[key] for key in ("class_name", "config")}
        training["optimizer_config"] = short
        _put_text(file, "training_config", json.dumps(training))
        _put_arrays(file.create_group("optimizer_weights"), model.optimizer.variables)


def _put_text(file: Any, name: str, text: str) -> None:
    if len(text) > _HEADER_LIMIT:
        raise ValueError(
            "The description of this model is too long for the old `.h5` format: save "
            "it as a `.keras` file."
        )
    file.attrs[name] = text.encode()


def write_weights(model: Any, group: Any) -> None:
    """Write the weights, layer by layer."""
    _put_names(group, "layer_names", [layer.name for layer in model.layers])
    group.attrs["backend"] = b"ganglion"
    group.attrs["keras_version"] = archive.KERAS_VERSION.encode()
    for layer in sorted(model.layers, key=lambda layer: layer.name):
        _put_arrays(group.create_group(layer.name), _weights(layer))
    top = group.create_group("top_level_model_weights")
    _put_arrays(top, list(model._own_variables()))


def _weights(layer: Any) -> list[Any]:
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _put_arrays(group: Any, variables: list[Any]) -> None:
    names: list[str] = []
    for variable in variables:
        name = variable.path
        while name in names:
            name += "_"
        names.append(name)
    _put_names(group, "weight_names", names)
    for name, variable in zip(names, variables, strict=True):
        h5.put(group, name, variable.array)


def _put_names(group: Any, name: str, texts: list[str]) -> None:
    encoded = [text.encode() for text in texts]
    if sum(map(len, encoded)) < _HEADER_LIMIT // 4:
        group.attrs[name] = np.array(encoded) if encoded else np.zeros(0, "S1")
        return
    for number, part in enumerate(np.array_split(np.array(encoded), len(encoded))):
        group.attrs[f"{name}{number}"] = part


# ---- reading ---------------------------------------------------------------------


def read(file: Any, custom_objects: Any, compiled: bool) -> Any:
    """Read a model from an open HDF5 file."""
    if "model_config" not in file.attrs:
        raise ValueError(
            "it holds weights but no model: build the model in Python and call "
            "`model.load_weights` on this file."
        )
    text = h5.attribute(file, "model_config")
    _heed_version(h5.attribute(file, "keras_version", ""), text)
    entry = archive.parsed(text)
    with serialization.custom_object_scope(custom_objects or {}):
        with uninitialized():
            model = archive.rebuilt(entry)
        read_weights(model, file["model_weights"])
        if compiled and "training_config" in file.attrs:
            _compile(model, file)
    return model


def _heed_version(version: str, text: str) -> None:
    """Give functions that Keras 3 changed the meaning they had when a file was written.

    A model does not record which one it was trained with; the file's version does.
    """
    if version.startswith(("1.", "2.")) and '"hard_sigmoid"' in text:
        keras2.note(f"`hard_sigmoid` of Keras {version}", "another function")


def _compile(model: Any, file: Any) -> None:
    training = budget.parsed_json(h5.attribute(file, "training_config"))
    if not isinstance(training, dict):
        raise ValueError("its `training_config` is not a dictionary.")
    try:
        training["optimizer"] = training.pop("optimizer_config")
        model.compile_from_config(training)
    except (ValueError, TypeError, LookupError) as error:
        warnings.warn(
            f"The model was loaded without compiling it: {error} Call `compile`.",
            stacklevel=5,
        )
        return
    if "optimizer_weights" not in file:
        return
    datasets = _datasets(file["optimizer_weights"])
    variables = model.optimizer.variables
    if [tuple(d.shape) for d in datasets] != [v.shape for v in variables]:
        warnings.warn(
            "The state of the optimizer does not fit and was left out: training starts "
            "with a fresh one.",
            stacklevel=5,
        )
        return
    for variable, dataset in zip(variables, datasets, strict=True):
        variable.assign(h5.array(dataset))


def _datasets(group: Any) -> list[Any]:
    return [group[name] for name in h5.names(group, "weight_names")]


def read_weights(
    model: Any, group: Any, by_name: bool = False, skip_mismatch: bool = False
) -> None:
    """Read weights, layer by layer in order, or by the layers' names."""
    group = group.get("model_weights", group)
    saved = {name: _datasets(group[name]) for name in h5.names(group, "layer_names")}
    saved = {name: datasets for name, datasets in saved.items() if datasets}
    layers = [layer for layer in model.layers if _weights(layer)]
    if by_name:
        layers = [layer for layer in layers if layer.name in saved]
        names = [layer.name for layer in layers]
    elif len(saved) != len(layers):
        raise MismatchError(
            f"the weights do not fit: the model has {len(layers)} layers with "
            f"weights, the file {len(saved)} ({', '.join(saved)}). Pass "
            "`by_name=True` to load layers of the same name."
        )
    else:
        names = list(saved)
    entries = [
        (layer.name, _weights(layer), name, saved[name])
        for layer, name in zip(layers, names, strict=True)
    ]
    _assign(entries, skip_mismatch)
    weights, top = list(model._own_variables()), "top_level_model_weights"
    if weights and top in group:
        _assign([(model.name, weights, top, _datasets(group[top]))], skip_mismatch)


def _assign(
    entries: list[tuple[str, list[Any], str, list[Any]]], skip_mismatch: bool
) -> None:
    """Assign arrays to layers (name and weights; name in the file and arrays)."""
    fitting, problems = [], []
    for layer, variables, name, datasets in entries:
        expected = [variable.shape for variable in variables]
        shapes = [tuple(dataset.shape) for dataset in datasets]
        if expected == shapes:
            fitting += list(zip(variables, datasets, strict=True))
        else:
            problems.append(
                f'layer "{layer}" has weights {expected}, the file has {shapes} '
                f'("{name}")'
            )
    if problems and not skip_mismatch:
        raise MismatchError(
            f"the weights do not fit the model, in {len(problems)} layer(s): "
            f"{'; '.join(problems[:4])}. Nothing was changed; `skip_mismatch=True` "
            "loads what fits."
        )
    if problems:
        warnings.warn(lines(f"Skipped: {'; '.join(problems[:4])}."), stacklevel=6)
    for variable, dataset in fitting:
        variable.assign(h5.array(dataset))
