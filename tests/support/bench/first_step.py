"""The time from `fit` to the first step, and from a new process to a loss.

    python tests/support/bench/first_step.py                    # all, beside rivals
    python tests/support/bench/first_step.py tabular mlp --engines ganglion,torch
    python tests/support/bench/first_step.py tabular --write    # its rows in the docs

Each engine and network runs in a process of its own: one step of the network, and then,
in the same process, one of a network of another width. Ganglion does so twice: with an
empty cache, then with what the first process has left there. A first process of each
engine is not timed: it reads the engine's files from the disk. A network takes a
minute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).resolve().parents[3] / "docs" / "compiler.md"
START, END = "<!-- made by first_step.py -->", "<!-- end -->"
ENGINES = {
    "ganglion": "Ganglion",
    "torch": "PyTorch",
    "tensorflow": "Keras, TensorFlow",
    "jax": "Keras, JAX",
}
KINDS = ("new process to first loss", "its `fit`", "`fit` of a new width")
# The shape of a row, classes (1: a number), the batch, a width and a new one.
NETWORKS: dict[str, tuple[tuple[int, ...], int, int, int, int]] = {
    "tabular": ((20,), 1, 32, 64, 72),
    "mlp": ((784,), 10, 128, 512, 400),
    "ten layers": ((128,), 10, 64, 128, 96),
    "cnn": ((28, 28, 1), 10, 128, 16, 20),
    "resnet-20": ((32, 32, 3), 10, 128, 16, 20),
}
ABOUT = {
    "tabular": "20-64-64-1",
    "mlp": "784-512-512-10",
    "ten layers": "128, batch norm, dropout",
    "cnn": "two convolutions, pools",
    "resnet-20": "16-32-64 channels",
}


# ---- the networks, for Keras' API ----------------------------------------------------


def keras_layers(keras: Any, name: str, width: int) -> Any:
    """Return what a network makes of an input, in Ganglion or in Keras."""
    layers = keras.layers
    dense = layers.Dense
    if name == "tabular":
        hidden = [dense(width, activation="relu") for _ in range(2)]
        return _chained([*hidden, dense(1)])
    if name == "mlp":
        hidden = [dense(width, activation="relu") for _ in range(2)]
        return _chained([*hidden, dense(10, activation="softmax")])
    if name == "ten layers":
        hidden = []
        for _ in range(10):
            hidden += [dense(width, activation="relu"), layers.BatchNormalization()]
            hidden += [layers.Dropout(0.1)]
        return _chained([*hidden, dense(10, activation="softmax")])
    if name == "cnn":
        parts = [
            layers.Conv2D(width, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * width, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            dense(4 * width, activation="relu"),
        ]
        return _chained([*parts, dense(10, activation="softmax")])
    return lambda x: _keras_resnet(layers, x, width)


def _chained(parts: list[Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        for part in parts:
            x = part(x)
        return x

    return call


def _keras_resnet(layers: Any, x: Any, width: int) -> Any:
    def conv(x: Any, channels: int, strides: int = 1, size: int = 3) -> Any:
        x = layers.Conv2D(channels, size, strides, "same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    x = layers.ReLU()(conv(x, width))
    for stage, channels in enumerate((width, 2 * width, 4 * width)):
        for block in range(3):
            strides = 2 if stage and not block else 1
            y = layers.ReLU()(conv(x, channels, strides))
            y = conv(y, channels)
            if strides > 1:
                x = conv(x, channels, strides, 1)
            x = layers.ReLU()(layers.Add()([x, y]))
    return layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x))


def with_keras(keras: Any) -> Callable[[str, int], Callable[[], float]]:
    """Return what makes a network of a width, and returns a step of it."""

    def built(name: str, width: int) -> Callable[[], float]:
        shape, classes, batch, *_ = NETWORKS[name]
        x, y = data(shape, classes, batch)
        inputs = keras.Input(shape)
        model = keras.Model(inputs, keras_layers(keras, name, width)(inputs))
        loss = "mse" if classes == 1 else "sparse_categorical_crossentropy"
        model.compile("adam", loss)

        def step() -> float:
            history = model.fit(x, y, batch_size=batch, verbose=0)
            return float(history.history["loss"][0])

        return step

    return built


# ---- the same in PyTorch -------------------------------------------------------------


def torch_module(nn: Any, name: str, width: int) -> Any:
    """Return a network as a module of PyTorch."""
    if name in ("tabular", "mlp"):
        (first,), classes, *_ = NETWORKS[name]
        hidden = [nn.Linear(first, width), nn.ReLU(), nn.Linear(width, width)]
        return nn.Sequential(*hidden, nn.ReLU(), nn.Linear(width, classes))
    if name == "ten layers":
        parts, size = [], 128
        for _ in range(10):
            parts += [nn.Linear(size, width), nn.ReLU(), nn.BatchNorm1d(width)]
            parts += [nn.Dropout(0.1)]
            size = width
        return nn.Sequential(*parts, nn.Linear(width, 10))
    if name == "cnn":
        first = [nn.Conv2d(1, width, 5), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2)]
        head = [nn.Flatten(), nn.Linear(50 * width, 4 * width), nn.ReLU()]
        return nn.Sequential(*first, *second, *head, nn.Linear(4 * width, 10))
    return _torch_resnet(nn, width)


def _torch_resnet(nn: Any, width: int) -> Any:
    def conv(before: int, after: int, strides: int = 1, size: int = 3) -> Any:
        layer = nn.Conv2d(before, after, size, strides, size // 2, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(after))

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, after: int, strides: int) -> None:
            super().__init__()
            self.first, self.second = conv(before, after, strides), conv(after, after)
            is_same = strides == 1
            self.short = nn.Identity() if is_same else conv(before, after, strides, 1)

        def forward(self, x: Any) -> Any:
            y = self.second(self.first(x).relu())
            return (self.short(x) + y).relu()

    parts, channels = [conv(3, width), nn.ReLU()], width
    for stage in range(3):
        for block in range(3):
            after = width << stage
            parts.append(Block(channels, after, 2 if stage and not block else 1))
            channels = after
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*parts, *head)


def with_torch() -> Callable[[str, int], Callable[[], float]]:
    """Return what makes a network of a width, and returns a step of it."""
    import torch

    def built(name: str, width: int) -> Callable[[], float]:
        shape, classes, batch, *_ = NETWORKS[name]
        x, y = data(shape, classes, batch)
        rows = torch.from_numpy(np.moveaxis(x, -1, 1) if x.ndim == 4 else x)
        targets = torch.from_numpy(y if classes == 1 else y.astype("int64"))
        model = torch_module(torch.nn, name, width)
        optimizer = torch.optim.Adam(model.parameters(), 0.001)
        functions = torch.nn.functional
        measure = functions.mse_loss if classes == 1 else functions.cross_entropy

        def step() -> float:
            optimizer.zero_grad()
            loss = measure(model(rows), targets)
            loss.backward()
            optimizer.step()
            return float(loss.item())

        return step

    return built


# ---- the clock -----------------------------------------------------------------------


def data(
    shape: tuple[int, ...], classes: int, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a batch of noise without zeros, and what to learn of it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, *shape)).astype("float32")
    if classes == 1:
        return x, rng.normal(size=(rows, 1)).astype("float32")
    return x, rng.integers(0, classes, rows).astype("int32")


def run_child(engine: str, name: str, started: float) -> None:
    """Print the seconds to the first loss, and of the first step of each width."""
    if engine == "torch":
        build = with_torch()
    else:
        if engine == "ganglion":
            import ganglion as keras
        else:
            os.environ["KERAS_BACKEND"] = engine
            import keras  # type: ignore[no-redef]
        build = with_keras(keras)
    *_, width, new_width = NETWORKS[name]
    losses, seconds = [], []
    for size in (width, new_width):
        step = build(name, size)
        before = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - before)
        if size == width:
            to_loss = time.time() - started
    assert np.isfinite(losses).all()
    print(json.dumps([to_loss, *seconds]))


def timed(engine: str, name: str, home: str) -> list[float]:
    """Return all times of a process whose cache lies in a folder."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    # The rivals were compiled to bytecode when they were installed.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, __file__, "--child", engine, name, repr(time.time())]
    run = subprocess.run(
        command,
        env={**kept, **quiet, "GANGLION_HOME": home},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    seconds: list[float] = json.loads(run.stdout.splitlines()[-1])
    return seconds


def head(engines: list[str]) -> list[str]:
    """Return the first two lines of the table."""
    rivals = [ENGINES[engine] for engine in engines if engine != "ganglion"]
    titles = ["Ganglion, empty cache", "Ganglion, again", *rivals]
    first = f"| milliseconds | {' | '.join(titles)} |"
    return [first, f"|---|{'---:|' * len(titles)}"]


def rows_of(name: str, engines: list[str], rounds: int) -> Iterator[str]:
    """Measure a network, in turns, and yield its rows: medians of all rounds."""
    columns = [e for e in engines if e != "ganglion"]
    both: list[list[list[float]]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            ours = [timed("ganglion", name, home) for _ in range(2)]
        both.append([*ours, *(timed(e, name, "") for e in columns)])
    for kind, what in enumerate(KINDS):
        medians = [
            statistics.median(times[kind] for times in column)
            for column in zip(*both, strict=True)
        ]
        cells = " | ".join(f"{1000 * seconds:,.0f}" for seconds in medians)
        yield f"| {name} ({ABOUT[name]}), {what} | {cells} |"


def write(top: list[str], rows: list[str]) -> None:
    """Write rows into the table of the docs, in place of those of the same networks."""
    before, _, rest = PAGE.read_text().partition(f"{START}\n")
    table, _, after = rest.partition(f"{END}\n")
    _, _, *old_rows = table.strip().splitlines() or ["", ""]
    lines = {_first_cell(row): row for row in [*old_rows, *rows]}
    known = [f"{name} ({ABOUT[name]}), {what}" for name in NETWORKS for what in KINDS]
    text = "\n".join([*top, *(lines[cell] for cell in known if cell in lines)])
    PAGE.write_text(f"{before}{START}\n\n{text}\n\n{END}\n{after}")


def _first_cell(row: str) -> str:
    return row.split("|")[1].strip()


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        engine, name, started = chosen.child
        run_child(engine, name, float(started))
        return
    engines = chosen.engines.split(",")
    for engine in engines:
        timed(engine, "tabular", "")
    top, rows = head(engines), list[str]()
    print(*top, sep="\n")
    for name in chosen.networks:
        for row in rows_of(name, engines, chosen.rounds):
            print(row, flush=True)
            rows.append(row)
    if chosen.write:
        write(top, rows)


if __name__ == "__main__":
    main()
