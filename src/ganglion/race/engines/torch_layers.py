"""The layers, losses and optimizers of recipes in PyTorch's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion.race.engines import Task, untranslated
from ganglion.recipes import LayerSpec


def tensors(task: Task, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Return images, channels first, and labels."""
    import torch

    images = torch.from_numpy(x)
    if images.ndim == 4:
        images = images.permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(y)
    return images, labels if task.recipe.one_hot else labels.long()


def criterion(name: str) -> Any:
    """Return the loss by its name in Keras."""
    import torch

    known = {
        "mean_squared_error": torch.nn.MSELoss,
        "sparse_categorical_crossentropy": torch.nn.CrossEntropyLoss,
    }
    if name not in known:
        raise untranslated("the loss", name)
    return known[name]()


def correct(outputs: Any, labels: Any, one_hot: bool) -> Any:
    """Return how many rows have their largest output where the label is."""
    classes = labels.argmax(1) if one_hot else labels
    return (outputs.argmax(1) == classes).sum()


def optimizer(task: Task, net: Any, **more: Any) -> Any:
    """Return the optimizer of a recipe."""
    import torch

    kind, given = task.recipe.optimizer
    if kind != "SGD":
        raise untranslated("the optimizer", kind)
    return torch.optim.SGD(
        net.parameters(),
        lr=given["learning_rate"],
        momentum=given.get("momentum", 0.0),
        nesterov=given.get("nesterov", False),
        **more,
    )


def network(task: Task, layers: tuple[LayerSpec, ...]) -> Any:
    """Return the layers as a `Sequential` with the weights of the task."""
    import torch

    weights = iter([torch.from_numpy(one.copy()) for one in task.weights])
    stack: list[Any] = []
    shape = task.recipe.input_shape
    for kind, given in layers:
        if kind not in _LAYERS:
            raise untranslated("the layer", kind)
        stack += _LAYERS[kind](shape, given, weights)
        if given.get("activation"):
            stack.append(_activation(given["activation"]))
        shape = (0,) * (1 if kind in _FLATTENING else len(shape))
    return torch.nn.Sequential(*stack)


def _activation(name: str) -> Any:
    import torch

    known = {"relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid}
    if name not in known:
        raise untranslated("the activation", name)
    return known[name]()


def _dense(shape: tuple[int, ...], given: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    kernel, bias = next(weights), next(weights)
    made = torch.nn.Linear(*kernel.shape)
    made.weight.data.copy_(kernel.T)
    made.bias.data.copy_(bias)
    return [made]


def _conv(shape: tuple[int, ...], given: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    kernel, bias = next(weights), next(weights)
    height, width, taken, made_here = kernel.shape
    made = torch.nn.Conv2d(
        taken, made_here, (height, width), padding=given.get("padding", "valid")
    )
    made.weight.data.copy_(kernel.permute(3, 2, 0, 1))
    made.get_parameter("bias").data.copy_(bias)
    return [made]


def _norm(shape: tuple[int, ...], given: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    kind = torch.nn.BatchNorm2d if len(shape) == 3 else torch.nn.BatchNorm1d
    values = [next(weights) for _ in range(4)]
    momentum = 1 - given.get("momentum", 0.99)  # Keras' own numbers
    made = kind(len(values[0]), eps=1e-3, momentum=momentum)
    for name, value in zip(_NORM_PARTS, values, strict=True):
        getattr(made, name).data.copy_(value)
    return [made]


def _flatten(shape: tuple[int, ...], given: Any, weights: Iterator[Any]) -> list[Any]:
    """Flatten in Keras' order, channels last, so that dense weights are the same."""
    import torch

    class ChannelsLast(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.permute(0, 2, 3, 1)

    return [*([ChannelsLast()] if len(shape) == 3 else []), torch.nn.Flatten()]


def _pool(shape: tuple[int, ...], given: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    return [torch.nn.MaxPool2d(given["pool_size"])]


def _average(shape: tuple[int, ...], given: Any, weights: Iterator[Any]) -> list[Any]:
    import torch

    return [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]


_NORM_PARTS = ("weight", "bias", "running_mean", "running_var")
_FLATTENING = ("Flatten", "GlobalAveragePooling2D")
_LAYERS: dict[str, Any] = {
    "Dense": _dense,
    "Conv2D": _conv,
    "BatchNormalization": _norm,
    "Flatten": _flatten,
    "MaxPooling2D": _pool,
    "GlobalAveragePooling2D": _average,
    "Activation": lambda shape, given, weights: [],
}


def read_back(net: Any) -> list[np.ndarray]:
    """Return a network's weights in Keras' shapes and order."""
    found = []
    for value in _parts(net):
        if value.ndim == 4:
            value = value.permute(2, 3, 1, 0)
        value = value.T if value.ndim == 2 else value
        found.append(value.cpu().numpy().copy())
    return found


def put_back(net: Any, weights: list[np.ndarray]) -> None:
    """Give a network weights in Keras' shapes and order."""
    import torch

    for value, given in zip(_parts(net), weights, strict=True):
        new = torch.from_numpy(given)
        if value.ndim == 4:
            new = new.permute(3, 2, 0, 1)
        value.copy_(new.T if value.ndim == 2 else new)


def _parts(net: Any) -> Iterator[Any]:
    for module in net:
        for name in _NORM_PARTS:
            value = getattr(module, name, None)
            if value is not None:
                yield value.detach()
