"""Lowering of loops over time: the body sees a window of each array of all steps.

If all steps of a carry are read, it has a slot for every step and for its initial
value, so that nothing is copied. Otherwise it alternates between two slots.
"""

from __future__ import annotations

from dataclasses import replace

from ganglion.compiler.ir.arrays import slice_
from ganglion.compiler.ir.graph import Graph, Input, Node, Value
from ganglion.compiler.ir.scan import carry_name
from ganglion.compiler.ir.shaping import reshape
from ganglion.compiler.plan.kernels import Buffer, Loop, View, row_major
from ganglion.compiler.plan.lowering import (
    Lowering,
    identity,
    never_packed,
    never_summed,
)
from ganglion.compiler.plan.time_loop import TimeLoop, Window


def lower_scan(low: Lowering, node: Node) -> None:
    """Emit a loop over time, with its body lowered for a single thread."""
    _LoweredScan(low, node).lower()


class _LoweredScan:
    """A loop under construction."""

    def __init__(self, low: Lowering, node: Node) -> None:
        self.low, self.node = low, node
        self.body: Graph = node.attrs["body"]
        self.carries, self.length = node.attrs["carries"], node.attrs["length"]
        self.reverse: bool = node.attrs["reverse"]
        one_thread = replace(
            low.target,
            thread_splits=1,
            winograd=False,
            scratch_for=never_packed,
            sums_along_rows=never_summed,
            rounds_products=False,
        )
        self.inner = Lowering(self.body, set(), one_thread, low.rules)
        self.windows: list[Window] = []
        self.results: dict[str, Value] = {}  # of each field
        outputs = list(self.body.outputs.items())
        self.stacked = dict(outputs[self.carries :])
        # Carries of which all steps are read, before or after a step.
        self.kept = {value: name for name, value in self.stacked.items()}

    def lower(self) -> None:
        """Emit the loop, and bind its fields."""
        self._open_inputs()
        for number in range(self.carries):
            self._open_carry(number)
        for name, value in self.stacked.items():
            if name not in self.results:
                self._open_output(name, value)
        inner = self.inner
        inner.count = self.low.count
        inner.lower_nodes()
        for value, buffer in list(inner.destinations.items()):
            inner.buffers.get(value) or inner.store(value)
            assert inner.buffers[value] is buffer
        for value, buffer in self._copied:
            expr = inner.at(value, identity(value.shape))
            inner.emit(Loop.of("copy", value.shape, expr, View.of(buffer)))
        self.low.count = inner.count
        loop = TimeLoop("scan", self.length, tuple(inner.kernels), tuple(self.windows))
        self.low.emit(loop)
        for field in self.low.graph.nodes:
            if field.op.name == "field" and field.inputs[0] is self.node:
                self._name(field, self.results[field.attrs["name"]])

    def _name(self, field: Node, value: Value) -> None:
        """Bind a field to a buffer, or to some slots of a buffer."""
        if isinstance(value, Input):
            self.low.buffers[field] = self.low.buffers[value]
        else:
            self.low.fields[field] = value

    def _open_inputs(self) -> None:
        """Bind the body's inputs to windows, or to arrays that all steps share."""
        self._copied: list[tuple[Value, Buffer]] = []
        inputs = zip(self.body.inputs, self.node.inputs, strict=True)
        last = self.carries + self.node.attrs["stacked"]
        for number, (inner, outer) in list(enumerate(inputs))[self.carries :]:
            if number >= last:
                self.inner.buffers[inner] = self.low.store(outer)
                continue
            view = self.low.view(outer)
            if view.strides[1:] != row_major(outer.shape[1:]):
                view = View.of(self.low.store(outer))
            self._see(inner, view.buffer, view.offset, view.strides[0])

    def _see(self, value: Value, stacked: Buffer, offset: int, stride: int) -> Buffer:
        """Bind a value of the body to a slice of an array at each step."""
        if self.reverse:
            offset, stride = offset + stride * (self.length - 1), -stride
        return self._window(value, stacked, offset, stride)

    def _window(
        self, value: Value, stacked: Buffer, offset: int, stride: int, slots: int = 0
    ) -> Buffer:
        name = value.name if isinstance(value, Input) else "y"
        buffer = self.low.new(value.shape, value.dtype, name)
        buffer = replace(buffer, kind="window")
        self.windows.append(Window(buffer, stacked.root, offset, stride, slots))
        if isinstance(value, Input):
            self.inner.buffers[value] = buffer
        return buffer

    def _open_carry(self, number: int) -> None:
        """Allocate the slots of a carry, and store its initial value in the first."""
        old, name = self.body.inputs[number], carry_name(number)
        new, size = self.body.outputs[name], old.size
        all_steps = old in self.kept or new in self.kept
        slots = self.length + 1 if all_steps else 2
        ring = self.low.new((slots, *old.shape), old.dtype, "carry")
        first = self.length if all_steps and self.reverse else 0
        start = View(ring, row_major(old.shape), first * size)
        begin = self.low.at(self.node.inputs[number], identity(old.shape))
        self.low.emit(Loop.of("copy", old.shape, begin, start))
        if all_steps:
            step = -size if self.reverse else size
            self._window(old, ring, first * size, step)
            target = self._window(new, ring, first * size + step, step)
        else:
            self._window(old, ring, 0, size, slots)
            target = self._window(new, ring, size, -size, slots)
        self._send(new, target)
        value = Input(ring.name, ring.shape, ring.dtype)
        self.low.buffers[value] = ring
        behind = 0 if self.reverse else 1  # the first slot of a step's new values
        end = (0 if self.reverse else self.length) if all_steps else self.length % 2
        self.results[name] = reshape(_slots(value, end, 1), shape=old.shape)
        if old in self.kept:
            self.results[self.kept[old]] = _slots(value, 1 - behind, self.length)
        if new in self.kept:
            self.results[self.kept[new]] = _slots(value, behind, self.length)

    def _send(self, value: Value, target: Buffer) -> None:
        """Store a value in a window: directly, or by a copy at the end."""
        computed = isinstance(value, Node) and value.op.name not in ("reshape", "field")
        if computed and value not in self.inner.destinations:
            self.inner.destinations[value] = target
        else:
            self._copied.append((value, target))

    def _open_output(self, name: str, value: Value) -> None:
        stacked = self.low.new((self.length, *value.shape), value.dtype, name)
        output = Input(stacked.name, stacked.shape, stacked.dtype)
        self.low.buffers[output] = stacked
        self.results[name] = output
        window = replace(self.low.new(value.shape, value.dtype, "y"), kind="window")
        offset, stride = 0, value.size
        if self.reverse:
            offset, stride = stride * (self.length - 1), -stride
        self.windows.append(Window(window, stacked, offset, stride))
        self._send(value, window)


def _slots(ring: Value, first: int, count: int) -> Value:
    starts = (first, *(0,) * (ring.ndim - 1))
    stops = (first + count, *ring.shape[1:])
    return slice_(ring, starts=starts, stops=stops, steps=(1,) * ring.ndim)
