"""The state of training beyond weights and optimizer, which a resumed run needs.

It is in a group of the weights file that Keras ignores: random states, the
position in the data and its order, the epoch, the sums of the metrics, and what
callbacks keep of an unfinished run. The last is plain data, JSON with arrays beside it:
nothing else is read from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion import random
from ganglion.saving import h5
from ganglion.saving.weights import OWN_GROUP, parts_of
from ganglion.system import budget

_FORMAT = 1
_CURSOR = ("position", "order", "epoch")
_TEXT, _ARRAYS = "json", "arrays"
_MARK = "__array__"  # in the text, followed by the number of an array


def write(model: Any, file: Any) -> None:
    """Write the state of training into an open HDF5 file."""
    state = model.training_state
    group = file.create_group(OWN_GROUP)
    group.attrs["format"] = _FORMAT
    for name in _CURSOR:
        h5.put(group, name, getattr(state, name).array)
    h5.put(group, "steps_done", np.array(state.steps_done))
    if state.pads_batches:
        h5.put(group, "pads_batches", np.array(1))
    seeds = group.create_group("seeds")
    for number, generator in enumerate(model._seed_generators):
        h5.put(seeds, str(number), generator.state.array)
    unseeded = random.default_state()
    if unseeded is not None:
        h5.put(group, "unseeded", unseeded)
    _write_choices(model, group.create_group("trained"))
    metrics = group.create_group("metrics")
    for number, metric in enumerate(model.metrics):
        sums = metrics.create_group(str(number))
        sums.attrs["name"] = metric.name
        for index, variable in enumerate(metric.variables):
            h5.put(sums, str(index), variable.array)
    callbacks = state.callback_states()
    if callbacks is not None:  # of a run that is not over
        data = {"callbacks": callbacks, "epoch_logs": state.epoch_logs}
        put_plain(group.create_group("fit"), data, "the state of `fit`")


def read(model: Any, file: Any) -> bool:
    """Read the state of training, if the file has one; return whether it had."""
    if OWN_GROUP not in file:
        return False
    group, state = file[OWN_GROUP], model.training_state
    if int(h5.attribute(group, "format", 0)) != _FORMAT:
        raise ValueError(
            "its training state was written by another version of Ganglion; load the "
            "model with `load_weights` instead."
        )
    seeds = model._seed_generators
    if len(seeds) != len(group["seeds"]):
        raise ValueError(
            f"it holds {len(group['seeds'])} random states, but the model has "
            f"{len(seeds)}."
        )
    if "unseeded" in group:
        random.set_default_state(h5.array(group["unseeded"]).reshape(2))
    values = [(getattr(state, name), group[name]) for name in _CURSOR]
    values += [(seed.state, group["seeds"][str(i)]) for i, seed in enumerate(seeds)]
    for variable, dataset in values:
        if tuple(dataset.shape) != variable.shape:
            raise ValueError(
                f"the state {dataset.name!r} has the shape {dataset.shape}."
            )
    done = int(h5.array(group["steps_done"]))
    if done < 0 or any(h5.array(group[name]).min() < 0 for name in _CURSOR):
        raise ValueError("its position in training is negative.")
    for variable, dataset in values:
        variable.array[...] = h5.array(dataset)
    state.steps_done, state.was_loaded = done, True
    state.pads_batches = "pads_batches" in group
    state.saved_metrics = _metrics(group["metrics"])
    _read_fit(state, group)
    return True


def _metrics(group: Any) -> dict[str, list[np.ndarray]]:
    """Return the sums by name; the metrics themselves exist after the first trace."""
    sums = {}
    for number in range(len(group)):
        entry = group[str(number)]
        name = f"{number}/{h5.attribute(entry, 'name')}"
        sums[name] = [h5.array(entry[str(index)]) for index in range(len(entry))]
    return sums


def _read_fit(state: Any, group: Any) -> None:
    state.callbacks = state.saved_callbacks = state.epoch_logs = None
    data = get_plain(group["fit"]) if "fit" in group else None
    if data is None:
        return
    callbacks, logs = data["callbacks"], data["epoch_logs"]
    if not isinstance(callbacks, dict) or not isinstance(logs, (dict, type(None))):
        raise ValueError("its states of callbacks are not a dictionary.")
    state.saved_callbacks, state.epoch_logs = callbacks, logs


def _write_choices(model: Any, group: Any) -> None:
    """Write which weights each compiled model trains: what counted at `compile`."""
    for number, (path, owner) in enumerate(_compiled(model)):
        indices = {weight: index for index, weight in enumerate(owner.weights)}
        chosen = [indices[w] for w in owner.chosen_weights if w in indices]
        h5.put(group, str(number), np.array(chosen, "int64"))
        group[str(number)].attrs["path"] = path


def _compiled(model: Any) -> Iterator[tuple[str, Any]]:
    for part in parts_of(model):
        if getattr(part.owner, "chosen_weights", None) is not None:
            yield part.path, part.owner


def read_choices(model: Any, file: Any) -> None:
    """Train the variables of the last `compile`, even if they were frozen since."""
    if OWN_GROUP not in file:
        return
    datasets = file[OWN_GROUP]["trained"].values()
    saved = {h5.attribute(dataset, "path"): dataset for dataset in datasets}
    for path, owner in list(_compiled(model)):
        if path in saved:
            weights, chosen = owner.weights, h5.array(saved[path])
            # Low-rank weights inside of a layer were merged: there are others now.
            if all(index < len(weights) for index in chosen):
                owner.choose_weights([weights[index] for index in chosen])


# ---- plain data ------------------------------------------------------------------


def put_plain(group: Any, data: Any, owner: str) -> None:
    """Write plain data into an empty group; `owner` names it in errors."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_encoded(data, arrays, owner))
    h5.put(group, _TEXT, np.frombuffer(text.encode(), "uint8"))
    beside = group.create_group(_ARRAYS)
    for number, array in enumerate(arrays):
        h5.put(beside, str(number), array)


def get_plain(group: Any) -> Any:
    """Read what `put_plain` wrote."""
    text = h5.array(group[_TEXT])
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError(f"{group.name!r} does not hold text.")
    try:
        data = budget.parsed_json(text.tobytes().decode())
    except ValueError as error:
        raise ValueError(f"{group.name!r} is not valid JSON ({error}).") from error
    try:
        return _decoded(data, group[_ARRAYS])
    except RecursionError:
        raise ValueError(f"{group.name!r} is nested too deeply.") from None


def _encoded(data: Any, arrays: list[np.ndarray], owner: str) -> Any:
    if isinstance(data, np.generic):
        data = data.item()
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, (list, tuple)):
        return [_encoded(item, arrays, owner) for item in data]
    if isinstance(data, dict):
        if not all(isinstance(key, str) and key != _MARK for key in data):
            raise TypeError(
                f"{owner}: keys of dictionaries must be texts (other than {_MARK!r}), "
                f"not {list(data)!r:.200}."
            )
        return {
            key: _encoded(item, arrays, f"{owner}, {key!r}")
            for key, item in data.items()
        }
    is_array = isinstance(data, np.ndarray)
    if is_array and data.dtype.kind in h5.NUMBERS:
        arrays.append(data)
        return {_MARK: len(arrays) - 1}
    kind = f"an array of {data.dtype}" if is_array else type(data).__name__
    raise TypeError(
        f"{owner}: {kind} cannot be kept in a file; give numbers, texts, None, arrays "
        "of numbers, and lists and dictionaries of them."
    )


def _decoded(data: Any, arrays: Any) -> Any:
    if isinstance(data, list):
        return [_decoded(item, arrays) for item in data]
    if not isinstance(data, dict):
        return data
    if _MARK in data:
        return h5.array(arrays[str(data[_MARK])])
    return {key: _decoded(item, arrays) for key, item in data.items()}
