"""`CuDNNLSTM` and `CuDNNGRU` of Keras 2: what cuDNN computed, as today's layers."""

from __future__ import annotations

from typing import Any

from ganglion.layers import GRU, LSTM


def CuDNNLSTM(units: int, **kwargs: Any) -> LSTM:  # noqa: N802 (it was a class)
    """Return an LSTM with the activations that cuDNN has."""
    return LSTM(units, activation="tanh", recurrent_activation="sigmoid", **kwargs)


def CuDNNGRU(units: int, **kwargs: Any) -> GRU:  # noqa: N802
    """Return a GRU with the activations and the reset gate that cuDNN has."""
    return GRU(
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        reset_after=True,
        **kwargs,
    )
