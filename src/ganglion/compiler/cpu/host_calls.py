"""Host calls from compiled code: calling Python, and propagating its exceptions.

The address of a function is among the buffers of the call, which passes the addresses
of the arrays. ctypes holds the GIL during the call; compiled code runs without it. An
exception cannot unwind native code: it is stored, further host calls of the run return
at once, and it is raised when the run returns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.ir.host import HostFunction, Typed
from ganglion.compiler.plan.host_call import HostCall

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def emit_host_call(kernel: HostCall) -> Emitted:
    """Return the text of a host call, whose first buffer is the function."""
    emitter = Emitter()
    text = emitter.text
    function = emitter.base(kernel.callback)
    text.do(f"call void {function}(ptr {text.address('%args', 'ptr', 1)})")
    buffers = (kernel.callback, *kernel.inputs, *kernel.outputs)
    return replace(emitter.emitted(1), buffers=buffers)


class Callback:
    """A host function at an address that compiled code can call.

    Args:
        function: The function to call.
        errors: A list to which its exceptions are appended.
        flush_subnormals: The executor's function of this name: the host computes with
            subnormal numbers, compiled code flushes them.
    """

    def __init__(
        self,
        function: HostFunction,
        errors: list[BaseException],
        flush_subnormals: Callable[[int], int],
    ) -> None:
        self._function, self._errors = function, errors
        self._flush_subnormals = flush_subnormals
        self._native = _SIGNATURE(self._call)  # must live as long as the code runs
        self.address = int(ctypes.cast(self._native, ctypes.c_void_p).value or 0)

    def _call(self, arguments: int) -> None:
        if self._errors:
            return
        flushed = self._flush_subnormals(0)
        try:
            function = self._function
            typed = (*function.inputs, *function.outputs)
            words = (ctypes.c_void_p * len(typed)).from_address(arguments)
            pointers = [words[number] for number in range(len(typed))]
            arrays = list(map(_array_at, pointers, typed))
            count = len(function.inputs)
            # Copies: the function, or a traceback, may keep references for longer than
            # the memory is valid.
            results = function(*(array.copy() for array in arrays[:count]))
            for target, array in zip(arrays[count:], results, strict=True):
                target[...] = array
        except BaseException as error:
            trace = error.__traceback__
            self._errors.append(error.with_traceback(trace and trace.tb_next))
        finally:
            self._flush_subnormals(flushed)


def _array_at(pointer: int | None, typed: Typed) -> np.ndarray:
    shape, dtype = typed
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not nbytes or pointer is None:
        return np.empty(shape, dtype)
    memory = memoryview((ctypes.c_ubyte * nbytes).from_address(pointer))
    return np.frombuffer(memory.cast("B"), dtype).reshape(shape)
