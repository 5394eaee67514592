"""Times matrix products beside NumPy's (OpenBLAS) and PyTorch's (oneDNN or MKL).

    python tests/support/product_sweep.py --threads 1
    python tests/support/product_sweep.py --threads 2 --only 256x1024x4096

Engines take turns; a row has the best GFLOP/s of each, and the ratio of Ganglion to the
better of the others: the median over the rounds. Processor time is counted on one
thread, so that other work on the machine does not show; several threads are timed by
the clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SQUARES = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
# Rows, inner, columns of layers: forward, gradient of the input, of the weights.
LAYERS = (
    (32, 20, 64), (32, 64, 64), (64, 128, 128), (128, 784, 512), (128, 512, 10),
    (256, 1024, 4096), (256, 4096, 4096), (256, 4096, 1000),
    (10000, 784, 128), (10000, 1024, 4096), (100, 100, 100), (1000, 1000, 1000),
    (33, 4097, 300), (8, 1024, 1024), (4096, 64, 4096), (4096, 4096, 64),
)  # fmt: skip
MIN_SECONDS, MOST_SECONDS = 0.01, 2.0  # of a run, and of an engine in all


class Shape(NamedTuple):
    """A product: its sizes, and which operands are transposed ("nn", "tn", "nt")."""

    rows: int
    inner: int
    columns: int
    layout: str

    @property
    def name(self) -> str:
        """The sizes and the layout."""
        return f"{self.rows}x{self.inner}x{self.columns} {self.layout}"

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.rows * self.inner * self.columns


def shapes() -> Iterator[Shape]:
    """Yield the products of the sweep."""
    for size in SQUARES:
        for layout in ("nn", "nt", "tn") if size in (256, 1024) else ("nn",):
            yield Shape(size, size, size, layout)
    for rows, inner, columns in LAYERS:
        yield Shape(rows, inner, columns, "nn")
        if rows <= 1000:
            yield Shape(rows, columns, inner, "nt")
            yield Shape(inner, rows, columns, "tn")


def operands(shape: Shape) -> tuple[Any, Any]:
    """Return both operands as they lie in memory."""
    import numpy as np

    draw = np.random.default_rng(0)
    left, right = (shape.rows, shape.inner), (shape.inner, shape.columns)
    left = left[::-1] if shape.layout[0] == "t" else left
    right = right[::-1] if shape.layout[1] == "t" else right
    a, b = (draw.standard_normal(size, "f4") for size in (left, right))
    return a, b


def turned(a: Any, b: Any, layout: str) -> tuple[Any, Any]:
    """Return both operands as they are multiplied."""
    return (a.T if layout[0] == "t" else a), (b.T if layout[1] == "t" else b)


Run = Callable[[int], None]  # multiplies so many times


def with_ganglion(a: Any, b: Any, shape: Shape, threads: int) -> Run:
    """Return a run of the product's kernels, without the copy of the result."""
    from dataclasses import replace

    from ganglion.compiler.cpu import backend, pipeline
    from ganglion.compiler.cpu.plan import block, place_barriers, place_in_arena
    from ganglion.compiler.ir.contraction import matmul
    from ganglion.compiler.ir.graph import Graph, Input
    from ganglion.compiler.ir.program import Program
    from ganglion.compiler.ir.shaping import transpose

    inputs = [Input("a", a.shape, a.dtype), Input("b", b.shape, b.dtype)]
    seen = [
        transpose(value, axes=(1, 0)) if turn == "t" else value
        for value, turn in zip(inputs, shape.layout, strict=True)
    ]
    graph = Graph.of("product", inputs, {"y": matmul(*seen)})
    plan = pipeline.build(Program(graph, (), ("a", "b"), ("y",)), "column-sums")
    kernels = tuple(kernel for kernel in plan.kernels if kernel.name != "result")
    plan = block(replace(plan, kernels=kernels, results={}))
    program = backend.CompiledProgram(place_barriers(place_in_arena(plan)))
    program.forced_threads = threads

    def run(times: int) -> None:
        program.run({}, {"a": a, "b": b}, times)

    return run


def with_numpy(a: Any, b: Any, shape: Shape, threads: int) -> Run:
    """Return a run of NumPy's product."""
    import numpy as np

    left, right = turned(a, b, shape.layout)
    out = np.empty((shape.rows, shape.columns), a.dtype)

    def run(times: int) -> None:
        for _ in range(times):
            np.matmul(left, right, out)

    return run


def with_torch(a: Any, b: Any, shape: Shape, threads: int) -> Run:
    """Return a run of PyTorch's product."""
    import torch

    torch.set_num_threads(threads)
    left, right = turned(torch.from_numpy(a), torch.from_numpy(b), shape.layout)
    out = torch.empty(shape.rows, shape.columns)

    def run(times: int) -> None:
        for _ in range(times):
            torch.mm(left, right, out=out)

    return run


ENGINES = {"ganglion": with_ganglion, "numpy": with_numpy, "torch": with_torch}


def measured(shape: Shape, threads: int, rounds: int) -> dict[str, list[float]]:
    """Return the GFLOP/s of each engine, round by round."""
    clock = time.process_time if threads == 1 else time.perf_counter
    a, b = operands(shape)
    runs = {name: start(a, b, shape, threads) for name, start in ENGINES.items()}
    times = {}
    for name, run in runs.items():
        run(1)
        before = clock()
        run(1)
        times[name] = 1 + int(MIN_SECONDS / max(clock() - before, 1e-6))
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    began = time.perf_counter()
    for number in range(rounds):
        for name, run in runs.items():
            before = clock()
            run(times[name])
            seconds = (clock() - before) / times[name]
            speeds[name].append(shape.flops / seconds / 1e9)
        if number >= 2 and time.perf_counter() - began > MOST_SECONDS * len(runs):
            break
    return speeds


def main() -> None:
    """Print a table, a product a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="names that contain this text")
    options = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    print(f"| product | {' | '.join(ENGINES)} | ratio |", flush=True)
    print("|---|" + "---:|" * (len(ENGINES) + 1))
    for shape in shapes():
        if options.only not in shape.name:
            continue
        speeds = measured(shape, options.threads, options.rounds)
        ours, *others = speeds.values()
        rivals = map(max, zip(*others, strict=True))
        ratios = [mine / best for mine, best in zip(ours, rivals, strict=True)]
        row = " | ".join(f"{max(each):.1f}" for each in speeds.values())
        print(f"| {shape.name} | {row} | {statistics.median(ratios):.2f} |", flush=True)


if __name__ == "__main__":
    main()
