"""Keras tensors: placeholders that remember the calls which made them.

The functional API builds a graph of layer calls over shapes with unknown axes (None).
It is replayed with exact shapes when a model is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.ir.graph import Input, Value
from ganglion.ir.operators import Operators
from ganglion.variables import Scope, unique_name

# Stand-ins for an unknown axis: what differs between the two depends on it. Both have
# many divisors, so that strides, pools and reshapes fit.
_STAND_INS = (240, 480)


class KerasTensor(Operators):
    """A symbolic array: shape (None where unknown), type, and where it comes from."""

    def __init__(
        self,
        shape: Iterable[int | None],
        dtype: Any = "float32",
        sparse: bool = False,
        ragged: bool = False,
        record_history: bool = True,
        name: str | None = None,
    ) -> None:
        if sparse or ragged:
            raise ValueError("Sparse and ragged tensors are not supported.")
        self.shape = tuple(None if n is None else int(n) for n in shape)
        self.dtype = np.dtype(dtype).name
        self.name = name or unique_name("keras_tensor")
        self.sparse = self.ragged = False
        self.call: Call | None = None
        self.index = 0

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __bool__(self) -> bool:
        raise TypeError(
            "A symbolic KerasTensor has no truth value: choose with `ops.where(...)`, "
            "or write the condition into a Layer."
        )

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise ValueError(
            "A KerasTensor is symbolic and holds no numbers: it cannot be turned "
            "into an array. Use `ganglion.ops` in place of NumPy functions, or wrap "
            "the code in a Layer."
        )

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"


class Call:
    """One call of a layer or an op on Keras tensors."""

    def __init__(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.operation = operation
        self.args = args
        self.kwargs = kwargs
        self.inputs = [one for one in tree.flatten((args, kwargs)) if is_symbolic(one)]
        self.outputs: Any = None

    def bind(self, outputs: Any) -> Any:
        """Remember the outputs, and let them remember this call."""
        self.outputs = outputs
        for index, one in enumerate(tree.flatten(outputs)):
            one.call, one.index = self, index
        return outputs

    def replay(self, known: dict[KerasTensor, Any]) -> list[Any]:
        """Call again with the values that ``known`` gives for the tensors."""
        args, kwargs = self._arguments(known)
        return tree.flatten(self.operation(*args, **kwargs))

    def infer(self, known: dict[KerasTensor, KerasTensor]) -> list[KerasTensor]:
        """Return what the call would give for other Keras tensors, unrecorded."""
        args, kwargs = self._arguments(known)
        if isinstance(self.operation, Function):
            return tree.flatten(infer(self.operation.function, args, kwargs))
        return tree.flatten(self.operation.compute_output_spec(*args, **kwargs))

    def _arguments(self, known: dict[KerasTensor, Any]) -> tuple[Any, Any]:
        def look_up(leaf: Any) -> Any:
            return known[leaf] if is_symbolic(leaf) else leaf

        return tree.map_leaves(look_up, self.args), tree.map_leaves(
            look_up, self.kwargs
        )


class Function:
    """An op of `ganglion.ops` as a step of the functional graph."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = unique_name(function.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op again, when a model replays its calls."""
        return self.function(*args, **kwargs)


def is_symbolic(x: Any) -> bool:
    """Tell whether this is a Keras tensor."""
    return isinstance(x, KerasTensor)


def any_symbolic(*structures: Any) -> bool:
    """Tell whether any leaf is a Keras tensor."""
    return any(is_symbolic(leaf) for leaf in tree.flatten(structures))


def record(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Record the call of an op on Keras tensors and return its symbolic result."""
    call = Call(Function(function), args, kwargs)
    return call.bind(infer(function, args, kwargs))


def infer(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the Keras tensors a call would give, by tracing it on stand-in shapes."""
    structure, first = _trace(function, args, kwargs, _STAND_INS[0])
    _, second = _trace(function, args, kwargs, _STAND_INS[1])
    outputs = []
    for a, b in zip(first, second, strict=True):
        shape = [n if n == m else None for n, m in zip(a.shape, b.shape, strict=True)]
        outputs.append(KerasTensor(shape, a.dtype))
    return tree.pack(structure, outputs)


def _trace(
    function: Callable[..., Any], args: Any, kwargs: dict[str, Any], size: int
) -> tuple[Any, list[Value]]:
    made: dict[KerasTensor, Input] = {}

    def stand_in(leaf: Any) -> Any:
        if not is_symbolic(leaf):
            return leaf
        if leaf not in made:
            shape = [size if n is None else n for n in leaf.shape]
            made[leaf] = Input(leaf.name, shape, leaf.dtype)
        return made[leaf]

    with Scope():
        result = function(
            *tree.map_leaves(stand_in, args), **tree.map_leaves(stand_in, kwargs)
        )
    return result, tree.flatten(result)
