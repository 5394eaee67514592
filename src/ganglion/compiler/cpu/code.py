"""Kernels as machine code: loaded before, found on disk, or emitted and compiled.

They are known by the keys of their forms: a program compiles only those of its kernels
that no program before it had, whatever their sizes were.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganglion import config
from ganglion.compiler import cache
from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.pipeline import Record, Signature, emit_form
from ganglion.compiler.cpu.plan import CpuPlan
from ganglion.compiler.cpu.templates import Form, form_of
from ganglion.compiler.cpu.text import Parameter

Entry = tuple[Signature, bytes]  # how a function is called, and its machine code
KEPT = 4096  # functions that stay loaded when no program has them any more


@dataclass(frozen=True)
class Function:
    """A function that is loaded for as long as this is there."""

    signature: Signature
    library: jit.Library
    address: int


def load(plan: CpuPlan) -> tuple[list[Record], dict[str, Function]]:
    """Return the calls of a step, and the functions that they call, by name."""
    target = jit.identity(jit.host())
    forms = [form_of(kernel) for kernel in plan.kernels]
    keys: list[Hashable] = [
        (target, form.key) if form.key is not None else number
        for number, form in enumerate(forms)
    ]
    functions = _loaded.get(keys)
    missing = {
        key: form for key, form in zip(keys, forms, strict=True) if key not in functions
    }
    if missing:
        functions |= _load(missing, target)
        _loaded.add({key: functions[key] for key in missing if isinstance(key, tuple)})
    ordered = [functions[key] for key in keys]
    calls = [f.signature.called(form) for f, form in zip(ordered, forms, strict=True)]
    return calls, {function.signature.name: function for function in ordered}


def _load(forms: Mapping[Hashable, Form], target: str) -> dict[Hashable, Function]:
    """Load the functions of some forms, all at once: that takes hardly longer."""
    entries = _read(forms, target)
    missing = {key: form for key, form in forms.items() if key not in entries}
    if missing:
        entries |= _compile(missing, target)
    # Forms may differ, and their texts not: a library has each name once.
    codes = {signature.name: code for signature, code in entries.values()}
    library = jit.Library(*codes.values())
    return {
        key: Function(signature, library, library.address(signature.name))
        for key, (signature, _) in entries.items()
    }


def _read(forms: Mapping[Hashable, Form], target: str) -> dict[Hashable, Entry]:
    """Return the forms whose machine code is on disk, with that."""
    entries: dict[Hashable, Entry] = {}
    for key, form in forms.items():
        entry = cache.read(_path(form, target)) if form.key is not None else None
        if entry is not None:
            entries[key] = _unpacked(entry)
    return entries


def _compile(forms: Mapping[Hashable, Form], target: str) -> dict[Hashable, Entry]:
    """Emit and compile some forms, and keep their machine code."""
    emitted = [emit_form(form) for form in forms.values()]
    modules = [module for _, module in emitted]
    codes = jit.object_codes(modules, jit.host(), config.threads())
    entries: dict[Hashable, Entry] = {}
    for (key, form), (signature, _), code in zip(
        forms.items(), emitted, codes, strict=True
    ):
        entries[key] = signature, code
        if form.key is not None:
            cache.keep(_path(form, target), _packed(signature, code))
    return entries


def _path(form: Form, target: str) -> Path:
    return cache.path_of(target, repr(form.key))


def _packed(signature: Signature, code: bytes) -> bytes:
    counts = [
        [count.number] if isinstance(count, Parameter) else count
        for count in (signature.parallel, signature.grain)
    ]
    head = json.dumps([signature.name, signature.buffers, *counts])
    return head.encode() + b"\n" + code


def _unpacked(entry: bytes) -> tuple[Signature, bytes]:
    head, _, code = entry.partition(b"\n")
    name, buffers, *counts = json.loads(head)
    parallel, grain = (Parameter(*c) if isinstance(c, list) else c for c in counts)
    return Signature(name, tuple(buffers), parallel, grain), code


class _Loaded:
    """The functions that this process has loaded, those last used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: OrderedDict[Hashable, Function] = OrderedDict()

    def get(self, keys: Sequence[Hashable]) -> dict[Hashable, Function]:
        """Return those of some functions that are loaded."""
        with self._lock:
            loaded = {
                key: self._functions[key] for key in keys if key in self._functions
            }
            for key in loaded:
                self._functions.move_to_end(key)
            return loaded

    def add(self, functions: Mapping[Hashable, Function]) -> None:
        """Keep some functions, instead of others that were not used for longest."""
        with self._lock:
            self._functions.update(functions)
            while len(self._functions) > KEPT:
                self._functions.popitem(last=False)

    def clear(self) -> None:
        """Keep none but those that programs hold."""
        with self._lock:
            self._functions.clear()


_loaded = _Loaded()


def forget() -> None:
    """Let go of the functions that no program uses."""
    _loaded.clear()
