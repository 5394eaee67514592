"""Checks products in bfloat16 by AMX on a processor that has it, then times them.

    python tests/support/bench/amx_check.py
    python tests/support/bench/amx_check.py --tune amx_inner=256 --only 2048
    python tests/support/bench/amx_check.py --emulate --no-times    # on any processor

Every product is compared with NumPy's in float64, of operands that are rounded
likewise, and must have equal bits on any number of threads. Times are the lowest of
some rounds, in which ways to multiply take turns.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent
sys.path[:0] = map(str, (HERE.parents[2] / "src", HERE, HERE.parent))

from product_sweep import Shape, operands, program_of, transposed, tune  # noqa: E402

SIZES = (
    (28, 64, 32), (28, 1, 32), (29, 31, 33), (32, 32, 32), (33, 33, 47), (47, 34, 48),
    (48, 65, 49), (63, 511, 64), (64, 512, 65), (65, 513, 31 + 64), (97, 1025, 515),
    (300, 301, 302), (513, 129, 1030), (1100, 70, 100),
)  # fmt: skip
BATCHES = ((2, 40, 50, 60), (3, 130, 515, 48), (16, 64, 64, 64))
LAYOUTS = ("nn", "nt", "tn", "tt")
TIMED = (
    Shape(1024, 1024, 1024), Shape(1024, 1024, 1024, "nt"),
    Shape(1024, 1024, 1024, "tn"), Shape(128, 784, 512), Shape(128, 784, 512, "nt"),
    Shape(256, 4096, 4096), Shape(2048, 2048, 2048),
)  # fmt: skip
WAYS = ("float32", "AVX512-BF16", "AMX")
ROUNDS = 7


def select(way: str, emulate: bool) -> ExitStack:
    """Have products made in one way, until the stack is closed."""
    from amx_emulation import emulation

    from ganglion.compiler.cpu.products import packing

    precision = "float32" if way == "float32" else "bf16"
    stack = ExitStack()
    stack.enter_context(patch.dict(os.environ, GANGLION_PRECISION=precision))
    if way != "AMX":
        never = patch.object(packing, "multiplies_tiles", lambda: False)
        stack.enter_context(never)
    elif emulate:
        stack.enter_context(emulation())
    return stack


# ---- right, and the same on any number of threads ------------------------------------


def shapes() -> Iterator[Shape]:
    """Yield products to check."""
    for layout in LAYOUTS:
        for sizes in SIZES:
            yield Shape(*sizes, layout)
        for batch, *sizes in BATCHES:
            yield Shape(*sizes, layout, batch)


def check(shape: Shape, counts: list[int]) -> str:
    """Return what is wrong with a product, "" if nothing is."""
    import ml_dtypes
    import numpy as np

    from ganglion.compiler.cpu import backend, tuning
    from ganglion.compiler.ir.contraction import matmul
    from ganglion.compiler.ir.graph import Graph, Input, Program
    from ganglion.compiler.ir.shaping import transpose

    a, b = operands(shape)
    outer = a.ndim - 2
    axes = (*range(outer), outer + 1, outer)
    inputs = [Input("a", a.shape, a.dtype), Input("b", b.shape, b.dtype)]
    seen = [
        transpose(value, axes=axes) if letter == "t" else value
        for value, letter in zip(inputs, shape.layout, strict=True)
    ]
    graph = Graph.of("product", inputs, {"y": matmul(*seen)})
    shared = replace(tuning.CPU, worth_sharing=0.0)  # small ones by all threads, too
    with patch.object(tuning, "CPU", shared):
        executable = backend.compile(Program(graph, ("a", "b"), (), ("y",)))
    executable.poisons, results = True, []
    for count in counts:
        executable.forced_threads = count
        results.append(executable.run({"a": a, "b": b}, {}, 1)["y"][0].copy())
    short = (value.astype(ml_dtypes.bfloat16).astype("f8") for value in (a, b))
    left, right = transposed(*short, shape.layout)
    allowed = np.abs(left) @ np.abs(right) * shape.inner * np.finfo("f4").eps
    error = np.abs(results[0] - left @ right)
    if not (error <= allowed + 1e-30).all():
        return f"off by {error.max():.3g}"
    differ = [
        str(count)
        for count, result in zip(counts, results, strict=True)
        if result.tobytes() != results[0].tobytes()
    ]
    return f"other bits on {', '.join(differ)} threads" if differ else ""


def losses() -> list[float]:
    """Return the losses of a small training: epilogues, and gradients of each kind."""
    import numpy as np

    import ganglion as keras

    draw = np.random.default_rng(0)
    x = draw.normal(size=(1024, 100)).astype("f4")
    y = np.tanh(x @ draw.normal(size=(100, 33)) / 10).astype("f4")
    keras.utils.set_random_seed(1)
    hidden = [keras.layers.Dense(size, "gelu") for size in (200, 90)]
    model = keras.Sequential([keras.Input((100,)), *hidden, keras.layers.Dense(33)])
    model.compile("adam", "mse")
    history = model.fit(x, y, batch_size=128, epochs=5, verbose=0)
    return [float(loss) for loss in history.history["loss"]]


def check_all(emulate: bool, counts: list[int]) -> int:
    """Print what is wrong; return how many products that are."""
    import numpy as np

    bad = 0
    with select("AMX", emulate):
        for shape in shapes():
            if text := check(shape, counts):
                print(f"BAD {shape.name}: {text}", flush=True)
                bad += 1
        tiles = losses()
    with select("AVX512-BF16", emulate):
        pairs = losses()
    if not np.allclose(tiles, pairs, rtol=0.02):
        print(f"BAD training: {tiles} instead of {pairs}")
        bad += 1
    count = len(list(shapes()))
    print(f"{count} products on {counts} threads, and a training: {bad} bad")
    print(f"losses by AMX {tiles}\nby AVX512-BF16 {pairs}", flush=True)
    return bad


# ---- times ---------------------------------------------------------------------------


def peak(threads: int) -> float:
    """Return the GFLOP/s of cores whose tiles are neither loaded nor stored."""
    from ganglion.compiler.cpu import jit
    from ganglion.compiler.cpu.products import amx_gemm as amx

    steps = 1 << 18
    lines = [f"declare void @{name}({kinds})" for name, kinds in amx.DECLARED.items()]
    lines += [amx.shapes(), "define void @peak() {", "entry:"]
    lines += [f"  call void @{amx.CONFIGURE}(ptr {amx.SHAPES})"]
    lines += [f"  call void @{amx.ZERO}(i8 {number})" for number in range(8)]
    lines += ["  br label %each", "each:"]
    lines += ["  %i = phi i64 [ 0, %entry ], [ %next, %each ]"]
    lines += [
        f"  call void @{amx.DOT}(i8 {down * 2 + across}, i8 {left}, i8 {right})"
        for down, left in enumerate(amx.LEFT)
        for across, right in enumerate(amx.RIGHT)
    ]
    lines += ["  %next = add i64 %i, 1", f"  %more = icmp ult i64 %next, {steps}"]
    lines += ["  br i1 %more, label %each, label %end", "end:"]
    lines += [f"  call void @{amx.RELEASE}()", "  ret void", "}"]
    library = jit.Library(jit.object_code(["\n".join(lines)], jit.host()))
    run = ctypes.CFUNCTYPE(None)(library.address("peak"))
    best = 0.0
    for _ in range(5):
        own = [threading.Thread(target=run) for _ in range(threads)]
        before = time.perf_counter()
        for thread in own:
            thread.start()
        for thread in own:
            thread.join()
        seconds = time.perf_counter() - before
        best = max(best, threads * steps * 4 * 2 * 16 * 16 * 32 / seconds / 1e9)
    return best


def timed(shape: Shape, threads: int, emulate: bool) -> list[float]:
    """Return the GFLOP/s of each way to multiply."""
    a, b = operands(shape)
    runs: list[Callable[[int], Any]] = []
    for way in WAYS:
        with select(way, emulate):
            program = program_of(a, b, shape)
        program.forced_threads = threads
        runs.append(lambda times, p=program: p.run({}, {"a": a, "b": b}, times))
    best = [float("inf")] * len(WAYS)
    times = []
    for run in runs:
        run(2)
        before = time.perf_counter()
        run(2)
        seconds = (time.perf_counter() - before) / 2
        times.append(max(2, min(1000, int(0.02 / seconds))))
    for _ in range(ROUNDS):
        for number, run in enumerate(runs):
            run(1)
            before = time.perf_counter()
            run(times[number])
            seconds = (time.perf_counter() - before) / times[number]
            best[number] = min(best[number], seconds)
    return [shape.flops / seconds / 1e9 for seconds in best]


def time_all(counts: list[int], only: str, emulate: bool) -> None:
    """Print the GFLOP/s of some products, a row each."""
    if not emulate:
        figures = (f"{peak(count):,.0f} on {count}" for count in counts)
        print(f"tiles in registers alone, GFLOP/s: {', '.join(figures)} threads")
    print(f"{'product':28} {'threads':>7} " + " ".join(f"{way:>12}" for way in WAYS))
    for shape in TIMED:
        for count in counts if only in shape.name else ():
            speeds = timed(shape, count, emulate)
            row = " ".join(f"{speed:12,.0f}" for speed in speeds)
            print(f"{shape.name:28} {count:7} {row}", flush=True)


def main() -> int:
    """Check, then time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 16))
    parser.add_argument("--only", default="", help="timed products with this in a name")
    parser.add_argument("--tune", nargs="*", default=[], help="constants: name=value")
    parser.add_argument("--emulate", action="store_true", help="without a processor")
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--no-times", action="store_true")
    options = parser.parse_args()
    os.environ["GANGLION_HOME"] = tempfile.mkdtemp()
    os.environ["GANGLION_THREADS"] = str(options.threads)
    tune(options.tune)
    from ganglion.compiler.cpu import features
    from ganglion.race import machine

    print(f"{machine.processor()}; bf16: {features.bf16()}", flush=True)
    if features.amx_unavailable_reason() and not options.emulate:
        print(f"AMX cannot be used: {features.amx_unavailable_reason()}")
        return 2
    began, bad = time.perf_counter(), 0
    if not options.no_checks:
        counts = [n for n in (1, 2, 3, 5, 8, 16) if n <= options.threads]
        bad = check_all(options.emulate, counts)
        print(f"{time.perf_counter() - began:.0f} s", flush=True)
    if not options.no_times:
        counts = sorted({1, options.threads})
        time_all(counts, options.only, options.emulate)
    print(f"{time.perf_counter() - began:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
