"""RemoteMonitor: the logs of every epoch, sent to a server."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np

from ganglion.callbacks.base import Callback, Logs

_SECONDS = 10  # for an answer: a server that hangs must not hang the training


class RemoteMonitor(Callback):
    """Posts the logs of an epoch to `root + path`, as a form or as JSON.

    A warning reports a server that cannot be reached; training continues.

    >>> RemoteMonitor("http://localhost:9000").path
    '/publish/epoch/end/'
    """

    def __init__(
        self,
        root: str = "http://localhost:9000",
        path: str = "/publish/epoch/end/",
        field: str = "data",
        headers: dict[str, str] | None = None,
        send_as_json: bool = False,
    ) -> None:
        super().__init__()
        self.root, self.path, self.field = root, path, field
        self.headers, self.send_as_json = headers, send_as_json

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        from http.client import HTTPException
        from urllib.request import urlopen

        message: dict[str, Any] = {"epoch": epoch}
        for name, value in (logs or {}).items():
            is_array = isinstance(value, (np.ndarray, np.generic))
            message[name] = value.item() if is_array else value
        try:
            with urlopen(self._request(message), timeout=_SECONDS):
                return
        except (OSError, HTTPException, ValueError) as error:
            warnings.warn(
                f"Could not reach RemoteMonitor root server at {self.root}: {error}",
                stacklevel=2,
            )

    def _request(self, message: dict[str, Any]) -> Any:
        from urllib.parse import urlencode
        from urllib.request import Request

        if self.send_as_json:
            body, kind = json.dumps(message), "application/json"
        else:
            body = urlencode({self.field: json.dumps(message)})
            kind = "application/x-www-form-urlencoded"
        headers = {"Content-Type": kind, **(self.headers or {})}
        return Request(self.root + self.path, body.encode(), headers, method="POST")


class OrbaxCheckpoint(Callback):
    """Refuses: checkpoints of Orbax are JAX' own; `ModelCheckpoint` writes files."""

    def __init__(
        self,
        directory: Any,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
        max_to_keep: int | None = 1,
        save_on_background: bool = True,
        save_weights_only: bool = False,
    ) -> None:
        raise ImportError(
            "OrbaxCheckpoint needs the `orbax-checkpoint` package and JAX' arrays, "
            "which Ganglion does not use: use ModelCheckpoint, or BackupAndRestore to "
            "go on after an interruption."
        )
