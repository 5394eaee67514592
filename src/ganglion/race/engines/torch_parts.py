"""The parts of a recipe that PyTorch has no layer for, or another one than Keras.

Recurrent layers, attention and sampling are built here of PyTorch's layers and of the
modules in `torch_modules`; `torch_layers` has all other layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
        return [_modules().HardLstm(inputs, units, ways)]
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
    return [_modules().Outputs(layer, arguments.get("return_sequences", False))]


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


def _modules() -> Any:
    """Import the modules that PyTorch lacks, and PyTorch with them."""
    from ganglion.race.engines import torch_modules

    return torch_modules


def with_penalties(net: Any) -> list[Any]:
    """Return the modules that add to the loss."""
    return [
        module for module in net.modules() if isinstance(module, _modules().Sampling)
    ]


def modules() -> tuple[Any, ...]:
    """Return the classes of `torch_modules` that have weights."""
    return _modules().WITH_WEIGHTS


def channels_last() -> Any:
    """Return a module that moves channels to the last axis."""
    return _modules().ChannelsLast()


def _positions(
    rank: int, arguments: dict[str, Any], weights: Iterator[np.ndarray]
) -> list[Any]:
    return [_modules().Positions(*next(weights).shape)]


def _attention(
    rank: int, arguments: dict[str, Any], weights: Iterator[np.ndarray]
) -> list[Any]:
    kernel, *_ = [next(weights) for _ in range(8)]
    return [_modules().CausalAttention(*kernel.shape)]


def _sampling(
    rank: int, arguments: dict[str, Any], weights: Iterator[np.ndarray]
) -> list[Any]:
    kernel, *_ = [next(weights) for _ in range(4)]
    stddev = arguments.get("stddev", 1.0)
    return [_modules().Sampling(*kernel.shape, arguments["weight"], stddev)]


LAYERS: dict[str, Callable[..., list[Any]]] = {
    "SimpleRNN": partial(_recurrent, "SimpleRNN"),
    "LSTM": partial(_recurrent, "LSTM"),
    "GRU": partial(_recurrent, "GRU"),
    "Bidirectional": _bidirectional,
    "Positions": _positions,
    "CausalAttention": _attention,
    "Sampling": _sampling,
}


AROUND: dict[str, Callable[..., Any]] = {  # a module around others, by the part's name
    "Residual": lambda *inner: _modules().Residual(*inner),
    "Skip": lambda inner: _modules().Skip(inner),
}
