"""One step as a graph, with what a backend must know to run it many times."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ganglion.compiler.ir import host
from ganglion.compiler.ir.graph import Constant, Graph, Node, Value

_PLAIN = (bool, int, float, str, tuple, np.dtype, np.generic, type(None))


@dataclass(frozen=True)
class Program:
    """One step as a graph, and what its inputs and outputs stand for.

    Data inputs stay as they are for many steps. A state input's new value is the
    output of the same name; one without such an output is only read. Results are
    outputs that are collected step by step.
    """

    graph: Graph
    data: tuple[str, ...]
    state: tuple[str, ...]
    results: tuple[str, ...]

    @cached_property
    def structure(self) -> Hashable | None:
        """What programs share that differ in the names of their states alone.

        None where that cannot be said: a loop has a graph of its own, and functions of
        the host are the same only if they are.

        >>> from ganglion.compiler.ir.graph import Input
        >>> from ganglion.compiler.ir.pointwise import add
        >>> def doubled(name):
        ...     x = Input(name, (2,), "float32")
        ...     graph = Graph.of("step", [x], {name: add(x, x)})
        ...     return Program(graph, (), (name,), ()).structure
        >>> doubled("dense/kernel") == doubled("dense_1/kernel")
        True
        """
        graph = self.graph
        if any(op.kind in ("loop", "item", host.KIND) for op in graph.ops):
            return None
        names: dict[str, Any] = {name: n for n, name in enumerate(self.state)}
        numbers: dict[Value, int] = {}
        words: list[Hashable] = [self.data, len(self.state), self.results]

        def number(value: Value) -> int:
            if value not in numbers:  # a constant
                assert isinstance(value, Constant)
                words.append(_content(value.array))
                numbers[value] = len(numbers)
            return numbers[value]

        for value in graph.inputs:
            numbers[value] = len(numbers)
            name = names.get(value.name, value.name)
            words.append((name, value.shape, value.dtype))
        for node in graph.nodes:
            attributes = _attributes(node)
            if attributes is None:
                return None
            inputs = tuple([number(value) for value in node.inputs])
            numbers[node] = len(numbers)
            words.append((node.op.name, inputs, attributes))
        for name, output in graph.outputs.items():
            words.append((names.get(name, name), number(output)))
        return tuple(words)


def _content(array: np.ndarray) -> Hashable:
    raw = array.tobytes()
    content = raw if len(raw) <= hashlib.sha256().digest_size else None
    return array.dtype, array.shape, content or hashlib.sha256(raw).digest()


def _attributes(node: Node) -> str | None:
    """Return the attributes of a node as text, None if one is more than data."""
    if not node.attrs:
        return ""
    if not all(isinstance(value, _PLAIN) for value in node.attrs.values()):
        return None
    return repr(sorted(node.attrs.items()))
