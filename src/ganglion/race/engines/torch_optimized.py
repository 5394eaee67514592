"""PyTorch as an expert writes it: channels last, compiled, a fused optimizer.

On a GPU, full epochs are also recorded as CUDA graphs, which Python only replays.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.race.engines import Task, is_convolved, scaled
from ganglion.race.engines.augmented import parts
from ganglion.race.engines.torch import set_up
from ganglion.race.engines.torch_layers import (
    TorchRival,
    augmentation,
    correct,
    finished,
    mixed,
    wait_for,
    write_weights,
)

RECORDED = "CUDA graph"
FEWEST = 8  # batches; below, a recording does not pay


def prepare(task: Task, form: str) -> OptimizedTrainer:
    """Build the recipe's network; `form` names whether it is compiled."""
    import torch

    compiled = form.startswith("compiled")
    needs_compiler = compiled and task.device == "cpu"
    if needs_compiler and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        raise RuntimeError("torch.compile needs a C++ compiler, and there is none here")
    set_up(task)
    torch.backends.cudnn.benchmark = task.device == "cuda"
    kind = RecordedTrainer if form.endswith(RECORDED) else OptimizedTrainer
    return kind(task, compiled)


class OptimizedTrainer(TorchRival):
    """Data on the device; network and loss in a single compiled function."""

    untracked = "inference_mode"

    def __init__(self, task: Task, compiled: bool) -> None:
        import torch

        layers, x = scaled(task)
        super().__init__(task, layers, fused=True)
        if x.ndim == 4:
            self._network = self._network.to(memory_format=torch.channels_last)
        self._images, self._targets = self._tensors(x, task.y)
        kinds = task.recipe.augment if task.augments else ()
        augment = augmentation(kinds) if kinds else lambda images: images
        net, criterion = self._network, self._criterion

        def outputs_of(images: Any) -> Any:
            with mixed(task):
                return net(images).to(torch.get_default_dtype())

        def judge(images: Any, labels: Any) -> tuple[Any, Any]:
            outputs = outputs_of(_channels_first(images))
            return criterion(outputs, labels), correct(task, outputs, labels)

        def loss_of(images: Any, labels: Any) -> Any:
            return criterion(outputs_of(augment(_channels_first(images))), labels)

        def predict(images: Any) -> Any:
            return finished(task, outputs_of(_channels_first(images)))

        self._judge, self._loss_of, self._predict = judge, loss_of, predict
        if compiled:
            self._judge = torch.compile(judge, dynamic=False)
            self._loss_of = torch.compile(loss_of, dynamic=False)
            self._predict = torch.compile(predict, dynamic=False)
        self._sums = torch.zeros(2, device=task.device)  # of losses and of hits

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        import torch

        images, labels = torch.from_numpy(x), self._labels(y)
        if images.ndim == 3 and is_convolved(self._task.recipe):
            # Of sequences PyTorch has no format with channels last.
            images = images.movedim(-1, 1).contiguous()
        return images.to(self._device), labels.to(self._device)

    def run(self, steps: int) -> float:
        split = (
            image.split(self.batch_size) for image in (self._images, self._targets)
        )
        batches = list(zip(*split, strict=True))
        wait_for(self._device)
        started = time.perf_counter()
        self._sums.zero_()
        self._take(batches, steps)
        wait_for(self._device)
        seconds = time.perf_counter() - started
        self._loss = float(self._sums[0]) / steps
        return seconds

    def _take(self, batches: list[tuple[Any, Any]], steps: int) -> None:
        """Take steps on batches, around and around; add their losses up."""
        for step in range(steps):
            loss = self._loss_of(*batches[step % len(batches)])
            self._descend(loss)
            self._sums[0] += loss.detach()

    def _descend(self, loss: Any) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order; each batch is a gather in memory."""
        import torch

        self._network.train()
        self._sums.zero_()
        self._learn_from(torch.from_numpy(order).to(self._device))
        total, hits = self._sums.tolist()
        return total / len(order), hits / len(order)

    def _learn_from(self, rows: Any) -> None:
        """Train on these rows; add losses and hits up."""
        total, hits = self._sums
        for part in rows.split(self.batch_size):
            images = self._images.index_select(0, part)
            loss, right = self._judge(images, self._targets.index_select(0, part))
            self._descend(loss)
            total += loss.detach() * len(part)
            hits += right

    def feed(self, images: np.ndarray) -> None:
        import torch

        for rows, part in parts(images):
            self._images[rows] = torch.from_numpy(part).to(self._device)


class RecordedTrainer(OptimizedTrainer):
    """Replays CUDA graphs, after first steps in which PyTorch chooses its kernels."""

    def __init__(self, task: Task, compiled: bool) -> None:
        import torch

        torch.cuda.set_stream(torch.cuda.Stream())  # the default stream cannot record
        super().__init__(task, compiled)
        self._order = torch.zeros(len(task.x), dtype=torch.int64, device=task.device)
        self._graphs: dict[tuple[str, int], Any] = {}

    def _take(self, batches: list[tuple[Any, Any]], steps: int) -> None:
        once_around = super()._take
        rounds, rest = divmod(steps, len(batches))
        if rounds:
            key = ("batches", len(batches))
            graph = self._recorded(key, lambda: once_around(batches, len(batches)))
            for _ in range(rounds):
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
        """Return a recording of an action, which is not run yet."""
        import torch

        if key not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            self._optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                action()
            self._graphs[key] = graph
        return self._graphs[key]

    def warm_up(self, order: np.ndarray) -> None:
        """Take a few steps, then record an entire epoch."""
        super().warm_up(order)
        self.epoch(order)
        self.reset()

    def reset(self) -> None:
        """Restore the first weights in place: graphs hold the optimizer's addresses."""
        write_weights(self._network, self._task.weights)
        for state in self._optimizer.state.values():
            for value in state.values():
                if value is not None:
                    value.zero_()


def _channels_first(images: Any) -> Any:
    """Return images as PyTorch counts their axes; in memory channels stay last."""
    return images.permute(0, 3, 1, 2) if images.ndim == 4 else images
