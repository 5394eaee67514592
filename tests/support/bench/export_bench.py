"""Exported models beside ONNX Runtime and PyTorch: latency of a row, throughput.

    python tests/support/bench/export_bench.py --networks mnist-mlp --threads 1

Every engine in its fastest way: Ganglion's object file for this machine, and its C99
file by `gcc -O3 -march=native`; ONNX Runtime on the exported ONNX file; PyTorch
compiled (`torch.compile`). Engines take turns; what is told is the median of the
rounds, in processor time for one thread, as that is fair on a machine in use, and in
time of the clock for several. Sizes are those of the files.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ganglion as keras
from ganglion import datasets, recipes
from ganglion.export import export_model

sys.path.insert(0, str(Path(__file__).parents[1]))

from exported_models import Shared, compile_c, link

BATCHES = (1, 16, 64, 256, 1024)  # that rivals choose their fastest of
LITE = "efficientnet-lite0"


class Engine(NamedTuple):
    """A model that is ready: one row, many rows, and the bytes that it takes."""

    row: Callable[[], Any]
    rows: Callable[[], Any]
    size: int


def built(name: str) -> tuple[Any, np.ndarray]:
    """Return a network, and rows for it: digits, or noise of the size of ImageNet's."""
    rng = np.random.default_rng(0)
    if name == LITE:
        model = keras.applications.EfficientNetLite0(weights=None)
        return model, rng.random((64, 224, 224, 3), np.float32) * 255
    (x, y), (x_test, _) = datasets.mnist.load_data()
    recipe = recipes.get(name)
    model = recipes.build(recipe)
    shape = (-1, *recipe.input_shape)
    labels = np.eye(10, dtype="float32")[y] if recipe.one_hot else y
    model.fit(x[:12_800].reshape(shape), labels[:12_800], batch_size=128, verbose=0)
    return model, np.ascontiguousarray(x_test.reshape(shape), np.float32)


def native(
    path: Path, library: Path, model: Any, x: np.ndarray, threads: int
) -> Engine:
    """Return one of ours: threads have equal parts of the rows."""
    name = path.stem
    shared = Shared(library, name, model)
    predict, batch = (getattr(shared._library, f"{name}_predict{kind}")
                      for kind in ("", "_batch"))  # fmt: skip
    predict.restype = batch.restype = None
    out = np.empty((len(x), *model.outputs[0].shape[1:]), np.float32)
    size = len(shared._workspace)
    memory = [ctypes.create_string_buffer(size) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads)
    bounds = np.linspace(0, len(x), threads + 1).astype(int)

    def address(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def part(thread: int) -> None:
        low, high = int(bounds[thread]), int(bounds[thread + 1])
        rows = ctypes.c_size_t(high - low)
        batch(address(x[low:]), address(out[low:]), rows, memory[thread])

    first = (address(x), address(out), memory[0])
    many = (lambda: part(0)) if threads == 1 else (
        lambda: list(pool.map(part, range(threads)))
    )  # fmt: skip
    return Engine(lambda: predict(*first), many, path.stat().st_size)


def onnx(path: Path, x: np.ndarray, threads: int) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options)
    name = session.get_inputs()[0].name
    return _by_batches(
        lambda part: session.run(None, {name: part}), x, path.stat().st_size
    )


def torch_compiled(name: str, model: Any, x: np.ndarray, threads: int) -> Engine:
    import torch

    torch.set_num_threads(threads)
    torch._dynamo.reset()
    net, images = _torch_network(torch, name, model, x)
    net = torch.compile(net.eval(), dynamic=False)
    size = 4 * model.count_params()

    def run(part: Any) -> Any:
        with torch.inference_mode():
            return net(part)

    return _by_batches(run, images, size)


def _torch_network(torch: Any, name: str, model: Any, x: np.ndarray) -> tuple[Any, Any]:
    if name == LITE:
        from efficientnet_lite_pytorch import EfficientNet

        net = EfficientNet.from_name(LITE)
        images = torch.from_numpy(x).movedim(-1, 1).contiguous()
        last = torch.channels_last
        return net.to(memory_format=last), images.to(memory_format=last)
    from ganglion.race.engines.torch_layers import stacked, write_weights

    recipe = recipes.get(name)
    layers = [
        (kind, {k: v for k, v in arguments.items() if v != "softmax"})
        for kind, arguments in recipe.layers[int(recipe.takes_pixels) :]
        if arguments.get("activation") != "softmax" or kind != "activation"
    ]
    weights = [np.asarray(weight) for weight in model.get_weights()]
    net = stacked(layers, len(recipe.input_shape), iter(weights))
    write_weights(net, weights)
    images = torch.from_numpy(x / 255)
    images = images.movedim(-1, 1).contiguous() if x.ndim == 4 else images
    return torch.nn.Sequential(net, torch.nn.Softmax(-1)), images


def _by_batches(run: Callable[[Any], Any], x: Any, size: int) -> Engine:
    """Return a rival; its many rows go in batches of the size that is fastest."""

    def rows(batch: int) -> None:
        for start in range(0, len(x) - batch + 1, batch):
            run(x[start : start + batch])

    def seconds(batch: int) -> float:
        rows(batch)  # compiled, and warm
        start = time.perf_counter()
        rows(batch)
        return time.perf_counter() - start

    batches = [batch for batch in BATCHES if len(x) % batch == 0 or batch < len(x) // 4]
    fastest = min(batches, key=seconds)
    one = x[:1]
    run(one)
    return Engine(lambda: run(one), lambda: rows(fastest), size)


def engines(name: str, folder: Path, threads: int, chosen: list[str]) -> dict[str, Any]:
    model, x = built(name)
    stem = name.replace("-", "_")
    ready: dict[str, Any] = {}
    for engine in chosen:
        try:
            if engine == "native":
                export_model(model, folder / f"{stem}.o")
                library = link(folder / f"{stem}.o")
                ready[engine] = native(folder / f"{stem}.o", library, model, x, threads)
            elif engine == "c99":
                export_model(model, folder / f"{stem}_c.c")
                library = compile_c(folder / f"{stem}_c.c", "-O3", "-march=native")
                ready[engine] = native(library, library, model, x, threads)
            elif engine == "onnxruntime":
                export_model(model, folder / f"{stem}.onnx")
                ready[engine] = onnx(folder / f"{stem}.onnx", x, threads)
            else:
                ready[engine] = torch_compiled(name, model, x, threads)
        except ImportError as error:
            print(f"  {engine}: {error}", file=sys.stderr)
    return {"engines": ready, "rows": len(x)}


def timed(
    calls: dict[str, Callable[[], Any]], rounds: int, least: float, clock: Any
) -> dict[str, float]:
    """Return the median time of each call; engines take turns."""
    counts: dict[str, int] = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(least / max(time.perf_counter() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            for _ in range(counts[name]):
                call()
            times[name].append((clock() - start) / counts[name])
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print a table a network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["mnist-mlp", "mnist-cnn", LITE]
    parser.add_argument("--networks", nargs="+", default=names)
    every = ["native", "c99", "onnxruntime", "torch"]
    parser.add_argument("--engines", nargs="+", default=every, choices=every)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    clock = time.process_time if asked.threads == 1 else time.perf_counter
    for name in asked.networks:
        with tempfile.TemporaryDirectory() as folder:
            made = engines(name, Path(folder), asked.threads, asked.engines)
            ready = made["engines"]
            row = timed({k: e.row for k, e in ready.items()}, asked.rounds, 0.02, clock)
            many = timed(
                {k: e.rows for k, e in ready.items()}, asked.rounds, 0.2, clock
            )
        print(f"{name}, {asked.threads} thread(s), {made['rows']} rows")
        for engine, best in ready.items():
            rate = made["rows"] / many[engine]
            print(
                f"  {engine:12} {row[engine] * 1e6:10.1f} us a row   "
                f"{rate:12,.0f} rows/s   {best.size / 1e6:6.2f} MB"
            )


if __name__ == "__main__":
    main()
