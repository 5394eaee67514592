"""Values, nodes, the immutable graph and the program: what every backend reads.

A graph is single assignment and pure: state goes in as inputs and comes out as
outputs. Shapes and types are exact; nothing broadcasts and nothing converts unless
a node says so.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import operator
from collections.abc import (
    Callable,
    Container,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import field
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

import ml_dtypes
import numpy as np

from ganglion.compiler.ir import origin as origins
from ganglion.compiler.ir.origin import Origin
from ganglion.system.records import record

Shape = tuple[int, ...]


class Sizes(tuple):
    """A shape, with the methods of TensorFlow's shapes.

    >>> Sizes((2, 3)).as_list(), Sizes((2, 3)).rank, Sizes((None, 3)).num_elements()
    ([2, 3], 2, None)
    """

    __slots__ = ()

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    ndims = rank

    def as_list(self) -> list[int | None]:
        """Return the sizes as a list."""
        return list(self)

    def is_fully_defined(self) -> bool:
        """Return whether every size is known."""
        return None not in self

    def num_elements(self) -> int | None:
        """Return the number of elements of a tensor of this shape, None if unknown."""
        return math.prod(self) if self.is_fully_defined() else None

    @property
    def dims(self) -> list[int | None]:
        """The sizes as a list."""
        return list(self)

    def is_compatible_with(self, other: Any) -> bool:
        """Return whether a tensor can have both shapes; None is compatible with any."""
        theirs = tuple(other)
        return len(self) == len(theirs) and all(
            a is None or b is None or a == b for a, b in zip(self, theirs, strict=True)
        )

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise `ValueError` for a shape that is not compatible."""
        if not self.is_compatible_with(other):
            raise ValueError(f"A tensor of shape {self} is not one of {tuple(other)}.")


T = TypeVar("T")


class kept(Generic[T]):  # noqa: N801 (a decorator, as `property` is)
    """A property that is computed at its first use, and stored.

    Like `functools.cached_property` without its lock, which is slow in Python 3.11:
    graphs and plans have thousands of them. Two threads may compute the same result.

    >>> class Circle:
    ...     @kept
    ...     def area(self):
    ...         print("computed")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area + circle.area
    computed
    6.28
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name = compute, compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: Any = None) -> kept[T]: ...
    @overload
    def __get__(self, owner: object, kind: Any = None) -> T: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        value = self._compute(owner)
        _set(owner, self._name, value)
        return value


Case = tuple[list[np.ndarray], dict[str, Any]]
RECORD = np.dtype(object)  # the type of a tuple of arrays: the results of a loop

# 16-bit floats are stored as such, computed in float32, and rounded after every op.
FLOAT16, BFLOAT16 = np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype("float32")
# Ops that move or select elements, and never round.
MOVING = ("cast", "gather", "where", "stop_gradient")


@cache
def is_short(dtype: np.dtype) -> bool:
    """Return whether a type is a 16-bit float."""
    return dtype in (FLOAT16, BFLOAT16)


@cache
def dtype_name(dtype: np.dtype) -> str:
    """Return the name of a type; NumPy builds it at every call."""
    return dtype.name


# ---- Python's operators --------------------------------------------------------------
# They call functions of `ganglion.ops`, which registers them here, so that `x + 1` has
# the same meaning for values, variables and Keras tensors.

_functions: dict[str, Callable[..., Any]] = {}


def register_operators(functions: dict[str, Callable[..., Any]]) -> None:
    """Register the function that each operator calls."""
    _functions.update(functions)


def call_function(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the function that is registered under this name."""
    return _functions[name](*args, **kwargs)


def _comparison(name: str, with_none: bool) -> Any:
    """Return `==` or `!=`, which scripts also ask whether there is a mask at all."""

    def operator(self: Any, other: Any) -> Any:
        return with_none if other is None else _functions[name](self, other)

    return operator


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


def _of_bits(name: str) -> Any:
    """Return `&` and its kin: of truth values, and bit by bit of integers."""

    def operator(self: Any, *other: Any) -> Any:
        kind = "bitwise" if self.dtype.kind in "iu" else "logical"
        return _functions[f"{kind}_{name}"](self, *other)

    return operator


class Operators:
    """Mixin: arithmetic, comparison, matrix product and indexing."""

    __slots__ = ()
    __array_ufunc__: Any = None  # so that `ndarray + x` calls x.__radd__

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call the op that does what a function of PyTorch's does, or refuse it."""
        return call_function("torch_function", function, args, kwargs)

    def get_shape(self: Any) -> Sizes:
        """Return the sizes of the axes, as in TensorFlow."""
        return self.shape

    def set_shape(self: Any, shape: Any) -> None:
        """Raise for sizes that are not compatible, as in TensorFlow."""
        Sizes(self.shape).assert_is_compatible_with(shape)

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
    # Elementwise, as in NumPy. Values are hashed by identity for sets and dictionaries.
    __eq__, __ne__ = _comparison("equal", False), _comparison("not_equal", True)
    __hash__ = object.__hash__
    __and__, __rand__ = _binary("logical_and"), _reflected("logical_and")
    __or__, __ror__ = _binary("logical_or"), _reflected("logical_or")
    __xor__, __rxor__ = _binary("logical_xor"), _reflected("logical_xor")
    __neg__, __abs__ = _unary("negative"), _unary("absolute")
    __invert__ = _unary("logical_not")

    def __pos__(self) -> Any:
        return call_function("convert_to_tensor", self)

    def __round__(self, ndigits: int | None = None) -> Any:
        return call_function("round", self, ndigits or 0)

    __getitem__ = _binary("getitem")


_BY_DIM = frozenset({
    "sum", "mean", "prod", "argmax", "argmin", "any", "all", "squeeze", "cumsum",
})  # fmt: skip


def by_axis(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a method in NumPy's names; PyTorch's are accepted.

    Its other methods with a `dim` do not return what NumPy's return.
    """
    if "dim" not in options and "keepdim" not in options:
        return options
    if name not in _BY_DIM:
        raise TypeError(
            f"Tensor.{name}(dim=) of PyTorch is not supported; use "
            f"`keras.ops.{name}(x, axis=)`."
        )
    names = {"dim": "axis", "keepdim": "keepdims"}
    return {names.get(key, key): value for key, value in options.items()}


def _method(name: str, function: str | None = None) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        options = {k: v for k, v in kwargs.items() if v is not None}  # as of `np.sum`
        options = by_axis(name, options)
        return _functions[function or name](self, *args, **options)

    method.__name__, method.__doc__ = name, f"NumPy's `{name}`."
    return method


class ArrayMethods:
    """Mixin: the methods of NumPy's arrays, which scripts for JAX and PyTorch use."""

    __slots__ = ()

    sum, mean, max, min = map(_method, ("sum", "mean", "max", "min"))
    prod, cumsum, std, var = map(_method, ("prod", "cumsum", "std", "var"))
    argmax, argmin, squeeze = map(_method, ("argmax", "argmin", "squeeze"))
    argsort, any, all = map(_method, ("argsort", "any", "all"))
    dot, repeat, swapaxes = map(_method, ("dot", "repeat", "swapaxes"))
    flatten, ravel = _method("flatten", "ravel"), _method("ravel")
    astype, clip, round = _method("astype", "cast"), _method("clip"), _method("round")

    def reshape(self, *shape: Any) -> Any:
        """Give the same elements another shape; one size may be -1."""
        return call_function("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """Put the axes into another order, by default the reverse."""
        order = axes[0] if len(axes) == 1 else axes or None
        return call_function("transpose", self, order)

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """The transpose."""
        return self.transpose()

    @property
    def at(self) -> Any:
        """Elements to change, as in JAX, once a script has imported it."""
        return updates_of(self)


def updates_of(array: Any) -> Any:
    """Return `array.at`, which only JAX's arrays have."""
    if "at" not in _functions:
        raise AttributeError(f"{type(array).__name__!r} object has no attribute 'at'")
    return _functions["at"](array)


# ---- values and nodes ----------------------------------------------------------------


@record(eq=False, guarded=True)
class Op:
    """A primitive: everything there is to know about it, in a single record.

    ``infer`` maps input values and attributes to (shape, dtype) and raises for
    arguments that do not fit; ``meaning`` computes it in NumPy; ``gradient`` takes the
    node and the gradient of its result and returns a gradient for each input (None: no
    gradient flows); ``domain`` draws a test case (arrays, attributes).
    """

    name: str
    kind: str
    infer: Callable[..., tuple[Shape, np.dtype]]
    meaning: Callable[..., np.ndarray]
    domain: Callable[[np.random.Generator], Case] | None = None
    gradient: Callable[[Node, Value], Sequence[Value | None]] | None = None

    def __call__(self, *inputs: Value, **attrs: Any) -> Node:
        """Return a node: check the inputs, infer the result's shape and type."""
        try:
            shape, dtype = self.infer(*inputs, **attrs)
        except ShapeError as error:
            sizes = frozenset(size for value in inputs for size in value.shape)
            message = _with_origin(f"{self.name}: {error}")
            raise ShapeError(message, sizes=sizes) from None
        return Node(self, inputs, attrs, shape, dtype)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class UnknownNumbersError(TypeError):
    """Python code needs the numbers of a traced value, which has none yet."""


class ShapeError(ValueError):
    """Shapes or types do not fit; the message names the layer and the line.

    `sizes` are those of the axes that met, where they are known.
    """

    def __init__(self, *args: Any, sizes: frozenset[int] = frozenset()) -> None:
        super().__init__(*args)
        self.sizes = sizes


_set = object.__setattr__  # sets attributes of values, which are immutable afterwards


@lru_cache(maxsize=4096)
def _sizes(shape: tuple[Any, ...]) -> Sizes:
    """Return a shape of Python integers; equal shapes share an object."""
    return Sizes(map(int, shape))


class Value(ArrayMethods, Operators):
    """A typed array of exact shape: an input, a constant or the result of a node."""

    __slots__ = ("__weakref__", "_keras_mask", "dtype", "shape")

    shape: Shape
    dtype: np.dtype
    _keras_mask: Any  # see `tensors.get_keras_mask`; set if there is a mask

    __and__, __rand__ = _of_bits("and"), _of_bits("and")
    __or__, __ror__ = _of_bits("or"), _of_bits("or")
    __xor__, __rxor__ = _of_bits("xor"), _of_bits("xor")
    __invert__ = _of_bits("not")

    def __init__(self, shape: Iterable[int], dtype: Any) -> None:
        _set(self, "shape", shape if type(shape) is Sizes else _sizes(tuple(shape)))
        _set(self, "dtype", dtype if isinstance(dtype, np.dtype) else np.dtype(dtype))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def type_text(self) -> str:
        """The type as printed in a graph, for example ``float32[128,10]``."""
        if self.dtype == RECORD:
            return "record"
        return f"{dtype_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_keras_mask" and hasattr(self, name):
            raise AttributeError(f"{self!r} cannot change its {name}: make a new one")
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def backward(self) -> None:
        """Compute the gradients of all trainable variables, as in PyTorch."""
        call_function("backward", self)

    @property
    def grad(self) -> Any:
        """The gradient that `backward` found for the variable that this value is."""
        return call_function("grad", self)

    @property
    def numpy(self) -> Any:
        """A function that returns the numbers, if they are known."""
        array = call_function("numbers", self)
        if array is None:
            raise AttributeError(
                "A traced value has no numbers, and so no `numpy()`, while a step or a "
                "function is compiled: compute with `ganglion.ops`, or look at numbers "
                "with `compile(..., run_eagerly=True)`."
            )
        return array.numpy

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._numbers("an array"), dtype=dtype)

    def __float__(self) -> float:
        return float(self._numbers("a float"))

    def __int__(self) -> int:
        return int(self._numbers("an int"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"{self.type_text} is not an integer: cast it to int32.")
        return int(self._numbers("an index"))

    def _numbers(self, kind: str) -> Any:
        array = call_function("numbers", self)
        if array is None:
            raise UnknownNumbersError(
                f"A traced value cannot be turned into {kind} while a step or a "
                "function is compiled, as it has no numbers yet: use `ganglion.ops` in "
                "place of NumPy, or look at numbers with `compile(..., "
                "run_eagerly=True)`."
            )
        return array

    def __bool__(self) -> bool:
        array = call_function("numbers", self)
        if array is None:
            raise UnknownNumbersError(
                "A traced value has no truth value while the model is compiled: use "
                "ops.where(condition, a, b) instead of `if`."
            )
        return bool(array)

    def __str__(self) -> str:
        array = call_function("numbers", self)
        return repr(self) if array is None else str(array)

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.type_text}>"


class Input(Value):
    """A named argument of the graph: data or state."""

    __slots__ = ("name",)

    name: str

    def __init__(self, name: str, shape: Iterable[int], dtype: Any) -> None:
        super().__init__(shape, dtype)
        _set(self, "name", name)


class Leaf(Input):
    """An input whose numbers are there: what gradients outside of a trace end in."""

    __slots__ = ("array",)

    array: np.ndarray

    def __init__(self, name: str, array: np.ndarray) -> None:
        super().__init__(name, array.shape, array.dtype)
        _set(self, "array", array)


class Constant(Value):
    """An array that is known when the graph is built."""

    __slots__ = ("array",)

    array: np.ndarray

    def __init__(self, array: Any, dtype: Any = None) -> None:
        copy = np.array(array, dtype=dtype)
        copy.setflags(write=False)
        _set(self, "array", copy)
        super().__init__(copy.shape, copy.dtype)


next_number = itertools.count().__next__  # of a node
_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


class _OpenNode(Value):
    """A mutable node under construction.

    Setting the attributes of an immutable one would take three times as long, and there
    are thousands of nodes.
    """

    __slots__ = ("attrs", "inputs", "number", "op", "origin")
    __setattr__ = object.__setattr__  # type: ignore[assignment]

    op: Op
    number: int
    inputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    origin: Origin


class Node(_OpenNode):
    """An op applied to values; nodes are numbered in order of creation."""

    __slots__ = ()
    __setattr__ = Value.__setattr__
    __init__ = object.__init__  # `__new__` has set all attributes

    def __new__(
        cls,
        op: Op,
        inputs: Sequence[Value],
        attrs: Mapping[str, Any],
        shape: Shape,
        dtype: np.dtype,
        origin: Origin | None = None,
    ) -> Node:
        """Return a node with these attributes, which are not checked."""
        node: Any = object.__new__(_OpenNode)
        node.shape = shape if type(shape) is Sizes else _sizes(tuple(shape))
        node.dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        node.op = op
        node.number = next_number()
        node.inputs = tuple(inputs)
        if not attrs:
            attrs = _NO_ATTRS
        elif type(attrs) is not MappingProxyType:  # else they are another node's
            attrs = MappingProxyType(dict(attrs))
        node.attrs = attrs
        node.origin = origins.here() if origin is None else origin
        node.__class__ = cls  # immutable from now on
        return node

    def with_inputs(self, inputs: tuple[Value, ...]) -> Node:
        """Return the node with other inputs, which are not checked."""
        node: Any = object.__new__(_OpenNode)
        node.shape, node.dtype, node.op = self.shape, self.dtype, self.op
        node.number, node.inputs = next_number(), inputs
        node.attrs, node.origin = self.attrs, self.origin
        node.__class__ = Node
        return node


@record(guarded=True)
class Graph:
    """Named inputs, named outputs, and the nodes between them in topological order.

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
        """Return the graph with these inputs and outputs."""
        nodes = tuple([v for v in toposort(outputs.values()) if isinstance(v, Node)])
        ends = MappingProxyType(dict(outputs))
        return Graph(name, tuple(inputs), ends, nodes)

    @kept
    def ops(self) -> frozenset[Op]:
        """The ops of its nodes."""
        return frozenset(node.op for node in self.nodes)

    @kept
    def types(self) -> frozenset[tuple[Shape, np.dtype]]:
        """The distinct shapes and types of its nodes and their inputs."""
        values = frozenset[Value](self.nodes).union(*[n.inputs for n in self.nodes])
        return frozenset([(value.shape, value.dtype) for value in values])

    @property
    def has_loops(self) -> bool:
        """Whether a node is a loop, with a graph as its body."""
        return any(op.kind == "loop" for op in self.ops)

    @kept
    def host_calls(self) -> frozenset[str]:
        """The names of the ops that run in Python, including those in loops."""
        names = frozenset(op.name for op in self.ops if op.kind == "host")
        parts = [part for node in self.nodes for part in node.attrs.values()]
        bodies = [part for part in parts if isinstance(part, Graph)]
        return names.union(*(body.host_calls for body in bodies))

    def __str__(self) -> str:
        return "\n".join(_print(self))


def has_short_floats(graph: Graph) -> bool:
    """Return whether a graph, or the body of a loop in it, has 16-bit floats."""
    if any(is_short(dtype) for _, dtype in graph.types):
        return True
    bodies = [node.attrs.get("body") for node in graph.nodes] if graph.has_loops else []
    return any(isinstance(b, Graph) and has_short_floats(b) for b in bodies)


def toposort(roots: Iterable[Value], ends: Container[Value] = ()) -> list[Value]:
    """Return roots and everything they depend on, inputs first (iterative).

    The inputs of `ends` are not visited.
    """
    order: list[Value] = []
    seen: set[Value] = set()
    above: list[tuple[Value | None, Iterator[Value]]] = []  # with unvisited inputs
    node, inputs = None, iter(roots)
    while True:
        for value in inputs:
            if value in seen:
                continue
            seen.add(value)
            if isinstance(value, Node) and value not in ends:
                above.append((node, inputs))
                node, inputs = value, iter(value.inputs)
                break
            order.append(value)
        else:  # all inputs are in the list by now
            if node is None:
                return order
            order.append(node)
            node, inputs = above.pop()


def evaluate(
    values: list[Value], known: Mapping[Value, np.ndarray] | None = None
) -> list[np.ndarray]:
    """Compute values from constants and ``known`` inputs."""
    known = known or {}
    new = arrays_behind(values, known)
    return [known[value] if value in known else new[value] for value in values]


def is_constant(value: Value) -> bool:
    """Return whether a value depends on constants only."""
    return all(isinstance(part, (Constant, Node)) for part in toposort([value]))


def arrays_behind(
    values: Iterable[Value], known: Mapping[Value, np.ndarray]
) -> dict[Value, np.ndarray]:
    """Return the arrays of values and of all their dependencies, except ``known``."""
    new: dict[Value, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for value in toposort(values, ends=known):
            if value in known:
                continue
            if isinstance(value, (Constant, Leaf)):
                new[value] = value.array
            elif isinstance(value, Node):
                arrays = [known[x] if x in known else new[x] for x in value.inputs]
                new[value] = computed(value, arrays)
            else:
                raise ValueError(f"{value!r} has no value outside of its trace")
    return new


def computed(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the result of a node for some arrays, by its NumPy meaning."""
    op = node.op
    if op.name in MOVING or op.kind in ("movement", "loop"):
        return np.asarray(op.meaning(*arrays, **node.attrs))
    wide = [x.astype(FLOAT32) if is_short(x.dtype) else x for x in arrays]
    result = np.asarray(op.meaning(*wide, **node.attrs))
    return result.astype(node.dtype) if is_short(node.dtype) else result


def rebuild(node: Node, inputs: tuple[Value, ...]) -> Node:
    """Return a node with other inputs."""
    old = node.inputs
    is_same = len(inputs) == len(old) and all(map(operator.is_, inputs, old))
    return node if is_same else node.with_inputs(inputs)


def rewritten(
    graph: Graph, rule: Callable[[Node, Node], Value], ops: Container[Op] | None = None
) -> Graph:
    """Return a graph with every node, of some `ops`, replaced by the result of a rule.

    The rule is given a node, and the same node with its inputs rewritten.
    """
    new: dict[Value, Value] = {}  # replacements of nodes
    is_unchanged = new.keys().isdisjoint
    for node in graph.nodes:
        replacement: Value = node
        if not is_unchanged(node.inputs):
            inputs = [new.get(source, source) for source in node.inputs]
            replacement = node.with_inputs(tuple(inputs))
        if ops is None or node.op in ops:
            assert isinstance(replacement, Node)
            replacement = rule(node, replacement)
        if replacement is not node:
            new[node] = replacement
    if not new:
        return graph
    outputs = {name: new.get(value, value) for name, value in graph.outputs.items()}
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


# ---- unbounded recursion -------------------------------------------------------------
# Graphs and expressions may be deeper than Python's stack: recursive functions are
# generators, which yield their recursive calls to a trampoline.

# Yields calls, is sent their results, and returns its own.
Deep = Generator["Deep[Any]", Any, T]


def finished(start: Deep[T]) -> T:
    """Return the result of a generator that yields its recursive calls.

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


# ---- the verifier --------------------------------------------------------------------


class GraphError(Exception):
    """A graph is malformed: a bug in Ganglion, not in the model."""


def verify(graph: Graph) -> Graph:
    """Return the graph if it is well-formed, else raise `GraphError`."""
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
    def refused(reason: str) -> GraphError:
        return GraphError(f"{graph.name} %{number} {node.op.name}: {reason}")

    for value in node.inputs:
        if value in known or isinstance(value, Constant):
            continue
        if isinstance(value, Input):
            raise refused(f"uses the undeclared input {value.name}")
        raise refused("uses a value before it is computed")
    for body in node.attrs.values():
        if isinstance(body, Graph):
            verify(body)
    try:
        inferred = node.op.infer(*node.inputs, **node.attrs)
    except ShapeError as error:
        raise refused(str(error)) from error
    if inferred != (node.shape, node.dtype):
        raise refused(f"is {node.type_text}, inferred {inferred}")


# ---- programs ------------------------------------------------------------------------

_PLAIN = (bool, int, float, str, tuple, np.dtype, np.generic, type(None))


@record(guarded=True)
class Program:
    """A step as a graph, and the roles of its inputs and outputs.

    Data inputs are the same for many steps. The new value of a state input is the
    output of the same name; without such an output, it is only read. Results are
    outputs that are collected step by step.
    """

    graph: Graph
    data: tuple[str, ...]
    state: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def may_have_structure(self) -> bool:
        """Whether no op rules out a structure; an attribute still may."""
        kinds = {op.kind for op in self.graph.ops}
        return kinds.isdisjoint(("loop", "item", "host"))

    @kept
    def structure(self) -> Hashable | None:
        """A key that programs share which differ only in the names of their states.

        None for programs with loops, whose bodies are graphs, or with host calls, whose
        functions are compared by identity.

        >>> from ganglion.compiler.ir.pointwise import add
        >>> def doubled(name):
        ...     x = Input(name, (2,), "float32")
        ...     graph = Graph.of("step", [x], {name: add(x, x)})
        ...     return Program(graph, (), (name,), ()).structure
        >>> doubled("dense/kernel") == doubled("dense_1/kernel")
        True
        """
        graph = self.graph
        if not self.may_have_structure:
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
    """Return the attributes of a node as text, None if any is not plain data."""
    if not node.attrs:
        return ""
    if not all(isinstance(value, _PLAIN) for value in node.attrs.values()):
        return None
    return repr(sorted(node.attrs.items()))


class FixedArrays(dict[str, np.ndarray]):
    """A mapping of contiguous state arrays that never changes.

    A backend need not inspect the arrays of a mapping that it was given before, which
    would take longer than a small step.
    """

    __slots__ = ("__weakref__",)


def fixed(arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return `FixedArrays` if all arrays are contiguous, else the mapping itself.

    >>> type(fixed({"w": np.zeros((2, 3))})).__name__
    'FixedArrays'
    >>> type(fixed({"w": np.zeros((2, 3)).T})).__name__
    'dict'
    """
    is_plain = all(array.flags.c_contiguous for array in arrays.values())
    return FixedArrays(arrays) if is_plain else arrays
