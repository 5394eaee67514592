"""Blocks that scripts write `with`: devices, names, recomputation.

>>> import ganglion as keras
>>> with keras.name_scope("encoder"):
...     weight = keras.Variable([1.0], name="w")
>>> weight.path
'encoder/w'
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from ganglion import config
from ganglion.compiler.ir import origin

F = TypeVar("F", bound=Callable[..., Any])

_BACKENDS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}


@contextmanager
def device(device_name: str) -> Iterator[None]:
    """Compute what runs in this block on a processor: "cpu:0" or "gpu:0".

    Every model of the block is compiled for it; there is one of each kind.
    """
    if not isinstance(device_name, str):
        raise ValueError(
            f'`device_name` must be a string such as "cpu:0", got {device_name!r}.'
        )
    text = device_name.lower().removeprefix("/").removeprefix("device:")
    kind, _, number = text.partition(":")
    if kind not in _BACKENDS or number not in ("", "0"):
        raise ValueError(f'There is no device {device_name!r}: use "cpu:0" or "gpu:0".')
    before = config._choices["backend"]
    # The interpreter runs on the CPU, too, and stays in use if it was chosen.
    if _BACKENDS[kind] != "cpu" or config.backend_in_use() != "numpy":
        config.set_backend(_BACKENDS[kind])
    try:
        yield
    finally:
        config._choices["backend"] = before


class name_scope:  # noqa: N801 - Keras' spelling
    """A part of the path of all variables that are made in the block."""

    def __init__(
        self,
        name: str,
        caller: Any = None,
        deduplicate: bool = True,
        override_parent: str | None = None,
    ) -> None:
        if not isinstance(name, str) or "/" in name:
            raise ValueError(f"`name` must be a string without '/', got {name!r}.")
        self.name, self.caller = name, caller
        self.deduplicate, self.override_parent = deduplicate, override_parent
        self._block: AbstractContextManager[None] | None = None

    def __enter__(self) -> name_scope:
        is_again = (
            self.deduplicate
            and self.caller is not None
            and _here.open
            and _here.open[-1].caller is self.caller
            and _here.open[-1].name == self.name
        )
        if not is_again:
            self._block = self._new_block()
            self._block.__enter__()
            _here.open.append(self)
        return self

    def _new_block(self) -> AbstractContextManager[None]:
        if self.override_parent is None:
            return origin.inside(self.name)
        path = "/".join(filter(None, [*self.override_parent.split("/"), self.name]))
        return origin.like(origin.UNKNOWN._replace(layer=path))

    def __exit__(self, *error: Any) -> None:
        if self._block is not None:
            _here.open.pop()
            block, self._block = self._block, None
            block.__exit__(*error)


class _Scopes(threading.local):
    """The blocks that are open, of each thread its own."""

    def __init__(self) -> None:
        self.open: list[name_scope] = []


_here = _Scopes()


class RematScope:
    """Keras' block in which activations are computed twice to save memory.

    It changes no result. A step is compiled as a whole here, and the compiler decides
    what is kept: there is nothing to switch on.
    """

    def __init__(
        self,
        mode: str | None = "full",
        output_size_threshold: int = 1024,
        layer_names: list[str] | None = None,
    ) -> None:
        modes = ("full", "activations", "larger_than", "list_of_layers", None)
        if mode not in modes:
            raise ValueError(
                f"`mode` must be one of {', '.join(map(repr, modes))}, got {mode!r}."
            )
        self.mode, self.output_size_threshold = mode, output_size_threshold
        self.layer_names = layer_names or []

    def __enter__(self) -> RematScope:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


def remat(f: F) -> F:
    """Return the function: a compiled step decides by itself what it keeps."""
    if not callable(f):
        raise TypeError(f"`remat` takes a function or a layer, got {f!r}.")
    return f


class SymbolicScope:
    """Keras' block for work on Keras tensors; here it changes nothing."""

    def __enter__(self) -> SymbolicScope:
        return self

    def __exit__(self, *error: Any) -> None:
        return None
