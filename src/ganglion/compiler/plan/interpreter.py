"""An interpreter of plans in NumPy, to tell bugs of passes from bugs of emitters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ganglion.compiler.plan.kernels import Memory
from ganglion.compiler.plan.plan import Plan


class PlanInterpreter:
    """Runs a plan kernel by kernel, by the kernels' definitions."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._temporary = plan.temporary_arrays()

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
    ) -> dict[str, np.ndarray]:
        """Run steps, which update the state in place; return the results of each."""
        results: dict[str, list[np.ndarray]] = {name: [] for name in self.plan.results}
        for _ in range(steps):
            # Poison temporary arrays, so that reads before writes show.
            for array in self._temporary.values():
                array.view(np.uint8)[:] = 0xFF
            named = {name: np.ascontiguousarray(array) for name, array in data.items()}
            named |= {name: np.array(array) for name, array in state.items()}
            for name, buffer in self.plan.results.items():
                named[name] = np.empty(buffer.shape, buffer.dtype)
            memory = Memory(named, self._temporary)
            with np.errstate(all="ignore"):
                for kernel in self.plan.kernels:
                    kernel.run(memory)
            for name, array in state.items():
                array[...] = named[name]
            for name, arrays in results.items():
                arrays.append(named[name])
        return {name: np.stack(arrays) for name, arrays in results.items()}
