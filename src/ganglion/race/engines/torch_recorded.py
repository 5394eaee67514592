"""PyTorch with whole epochs recorded as CUDA graphs: Python only replays them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.race.engines import Task
from ganglion.race.engines.torch_layers import put_back
from ganglion.race.engines.torch_optimized import OptimizedTrainer

FEWEST = 8  # batches; below, a recording does not pay


class RecordedTrainer(OptimizedTrainer):
    """The first steps are taken one by one: PyTorch has to choose its kernels."""

    def __init__(self, task: Task, compiled: bool) -> None:
        import torch

        torch.cuda.set_stream(torch.cuda.Stream())  # the default one records nothing
        super().__init__(task, compiled)
        self._order = torch.zeros(len(task.x), dtype=torch.int64, device=task.device)
        self._graphs: dict[tuple[str, int], Any] = {}

    def _take(self, batches: list[tuple[Any, Any]], steps: int) -> None:
        once_around = super()._take
        whole, rest = divmod(steps, len(batches))
        if whole:
            key = ("batches", len(batches))
            graph = self._recorded(key, lambda: once_around(batches, len(batches)))
            for _ in range(whole):
                graph.replay()
        once_around(batches, rest)

    def _learn_from(self, rows: Any) -> None:
        learn, count = super()._learn_from, len(rows)
        if count < FEWEST * self.batch_size:
            learn(rows)
            return
        order = self._order[:count]
        order.copy_(rows)
        self._recorded(("rows", count), lambda: learn(order)).replay()

    def _recorded(self, key: tuple[str, int], action: Callable[[], None]) -> Any:
        """Return a recording of an action; it is not done yet."""
        import torch

        if key not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            self._optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                action()
            self._graphs[key] = graph
        return self._graphs[key]

    def warm_up(self, order: np.ndarray) -> None:
        """Take a few steps, then record a whole epoch."""
        super().warm_up(order)
        self.epoch(order)
        self.reset()

    def reset(self) -> None:
        """Go back to the first weights; velocities stay where they are recorded."""
        put_back(self._network, self._start)
        for state in self._optimizer.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()
