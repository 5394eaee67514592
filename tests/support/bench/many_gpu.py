"""Many models on a GPU: bits, microseconds of each launch, and rivals.

    python3 tests/support/bench/many_gpu.py --networks mnist,tabular --rivals jax,torch
    python3 tests/support/bench/many_gpu.py --networks mnist --variants

The networks of `many_bench.py`, 64 on digits drawn at random and 256 tabular ones. For
each of them: whether three models have the bits of each alone; microseconds of a step
of all models, and of each of its launches, by the device's clock; model-steps a second
of `fit_many`, the second call of two. JAX (`vmap` over a `scan`) and PyTorch (`vmap`
over `grad`, compiled, an epoch as one CUDA graph) are timed in processes of their own.
With `--variants`, only bits and launches: with each thing that is done for many models
left out, with all of them left out, and with other tiles.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import many_bench
import numpy as np

_SUPPORT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_SUPPORT), str(_SUPPORT.parents[1] / "src")]

MODELS = {"mnist": 64, "tabular": 256}
EPOCHS = {"mnist": 20, "tabular": 100}
CHECKED = 3  # models that are trained alone, too
STEPS = 40


def task_of(name: str) -> many_bench.Task:
    network = replace(many_bench.NETWORKS[name], drawn=True)
    return many_bench.Task(network, MODELS[name], 1, EPOCHS[name])


# ---- Ganglion ------------------------------------------------------------------------


def states_of(step: Any, task: many_bench.Task) -> list[dict[str, np.ndarray]]:
    """Return variables for each model, with weights and rates of its own."""
    draws, states = np.random.default_rng(0), []
    for rate in task.network.rates(task.models):
        state = {name: v.array.copy() for name, v in step.variables.items()}
        for name, array in state.items():
            if array.ndim == 2:
                array[...] = draws.normal(size=array.shape) * array.shape[0] ** -0.5
            elif name.endswith("learning_rate"):
                array[...] = rate
        states.append(state)
    return states


def check_and_time(name: str) -> None:
    from device_cuda import described, timed

    from ganglion import config
    from ganglion.compiler.cuda import backend
    from ganglion.compiler.cuda.model_states import ModelRows
    from ganglion.training.data_adapters import Table

    task = task_of(name)
    config.set_backend("numpy")
    model = many_bench.keras_model(task.network, 0.1)
    table = Table(*task.network.data())
    signature = table.signature(task.network.batch, task.network.rows, True)
    step = model._step_cache.traced("train", table, signature)
    program, arrays = step.program, table.arrays()
    data = {key: arrays[key] for key in program.data}
    states, memory = states_of(step, task), backend.memory()
    started = time.time()
    together = backend.CompiledProgram(program, memory, task.models)
    alone = backend.CompiledProgram(program, memory)
    print(f"--- {task.models} of {name}, compiled in {time.time() - started:.1f} s")
    rows = ModelRows(list(states[0].values()), task.models, memory)
    for number, key in enumerate(states[0]):
        rows.array(number)[...] = [state[key] for state in states]
    rows.upload()
    known = rows.states({key: number for number, key in enumerate(states[0])})
    together.run_models(data, known, STEPS)
    rows.download()
    differ = []
    for which in np.linspace(0, task.models - 1, CHECKED, dtype=int):
        alone.run(data, states[which], STEPS)
        for number, (key, array) in enumerate(states[which].items()):
            if rows.array(number)[which].tobytes() != array.tobytes():
                differ.append((int(which), key))
    print("bits differ:" if differ else "bits are equal", *differ)
    driver, steps, epochs = memory.driver, task.network.steps, 5
    place = rows.array(list(states[0]).index("position"))

    def epoch(steps: int = steps) -> None:
        """Take steps from the first row on; there are no rows behind the last one."""
        place[...] = 0
        rows.upload(small=True)
        together.run_models(data, known, steps)

    milliseconds = timed(driver, lambda: [epoch() for _ in range(epochs)], repeats=5)
    each = milliseconds / (epochs * steps) * 1e3
    print(f"{each:.1f} us a step of all, {task.models / each:.2f} million a second")
    if not together.emission.every[0].resident:
        profile(together, driver, timed, described, partial(epoch, 4))


def profile(
    program: Any, driver: Any, timed: Any, described: Any, start: Callable[[], None]
) -> None:
    """Print the microseconds of each launch, again and again on its own."""
    (binding,), repeats = program._bindings.values(), 20
    for number, call in enumerate(program.emission.every):
        start()
        driver.begin_capture()
        for _ in range(repeats):
            program._launch_all(binding, [call], 0)
        graph = driver.end_capture()
        us = timed(driver, lambda g=graph: driver.replay(g), 3) / repeats * 1e3
        launch = program.emission.schedule.every[number]
        kernels = " || ".join(described(fused) for fused in launch.fused_kernels)
        size = f"{call.blocks:4} blocks {call.shared // 1024:4} KB"
        print(f"{number:3} {us:7.1f} us {size}  {kernels[:110]}", flush=True)


# ---- variants ------------------------------------------------------------------------


VARIANTS = {
    "as it is": "",
    "all as for one, but for tiles": "order maps copies groups rows late small",
    "models one after the other": "order",
    "maps as for one": "maps",
    "copies of weights": "copies",
    "copies of rows of the data": "rows",
    "weights transposed beside products": "late",
    "small kernels for the next step where they can be": "small",
    "two blocks on each processor": "lone",
    "all operands for every tile": "right",
    "a group of warps at a time": "groups",
    "two groups at a time": "two",
    "small tiles in short steps": "short",
}


@contextmanager
def variant(words: str) -> Iterator[None]:
    """Compile as named for a while; see `VARIANTS`."""
    from ganglion.compiler.cuda import emit, for_models, tiling
    from ganglion.compiler.cuda.target import TUNING

    tiles, emit_map = tiling.TILES_OF_MODELS, emit.emit_map
    deep = tuple(tile for tile in tiles if tile.depth > 32)
    plain = tuple(tile for tile in tiles if tile.depth == 32)

    def map_of_one(*arguments: Any, models: int = 1) -> Any:
        return emit_map(*arguments)

    changes = {
        "order": [patch.object(emit._Emitter, "_starts_like_blocks", lambda *_: False)],
        "maps": [patch.object(emit, "emit_map", map_of_one)],
        "copies": [patch.object(for_models, "direct_weights", lambda _: {})],
        "rows": [patch.object(for_models, "_gathering_products", lambda *_: {})],
        "late": [patch.object(for_models, "_transpose_later", lambda same: same)],
        "small": [patch.object(for_models, "_places_of_small", lambda _: ())],
        "lone": [patch.object(tiling, "TILES_OF_PROCESSORS", ())],
        "right": [patch.object(tiling, "TILES_WITH_ALL_COLUMNS", ())],
        "groups": [
            patch.object(TUNING, "most_sums_of_thread", 0),
            patch.object(TUNING, "cache_line", 0),
            patch.object(tiling, "TILES_OF_MODELS", plain),
        ],
        "two": [
            patch.object(TUNING, "most_sums_of_thread", 64),
            patch.object(tiling, "TILES_OF_MODELS", (*deep, *plain[1:])),
        ],
        "short": [patch.object(tiling, "TILES_OF_MODELS", plain)],
    }
    with ExitStack() as stack:
        for word in words.split():
            for change in changes[word]:
                stack.enter_context(change)
        yield


def time_variants(name: str) -> None:
    from ganglion.compiler.cuda import backend

    for title, words in VARIANTS.items():
        print(f"=== {title}", flush=True)
        backend.memory().code_cache.clear()  # which is of another variant
        with variant(words):
            check_and_time(name)


def fit_many(name: str) -> None:
    """Train by `fit_many` twice; print where the host spent the second call's time."""
    from ganglion import config

    config.set_backend("cuda")
    task = task_of(name)
    run = many_bench.ganglion(task, at_once=True)
    run()
    profiler, started = cProfile.Profile(), time.perf_counter()
    profiler.enable()
    run()
    profiler.disable()
    profiled = time.perf_counter() - started
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    rate = task.model_steps / seconds / 1e6
    print(f"fit_many: {rate:.2f} million a second, {seconds:.3f} s", end="")
    print(f" ({profiled:.3f} s with a profiler)")
    stats = pstats.Stats(profiler, stream=sys.stdout)
    stats.sort_stats("cumulative").print_stats(25)


# ---- rivals --------------------------------------------------------------------------


def torch_graph(task: many_bench.Task) -> Callable[[], None]:
    """Return a run of PyTorch: a compiled step, and an epoch of them as one graph."""
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    torch.backends.cuda.matmul.allow_tf32 = True
    network, models = task.network, task.models
    x, y = (torch.from_numpy(array).cuda() for array in network.data())
    parts: list[Any] = []

    def module() -> Any:
        parts.clear()
        for shape in network.shapes():
            parts.extend([torch.nn.Linear(*shape), torch.nn.ReLU()])
        return torch.nn.Sequential(*parts[:-1])

    params, _ = stack_module_state([module().cuda() for _ in range(models)])
    params = {name: value.detach() for name, value in params.items()}
    m, v = ({k: torch.zeros_like(p) for k, p in params.items()} for _ in range(2))
    base = module().to("meta")
    rate = torch.from_numpy(network.rates(models)).cuda()
    count = torch.zeros((), device="cuda")
    orders = torch.zeros((models, network.rows), dtype=torch.int64, device="cuda")

    def loss(params: Any, x: Any, y: Any) -> Any:
        outputs = functional_call(base, params, (x,))
        if network.classifies:
            return torch.nn.functional.cross_entropy(outputs, y)
        return torch.mean((outputs - y) ** 2)

    grads_of = vmap(grad(loss))

    def step(rows: Any) -> None:
        grads = grads_of(params, x[rows], y[rows])
        count.add_(1)
        scale = rate
        if not network.classifies:
            scale = rate * (1 - 0.999**count).sqrt() / (1 - 0.9**count)
        many_bench.torch_update(network, params, m, v, grads, scale)

    compiled, size = torch.compile(step), network.batch
    draw = torch.rand((models, network.rows), device="cuda")

    def epoch() -> None:
        draw.uniform_()
        orders.copy_(draw.argsort(1))
        for number in range(network.steps):
            compiled(orders[:, number * size : (number + 1) * size])

    epoch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        epoch()

    def run() -> None:
        for _ in range(task.epochs):
            graph.replay()
        torch.cuda.synchronize()

    return run


def rival(engine: str, name: str) -> None:
    """Time an engine; its first run compiles."""
    task = task_of(name)
    run = many_bench.jax_engine(task) if engine == "jax" else torch_graph(task)
    started = time.perf_counter()
    run()
    first, times = time.perf_counter() - started, []
    for _ in range(3):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    seconds = sorted(times)[1]
    us = seconds / (task.epochs * task.network.steps) * 1e6
    print(
        f"{engine} {name}: {us:.1f} us a step of all, "
        f"{task.model_steps / seconds / 1e6:.2f} million a second, "
        f"the first run {first:.1f} s",
        flush=True,
    )


def in_process(engine: str, name: str, seconds: float) -> None:
    words = [sys.executable, __file__, "--rival", engine, "--networks", name]
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        subprocess.run(words, env=environment, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        print(f"{engine} {name}: not within {seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default="mnist,tabular")
    parser.add_argument("--rivals", default="jax,torch")
    parser.add_argument("--rival", help="time this one, in this process")
    parser.add_argument("--seconds", type=float, default=60, help="of a rival, at most")
    parser.add_argument("--variants", action="store_true", help="of launches, only")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    names = chosen.networks.split(",")
    if chosen.rival:
        for name in names:
            rival(chosen.rival, name)
        return
    if chosen.variants:
        for name in names:
            time_variants(name)
        return
    for name in names:
        check_and_time(name)
        fit_many(name)
    for engine in filter(None, chosen.rivals.split(",")):
        for name in names:
            in_process(engine, name, chosen.seconds)


if __name__ == "__main__":
    main()
