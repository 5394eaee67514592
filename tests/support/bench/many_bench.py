"""Model-steps a second of many small networks: Ganglion beside JAX and PyTorch.

    python tests/support/bench/many_bench.py --models 256 --threads 2 --rounds 5
    python tests/support/bench/many_bench.py --network mnist --models 64
    python tests/support/bench/many_bench.py --threads 1,16 --engines many,jax,torch

Networks of 20-64-64-1 with ReLU, batches of 32, Adam, another rate and seed each; or
784-128-128-10 on digits, batches of 128, SGD. A round is some epochs of all models.
JAX runs `vmap` over models of a `scan` over epochs and steps; PyTorch `torch.func.vmap`
over models, eager and compiled; Ganglion `fit_many`, and one `fit` after the other.
Engines take turns; the medians over rounds of elapsed and processor time are printed.
Every engine has its own process on as many cores as it has threads, so that engines do
not share threads. With several numbers of threads, each is compared with the first. The
benchmark ends after `--seconds`, with as many rounds as fit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ENGINES = ("many", "alone", "jax", "torch", "torch-compiled")


@dataclass(frozen=True)
class Network:
    """A network to train: the sizes of its layers, its data and its optimizer."""

    sizes: tuple[int, ...]
    rows: int
    batch: int
    classifies: bool  # with a softmax and SGD; else squares and Adam
    drawn: bool = False  # digits at random, where there are none

    @property
    def steps(self) -> int:
        return self.rows // self.batch

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        draws = np.random.default_rng(0)
        if self.classifies and self.drawn:
            x = draws.random((self.rows, self.sizes[0]), "float32")
            return x, draws.integers(0, self.sizes[-1], self.rows)
        if self.classifies:
            from ganglion.datasets import mnist

            (images, labels), _ = mnist.load_data()
            rows = images[: self.rows].reshape(self.rows, -1)
            return (rows / 255).astype("float32"), labels[: self.rows].astype("int64")
        x = draws.normal(size=(self.rows, self.sizes[0])).astype("float32")
        return x, (x[:, :1] ** 2 + x[:, 1:2]).astype("float32")

    def rates(self, models: int) -> np.ndarray:
        low, high = (0.01, 0.3) if self.classifies else (1e-4, 1e-2)
        return np.geomspace(low, high, models).astype("float32")

    def shapes(self) -> list[tuple[int, int]]:
        return list(itertools.pairwise(self.sizes))


NETWORKS = {
    "tabular": Network((20, 64, 64, 1), 4096, 32, classifies=False),
    "mnist": Network((784, 128, 128, 10), 8192, 128, classifies=True),
}


@dataclass(frozen=True)
class Task:
    """The models and epochs of a round."""

    network: Network
    models: int
    threads: int
    epochs: int

    @property
    def model_steps(self) -> int:
        return self.models * self.epochs * self.network.steps


# ---- engines: each returns a function that trains all models for some epochs ---------


def keras_model(network: Network, rate: float) -> Any:
    import ganglion as keras
    from ganglion import layers

    first, *hidden, last = network.sizes
    stack = [layers.Dense(units, activation="relu") for units in hidden]
    model = keras.Sequential([keras.Input((first,)), *stack, layers.Dense(last)])
    if network.classifies:
        loss: Any = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rate), loss)
    else:
        model.compile(keras.optimizers.Adam(rate), "mse")
    return model


def ganglion(task: Task, at_once: bool) -> Callable[[], None]:
    import ganglion as keras
    from ganglion import many

    keras.config.set_threads(task.threads)
    network = task.network
    x, y = network.data()
    rates = network.rates(task.models)
    built = [keras_model(network, float(rate)) for rate in rates]
    arguments = {"batch_size": network.batch, "epochs": task.epochs, "verbose": 0}

    def run() -> None:
        if at_once:
            many.fit_many(built, None, x, y, **arguments)
        else:
            for model in built:
                model.fit(x, y, **arguments)

    return run


def jax_engine(task: Task) -> Callable[[], None]:
    import jax
    import jax.numpy as jnp

    network = task.network
    x, y = map(jnp.asarray, network.data())

    def init(key: Any) -> Any:
        keys = jax.random.split(key, len(network.shapes()))
        return [
            (jax.random.normal(k, s) * (2 / s[0]) ** 0.5, jnp.zeros(s[1]))
            for k, s in zip(keys, network.shapes(), strict=True)
        ]

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        if network.classifies:
            logs = jax.nn.log_softmax(x @ w + b)
            return -jnp.mean(jnp.take_along_axis(logs, y[:, None], 1))
        return jnp.mean((x @ w + b - y) ** 2)

    def adam(carry: Any, grads: Any) -> Any:
        params, m, v, count, rate = carry
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        params = jax.tree.map(
            lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-7), params, m, v
        )
        return params, m, v, count, rate

    def descent(carry: Any, grads: Any) -> Any:
        params, *rest, rate = carry
        return (jax.tree.map(lambda p, g: p - rate * g, params, grads), *rest, rate)

    update = descent if network.classifies else adam

    def step(carry: Any, rows: Any) -> Any:
        return update(carry, jax.grad(loss)(carry[0], x[rows], y[rows])), None

    def epoch(carry: Any, key: Any) -> Any:
        order = jax.random.permutation(key, network.rows)
        return jax.lax.scan(step, carry, order.reshape(network.steps, network.batch))

    def train(carry: Any, key: Any) -> Any:
        return jax.lax.scan(epoch, carry, jax.random.split(key, task.epochs))[0]

    keys = jax.random.split(jax.random.key(0), task.models)
    params = jax.vmap(init)(keys)
    zeros = jax.tree.map(jnp.zeros_like, params)
    slots = ((), ()) if network.classifies else (zeros, zeros)
    rates = jnp.asarray(network.rates(task.models))
    state = [(params, *slots, jnp.zeros(task.models), rates)]
    compiled = jax.jit(jax.vmap(train))

    def run() -> None:
        state[0] = jax.block_until_ready(compiled(state[0], keys))

    return run


def torch_update(
    network: Network, params: Any, m: Any, v: Any, grads: Any, scale: Any
) -> None:
    """Take a step of SGD, or of Adam, in place; each model has a scale of its own."""
    for name, g in grads.items():
        by = scale.view(-1, *[1] * (g.ndim - 1))
        if network.classifies:
            params[name].sub_(by * g)
            continue
        m[name].mul_(0.9).add_(g, alpha=0.1)
        v[name].mul_(0.999).addcmul_(g, g, value=0.001)
        params[name].sub_(by * m[name] / (v[name].sqrt() + 1e-7))


def torch_engine(task: Task, compiled: bool) -> Callable[[], None]:
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    torch.set_num_threads(task.threads)
    network, models = task.network, task.models
    x, y = map(torch.from_numpy, network.data())

    def module() -> Any:
        parts: list[Any] = []
        for shape in network.shapes():
            parts += [torch.nn.Linear(*shape), torch.nn.ReLU()]
        return torch.nn.Sequential(*parts[:-1])

    params, _ = stack_module_state([module() for _ in range(models)])
    params = {name: value.detach() for name, value in params.items()}
    base = module().to("meta")
    rate = torch.from_numpy(network.rates(models))

    def loss(params: Any, x: Any, y: Any) -> Any:
        outputs = functional_call(base, params, (x,))
        if network.classifies:
            return torch.nn.functional.cross_entropy(outputs, y)
        return torch.mean((outputs - y) ** 2)

    grads_of = vmap(grad(loss))

    def step(params: Any, m: Any, v: Any, scale: Any, rows: Any) -> Any:
        grads = grads_of(params, x[rows], y[rows])
        torch_update(network, params, m, v, grads, scale)

    step = torch.compile(step) if compiled else step
    zeros = ({k: torch.zeros_like(p) for k, p in params.items()} for _ in range(2))
    m, v = zeros
    count = 0

    def run() -> None:
        nonlocal count
        size = network.batch
        for _ in range(task.epochs):
            orders = torch.stack([torch.randperm(network.rows) for _ in range(models)])
            for number in range(network.steps):
                count += 1
                scale = rate
                if not network.classifies:
                    scale = rate * (1 - 0.999**count) ** 0.5 / (1 - 0.9**count)
                rows = orders[:, number * size : (number + 1) * size]
                step(params, m, v, scale, rows)

    return run


def engine(name: str, task: Task) -> Callable[[], None]:
    if name in ("many", "alone"):
        return ganglion(task, at_once=name == "many")
    if name == "jax":
        return jax_engine(task)
    return torch_engine(task, compiled=name == "torch-compiled")


# ---- taking turns --------------------------------------------------------------------


def serve(name: str, task: Task) -> None:
    """Train for a round whenever a line comes in; print what it took."""
    cores = sorted(os.sched_getaffinity(0))[: task.threads]
    os.sched_setaffinity(0, cores)
    run = engine(name, task)
    run()  # compiles
    print("ready", flush=True)
    for _ in sys.stdin:
        clock, processor = time.perf_counter(), time.process_time()
        run()
        took = time.perf_counter() - clock, time.process_time() - processor
        print(json.dumps(took), flush=True)


class Worker:
    """An engine on some threads, in a process of its own."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = name, threads
        self.times: list[tuple[float, float]] = []  # of the clock, of processors
        environment = dict(os.environ)
        if name == "jax" and threads == 1:
            environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        words = [sys.executable, *sys.argv, "--serve", name, "--threads", str(threads)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(words, text=True, env=environment, **pipes)
        self.answers, self._questions = self._process.stdout, self._process.stdin

    def is_ready(self, seconds: float) -> bool:
        """Wait until it is compiled; what is not by then is ended."""
        waiting, _, _ = select.select([self.answers], [], [], max(seconds, 0))
        is_ready = bool(waiting) and bool(self.answers.readline())
        if not is_ready:
            self._process.kill()
            why = "cannot run here" if waiting else "is not compiled in time"
            print(f"{self.name} on {self.threads} threads {why}")
        return is_ready

    def run(self) -> None:
        self._questions.write("\n")
        self._questions.flush()
        self.times.append(json.loads(self.answers.readline()))

    def end(self) -> tuple[float, float]:
        """End it; return the medians of its times."""
        self._questions.close()
        self._process.wait()
        clock, processor = zip(*self.times, strict=True)
        return statistics.median(clock), statistics.median(processor)


def measure(
    names: list[str], threads: list[int], task: Task, rounds: int, seconds: float
) -> None:
    end = time.monotonic() + seconds
    workers = [Worker(name, count) for name in names for count in threads]
    # All compile at the same time; the last third is for rounds.
    ready = [w for w in workers if w.is_ready(end - seconds / 3 - time.monotonic())]
    for number in range(rounds):
        if number and time.monotonic() > end:
            print(f"{number} rounds in {seconds:.0f} s")
            break
        for worker in ready:
            worker.run()
    first: dict[str, float] = {}
    for worker in ready:
        clock, processor = worker.end()
        times = first.setdefault(worker.name, clock) / clock
        print(
            f"{worker.name:15} {worker.threads:3} threads "
            f"{task.model_steps / clock:10.0f} model-steps a second, "
            f"{task.model_steps / processor:10.0f} a second of a processor, "
            f"{times:5.2f} times the first"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", choices=NETWORKS, default="tabular")
    parser.add_argument("--models", type=int, default=256)
    parser.add_argument("--threads", default="2", help="one number, or several: 1,16")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=110, help="of all of it")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--serve", choices=ENGINES)
    chosen = parser.parse_args()
    network = NETWORKS[chosen.network]
    threads = [int(count) for count in chosen.threads.split(",")]
    task = Task(network, chosen.models, threads[0], chosen.epochs)
    if chosen.serve:
        serve(chosen.serve, task)
    else:
        names = chosen.engines.split(",")
        measure(names, threads, task, chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
