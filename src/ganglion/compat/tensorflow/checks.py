"""`tf.debugging`: assertions on numbers, shapes and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compat.tensorflow.arrays import is_known
from ganglion.compat.tensorflow.objects import InvalidArgumentError
from ganglion.system.terminal import tell_once


def _checked(
    name: str, holds: Callable[..., Any], message: str | None, *tensors: Any
) -> None:
    if not is_known(*tensors):
        tell_once(f"ganglion: tf.debugging.{name} is not checked inside of a program.")
        return
    arrays = [np.asarray(tensor) for tensor in tensors]
    if not np.all(holds(*arrays)):
        shown = ", ".join(f"{array!r:.120}" for array in arrays)
        raise InvalidArgumentError(f"tf.debugging.{name}: {message or ''} {shown}")


def _comparison(name: str, holds: Callable[..., Any]) -> Callable[..., None]:
    def check(x: Any, y: Any, message: str | None = None) -> None:
        _checked(name, holds, message, x, y)

    check.__name__ = name
    return check


assert_equal = _comparison("assert_equal", np.equal)
assert_greater = _comparison("assert_greater", np.greater)
assert_greater_equal = _comparison("assert_greater_equal", np.greater_equal)
assert_less = _comparison("assert_less", np.less)
assert_less_equal = _comparison("assert_less_equal", np.less_equal)
assert_none_equal = _comparison("assert_none_equal", np.not_equal)


def assert_true(condition: Any, data: Any = None) -> None:
    """Refuse a condition that does not hold."""
    _checked("Assert", lambda holds: holds, None, condition)


def assert_near(
    x: Any,
    y: Any,
    rtol: float | None = None,
    atol: float | None = None,
    message: str | None = None,
) -> None:
    """Refuse numbers that differ."""
    near = 10 * float(np.finfo(np.float32).eps)
    share, least = (near if limit is None else limit for limit in (rtol, atol))
    _checked("assert_near", lambda a, b: np.isclose(a, b, share, least), message, x, y)


def _sign(name: str, holds: Callable[..., Any]) -> Callable[..., None]:
    def check(x: Any, message: str | None = None) -> None:
        _checked(name, holds, message, x)

    check.__name__ = name
    return check


assert_negative = _sign("assert_negative", lambda x: x < 0)
assert_non_negative = _sign("assert_non_negative", lambda x: x >= 0)
assert_non_positive = _sign("assert_non_positive", lambda x: x <= 0)
assert_positive = _sign("assert_positive", lambda x: x > 0)


def _refuse(name: str, message: str | None, actual: Any, expected: Any) -> None:
    # Shapes and types are known while tracing, too.
    raise ValueError(
        f"tf.debugging.{name}: {message or ''} expected {expected}, found {actual}."
    )


def assert_rank(x: Any, rank: int, message: str | None = None) -> None:
    """Refuse tensors with another number of axes."""
    if len(x.shape) != int(rank):
        _refuse("assert_rank", message, f"{len(x.shape)} axes", rank)


def assert_rank_at_least(x: Any, rank: int, message: str | None = None) -> None:
    """Refuse tensors with fewer axes."""
    if len(x.shape) < int(rank):
        _refuse("assert_rank_at_least", message, f"{len(x.shape)} axes", rank)


def assert_rank_in(x: Any, ranks: Any, message: str | None = None) -> None:
    """Refuse tensors with a number of axes that is not among some."""
    if len(x.shape) not in [int(rank) for rank in ranks]:
        _refuse("assert_rank_in", message, f"{len(x.shape)} axes", ranks)


def assert_scalar(tensor: Any, message: str | None = None) -> Any:
    """Return a single number; refuse other tensors."""
    if len(tensor.shape):
        _refuse("assert_scalar", message, tensor.shape, "one number")
    return tensor


def assert_type(tensor: Any, tf_type: Any, message: str | None = None) -> None:
    """Refuse tensors of another type."""
    if str(tensor.dtype) != str(tf_type):
        raise TypeError(
            f"tf.debugging.assert_type: {message or ''} expected {tf_type}, found "
            f"{tensor.dtype}."
        )


def assert_integer(x: Any, message: str | None = None) -> None:
    """Refuse tensors that are not of integers."""
    if "int" not in str(x.dtype):
        raise TypeError(
            f"tf.debugging.assert_integer: {message or ''} expected integers, "
            f"found {x.dtype}."
        )


def assert_shapes(
    shapes: Any, data: Any = None, summarize: Any = None, message: str | None = None
) -> None:
    """Refuse tensors whose axes differ where they have one name, or a number."""
    pairs = shapes.items() if isinstance(shapes, dict) else shapes
    sizes: dict[Any, Any] = {}
    for tensor, axes in pairs:
        names = list(axes) if isinstance(axes, (list, tuple, str)) else [axes]
        shape = list(tensor.shape)
        if Ellipsis in names or "*" in names:  # any axes
            start = next(n for n, name in enumerate(names) if name in (Ellipsis, "*"))
            end = len(names) - start - 1
            shape = shape[:start] + shape[len(shape) - end :]
            names = names[:start] + names[start + 1 :]
        if len(shape) != len(names):
            _refuse("assert_shapes", message or data, tensor.shape, axes)
        for size, name in zip(shape, names, strict=True):
            is_size = isinstance(name, (int, np.integer)) or str(name).isdigit()
            expected = int(name) if is_size else sizes.setdefault(name, size)
            if None not in (size, expected, name) and size != expected:
                _refuse("assert_shapes", message or data, tensor.shape, axes)


def check_numerics(tensor: Any, message: str) -> Any:
    """Return a tensor; refuse one with NaN or infinity."""
    _checked("check_numerics", np.isfinite, message, *tree.flatten(tensor))
    return tensor
