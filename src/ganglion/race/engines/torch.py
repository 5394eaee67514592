"""PyTorch as a tutorial writes it: an eager loop over a `DataLoader`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ganglion.race.engines import Task, Unavailable, is_convolved, scaled
from ganglion.race.engines.augmented import parts
from ganglion.race.engines.torch_layers import (
    TorchRival,
    augmentation,
    correct,
    finished,
    mixed,
    wait_for,
)


def prepare(task: Task, form: str) -> TorchTrainer:
    """Build the recipe's network with the weights given."""
    set_up(task)
    return TorchTrainer(task)


def set_up(task: Task) -> None:
    """Choose threads and dtype; refuse a device that PyTorch does not see."""
    import torch

    torch.set_num_threads(task.threads)
    torch.set_default_dtype(getattr(torch, task.dtype))
    if task.device == "cuda" and not torch.cuda.is_available():
        raise Unavailable(
            f"PyTorch {torch.__version__} sees no CUDA device; "
            "install a build of PyTorch for CUDA"
        )
    rounds = task.precision != "float32"  # operands of products, to TF32
    torch.set_float32_matmul_precision("high" if rounds else "highest")
    torch.backends.cudnn.allow_tf32 = rounds


class TorchTrainer(TorchRival):
    """Forward, loss, backward, step."""

    untracked = "no_grad"

    def __init__(self, task: Task) -> None:
        import torch

        layers, x = scaled(task)
        super().__init__(task, layers)
        self._data = torch.utils.data.TensorDataset(*self._tensors(x, task.y))
        self._augment = augmentation(task.recipe.augment) if task.augments else None
        self._judge, self._predict = self._judge_batch, self._predict_batch

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        """Return images, channels first, and labels."""
        import torch

        images = torch.from_numpy(x)
        if is_convolved(self._task.recipe):
            images = images.movedim(-1, 1).contiguous()
        return images, self._labels(y)

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took.

        Here the batches are split beforehand, and lie on the device: this is the time
        of a step alone.
        """
        import torch

        size = self.batch_size
        split = (tensor.to(self._device).split(size) for tensor in self._data.tensors)
        batches = list(zip(*split, strict=True))
        wait_for(self._device)
        started = time.perf_counter()
        total = torch.zeros((), device=self._device)
        for step in range(steps):
            images, labels = batches[step % len(batches)]
            if self._augment is not None:
                images = self._augment(images)
            total = total + self._learn(images, labels)[0]
        self._loss = total / steps
        wait_for(self._device)
        return time.perf_counter() - started

    def _outputs(self, images: Any) -> Any:
        import torch

        with mixed(self._task):
            return self._network(images).to(torch.get_default_dtype())

    def _learn(self, images: Any, labels: Any) -> tuple[Any, Any]:
        self._optimizer.zero_grad()
        outputs = self._outputs(images)
        loss = self._criterion(outputs, labels)
        loss.backward()
        self._optimizer.step()
        return loss.detach(), outputs

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order, batch by batch from a `DataLoader`."""
        import torch

        sampler = torch.utils.data.BatchSampler(order.tolist(), self.batch_size, False)
        pin = self._device == "cuda"
        loader = torch.utils.data.DataLoader(
            self._data, batch_sampler=sampler, pin_memory=pin
        )
        self._network.train()
        total, hits = torch.zeros(2, device=self._device)
        for images, labels in loader:
            images, labels = images.to(self._device), labels.to(self._device)
            loss, outputs = self._learn(images, labels)
            total += loss * len(images)
            hits += correct(self._task, outputs, labels)
        return float(total) / len(order), float(hits) / len(order)

    def _judge_batch(self, images: Any, labels: Any) -> tuple[Any, Any]:
        images, labels = images.to(self._device), labels.to(self._device)
        outputs = self._outputs(images)
        return self._criterion(outputs, labels), correct(self._task, outputs, labels)

    def _predict_batch(self, images: Any) -> Any:
        return finished(self._task, self._outputs(images))

    def feed(self, images: np.ndarray) -> None:
        import torch

        data = self._data.tensors[0]
        for rows, part in parts(images):
            new = torch.from_numpy(part)
            data[rows] = new.movedim(-1, 1) if new.ndim == 4 else new
