"""The gradient of a loop over time: a loop in reverse.

The backward loop needs values of the forward loop. Cheap values are recomputed from
others; the rest are saved, a slice per step, as further outputs of the forward loop
(`simplify` merges the extended loop with the original).

The gradient of a loop invariant is a sum over all steps. If each step contributes a
product, as it does to weights, the factors of all steps are saved and multiplied once
behind the loop, instead of accumulating small products within it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ganglion.compiler.ir.contraction import flipped, matmul
from ganglion.compiler.ir.graph import Graph, Input, Node, Value, toposort
from ganglion.compiler.ir.pointwise import add
from ganglion.compiler.ir.scan import (
    carry_name,
    field,
    instantiated,
    make_scan,
    scan,
)
from ganglion.compiler.ir.shaping import fill, is_float, reshape, splat, sum_, transpose

Backpropagate = Callable[..., dict[Value, Value]]
# Pointwise ops that cost more than loading their result.
_EXPENSIVE = frozenset(
    ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh", "sigmoid", "erf")
) | {"power", "divide", "erfc", "arcsin", "arccos", "arctan", "arctan2", "cbrt"}
_MOVEMENT = ("broadcast", "reshape", "transpose", "slice")


def scan_gradients(
    node: Node, grads: Mapping[str, Value], backpropagate: Backpropagate
) -> list[Value | None]:
    """Return the gradients of a scan's inputs, given those of its fields."""
    return _Reverse(node, grads, backpropagate).gradients()


class _Reverse:
    """The backward loop under construction."""

    def __init__(
        self, node: Node, grads: Mapping[str, Value], backpropagate: Backpropagate
    ) -> None:
        self.node, self.grads = node, grads
        self.body: Graph = node.attrs["body"]
        self.carries, stacked = node.attrs["carries"], node.attrs["stacked"]
        self.length = node.attrs["length"]
        self.state = self.body.inputs[: self.carries]
        self.slices = self.body.inputs[self.carries : self.carries + stacked]
        self.constants = self.body.inputs[self.carries + stacked :]
        self.flowing = [i for i, c in enumerate(self.state) if is_float(c.dtype)]
        self._step_back(backpropagate)
        self._saved = _SavedValues(self)

    def _step_back(self, backpropagate: Backpropagate) -> None:
        """Differentiate a step: from its outputs to its inputs."""
        outputs = self.body.outputs
        self.carry_grads = [
            Input(f"g{i}", self.state[i].shape, self.state[i].dtype)
            for i in self.flowing
        ]
        names = [carry_name(i) for i in self.flowing]
        self.stacked_names = [
            name for name in self.grads if name in outputs and name not in names
        ]
        self.slice_grads = [
            Input(f"gy{i}", outputs[name].shape, outputs[name].dtype)
            for i, name in enumerate(self.stacked_names)
        ]
        seeds: dict[Value, Value] = {}
        pairs = zip(
            [*names, *self.stacked_names],
            [*self.carry_grads, *self.slice_grads],
            strict=True,
        )
        for name, grad in pairs:
            value = outputs[name]
            seeds[value] = add(seeds[value], grad) if value in seeds else grad
        self.step_grads = backpropagate(seeds, self.body.inputs)

    def gradients(self) -> list[Value | None]:
        """Return the gradients of the loop's inputs."""
        slices = [x for x in self.slices if x in self.step_grads]
        constants = [k for k in self.constants if k in self.step_grads]
        roots = [*(self.step_grads[x] for x in (*slices, *constants))]
        roots += [self._carry_grad(i) for i in self.flowing]
        saved = self._saved.needed_by(roots)
        stacked = [self.grads[name] for name in self.stacked_names]
        stacked += [self._saved.all_steps(value) for value in saved]
        sums = _Sums(self.length, [self.step_grads[k] for k in constants])

        def step(
            carried: Sequence[Value], received: Sequence[Value]
        ) -> tuple[list[Value], list[Value]]:
            replacements = self._outside()
            count = len(self.flowing)
            replacements |= zip(self.carry_grads, carried[:count], strict=True)
            grads = len(self.slice_grads)
            replacements |= zip(self.slice_grads, received[:grads], strict=True)
            replacements |= zip(saved, received[grads:], strict=True)
            values = instantiated(roots, replacements)
            first = len(slices)
            sums.slices = dict(zip(received, stacked, strict=True))
            sums.split(values[first : first + len(constants)], carried[count:])
            new = [*values[first + len(constants) :], *sums.totals]
            return new, [*values[:first], *sums.factors]

        carries = [self._last_grad(i) for i in self.flowing]
        carries += [fill(0, value) for value in sums.accumulated]
        reverse = not self.node.attrs["reverse"]
        last, results = make_scan(step, carries, stacked, self.length, reverse)
        by_input: dict[Value, Value] = dict(
            zip((self.state[i] for i in self.flowing), last, strict=False)
        )
        by_input |= zip(slices, results, strict=False)
        totals = sums.finish(last[len(self.flowing) :], results[len(slices) :])
        by_input |= zip(constants, totals, strict=True)
        return [by_input.get(value) for value in self.body.inputs]

    def _outside(self) -> dict[Value, Value]:
        """Return the values outside of the loop for the invariants of the body."""
        inputs = self.node.inputs[len(self.body.inputs) - len(self.constants) :]
        return dict(zip(self.constants, inputs, strict=True))

    def _carry_grad(self, number: int) -> Value:
        carry = self.state[number]
        grad = self.step_grads.get(carry)
        return fill(0, carry) if grad is None else grad

    def _last_grad(self, number: int) -> Value:
        grad = self.grads.get(carry_name(number))
        return fill(0, self.state[number]) if grad is None else grad


class _SavedValues:
    """The values of the forward loop that the backward loop reads."""

    def __init__(self, back: _Reverse) -> None:
        self._back = back
        self._order = toposort(back.body.outputs.values())
        self._forward = set(self._order) | set(back.body.inputs)
        self._constants = set(back.constants)
        self._saved: dict[str, Value] = {}
        self._stack: dict[Value, Value] = {}

    def needed_by(self, roots: Sequence[Value]) -> list[Value]:
        """Return the saved values from which others can be recomputed."""
        self._find_cheap()
        needed: dict[Value, None] = {}
        pending = list(reversed(toposort(roots, ends=self._forward)))
        seen = set()
        while pending:
            value = pending.pop()
            if value in seen or value not in self._forward:
                continue
            seen.add(value)
            if value in self._recomputed and isinstance(value, Node):
                pending.extend(value.inputs)
            elif self._is_read_back(value):
                needed[value] = None
        return self._located(list(needed))

    def _is_read_back(self, value: Value) -> bool:
        if isinstance(value, Input):
            return value not in self._constants
        return isinstance(value, Node) and splat(value) is None

    def _find_cheap(self) -> None:
        """Find values to recompute: loading them would take as many bytes or more."""
        self._recomputed: set[Value] = set()
        bytes_of: dict[Value, int] = {}
        for value in self._order:
            nbytes = value.size * value.dtype.itemsize
            bytes_of[value] = nbytes if self._is_read_back(value) else 0
            if not isinstance(value, Node):
                continue
            op = value.op
            cheap = op.kind == "pointwise" and op.name not in _EXPENSIVE
            if splat(value) is not None or cheap or op.name in _MOVEMENT:
                inputs = sum(bytes_of[x] for x in set(value.inputs))
                if inputs <= nbytes:
                    bytes_of[value] = inputs
                    self._recomputed.add(value)

    def _located(self, needed: list[Value]) -> list[Value]:
        """Find each value among the arrays of the loop, or save it as an output."""
        back, node = self._back, self._back.node
        stacked = node.inputs[back.carries : back.carries + len(back.slices)]
        self._stack = dict(zip(back.slices, stacked, strict=True))
        numbers = {value: number for number, value in enumerate(self._order)}
        outputs = dict(back.body.outputs)
        names: dict[Value, str] = {
            value: name for name, value in list(outputs.items())[back.carries :]
        }
        for value in needed:
            if value not in self._stack and value not in names:
                names[value] = f"kept{numbers.get(value, value_name(value))}"
                outputs[names[value]] = value
        body = Graph.of(back.body.name, back.body.inputs, outputs)
        forward = scan(*node.inputs, **{**node.attrs, "body": body})
        for value in needed:
            if value not in self._stack:
                self._stack[value] = field(forward, name=names[value])
        return needed

    def all_steps(self, value: Value) -> Value:
        """Return the array of a value for all steps."""
        return self._stack[value]


def value_name(value: Value) -> str:
    """Return the name of an input of the body, "" for other values."""
    return value.name if isinstance(value, Input) else ""


class _Sums:
    """The gradients of invariants: sums over all steps, behind the loop if possible."""

    def __init__(self, length: int, values: Sequence[Value]) -> None:
        self.length = length
        self.slices: dict[Value, Value] = {}  # of the loop, with arrays of all steps
        self.factors: list[Value] = []  # saved by the backward loop
        self.totals: list[Value] = []  # accumulated by it
        self._is_deferred = [_is_sum(value) for value in values]
        self.accumulated = [value for value in values if not _is_sum(value)]
        self._plans: list[Callable[[], Value]] = []

    def split(self, values: Sequence[Value], totals: Sequence[Value]) -> None:
        """Plan how each value of a step is summed, given the totals so far."""
        running = iter(totals)
        for value, is_deferred in zip(values, self._is_deferred, strict=True):
            if is_deferred:
                self._plans.append(self._deferred(value))
            else:
                number = len(self.totals)
                self.totals.append(add(next(running), value))
                self._plans.append(partial(self._total, number))

    def _total(self, number: int) -> Value:
        return self._added[number]

    def _all_steps(self, value: Value) -> Value:
        return self._every[value]

    def finish(self, totals: Sequence[Value], factors: Sequence[Value]) -> list[Value]:
        """Return the sums over all steps."""
        self._added = totals
        self._every = dict(zip(self.factors, factors, strict=True)) | self.slices
        return [plan() for plan in self._plans]

    def _deferred(self, value: Value) -> Callable[[], Value]:
        if not isinstance(value, Node):  # a slice
            (slices,) = self._stacked((value,))
            return lambda: sum_(slices(), axes=(0,))
        name, inputs = value.op.name, value.inputs
        if name == "matmul":
            return self._product(value)
        if name == "sum":
            (every,) = self._stacked(inputs)
            axes = (0, *(axis + 1 for axis in value.attrs["axes"]))
            return lambda: sum_(every(), axes=axes)
        if name == "conv_kernel":
            images, slopes = self._stacked(inputs)
            return lambda: value.op(_merged(images()), _merged(slopes()), **value.attrs)
        if name == "scatter_add":
            updates, index = self._stacked(inputs)
            return lambda: value.op(updates(), index(), **value.attrs)
        parts = [self._deferred(x) for x in inputs]  # linear ops commute with the sum
        return lambda: value.op(*(part() for part in parts), **value.attrs)

    def _product(self, value: Node) -> Callable[[], Value]:
        left, right = value.inputs
        if isinstance(left, Node) and left.op is transpose:
            rows, columns = self._stacked((left.inputs[0], right))
            return lambda: matmul(flipped(_merged(rows())), _merged(columns()))
        rows, columns = self._stacked((left, right))

        def product() -> Value:
            every = transpose(rows(), axes=(1, 0, 2))
            flat = (left.shape[0], self.length * left.shape[1])
            return matmul(reshape(every, shape=flat), _merged(columns()))

        return product

    def _stacked(self, values: Sequence[Value]) -> list[Callable[[], Value]]:
        for value in values:
            if value not in self.slices and value not in set(self.factors):
                self.factors.append(value)
        return [partial(self._all_steps, value) for value in values]


def _merged(stacked: Value) -> Value:
    """Return the rows of all steps as a single array of rows."""
    count, rows, *rest = stacked.shape
    return reshape(stacked, shape=(count * rows, *rest))


def _is_sum(value: Value) -> bool:
    """Return whether the sum of a value over all steps can be computed afterwards."""
    if not isinstance(value, Node):
        return False
    if value.op.name in ("add", "negative", "reshape", "transpose", "broadcast"):
        return all(_is_sum(x) for x in value.inputs)
    if value.op.name == "matmul":
        return value.ndim == 2
    return value.op.name in ("sum", "conv_kernel", "scatter_add")
