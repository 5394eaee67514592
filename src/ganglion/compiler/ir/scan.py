"""Loops over time: a node with a body graph, carried state and stacked arrays.

The inputs of the body are, in this order, the carries, a slice of each stacked array,
and loop invariants. Its outputs are the carries of the next step, named `carry0` and so
on, and slices of stacked results. The result of a scan is a record of arrays, from
which `field` extracts an array.

Loops are not unrolled: the size of a graph does not depend on the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.compiler.ir.arrays import slice_
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import (
    RECORD,
    Constant,
    Graph,
    Input,
    Node,
    Op,
    ShapeError,
    Value,
    evaluate,
    rebuild,
    rewritten,
    toposort,
)
from ganglion.compiler.ir.shaping import Typed, broadcast, reshape, transpose


def carry_name(number: int) -> str:
    """Return the name of the body's output that is a carry of the next step."""
    return f"carry{number}"


def _infer(
    *inputs: Value, body: Graph, carries: int, stacked: int, length: int, reverse: bool
) -> Typed:
    if len(inputs) != len(body.inputs):
        raise ShapeError(f"the body takes {len(body.inputs)} values, got {len(inputs)}")
    for number, (value, inner) in enumerate(zip(inputs, body.inputs, strict=True)):
        is_stacked = carries <= number < carries + stacked
        shape = (length, *inner.shape) if is_stacked else inner.shape
        if (value.shape, value.dtype) != (shape, inner.dtype):
            raise ShapeError(f"{inner.name} is {value.type_text}, not {shape}")
    for number in range(carries):
        carry, new = body.inputs[number], body.outputs[carry_name(number)]
        if (carry.shape, carry.dtype) != (new.shape, new.dtype):
            raise ShapeError(
                f"the carried {carry.type_text} becomes {new.type_text} in a step; "
                "it must keep its shape and type"
            )
    return (), RECORD


def _meaning(
    *arrays: np.ndarray,
    body: Graph,
    carries: int,
    stacked: int,
    length: int,
    reverse: bool,
) -> Any:
    state = list(arrays[:carries])
    rows = arrays[carries : carries + stacked]
    rest = arrays[carries + stacked :]
    names = list(body.outputs)
    record = {
        name: np.zeros((length, *value.shape), value.dtype)
        for name, value in list(body.outputs.items())[carries:]
    }
    for step in reversed(range(length)) if reverse else range(length):
        slices = [array[step] for array in rows]
        known: dict[Value, np.ndarray] = dict(
            zip(body.inputs, [*state, *slices, *rest], strict=True)
        )
        results = evaluate(list(body.outputs.values()), known)
        state = results[:carries]
        for name, array in zip(names[carries:], results[carries:], strict=True):
            record[name][step] = array
    record |= {carry_name(i): np.array(array) for i, array in enumerate(state)}
    return record


scan: Op = Op("scan", "loop", _infer, _meaning)


def field_type(node: Value, name: str) -> Typed:
    """Return the shape and type of a field of a scan's record."""
    if not isinstance(node, Node) or node.op is not scan:
        raise ShapeError(f"takes the record of a scan, not {node.type_text}")
    body, carries = node.attrs["body"], node.attrs["carries"]
    if name not in body.outputs:
        raise ShapeError(f"there is no {name}; there are {', '.join(body.outputs)}")
    value = body.outputs[name]
    is_carry = name in (carry_name(number) for number in range(carries))
    shape = value.shape if is_carry else (node.attrs["length"], *value.shape)
    return shape, value.dtype


field: Op = Op(
    "field",
    "loop",
    lambda record, name: field_type(record, name),
    lambda record, name: record.item()[name],
)


# ---- building -----------------------------------------------------------------------

Step = Callable[[Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Any]]


def make_scan(
    step: Step,
    carries: Sequence[Value],
    stacked: Sequence[Value],
    length: int,
    reverse: bool = False,
) -> tuple[list[Value], list[Value]]:
    """Return the last carries and the stacked results of a function run step by step.

    The function takes the carries and a slice of each stacked array, and returns the
    new carries and slices of results. Values that it captures are loop invariants.
    Contractions that depend on slices only are moved out of the loop, for all steps at
    once.
    """
    state = [Input(f"c{i}", v.shape, v.dtype) for i, v in enumerate(carries)]
    slices = [Input(f"x{i}", v.shape[1:], v.dtype) for i, v in enumerate(stacked)]
    new_carries, results = step(state, slices)
    outputs = {carry_name(i): value for i, value in enumerate(new_carries)}
    outputs |= {f"y{i}": value for i, value in enumerate(results)}
    loop = _Outlined(state, slices, stacked, length)
    outputs = loop.outline(outputs)
    constants = loop.constants
    inputs = (*state, *loop.slices, *constants.values())
    node = scan(
        *carries,
        *loop.stacked,
        *constants,
        body=Graph.of("body", inputs, outputs),
        carries=len(state),
        stacked=len(loop.slices),
        length=length,
        reverse=reverse,
    )
    last: list[Value] = [field(node, name=carry_name(i)) for i in range(len(state))]
    return last, [field(node, name=f"y{i}") for i in range(len(results))]


class _Outlined:
    """A body under construction, with its slices and loop invariants."""

    def __init__(
        self,
        state: Sequence[Input],
        slices: Sequence[Input],
        stacked: Sequence[Value],
        length: int,
    ) -> None:
        self.slices, self.stacked = list(slices), list(stacked)
        self.constants: dict[Value, Input] = {}
        self._carried: set[Value] = set(state)  # values that depend on a carry
        self._sliced: set[Value] = set(slices)  # on slices, and on no carry
        self._heavy: set[Value] = set()  # those that depend on a contraction
        self._all_steps = AllSteps(dict(zip(slices, stacked, strict=True)), length)

    def outline(self, outputs: Mapping[str, Value]) -> dict[str, Value]:
        """Return outputs that depend on the body's inputs only."""
        order = toposort(outputs.values())
        for value in order:
            self._classify(value)
        # Values that are not computed in the body become inputs of it.
        begins: dict[Value, Value] = {}
        pending = list(outputs.values())
        while pending:
            value = pending.pop()
            if value in begins:
                continue
            begins[value] = self._beginning(value)
            if begins[value] is value and isinstance(value, Node):
                pending.extend(value.inputs)
        ends = {value: new for value, new in begins.items() if new is not value}
        return dict(
            zip(outputs, instantiated(outputs.values(), ends), strict=True),
        )

    def _classify(self, value: Value) -> None:
        inputs = value.inputs if isinstance(value, Node) else ()
        if any(x in self._carried for x in inputs):
            self._carried.add(value)
        elif any(x in self._sliced for x in inputs):
            self._sliced.add(value)
            kind = value.op.kind if isinstance(value, Node) else ""
            if kind == "contraction" or any(x in self._heavy for x in inputs):
                self._heavy.add(value)

    def _beginning(self, value: Value) -> Value:
        """Return the body's input for a value, or the value if it is computed there."""
        if value in self._carried:
            return value
        if value in self._sliced:
            moves = isinstance(value, Node) and value.op.kind == "movement"
            return self._slice(value) if value in self._heavy and not moves else value
        if isinstance(value, Constant) or _repeats(value):
            return value
        name = f"k{len(self.constants)}"
        return self.constants.setdefault(value, Input(name, value.shape, value.dtype))

    def _slice(self, value: Value) -> Value:
        every = self._all_steps.of(value)
        if every is None:
            return value
        self.stacked.append(every)
        self.slices.append(Input(f"x{len(self.slices)}", value.shape, value.dtype))
        return self.slices[-1]


def _repeats(value: Value) -> bool:
    """Return whether a value is a broadcast, which is cheap to repeat in the loop."""
    if not isinstance(value, Node) or value.op is not broadcast:
        return False
    return value.size > value.inputs[0].size


def instantiated(
    roots: Iterable[Value], replacements: Mapping[Value, Value]
) -> list[Value]:
    """Return copies of values in which some of their inputs are replaced."""
    roots = list(roots)
    new: dict[Value, Value] = dict(replacements)
    for value in toposort(roots, ends=replacements):
        if value in new:
            continue
        new[value] = value
        if isinstance(value, Node):
            new[value] = rebuild(value, tuple(new[x] for x in value.inputs))
    return [new[value] for value in roots]


# ---- all steps at once --------------------------------------------------------------


class AllSteps:
    """Computes values of a body for all steps at once, with time as the first axis."""

    def __init__(self, stacked: Mapping[Value, Value], length: int) -> None:
        self._known: dict[Value, Value | None] = dict(stacked)
        self._length = length

    def of(self, value: Value) -> Value | None:
        """Return a value for all steps, None if an op has no rule for that."""
        depends = _depending(value, self._known)
        for node in toposort([value], ends=self._known):
            if node not in self._known and node in depends:
                assert isinstance(node, Node)
                self._known[node] = self._all(node, depends)
        return self._known[value]

    def _all(self, node: Node, depends: Collection[Value]) -> Value | None:
        inputs: list[Value] = []
        varies: list[bool] = []
        for value in node.inputs:
            varies.append(value in depends)
            every = self._known[value] if varies[-1] else value
            if every is None:
                return None
            inputs.append(every)
        if node.op.kind == "pointwise":
            return rebuild_as(node, self._repeated(node, inputs, varies), self._length)
        rule = _ALL_STEPS.get(node.op.name)
        return rule(node, inputs, varies, self._length) if rule else None

    def _repeated(
        self, node: Node, inputs: list[Value], varies: list[bool]
    ) -> list[Value]:
        shape = (self._length, *node.shape)
        return [
            value if changes else broadcast(value, shape=shape)
            for value, changes in zip(inputs, varies, strict=True)
        ]


def rebuild_as(node: Node, inputs: Sequence[Value], length: int) -> Node:
    """Return a pointwise node for all steps."""
    shape = (length, *node.shape)
    return Node(node.op, tuple(inputs), node.attrs, shape, node.dtype, node.origin)


def _depending(value: Value, slices: Iterable[Value]) -> set[Value]:
    depends = set(slices)
    for node in toposort([value], ends=depends):
        if isinstance(node, Node) and any(x in depends for x in node.inputs):
            depends.add(node)
    return depends


def _all_broadcast(
    node: Node, inputs: list[Value], varies: list[bool], length: int
) -> Value:
    (x,) = inputs
    ones = (1,) * (node.ndim - (x.ndim - 1))
    x = reshape(x, shape=(length, *ones, *x.shape[1:])) if ones else x
    return broadcast(x, shape=(length, *node.shape))


def _all_reshape(
    node: Node, inputs: list[Value], varies: list[bool], length: int
) -> Value:
    return reshape(inputs[0], shape=(length, *node.shape))


def _all_transpose(
    node: Node, inputs: list[Value], varies: list[bool], length: int
) -> Value:
    axes = (0, *(axis + 1 for axis in node.attrs["axes"]))
    return transpose(inputs[0], axes=axes)


def _all_slice(
    node: Node, inputs: list[Value], varies: list[bool], length: int
) -> Value:
    firsts = {"starts": 0, "stops": length, "steps": 1}
    spans = {key: (first, *node.attrs[key]) for key, first in firsts.items()}
    return slice_(inputs[0], **spans)


def _all_matmul(
    node: Node, inputs: list[Value], varies: list[bool], length: int
) -> Value | None:
    left, right = inputs
    if all(varies):
        return matmul(left, right)
    if not varies[0] or node.ndim != 2:
        return None
    rows, inner = node.inputs[0].shape
    product = matmul(reshape(left, shape=(length * rows, inner)), right)
    return reshape(product, shape=(length, *node.shape))


def _all_conv(
    node: Node, inputs: list[Value], varies: list[bool], length: int
) -> Value | None:
    images, kernel = inputs
    if varies != [True, False]:
        return None
    merged = reshape(images, shape=(length * images.shape[1], *images.shape[2:]))
    return reshape(node.op(merged, kernel, **node.attrs), shape=(length, *node.shape))


_Rule = Callable[[Node, list[Value], list[bool], int], Value | None]
_ALL_STEPS: dict[str, _Rule] = {
    "broadcast": _all_broadcast,
    "reshape": _all_reshape,
    "transpose": _all_transpose,
    "slice": _all_slice,
    "matmul": _all_matmul,
    "conv": _all_conv,
}


# ---- equal loops --------------------------------------------------------------------


def merge_scans(graph: Graph) -> Graph:
    """Return a graph in which equal loops are merged, with the union of their outputs.

    The gradient of a scan needs further outputs of the forward loop, and creates a copy
    of it with these.
    """
    if not graph.has_loops:
        return graph
    requested: dict[Any, dict[str, Value]] = {}
    for node in graph.nodes:
        if node.op is field:
            name, value = _canonical(node)
            requested.setdefault(_key(node.inputs[0]), {})[name] = value
    merged: dict[Any, Node] = {}

    def rule(old: Node, new: Node) -> Value:
        if old.op is field:
            return field(new.inputs[0], name=_canonical(old)[0])
        if old.op is not scan:
            return new
        key = _key(old)
        if key not in merged:
            merged[key] = _with_outputs(new, requested.get(key, {}))
        return merged[key]

    return rewritten(graph, rule)


def _canonical(node: Node) -> tuple[str, Value]:
    """Return the first name of a field's output, and its value in the body."""
    record, name = node.inputs[0], node.attrs["name"]
    assert isinstance(record, Node)
    outputs = list(record.attrs["body"].outputs.items())
    value = record.attrs["body"].outputs[name]
    for first, other in outputs[record.attrs["carries"] :]:
        if other is value and name in dict(outputs[record.attrs["carries"] :]):
            return first, value
    return name, value


def _key(node: Value) -> Any:
    assert isinstance(node, Node)
    attrs = node.attrs
    return node.inputs, attrs["body"].inputs, attrs["length"], attrs["reverse"]


def _with_outputs(node: Node, requested: Mapping[str, Value]) -> Node:
    """Return a loop with the requested outputs, and the inputs that they need."""
    attrs, body, carries = node.attrs, node.attrs["body"], node.attrs["carries"]
    names = [carry_name(number) for number in range(carries)]
    outputs = {name: body.outputs[name] for name in names}
    outputs |= {name: requested[name] for name in sorted(set(requested) - set(names))}
    smaller = merge_scans(Graph.of(body.name, body.inputs, outputs))
    used = {*smaller.inputs[:carries], *toposort(smaller.outputs.values())}
    numbers = [i for i, value in enumerate(smaller.inputs) if value in used]
    stacked = sum(carries <= i < carries + attrs["stacked"] for i in numbers)
    smaller = replace(smaller, inputs=tuple(smaller.inputs[i] for i in numbers))
    return Node(
        scan,
        tuple(node.inputs[i] for i in numbers),
        {**attrs, "body": smaller, "stacked": stacked},
        (),
        RECORD,
        node.origin,
    )


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return a graph with the bodies of its loops changed."""

    def rule(old: Node, new: Node) -> Value:
        if old.op is not scan:
            return new
        body = change(new.attrs["body"])
        if body is new.attrs["body"]:
            return new
        attrs = {**new.attrs, "body": body}
        return Node(scan, new.inputs, attrs, (), RECORD, new.origin)

    return rewritten(graph, rule) if graph.has_loops else graph
