"""The reference interpreter: it runs the NumPy definition of every op.

It is simple and slow, supports everything, and defines what other backends compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ganglion.compiler.ir.graph import Constant, Node, Program, Value, computed, verify


def unavailable_reason() -> str | None:
    """Return None: this backend runs everywhere."""
    return None


def free_memory() -> None:
    """Do nothing: this backend caches no memory."""


def compile(program: Program) -> Interpreter:  # noqa: A001 (the backends' verb)
    """Make a program runnable."""
    return Interpreter(program)


class Interpreter:
    """Runs a program node by node."""

    keeps_on_device = False

    def __init__(self, program: Program) -> None:
        self.program = program
        graph = verify(program.graph)
        self._inputs = {value.name: value for value in graph.inputs}
        self._constants: dict[Value, np.ndarray] = {
            value: value.array
            for node in graph.nodes
            for value in node.inputs
            if isinstance(value, Constant)
        }
        for value in graph.outputs.values():
            if isinstance(value, Constant):
                self._constants[value] = value.array
        uses = Counter(value for node in graph.nodes for value in set(node.inputs))
        uses.update(graph.outputs.values())  # an output is never released
        self._uses = uses

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
        keep_on_device: bool = False,
    ) -> dict[str, np.ndarray]:
        """Advance the state arrays in place; return the results of every step."""
        outputs = self.program.graph.outputs
        collected: dict[str, list[np.ndarray]] = {n: [] for n in self.program.results}
        for _ in range(steps):
            values = self._step({**data, **state})
            for name in self.program.results:
                collected[name].append(values[outputs[name]])
            changed = [name for name in self.program.state if name in outputs]
            new = [np.array(values[outputs[name]]) for name in changed]
            for name, array in zip(changed, new, strict=True):
                state[name][...] = array
        return {name: np.stack(parts) for name, parts in collected.items()}

    def _step(self, arrays: Mapping[str, np.ndarray]) -> dict[Value, np.ndarray]:
        values = dict(self._constants)
        for name, value in self._inputs.items():
            values[value] = arrays[name]
        left = self._uses.copy()
        with np.errstate(all="ignore"):
            for node in self.program.graph.nodes:
                values[node] = self._compute(node, values)
                for source in set(node.inputs):
                    left[source] -= 1
                    if not left[source] and isinstance(source, Node):
                        del values[source]
        return values

    def _compute(self, node: Node, values: dict[Value, np.ndarray]) -> np.ndarray:
        return computed(node, [values[value] for value in node.inputs])
