"""The state of a model as nested dictionaries, by the paths of its variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ganglion import ops
from ganglion.variables import Variable

KINDS = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


def variables_of(model: Any, kind: str) -> list[Variable]:
    """Return the variables of a kind; an optimizer has some after `compile`."""
    if kind == "optimizer_variables":
        return [] if model.optimizer is None else list(model.optimizer.variables)
    return list(getattr(model, kind))


def nested_state(model: Any, value_format: str) -> dict[str, Any]:
    """Return the values of all variables, kind by kind."""
    formats = {"backend_tensor": ops.convert_to_tensor, "numpy_array": Variable.numpy}
    if value_format not in formats:
        raise ValueError(
            f"Invalid `value_format`: expected one of {', '.join(formats)}, got "
            f"{value_format!r}."
        )
    return {
        kind: _nested(variables_of(model, kind), formats[value_format])
        for kind in KINDS
    }


def _nested(variables: Iterable[Variable], value_of: Any) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for variable in variables:
        *above, name = variable.path.split("/")
        place = nested
        for part in above:
            place = place.setdefault(part, {})
        if name in place:
            raise ValueError(
                "The following variable path is found twice in the model: "
                f"'{variable.path}'. `get_state_tree` needs paths of their own: give "
                "layers and other objects unique names."
            )
        place[name] = value_of(variable)
    return nested


def assign_nested_state(model: Any, state: dict[str, Any]) -> None:
    """Assign the values of a tree to the variables with their paths."""
    for kind, nested in state.items():
        if kind not in KINDS:
            raise ValueError(f"Unknown variable name: {kind}. Known: {KINDS}.")
        known = {variable.path: variable for variable in variables_of(model, kind)}
        for path, value in _flat(nested):
            if path not in known:
                raise ValueError(
                    f"The model has no variable {path!r} among its {kind}: "
                    f"{', '.join(known) or 'none'}."
                )
            known[path].assign(value)


def _flat(nested: dict[str, Any], above: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in nested.items():
        if isinstance(value, dict):
            flat += _flat(value, f"{above}{name}/")
        else:
            flat.append((f"{above}{name}", value))
    return flat
