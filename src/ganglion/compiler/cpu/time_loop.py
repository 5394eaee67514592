"""Loops over time on threads, each of which runs all steps of some rows.

If the rows of a batch are independent within the loop, a thread runs all steps of some
rows without barriers: weights and state stay in its cache, and the windows of the next
step are prefetched during a product. Otherwise a single thread runs the loop.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import Buffer, BufferKey, Contract, Kernel
from ganglion.compiler.plan.time_loop import (
    TimeLoop,
    Window,
    independent_rows,
    split_rows,
)

# ---- a pass: products by groups of rows ----------------------------------------------


def split_time_loops(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with the products of loops split by groups of rows."""
    return [
        _prefetching(replace(kernel, body=tuple(map(_by_groups, kernel.body))))
        if isinstance(kernel, TimeLoop)
        else kernel
        for kernel in kernels
    ]


def _by_groups(kernel: Kernel) -> Kernel:
    if not isinstance(kernel, Contract):
        return kernel
    size = kernel.rows[0].size
    each = max(n for n in range(1, CPU.loop_rows + 1) if size % n == 0)
    return split_rows(kernel, each) if each < size else kernel


def independent_groups(loop: TimeLoop) -> int:
    """Return into how many groups of independent rows a batch is divided."""
    if independent_rows(loop) == 1:
        return 1
    footprints = [kernel.footprint() for kernel in loop.body]
    units = [f.units for f in footprints if f is not None and f.grain == 1]
    return math.gcd(*units) if len(units) == len(footprints) else 1


def _prefetching(loop: TimeLoop) -> TimeLoop:
    """Return a loop whose largest product prefetches the windows of the next step.

    Arrays of all steps exceed the caches, and the product is bound by arithmetic, so
    that memory transfers overlap with it.
    """
    groups = independent_groups(loop)
    products = [k for k in loop.body if isinstance(k, Contract) and len(k.rows) == 1]
    if groups == 1 or not products:
        return loop
    largest = max(products, key=lambda kernel: kernel.cost)
    windows = _next_windows(loop)
    prefetching = replace(largest, prefetched=tuple(w.buffer for w in windows))
    body = tuple(prefetching if kernel is largest else kernel for kernel in loop.body)
    return replace(loop, body=body, windows=(*loop.windows, *windows))


def _next_windows(loop: TimeLoop) -> list[Window]:
    """Return the windows of the next step that are not windows of this step."""
    divided = {b.key for k in loop.body if (f := k.footprint()) for b in f.own}
    current = {(w.stacked.key, w.offset, w.stride) for w in loop.windows}
    following: dict[tuple[BufferKey, int, int], Window] = {}
    for window in loop.windows:
        start = window.offset + window.stride
        memory = (window.stacked.key, start, window.stride)
        if window.slots or window.buffer.key not in divided or memory in current:
            continue
        buffer = replace(window.buffer, name=f"{window.buffer.name}.next")
        following[memory] = replace(window, buffer=buffer, offset=start)
    return list(following.values())


# ---- text ----------------------------------------------------------------------------


def emit_time_loop(loop: TimeLoop, emit_kernel: Callable[[Kernel], Emitted]) -> Emitted:
    """Emit a function that calls the body's functions, step by step."""
    return _EmittedLoop(loop, [emit_kernel(kernel) for kernel in loop.body]).emit()


class _EmittedLoop:
    """A loop under construction, with the pointers of all calls in a single frame."""

    def __init__(self, loop: TimeLoop, calls: list[Emitted]) -> None:
        self.loop, self.calls = loop, calls
        self.emitter = Emitter()
        self.text = self.emitter.text
        self._windows = {window.buffer.key: window for window in loop.windows}
        self._functions: dict[str, str] = {}  # definitions by name

    def emit(self) -> Emitted:
        text, units = self.text, independent_groups(self.loop)
        count = sum(len(call.buffers) for call in self.calls)
        text.prelude.append(f"  %frame = alloca [{max(count, 1)} x ptr], align 64")
        for slot, buffer in self._slots():
            if buffer.key not in self._windows:
                self._put(slot, self.emitter.base(buffer))
        text.each(0, self.loop.steps, 1, lambda step: self._step(step, units))
        emitted = self.emitter.emitted(units)
        declared = emitted.declared.union(*(call.declared for call in self.calls))
        helpers = frozenset(self._functions.values())
        helpers = helpers.union(*(call.helpers for call in self.calls))
        return replace(emitted, declared=declared, helpers=helpers)

    def _slots(self) -> Iterator[tuple[int, Buffer]]:
        return enumerate(buffer for call in self.calls for buffer in call.buffers)

    def _put(self, slot: int, address: str) -> None:
        target = self.text.address("%frame", "ptr", slot)
        self.text.do(f"store ptr {address}, ptr {target}, align 8")

    def _step(self, step: str, units: int) -> None:
        """Move the windows, then call the body's kernels."""
        addresses: dict[BufferKey, str] = {}
        for slot, buffer in self._slots():
            window = self._windows.get(buffer.key)
            if window is not None:
                if buffer.key not in addresses:
                    addresses[buffer.key] = self._address(window, step)
                self._put(slot, addresses[buffer.key])
        first = 0
        for call in self.calls:
            each = call.parallel // units
            low, high = (self.text.times(bound, each) for bound in ("%lo", "%hi"))
            frame = self.text.address("%frame", "ptr", first)
            function = self._function(call)
            self.text.do(f"call void {function}(ptr {frame}, i64 {low}, i64 {high})")
            first += len(call.buffers)

    def _address(self, window: Window, step: str) -> str:
        if window.slots:
            step = self.text.let(f"urem i64 {step}, {window.slots}")
        index = self.text.add(self.text.times(step, window.stride), window.offset)
        return self.emitter.address(window.stacked, index)

    def _function(self, call: Emitted) -> str:
        """Return the name of a call's function, which is defined once."""
        name = "@b" + hashlib.sha256(call.text.encode()).hexdigest()[:24]
        head = f"define internal void {name}("
        self._functions[name] = call.text.replace("define void @kernel(", head, 1)
        return name
