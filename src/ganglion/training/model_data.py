"""What a model is given, arranged as it needs it and checked before anything runs."""

from __future__ import annotations

from typing import Any

from ganglion.training.compile_utils import get_loss
from ganglion.training.data_adapters import (
    Batches,
    Table,
    check_labels,
    class_weighted,
    is_stream,
)
from ganglion.training.outputs import Outputs


def opened(x: Any, y: Any, batch_size: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return x, y, the batch size and how to shuffle; the rows of what has rows.

    A folder of images is a stream of batches that lies in memory: its rows are gathered
    inside of the compiled step, not in Python.
    """
    as_rows = getattr(x, "as_rows", None)
    rows = as_rows() if callable(as_rows) else None
    if rows is None or y is not None or batch_size is not None:
        return x, y, batch_size, {}
    return rows["x"], rows["y"], rows["batch_size"], {"shuffle": rows["shuffle"]}


def training_source(
    model: Any,
    x: Any,
    y: Any,
    sample_weight: Any,
    class_weight: Any,
    shuffle: bool,
    refused_for_streams: dict[str, bool],
) -> Table | Batches:
    """Return the data of `fit`: a table of rows, or a stream of batches."""
    if x is None:
        raise ValueError("`fit` needs data: arrays x and y, or a generator.")
    if not is_stream(x):
        return table(model, x, y, class_weighted(y, sample_weight, class_weight))
    for name, is_given in refused_for_streams.items():
        if is_given:
            raise ValueError(
                f"`{name}` cannot be given with a generator: its batches hold x, y and "
                "sample weights."
            )
    if changes_in_the_step(x):
        return changing_table(model, x, class_weight)
    seed = int(model.training_state.order.array[0])
    return Batches(x, shuffle=shuffle, seed=seed, class_weight=class_weight)


def changes_in_the_step(x: Any) -> bool:
    """Return whether these are batches of images that a compiled step can change."""
    in_the_step = getattr(x, "in_the_step", None)
    return callable(in_the_step) and in_the_step()


def changing_table(model: Any, x: Any, class_weight: Any = None) -> Table:
    """Return the unchanged rows of a generator's batches, and what changes them."""
    inputs, y, weight = x.columns()
    made = table(model, inputs, y, class_weighted(y, weight, class_weight))
    made.batch_size = min(x.batch_size, made.rows)
    made.shuffle, made.change = x.shuffle, x.change
    return made


def validation_source(model: Any, validation_data: Any) -> Table | Batches:
    """Return what `validation_data` means."""
    x, y, _, rows = opened(validation_data, None, None)
    if rows:
        return table(model, x, y)
    if is_stream(validation_data):
        return source(model, validation_data)
    is_tuple = isinstance(validation_data, (tuple, list))
    if not is_tuple or not 2 <= len(validation_data) <= 3:
        raise ValueError(
            "`validation_data` must be (x, y), (x, y, sample_weight) or a source of "
            f"batches, not {type(validation_data).__name__}."
        )
    x, y, *weight = validation_data
    return table(model, x, y, weight[0] if weight else None)


def source(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Return the data of `evaluate` and `predict`."""
    if isinstance(x, (Table, Batches)):
        return x
    if not is_stream(x):
        return table(model, x, y, sample_weight)
    # In order only: what is predicted follows the order of the batches.
    if changes_in_the_step(x) and not x.shuffle:
        return changing_table(model, x)
    return Batches(x)


def table(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> Table:
    """Return arrays as a table, in the order of the model's inputs and outputs."""
    inputs = _in_order(x, _names(model, "input"))
    if _is_functional(model) and isinstance(model.input, dict):
        inputs = model._network.matched(x)
    targets = _in_order(y, _names(model, "output"))
    if _is_functional(model):
        _check_inputs(model.inputs, inputs)
    made = Table(inputs, targets, sample_weight)
    if y is not None:
        _check_targets(model, made)
    return made


def _is_functional(model: Any) -> bool:
    return getattr(model, "_network", None) is not None


def _names(model: Any, end: str) -> list[str] | None:
    """Return the names by which data may be given, None where there are none."""
    if not _is_functional(model) or isinstance(getattr(model, end), dict):
        return None
    return list(getattr(model, f"{end}_names"))


def _in_order(data: Any, names: list[str] | None) -> Any:
    if not isinstance(data, dict) or not names or not set(names) <= set(data):
        return data
    picked = [data[name] for name in names]
    return picked if len(picked) > 1 else picked[0]


def _check_inputs(tensors: list[Any], given: Any) -> None:
    """Refuse rows in place of inputs, and one row in place of a batch of rows."""
    if _is_list_of_arrays(given) and len(given) != len(tensors):
        raise ValueError(
            f"`x` is a list of {len(given)} arrays, which means one array for each "
            f"input, but the model has {len(tensors)} input(s). Stack rows with "
            "np.array(x), and give labels apart, as `y`."
        )
    arrays = given if _is_list_of_arrays(given) else [given]
    for tensor, one in zip(tensors, arrays, strict=False):
        shape = getattr(one, "shape", None)
        wanted = tensor.shape[1:]
        if shape is None or len(shape) != len(wanted) or not shape:
            continue
        lacks_channel = wanted[-1] == 1 and tuple(shape[1:]) == wanted[:-1]
        if tuple(shape) == wanted and not lacks_channel:
            raise ValueError(
                f"`x` has shape {tuple(shape)}, that of a single row: the model takes "
                f"batches of shape {tensor.shape}. Add the axis: x[None]."
            )


def _is_list_of_arrays(given: Any) -> bool:
    is_list = isinstance(given, (list, tuple)) and len(given) > 0
    return is_list and all(hasattr(one, "shape") for one in given)


def _check_targets(model: Any, given: Table) -> None:
    """Refuse class numbers that the model has no output for."""
    if not _is_functional(model) or model.loss is None or model.overrides_loss:
        return
    outputs = Outputs(model.output, model.output_names)
    chosen = outputs.assign(model.loss, "loss")
    labels = outputs.align(given.y, "labels", [one is not None for one in chosen])
    for identifier, output, y in zip(chosen, outputs.leaves, labels, strict=True):
        classes = output.shape[-1]
        if identifier is None or classes is None:
            continue
        loss = get_loss(identifier, y, output)
        if loss.takes_class_numbers:
            check_labels(y, classes, "y", ignored=getattr(loss, "ignore_class", None))
