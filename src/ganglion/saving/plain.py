"""Plain data in HDF5: numbers, texts, lists and dictionaries as JSON, arrays beside it.

What is read back is data of these kinds only, whatever a file holds.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ganglion.saving import h5
from ganglion.system import budget

_TEXT, _ARRAYS = "json", "arrays"
_MARK = "__array__"  # stands in the text for the array of a number
_KINDS = "biuf"  # of arrays: the same that are read


def put(group: Any, data: Any, owner: str) -> None:
    """Write plain data into an empty group; `owner` names it in errors."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_encoded(data, arrays, owner))
    h5.put(group, _TEXT, np.frombuffer(text.encode(), "uint8"))
    beside = group.create_group(_ARRAYS)
    for number, array in enumerate(arrays):
        h5.put(beside, str(number), array)


def get(group: Any) -> Any:
    """Read what `put` wrote."""
    text = h5.array(group[_TEXT])
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError(f"{group.name!r} holds no text.")
    try:
        data = budget.parsed_json(text.tobytes().decode())
    except ValueError as error:
        raise ValueError(f"{group.name!r} holds no valid JSON ({error}).") from error
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
    if isinstance(data, np.ndarray) and data.dtype.kind in _KINDS:
        arrays.append(data)
        return {_MARK: len(arrays) - 1}
    kind = type(data).__name__
    if isinstance(data, np.ndarray):
        kind = f"an array of {data.dtype}"
    raise TypeError(
        f"{owner}: {kind} cannot be kept in a file; give numbers, texts, None, arrays "
        "of numbers, and lists and dictionaries of them."
    )


def _decoded(data: Any, arrays: Any) -> Any:
    if isinstance(data, list):
        return [_decoded(item, arrays) for item in data]
    if isinstance(data, dict):
        if _MARK in data:
            return h5.array(arrays[str(data[_MARK])])
        return {key: _decoded(item, arrays) for key, item in data.items()}
    return data
