"""`tf.config`: the devices and threads."""

from __future__ import annotations

from typing import Any, NamedTuple

from ganglion import config


class PhysicalDevice(NamedTuple):
    """A processor: its name and its kind."""

    name: str
    device_type: str


def has_gpu(*args: Any, **kwargs: Any) -> bool:
    """Return whether programs can be compiled for a GPU and run here."""
    from ganglion.compiler import registry

    return registry.unavailable_reason("cuda") is None


def devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the processor and the GPU that Ganglion can use here."""
    kinds = ["CPU", *(["GPU"] if device_type != "CPU" and has_gpu() else [])]
    return [
        PhysicalDevice(f"/physical_device:{kind}:0", kind)
        for kind in kinds
        if device_type in (None, kind)
    ]


def as_needed(device: Any, enable: bool = True) -> None:
    """Take memory of a GPU as it is needed, which is always so."""


def set_threads(num_threads: int) -> None:
    """Choose how many threads a compiled step has; 0 leaves it as it is."""
    if num_threads:
        config.set_threads(num_threads)


def one_op_at_a_time(num_threads: int) -> None:
    """Accept how many ops may run side by side: a step is one program."""


def always_deterministic() -> None:
    """Accept the wish for equal results of equal runs: they always are."""
