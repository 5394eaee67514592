"""Hints for TensorFlow's runtime, which change no result and have no counterpart here.

Scripts begin with them: how much memory a GPU may take, what is logged, whether graphs
are compiled. Options that would change a result are refused.
"""

from __future__ import annotations

import logging
from typing import Any

from ganglion.compat.tensorflow.host import PhysicalDevice, devices

DEBUG, INFO, WARN, ERROR, FATAL = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)


def hint(*args: Any, **kwargs: Any) -> None:
    """Ignore an option for memory, logs or compilation, which changes no result."""


class Hints:
    """Options of the runtime, with any attributes; none changes a result."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__[name] = Hints()
        return value


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Choose among processors; without a GPU, programs are compiled for the CPU."""
    from ganglion import config

    chosen = devices if isinstance(devices, (list, tuple)) else [devices]
    if device_type == "GPU" and not any(chosen) and config.backend_choice() == "auto":
        config.set_backend("cpu")


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the processors that programs are compiled for."""
    return devices(device_type)


def gpu_device_name() -> str:
    """Return the name of the GPU, nothing if there is none."""
    return "/device:GPU:0" if devices("GPU") else ""


class Session:
    """A session of TensorFlow 1 as far as scripts configure it; it runs nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.graph = Hints()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(
            f"tensorflow.Session.{name}: TensorFlow 1 with its sessions and graphs is "
            "not run. Write the model with Keras layers, and the loop with `fit` or "
            "`tf.GradientTape`."
        )
