"""Recurrent layers: cells, and the layers that run them over time."""

from ganglion.layers.rnn.base import RNN
from ganglion.layers.rnn.bidirectional import Bidirectional
from ganglion.layers.rnn.cells import GRUCell, LSTMCell, SimpleRNNCell
from ganglion.layers.rnn.conv_lstm import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from ganglion.layers.rnn.layers import GRU, LSTM, SimpleRNN
from ganglion.layers.rnn.stacked import StackedRNNCells
from ganglion.layers.rnn.wrappers import TimeDistributed, Wrapper

__all__ = [
    "GRU", "LSTM", "RNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D",
    "GRUCell", "LSTMCell", "SimpleRNN", "SimpleRNNCell", "StackedRNNCells",
    "TimeDistributed", "Wrapper",
]  # fmt: skip
