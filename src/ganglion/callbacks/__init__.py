"""What runs beside training: checkpoints, early stopping, logs, learning rates."""

from ganglion.callbacks.base import Callback, CallbackList, History, per_chunk
from ganglion.callbacks.loggers import EpochLogger, ProgbarLogger

__all__ = [
    "Callback",
    "CallbackList",
    "EpochLogger",
    "History",
    "ProgbarLogger",
    "per_chunk",
]
