"""Where training stands, beyond weights and optimizer: what a resumed run needs.

Kept in a group of the weights file at which Keras does not look: random states, the
place in the data and its order, the epoch, the sums of the metrics, and what callbacks
remember of a run that is not over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion import random
from ganglion.saving import h5, plain
from ganglion.saving.weights import OWN_GROUP, parts_of

_FORMAT = 1
_CURSOR = ("position", "order", "epoch")


def write(model: Any, file: Any) -> None:
    """Write the state of training into an open HDF5 file."""
    group = file.create_group(OWN_GROUP)
    group.attrs["format"] = _FORMAT
    for name in _CURSOR:
        h5.put(group, name, getattr(model.training_state, name).array)
    h5.put(group, "steps_done", np.array(model.training_state.steps_done))
    seeds = group.create_group("seeds")
    for number, generator in enumerate(model._seed_generators()):
        h5.put(seeds, str(number), generator.state.array)
    unseeded = random.default_state()
    if unseeded is not None:
        h5.put(group, "unseeded", unseeded)
    _write_choices(model, group.create_group("trained"))
    metrics = group.create_group("metrics")
    for number, metric in enumerate(model.metrics):
        one = metrics.create_group(str(number))
        one.attrs["name"] = metric.name
        for place, variable in enumerate(metric.variables):
            h5.put(one, str(place), variable.array)
    _write_fit(model.training_state, group)


def _write_fit(training: Any, group: Any) -> None:
    """Write what the callbacks of a run that is not over remember."""
    states = training.callback_states()
    if states is None:
        return
    data = {"callbacks": states, "epoch_logs": training.epoch_logs}
    plain.put(group.create_group("fit"), data, "the state of `fit`")


def _read_fit(training: Any, group: Any) -> None:
    training.callbacks = training.saved_callbacks = training.epoch_logs = None
    data = plain.get(group["fit"]) if "fit" in group else None
    if data is None:
        return
    callbacks, logs = data["callbacks"], data["epoch_logs"]
    if not isinstance(callbacks, dict) or not isinstance(logs, (dict, type(None))):
        raise ValueError("its states of callbacks are no dictionary.")
    training.saved_callbacks, training.epoch_logs = callbacks, logs


def read(model: Any, file: Any) -> bool:
    """Read the state of training, if the file has one; tell whether it had."""
    if OWN_GROUP not in file:
        return False
    group = file[OWN_GROUP]
    if int(h5.attribute(group, "format", 0)) != _FORMAT:
        raise ValueError(
            "its training state was written by another version of Ganglion; load the "
            "model with `load_weights` instead."
        )
    seeds = model._seed_generators()
    if len(seeds) != len(group["seeds"]):
        raise ValueError(
            f"it holds {len(group['seeds'])} random states, but the model has "
            f"{len(seeds)}."
        )
    if "unseeded" in group:
        random.set_default_state(h5.array(group["unseeded"]).reshape(2))
    values = [(getattr(model.training_state, name), group[name]) for name in _CURSOR]
    values += [(one.state, group["seeds"][str(i)]) for i, one in enumerate(seeds)]
    for variable, found in values:
        if tuple(found.shape) != variable.shape:
            raise ValueError(f"the state {found.name!r} has the shape {found.shape}.")
    done = int(h5.array(group["steps_done"]))
    if done < 0 or any(h5.array(group[one]).min() < 0 for one in _CURSOR):
        raise ValueError("its place in training is negative.")
    for variable, found in values:
        variable.array[...] = h5.array(found)
    training = model.training_state
    training.steps_done, training.was_loaded = done, True
    training.saved_metrics = _metrics(group["metrics"])
    _read_fit(training, group)
    return True


def _write_choices(model: Any, group: Any) -> None:
    """Write which weights each compiled model trains: what counted at `compile`."""
    for number, (path, owner) in enumerate(_compiled(model)):
        places = {one: place for place, one in enumerate(owner.weights)}
        chosen = [places[one] for one in owner.chosen_weights if one in places]
        h5.put(group, str(number), np.array(chosen, "int64"))
        group[str(number)].attrs["path"] = path


def _compiled(model: Any) -> Iterator[tuple[str, Any]]:
    for part in parts_of(model):
        if getattr(part.owner, "chosen_weights", None) is not None:
            yield part.path, part.owner


def read_choices(model: Any, file: Any) -> None:
    """Train what was trained before, even if it was frozen after its `compile`."""
    if OWN_GROUP not in file:
        return
    group = file[OWN_GROUP]["trained"]
    saved = {h5.attribute(one, "path"): one for one in group.values()}
    for path, owner in list(_compiled(model)):
        if path not in saved:
            continue
        weights = owner.weights
        owner.choose_weights([weights[place] for place in h5.array(saved[path])])


def _metrics(group: Any) -> dict[str, list[np.ndarray]]:
    """Return the sums by name; the metrics themselves exist after the first trace."""
    found = {}
    for number in range(len(group)):
        one = group[str(number)]
        name = f"{number}/{h5.attribute(one, 'name')}"
        found[name] = [h5.array(one[str(place)]) for place in range(len(one))]
    return found
