"""PyTorch by someone who knows it: channels last, compiled, a fused optimizer."""

from __future__ import annotations

import shutil
import time
from typing import Any

import numpy as np

from ganglion.rivals import Task, scaled, up_to_logits
from ganglion.rivals.torch import (
    criterion,
    network,
    optimizer,
    read_back,
    tensors,
)


def prepare(task: Task, form: str) -> OptimizedTrainer:
    """Build the recipe's network; the form says whether it is compiled."""
    import torch

    if form == "compiled" and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        raise RuntimeError("torch.compile needs a C++ compiler, and there is none here")
    torch.set_num_threads(task.threads)
    return OptimizedTrainer(task, form == "compiled")


class OptimizedTrainer:
    """Network and loss in one compiled function; no Python but the loop."""

    def __init__(self, task: Task, compiled: bool) -> None:
        import torch

        layers, x = scaled(task)
        net = network(task, up_to_logits(task.recipe, layers))
        images, labels = tensors(task, x)
        if images.ndim == 4:
            net = net.to(memory_format=torch.channels_last)
            images = images.contiguous(memory_format=torch.channels_last)
        lossy = criterion(task.recipe.loss)

        def loss_of(images: Any, labels: Any) -> Any:
            return lossy(net(images), labels)

        self._network, self._loss_of = net, loss_of
        if compiled:
            self._loss_of = torch.compile(loss_of, dynamic=False)
        self._optimizer = optimizer(task, net, fused=True)
        size = task.batch_size
        self._batches = list(zip(images.split(size), labels.split(size), strict=True))
        self._loss = torch.zeros(())

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took."""
        import torch

        started = time.perf_counter()
        total = torch.zeros(())
        for step in range(steps):
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._loss_of(*self._batches[step % len(self._batches)])
            loss.backward()
            self._optimizer.step()
            total = total + loss.detach()
        self._loss = total / steps
        return time.perf_counter() - started

    def loss(self) -> float:
        """Return the mean loss over the last run."""
        return float(self._loss)

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now."""
        return read_back(self._network)
