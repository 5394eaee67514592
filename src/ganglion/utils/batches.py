"""Small helpers of training loops: the parts of a batch, the inputs of tensors."""

from __future__ import annotations

from typing import Any

from ganglion.symbolic import KerasTensor


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """Return inputs, labels and weights of a batch; None for a missing part.

    >>> unpack_x_y_sample_weight((1, 2))
    (1, 2, None)
    """
    parts = tuple(data) if isinstance(data, (list, tuple)) else (data,)
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            "A batch is `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`, got "
            f"{len(parts)} parts: {data!r}."
        )
    x, y, sample_weight = (*parts, None, None)[:3]
    return x, y, sample_weight


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Return a batch from its parts, without those at the end that are None.

    >>> pack_x_y_sample_weight(1), pack_x_y_sample_weight(1, 2)
    (1, (1, 2))
    """
    if y is None:
        return (x,) if isinstance(x, (list, tuple)) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


def get_source_inputs(tensor: Any) -> Any:
    """Return the inputs that a Keras tensor is computed from, each once."""
    if not isinstance(tensor, KerasTensor):
        return tensor
    sources: dict[int, KerasTensor] = {}
    seen: set[int] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.call is None or not current.call.inputs:
            sources[id(current)] = current
        else:
            stack.extend(reversed(current.call.inputs))
    return list(sources.values())
