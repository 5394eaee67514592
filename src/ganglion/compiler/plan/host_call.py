"""Host calls: kernels that call Python functions, and their lowering."""

from __future__ import annotations

import numpy as np

from ganglion.compiler.ir.graph import RECORD, Node
from ganglion.compiler.ir.host import HostFunction, result_types
from ganglion.compiler.plan.kernels import CALL, Buffer, Kernel, Memory
from ganglion.compiler.plan.lowering import Lowering
from ganglion.system.records import record


@record(eq=False)
class HostCall(Kernel):
    """Call a function of NumPy arrays, on a single thread."""

    callback: Buffer  # of kind "host", which names the function
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]

    @property
    def parallel(self) -> int:
        return 1

    @property
    def cost(self) -> float:
        return CALL  # unknown, and not to be split among threads

    def reads(self) -> list[Buffer]:
        return [self.callback, *self.inputs]

    def writes(self) -> list[Buffer]:
        return list(self.outputs)

    def run(self, memory: Memory) -> None:
        assert self.callback.function is not None
        results = self.callback.function(*map(memory.array, self.inputs))
        for buffer, array in zip(self.outputs, results, strict=True):
            memory.array(buffer)[...] = array

    def describe(self) -> str:
        outputs = ", ".join(map(repr, self.outputs))
        inputs = ", ".join(map(repr, self.inputs))
        return f"host call {self.name}: {outputs} from {inputs}"


def lower_host_call(low: Lowering, node: Node) -> None:
    """Emit a host call, with its inputs stored and a buffer for each result."""
    inputs = tuple(low.store(value) for value in node.inputs)
    if node.dtype == RECORD:
        outputs = tuple(low.new(*typed) for typed in result_types(node))
        for item in low.graph.nodes:
            if item.op.kind == "item" and item.inputs[0] is node:
                low.buffers[item] = outputs[item.attrs["number"]]
    else:
        outputs = (low.allocate(node),)
    low.count += 1
    name, function = f"{node.op.name}{low.count}", HostFunction.of(node)
    callback = Buffer(name, (), np.dtype("int64"), "host", function=function)
    low.emit(HostCall(node.op.name, callback, inputs, outputs))
