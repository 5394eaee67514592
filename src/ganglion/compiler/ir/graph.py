"""Values, nodes and the immutable graph: the language every backend reads.

A graph is single assignment and pure: state goes in as inputs and comes out as
outputs. Shapes and types are exact; nothing broadcasts and nothing converts unless
a node says so.
"""

from __future__ import annotations

import operator
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from ganglion.compiler.ir import origin as origins
from ganglion.compiler.ir.origin import Origin

Shape = tuple[int, ...]
Case = tuple[list[np.ndarray], dict[str, Any]]
T = TypeVar("T")
RECORD = np.dtype(object)  # the type of what holds several arrays: a loop's results


# ---- Python's operators --------------------------------------------------------------
# The functions behind them live far above (`ganglion.ops`), which registers them here;
# so `x + 1` means the same for values, variables and Keras tensors.

_functions: dict[str, Callable[..., Any]] = {}


def register_operators(functions: dict[str, Callable[..., Any]]) -> None:
    """Register the function that each operator calls."""
    _functions.update(functions)


def call_function(name: str, *args: Any) -> Any:
    """Call the function that is registered by this name."""
    return _functions[name](*args)


def _binary(name: str) -> Any:
    def operator(self: Any, other: Any) -> Any:
        return _functions[name](self, other)

    return operator


def _reflected(name: str) -> Any:
    def operator(self: Any, other: Any) -> Any:
        return _functions[name](other, self)

    return operator


def _unary(name: str) -> Any:
    def operator(self: Any) -> Any:
        return _functions[name](self)

    return operator


class Operators:
    """Mixin: arithmetic, comparison, matrix product and indexing."""

    __slots__ = ()
    __array_ufunc__: Any = None  # so that `ndarray + x` asks x, not NumPy

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    # As in NumPy, so that `mask = labels == 0` means what it says. They are hashed by
    # identity: sets and dictionaries hold them, `in` on a list does not work.
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __hash__ = object.__hash__
    __and__, __rand__ = _binary("logical_and"), _reflected("logical_and")
    __or__, __ror__ = _binary("logical_or"), _reflected("logical_or")
    __neg__, __abs__ = _unary("negative"), _unary("absolute")
    __invert__ = _unary("logical_not")
    __getitem__ = _binary("getitem")


# ---- values and nodes ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Op:
    """One primitive: everything there is to know about it, side by side.

    ``infer`` maps input values and attributes to (shape, dtype) and refuses what
    does not fit; ``meaning`` computes it in NumPy; ``gradient`` takes the node and
    the gradient of its result and returns one gradient per input (None: no
    gradient flows); ``domain`` draws one test case (arrays, attributes).
    """

    name: str
    kind: str
    infer: Callable[..., tuple[Shape, np.dtype]]
    meaning: Callable[..., np.ndarray]
    domain: Callable[[np.random.Generator], Case] | None = None
    gradient: Callable[[Node, Value], Sequence[Value | None]] | None = None

    def __call__(self, *inputs: Value, **attrs: Any) -> Node:
        """Make a node: check the inputs, infer the result's shape and type."""
        try:
            shape, dtype = self.infer(*inputs, **attrs)
        except ShapeError as error:
            raise ShapeError(_with_origin(f"{self.name}: {error}")) from None
        return Node(self, inputs, attrs, shape, dtype)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class ShapeError(ValueError):
    """Shapes or types that do not fit; the message names the layer and the line."""


class Value(Operators):
    """A typed array of exact shape: an input, a constant or the result of a node."""

    __slots__ = ("__weakref__", "_keras_mask", "dtype", "shape")

    shape: Shape
    dtype: np.dtype
    _keras_mask: Any  # see `ganglion.masks`; set where there is one

    def __init__(self, shape: Iterable[int], dtype: Any) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def type_text(self) -> str:
        """The type as printed in a graph, for example ``float32[128,10]``."""
        if self.dtype == RECORD:
            return "record"
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_keras_mask" and hasattr(self, name):
            raise AttributeError(f"{self!r} cannot change its {name}: make a new one")
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TypeError(
            "A traced value has no truth value while the model is compiled: use "
            "ops.where(condition, a, b) instead of `if`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.type_text}>"


class Input(Value):
    """A named argument of the graph: data or state."""

    __slots__ = ("name",)

    def __init__(self, name: str, shape: Iterable[int], dtype: Any) -> None:
        super().__init__(shape, dtype)
        self.name = name


class Constant(Value):
    """An array known while the graph is made."""

    __slots__ = ("array",)

    def __init__(self, array: Any, dtype: Any = None) -> None:
        self.array = np.array(array, dtype=dtype)
        self.array.setflags(write=False)
        super().__init__(self.array.shape, self.array.dtype)


class Node(Value):
    """An op applied to values."""

    __slots__ = ("attrs", "inputs", "op", "origin")

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Value],
        attrs: Mapping[str, Any],
        shape: Shape,
        dtype: np.dtype,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(shape, dtype)
        self.op = op
        self.inputs = tuple(inputs)
        self.attrs: Mapping[str, Any] = MappingProxyType(dict(attrs))
        self.origin = origins.here() if origin is None else origin


@dataclass(frozen=True)
class Graph:
    """Named inputs, named outputs and all that lies between, in order.

    >>> from ganglion.compiler.ir import pointwise as p
    >>> x = Input("x", (2, 3), "float32")
    >>> print(Graph.of("double", [x], {"y": p.add(x, x)}))
    graph double
      x  input float32[2,3]
      %0 float32[2,3] = add(x, x)
      return y=%0
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: Mapping[str, Value]
    nodes: tuple[Node, ...] = field(repr=False)

    @staticmethod
    def of(name: str, inputs: Iterable[Input], outputs: Mapping[str, Value]) -> Graph:
        """Make a graph from its ends; the nodes are found and sorted."""
        nodes = tuple(v for v in toposort(outputs.values()) if isinstance(v, Node))
        ends = MappingProxyType(dict(outputs))
        return Graph(name, tuple(inputs), ends, nodes)

    @property
    def has_loops(self) -> bool:
        """Whether a node has a body, a graph of its own."""
        return any(node.op.kind == "loop" for node in self.nodes)

    def __str__(self) -> str:
        return "\n".join(_print(self))


def toposort(roots: Iterable[Value], ends: Collection[Value] = ()) -> list[Value]:
    """Return the roots and all they depend on, inputs first (iterative).

    Nothing behind the `ends` is looked at.
    """
    order: list[Value] = []
    seen: set[Value] = set()
    for root in roots:
        stack: list[tuple[Value, bool]] = [(root, False)]
        while stack:
            value, inputs_done = stack.pop()
            if inputs_done:
                order.append(value)
            elif value not in seen:
                seen.add(value)
                stack.append((value, True))
                if isinstance(value, Node) and value not in ends:
                    stack.extend((source, False) for source in reversed(value.inputs))
    return order


def evaluate(
    values: list[Value], known: Mapping[Value, np.ndarray] | None = None
) -> list[np.ndarray]:
    """Compute values from constants (and ``known`` inputs), keeping nothing."""
    results: dict[Value, np.ndarray] = dict(known or {})
    with np.errstate(all="ignore"):
        for value in toposort(values, ends=known or ()):
            if value in results:
                continue
            if isinstance(value, Constant):
                results[value] = value.array
            elif isinstance(value, Node):
                arguments = [results[x] for x in value.inputs]
                results[value] = np.asarray(value.op.meaning(*arguments, **value.attrs))
            else:
                raise ValueError(f"{value!r} has no value outside of its trace")
    return [results[value] for value in values]


def rebuild(node: Node, inputs: tuple[Value, ...]) -> Node:
    """Return a node with other inputs."""
    if len(inputs) == len(node.inputs) and all(map(operator.is_, inputs, node.inputs)):
        return node
    return Node(node.op, inputs, node.attrs, node.shape, node.dtype, node.origin)


def rewritten(graph: Graph, rule: Callable[[Node, Node], Value]) -> Graph:
    """Return a graph with each node as a rule has it.

    The rule is given a node, and the same with inputs that are rewritten already.
    """
    new: dict[Value, Value] = {}
    for value in toposort(graph.outputs.values()):
        new[value] = value
        if isinstance(value, Node):
            inputs = tuple(new[source] for source in value.inputs)
            new[value] = rule(value, rebuild(value, inputs))
    outputs = {name: new[value] for name, value in graph.outputs.items()}
    return Graph.of(graph.name, graph.inputs, outputs)


def _print(graph: Graph) -> Iterator[str]:
    names: dict[Value, str] = {symbol: symbol.name for symbol in graph.inputs}
    yield f"graph {graph.name}"
    width = max([len(name) for name in names.values()], default=0)
    for symbol in graph.inputs:
        yield f"  {symbol.name:<{width}}  input {symbol.type_text}"

    def show(value: Value) -> str:
        return names.get(value) or _print_constant(value)

    for number, node in enumerate(graph.nodes):
        names[node] = f"%{number}"
        arguments = [show(value) for value in node.inputs]
        arguments += [f"{key}={_print_attr(v)}" for key, v in node.attrs.items()]
        line = f"  %{number} {node.type_text} = {node.op.name}({', '.join(arguments)})"
        yield f"{line:<72}  # {node.origin}" if node.origin.layer else line
        for body in node.attrs.values():
            if isinstance(body, Graph):
                yield from (f"    {text}" for text in _print(body))
    ends = ", ".join(f"{name}={show(v)}" for name, v in graph.outputs.items())
    yield f"  return {ends}"


def _print_attr(value: Any) -> str:
    if isinstance(value, Graph):
        return value.name
    return str(value).replace(" ", "")


def _print_constant(value: Value) -> str:
    if not isinstance(value, Constant):
        return f"<unbound {value.type_text}>"
    if value.size == 1:
        return f"{value.array.item():g}"
    return f"constant<{value.type_text}>"


def _with_origin(message: str) -> str:
    where = str(origins.here())
    return f"{message} (in {where})" if where else message


# ---- recursion without a limit -------------------------------------------------------
# Graphs and expressions are as deep as a model is long, Python's stack is not: so
# functions ask for results instead of calling.

# Yields others of its kind, is sent what they return, and returns a result.
Deep = Generator["Deep[Any]", Any, T]


def finished(start: Deep[T]) -> T:
    """Return the result of a function that yields the calls it would make.

    >>> def depth(nested):
    ...     return 1 + (yield depth(nested[0])) if nested else 0
    >>> nested = ()
    >>> for _ in range(5000):
    ...     nested = (nested,)
    >>> finished(depth(nested))
    5000
    """
    calls: list[Deep[Any]] = [start]
    result: Any = None
    while calls:
        try:
            inner = calls[-1].send(result)
        except StopIteration as done:
            calls.pop()
            result = done.value
        else:
            calls.append(inner)
            result = None
    answer: T = result
    return answer


# ---- what must hold of every graph, before and after every pass ----------------------


class GraphError(Exception):
    """A graph that breaks its own rules: a bug in Ganglion, not in the model."""


def verify(graph: Graph) -> Graph:
    """Return the graph if it is well formed, else raise `GraphError`."""
    names = [value.name for value in graph.inputs]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise GraphError(f"{graph.name}: inputs named twice: {', '.join(twice)}")
    known: set[Value] = set(graph.inputs)
    for number, node in enumerate(graph.nodes):
        _verify_node(graph, number, node, known)
        known.add(node)
    for name, value in graph.outputs.items():
        if value not in known and not isinstance(value, Constant):
            raise GraphError(f"{graph.name}: output {name} is not computed")
    return graph


def _verify_node(graph: Graph, number: int, node: Node, known: set[Value]) -> None:
    where = f"{graph.name} %{number} {node.op.name}"
    for value in node.inputs:
        if isinstance(value, Input) and value not in known:
            raise GraphError(f"{where}: uses the undeclared input {value.name}")
        if value not in known and not isinstance(value, Constant):
            raise GraphError(f"{where}: uses a value before it is computed")
    for body in node.attrs.values():
        if isinstance(body, Graph):
            verify(body)
    try:
        inferred = node.op.infer(*node.inputs, **node.attrs)
    except ShapeError as error:
        raise GraphError(f"{where}: {error}") from error
    if inferred != (node.shape, node.dtype):
        raise GraphError(f"{where}: is {node.type_text}, inferred {inferred}")
