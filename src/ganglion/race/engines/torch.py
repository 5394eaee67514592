"""PyTorch as a tutorial writes it: an eager loop over a `DataLoader`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ganglion.race.engines import (
    Rival,
    Task,
    Unavailable,
    scaled,
    test_set,
    up_to_logits,
)
from ganglion.race.engines.augmented import parts
from ganglion.race.engines.torch_augment import augmentation
from ganglion.race.engines.torch_layers import (
    correct,
    criterion,
    network,
    optimizer,
    put_back,
    read_back,
    tensors,
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


def mixed(task: Task) -> Any:
    """Return the context of a network's computation: bf16 where that is asked for."""
    import torch

    return torch.autocast(
        task.device,
        torch.bfloat16,
        enabled=task.precision == "bf16",
        cache_enabled=False,  # a step casts each weight once, and may be recorded
    )


def wait_for(device: str) -> None:
    """Let a GPU finish before the clock is read."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


class TorchTrainer(Rival):
    """Forward, loss, backward, step."""

    def __init__(self, task: Task) -> None:
        import torch

        layers, x = scaled(task)
        self._task, self.batch_size, self._device = task, task.batch_size, task.device
        self._start, self._one_hot = task.weights, task.recipe.one_hot
        layers = up_to_logits(task.recipe, layers)
        self._network = network(task, layers).to(task.device)
        self._optimizer = optimizer(task, self._network)
        self._criterion = criterion(task.recipe.loss)
        self._data = torch.utils.data.TensorDataset(*tensors(task, x, task.y))
        self._test = [tensors(task, *one) for one in test_set(task)]
        self._loss = torch.zeros(())
        self._augment = augmentation(task.recipe.augment) if task.augments else None

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took.

        Here the batches are cut beforehand, and lie on the device: this is the time of
        a step alone.
        """
        import torch

        size = self.batch_size
        cut = (one.to(self._device).split(size) for one in self._data.tensors)
        batches = list(zip(*cut, strict=True))
        wait_for(self._device)
        started = time.perf_counter()
        total = torch.zeros((), device=self._device)
        for step in range(steps):
            images, labels = batches[step % len(batches)]
            if self._augment is not None:
                images = self._augment(images)
            self._optimizer.zero_grad()
            loss = self._criterion(self._outputs(images), labels)
            loss.backward()
            self._optimizer.step()
            total = total + loss.detach()
        self._loss = total / steps
        wait_for(self._device)
        return time.perf_counter() - started

    def _outputs(self, images: Any) -> Any:
        import torch

        with mixed(self._task):
            return self._network(images).to(torch.get_default_dtype())

    def loss(self) -> float:
        """Return the mean loss over the last run."""
        return float(self._loss)

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now."""
        return read_back(self._network)

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
            self._optimizer.zero_grad()
            outputs = self._outputs(images)
            loss = self._criterion(outputs, labels)
            loss.backward()
            self._optimizer.step()
            total += loss.detach() * len(images)
            hits += correct(outputs.detach(), labels, self._one_hot)
        return float(total) / len(order), float(hits) / len(order)

    def test(self) -> tuple[float, float]:
        """Return loss and accuracy on the test set."""
        import torch

        self._network.eval()
        total, hits = torch.zeros(2, device=self._device)
        rows = 0
        with torch.no_grad():
            for images, labels in self._test:
                images, labels = images.to(self._device), labels.to(self._device)
                outputs = self._outputs(images)
                total += self._criterion(outputs, labels) * len(images)
                hits += correct(outputs, labels, self._one_hot)
                rows += len(images)
        return float(total) / rows, float(hits) / rows

    def feed(self, images: np.ndarray) -> None:
        """Take these images in place of the task's."""
        import torch

        kept = self._data.tensors[0]
        for rows, part in parts(images):
            given = torch.from_numpy(part)
            kept[rows] = given.permute(0, 3, 1, 2) if given.ndim == 4 else given

    def reset(self) -> None:
        """Go back to the first weights and a fresh optimizer."""
        put_back(self._network, self._start)
        self._optimizer.state.clear()
