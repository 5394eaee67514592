"""Hints for TensorFlow's runtime, which change no result and have no counterpart here.

Scripts begin with them: how much memory a GPU may take, what is logged, whether graphs
are compiled. Options that would change a result are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from ganglion.compat.tensorflow.devices import PhysicalDevice, devices

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


def list_local_devices(session_config: Any = None) -> list[PhysicalDevice]:
    """Return the processors by the names of `device_lib`, as `/device:CPU:0`."""
    return [
        device._replace(name=device.name.replace("/physical_device", "/device"))
        for device in devices()
    ]


def gpu_device_name() -> str:
    """Return the name of the GPU, nothing if there is none."""
    return "/device:GPU:0" if devices("GPU") else ""


class Graph:
    """A graph of TensorFlow 1 as far as Keras scripts hold on to it: there is none."""

    @contextmanager
    def as_default(self) -> Iterator[Self]:
        """Return a block in which nothing is otherwise."""
        yield self

    def finalize(self) -> None:
        """Accept that nothing is to be added."""


def get_default_graph() -> Graph:
    """Return the graph that a thread is to work in; here threads share all models."""
    return Graph()


class Initializer:
    """The op that initializes all variables, which here have values from the start."""

    def __init__(self, name: str = "init") -> None:
        self.name = name


class Session:
    """A session of TensorFlow 1 as far as Keras scripts configure and hold it.

    All that it runs are initializers, as variables have their values already.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.graph = Graph()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave nothing behind."""

    def as_default(self) -> Self:
        """Return the session as a block."""
        return self

    def close(self) -> None:
        """Free nothing: models belong to no session."""

    def run(self, fetches: Any, feed_dict: Any = None, **kwargs: Any) -> Any:
        """Accept initializers; refuse everything else."""
        wanted = fetches if isinstance(fetches, (list, tuple)) else [fetches]
        known = all(isinstance(fetch, Initializer) for fetch in wanted)
        if feed_dict or kwargs or not known:
            self._refuse("run")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse(name)

    def _refuse(self, name: str) -> Any:
        raise NotImplementedError(
            f"tensorflow.Session.{name}: TensorFlow 1 with its sessions and graphs is "
            "not run. Write the model with Keras layers, and the loop with `fit` or "
            "`tf.GradientTape`."
        )
