"""Times matrix products beside NumPy's (OpenBLAS) and PyTorch's (oneDNN or MKL).

    python tests/support/bench/product_sweep.py --threads 1
    python tests/support/bench/product_sweep.py --threads 16 --seconds 180
    python tests/support/bench/product_sweep.py --only 4096x4096 --tune inner_block=384

Engines take turns, each in a process of its own; a row has the best GFLOP/s of each,
and the ratio of Ganglion to the better of the others: the median over the rounds.
Processor time is counted on one thread, so that other work on the machine does not
show; several threads are timed by the clock, after a pause in which those of the engine
before go to sleep. `--threads` is what an engine may use at most: each decides how many
it takes for a product.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

SQUARES = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)
TRANSPOSED = (100, 256, 1000, 1024)  # squares that are multiplied transposed, too
# Rows, inner, columns of layers: forward, gradient of the input, of the weights.
LAYERS = (
    (32, 20, 64), (32, 64, 64), (32, 64, 1), (64, 128, 128), (64, 128, 10),
    (128, 784, 512), (128, 512, 512), (128, 512, 10), (128, 1280, 64),
    (256, 1024, 4096), (256, 4096, 4096), (256, 4096, 1000), (100, 100, 100),
    (1000, 1000, 1000), (33, 4097, 300), (8, 1024, 1024), (1, 1024, 1024),
)  # fmt: skip
# Forward only: predictions of many rows, and what is narrow, tall or flat.
OTHERS = (
    (10000, 784, 128), (10000, 64, 64), (10000, 1024, 4096), (4096, 64, 4096),
    (4096, 4096, 64), (100000, 32, 16), (16, 100000, 32), (50, 50, 20000),
)  # fmt: skip
BATCHES = ((32, 64, 64, 64), (128, 50, 32, 50), (16, 256, 64, 256), (8, 512, 512, 512))
MIN_SECONDS, MOST_SECONDS = 0.01, 2.0  # of a run, and of an engine in all


class Shape(NamedTuple):
    """A product: its sizes, and which operands are transposed ("nn", "tn", "nt")."""

    rows: int
    inner: int
    columns: int
    layout: str = "nn"
    batch: int = 1

    @property
    def name(self) -> str:
        """The sizes and the layout."""
        sizes = (*([self.batch] if self.batch > 1 else []), *self[:3])
        return f"{'x'.join(map(str, sizes))} {self.layout}"

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.rows * self.inner * self.columns


def shapes() -> Iterator[Shape]:
    """Yield the products of the sweep."""
    for size in SQUARES:
        for layout in ("nn", "nt", "tn") if size in TRANSPOSED else ("nn",):
            yield Shape(size, size, size, layout)
    for rows, inner, columns in LAYERS:
        yield Shape(rows, inner, columns)
        yield Shape(rows, columns, inner, "nt")
        yield Shape(inner, rows, columns, "tn")
    for rows, inner, columns in OTHERS:
        yield Shape(rows, inner, columns)
    for batch, rows, inner, columns in BATCHES:
        for layout in ("nn", "nt", "tn"):
            yield Shape(rows, inner, columns, layout, batch)


def operands(shape: Shape) -> tuple[Any, Any]:
    """Return both operands as they lie in memory."""
    import numpy as np

    draw = np.random.default_rng(0)
    left, right = (shape.rows, shape.inner), (shape.inner, shape.columns)
    left = left[::-1] if shape.layout[0] == "t" else left
    right = right[::-1] if shape.layout[1] == "t" else right
    outer = (shape.batch,) if shape.batch > 1 else ()
    a, b = (draw.standard_normal((*outer, *size), "f4") for size in (left, right))
    return a, b


def transposed(a: Any, b: Any, layout: str) -> tuple[Any, Any]:
    """Return both operands as they are multiplied."""
    return (a.mT if layout[0] == "t" else a), (b.mT if layout[1] == "t" else b)


Run = Callable[[int], None]  # multiplies so many times


def program_of(a: Any, b: Any, shape: Shape) -> Any:
    """Return the product's kernels as a program, without the copy of the result."""
    from dataclasses import replace

    from ganglion.compiler.cpu import backend, pipeline
    from ganglion.compiler.cpu.passes.barriers import place_barriers
    from ganglion.compiler.cpu.passes.cache_blocking import block
    from ganglion.compiler.cpu.plan import place_in_arena
    from ganglion.compiler.ir.contraction import matmul
    from ganglion.compiler.ir.graph import Graph, Input, Program
    from ganglion.compiler.ir.shaping import transpose

    inputs = [Input("a", a.shape, a.dtype), Input("b", b.shape, b.dtype)]
    outer = a.ndim - 2
    axes = (*range(outer), outer + 1, outer)
    seen = [
        transpose(value, axes=axes) if letter == "t" else value
        for value, letter in zip(inputs, shape.layout, strict=True)
    ]
    graph = Graph.of("product", inputs, {"y": matmul(*seen)})
    plan = pipeline.build(Program(graph, (), ("a", "b"), ("y",)), "column-sums")
    kernels = tuple(kernel for kernel in plan.kernels if kernel.name != "result")
    plan = block(replace(plan, kernels=kernels, results={}))
    return backend.CompiledProgram(place_barriers(place_in_arena(plan)))


def with_ganglion(a: Any, b: Any, shape: Shape) -> Run:
    """Return a run of the product's kernels."""
    program = program_of(a, b, shape)

    def run(times: int) -> None:
        program.run({}, {"a": a, "b": b}, times)

    return run


def with_numpy(a: Any, b: Any, shape: Shape) -> Run:
    """Return a run of NumPy's product."""
    import numpy as np

    left, right = transposed(a, b, shape.layout)
    out = np.empty((*a.shape[:-2], shape.rows, shape.columns), a.dtype)

    def run(times: int) -> None:
        for _ in range(times):
            np.matmul(left, right, out)

    return run


def with_torch(a: Any, b: Any, shape: Shape) -> Run:
    """Return a run of PyTorch's product."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    left, right = map(torch.from_numpy, (a, b))
    left, right = transposed(left, right, shape.layout)
    out = torch.empty(*a.shape[:-2], shape.rows, shape.columns)

    def run(times: int) -> None:
        for _ in range(times):
            torch.matmul(left, right, out=out)

    return run


ENGINES = {"ganglion": with_ganglion, "numpy": with_numpy, "torch": with_torch}


def serve(name: str, clock: Callable[[], float]) -> None:
    """Multiply as each line says; print how many times, then the seconds of a turn."""
    run: Run = lambda times: None  # noqa: E731
    times = 0
    for line in sys.stdin:
        if sizes := json.loads(line):
            shape = Shape(*sizes)
            run = ENGINES[name](*operands(shape), shape)
            times = _enough(run, clock)
            print(times, flush=True)
            continue
        run(1)  # wakes the threads
        before = clock()
        run(times)
        print((clock() - before) / times, flush=True)


class Engine:
    """A process that multiplies when it is told to."""

    def __init__(self, name: str, threads: int, tuned: list[str]) -> None:
        counts = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        limits = dict.fromkeys((*counts, "GANGLION_THREADS"), str(threads))
        options = ["--threads", str(threads), "--tune", *tuned]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | limits,
        )

    def _ask(self, what: object) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.send_signal(signal.SIGCONT)
        print(json.dumps(what), file=self._process.stdin, flush=True)
        answer = float(self._process.stdout.readline())
        self._process.send_signal(signal.SIGSTOP)  # its threads may spin on and on
        return answer

    def prepare(self, shape: Shape) -> None:
        """Get ready for a product."""
        self._ask(shape)

    def seconds(self) -> float:
        """Return how long a product takes."""
        return self._ask(None)


def measured(
    engines: dict[str, Engine], shape: Shape, rounds: int, most_seconds: float
) -> dict[str, list[float]]:
    """Return the GFLOP/s of each engine, round by round."""
    for engine in engines.values():
        engine.prepare(shape)
    speeds: dict[str, list[float]] = {name: [] for name in engines}
    began = time.perf_counter()
    for number in range(rounds):
        if number and time.perf_counter() - began > most_seconds * number / (
            number + 1
        ):
            break  # another one would take too long
        for name, engine in engines.items():
            speeds[name].append(shape.flops / engine.seconds() / 1e9)
    return speeds


def _enough(run: Run, clock: Callable[[], float]) -> int:
    """Return how many products take as long as a clock needs to be exact.

    Of two runs: one may have waited for threads to wake, or tried numbers of them.
    """
    times = 1
    while True:
        seconds = []
        for _ in range(2):
            before = clock()
            run(times)
            seconds.append(clock() - before)
        if min(seconds) >= MIN_SECONDS / 2:
            return times
        times *= 2


# ---- what one core can do at most ----------------------------------------------------

SUMS, STEPS = 24, 1 << 24  # vectors that are added to, and how often: for 0.1 s
VECTOR = "<16 x float>"


def _text() -> str:
    """Return a function that multiplies and adds in registers alone."""
    fma, end = "@llvm.fma.v16f32", "ptr %p, align 4"
    lines = [f"declare {VECTOR} {fma}({VECTOR}, {VECTOR}, {VECTOR})"]
    lines += ["define void @peak(ptr %p) {"]
    # All sums are loaded for themselves, or LLVM would see that they are equal.
    names = range(SUMS)
    lines += [f"  %first{n} = load volatile {VECTOR}, {end}" for n in names]
    lines += [f"  %x = load volatile {VECTOR}, {end}", "  br label %loop", "loop:"]
    lines += ["  %i = phi i64 [0, %0], [%next, %loop]"]
    for n in names:
        lines += [f"  %s{n} = phi {VECTOR} [%first{n}, %0], [%t{n}, %loop]"]
    for n in names:
        passed = f"{VECTOR} %x, {VECTOR} %x, {VECTOR} %s{n}"
        lines += [f"  %t{n} = call {VECTOR} {fma}({passed})"]
    lines += ["  %next = add i64 %i, 1", f"  %more = icmp slt i64 %next, {STEPS}"]
    lines += ["  br i1 %more, label %loop, label %end", "end:"]
    lines += [f"  store volatile {VECTOR} %t{n}, {end}" for n in names]
    return "\n".join([*lines, "  ret void", "}"])


def peak(threads: int) -> float:
    """Return the GFLOP/s of cores that neither load nor store, all at once."""
    import numpy as np

    from ganglion.compiler.cpu import jit

    library = jit.Library(jit.object_code([_text()], jit.host()))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("peak"))
    best = 0.0
    for _ in range(10):  # a virtual machine's cores may be two a core at first
        numbers = np.zeros((threads, 16), np.float32)
        own = [threading.Thread(target=run, args=(n.ctypes.data,)) for n in numbers]
        before = time.perf_counter()
        for thread in own:
            thread.start()
        for thread in own:
            thread.join()
        seconds = time.perf_counter() - before
        best = max(best, threads * 2 * 16 * SUMS * STEPS / seconds / 1e9)
    return best


def tune(settings: list[str]) -> None:
    """Replace tuning constants before anything reads them."""
    from ganglion.compiler.cpu.tuning import CPU

    for setting in settings:
        name, value = setting.split("=")
        if not hasattr(CPU, name):
            raise SystemExit(f"--tune: CpuTuning has no {name}")
        object.__setattr__(CPU, name, int(value))


def main() -> None:
    """Print a table, a product a row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, help="what all may take, about")
    parser.add_argument("--only", default="", help="names with one of these, by commas")
    parser.add_argument("--most", type=float, default=2e12, help="flops of a product")
    parser.add_argument("--tune", nargs="*", default=[], help="constants: name=value")
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tune:  # what was compiled for other constants is of no use
        os.environ["GANGLION_HOME"] = tempfile.mkdtemp()
        tune(options.tune)
    if options.serve:
        clock = time.process_time if options.threads == 1 else time.perf_counter
        serve(options.serve, clock)
        return
    began = time.perf_counter()
    wanted = options.only.split(",")
    chosen = [s for s in shapes() if any(part in s.name for part in wanted)]
    chosen = [shape for shape in chosen if shape.flops <= options.most]
    limit = peak(options.threads)
    engines = {name: Engine(name, options.threads, options.tune) for name in ENGINES}
    print(f"{options.threads} threads; registers alone: {limit:.0f} GFLOP/s\n")
    print(f"| product | {' | '.join(ENGINES)} | ratio | of peak |", flush=True)
    print("|---|" + "---:|" * (len(ENGINES) + 2))
    by_shape: list[tuple[float, str]] = []
    for number, shape in enumerate(chosen):
        most = MOST_SECONDS * len(ENGINES)
        if options.seconds:
            left = options.seconds - (time.perf_counter() - began)
            most = min(most, max(left, 0.0) / (len(chosen) - number))
        speeds = measured(engines, shape, options.rounds, most)
        ours, *others = speeds.values()
        rivals = map(max, zip(*others, strict=True))
        ratios = [mine / best for mine, best in zip(ours, rivals, strict=True)]
        by_shape.append((statistics.median(ratios), shape.name))
        row = " | ".join(f"{max(each):.1f}" for each in speeds.values())
        share = f"{by_shape[-1][0]:.2f} | {max(ours) / limit:.2f}"
        print(f"| {shape.name} | {row} | {share} |", flush=True)
    below = [f"{name} {ratio:.2f}" for ratio, name in sorted(by_shape) if ratio < 0.9]
    mean = statistics.geometric_mean(ratio for ratio, _ in by_shape)
    print(f"\nGeometric mean of the ratios: {mean:.2f}; below 0.9: ", end="")
    print(", ".join(below) or "none", f"({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
