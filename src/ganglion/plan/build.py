"""All passes from a step graph to a plan, in order, in one function."""

from __future__ import annotations

from ganglion.ir.graph import Node, Value
from ganglion.ir.program import Program
from ganglion.plan.check import verify
from ganglion.plan.collapse import collapse
from ganglion.plan.fuse import fuse
from ganglion.plan.kernel import Buffer, Kernel, Load, Loop, Plan, View, walk
from ganglion.plan.lower import Lowering, identity
from ganglion.plan.memory import place
from ganglion.plan.schedule import schedule
from ganglion.plan.structured import is_structured, lower_node


def build(program: Program) -> Plan:
    """Return the plan of a program: lowered, with short loops, in one arena, checked."""
    low = Lowering(program.graph, set(program.data), set(program.results))
    _lower_all(low)
    results = _results(low, program.results)
    _write_state(low, program)
    kernels = fuse([collapse(one) for one in low.kernels], low.aliases)
    inputs = {one.name: low.buffers[one] for one in program.graph.inputs}
    plan = Plan(
        program.graph.name,
        tuple(kernels),
        {name: inputs[name] for name in program.data},
        {name: inputs[name] for name in program.state},
        results,
    )
    plan = schedule(place(plan, low.aliases), low.aliases)
    return verify(plan, low.aliases)


def _lower_all(low: Lowering) -> None:
    for node in low.graph.nodes:
        if is_structured(node):
            lower_node(low, node)


def _results(low: Lowering, names: tuple[str, ...]) -> dict[str, Buffer]:
    made = {}
    for name in names:
        value = low.graph.outputs[name]
        buffer = Buffer(name, value.shape, value.dtype, "result")
        expr = low.at(value, identity(value.shape))
        low.emit(Loop("result", value.shape, expr, View.whole(buffer)))
        made[name] = buffer
    return made


def _write_state(low: Lowering, program: Program) -> None:
    """Write new states in place where nobody needs the old one any more."""
    inputs = {one.name: one for one in low.graph.inputs}
    writers: list[Loop] = []
    for name in program.state:
        if name in low.graph.outputs:
            value = low.graph.outputs[name]
            writers.append(_writer(low, value, low.buffers[inputs[name]]))
    copies: list[Kernel] = []
    for number, writer in enumerate(writers):
        state = writer.target.buffer
        others = writers[:number] + writers[number + 1 :]
        if _needed_elsewhere(low, writer, others):
            held = low.new(state.shape, state.dtype, "next")
            low.emit(Loop(writer.name, writer.shape, writer.expr, View.whole(held)))
            load = Load(state.dtype, View.whole(held))
            copies.append(Loop("copy", state.shape, load, View.whole(state)))
        else:
            low.emit(writer)
    low.kernels.extend(copies)


def _writer(low: Lowering, value: Value, state: Buffer) -> Loop:
    expr = low.at(value, identity(value.shape), force=isinstance(value, Node))
    return Loop("update", value.shape, expr, View.whole(state))


def _needed_elsewhere(low: Lowering, writer: Loop, others: list[Loop]) -> bool:
    """Tell whether the old state is read by another writer, or out of place."""

    def root(buffer: Buffer) -> Buffer:
        return low.aliases.get(buffer, buffer)

    state = writer.target.buffer
    for one in walk(writer.expr):
        if isinstance(one, Load) and root(one.view.buffer) is state:
            in_place = one.view.strides == writer.target.strides
            if not in_place or one.view.offset:
                return True
    return any(root(b) is state for other in others for b in other.reads())
