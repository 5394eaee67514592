"""Model-steps a second of many small networks: Ganglion beside JAX and PyTorch.

    python tests/support/many_bench.py --models 256 --threads 2 --rounds 5

Networks of 20-64-64-1 with ReLU, batches of 32, Adam, another rate and seed for each.
JAX runs `vmap` over models of a `scan` over steps; PyTorch `torch.func.vmap` over
models, eager and compiled; Ganglion `fit_many`, and one `fit` after the other. Engines
take turns; seconds of the clock and of the processors are told, the median of rounds.
Every engine has its own process, so that none has the threads of another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROWS, FEATURES, UNITS, BATCH = 4096, 20, 64, 32
STEPS = ROWS // BATCH
ENGINES = ("many", "alone", "jax", "torch", "torch-compiled")


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype("float32")
    return x, (x[:, :1] ** 2 + x[:, 1:2]).astype("float32")


def rates(models: int) -> np.ndarray:
    return np.geomspace(1e-4, 1e-2, models).astype("float32")


# ---- engines: each returns a function that trains all models for one epoch -----------


def ganglion(models: int, threads: int, at_once: bool) -> Callable[[], None]:
    import ganglion as keras
    from ganglion import layers, many

    keras.config.set_threads(threads)
    x, y = data()

    def build(rate: float) -> Any:
        hidden = [layers.Dense(UNITS, activation="relu") for _ in range(2)]
        model = keras.Sequential([keras.Input((FEATURES,)), *hidden, layers.Dense(1)])
        model.compile(keras.optimizers.Adam(rate), "mse")
        return model

    built = [build(float(rate)) for rate in rates(models)]
    arguments = {"batch_size": BATCH, "verbose": 0}

    def run() -> None:
        if at_once:
            many.fit_many(built, None, x, y, **arguments)
        else:
            for model in built:
                model.fit(x, y, **arguments)

    return run


def jax_engine(models: int) -> Callable[[], None]:
    import jax
    import jax.numpy as jnp

    x, y = map(jnp.asarray, data())

    def init(key: Any) -> Any:
        sizes = [(FEATURES, UNITS), (UNITS, UNITS), (UNITS, 1)]
        keys = jax.random.split(key, len(sizes))
        return [
            (jax.random.normal(k, s) * (2 / s[0]) ** 0.5, jnp.zeros(s[1]))
            for k, s in zip(keys, sizes, strict=True)
        ]

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return jnp.mean((x @ w + b - y) ** 2)

    def step(carry: Any, rows: Any) -> Any:
        params, m, v, count, rate = carry
        grads = jax.grad(loss)(params, x[rows], y[rows])
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        params = jax.tree.map(
            lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-7), params, m, v
        )
        return (params, m, v, count, rate), None

    def epoch(carry: Any, key: Any) -> Any:
        rows = jax.random.permutation(key, ROWS).reshape(STEPS, BATCH)
        return jax.lax.scan(step, carry, rows)[0]

    keys = jax.random.split(jax.random.key(0), models)
    params = jax.vmap(init)(keys)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = [(params, zeros, zeros, jnp.zeros(models), jnp.asarray(rates(models)))]
    compiled = jax.jit(jax.vmap(epoch))

    def run() -> None:
        state[0] = jax.block_until_ready(compiled(state[0], keys))

    return run


def torch_engine(models: int, threads: int, compiled: bool) -> Callable[[], None]:
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    torch.set_num_threads(threads)
    x, y = map(torch.from_numpy, data())

    def network() -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(FEATURES, UNITS), torch.nn.ReLU(),
            torch.nn.Linear(UNITS, UNITS), torch.nn.ReLU(), torch.nn.Linear(UNITS, 1),
        )  # fmt: skip

    params, _ = stack_module_state([network() for _ in range(models)])
    params = {name: value.detach() for name, value in params.items()}
    base = network().to("meta")
    rate = torch.from_numpy(rates(models))

    def loss(params: Any, x: Any, y: Any) -> Any:
        return torch.mean((functional_call(base, params, (x,)) - y) ** 2)

    grads_of = vmap(grad(loss))

    def step(params: Any, m: Any, v: Any, scale: Any, rows: Any) -> Any:
        grads = grads_of(params, x[rows], y[rows])
        for name, g in grads.items():
            m[name].mul_(0.9).add_(g, alpha=0.1)
            v[name].mul_(0.999).addcmul_(g, g, value=0.001)
            by = scale.view(-1, *[1] * (g.ndim - 1))
            params[name].sub_(by * m[name] / (v[name].sqrt() + 1e-7))

    step = torch.compile(step) if compiled else step
    zeros = ({k: torch.zeros_like(p) for k, p in params.items()} for _ in range(2))
    m, v = zeros
    count = 0

    def run() -> None:
        nonlocal count
        orders = torch.stack([torch.randperm(ROWS) for _ in range(models)])
        for number in range(STEPS):
            count += 1
            scale = rate * (1 - 0.999**count) ** 0.5 / (1 - 0.9**count)
            rows = orders[:, number * BATCH : (number + 1) * BATCH]
            step(params, m, v, scale, rows)

    return run


def engine(name: str, models: int, threads: int) -> Callable[[], None]:
    if name in ("many", "alone"):
        return ganglion(models, threads, at_once=name == "many")
    if name == "jax":
        return jax_engine(models)
    return torch_engine(models, threads, compiled=name == "torch-compiled")


# ---- taking turns --------------------------------------------------------------------


def serve(name: str, models: int, threads: int) -> None:
    """Train for an epoch whenever a line comes in; print what it took."""
    run = engine(name, models, threads)
    run()  # compiles
    print("ready", flush=True)
    for _ in sys.stdin:
        clock, processor = time.perf_counter(), time.process_time()
        run()
        took = time.perf_counter() - clock, time.process_time() - processor
        print(json.dumps(took), flush=True)


def started(name: str, models: int, threads: int) -> subprocess.Popen[str]:
    words = [sys.executable, __file__, "--serve", name]
    words += ["--models", str(models), "--threads", str(threads)]
    environment = dict(os.environ)
    if name == "jax" and threads == 1:
        environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def measure(names: list[str], models: int, threads: int, rounds: int) -> None:
    workers = {name: started(name, models, threads) for name in names}
    ready = {n: w for n, w in workers.items() if w.stdout and w.stdout.readline()}
    for name in workers.keys() - ready.keys():
        print(f"{name}: cannot run here")
    times: dict[str, list[list[float]]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, worker in ready.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            times[name].append(json.loads(worker.stdout.readline()))
    for name, worker in ready.items():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
        clock, processor = (
            statistics.median(row) for row in zip(*times[name], strict=True)
        )
        steps = models * STEPS
        print(
            f"{name:15} {steps / clock:10.0f} model-steps a second, "
            f"{steps / processor:10.0f} a second of a processor"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--serve", choices=ENGINES)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve, chosen.models, chosen.threads)
    else:
        names = chosen.engines.split(",")
        measure(names, chosen.models, chosen.threads, chosen.rounds)


if __name__ == "__main__":
    main()
