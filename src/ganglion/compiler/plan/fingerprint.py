"""A plan as one number: equal plans, and only those, have equal digests."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.plan import Plan


def digest(plan: Plan) -> tuple[str, list[Buffer]]:
    """Return the digest of a plan's kernels, and their buffers as it numbers them.

    Names and offsets in memory are left out: machine code does not depend on them.
    """
    reader = _Reader()
    for kernel in plan.kernels:
        reader.read(kernel)
    text = " ".join(reader.words)
    return hashlib.sha256(text.encode()).hexdigest(), reader.buffers


_END = object()  # of a tuple, between what is still to be read


class _Reader:
    """Writes objects down word by word; what is shared is written once."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.buffers: list[Buffer] = []
        self._seen: dict[int, str] = {}
        self._alive: list[object] = []  # so that no two objects get the same id

    def read(self, thing: Any) -> None:
        """Write down an object and all within it: first what stands first."""
        unread = [thing]
        while unread:
            unread.extend(reversed(self._write(unread.pop())))

    def _write(self, thing: Any) -> Sequence[Any]:
        """Write down the head of an object; return what follows it."""
        if isinstance(thing, (int, str, float, type(None))):
            self.words.append(repr(thing))
        elif isinstance(thing, (tuple, list)):
            self.words.append("(")
            return (*thing, _END)
        elif thing is _END:
            self.words.append(")")
        elif dataclasses.is_dataclass(thing):
            return self._write_record(thing)
        elif isinstance(thing, np.ndarray):
            content = hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()
            self.words.append(f"array {thing.dtype.str} {thing.shape} {content}")
        elif isinstance(thing, np.dtype):
            self.words.append(thing.str)
        elif isinstance(thing, np.generic):
            self.words.append(f"{type(thing).__name__} {thing!r}")
        elif isinstance(thing, dict):
            return (tuple(thing.items()),)
        else:
            raise TypeError(f"a plan cannot hold {type(thing).__name__}")
        return ()

    def _write_record(self, record: Any) -> Sequence[Any]:
        known = self._seen.get(id(record))
        if known is not None:
            self.words.append(known)
            return ()
        self._seen[id(record)] = f"#{len(self._seen)}"
        self._alive.append(record)
        if isinstance(record, Buffer):
            self.buffers.append(record)
            self.words.append(f"buffer {record.kind}")
            return ((record.shape, record.dtype, record.array),)
        self.words.append(type(record).__name__)
        return [getattr(record, field.name) for field in dataclasses.fields(record)]
