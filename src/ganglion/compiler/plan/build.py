"""All passes from a step graph to a plan, in order, in one function."""

from __future__ import annotations

from ganglion import config
from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.ir.program import Program
from ganglion.compiler.plan.barriers import schedule
from ganglion.compiler.plan.cache_blocking import arrange, passing
from ganglion.compiler.plan.kernels import Buffer, Kernel, Load, Loop, View, walk
from ganglion.compiler.plan.lower import Lowering, identity
from ganglion.compiler.plan.lower_structured import is_structured, lower_node
from ganglion.compiler.plan.memory import place
from ganglion.compiler.plan.passes.collapse import collapse
from ganglion.compiler.plan.passes.empty import without_empty
from ganglion.compiler.plan.passes.fuse import fuse
from ganglion.compiler.plan.passes.integer_products import as_sums
from ganglion.compiler.plan.passes.moments import one_pass
from ganglion.compiler.plan.passes.narrow import turn_narrow
from ganglion.compiler.plan.passes.pool_masks import mask_pooled
from ganglion.compiler.plan.passes.pool_readers import into_readers
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.sparsity import skip_zeros
from ganglion.compiler.plan.verify import verify


def build(program: Program, for_gpu: bool = False) -> Plan:
    """Return the plan of a program: lowered, fused, in one arena, marked, checked.

    For a GPU, convolutions stay sums over their taps and products multiply by the zeros
    of the data, as with `config.set_precise`; what pools give back is stored, and
    variances are taken in float64 rather than slice by slice.
    """
    graph = without_empty(as_sums(program.graph))
    graph = turn_narrow(one_pass(graph, in_float64=for_gpu))
    shortcuts = not for_gpu and not config.precise()
    if not for_gpu:
        graph = mask_pooled(graph)
    low = Lowering(graph, set(program.data), shortcuts, for_gpu)
    _lower_all(low)
    results = _results(low, program.results)
    _write_state(low, program)
    lowered = low.kernels if for_gpu else into_readers(low.kernels, low.aliases)
    kernels = fuse([collapse(one) for one in lowered], low.aliases, for_gpu)
    if shortcuts:
        kernels = skip_zeros(kernels, low.aliases)
    # Bands are for the caches of a processor.
    ordered, bands = (kernels, ()) if for_gpu else arrange(kernels, low.aliases)
    inputs = {one.name: low.buffers[one] for one in graph.inputs}
    plan = Plan(
        graph.name,
        tuple(ordered),
        {name: inputs[name] for name in program.data},
        {name: inputs[name] for name in program.state},
        results,
        bands=bands,
        passing=passing(ordered, bands, low.aliases),
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
        if value.size:
            expr = low.at(value, identity(value.shape))
            low.emit(Loop("result", value.shape, expr, View.whole(buffer)))
        made[name] = buffer
    return made


def _write_state(low: Lowering, program: Program) -> None:
    """Write new states in place where nobody needs the old one any more."""
    inputs = {one.name: one for one in low.graph.inputs}
    writers: list[Loop] = []
    for name in program.state:
        value = low.graph.outputs.get(name)
        if value is not None and value.size:
            writers.append(_writer(low, value, low.buffers[inputs[name]]))
    copies: list[Kernel] = []
    readers: dict[Buffer, set[int]] = {}
    for number, writer in enumerate(writers):
        for one in writer.reads():
            readers.setdefault(low.aliases.get(one, one), set()).add(number)
    for number, writer in enumerate(writers):
        state = writer.target.buffer
        if readers.get(state, set()) - {number} or _read_out_of_place(low, writer):
            held = low.new(state.shape, state.dtype, "next")
            low.emit(Loop(writer.name, writer.shape, writer.expr, View.whole(held)))
            load = Load(state.dtype, View.whole(held))
            copies.append(Loop("copy", state.shape, load, View.whole(state)))
        else:
            low.emit(writer)
    for copy in copies:
        low.emit(copy)


def _writer(low: Lowering, value: Value, state: Buffer) -> Loop:
    expr = low.at(value, identity(value.shape), force=isinstance(value, Node))
    return Loop("update", value.shape, expr, View.whole(state))


def _read_out_of_place(low: Lowering, writer: Loop) -> bool:
    """Return whether a new state needs the old one at another place than its own."""
    state, strides = writer.target.buffer, writer.target.strides
    views = [one.view for one in walk(writer.expr) if isinstance(one, Load)]
    return any(
        low.aliases.get(view.buffer, view.buffer) is state
        and (view.strides != strides or view.offset != 0)
        for view in views
    )
