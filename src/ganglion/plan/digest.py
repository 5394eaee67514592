"""A plan as one number: equal plans, and only those, have equal digests."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from ganglion.plan.kernel import Buffer
from ganglion.plan.plan import Plan


def digest(plan: Plan) -> tuple[str, list[Buffer]]:
    """Return the digest of a plan's kernels, and their buffers as it numbers them.

    Names and places in memory are left out: machine code does not depend on them.
    """
    reader = _Reader()
    for kernel in plan.kernels:
        reader.read(kernel)
    text = " ".join(reader.words)
    return hashlib.sha256(text.encode()).hexdigest(), reader.buffers


class _Reader:
    """Writes objects down word by word; what is shared is written once."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.buffers: list[Buffer] = []
        self._seen: dict[int, str] = {}
        self._alive: list[object] = []  # so that no two objects get the same id

    def read(self, one: Any) -> None:
        """Write down one object."""
        if isinstance(one, (int, str, float, type(None))):
            self.words.append(repr(one))
        elif isinstance(one, (tuple, list)):
            self.words.append("(")
            for each in one:
                self.read(each)
            self.words.append(")")
        elif dataclasses.is_dataclass(one):
            self._read_record(one)
        elif isinstance(one, np.ndarray):
            content = hashlib.sha256(np.ascontiguousarray(one).tobytes()).hexdigest()
            self.words.append(f"array {one.dtype.str} {one.shape} {content}")
        elif isinstance(one, (np.dtype, np.generic)):
            self.words.append(f"{type(one).__name__} {one!r}")
        elif isinstance(one, dict):
            self.read(tuple(one.items()))
        else:
            raise TypeError(f"a plan cannot hold {type(one).__name__}")

    def _read_record(self, one: Any) -> None:
        known = self._seen.get(id(one))
        if known is not None:
            self.words.append(known)
            return
        self._seen[id(one)] = f"#{len(self._seen)}"
        self._alive.append(one)
        if isinstance(one, Buffer):
            self.buffers.append(one)
            self.words.append(f"buffer {one.kind}")
            self.read((one.shape, one.dtype, one.array))
            return
        self.words.append(type(one).__name__)
        for field in dataclasses.fields(one):
            self.read(getattr(one, field.name))
