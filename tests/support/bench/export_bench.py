"""Exported models beside ONNX Runtime and PyTorch: latency of a row, throughput.

    python tests/support/bench/export_bench.py
    python tests/support/bench/export_bench.py --networks mnist-mlp --engines native c99

Every engine in its fastest way: Ganglion's object file for this machine; ONNX Runtime
on the exported ONNX file; PyTorch compiled (`torch.compile`, weights frozen); on
request, Ganglion's C99 file by `gcc -O3 -march=native`. All have the same weights, and
must predict the same. Engines take turns; what is printed is the median of the rounds,
in processor time for one thread, as that is fair on a machine in use, and in time of
the clock for several. Sizes are those of the files; PyTorch's is that of its weights.
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
SETTLE_SECONDS = 0.05  # in which threads of the engine before stop to spin
TOLERANCE = 1e-4


class Engine(NamedTuple):
    """A model that is ready: one row, all rows, and the bytes that it takes."""

    row: Callable[[], Any]  # returns what it predicts
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

    def row() -> np.ndarray:
        predict(*first)
        return out[:1]

    many = (lambda: part(0)) if threads == 1 else (
        lambda: list(pool.map(part, range(threads)))
    )  # fmt: skip
    return Engine(row, many, path.stat().st_size)


def onnx(path: Path, x: np.ndarray, threads: int) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options)
    name = session.get_inputs()[0].name
    return _by_batches(
        lambda part: session.run(None, {name: part})[0], x, path.stat().st_size
    )


def torch_compiled(name: str, model: Any, x: np.ndarray, threads: int) -> Engine:
    import torch

    torch.set_num_threads(threads)
    torch._dynamo.reset()
    net, images = _torch_network(torch, name, model, x)
    net = torch.compile(net.eval(), dynamic=False, options={"freezing": True})

    def run(part: Any) -> Any:
        with torch.no_grad():
            return net(part)

    return _by_batches(run, images, 4 * model.count_params())


def _torch_network(torch: Any, name: str, model: Any, x: np.ndarray) -> tuple[Any, Any]:
    if name == LITE:
        last = torch.channels_last
        images = torch.from_numpy(x).movedim(-1, 1)
        return _torch_lite(torch, model).to(memory_format=last), images
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


def _torch_lite(torch: Any, model: Any) -> Any:
    """Return EfficientNet-Lite0 with the weights of a model."""
    nn = torch.nn

    def module(layer: Any) -> Any:
        kind, config = type(layer).__name__, layer.get_config()
        if kind in ("Conv2D", "DepthwiseConv2D"):
            size, (stride, _) = layer.kernel_size[0], layer.strides
            inner, outer = layer.input.shape[-1], layer.output.shape[-1]
            groups = inner if kind == "DepthwiseConv2D" else 1
            # Of an even number of pixels, "same" pads the end more than the start.
            pad = (size - stride + 1) // 2 if stride > 1 else size // 2
            pads = (size - stride - pad, pad) if stride > 1 else (pad, pad)
            conv = nn.Conv2d(inner, outer, size, stride, groups=groups, bias=False)
            if pads[0] == pads[1]:
                conv.padding = (pads[0], pads[0])
                return conv
            return nn.Sequential(nn.ZeroPad2d(2 * pads), conv)
        if kind == "BatchNormalization":
            return nn.BatchNorm2d(layer.output.shape[-1], eps=config["epsilon"])
        if kind == "GlobalAveragePooling2D":
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        if kind == "Dense":
            linear = nn.Linear(layer.input.shape[-1], layer.units)
            return nn.Sequential(linear, nn.Softmax(-1))
        return nn.ReLU6() if kind == "ReLU" else nn.Identity()

    class Lite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = model.layers[1:]
            self.parts = nn.ModuleList(map(module, layers))
            self.adds = [type(layer).__name__ == "Add" for layer in layers]
            places = {id(model.input): 0}
            for number, layer in enumerate(layers, 1):
                places[id(layer.output)] = number
            self.sources = [
                [places[id(tensor)] for tensor in keras.tree.flatten(layer.input)]
                for layer in layers
            ]

        def forward(self, x: Any) -> Any:
            values = [x]
            for part, adds, sources in zip(
                self.parts, self.adds, self.sources, strict=True
            ):
                read = [values[source] for source in sources]
                values.append(read[0] + read[1] if adds else part(read[0]))
            return values[-1]

    from ganglion.race.engines.torch_layers import write_weights

    net = Lite()
    write_weights(net, [np.asarray(weight) for weight in model.get_weights()])
    return net


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
    return Engine(lambda: run(one), lambda: rows(fastest), size)


def engines(
    chosen: list[str], name: str, model: Any, x: np.ndarray, folder: Path, threads: int
) -> dict[str, Engine]:
    """Return the engines that are here; all predict what the model does."""
    stem = name.replace("-", "_")
    wanted = model.predict(x[:1], verbose=0)
    ready: dict[str, Engine] = {}
    for engine in chosen:
        try:
            if engine == "native":
                path = folder / f"{stem}.o"
                if not path.exists():
                    export_model(model, path)
                ready[engine] = native(path, link(path), model, x, threads)
            elif engine == "c99":
                library = folder / f"{stem}_c.so"
                if not library.exists():
                    export_model(model, folder / f"{stem}_c.c")
                    compile_c(folder / f"{stem}_c.c", "-O3", "-march=native")
                ready[engine] = native(library, library, model, x, threads)
            elif engine == "onnxruntime":
                path = folder / f"{stem}.onnx"
                if not path.exists():
                    export_model(model, path)
                ready[engine] = onnx(path, x, threads)
            else:
                ready[engine] = torch_compiled(name, model, x, threads)
        except ImportError as error:
            print(f"  {engine}: {error}", file=sys.stderr)
            continue
        predicted = np.asarray(ready[engine].row())
        np.testing.assert_allclose(predicted, wanted, atol=TOLERANCE, err_msg=engine)
    return ready


def timed(
    calls: dict[str, Callable[[], Any]], rounds: int, counts: dict[str, int], clock: Any
) -> dict[str, float]:
    """Return the median time of each call; engines take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(SETTLE_SECONDS)
            call()
            start = clock()
            for _ in range(counts[name]):
                call()
            times[name].append((clock() - start) / counts[name])
    return {name: statistics.median(values) for name, values in times.items()}


def calls_within(call: Callable[[], Any], seconds: float) -> int:
    """Return how many calls take some seconds."""
    call()
    start = time.perf_counter()
    call()
    return max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))


def print_table(
    ready: dict[str, Engine], passes: int, rows: int, rounds: int, clock: Any
) -> None:
    """Time all engines, and print a line for each."""
    counts = {name: calls_within(engine.row, 0.02) for name, engine in ready.items()}
    row = timed({k: e.row for k, e in ready.items()}, rounds, counts, clock)
    # Many passes are shared out among the rounds.
    counts = dict.fromkeys(ready, -(-passes // rounds))
    many = timed({k: e.rows for k, e in ready.items()}, rounds, counts, clock)
    for name, engine in ready.items():
        line = (
            f"  {name:12} {row[name] * 1e6:10.1f} us a row   "
            f"{rows / many[name]:12,.0f} rows/s   {engine.size / 1e6:6.2f} MB"
        )
        if "onnxruntime" in ready and name != "onnxruntime":
            faster, more = (t["onnxruntime"] / t[name] for t in (row, many))
            line += f"   {faster:.2f} and {more:.2f} times onnxruntime"
        print(line, flush=True)


def main() -> None:
    """Print a table for each network and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["mnist-mlp", "mnist-cnn", LITE]
    parser.add_argument("--networks", nargs="+", default=names, choices=names)
    every = ["native", "c99", "onnxruntime", "torch"]
    usual = ["native", "onnxruntime", "torch"]
    parser.add_argument("--engines", nargs="+", default=usual, choices=every)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--rows", type=int, default=10_000, help="to measure throughput with"
    )
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(max(asked.threads))
    for name in asked.networks:
        model, x = built(name)
        x = x[: asked.rows]
        with tempfile.TemporaryDirectory() as folder:
            for threads in asked.threads:
                ready = engines(asked.engines, name, model, x, Path(folder), threads)
                passes = -(-asked.rows // len(x))
                print(f"{name}, {threads} thread(s), {passes * len(x):,} rows")
                clock = time.process_time if threads == 1 else time.perf_counter
                print_table(ready, passes, len(x), asked.rounds, clock)


if __name__ == "__main__":
    main()
