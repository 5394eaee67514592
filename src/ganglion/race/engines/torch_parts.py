"""Modules of PyTorch for recurrent layers, attention and sampling.

The method `pieces` of our own modules maps their tensors to weights of Keras;
`torch_layers` does so for the modules of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ganglion.race.engines import Layers, untranslated

Pieces = list[tuple[Any, Any]]  # indices into a weight of Keras, and views of tensors
RECURRENT = ("SimpleRNN", "LSTM", "GRU")
# Keras has the gates of a GRU in another order than PyTorch.
_GATES = {"RNN": (0,), "LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}
HARD_SIGMOID = "keras2_hard_sigmoid"


def merged(layers: Layers) -> Layers:
    """Return layers as PyTorch has them: equal recurrent layers in a row are merged.

    So are rows of a table and their mean: a bag.
    """
    result: list[Any] = []
    for kind, arguments in layers:
        before, first = result[-1] if result else ("", {})
        if (before, kind) == ("Embedding", "GlobalAveragePooling1D"):
            result[-1] = before, first | {"bag": True}
            continue
        is_alike = kind == before and _units_of(first) == _units_of(arguments)
        if kind in RECURRENT and is_alike and first.get("return_sequences"):
            depth = first.get("num_layers", 1) + 1
            result[-1] = kind, arguments | {"num_layers": depth}
        else:
            result.append((kind, arguments))
    return tuple(result)


def _units_of(arguments: dict[str, Any]) -> dict[str, Any]:
    outer = ("return_sequences", "num_layers")
    return {name: value for name, value in arguments.items() if name not in outer}


# ---- recurrent layers ----------------------------------------------------------------


def _recurrent(
    kind: str,
    rank: int,
    arguments: dict[str, Any],
    weights: Iterator[np.ndarray],
    both_ways: bool = False,
) -> list[Any]:
    """Return PyTorch's own layer, or our implementation for another activation."""
    import torch

    depth, ways = arguments.get("num_layers", 1), 1 + both_ways
    kernel, *_ = [next(weights) for _ in range(3 * depth * ways)]
    inputs, units = len(kernel), arguments["units"]
    if arguments.get("recurrent_activation") == HARD_SIGMOID:
        if kind != "LSTM" or depth > 1 or arguments.get("return_sequences"):
            raise untranslated("the activation", f"{HARD_SIGMOID} in {kind}")
        return [_own().HardLstm(inputs, units, ways)]
    options = {"batch_first": True, "bidirectional": both_ways, "num_layers": depth}
    if kind == "SimpleRNN":
        options["nonlinearity"] = arguments.get("activation", "tanh")
    names = {"SimpleRNN": "RNN"}
    layer = getattr(torch.nn, names.get(kind, kind))(inputs, units, **options)
    if kind != "GRU":  # a second bias would learn as much as the first: Keras has one
        for name, weight in layer.named_parameters():
            if name.startswith("bias_hh"):
                weight.data.zero_()
                weight.requires_grad_(False)
    return [_own().Outputs(layer, arguments.get("return_sequences", False))]


def _bidirectional(
    rank: int, arguments: dict[str, Any], weights: Iterator[np.ndarray]
) -> list[Any]:
    inner = arguments["layer"]
    if set(arguments) != {"layer"}:
        raise untranslated("the layer", f"Bidirectional with {arguments}")
    kind, config = inner["class_name"], inner["config"]
    return _recurrent(kind, rank, config, weights, both_ways=True)


def recurrent_pieces(layer: Any) -> Iterator[Pieces]:
    """Yield the weights of a recurrent layer of PyTorch, in one or both directions."""
    units, gates = layer.hidden_size, _GATES[type(layer).__name__]
    for number in range(layer.num_layers):
        for way in ("", "_reverse")[: 1 + layer.bidirectional]:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            tensors = [getattr(layer, f"{x}_l{number}{way}").detach() for x in names]
            inputs, state, bias, own_bias = (t.split(units) for t in tensors)

            def pieces(parts: Any, *row: int) -> Pieces:
                order = enumerate(gates)
                return [
                    ((*row, ..., slice(i * units, (i + 1) * units)), parts[gate].t())
                    for i, gate in order
                ]

            yield pieces(inputs)
            yield pieces(state)
            is_gru = len(gates) == 3
            yield pieces(bias, 0) + pieces(own_bias, 1) if is_gru else pieces(bias)


# ---- modules -------------------------------------------------------------------------


def with_penalties(net: Any) -> list[Any]:
    """Return the modules that add to the loss."""
    return [module for module in net.modules() if isinstance(module, _own().Sampling)]


def modules() -> tuple[Any, ...]:
    """Return our own kinds of modules that have weights."""
    own = _own()
    return own.HardLstm, own.Positions, own.CausalAttention


def channels_last() -> Any:
    """Return a module that puts channels behind pixels or steps."""
    return _own().ChannelsLast()


def _positions(
    rank: int, arguments: dict[str, Any], weights: Iterator[np.ndarray]
) -> list[Any]:
    return [_own().Positions(*next(weights).shape)]


def _attention(
    rank: int, arguments: dict[str, Any], weights: Iterator[np.ndarray]
) -> list[Any]:
    kernel, *_ = [next(weights) for _ in range(8)]
    return [_own().CausalAttention(*kernel.shape)]


def _sampling(
    rank: int, arguments: dict[str, Any], weights: Iterator[np.ndarray]
) -> list[Any]:
    kernel, *_ = [next(weights) for _ in range(4)]
    stddev = arguments.get("stddev", 1.0)
    return [_own().Sampling(*kernel.shape, arguments["weight"], stddev)]


LAYERS: dict[str, Callable[..., list[Any]]] = {
    "SimpleRNN": partial(_recurrent, "SimpleRNN"),
    "LSTM": partial(_recurrent, "LSTM"),
    "GRU": partial(_recurrent, "GRU"),
    "Bidirectional": _bidirectional,
    "Positions": _positions,
    "CausalAttention": _attention,
    "Sampling": _sampling,
}


@cache
def _own() -> SimpleNamespace:
    """Return the modules that PyTorch lacks, defined once PyTorch is imported."""
    import torch
    from torch.nn import functional

    class Outputs(torch.nn.Module):
        """A recurrent layer with the outputs that Keras returns."""

        def __init__(self, layer: Any, sequences: bool) -> None:
            super().__init__()
            self.layer, self.sequences = layer, sequences

        def forward(self, x: Any) -> Any:
            outputs, states = self.layer(x)
            if self.sequences:
                return outputs
            last = states[0] if isinstance(states, tuple) else states
            return torch.cat(tuple(last[-2:]), -1) if self.ways == 2 else last[-1]

        @property
        def ways(self) -> int:
            return 2 if self.layer.bidirectional else 1

    class HardLstm(torch.nn.Module):
        """An LSTM with Keras 2's hard sigmoid, one or both ways; its last output."""

        def __init__(self, inputs: int, units: int, ways: int) -> None:
            super().__init__()
            shapes = ((4 * units, inputs), (4 * units, units), (4 * units,))
            self.weights = torch.nn.ParameterList(
                torch.nn.Parameter(torch.zeros(shape))
                for _ in range(ways)
                for shape in shapes
            )

        def forward(self, x: Any) -> Any:
            ways = [self._last(x, *self.weights[:3])]
            if len(self.weights) > 3:
                ways.append(self._last(x.flip(1), *self.weights[3:]))
            return torch.cat(ways, -1)

        def _last(self, x: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
            products = functional.linear(x, kernel, bias).unbind(1)
            state = cell = x.new_zeros(len(x), len(bias) // 4, dtype=products[0].dtype)
            for product in products:
                sums = torch.addmm(product, state, recurrent.T)
                write, keep, new, read = sums.chunk(4, 1)
                kept = _hard(keep) * cell
                cell = torch.addcmul(kept, _hard(write), torch.tanh(new))
                state = _hard(read) * torch.tanh(cell)
            return state

        def pieces(self) -> Iterator[Pieces]:
            for weight in self.weights:
                yield [(..., weight.detach().t())]

    def _hard(x: Any) -> Any:
        return torch.clamp(0.2 * x + 0.5, 0, 1)

    class ChannelsLast(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.movedim(1, -1)

    class Residual(torch.nn.Module):
        def __init__(self, inner: Any, shortcut: Any = None) -> None:
            super().__init__()
            self.inner, self.shortcut = inner, shortcut or torch.nn.Identity()

        def forward(self, x: Any) -> Any:
            return self.inner(x) + self.shortcut(x)

    class Skip(torch.nn.Module):
        """Appends the outputs of `inner` to x, as more channels."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return torch.cat((x, self.inner(x)), 1)

    class Positions(torch.nn.Module):
        """Adds a vector that is learned for each position."""

        def __init__(self, steps: int, width: int) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.zeros(steps, width))

        def forward(self, x: Any) -> Any:
            return x + self.table

        def pieces(self) -> Iterator[Pieces]:
            yield [(..., self.table.detach())]

    class CausalAttention(torch.nn.Module):
        """Attention heads whose queries, keys and values are a single product."""

        def __init__(self, width: int, heads: int, size: int) -> None:
            super().__init__()
            self.sizes = (3, heads, size)
            self.entering = torch.nn.Parameter(torch.zeros(3 * heads * size, width))
            self.entering_bias = torch.nn.Parameter(torch.zeros(3 * heads * size))
            self.leaving = torch.nn.Parameter(torch.zeros(width, heads * size))
            self.leaving_bias = torch.nn.Parameter(torch.zeros(width))

        def forward(self, x: Any) -> Any:
            projected = functional.linear(x, self.entering, self.entering_bias)
            query, key, value = projected.unflatten(-1, self.sizes).permute(
                2, 0, 3, 1, 4
            )
            attended = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True
            )
            together = attended.transpose(1, 2).flatten(2)
            return functional.linear(together, self.leaving, self.leaving_bias)

        def pieces(self) -> Iterator[Pieces]:
            kernels = self.entering.detach().unflatten(0, self.sizes)
            biases = self.entering_bias.detach().unflatten(0, self.sizes)
            for kernel, bias in zip(kernels, biases, strict=True):
                yield [(..., kernel.permute(2, 0, 1))]
                yield [(..., bias)]
            yield [(..., self.leaving.detach().T.unflatten(0, self.sizes[1:]))]
            yield [(..., self.leaving_bias.detach())]

    class Sampling(torch.nn.Module):
        """Draws samples, and keeps their divergence from N(0, 1) for the loss."""

        def __init__(
            self, width: int, units: int, weight: float, stddev: float
        ) -> None:
            super().__init__()
            self.mean = torch.nn.Linear(width, units)
            self.log_variance = torch.nn.Linear(width, units)
            self.weight, self.stddev = weight, stddev
            self.penalty: Any = 0.0

        def forward(self, x: Any) -> Any:
            mean, log_variance = self.mean(x), self.log_variance(x)
            terms = 1 + log_variance - mean**2 - torch.exp(log_variance)
            self.penalty = self.weight * -0.5 * terms.sum(-1).mean()
            deviation = self.stddev * torch.exp(0.5 * log_variance)
            return mean + deviation * torch.randn_like(mean)

    return SimpleNamespace(
        Outputs=Outputs,
        HardLstm=HardLstm,
        ChannelsLast=ChannelsLast,
        Residual=Residual,
        Skip=Skip,
        Positions=Positions,
        CausalAttention=CausalAttention,
        Sampling=Sampling,
    )


AROUND: dict[str, Callable[..., Any]] = {  # a module around others, by the part's name
    "Residual": lambda *inner: _own().Residual(*inner),
    "Skip": lambda inner: _own().Skip(inner),
}
