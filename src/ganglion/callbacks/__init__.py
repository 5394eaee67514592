"""Callbacks of training: checkpoints, early stopping, logs, learning rates."""

from ganglion.callbacks.averages import SwapEMAWeights
from ganglion.callbacks.base import (
    Callback,
    CallbackList,
    History,
    LambdaCallback,
    per_chunk,
)
from ganglion.callbacks.checkpoints import BackupAndRestore, ModelCheckpoint
from ganglion.callbacks.loggers import CSVLogger, EpochLogger, ProgbarLogger
from ganglion.callbacks.monitor import EarlyStopping, MonitorCallback, TerminateOnNaN
from ganglion.callbacks.rates import LearningRateScheduler, ReduceLROnPlateau
from ganglion.callbacks.remote import OrbaxCheckpoint, RemoteMonitor
from ganglion.callbacks.tensorboard import TensorBoard

__all__ = [
    "BackupAndRestore", "CSVLogger", "Callback", "CallbackList", "EarlyStopping",
    "EpochLogger", "History", "LambdaCallback", "LearningRateScheduler",
    "ModelCheckpoint", "MonitorCallback", "OrbaxCheckpoint", "ProgbarLogger",
    "ReduceLROnPlateau", "RemoteMonitor", "SwapEMAWeights", "TensorBoard",
    "TerminateOnNaN", "per_chunk",
]  # fmt: skip
