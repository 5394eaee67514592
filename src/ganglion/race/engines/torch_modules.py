"""Modules that PyTorch lacks: Keras' outputs, attention, sampling, a hard LSTM.

This file imports PyTorch, so it is itself imported only inside of functions. The method
`pieces` maps the tensors of a module to weights of Keras.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from ganglion.race.engines.torch_parts import Pieces


class Outputs(nn.Module):
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


class HardLstm(nn.Module):
    """An LSTM with Keras 2's hard sigmoid, one or both ways; its last output."""

    def __init__(self, inputs: int, units: int, ways: int) -> None:
        super().__init__()
        shapes = ((4 * units, inputs), (4 * units, units), (4 * units,))
        self.weights = nn.ParameterList(
            nn.Parameter(torch.zeros(shape)) for _ in range(ways) for shape in shapes
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
            kept = _hard_sigmoid(keep) * cell
            cell = torch.addcmul(kept, _hard_sigmoid(write), torch.tanh(new))
            state = _hard_sigmoid(read) * torch.tanh(cell)
        return state

    def pieces(self) -> Iterator[Pieces]:
        for weight in self.weights:
            yield [(..., weight.detach().t())]


class ChannelsLast(nn.Module):
    """Moves the channels to the last axis."""

    def forward(self, x: Any) -> Any:
        return x.movedim(1, -1)


class Residual(nn.Module):
    """Adds x, or what a shortcut computes from it, to the outputs of `inner`."""

    def __init__(self, inner: Any, shortcut: Any = None) -> None:
        super().__init__()
        self.inner, self.shortcut = inner, shortcut or nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.inner(x) + self.shortcut(x)


class Skip(nn.Module):
    """Appends the outputs of `inner` to x, as more channels."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return torch.cat((x, self.inner(x)), 1)


class Positions(nn.Module):
    """Adds a vector that is learned for each position."""

    def __init__(self, steps: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(steps, width))

    def forward(self, x: Any) -> Any:
        return x + self.table

    def pieces(self) -> Iterator[Pieces]:
        yield [(..., self.table.detach())]


class CausalAttention(nn.Module):
    """Attention heads whose queries, keys and values are a single product."""

    def __init__(self, width: int, heads: int, size: int) -> None:
        super().__init__()
        self.sizes = (3, heads, size)
        self.entering = nn.Parameter(torch.zeros(3 * heads * size, width))
        self.entering_bias = nn.Parameter(torch.zeros(3 * heads * size))
        self.leaving = nn.Parameter(torch.zeros(width, heads * size))
        self.leaving_bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Any) -> Any:
        projected = functional.linear(x, self.entering, self.entering_bias)
        query, key, value = projected.unflatten(-1, self.sizes).permute(2, 0, 3, 1, 4)
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


class Sampling(nn.Module):
    """Draws samples, and keeps their divergence from N(0, 1) for the loss."""

    def __init__(self, width: int, units: int, weight: float, stddev: float) -> None:
        super().__init__()
        self.mean = nn.Linear(width, units)
        self.log_variance = nn.Linear(width, units)
        self.weight, self.stddev = weight, stddev
        self.penalty: Any = 0.0

    def forward(self, x: Any) -> Any:
        mean, log_variance = self.mean(x), self.log_variance(x)
        terms = 1 + log_variance - mean**2 - torch.exp(log_variance)
        self.penalty = self.weight * -0.5 * terms.sum(-1).mean()
        deviation = self.stddev * torch.exp(0.5 * log_variance)
        return mean + deviation * torch.randn_like(mean)


def _hard_sigmoid(x: Any) -> Any:
    return torch.clamp(0.2 * x + 0.5, 0, 1)


WITH_WEIGHTS = (HardLstm, Positions, CausalAttention)  # see `pieces`
