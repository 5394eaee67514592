"""A plan as LLVM IR text: one function a kernel, and the loop that runs them all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ganglion.backends.cpu_contract import emit_contract
from ganglion.backends.cpu_loop import (
    Emitted,
    emit_loop,
    emit_pool_back,
    emit_scan,
    emit_scatter,
)
from ganglion.plan.kernel import Buffer, Contract, Kernel, Loop, Plan, PoolBack, Scan

GENERATOR = 1  # part of the cache's key: raise it when the emitted text may change


@dataclass(frozen=True)
class Record:
    """One call of a step: a function by its hash, its buffers, how to cut it."""

    function: str
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int


def emit(plan: Plan) -> tuple[dict[str, str], list[Record]]:
    """Return every function's module by its hash, and the calls of a step in order."""
    modules: dict[str, str] = {}
    records = []
    for kernel in plan.kernels:
        made = emit_kernel(kernel)
        name = "k" + hashlib.sha256(made.text.encode()).hexdigest()[:24]
        if name not in modules:
            modules[name] = _module(name, made)
        records.append(Record(name, made.buffers, made.parallel, made.grain))
    return modules, records


def emit_kernel(kernel: Kernel) -> Emitted:
    """Return a kernel as text."""
    if isinstance(kernel, Loop):
        return emit_loop(kernel)
    if isinstance(kernel, Contract):
        return emit_contract(kernel)
    if isinstance(kernel, PoolBack):
        return emit_pool_back(kernel)
    if isinstance(kernel, Scan):
        return emit_scan(kernel)
    return emit_scatter(kernel)  # type: ignore[arg-type]


def _module(name: str, made: Emitted) -> str:
    text = made.text.replace("define void @kernel(", f"define void @{name}(", 1)
    return "\n".join([*sorted(made.declared), text, "attributes #0 = { nounwind }", ""])


# Words of 64 bits of a record: function, arguments, parallel, grain.
RECORD_WORDS = 4

EXECUTOR = """\
declare i32 @sched_yield()
declare void @DECLARED

define internal void @wait(ptr %bar, i64 %n) #0 {
entry:
  %alone = icmp sle i64 %n, 1
  br i1 %alone, label %done, label %arrive
arrive:
  %round = getelementptr inbounds i8, ptr %bar, i64 64
  %now = load atomic i32, ptr %round acquire, align 4
  %before = atomicrmw add ptr %bar, i32 1 acq_rel
  %n32 = trunc i64 %n to i32
  %others = sub i32 %n32, 1
  %last = icmp eq i32 %before, %others
  br i1 %last, label %open, label %spin
open:
  store atomic i32 0, ptr %bar monotonic, align 4
  %next = add i32 %now, 1
  store atomic i32 %next, ptr %round release, align 4
  br label %done
spin:
  %tries = phi i64 [ 0, %arrive ], [ %more, %again ]
  %seen = load atomic i32, ptr %round acquire, align 4
  %moved = icmp ne i32 %seen, %now
  br i1 %moved, label %done, label %again.check
again.check:
  %more.try = add i64 %tries, 1
  %tired = icmp sgt i64 %more.try, 20000
  br i1 %tired, label %sleep, label %again.pause
again.pause:
  call void @PAUSE
  br label %again
sleep:
  %ignored = call i32 @sched_yield()
  br label %again
again:
  %more = phi i64 [ %more.try, %again.pause ], [ 19000, %sleep ]
  br label %spin
done:
  ret void
}

define void @execute(ptr %records, i64 %count, i64 %steps, i64 %thread, i64 %threads,
                     ptr %bar, ptr %moving, i64 %movers) #0 {
entry:
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %s.next, %step.end ]
  br label %record
record:
  %r = phi i64 [ 0, %step ], [ %r.next, %record.end ]
  %word = mul i64 %r, 4
  %at = getelementptr inbounds i64, ptr %records, i64 %word
  %function = load ptr, ptr %at, align 8
  %at1 = getelementptr inbounds i64, ptr %at, i64 1
  %args = load ptr, ptr %at1, align 8
  %at2 = getelementptr inbounds i64, ptr %at, i64 2
  %parallel = load i64, ptr %at2, align 8
  %at3 = getelementptr inbounds i64, ptr %at, i64 3
  %grain = load i64, ptr %at3, align 8
  %up = add i64 %parallel, %grain
  %up1 = sub i64 %up, 1
  %blocks = sdiv i64 %up1, %grain
  %first.part = mul i64 %blocks, %thread
  %first = sdiv i64 %first.part, %threads
  %after.thread = add i64 %thread, 1
  %last.part = mul i64 %blocks, %after.thread
  %last = sdiv i64 %last.part, %threads
  %lo = mul i64 %first, %grain
  %hi.blocks = mul i64 %last, %grain
  %inside = icmp slt i64 %hi.blocks, %parallel
  %hi = select i1 %inside, i64 %hi.blocks, i64 %parallel
  %some = icmp slt i64 %lo, %hi
  br i1 %some, label %call, label %record.end
call:
  call void %function(ptr %args, i64 %lo, i64 %hi)
  br label %record.end
record.end:
  call void @wait(ptr %bar, i64 %threads)
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %count
  br i1 %r.more, label %record, label %move
move:
  %is.first = icmp eq i64 %thread, 0
  %has.movers = icmp sgt i64 %movers, 0
  %moves = and i1 %is.first, %has.movers
  br i1 %moves, label %mover, label %step.end
mover:
  %m = phi i64 [ 0, %move ], [ %m.next, %mover ]
  %m.word = mul i64 %m, 2
  %m.at = getelementptr inbounds i64, ptr %moving, i64 %m.word
  %slot = load ptr, ptr %m.at, align 8
  %m.by = getelementptr inbounds i64, ptr %m.at, i64 1
  %by = load i64, ptr %m.by, align 8
  %old = load i64, ptr %slot, align 8
  %new = add i64 %old, %by
  store i64 %new, ptr %slot, align 8
  %m.next = add i64 %m, 1
  %m.more = icmp slt i64 %m.next, %movers
  br i1 %m.more, label %mover, label %step.end
step.end:
  call void @wait(ptr %bar, i64 %threads)
  %s.next = add i64 %s, 1
  %s.more = icmp slt i64 %s.next, %steps
  br i1 %s.more, label %step, label %finish
finish:
  ret void
}
attributes #0 = { nounwind }
"""


_PAUSES = {
    "x86": ("llvm.x86.sse2.pause()", "llvm.x86.sse2.pause()"),
    "arm": ("llvm.aarch64.hint(i32)", "llvm.aarch64.hint(i32 1)"),
}


def executor(family: str) -> str:
    """Return the module of the loop over steps; "x86" and "arm" spin differently."""
    declared, pause = _PAUSES[family]
    return EXECUTOR.replace("DECLARED", declared).replace("PAUSE", pause)
