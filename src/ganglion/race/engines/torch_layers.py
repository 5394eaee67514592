"""The layers, losses, optimizers and augmentation of recipes in PyTorch's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ganglion.race.engines import (
    Layers,
    RivalTrainer,
    Task,
    averages,
    sgd,
    test_set,
    translation,
    untranslated,
    up_to_logits,
)

_BORDERS = {"nearest": "border", "reflect": "reflection", "constant": "zeros"}


class TorchRival(RivalTrainer):
    """What trainers of PyTorch share: the network, its optimizer, its test."""

    untracked: str  # how PyTorch is asked to keep no graph of a test
    _judge: Callable[[Any, Any], tuple[Any, Any]]  # loss and hits of a batch

    def __init__(self, task: Task, layers: Layers, **optimizing: Any) -> None:
        self._task, self.batch_size, self._device = task, task.batch_size, task.device
        self._network = network(task, up_to_logits(task.recipe, layers)).to(task.device)
        self._optimizer = optimizer(task, self._network, **optimizing)
        self._criterion = criterion(task.recipe.loss)
        self._test = [self._tensors(*batch) for batch in test_set(task)]

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        """Return images and labels as this trainer keeps them."""
        raise NotImplementedError

    def _labels(self, y: np.ndarray) -> Any:
        import torch

        labels = torch.from_numpy(y)
        return labels if self._task.recipe.one_hot else labels.long()

    def test(self) -> tuple[float, float]:
        import torch

        self._network.eval()
        with getattr(torch, self.untracked)():
            return averages((*self._judge(x, y), len(x)) for x, y in self._test)

    def weights(self) -> list[np.ndarray]:
        """Return the weights in Keras' shapes and order."""
        weights = []
        for value in _weights(self._network):
            if value.ndim == 4:
                value = value.permute(2, 3, 1, 0)
            value = value.T if value.ndim == 2 else value
            weights.append(value.cpu().numpy().copy())
        return weights

    def _put_back_weights(self) -> None:
        import torch

        for value, start in zip(
            _weights(self._network), self._task.weights, strict=True
        ):
            new = torch.from_numpy(start)
            if value.ndim == 4:
                new = new.permute(3, 2, 0, 1)
            value.copy_(new.T if value.ndim == 2 else new)

    def reset(self) -> None:
        self._put_back_weights()
        self._optimizer.state.clear()


def mixed(task: Task) -> Any:
    """Return the context of a network's computation: bf16 where that is asked for."""
    import torch

    return torch.autocast(
        task.device,
        torch.bfloat16,
        enabled=task.precision == "bf16",
        cache_enabled=False,  # a step casts each weight once, and may be recorded
    )


def correct(task: Task, outputs: Any, labels: Any) -> Any:
    """Return how many rows have their largest output where the label is."""
    classes = labels.argmax(1) if task.recipe.one_hot else labels
    return (outputs.detach().argmax(1) == classes).sum()


def wait_for(device: str) -> None:
    """Let a GPU finish before the clock is read."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def criterion(name: str) -> Any:
    """Return the loss by its name in Keras."""
    import torch

    losses = {
        "mean_squared_error": torch.nn.MSELoss,
        "sparse_categorical_crossentropy": torch.nn.CrossEntropyLoss,
    }
    return translation(losses, "the loss", name)()


def optimizer(task: Task, net: Any, **more: Any) -> Any:
    """Return the optimizer of a recipe."""
    import torch

    rate, momentum, nesterov = sgd(task.recipe)
    return torch.optim.SGD(
        net.parameters(), lr=rate, momentum=momentum, nesterov=nesterov, **more
    )


def network(task: Task, layers: Layers) -> Any:
    """Return the layers as a `Sequential` with the weights of the task."""
    import torch

    weights = iter([torch.from_numpy(weight.copy()) for weight in task.weights])
    activations = {"relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid}
    stack: list[Any] = []
    rank = len(task.recipe.input_shape)
    for kind, arguments in layers:
        stack += translation(_LAYERS, "the layer", kind)(rank, arguments, weights)
        if name := arguments.get("activation"):
            stack.append(translation(activations, "the activation", name)())
        rank = 1 if kind in ("Flatten", "GlobalAveragePooling2D") else rank
    return torch.nn.Sequential(*stack)


def _dense(rank: int, arguments: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    kernel, bias = next(weights), next(weights)
    layer = torch.nn.Linear(*kernel.shape)
    layer.weight.data.copy_(kernel.T)
    layer.bias.data.copy_(bias)
    return [layer]


def _conv(rank: int, arguments: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    kernel, bias = next(weights), next(weights)
    height, width, channels, filters = kernel.shape
    padding = arguments.get("padding", "valid")
    layer = torch.nn.Conv2d(channels, filters, (height, width), padding=padding)
    layer.weight.data.copy_(kernel.permute(3, 2, 0, 1))
    layer.get_parameter("bias").data.copy_(bias)
    return [layer]


def _norm(rank: int, arguments: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    kind = torch.nn.BatchNorm2d if rank == 3 else torch.nn.BatchNorm1d
    values = [next(weights) for _ in _PARTS]
    momentum = 1 - arguments.get("momentum", 0.99)  # Keras' own numbers
    layer = kind(len(values[0]), eps=1e-3, momentum=momentum)
    for name, value in zip(_PARTS, values, strict=True):
        getattr(layer, name).data.copy_(value)
    return [layer]


def _flatten(rank: int, arguments: Any, weights: Iterator[Any]) -> list[Any]:
    """Flatten in Keras' order, channels last, so that dense weights are the same."""
    import torch

    class ChannelsLast(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.permute(0, 2, 3, 1)

    return [*([ChannelsLast()] if rank == 3 else []), torch.nn.Flatten()]


def _pool(rank: int, arguments: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    return [torch.nn.MaxPool2d(arguments["pool_size"])]


def _average(rank: int, arguments: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    return [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]


_PARTS = ("weight", "bias", "running_mean", "running_var")
_LAYERS: dict[str, Callable[..., list[Any]]] = {
    "Dense": _dense,
    "Conv2D": _conv,
    "BatchNormalization": _norm,
    "Flatten": _flatten,
    "MaxPooling2D": _pool,
    "GlobalAveragePooling2D": _average,
    "Activation": lambda rank, arguments, weights: [],
}


def _weights(net: Any) -> Iterator[Any]:
    for module in net:
        for name in _PARTS:
            value = getattr(module, name, None)
            if value is not None:
                yield value.detach()


def augmentation(layers: Layers) -> Callable[[Any], Any]:
    """Return a function that flips and zooms images, channels first, as layers do.

    It reads a whole batch at once, from a grid: this is what `ganglion bench --augment`
    times; a race gives all engines equal images.
    """
    import torch

    known = dict(layers)
    if not set(known) <= {"RandomFlip", "RandomZoom"} or "RandomZoom" not in known:
        raise untranslated("the augmentation", ", ".join(known))
    zoom, flips = known["RandomZoom"], "RandomFlip" in known
    if flips and known["RandomFlip"].get("mode") != "horizontal":
        raise untranslated("a flip that is not", "horizontal")
    across, down = zoom["width_factor"], zoom["height_factor"]
    border = _BORDERS[zoom["fill_mode"]]

    def augment(images: Any) -> Any:
        count, device = len(images), images.device
        affine = torch.zeros(count, 2, 3, device=device)
        affine[:, 0, 0] = 1 + torch.empty(count).uniform_(*across).to(device)
        affine[:, 1, 1] = 1 + torch.empty(count).uniform_(*down).to(device)
        if flips:
            affine[:, 0, 0] *= 1.0 - 2.0 * torch.randint(2, (count,)).to(device)
        grid = torch.nn.functional.affine_grid(affine, images.shape, align_corners=True)
        return torch.nn.functional.grid_sample(
            images, grid, padding_mode=border, align_corners=True
        )

    return augment
