"""Recurrent layers: cells, and the layers that run them over time."""

from ganglion.layers.rnn.base import RNN
from ganglion.layers.rnn.cells import GRUCell, LSTMCell, SimpleRNNCell
from ganglion.layers.rnn.layers import GRU, LSTM, SimpleRNN
from ganglion.layers.rnn.stacked import StackedRNNCells

__all__ = [
    "GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "SimpleRNN", "SimpleRNNCell",
    "StackedRNNCells",
]  # fmt: skip
