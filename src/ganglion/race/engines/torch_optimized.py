"""PyTorch by someone who knows it: channels last, compiled, a fused optimizer."""

from __future__ import annotations

import shutil
import time
from typing import Any

import numpy as np

from ganglion.race.engines import Rival, Task, scaled, test_set, up_to_logits
from ganglion.race.engines.augmented import parts
from ganglion.race.engines.torch import mixed, set_up, wait_for
from ganglion.race.engines.torch_augment import augmentation
from ganglion.race.engines.torch_layers import (
    correct,
    criterion,
    network,
    optimizer,
    put_back,
    read_back,
)

RECORDED = "CUDA graph"


def prepare(task: Task, form: str) -> OptimizedTrainer:
    """Build the recipe's network; the form says whether it is compiled."""
    import torch

    compiled = form.startswith("compiled")
    if (
        compiled
        and task.device == "cpu"
        and not any(map(shutil.which, ("g++", "c++", "clang++")))
    ):
        raise RuntimeError("torch.compile needs a C++ compiler, and there is none here")
    set_up(task)
    torch.backends.cudnn.benchmark = task.device == "cuda"
    if form.endswith(RECORDED):
        from ganglion.race.engines.torch_recorded import RecordedTrainer

        return RecordedTrainer(task, compiled)
    return OptimizedTrainer(task, compiled)


class OptimizedTrainer(Rival):
    """Data on the device; network and loss in one compiled function."""

    def __init__(self, task: Task, compiled: bool) -> None:
        import torch

        layers, x = scaled(task)
        self.batch_size, self._device = task.batch_size, task.device
        self._start, self._one_hot = task.weights, task.recipe.one_hot
        net = network(task, up_to_logits(task.recipe, layers)).to(task.device)
        if x.ndim == 4:
            net = net.to(memory_format=torch.channels_last)
        self._images, self._labels = self._tensors(x, task.y)
        self._test = [self._tensors(*one) for one in test_set(task)]
        lossy = criterion(task.recipe.loss)

        def outputs_of(images: Any) -> Any:
            with mixed(task):
                return net(images).to(torch.get_default_dtype())

        def both(images: Any, labels: Any) -> tuple[Any, Any]:
            outputs = outputs_of(_channels_first(images))
            hits = correct(outputs.detach(), labels, task.recipe.one_hot)
            return lossy(outputs, labels), hits

        kinds = task.recipe.augment if task.augments else ()
        change = augmentation(kinds) if kinds else lambda images: images

        def loss_of(images: Any, labels: Any) -> Any:
            return lossy(outputs_of(change(_channels_first(images))), labels)

        self._network, self._both, self._loss_of = net, both, loss_of
        if compiled:
            self._both = torch.compile(both, dynamic=False)
            self._loss_of = torch.compile(loss_of, dynamic=False)
        self._optimizer = optimizer(task, net, fused=True)
        self._sums = torch.zeros(2, device=task.device)  # of losses and of hits
        self._loss = float("nan")

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        import torch

        labels = torch.from_numpy(y)
        labels = labels if self._one_hot else labels.long()
        return torch.from_numpy(x).to(self._device), labels.to(self._device)

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took."""
        batches = self._batches()
        wait_for(self._device)
        started = time.perf_counter()
        self._sums.zero_()
        self._take(batches, steps)
        wait_for(self._device)
        seconds = time.perf_counter() - started
        self._loss = float(self._sums[0]) / steps
        return seconds

    def _batches(self) -> list[tuple[Any, Any]]:
        cut = (one.split(self.batch_size) for one in (self._images, self._labels))
        return list(zip(*cut, strict=True))

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

    def loss(self) -> float:
        """Return the mean loss over the last run."""
        return self._loss

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now."""
        return read_back(self._network)

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order; each batch is one gather in memory."""
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
            loss, found = self._both(images, self._labels.index_select(0, part))
            self._descend(loss)
            total += loss.detach() * len(part)
            hits += found

    def test(self) -> tuple[float, float]:
        """Return loss and accuracy on the test set."""
        import torch

        self._network.eval()
        total, hits = torch.zeros(2, device=self._device)
        rows = 0
        with torch.inference_mode():
            for images, labels in self._test:
                loss, found = self._both(images, labels)
                total += loss * len(images)
                hits += found
                rows += len(images)
        return float(total) / rows, float(hits) / rows

    def feed(self, images: np.ndarray) -> None:
        """Take these images in place of the task's."""
        import torch

        for rows, part in parts(images):
            self._images[rows] = torch.from_numpy(part).to(self._device)

    def reset(self) -> None:
        """Go back to the first weights and a fresh optimizer."""
        put_back(self._network, self._start)
        self._optimizer.state.clear()


def _channels_first(images: Any) -> Any:
    """Return images as PyTorch counts their axes; in memory channels stay last."""
    return images.permute(0, 3, 1, 2) if images.ndim == 4 else images
