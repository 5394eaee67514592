"""Host calls: ops that every backend runs in Python, by their NumPy meaning.

They are for algorithms that do not gain by compilation: sorting, order statistics,
decompositions. Such an op has the kind "host". An op of several results is a
`RecordOp`: its node is a record, and `items` extracts the results. Gradients are
written in ops, as usual.

>>> order = host_op(
...     "argsort", lambda x: (x.shape, np.dtype("int32")), lambda x: np.argsort(x)
... )
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import (
    RECORD,
    Case,
    Node,
    Op,
    Shape,
    ShapeError,
    Value,
)
from ganglion.system.records import record

Typed = tuple[Shape, np.dtype]
KIND = "host"


def host_op(
    name: str,
    infer: Callable[..., Typed],
    meaning: Callable[..., np.ndarray],
    gradient: Callable[[Node, Value], Sequence[Value | None]] | None = None,
    domain: Callable[[np.random.Generator], Case] | None = None,
) -> Op:
    """Return an op with a single result that runs on the host."""
    return Op(name, KIND, infer, meaning, domain, gradient)


@record(eq=False, guarded=True)
class RecordOp(Op):
    """An op of several results that runs on the host.

    ``types`` gives the shape and type of each result, ``results`` computes them, and
    ``pull_back`` takes the node and the gradient of each result (None: none flows) and
    returns one for each input.
    """

    types: Callable[..., Sequence[Typed]] = field(kw_only=True)
    pull_back: (
        Callable[[Node, Sequence[Value | None]], Sequence[Value | None]] | None
    ) = field(kw_only=True)


def host_record(
    name: str,
    types: Callable[..., Sequence[Typed]],
    results: Callable[..., Sequence[np.ndarray]],
    pull_back: Callable[[Node, Sequence[Value | None]], Sequence[Value | None]]
    | None = None,
) -> RecordOp:
    """Return an op of several results that runs on the host; see `items`."""

    def infer(*inputs: Value, **attrs: Any) -> Typed:
        types(*inputs, **attrs)
        return (), RECORD

    def meaning(*arrays: np.ndarray, **attrs: Any) -> Any:
        return dict(enumerate(results(*arrays, **attrs)))

    return RecordOp(name, KIND, infer, meaning, types=types, pull_back=pull_back)


def result_types(node: Node) -> list[Typed]:
    """Return the shape and type of every result of a host call."""
    if isinstance(node.op, RecordOp):
        return list(node.op.types(*node.inputs, **node.attrs))
    return [(node.shape, node.dtype)]


def _item_type(record: Value, number: int) -> Typed:
    if not isinstance(record, Node) or not isinstance(record.op, RecordOp):
        raise ShapeError(f"takes the record of a host call, not {record.type_text}")
    return result_types(record)[number]


item: Op = Op("item", "item", _item_type, lambda record, number: record.item()[number])


def items(record: Node) -> tuple[Node, ...]:
    """Return the results of a record, each as a value."""
    count = len(result_types(record))
    return tuple(item(record, number=number) for number in range(count))


@record(eq=False, guarded=True)
class HostFunction:
    """The function of a host call, from arrays to arrays."""

    name: str
    where: str  # the layer and line it comes from
    inputs: tuple[Typed, ...]
    outputs: tuple[Typed, ...]
    meaning: Callable[..., Any]

    @staticmethod
    def of(node: Node) -> HostFunction:
        """Return the function of a node."""

        def meaning(*arrays: np.ndarray) -> Any:
            return node.op.meaning(*arrays, **node.attrs)

        inputs = tuple((value.shape, value.dtype) for value in node.inputs)
        outputs = tuple(result_types(node))
        return HostFunction(node.op.name, str(node.origin), inputs, outputs, meaning)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Return the results; a note on exceptions names the call."""
        try:
            with np.errstate(all="ignore"):
                results = self.meaning(*arrays)
            values = results.values() if isinstance(results, dict) else [results]
            typed = zip(values, self.outputs, strict=True)
            return [self._checked(np.asarray(array), *kind) for array, kind in typed]
        except BaseException as error:
            error.add_note(f"in {self.name}, a host call {self.where}".rstrip())
            raise

    def _checked(self, array: np.ndarray, shape: Shape, dtype: np.dtype) -> np.ndarray:
        if (array.shape, array.dtype) != (shape, dtype):
            raise TypeError(
                f"{self.name} should return {dtype.name}{list(shape)}, "
                f"not {array.dtype.name}{list(array.shape)}"
            )
        return array
