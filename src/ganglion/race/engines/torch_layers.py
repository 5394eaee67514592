"""The layers, losses, optimizers and augmentation of recipes in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ganglion.race.engines import (
    Layers,
    RivalTrainer,
    Sgd,
    Task,
    averages,
    is_convolved,
    leaves_softmax,
    pixels,
    split,
    test_set,
    torch_parts,
    translation,
    untranslated,
    up_to_logits,
)
from ganglion.race.engines import optimizer as recipe_optimizer

_BORDERS = {"nearest": "border", "reflect": "reflection", "constant": "zeros"}


class TorchRival(RivalTrainer):
    """The base of trainers of PyTorch: the network, its optimizer, its test."""

    untracked: str  # the context of PyTorch that records no graph
    _judge: Callable[[Any, Any], tuple[Any, Any]]  # loss and hits of a batch
    _predict: Callable[[Any], Any]  # outputs for a batch

    def __init__(self, task: Task, layers: Layers, **optimizing: Any) -> None:
        self._task, self.batch_size, self._device = task, task.batch_size, task.device
        self._network = network(task, up_to_logits(task.recipe, layers)).to(task.device)
        self._optimizer = optimizer(task, self._network, **optimizing)
        self._criterion = criterion(task, self._network)
        self._test = [self._tensors(*batch) for batch in test_set(task)]

    def _tensors(self, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        """Return images and labels as this trainer keeps them."""
        raise NotImplementedError

    def _labels(self, y: np.ndarray) -> Any:
        import torch

        labels = torch.from_numpy(y)
        return labels if labels.is_floating_point() else labels.long()

    def test(self) -> tuple[float, float]:
        import torch

        self._network.eval()
        with getattr(torch, self.untracked)():
            return averages((*self._judge(x, y), len(x)) for x, y in self._test)

    def in_batches(self, x: np.ndarray, size: int) -> list[Any]:
        parts = split(pixels(self._task, x), size)
        labels = np.zeros(0, "int32")
        return [self._tensors(part, labels)[0].to(self._device) for part in parts]

    def predict(self, batches: list[Any]) -> np.ndarray:
        import torch

        self._network.eval()
        with getattr(torch, self.untracked)():
            outputs = [self._predict(x) for x in batches]
        self._network.train()
        return np.concatenate([output.cpu().numpy() for output in outputs])

    def weights(self) -> list[np.ndarray]:
        return read_weights(self._network, self._task.weights)

    def reset(self) -> None:
        write_weights(self._network, self._task.weights)
        self._optimizer.state.clear()


def mixed(task: Task) -> Any:
    """Return the context of a network's computation: bf16 if the task requests it."""
    import torch

    return torch.autocast(
        task.device,
        torch.bfloat16,
        enabled=task.precision == "bf16",
        cache_enabled=False,  # a step casts each weight once, and may be recorded
    )


def correct(task: Task, outputs: Any, labels: Any) -> Any:
    """Return how many rows are right; of rows of steps, which share of them.

    A row is right if its largest output is that of the label.
    """
    if task.recipe.score == "loss":
        return outputs.new_tensor(math.nan)
    classes = labels.argmax(-1) if task.recipe.one_hot else labels
    is_right = outputs.detach().argmax(-1) == classes
    return is_right.sum() / (is_right.numel() // len(is_right))


def finished(task: Task, outputs: Any) -> Any:
    """Return outputs after the softmax that is part of the loss in training."""
    return outputs.softmax(-1) if leaves_softmax(task.recipe) else outputs


def wait_for(device: str) -> None:
    """Let a GPU finish before the clock is read."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def criterion(task: Task, net: Any) -> Callable[[Any, Any], Any]:
    """Return the loss of outputs and labels, with what the network adds to it."""
    import torch

    losses: dict[str, Callable[[Any, Any], Any]] = {
        "mean_squared_error": torch.nn.functional.mse_loss,
        "sparse_categorical_crossentropy": _cross_entropy,
    }
    of_outputs = translation(losses, "the loss", task.recipe.loss)
    weight, adding = task.recipe.loss_weight, torch_parts.with_penalties(net)

    def loss(outputs: Any, labels: Any) -> Any:
        total = of_outputs(outputs, labels)
        total = total if weight == 1 else weight * total
        for module in adding:
            total = total + module.penalty
        return total

    return loss


def _cross_entropy(outputs: Any, labels: Any) -> Any:
    import torch

    return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def optimizer(task: Task, net: Any, **more: Any) -> Any:
    """Return the optimizer of a recipe."""
    import torch

    numbers = recipe_optimizer(task.recipe)
    learned = [weight for weight in net.parameters() if weight.requires_grad]
    if isinstance(numbers, Sgd):
        rate, momentum, nesterov = numbers
        return torch.optim.SGD(
            learned, lr=rate, momentum=momentum, nesterov=nesterov, **more
        )
    if task.device == "cuda":
        more["capturable"] = True  # its count of steps may be recorded
    return torch.optim.AdamW(
        learned,
        lr=numbers.rate,
        betas=(numbers.beta_1, numbers.beta_2),
        eps=numbers.epsilon,
        weight_decay=numbers.decay,
        **more,
    )


def network(task: Task, layers: Layers) -> Any:
    """Return the layers as a `Sequential` with the weights of the task."""
    import torch

    weights = iter(task.weights)
    rank = len(task.recipe.input_shape)
    net = stacked(torch_parts.merged(layers), rank, weights)
    if is_convolved(task.recipe) and not any(kind in _TO_ROWS for kind, _ in layers):
        net = torch.nn.Sequential(net, torch_parts.channels_last())
    write_weights(net, task.weights)
    return net


def stacked(layers: Layers, rank: int, weights: Iterator[np.ndarray]) -> Any:
    """Return layers as a `Sequential`, in the shapes of their weights."""
    import torch

    activations = {
        "relu": torch.nn.ReLU,
        "sigmoid": torch.nn.Sigmoid,
        "gelu": torch.nn.GELU,
    }
    stack: list[Any] = []
    for kind, arguments in layers:
        if kind in torch_parts.AROUND:
            inner = [
                stacked(arguments[name], rank, weights)
                for name in ("layers", "shortcut")
                if name in arguments
            ]
            stack.append(torch_parts.AROUND[kind](*inner))
            continue
        stack += translation(_LAYERS, "the layer", kind)(rank, arguments, weights)
        name = arguments.get("activation")
        if name and kind not in torch_parts.RECURRENT:
            stack.append(translation(activations, "the activation", name)())
        rank = 1 if kind in _TO_ROWS else rank
    return torch.nn.Sequential(*stack)


def _dense(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    import torch

    kernel, _ = next(weights), next(weights)
    return [torch.nn.Linear(*kernel.shape)]


def _conv(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    kernel, *_ = _of_conv(arguments, weights)
    *sizes, channels, filters = kernel.shape
    return _padded(f"Conv{len(sizes)}d", channels, filters, arguments)


def _depthwise(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    kernel, *_ = _of_conv(arguments, weights)
    *_, channels, multiplier = kernel.shape
    filters = channels * multiplier
    return _padded("Conv2d", channels, filters, arguments, groups=channels)


def _padded(
    kind: str, channels: int, filters: int, arguments: Any, **more: Any
) -> list[Any]:
    """Return a convolution that pads as Keras does: an odd number more at the end.

    PyTorch itself pads both sides equally. Sizes must be multiples of the strides.
    """
    import torch

    size, step = arguments["kernel_size"], arguments.get("strides", 1)
    pad = max(size - step, 0) if arguments.get("padding") == "same" else 0
    before = []
    if pad % 2:
        before, pad = [torch.nn.ZeroPad2d((pad // 2, pad - pad // 2) * 2)], 0
    has_bias = arguments.get("use_bias", True)
    conv = getattr(torch.nn, kind)(
        channels, filters, size, step, pad // 2, bias=has_bias, **more
    )
    return [*before, conv]


def _conv_transposed(
    rank: int, arguments: Any, weights: Iterator[np.ndarray]
) -> list[Any]:
    import torch

    kernel, *_ = _of_conv(arguments, weights)
    *_, filters, channels = kernel.shape
    size, step = arguments["kernel_size"], arguments.get("strides", 1)
    crop = max(size - step, 0) if arguments.get("padding") == "same" else 0
    if crop % 2:
        raise untranslated("a transposed convolution that crops", f"{crop} pixels")
    return [torch.nn.ConvTranspose2d(channels, filters, size, step, crop // 2)]


def _of_conv(arguments: Any, weights: Iterator[np.ndarray]) -> list[np.ndarray]:
    """Return the weights of a convolution: a kernel, and a bias if there is any."""
    return [next(weights) for _ in range(1 + arguments.get("use_bias", True))]


def _norm(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    import torch

    kind = torch.nn.BatchNorm2d if rank == 3 else torch.nn.BatchNorm1d
    gamma, *_ = (next(weights) for _ in range(4))
    momentum = 1 - arguments.get("momentum", 0.99)  # Keras' own numbers
    return [kind(len(gamma), eps=1e-3, momentum=momentum)]


def _layer_norm(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    import torch

    gamma, _ = next(weights), next(weights)
    return [torch.nn.LayerNorm(len(gamma), eps=arguments["epsilon"])]


def _embedding(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    import torch

    kind = torch.nn.EmbeddingBag if arguments.get("bag") else torch.nn.Embedding
    return [kind(*next(weights).shape)]


def _flatten(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    """Flatten in Keras' order, channels last, so that dense weights are the same."""
    import torch

    return [*([torch_parts.channels_last()] if rank == 3 else []), torch.nn.Flatten()]


def _pool(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    import torch

    kind = torch.nn.MaxPool2d if rank == 3 else torch.nn.MaxPool1d
    return [kind(arguments["pool_size"])]


def _average(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    import torch

    kind = torch.nn.AdaptiveAvgPool2d if rank == 3 else torch.nn.AdaptiveAvgPool1d
    return [kind(1), torch.nn.Flatten()]


def _dropout(rank: int, arguments: Any, weights: Iterator[np.ndarray]) -> list[Any]:
    import torch

    return [torch.nn.Dropout(arguments["rate"])]


_TO_ROWS = ("Flatten", "GlobalAveragePooling1D", "GlobalAveragePooling2D")
_LAYERS: dict[str, Callable[..., list[Any]]] = {
    "Dense": _dense,
    "Conv1D": _conv,
    "Conv2D": _conv,
    "Conv2DTranspose": _conv_transposed,
    "DepthwiseConv2D": _depthwise,
    "Dropout": _dropout,
    "BatchNormalization": _norm,
    "LayerNormalization": _layer_norm,
    "Embedding": _embedding,
    "Flatten": _flatten,
    "MaxPooling1D": _pool,
    "MaxPooling2D": _pool,
    "GlobalAveragePooling1D": _average,
    "GlobalAveragePooling2D": _average,
    "Activation": lambda rank, arguments, weights: [],
    **torch_parts.LAYERS,
}


# ---- weights, as Keras has them ------------------------------------------------------


def read_weights(net: Any, like: list[np.ndarray]) -> list[np.ndarray]:
    """Return the weights of a network in Keras' shapes, those of `like`, and order."""
    arrays = [np.empty_like(array) for array in like]
    for array, pieces in zip(arrays, _pieces(net), strict=True):
        for index, view in pieces:
            array[index] = view.cpu().numpy()
    return arrays


def write_weights(net: Any, arrays: list[np.ndarray]) -> None:
    """Set the weights of a network to those of Keras."""
    import torch

    for array, pieces in zip(arrays, _pieces(net), strict=True):
        for index, view in pieces:
            view.copy_(torch.from_numpy(array[index]))


def _pieces(net: Any) -> Iterator[torch_parts.Pieces]:
    """Yield for each weight of Keras the tensors of PyTorch that are its parts."""
    import torch

    plain = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.LayerNorm)
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    views: dict[Any, Callable[[Any], Iterator[torch_parts.Pieces]]] = {
        (torch.nn.Linear,): lambda module: _transposed(module, (1, 0)),
        (torch.nn.modules.conv._ConvNd,): _of_kernels,
        (*plain, *tables): _as_they_are,
        torch_parts.modules(): lambda module: module.pieces(),
        (torch.nn.RNNBase,): torch_parts.recurrent_pieces,
    }
    for module in net.modules():
        for kinds, pieces in views.items():
            if isinstance(module, kinds):
                yield from pieces(module)


def _of_kernels(module: Any) -> Iterator[torch_parts.Pieces]:
    """Yield the weights of a convolution: Keras has the channels of kernels last."""
    channels = (0, 1) if module.groups > 1 else (1, 0)
    yield from _transposed(module, (*range(2, module.weight.ndim), *channels))


def _transposed(module: Any, axes: tuple[int, ...]) -> Iterator[torch_parts.Pieces]:
    yield [(..., module.weight.detach().permute(*axes))]
    if module.bias is not None:
        yield [(..., module.bias.detach())]


def _as_they_are(module: Any) -> Iterator[torch_parts.Pieces]:
    for name in ("weight", "bias", "running_mean", "running_var"):
        value = getattr(module, name, None)
        if value is not None:
            yield [(..., value.detach())]


def augmentation(layers: Layers) -> Callable[[Any], Any]:
    """Return a function that flips and zooms images, channels first, as layers do.

    It samples a batch at once, from a grid: `ganglion bench --augment` times this; a
    race gives equal images to all engines.
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
