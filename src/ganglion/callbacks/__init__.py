"""What runs beside training: checkpoints, early stopping, logs, learning rates."""

from ganglion.callbacks.base import Callback, CallbackList, History, per_chunk
from ganglion.callbacks.checkpoints import BackupAndRestore, ModelCheckpoint
from ganglion.callbacks.loggers import EpochLogger, ProgbarLogger
from ganglion.callbacks.monitor import MonitorCallback
from ganglion.callbacks.others import CSVLogger, LambdaCallback, SwapEMAWeights
from ganglion.callbacks.rates import LearningRateScheduler, ReduceLROnPlateau
from ganglion.callbacks.stopping import EarlyStopping, TerminateOnNaN
from ganglion.callbacks.tensorboard import TensorBoard

__all__ = [
    "BackupAndRestore",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "EpochLogger",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "MonitorCallback",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "SwapEMAWeights",
    "TensorBoard",
    "TerminateOnNaN",
    "per_chunk",
]
