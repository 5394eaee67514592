"""A target's pipeline: a list of passes, from a program to the target's plan.

The stage after any pass can be requested by the name of the pass. Tests, `ganglion
dump` and GANGLION_VERIFY=1 run a verifier after every pass; it is slow otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from ganglion import config
from ganglion.compiler.ir import graph as ir
from ganglion.compiler.ir.graph import Graph, Node, Program
from ganglion.compiler.ir.scan import with_bodies
from ganglion.compiler.plan import plan as plans
from ganglion.compiler.plan.kernels import Kernel
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.system.records import record

K = TypeVar("K", bound=Kernel)


def _always(thing: Any) -> bool:
    return True


@record(guarded=True)
class Pass:
    """A pass of a pipeline: from a stage to the next, if it applies."""

    name: str  # as in `ganglion dump --after NAME`
    why: str
    run: Callable[[Any], Any]
    applies: Callable[[Any], bool] = _always


def graph_pass(
    name: str,
    why: str,
    run: Callable[[Graph], Graph],
    ops: Collection[str] = (),
    where: Callable[[Node], bool] = _always,
    when: Callable[[Graph], bool] = _always,
    in_loops: bool = False,
) -> Pass:
    """Return a pass over a program's graph, if that has any of some ops.

    It runs on a graph if `when` holds for it and `where` for one of its nodes; with
    `in_loops`, also on the bodies of loops.
    """

    def everywhere(graph: Graph) -> Graph:
        if in_loops and graph.has_loops:
            graph = with_bodies(graph, everywhere)
        return run(graph) if when(graph) and any(map(where, graph.nodes)) else graph

    def change(program: Program) -> Program:
        graph = everywhere(program.graph)
        return program if graph is program.graph else replace(program, graph=graph)

    def applies(program: Program) -> bool:
        names = {*ops, "scan"} if in_loops else ops
        return not ops or any(op.name in names for op in program.graph.ops)

    return Pass(name, why, change, applies)


def kernel_pass(
    name: str,
    why: str,
    run: Callable[[Sequence[Kernel]], Sequence[Kernel]],
    kind: type[K] = Kernel,  # type: ignore[assignment]
    where: Callable[[K], bool] = _always,
    in_loops: bool = False,
) -> Pass:
    """Return a pass over a plan's kernels, if `where` holds for one of some kind.

    With `in_loops`, it also runs on the bodies of loops over time.
    """

    def everywhere(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
        return tuple(
            replace(kernel, body=everywhere(kernel.body))
            if in_loops and isinstance(kernel, TimeLoop)
            else kernel
            for kernel in run(kernels)
        )

    def change(plan: Plan) -> Plan:
        return replace(plan, kernels=everywhere(plan.kernels))

    def has_some(plan: Plan) -> bool:
        kernels = plan.kernels
        return any(where(kernel) for kernel in kernels if isinstance(kernel, kind))

    return Pass(name, why, change, has_some)


# Verifiers of each kind of stage, to which targets add their own.
VERIFIERS: Mapping[type, Callable[[Any], object]] = {
    Program: lambda program: ir.verify(program.graph),
    Plan: plans.verify,
}


@record(guarded=True)
class Pipeline:
    """The passes of a target in order, and the verifiers of its stages."""

    passes: tuple[Pass, ...]
    verifiers: Mapping[type, Callable[[Any], object]] = field(
        default_factory=lambda: VERIFIERS
    )

    def run(self, program: Program, after: str | None = None) -> Any:
        """Return the last stage, or the stage after the pass named `after`."""
        if after is not None and after not in (step.name for step in self.passes):
            names = ", ".join(step.name for step in self.passes)
            raise ValueError(f"There is no pass {after!r}; there are: {names}.")
        verifies = config.verifies_passes()
        stage: Any = program
        for step in self.passes:
            if step.applies(stage):
                before, stage = stage, step.run(stage)
                if verifies and stage is not before:
                    self.verifiers[type(stage)](stage)
            if step.name == after:
                break
        return stage
