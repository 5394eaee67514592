"""Host calls from compiled code: how it calls Python, and how errors come back.

The code gets the address of a function among its buffers and calls it with the
addresses of the arrays. ctypes takes Python's lock for the time of the call, which
compiled code runs without. An exception cannot pass through native code: it is kept,
what is left of the run calls nothing more, and it is raised when the code returns.
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
    """Return the call as text: the first of its buffers is what is called."""
    emitter = Emitter()
    text = emitter.text
    function = emitter.base(kernel.callback)
    text.do(f"call void {function}(ptr {text.address('%args', 'ptr', 1)})")
    buffers = (kernel.callback, *kernel.inputs, *kernel.outputs)
    return replace(emitter.emitted(1), buffers=buffers)


class Callback:
    """A host function at an address that compiled code can call.

    Args:
        function: What is called.
        errors: Where its exceptions are kept.
        flush_subnormals: The executor's function of this name: the host computes with
            subnormal numbers, compiled code does not.
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
            # Copies: a function, or the frames of its error, may keep what it was given
            # for longer than the memory is there.
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
